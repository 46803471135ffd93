//! Where the log goes: standard error.

use std::io::{self, Write};
use std::time::Duration;

use linerate_cli::standard_error::{self, PIPE_BUF};

/// Standard error, for whole lines. The threads that write them carry packets, so a write never blocks: a line without
/// room is dropped, and one that a pipe does not take as a whole is cut.
pub(super) struct Lossy;

impl Write for Lossy {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match line.get(..PIPE_BUF - 1) {
            Some(start) if line.len() > PIPE_BUF => standard_error::write(&[start, b"\n"].concat(), Duration::ZERO),
            _ => standard_error::write(line, Duration::ZERO),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
