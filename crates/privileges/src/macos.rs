//! macOS: another user. Nothing that FreeBSD and Linux have against tracing or setuid programs is there for a program
//! that is not signed for it.

use linerate_netio::process::{become_user, share_heap};

use crate::{Confinement, InForce, ProxyConfinement, note};

/// Drops what a running daemon does not need.
///
/// # Errors
/// It cannot switch to the user.
pub fn confine_daemon(requested: &Confinement<'_>) -> Result<InForce, String> {
    let mut missing = Vec::new();
    note::<()>(&mut missing, "privileges can be regained by programs", Err("macOS has no call against it".to_owned()));
    share_heap();
    if let Some(user) = requested.user {
        become_user(user.uid(), user.gid()).map_err(|error| user.refuse(&error))?;
        missing.push(format!(
            "the socket file is not removed on exit, ports below 1024 and the MTU cannot be changed: user {} has no \
             privileges",
            user.name()
        ));
    }
    Ok(InForce { landlock: 0, memory_closed: false, filtered: false, missing })
}

/// There is nothing to drop for a program that has no privileges.
pub fn confine_proxy(_: &ProxyConfinement) -> InForce {
    share_heap();
    let missing = vec!["system calls and files are not confined (macOS has no call for it)".to_owned()];
    InForce { landlock: 0, memory_closed: false, filtered: false, missing }
}

/// # Errors
/// Always: on macOS only the daemon's own limit (RLIMIT_CORE) prevents core files.
pub fn deny_tracing() -> Result<(), String> {
    Err("macOS has no call against it".to_owned())
}

/// There is nothing of a thread alone.
pub fn confine_proxy_thread(_: &ProxyConfinement) -> (u64, Vec<String>) {
    (0, Vec::new())
}
