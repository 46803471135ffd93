//! The JNI names of our own class `linerate.Native` (packaging/android): the C ABI for Java. An exception is a refusal.

use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;

use jni_sys::{JNIEnv, JavaVM, jboolean, jclass, jint, jmethodID, jobject, jstring, jvalue};
use linerate_engine::embedder::Network;
use tracing::Level;
use tracing::level_filters::LevelFilter;

use super::{VERSION, jni, level_number, take};
use crate::tunnel::{CallbackGuard, Host, HostEvent, Refusal, Start, Tunnel, What};
use crate::tunnels;

/// An object of the class `linerate.Native.Host`.
struct JavaHost {
    vm: *mut JavaVM,
    /// A global reference.
    object: jobject,
    protect: jmethodID,
    log: jmethodID,
    event: jmethodID,
}

// SAFETY: the machine, global references and the numbers of methods are for all threads, each with an environment of
// its own, which is asked for at each call (JNI specification, chapter 2).
unsafe impl Send for JavaHost {}
// SAFETY: the same.
unsafe impl Sync for JavaHost {}

impl JavaHost {
    /// # Safety
    /// `env` is that of this thread, which is called by Java, and `host` an object of the class, or null.
    unsafe fn new(env: *mut JNIEnv, host: jobject) -> Result<Self, Refusal> {
        if host.is_null() {
            return Err(Refusal::new(libc::EINVAL, "the host is null"));
        }
        let mut vm: *mut JavaVM = ptr::null_mut();
        // SAFETY: the caller vouches for both; the texts end with a zero, and the machine is written to a place of
        // ours.
        unsafe {
            let class = ((**env).v1_2.GetObjectClass)(env, host);
            let method = |name: &std::ffi::CStr, kind: &std::ffi::CStr| {
                let method = ((**env).v1_2.GetMethodID)(env, class, name.as_ptr(), kind.as_ptr());
                let missing = || Refusal::new(libc::EINVAL, "the host is no linerate.Native.Host");
                (!method.is_null()).then_some(method).ok_or_else(missing)
            };
            let protect = method(c"protect", c"(I)Z")?;
            let log = method(c"log", c"(ILjava/lang/String;)V")?;
            let event = method(c"event", c"(ILjava/lang/String;)V")?;
            let object = ((**env).v1_2.NewGlobalRef)(env, host);
            if object.is_null() || ((**env).v1_2.GetJavaVM)(env, &raw mut vm) != 0 {
                return Err(Refusal::new(libc::ENOMEM, "Java has no memory left"));
            }
            Ok(Self { vm, object, protect, log, event })
        }
    }

    /// Calls a method that takes a number and perhaps a text, and returns a boolean if there is no text. False as well
    /// if it throws.
    fn call(&self, method: jmethodID, number: jint, text: Option<&str>) -> bool {
        // SAFETY: the machine is that of the process; the object and its methods live as long as `self`, and have these
        // parameters. The string is this call's own, and an exception ends here.
        unsafe {
            let Some(env) = jni::environment(self.vm) else { return false };
            let text = text.map(|text| jni::new_string(env, text.as_bytes()));
            let arguments = [jvalue { i: number }, jvalue { l: text.unwrap_or(ptr::null_mut()) }];
            let answer = match text {
                None => ((**env).v1_2.CallBooleanMethodA)(env, self.object, method, arguments.as_ptr()),
                Some(_) => {
                    ((**env).v1_2.CallVoidMethodA)(env, self.object, method, arguments.as_ptr());
                    true
                }
            };
            let threw = ((**env).v1_2.ExceptionCheck)(env);
            if threw {
                ((**env).v1_2.ExceptionDescribe)(env);
                ((**env).v1_2.ExceptionClear)(env);
            }
            // A thread of ours returns to no Java, which would free it.
            text.into_iter().for_each(|text| ((**env).v1_2.DeleteLocalRef)(env, text));
            answer && !threw
        }
    }
}

impl Drop for JavaHost {
    fn drop(&mut self) {
        // SAFETY: the machine is that of the process, and the reference is ours and not used again.
        unsafe {
            if let Some(env) = jni::environment(self.vm) {
                ((**env).v1_2.DeleteGlobalRef)(env, self.object);
            }
        }
    }
}

