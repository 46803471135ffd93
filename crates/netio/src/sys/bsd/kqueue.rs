//! kqueue(2): signals, a timer, a watched folder, process or socket behind a descriptor, which poll(2) can wait for
//! (sys/kern/kern_event.c, kqueue_poll; XNU: bsd/kern/kern_event.c, kqueue_kqfilter).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use rustix::event::kqueue::kqueue;
use rustix::io::{FdFlags, fcntl_setfd};

use super::super::{checked, signal_mask};
use super::os;

/// The number of the only timer of a queue, which no descriptor has.
pub(crate) const TIMER: usize = usize::MAX;

/// The number of the only flag of a queue.
const FLAG: usize = 0;

/// A queue of events.
pub(crate) struct Queue(OwnedFd);

impl Queue {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = kqueue()?;
        fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
        Ok(Self(fd))
    }

    /// Blocks these signals, in this thread and in those that it starts later, and counts them from now on.
    ///
    /// They are counted although they are blocked: the queue is told first (sys/kern/kern_sig.c, tdsendsignal; XNU:
    /// bsd/kern/kern_sig.c, psignal_internal).
    pub(crate) fn watch_signals(&self, numbers: &[libc::c_int]) -> io::Result<()> {
        signal_mask::block(numbers)?;
        let watch = |number: libc::c_int| event(number as usize, libc::EVFILT_SIGNAL, libc::EV_ADD, 0, 0);
        numbers.iter().try_for_each(|&number| self.change(watch(number)))
    }

    /// A flag that [`raise`](Self::raise) raises; it is lowered when it is taken.
    pub(crate) fn watch_flag(&self) -> io::Result<()> {
        self.change(event(FLAG, libc::EVFILT_USER, libc::EV_ADD | libc::EV_CLEAR, 0, 0))
    }

    pub(crate) fn raise(&self) -> io::Result<()> {
        self.change(event(FLAG, libc::EVFILT_USER, 0, libc::NOTE_TRIGGER, 0))
    }

    /// An event when an entry of a folder is made, removed or renamed; all until it is taken are one.
    pub(crate) fn watch_folder(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        let events = libc::NOTE_WRITE | libc::NOTE_DELETE | libc::NOTE_RENAME;
        let number = folder.as_raw_fd() as usize;
        self.change(event(number, libc::EVFILT_VNODE, libc::EV_ADD | libc::EV_CLEAR, events, 0))
    }

    /// Fires once after this time, rounded up to a millisecond; `None` disarms. Forgets what was not taken.
    pub(crate) fn set_timer(&self, after: Option<Duration>) -> io::Result<()> {
        match self.change(event(TIMER, libc::EVFILT_TIMER, libc::EV_DELETE, 0, 0)) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
            _ => {}
        }
        let Some(after) = after else { return Ok(()) };
        let flags = libc::EV_ADD | libc::EV_ONESHOT;
        // At most a day.
        let time = after.as_nanos().div_ceil(1_000_000) as isize;
        self.change(event(TIMER, libc::EVFILT_TIMER, flags, os::TIMER, time))
    }

    /// An event when this descriptor is readable.
    pub(crate) fn watch_readable(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.change(event(fd.as_raw_fd() as usize, libc::EVFILT_READ, libc::EV_ADD, 0, 0))
    }

    /// An event in each period; all until it is taken are one.
    pub(crate) fn watch_time(&self, period: Duration) -> io::Result<()> {
        let time = period.as_millis() as isize;
        self.change(event(TIMER, libc::EVFILT_TIMER, libc::EV_ADD | libc::EV_CLEAR, os::TIMER, time))
    }

    /// An event when a child of this process has ended. One that has not been waited for is found by FreeBSD
    /// (sys/kern/kern_event.c, filt_procattach: pfind_any), and not by XNU, where the event is raised here.
    pub(crate) fn watch_end(&self, child: u32) -> io::Result<()> {
        match self.change(event(child as usize, libc::EVFILT_PROC, libc::EV_ADD, libc::NOTE_EXIT, 0)) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                self.watch_flag()?;
                self.raise()
            }
            watched => watched,
        }
    }

    /// Takes the next event: the number of its signal, of the timer, or of the watched descriptor.
    pub(crate) fn take(&self) -> Option<usize> {
        let mut taken = event(0, 0, 0, 0, 0);
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: there are no changes; there is room for one event, which lives past the call, as the time does.
        let count = unsafe { libc::kevent(self.0.as_raw_fd(), ptr::null(), 0, &raw mut taken, 1, &raw const now) };
        (count == 1).then_some(taken.ident)
    }

    fn change(&self, change: libc::kevent) -> io::Result<()> {
        // SAFETY: one change, which lives past the call; there is no room for events, so that none is waited for.
        checked(unsafe { libc::kevent(self.0.as_raw_fd(), &raw const change, 1, ptr::null_mut(), 0, ptr::null()) })?;
        Ok(())
    }
}

impl From<Queue> for OwnedFd {
    fn from(queue: Queue) -> Self {
        queue.0
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn event(ident: usize, filter: i16, flags: u16, fflags: u32, data: isize) -> libc::kevent {
    // SAFETY: a kevent is made of integers and a pointer, for which zero is a value; FreeBSD's has more of them.
    let mut event: libc::kevent = unsafe { MaybeUninit::zeroed().assume_init() };
    (event.ident, event.filter, event.flags, event.fflags, event.data) = (ident, filter, flags, fflags, data as _);
    event
}
