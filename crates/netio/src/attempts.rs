//! What a confined process must be refused, to be tried from inside: for tests alone, with the feature `attempts`.

use std::io;

use crate::sys::attempt;

/// The names of all attempts.
pub fn names() -> impl Iterator<Item = &'static str> {
    attempt::names()
}

/// Makes the attempt of that name, which does no harm where it is not refused.
///
/// # Errors
///
/// The system call's; NotFound for a name that is not among [`names`].
pub fn attempt(name: &str) -> io::Result<()> {
    attempt::attempt(name)
}
