//! Standard error, which may be a pipe that nobody reads: who writes there waits for room for a while, not for ever.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{retry_on_intr, write};
use rustix::stdio::stderr;

/// What a pipe that is ready for writing takes without blocking (PIPE_BUF, pipe(7)).
pub const PIECE: usize = 4096;

/// Writes all of `text`, or as much as there is room for: where nothing fits for as long as `patience`, the rest is
/// lost. Never fails, since nobody could be told.
pub fn say(mut text: &[u8], patience: Duration) {
    let error = stderr();
    let patience = Timespec::try_from(patience).ok();
    while !text.is_empty() {
        // A file is always ready; a full pipe and a stopped terminal are not.
        let ready = retry_on_intr(|| poll(&mut [PollFd::new(&error, PollFlags::OUT)], patience.as_ref()));
        if !ready.is_ok_and(|ready| ready > 0) {
            return;
        }
        match retry_on_intr(|| write(error, &text[..text.len().min(PIECE)])) {
            Err(_) | Ok(0) => return,
            Ok(written) => text = &text[written..],
        }
    }
}
