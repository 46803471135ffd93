//! What programs in the interface's network have sent when the tunnel is to end with them (LINERATE_END_FD): it still goes
//! out, as it does where an interface outlives the programs that use it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use linerate_engine::Handle;
use linerate_netio::clock::{Timer, boottime};
use linerate_netio::namespace::NetworkNamespace;
use linerate_netio::wait::wait;

/// For how long the tunnel stays at most.
const LIMIT: Duration = Duration::from_secs(5);

/// The pause between two looks. A packet that waits in the interface's queue is taken within that time.
const PAUSE: Duration = Duration::from_millis(20);

/// What tells whether something is on its way; opened early, since a confined daemon cannot.
pub(super) struct LastData {
    /// The kernel's tables of the network's TCP connections.
    tables: Vec<File>,
    timer: Timer,
}

impl LastData {
    /// Tables that cannot be opened are not looked at.
    ///
    /// # Errors
    /// There is no timer.
    pub(super) fn of(network: &NetworkNamespace) -> io::Result<Self> {
        let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
        let opened = tables.iter().filter_map(|path| network.inside(|| File::open(path)).ok());
        Ok(Self { tables: opened.collect(), timer: Timer::new()? })
    }

    /// Returns when nothing is on its way any more, `stop` is readable, or the time is up.
    ///
    /// # Errors
    /// It cannot wait.
    pub(super) fn wait(&self, engine: &Handle, stop: &[BorrowedFd<'_>]) -> io::Result<()> {
        let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
        let limit = boottime() + nanoseconds(LIMIT);
        let fds: Vec<_> = [self.timer.as_fd()].into_iter().chain(stop.iter().copied()).collect();
        // What was in the interface's queue at the first look is staged, or with a peer, at the second.
        let mut quiet = 0;
        while quiet < 2 && boottime() < limit {
            self.timer.set(Some(boottime() + nanoseconds(PAUSE)))?;
            if wait(&fds)? != 1 {
                return Ok(());
            }
            self.timer.drain();
            quiet = if engine.has_staged() || self.has_closing() { 0 } else { quiet + 1 };
        }
        Ok(())
    }

    fn has_closing(&self) -> bool {
        self.tables.iter().any(|table| read(table).is_ok_and(|table| table.lines().any(is_closing)))
    }
}

/// The whole of a file of /proc, from its beginning.
fn read(table: &File) -> io::Result<String> {
    let (mut text, mut block) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match table.read_at(&mut block, text.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            length => text.extend_from_slice(&block[..length]),
        }
    }
}

/// Whether a line of /proc/net/tcp is a connection that this side has closed, and of which not everything was acknowledged
/// (proc(5); the states' numbers are those of include/net/tcp_states.h).
fn is_closing(line: &str) -> bool {
    const FIN_WAIT1: &str = "04";
    const LAST_ACK: &str = "09";
    const CLOSING: &str = "0B";
    line.split_whitespace().nth(3).is_some_and(|state| [FIN_WAIT1, LAST_ACK, CLOSING].contains(&state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_that_were_closed_and_not_acknowledged() {
        let line = |state| format!("   0: 0100090A:D431 0200090A:270F {state} 00000F42:00000000 01:00000014 00000000");
        let closing: Vec<_> = (1..=12).filter(|state| is_closing(&line(format!("{state:02X}")))).collect();
        assert_eq!(closing, [4, 9, 11]);
        assert!(!is_closing("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt"));
        assert!(!is_closing(""));
    }
}
