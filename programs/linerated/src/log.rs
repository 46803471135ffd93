//! Where the log goes: standard error.

use std::io::{self, Write};
use std::time::Duration;

use linerate_program::standard_error::{self, PIECE};

/// Standard error, for whole lines. Who writes one is a thread that carries packets, so a line never waits: where there is
/// no room for it, it is lost; one that a pipe does not take as a whole is cut.
pub(super) struct Lossy;

impl Write for Lossy {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match line.get(..PIECE - 1) {
            Some(start) if line.len() > PIECE => standard_error::say(&[start, b"\n"].concat(), Duration::ZERO),
            _ => standard_error::say(line, Duration::ZERO),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
