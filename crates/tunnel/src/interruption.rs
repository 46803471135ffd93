//! Ctrl-C and SIGTERM, asked for between steps and while a program is waited for, so that what was begun is undone.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The wish of the user, or of the system, that this command ends.
pub struct Interruption {
    /// Readable once a signal has come.
    signals: UnixStream,
    /// Whether one was forgotten.
    heeded: AtomicBool,
}

/// Readable once a signal has come.
impl AsFd for Interruption {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

impl Interruption {
    /// Takes SIGINT, SIGTERM and SIGHUP over. Programs that this one starts have them as they were.
    ///
    /// # Errors
    /// The system gives no descriptors.
    pub fn listen() -> io::Result<Self> {
        let (signals, handler) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        // nohup and the like have it ignored, and want that.
        let hang_up = (!ignores_hang_up()).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
            signal_hook::low_level::pipe::register(signal, handler.try_clone()?)?;
        }
        Ok(Self { signals, heeded: AtomicBool::new(false) })
    }

    /// Whether a signal has come.
    pub fn came(&self) -> bool {
        let mut ready = [PollFd::new(&self.signals, PollFlags::IN)];
        poll(&mut ready, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Forgets the signals that have come: what is done because of them is not to be interrupted by them.
    pub fn clear(&self) {
        let mut bytes = [0; 64];
        while (&self.signals).read(&mut bytes).is_ok_and(|count| count > 0) {
            self.heeded.store(true, Ordering::Relaxed);
        }
    }

    /// As [`Interruption::clear`], for signals that end a service as they should: what is done then may take its time.
    pub fn forget(&self) {
        self.clear();
        self.heeded.store(false, Ordering::Relaxed);
    }

    /// Whether a signal has cut a command short: whoever sent it waits for the end.
    pub fn is_waited_for(&self) -> bool {
        self.heeded.load(Ordering::Relaxed)
    }

    /// Waits for `child`. A signal that comes meanwhile is passed on to it once.
    ///
    /// # Errors
    /// The system does not say.
    pub fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let id = Pid::from_child(child);
        let ended = pidfd_open(id, PidfdFlags::empty())?;
        let mut passed_on = false;
        loop {
            let mut ready = vec![PollFd::new(&ended, PollFlags::IN)];
            if !passed_on {
                ready.push(PollFd::new(&self.signals, PollFlags::IN));
            }
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if ready[0].revents().contains(PollFlags::IN) {
                return child.wait();
            }
            if !passed_on && self.came() {
                // From a terminal it has come to the child as well; one that came to us alone has not.
                let _ = kill_process(id, Signal::TERM);
                passed_on = true;
            }
        }
    }

    /// Waits for one of `descriptors` to be readable, for a signal, or for `patience`, if there is one, to be over.
    ///
    /// # Errors
    /// The system does not wait.
    pub fn pause(&self, descriptors: &[BorrowedFd<'_>], patience: Option<Duration>) -> io::Result<()> {
        let mut ready: Vec<PollFd<'_>> =
            descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        ready.push(PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN));
        let timespec = |patience: Duration| Timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: patience.subsec_nanos().into(),
        };
        match poll(&mut ready, patience.map(timespec).as_ref()) {
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