impl Host for JavaHost {
    fn protect(&self, socket: RawFd) -> bool {
        self.call(self.protect, socket, None)
    }

    fn log(&self, level: Level, text: &str) {
        self.call(self.log, level_number(level), Some(text));
    }

    fn event(&self, what: HostEvent, detail: &str) {
        self.call(self.event, what as jint, Some(detail));
    }
}

/// # Safety
/// Java calls it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "system" fn Java_linerate_Native_start(
    env: *mut JNIEnv,
    _: jclass,
    name: jstring,
    tun_fd: jint,
    settings: jstring,
    mtu: jint,
    host: jobject,
) -> jint {
    // SAFETY: Java passes its environment and objects.
    unsafe {
        let started = (|| {
            let tun = take(tun_fd)?;
            CallbackGuard::refuse()?;
            let host = Arc::new(JavaHost::new(env, host)?);
            let missing = || Refusal::new(libc::EINVAL, "there are no settings");
            let settings = jni::string(env, settings).ok_or_else(missing)?;
            let name = jni::string(env, name).unwrap_or_default();
            let (name, mtu) = (String::from_utf8_lossy(&name), u32::try_from(mtu).ok().filter(|mtu| *mtu != 0));
            Tunnel::start(Start { name: &name, tun, mtu, settings: &settings, host, log: LevelFilter::INFO })
        })();
        or_throw(env, started.map(tunnels::add)).unwrap_or(0)
    }
}

/// # Safety
/// Java calls it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "system" fn Java_linerate_Native_set(env: *mut JNIEnv, _: jclass, tunnel: jint, settings: jstring) {
    // SAFETY: Java passes its environment and string.
    unsafe {
        let missing = || Refusal::new(libc::EINVAL, "there are no settings");
        let settings = jni::string(env, settings).ok_or_else(missing);
        or_throw(env, settings.and_then(|settings| tunnels::find(tunnel)?.set(&settings)));
    }
}

/// # Safety
/// Java calls it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "system" fn Java_linerate_Native_get(env: *mut JNIEnv, _: jclass, tunnel: jint, what: jint) -> jstring {
    let what = u32::try_from(what).ok().and_then(What::from_number);
    let what = what.ok_or_else(|| Refusal::new(libc::EINVAL, "there is no such text"));
    // SAFETY: Java passes its environment.
    unsafe {
        let text = or_throw(env, what.and_then(|what| tunnels::find(tunnel)?.get(what)));
        text.map_or(ptr::null_mut(), |text| jni::new_string(env, &text))
    }
}

/// # Safety
/// Java calls it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "system" fn Java_linerate_Native_network(env: *mut JNIEnv, _: jclass, tunnel: jint, there: jboolean) {
    let network = if there { Network::Changed } else { Network::Lost };
    // SAFETY: Java passes its environment.
    unsafe { or_throw(env, tunnels::find(tunnel).and_then(|tunnel| tunnel.set_network(network))) };
}

/// # Safety
/// Java calls it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "system" fn Java_linerate_Native_tun(env: *mut JNIEnv, _: jclass, tunnel: jint, tun_fd: jint) {
    let replaced = take(tun_fd).and_then(|tun| tunnels::find(tunnel)?.replace_tun(tun));
    // SAFETY: Java passes its environment.
    unsafe { or_throw(env, replaced) };
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
extern "system" fn Java_linerate_Native_stop(_: *mut JNIEnv, _: jclass, tunnel: jint) {
    // One that is unknown is stopped.
    let _ = tunnels::stop(tunnel);
}

/// # Safety
/// Java calls it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "system" fn Java_linerate_Native_version(env: *mut JNIEnv, _: jclass) -> jstring {
    // SAFETY: Java passes its environment.
    unsafe { jni::new_string(env, VERSION.trim_end_matches('\0').as_bytes()) }
}

/// What a call has come to; `None` if it has thrown its refusal.
///
/// # Safety
/// `env` is that of this thread, which is called by Java.
unsafe fn or_throw<T>(env: *mut JNIEnv, result: Result<T, Refusal>) -> Option<T> {
    // SAFETY: the caller vouches for it.
    result.inspect_err(|refusal| unsafe { jni::throw(env, refusal) }).ok()
}
