//! What each process of a tunnel gives up after setup, so that it keeps only what it needs. docs/privileges.md has the
//! list.
//!
//! [`confine_daemon`] runs on the main thread after everything is opened and before another thread starts, which then
//! inherits all of it. In this order: lock memory, restrict the file system ([`paths`]), switch the user ([`user`]),
//! drop capabilities ([`capabilities`]), deny access to our memory, filter system calls ([`filter`]). None of it is
//! needed to run: what a kernel or container does not offer is logged at INFO, and the daemon starts anyway. Only a
//! requested user that is not available is an error.
//!
//! Under another user the daemon cannot remove its socket, whose directory belongs to root. It keeps CAP_DAC_OVERRIDE
//! for that, but only if Landlock and the filter limit it to removing files in that directory. Otherwise the socket
//! file stays, and the next daemon replaces it. The alternative, a second process as root that waits to remove it,
//! would have to forward signals and exit codes, and would be the one that service managers see.

#![forbid(unsafe_code)]

mod capabilities;
pub mod filter;
mod memory;
mod paths;
pub mod user;

use std::fmt;
use std::path::Path;

use linerate_netio::process::{share_heap, trapped_calls};
use rustix::thread::CapabilitySet;

pub use capabilities::{DAEMON_MAX, FIREWALL_SUPERVISOR_MAX, SUPERVISOR_MAX};
use filter::Filter;
pub use memory::lock as lock_memory;
use user::User;

/// The requested confinement of a daemon.
pub struct Confinement<'a> {
    /// User to switch to; `None` keeps the current one.
    pub user: Option<&'a User>,
    /// What happens on a system call that the daemon does not need.
    pub filter: Filter,
    /// The directory of the socket, the only one from which files may be removed.
    pub socket_directory: &'a Path,
}

/// Confinement in force that /proc does not show.
pub struct InForce {
    /// The Landlock ABI version, or 0.
    landlock: u64,
    /// Whether other processes of the same user cannot read our memory.
    memory_closed: bool,
    /// Whether the filter refuses system calls.
    filtered: bool,
    /// Protections that could not be applied, as message fragments.
    pub missing: Vec<String>,
}

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
        user.switch()?;
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
    let filtered = note(&mut missing, "system calls are not filtered", requested.filter.install()) == Some(true);
    if !filtered {
        missing.push("an interface moved to another namespace is not followed: requires the seccomp filter".into());
        if removes_socket {
            missing.push("the socket file is not removed on exit: requires the seccomp filter".into());
        }
        let rest = capabilities::retain(capabilities.difference(capabilities::REQUIRES_FILTER), NONE);
        note(&mut missing, "cannot drop the capabilities that only the seccomp filter would have limited", rest);
    }
    Ok(InForce { landlock, memory_closed, filtered, missing })
}

const NONE: CapabilitySet = CapabilitySet::empty();

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

/// The value, or `None` after adding `clause` with the reason to `missing`.
fn note<T>(missing: &mut Vec<String>, clause: &str, result: Result<T, String>) -> Option<T> {
    result.map_err(|reason| missing.push(format!("{clause} ({reason})"))).ok()
}

impl InForce {
    /// Counters to show beside the engine's.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let trapped = trapped_calls();
        let mut counters = vec![
            (LANDLOCK_VERSION.to_owned(), self.landlock),
            (MEMORY_CLOSED.to_owned(), self.memory_closed.into()),
            (CALLS_FILTERED.to_owned(), self.filtered.into()),
            (CALLS_REFUSED.to_owned(), trapped.count),
        ];
        if trapped.count > 0 {
            counters.push((LAST_CALL_REFUSED.to_owned(), trapped.last));
        }
        counters
    }
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let landlock = if self.landlock > 0 { format!("ABI {}", self.landlock) } else { "none".into() };
        let filter = if self.filtered { "refuses system calls" } else { "refuses nothing" };
        write!(f, "Landlock: {landlock}; the seccomp filter {filter}")
    }
}

/// Counter: the Landlock ABI version in force, or 0.
pub const LANDLOCK_VERSION: &str = "landlock_version";
/// Counter: 1 if other processes of the same user cannot read its memory.
pub const MEMORY_CLOSED: &str = "memory_closed";
/// Counter: 1 if the filter refuses system calls.
pub const CALLS_FILTERED: &str = "system_calls_filtered";
/// Counter: refused system calls.
pub const CALLS_REFUSED: &str = "system_calls_refused";
/// Counter: the number of the last refused system call.
pub const LAST_CALL_REFUSED: &str = "system_calls_refused_last";
