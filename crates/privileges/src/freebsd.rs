//! FreeBSD: another user, no tracing, no core files, no setuid programs.
//!
//! No capability mode (Capsicum): in it a socket that is not connected cannot send (sys/kern/uipc_syscalls.c,
//! kern_sendit: ECAPMODE), and those are the tunnel's. Another user keeps no privilege, so that afterwards the
//! interface's MTU, ports below 1024 and the socket's file are out of its reach.

use linerate_netio::process::{become_user, share_heap};
use rustix::process::{DumpableBehavior, set_dumpable_behavior, set_no_new_privs};

use crate::{Confinement, InForce, ProxyConfinement, note};

/// Drops what a running daemon does not need.
///
/// # Errors
/// It cannot switch to the user.
pub fn confine_daemon(requested: &Confinement<'_>) -> Result<InForce, String> {
    let mut missing = Vec::new();
    share_heap();
    if let Some(user) = requested.user {
        become_user(user.uid(), user.gid()).map_err(|error| user.refuse(&error))?;
        missing.push(format!(
            "the socket file (before FreeBSD 15 the interface, too) is not removed on exit, ports below 1024 and the \
             MTU cannot be changed: user {} has no privileges",
            user.name()
        ));
    }
    Ok(close(missing))
}

/// Drops what a running proxy does not need.
pub fn confine_proxy(_: &ProxyConfinement) -> InForce {
    share_heap();
    close(Vec::new())
}

/// Nothing here is of a thread alone.
pub fn confine_proxy_thread(_: &ProxyConfinement) -> (u64, Vec<String>) {
    (0, Vec::new())
}

/// Nothing: changing routes needs root, and there is no part of that to keep.
pub fn confine_supervisor(_: bool) {}

/// Makes this process one of nobody, for processes that parse what comes from the network and change nothing. Returns 0:
/// there is no Landlock.
pub fn confine_reader() -> u64 {
    // `nobody` of etc/master.passwd and etc/group. Whoever is not root stays who it is.
    let _ = become_user(65534, 65534);
    let _ = close(Vec::new());
    0
}

/// # Errors
/// Always: what may be locked is bounded for all processes together (`vm.max_user_wired`, mlock(2)), and nobody has tried.
pub fn lock_memory() -> Result<(), String> {
    Err("memory is not locked on FreeBSD".to_owned())
}

/// Prevents core files and tracing by processes of the same user.
///
/// # Errors
/// In one sentence.
pub fn deny_tracing() -> Result<(), String> {
    // `None` is this process, and those that it starts.
    set_dumpable_behavior(None, DumpableBehavior::NotDumpable).map_err(|error| format!("PROC_TRACE_CTL: {error}"))
}

fn close(mut missing: Vec<String>) -> InForce {
    let memory_closed = note(&mut missing, "processes of the same user can read its memory", deny_tracing()).is_some();
    // Of this process, `None`, and of those that it starts.
    let programs = set_no_new_privs(None).map_err(|error| format!("PROC_NO_NEW_PRIVS_CTL: {error}"));
    note(&mut missing, "privileges can be regained by programs", programs);
    InForce { landlock: 0, memory_closed, filtered: false, missing }
}
