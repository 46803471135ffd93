//! Linux: capabilities, Landlock and seccomp.

mod capabilities;
mod filter;
mod memory;
mod paths;
mod user;

use linerate_netio::process::share_heap;
use rustix::thread::{CapabilitySet, capabilities as own_capabilities, set_no_new_privs};

pub use capabilities::{DAEMON_MAX, FIREWALL_SUPERVISOR_MAX, SUPERVISOR_MAX};
pub use memory::{deny_tracing, lock as lock_memory};

use filter::Program;

use crate::{Confinement, InForce, ProxyConfinement, note};

/// Drops every privilege that a running daemon does not need.
///
/// # Errors
/// It cannot switch to the user.
pub fn confine_daemon(requested: &Confinement<'_>) -> Result<InForce, String> {
    let mut missing = Vec::new();
    share_heap();
    note(&mut missing, "memory may be swapped out", memory::lock());
    let landlock = note(&mut missing, "files are not confined", paths::removal_only(requested.socket_directory));
    let landlock = landlock.unwrap_or(0);
    let removes_socket = requested.user.is_some() && landlock > 0;
    let capabilities = capabilities::of_daemon(removes_socket);
    note(&mut missing, "capabilities can be regained", capabilities::limit_bounding_set(capabilities, NONE));
    if let Some(user) = requested.user {
        user::switch(user)?;
        if !removes_socket {
            missing.push(format!(
                "the socket file is not removed on exit: as user {} that requires Landlock",
                user.name()
            ));
        }
    }
    note(&mut missing, "capabilities are kept", capabilities::retain(capabilities, NONE));
    let memory_closed = memory::deny_tracing();
    let memory_closed = note(&mut missing, "processes of the same user can read its memory", memory_closed).is_some();
    let filtered =
        note(&mut missing, "system calls are not filtered", filter::install(Program::Daemon, requested.filter))
            == Some(true);
    if !filtered {
        // Without it there would be no tunnel: the interface is not in this namespace.
        let kept = if requested.enters_network { capabilities::NETNS } else { NONE };
        missing.push(match requested.enters_network {
            true => "CAP_SYS_ADMIN is kept, for the network of the interface: requires the seccomp filter".into(),
            false => "an interface moved to another namespace is not followed: requires the seccomp filter".into(),
        });
        if removes_socket {
            missing.push("the socket file is not removed on exit: requires the seccomp filter".into());
        }
        let rest = capabilities::retain(capabilities.difference(capabilities::REQUIRES_FILTER).union(kept), NONE);
        note(&mut missing, "cannot drop the capabilities that only the seccomp filter would have limited", rest);
    }
    Ok(InForce { landlock, memory_closed, filtered, missing })
}

const NONE: CapabilitySet = CapabilitySet::empty();

/// Drops everything that a running proxy does not need; it has no files, starts no program and has no capabilities. What
/// it listens on is open before. Threads that run already keep their files and capabilities unless they call
/// [`confine_proxy_thread`]; the filter is for them, too.
pub fn confine_proxy(requested: &ProxyConfinement) -> InForce {
    share_heap();
    let (landlock, mut missing) = confine_proxy_thread(requested);
    let memory_closed = memory::deny_tracing();
    let memory_closed = note(&mut missing, "processes of the same user can read its memory", memory_closed).is_some();
    let filtered = filter::install(Program::Proxy, requested.filter);
    let filtered = note(&mut missing, "system calls are not filtered", filtered) == Some(true);
    InForce { landlock, memory_closed, filtered, missing }
}

/// Confines a thread that a proxy has started before it confined itself, as far as that is of a thread. Returns the
/// Landlock ABI version in force, or 0, and what could not be applied.
pub fn confine_proxy_thread(requested: &ProxyConfinement) -> (u64, Vec<String>) {
    let mut missing = Vec::new();
    let no_new_privs = set_no_new_privs(true).map_err(|error| error.to_string());
    note(&mut missing, "privileges can be regained by programs", no_new_privs);
    let landlock = paths::sockets_only(requested.connects);
    let landlock = note(&mut missing, "files are not confined", landlock).unwrap_or(0);
    // Whoever has none cannot change the bounding set, and with no_new_privs gets none out of it.
    if own_capabilities(None).is_ok_and(|own| !own.permitted.is_empty()) {
        note(&mut missing, "capabilities can be regained", capabilities::limit_bounding_set(NONE, NONE));
        note(&mut missing, "capabilities are kept", capabilities::retain(NONE, NONE));
    }
    (landlock, missing)
}

/// Drops all privileges except those needed to query the daemon and change routes; if it `opens_firewalls`, also those
/// of the programs that keep firewalls. A later call gives up these, too; they stay in the bounding set, from which
/// nothing can be had any more. Not for a supervisor that starts other programs, which would inherit the restrictions.
pub fn confine_supervisor(opens_firewalls: bool) {
    let (kept, passed_on) = match opens_firewalls {
        true => (FIREWALL_SUPERVISOR_MAX, capabilities::FIREWALL_PROGRAMS),
        false => (SUPERVISOR_MAX, NONE),
    };
    // `linerate doctor --security` shows what could not be dropped.
    let _ = capabilities::limit_bounding_set(kept, passed_on);
    let _ = capabilities::retain(kept, passed_on);
}

/// Drops everything but sockets and reading files: for processes that parse what comes from the network and change
/// nothing. The resolver, in which plug-ins of the C library do so, and the responder of `linerate speed`. Returns the
/// Landlock ABI version in force, or 0.
///
/// Call it while single-threaded. A confined supervisor can no longer change the user of its children, so the resolver
/// that it starts stays root.
pub fn confine_reader() -> u64 {
    let _ = capabilities::limit_bounding_set(NONE, NONE);
    let _ = user::switch_to_nobody();
    let _ = capabilities::retain(NONE, NONE);
    paths::read_only().unwrap_or(0)
}
