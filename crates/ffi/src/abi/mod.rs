//! The border to other languages: whatever comes in is taken for a mistake until it was checked, and no panic goes out.
//! The release profile aborts at a panic, as the engine's threads need it, and an `extern "C"` function of any profile
//! lets none through.

#[cfg(any(target_os = "android", test))]
mod android;
mod c;
mod go_backend;
mod jni;
mod jni_host;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use tracing::Level;

use crate::tunnel::Refusal;

/// The version of the library, with its zero.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// Takes over a descriptor that a caller has given away.
fn take(number: RawFd) -> Result<OwnedFd, Refusal> {
    let refused = || Refusal::new(libc::EBADF, format!("{number} is not an open descriptor"));
    // Those of standard input, output and error are nobody's to give.
    if number <= libc::STDERR_FILENO {
        return Err(refused());
    }
    // SAFETY: F_GETFD only reads the flags of a descriptor, or fails if there is none.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(refused());
    }
    // SAFETY: it is open, and the caller has given it away, as the function's contract says (include/linerate.h).
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    // SAFETY: it lives as long as `fd`. Children of the process must not keep the interface.
    let flagged = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    if flagged < 0 { Err(refused()) } else { Ok(fd) }
}

/// The number of a level in `include/linerate.h`.
fn level_number(level: Level) -> i32 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        _ => 4,
    }
}

/// The level of a number in `include/linerate.h`; without one, INFO.
fn level_of(number: u32) -> Level {
    match number {
        1 => Level::ERROR,
        2 => Level::WARN,
        0 | 3 => Level::INFO,
        _ => Level::DEBUG,
    }
}
