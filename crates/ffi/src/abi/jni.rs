//! What the calls of Java have in common: strings, exceptions, threads.

use std::cell::RefCell;
use std::ffi::{CString, c_void};
use std::ptr;

use jni_sys::{JNI_EDETACHED, JNI_OK, JNI_VERSION_1_6, JNIEnv, JavaVM, jstring};
use linerate_control::zeroizing::Buffer;
use zeroize::Zeroizing;

use crate::tunnel::Refusal;

/// A text of Java, which is wiped on our side; `None` if there is none.
///
/// # Safety
/// `env` is that of this thread, and `text` null or a string of it.
pub(super) unsafe fn string(env: *mut JNIEnv, text: jstring) -> Option<Zeroizing<Vec<u8>>> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for both. A region of n characters takes the bytes that GetStringUTFLength says, and
    // some machines write a zero after them.
    unsafe {
        let bytes = ((**env).v1_2.GetStringUTFLength)(env, text);
        let characters = ((**env).v1_2.GetStringLength)(env, text);
        let mut region = Zeroizing::new(vec![0; bytes as usize + 1]);
        ((**env).v1_2.GetStringUTFRegion)(env, text, 0, characters, region.as_mut_ptr().cast());
        region.truncate(bytes as usize);
        Some(region)
    }
}

/// A string of Java; null if it has no memory. What is not ASCII becomes a question mark: Java's UTF-8 is another.
///
/// # Safety
/// `env` is that of this thread.
pub(super) unsafe fn new_string(env: *mut JNIEnv, text: &[u8]) -> jstring {
    let mut ascii = Buffer::with_capacity(text.len() + 1);
    for byte in text {
        ascii.extend(&[if (1..128).contains(byte) { *byte } else { b'?' }]);
    }
    ascii.extend(&[0]);
    // SAFETY: the caller vouches for `env`; the text ends with a zero.
    unsafe { ((**env).v1_2.NewStringUTF)(env, ascii.as_ptr().cast()) }
}

/// Throws an IOException with the reason, unless Java itself has thrown something.
///
/// # Safety
/// `env` is that of this thread, which is called by Java.
pub(super) unsafe fn throw(env: *mut JNIEnv, refusal: &Refusal) {
    let why = CString::new(refusal.why.replace(|letter: char| !(' '..='~').contains(&letter), "?"));
    let why = why.expect("no zero is printable");
    // SAFETY: the caller vouches for `env`; the texts end with a zero. A class that is not found leaves an exception,
    // too.
    unsafe {
        if ((**env).v1_2.ExceptionCheck)(env) {
            return;
        }
        let class = ((**env).v1_2.FindClass)(env, c"java/io/IOException".as_ptr());
        if !class.is_null() {
            ((**env).v1_2.ThrowNew)(env, class, why.as_ptr());
        }
    }
}

thread_local! {
    /// The machine that this thread was attached to by us.
    static ATTACHED: RefCell<Option<Attached>> = const { RefCell::new(None) };
}

struct Attached(*mut JavaVM);

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: this thread is attached, by us, and has no Java below it: it ends.
        unsafe { ((**self.0).v1_1.DetachCurrentThread)(self.0) };
    }
}

/// The environment of this thread, which is attached to the machine, until it ends, if it was not; `None` if that
/// fails.
///
/// # Safety
/// `vm` is the machine of this process.
pub(super) unsafe fn environment(vm: *mut JavaVM) -> Option<*mut JNIEnv> {
    let mut env: *mut c_void = ptr::null_mut();
    // SAFETY: the caller vouches for `vm`; the environment is written to a place of ours.
    match unsafe { ((**vm).v1_2.GetEnv)(vm, &raw mut env, JNI_VERSION_1_6) } {
        JNI_OK => {}
        JNI_EDETACHED => {
            // SAFETY: the same. As a daemon, it does not keep the machine from its end.
            let attached = unsafe { ((**vm).v1_4.AttachCurrentThreadAsDaemon)(vm, &raw mut env, ptr::null_mut()) };
            if attached != JNI_OK {
                return None;
            }
            ATTACHED.set(Some(Attached(vm)));
        }
        _ => return None,
    }
    (!env.is_null()).then_some(env.cast())
}
