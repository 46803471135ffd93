//! The C ABI: `include/linerate.h`, whose comments say what each function does.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::os::fd::RawFd;
use std::sync::Arc;

use linerate_engine::embedder::Network;
use tracing::Level;
use tracing::level_filters::LevelFilter;

use super::{VERSION, level_number, level_of, take};
use crate::tunnel::{CallbackGuard, Host, HostEvent, Refusal, Start, Tunnel, What};
use crate::tunnels;

/// What a handle points to: nothing. Its address is the number of the tunnel.
#[repr(C)]
#[allow(missing_docs)]
pub struct lr_tunnel {
    _opaque: [u8; 0],
}

/// `lr_host`.
#[repr(C)]
#[derive(Clone, Copy)]
struct HostTable {
    size: usize,
    user: *mut c_void,
    protect: Option<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>,
    log: Option<unsafe extern "C" fn(*mut c_void, c_int, *const c_char)>,
    event: Option<unsafe extern "C" fn(*mut c_void, c_int, *const c_char)>,
    log_level: c_uint,
    mtu: c_uint,
}

// The same numbers are in crates/ffi/tests/embed.c.
const _: () = assert!(size_of::<HostTable>() == 5 * size_of::<usize>() + 8);
const _: () = assert!(offset_of!(HostTable, event) == 4 * size_of::<usize>());

impl HostTable {
    /// A program that wants nothing.
    const NONE: Self = Self {
        size: size_of::<Self>(),
        user: std::ptr::null_mut(),
        protect: None,
        log: None,
        event: None,
        log_level: 0,
        mtu: 0,
    };

    /// # Safety
    /// `table` is null, or points to as many bytes as its first word says.
    unsafe fn read(table: *const Self) -> Result<Self, Refusal> {
        if table.is_null() {
            return Ok(Self::NONE);
        }
        let refused = || Refusal::new(libc::EINVAL, "lr_host: size must be sizeof(lr_host)");
        // SAFETY: there are as many bytes as the first word says, so there is the first word; alignment is not asked
        // for.
        let size = unsafe { (&raw const (*table).size).read_unaligned() };
        // A program that was built for a later version sets what is unknown here; one that is shorter there never was.
        if size < size_of::<Self>() || size > 4096 {
            return Err(refused());
        }
        // SAFETY: there are at least as many bytes, and any are a value but for functions, which are the program's or
        // null.
        Ok(unsafe { table.read_unaligned() })
    }
}

/// A host of functions of C.
struct CHost(HostTable);

// SAFETY: the program's functions may be called by any thread, with `user`; so says include/linerate.h.
unsafe impl Send for CHost {}
// SAFETY: the same, by several at once.
unsafe impl Sync for CHost {}

impl Host for CHost {
    fn protect(&self, socket: RawFd) -> bool {
        // SAFETY: the program has given its function for such calls, until lr_stop returns.
        self.0.protect.is_none_or(|protect| unsafe { protect(self.0.user, socket) != 0 })
    }

    fn log(&self, level: Level, text: &str) {
        if let Some(log) = self.0.log {
            let text = to_c(text);
            // SAFETY: as for `protect`; the text outlives the call.
            unsafe { log(self.0.user, level_number(level), text.as_ptr()) };
        }
    }

    fn event(&self, what: HostEvent, detail: &str) {
        if let Some(event) = self.0.event {
            let detail = to_c(detail);
            // SAFETY: as for `protect`; the text outlives the call.
            unsafe { event(self.0.user, what as c_int, detail.as_ptr()) };
        }
    }
}

/// # Safety
/// Pointers are null or valid as `include/linerate.h` says; nobody else uses `tun_fd`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn lr_start(
    name: *const c_char,
    tun_fd: c_int,
    settings: *const c_char,
    host: *const HostTable,
    tunnel: *mut *mut lr_tunnel,
    why: *mut c_char,
    why_size: usize,
) -> c_int {
    let started = (|| {
        // First: it is ours, whatever else is wrong.
        let tun = take(tun_fd)?;
        CallbackGuard::refuse()?;
        if tunnel.is_null() {
            return Err(Refusal::new(libc::EINVAL, "there is no place for the handle"));
        }
        // SAFETY: the caller vouches for `host`, `name` and `settings`.
        let (table, name, settings) =
            unsafe { (HostTable::read(host)?, text(name, "name")?, text(settings, "settings")?) };
        let log = table.log.map_or(LevelFilter::OFF, |_| level_of(table.log_level).into());
        let mtu = Some(table.mtu).filter(|mtu| *mtu != 0);
        let host = Arc::new(CHost(table));
        let name = name.to_string_lossy();
        Ok(tunnels::add(Tunnel::start(Start { name: &name, tun, mtu, settings: settings.to_bytes(), host, log })?))
    })();
    let started = started.map(|number| {
        // SAFETY: not null, and the caller's place for a handle.
        unsafe { tunnel.write_unaligned(std::ptr::without_provenance_mut(number as usize)) };
    });
    // SAFETY: the caller vouches for `why`.
    unsafe { answer(started, why, why_size) }
}

