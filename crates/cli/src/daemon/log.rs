//! Where the log goes: standard error, which may be a pipe that nobody reads.
//!
//! Who writes a line is a thread that carries packets, so a line never waits: where there is no room for it, it is lost.

use std::io::{self, IoSlice, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::writev;
use rustix::stdio::stderr;

/// What a pipe that is ready for writing takes without blocking (PIPE_BUF, pipe(7)); longer lines are cut.
const LINE_MAX: usize = 4096;

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Standard error, for one whole line after the other. Never fails: nobody could be told.
pub(super) struct Lossy;

impl Write for Lossy {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let error = stderr();
        // A file is always ready; a full pipe and a stopped terminal are not.
        if poll(&mut [PollFd::new(&error, PollFlags::OUT)], Some(&NO_TIME)).is_ok_and(|ready| ready > 0) {
            let (text, end) = if line.len() > LINE_MAX { (&line[..LINE_MAX - 1], "\n") } else { (line, "") };
            let _ = writev(error, &[IoSlice::new(text), IoSlice::new(end.as_bytes())]);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
