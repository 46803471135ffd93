//! The log of Android's system.

use std::ffi::{CString, c_char, c_int};

use tracing::Level;

// liblog of the NDK (android/log.h).
#[link(name = "log")]
// SAFETY: the prototype is that of android/log.h.
unsafe extern "C" {
    fn __android_log_write(priority: c_int, tag: *const c_char, text: *const c_char) -> c_int;
}

/// A line of the system's log.
pub(super) fn log(level: Level, tag: &str, text: &str) {
    let priority = match level {
        Level::ERROR => 6,
        Level::WARN => 5,
        Level::INFO => 4,
        _ => 3,
    };
    let (Ok(tag), Ok(text)) = (CString::new(tag), CString::new(text)) else { return };
    // SAFETY: both texts end with a zero, and are only read.
    unsafe { __android_log_write(priority, tag.as_ptr(), text.as_ptr()) };
}
