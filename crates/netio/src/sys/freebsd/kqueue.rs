//! kqueue(2): signals, a timer, a watched folder or socket behind a descriptor, which poll(2) can wait for
//! (sys/kern/kern_event.c, kqueue_poll).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use rustix::event::kqueue::kqueue;
use rustix::io::{FdFlags, fcntl_setfd};

use super::super::checked;

const _: () = assert!(size_of::<libc::kevent>() == 64);

/// The number of the only timer of a queue, which no descriptor has.
pub(crate) const TIMER: usize = usize::MAX;

/// A queue of events.
pub(crate) struct Queue(OwnedFd);

impl Queue {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = kqueue()?;
        fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
        Ok(Self(fd))
    }

    /// Counts this signal from now on.
    pub(crate) fn watch_signal(&self, number: libc::c_int) -> io::Result<()> {
        self.change(event(number as usize, libc::EVFILT_SIGNAL, libc::EV_ADD, 0, 0))
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
        let time = after.as_nanos().div_ceil(1_000_000) as i64;
        self.change(event(TIMER, libc::EVFILT_TIMER, flags, libc::NOTE_MSECONDS, time))
    }

    /// An event when this descriptor is readable.
    pub(crate) fn watch_readable(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.change(event(fd.as_raw_fd() as usize, libc::EVFILT_READ, libc::EV_ADD, 0, 0))
    }

    /// An event in each period; all until it is taken are one.
    pub(crate) fn watch_time(&self, period: Duration) -> io::Result<()> {
        let time = period.as_millis() as i64;
        self.change(event(TIMER, libc::EVFILT_TIMER, libc::EV_ADD | libc::EV_CLEAR, libc::NOTE_MSECONDS, time))
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

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn event(ident: usize, filter: i16, flags: u16, fflags: u32, data: i64) -> libc::kevent {
    libc::kevent { ident, filter, flags, fflags, data, udata: ptr::null_mut(), ext: [0; 4] }
}
