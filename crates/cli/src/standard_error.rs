//! Writes to standard error with a timeout, because it may be a full pipe without a reader.

use std::io::{self, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::stdio::stderr;

/// What a pipe that is ready for writing takes without blocking (PIPE_BUF, pipe(7)).
pub const PIPE_BUF: usize = 4096;

/// Writes `text`. Discards the rest after waiting `timeout` for room. Errors are ignored: there is nowhere to report
/// them.
pub fn write(mut text: &[u8], timeout: Duration) {
    let error = stderr();
    let timeout = Timespec::try_from(timeout).ok();
    while !text.is_empty() {
        // A file is always ready; a full pipe and a stopped terminal are not.
        let ready = retry_on_intr(|| poll(&mut [PollFd::new(&error, PollFlags::OUT)], timeout.as_ref()));
        if !ready.is_ok_and(|ready| ready > 0) {
            return;
        }
        match retry_on_intr(|| rustix::io::write(error, &text[..text.len().min(PIPE_BUF)])) {
            Err(_) | Ok(0) => return,
            Ok(written) => text = &text[written..],
        }
    }
}

/// Standard error, for whole lines. The threads that write them carry packets, so a write never blocks: a line without
/// room is dropped, and one that a pipe does not take as a whole is cut.
pub struct Lossy;

impl Write for Lossy {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match line.get(..PIPE_BUF - 1) {
            Some(start) if line.len() > PIPE_BUF => write(&[start, b"\n"].concat(), Duration::ZERO),
            _ => write(line, Duration::ZERO),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
