//! The log of Android's system. Its tests run on every system, with a stand-in for liblog.

use std::ffi::{CString, c_char, c_int};

use tracing::Level;

// liblog of the NDK (android/log.h).
#[cfg_attr(target_os = "android", link(name = "log"))]
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

#[cfg(all(test, not(target_os = "android")))]
mod tests {
    use std::cell::RefCell;
    use std::ffi::CStr;

    use super::*;

    thread_local!(static LINES: RefCell<Vec<(c_int, String, String)>> = const { RefCell::new(Vec::new()) });

    /// Keeps what liblog would write.
    // SAFETY: no other symbol has this name: liblog is Android's.
    #[unsafe(no_mangle)]
    extern "C" fn __android_log_write(priority: c_int, tag: *const c_char, text: *const c_char) -> c_int {
        // SAFETY: both are texts that end with a zero, and live for this call, as android/log.h asks of callers.
        let texts = [tag, text].map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        let [tag, text] = texts;
        LINES.with_borrow_mut(|lines| lines.push((priority, tag, text)));
        1
    }

    #[test]
    fn a_line_has_its_tag_and_androids_priority_and_one_with_a_zero_is_left_out() {
        for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
            log(level, "WireGuard/GoBackend/wg0", &format!("{level}"));
        }
        log(Level::ERROR, "tag", "cut\0off");
        let lines = LINES.take();
        assert!(lines.iter().all(|(_, tag, _)| tag == "WireGuard/GoBackend/wg0"));
        let of: Vec<_> = lines.iter().map(|(priority, _, text)| (*priority, &**text)).collect();
        // ANDROID_LOG_ERROR, _WARN, _INFO, _DEBUG (android/log.h).
        assert_eq!(of, [(6, "ERROR"), (5, "WARN"), (4, "INFO"), (3, "DEBUG"), (3, "TRACE")]);
    }
}
