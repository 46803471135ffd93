//! Becoming another user.

use rustix::process::{Gid, Uid};
use rustix::thread::{set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::user::User;

/// Switches the calling thread to this user and its primary group, without supplementary groups. Capabilities stay
/// permitted. Call it while single-threaded: other threads would keep their user.
pub(super) fn switch(user: &User) -> Result<(), String> {
    let (uid, gid) = (Uid::from_raw(user.uid()), Gid::from_raw(user.gid()));
    set_keep_capabilities(true)
        .and_then(|()| set_thread_groups(&[]))
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid))
        .map_err(|error| user.refuse(&error.into()))
}

/// Switches the calling thread to nobody (65534, the kernel's overflow user), without supplementary groups or
/// capabilities.
///
/// # Errors
/// EPERM without CAP_SETUID and CAP_SETGID.
pub(super) fn switch_to_nobody() -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(65534), Gid::from_raw(65534));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}
