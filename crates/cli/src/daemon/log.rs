//! Where the log goes: standard error.

use std::io::{self, Write};
use std::time::Duration;

use crate::standard_error;

/// What a pipe that is ready for writing takes as a whole (PIPE_BUF, pipe(7)); longer lines are cut.
const LINE_MAX: usize = 4096;

/// Standard error, for whole lines. Who writes one is a thread that carries packets, so a line never waits: where there is
/// no room for it, it is lost.
pub(super) struct Lossy;

impl Write for Lossy {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match line.get(..LINE_MAX - 1) {
            Some(start) if line.len() > LINE_MAX => standard_error::say(&[start, b"\n"].concat(), Duration::ZERO),
            _ => standard_error::say(line, Duration::ZERO),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
