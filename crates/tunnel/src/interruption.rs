//! Signals that ask a command to end. Checked between steps and while a child process runs, so that the command can
//! undo what it has done.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_netio::process::end_of;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Signals that ask this process to end.
pub struct Interruption {
    /// Readable once a signal has come.
    signals: UnixStream,
    /// Whether a signal was cleared.
    cleared: AtomicBool,
}

/// Readable once a signal has come.
impl AsFd for Interruption {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

impl Interruption {
    /// Handles SIGINT, SIGTERM and SIGHUP from now on. Child processes inherit the original signal dispositions.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn listen() -> io::Result<Self> {
        let (signals, handler) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        // nohup(1) starts us with SIGHUP ignored.
        let hang_up = (!ignores_hang_up()).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
            signal_hook::low_level::pipe::register(signal, handler.try_clone()?)?;
        }
        Ok(Self { signals, cleared: AtomicBool::new(false) })
    }

    /// Whether a signal has come.
    pub fn came(&self) -> bool {
        let mut ready = [PollFd::new(&self.signals, PollFlags::IN)];
        poll(&mut ready, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Clears the signals that have come, so that they do not interrupt the rollback that they cause.
    pub(crate) fn clear(&self) {
        let mut bytes = [0; 64];
        while (&self.signals).read(&mut bytes).is_ok_and(|count| count > 0) {
            self.cleared.store(true, Ordering::Relaxed);
        }
    }

    /// As [`Interruption::clear`], for signals that end a service in the usual way: no user is waiting, so later steps
    /// need not hurry.
    pub(crate) fn forget(&self) {
        self.clear();
        self.cleared.store(false, Ordering::Relaxed);
    }

    /// Whether a signal was cleared: the user wants the command to end soon.
    pub(crate) fn user_is_waiting(&self) -> bool {
        self.cleared.load(Ordering::Relaxed)
    }

    /// Waits for `child`, and forwards to it the first signal that comes meanwhile.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub(crate) fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let ended = end_of(child)?;
        let mut forwarded = false;
        loop {
            let mut ready = vec![PollFd::new(&ended, PollFlags::IN)];
            if !forwarded {
                ready.push(PollFd::new(&self.signals, PollFlags::IN));
            }
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if ready[0].revents().contains(PollFlags::IN) {
                return child.wait();
            }
            if !forwarded && self.came() {
                // A terminal has sent it to the child, too; other senders have not.
                let _ = kill_process(Pid::from_child(child), Signal::TERM);
                forwarded = true;
            }
        }
    }

    /// Waits until one of `descriptors` is readable, a signal comes, or `timeout` is over.
    ///
    /// # Errors
    /// poll(2) fails.
    pub fn pause(&self, descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        let mut ready: Vec<PollFd<'_>> =
            descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        ready.push(PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN));
        let timespec = |timeout: Duration| Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut ready, timeout.map(timespec).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Whether this process was started with SIGHUP ignored (proc_pid_status(5), `SigIgn`).
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}