/// # Safety
/// Pointers are null or valid as `include/linerate.h` says.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn lr_set(
    tunnel: *mut lr_tunnel,
    settings: *const c_char,
    why: *mut c_char,
    why_size: usize,
) -> c_int {
    // SAFETY: the caller vouches for `settings` and `why`.
    unsafe {
        let settings = text(settings, "settings");
        let set = settings.and_then(|settings| tunnels::find(number(tunnel))?.set(settings.to_bytes()));
        answer(set, why, why_size)
    }
}

/// # Safety
/// Pointers are null or valid as `include/linerate.h` says.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn lr_get(tunnel: *mut lr_tunnel, what: c_uint, buffer: *mut c_char, length: *mut usize) -> c_int {
    let got = (|| {
        let invalid = || Refusal::new(libc::EINVAL, "");
        let what = What::from_number(what).filter(|_| !length.is_null()).ok_or_else(invalid)?;
        let text = tunnels::find(number(tunnel))?.get(what)?;
        // SAFETY: not null, and the caller vouches for it.
        let room = unsafe { length.replace(text.len() + 1) };
        if buffer.is_null() || room <= text.len() {
            return Err(Refusal::new(libc::ERANGE, ""));
        }
        // SAFETY: the caller has `room` bytes at `buffer`, which the text and its zero do not exceed.
        unsafe {
            buffer.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
            buffer.add(text.len()).write(0);
        }
        Ok(())
    })();
    // SAFETY: a null `why` is not written to.
    unsafe { answer(got, std::ptr::null_mut(), 0) }
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
extern "C" fn lr_network(tunnel: *mut lr_tunnel, what: c_int) -> c_int {
    let network = match what {
        1 => Ok(Network::Changed),
        2 => Ok(Network::Lost),
        _ => Err(Refusal::new(libc::EINVAL, "")),
    };
    let told = network.and_then(|network| tunnels::find(number(tunnel))?.set_network(network));
    // SAFETY: a null `why` is not written to.
    unsafe { answer(told, std::ptr::null_mut(), 0) }
}

/// # Safety
/// Pointers are null or valid as `include/linerate.h` says; nobody else uses `tun_fd`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn lr_tun(tunnel: *mut lr_tunnel, tun_fd: c_int, why: *mut c_char, why_size: usize) -> c_int {
    let replaced = take(tun_fd).and_then(|tun| tunnels::find(number(tunnel))?.replace_tun(tun));
    // SAFETY: the caller vouches for `why`.
    unsafe { answer(replaced, why, why_size) }
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
extern "C" fn lr_stop(tunnel: *mut lr_tunnel) -> c_int {
    // SAFETY: a null `why` is not written to.
    unsafe { answer(tunnels::stop(number(tunnel)), std::ptr::null_mut(), 0) }
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
extern "C" fn lr_version() -> *const c_char {
    VERSION.as_ptr().cast()
}

/// The number that a handle is; 0, which no tunnel has, if it cannot be one.
fn number(tunnel: *mut lr_tunnel) -> i32 {
    i32::try_from(tunnel.addr()).unwrap_or(0)
}

/// A text of the caller.
///
/// # Safety
/// It is null, or ends with a zero and stays as it is for `'a`.
unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a CStr, Refusal> {
    if text.is_null() {
        return Err(Refusal::new(libc::EINVAL, format!("{name} is NULL")));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// The number that a call returns; a refusal's reason goes to `why`.
///
/// # Safety
/// `why` is null or has room for `room` bytes.
unsafe fn answer(result: Result<(), Refusal>, why: *mut c_char, room: usize) -> c_int {
    let Err(refusal) = result else { return 0 };
    if !why.is_null() && room > 0 {
        let reason = to_c(&refusal.why);
        let length = reason.as_bytes().len().min(room - 1);
        // SAFETY: there is room for so many bytes and the zero.
        unsafe {
            why.copy_from_nonoverlapping(reason.as_ptr(), length);
            why.add(length).write(0);
        }
    }
    -refusal.errno.abs()
}

fn to_c(text: &str) -> CString {
    let without_zeros: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(without_zeros).expect("there are no zeros in it")
}
