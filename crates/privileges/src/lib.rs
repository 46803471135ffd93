//! What each process of a tunnel gives up after setup, so that it keeps only what it needs. docs/privileges.md has the
//! list.
//!
//! [`confine_daemon`] runs on the main thread after everything is opened and before another thread starts, which then
//! inherits all of it. On Linux, in this order: lock memory, restrict the file system (`paths`), switch the user
//! ([`user`]), drop capabilities (`capabilities`), deny access to our memory, filter system calls ([`filter`]). None of
//! it is needed to run: what a kernel or container does not offer is logged at INFO, and the daemon starts anyway. Only
//! a requested user that is not available is an error.
//!
//! Under another user the daemon cannot remove its socket, whose directory belongs to root. It keeps CAP_DAC_OVERRIDE
//! for that, but only if Landlock and the filter limit it to removing files in that directory. Otherwise the socket
//! file stays, and the next daemon replaces it. The alternative, a second process as root that waits to remove it,
//! would have to forward signals and exit codes, and would be the one that service managers see.
//!
//! [`confine_proxy`] does the same for a program that has no privileges from the beginning.

#![forbid(unsafe_code)]

pub mod filter;
// One file or folder for each system: what it can take away.
#[cfg_attr(any(target_os = "linux", target_os = "android"), path = "linux/mod.rs")]
#[cfg_attr(target_os = "freebsd", path = "freebsd.rs")]
#[cfg_attr(target_os = "macos", path = "macos.rs")]
mod system;
pub mod user;

use std::fmt;
use std::path::Path;

use linerate_netio::process::trapped_calls;

use filter::Filter;
pub use system::*;
use user::User;

/// The requested confinement of a daemon.
pub struct Confinement<'a> {
    /// User to switch to; `None` keeps the current one.
    pub user: Option<&'a User>,
    /// What happens on a system call that the daemon does not need.
    pub filter: Filter,
    /// The directory of the socket, the only one from which files may be removed.
    pub socket_directory: &'a Path,
    /// The interface is in another network namespace, which the daemon has to enter whatever else is in force.
    pub enters_network: bool,
}

/// The requested confinement of a proxy (`linerate-proxy`), which was started by an ordinary user.
#[derive(Clone, Copy, Debug)]
pub struct ProxyConfinement {
    /// What happens on a system call that the proxy does not need.
    pub filter: Filter,
    /// The kernel makes its TCP connections: the proxy has forwards to this host, or a tunnel in the kernel's stack.
    pub connects: bool,
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

/// How many system calls were refused.
pub fn calls_refused() -> u64 {
    trapped_calls().count
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
