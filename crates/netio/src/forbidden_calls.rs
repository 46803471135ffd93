//! System calls that confinement must block; test-only, with the feature `forbidden-calls`.

use std::io;

use crate::sys::forbidden_calls;

/// The names of all calls.
pub fn names() -> impl Iterator<Item = &'static str> {
    forbidden_calls::names()
}

/// Makes the call of that name, which does no harm if it is not blocked.
///
/// # Errors
///
/// The system call's; NotFound for a name that is not among [`names`].
pub fn make(name: &str) -> io::Result<()> {
    forbidden_calls::make(name)
}
