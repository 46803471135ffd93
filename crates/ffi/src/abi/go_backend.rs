//! The JNI names of wireguard-android's `libwg-go.so`, for its class `GoBackend`: a program that has that library takes
//! this one instead, under its file name.
//!
//! It can protect sockets only after they were bound, because the class asks for them then; `lr_start` and our own
//! class have no such gap.

use std::sync::Arc;

use jni_sys::{JNIEnv, jclass, jint, jstring};
use tracing::Level;
use tracing::level_filters::LevelFilter;
use zeroize::Zeroizing;

use super::{VERSION, jni, take};
use crate::tunnel::{CallbackGuard, Host, HostEvent, Refusal, Start, Tunnel, What};
use crate::tunnels;

/// The app sees nothing but the system's log.
struct LogOnly {
    name: String,
}

impl Host for LogOnly {
    fn protect(&self, _: i32) -> bool {
        true
    }

    #[cfg(target_os = "android")]
    fn log(&self, level: Level, text: &str) {
        super::android::log(level, &format!("WireGuard/GoBackend/{}", self.name), text);
    }

    #[cfg(not(target_os = "android"))]
    fn log(&self, level: Level, text: &str) {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "WireGuard/GoBackend/{}: {level}: {text}", self.name);
    }

    fn event(&self, _: HostEvent, _: &str) {}
}

/// # Safety
/// Java calls it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "system" fn Java_com_wireguard_android_backend_GoBackend_wgTurnOn(
    env: *mut JNIEnv,
    _: jclass,
    name: jstring,
    tun_fd: jint,
    settings: jstring,
) -> jint {
    // SAFETY: Java passes its environment and strings.
    let (name, settings) = unsafe { (jni::string(env, name), jni::string(env, settings)) };
    let name = name.map_or_else(String::new, |name| String::from_utf8_lossy(&name).into_owned());
    let host = Arc::new(LogOnly { name: name.clone() });
    match turn_on(&name, tun_fd, settings, host.clone()) {
        Ok(tunnel) => tunnels::add(tunnel),
        Err(refusal) => {
            host.log(Level::ERROR, &refusal.why);
            -1
        }
    }
}

fn turn_on(
    name: &str,
    tun_fd: jint,
    settings: Option<Zeroizing<Vec<u8>>>,
    host: Arc<LogOnly>,
) -> Result<Tunnel, Refusal> {
    let tun = take(tun_fd)?;
    CallbackGuard::refuse()?;
    let settings = settings.ok_or_else(|| Refusal::new(libc::EINVAL, "there are no settings"))?;
    Tunnel::start(Start { name, tun, mtu: None, settings: &settings, host, log: LevelFilter::INFO })
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
extern "system" fn Java_com_wireguard_android_backend_GoBackend_wgTurnOff(_: *mut JNIEnv, _: jclass, handle: jint) {
    // One that is unknown is off.
    let _ = tunnels::stop(handle);
}

/// # Safety
/// Java calls it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "system" fn Java_com_wireguard_android_backend_GoBackend_wgGetConfig(
    env: *mut JNIEnv,
    _: jclass,
    handle: jint,
) -> jstring {
    match tunnels::find(handle).and_then(|tunnel| tunnel.get(What::Configuration)) {
        // SAFETY: Java passes its environment.
        Ok(text) => unsafe { jni::new_string(env, &text) },
        Err(_) => std::ptr::null_mut(),
    }
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
extern "system" fn Java_com_wireguard_android_backend_GoBackend_wgGetSocketV4(
    _: *mut JNIEnv,
    _: jclass,
    handle: jint,
) -> jint {
    socket(handle, 0)
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
extern "system" fn Java_com_wireguard_android_backend_GoBackend_wgGetSocketV6(
    _: *mut JNIEnv,
    _: jclass,
    handle: jint,
) -> jint {
    socket(handle, 1)
}

fn socket(handle: jint, family: usize) -> jint {
    tunnels::find(handle).and_then(|tunnel| tunnel.sockets()).ok().and_then(|sockets| sockets[family]).unwrap_or(-1)
}

/// # Safety
/// Java calls it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "system" fn Java_com_wireguard_android_backend_GoBackend_wgVersion(
    env: *mut JNIEnv,
    _: jclass,
) -> jstring {
    // SAFETY: Java passes its environment.
    unsafe { jni::new_string(env, VERSION.trim_end_matches('\0').as_bytes()) }
}
