//! What the daemon may do once it is set up: as little as it needs. docs/privileges.md lists it.
//!
//! [`give_up`] runs on the main thread after everything was opened and before there is another thread, which
//! inherits all of it. In this order: memory is locked, the file system closed ([`paths`]), the user changed
//! ([`user`]), capabilities given up ([`capabilities`]), memory closed to other processes, system calls filtered
//! ([`filter`]). Nothing of it may be needed to run: what a kernel or a container does not offer is said in the log
//! at INFO, and the daemon starts all the same. Only a user that was asked for and cannot be had ends it.
//!
//! Under another user the daemon cannot remove its socket, whose directory is root's. It keeps CAP_DAC_OVERRIDE for
//! that, and only where Landlock and the filter leave nothing of it but removing files in that directory; elsewhere the
//! socket's file stays, and the next daemon replaces it. A second process of root's, waiting to remove it, would have to hand
//! on signals and exit codes, and would be the one that service managers see.

#![forbid(unsafe_code)]

mod capabilities;
pub mod filter;
mod memory;
mod paths;
pub mod user;

use std::fmt;
use std::path::Path;

use linerate_netio::process::{share_heap, trapped_calls};

pub use capabilities::{KEEPER, MOST};
use filter::Filter;
pub use memory::lock as lock_memory;
use rustix::thread::CapabilitySet;
use user::User;

/// What is wanted.
pub struct Wanted<'a> {
    /// Whose process it is to be; none leaves it whose it is.
    pub user: Option<&'a User>,
    /// What becomes of system calls that the daemon has no use for.
    pub filter: Filter,
    /// The directory that files may be removed from.
    pub sockets: &'a Path,
}

/// What is in force, as far as /proc does not tell it.
pub struct InForce {
    /// The version of Landlock that confines the process to the directory; 0 for none.
    landlock: u64,
    /// Whether other processes of the same user are kept from its memory.
    closed: bool,
    /// Whether the filter refuses anything.
    filtered: bool,
    /// What was wanted and is not in force, a clause each.
    pub missing: Vec<String>,
}

/// Gives up everything that a daemon does not need that is set up.
///
/// # Errors
/// It cannot become the user.
pub fn give_up(wanted: &Wanted<'_>) -> Result<InForce, String> {
    let mut missing = Vec::new();
    share_heap();
    note(&mut missing, "memory may be swapped out", memory::lock());
    let landlock = note(&mut missing, "files are not confined", paths::confine(wanted.sockets)).unwrap_or(0);
    let needed = capabilities::needed(wanted.user.is_some() && landlock > 0);
    note(&mut missing, "capabilities can be regained", capabilities::bound(needed));
    if let Some(user) = wanted.user {
        user.become_it()?;
        if landlock == 0 {
            missing.push("the socket's file stays when the daemon ends (another user may not remove it)".into());
        }
    }
    note(&mut missing, "capabilities are kept", capabilities::keep(needed));
    let closed = note(&mut missing, "the same user's processes can read its memory", memory::close()).is_some();
    let refuses = note(&mut missing, "system calls are not filtered", wanted.filter.install());
    if refuses != Some(true) {
        // They open much more than that, and the filter was to see to the rest.
        missing.push("an interface that is moved to another namespace is not followed (that takes the filter)".into());
        if wanted.user.is_some() && landlock > 0 {
            missing.push("the socket's file stays when the daemon ends (to remove it takes the filter, too)".into());
        }
        let rest = capabilities::keep(needed.difference(capabilities::FILTERED));
        note(&mut missing, "capabilities that the filter was to bound are kept all the same", rest);
    }
    Ok(InForce { landlock, closed, filtered: refuses == Some(true), missing })
}

/// Gives up what the keeper of a tunnel does not need that has nothing to do but to talk to its daemon and to change
/// routes. Not for one that starts programs: they could do no more than itself.
pub fn give_up_as_keeper() {
    // What cannot be given up is seen by `linerate doctor --security`.
    let _ = capabilities::bound(KEEPER);
    let _ = capabilities::keep(KEEPER);
}

/// Gives up all that looking up names does not take, which is sockets and reading files: the answers come from the network,
/// and plug-ins of the C library read them. Answers the version of Landlock that sees to the files; 0 for none.
///
/// For a process of one thread. A keeper that has given up its own right to become another user starts it as root.
pub fn give_up_as_resolver() -> u64 {
    let _ = capabilities::bound(CapabilitySet::empty());
    let _ = user::become_nobody();
    let _ = capabilities::keep(CapabilitySet::empty());
    paths::read_only().unwrap_or(0)
}

/// The value of what was done; or else a clause with the reason.
fn note<T>(missing: &mut Vec<String>, clause: &str, done: Result<T, String>) -> Option<T> {
    done.map_err(|reason| missing.push(format!("{clause} ({reason})"))).ok()
}

impl InForce {
    /// What /proc does not tell, by name, beside the engine's counters.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let trapped = trapped_calls();
        let mut counters = vec![
            (LANDLOCK.to_owned(), self.landlock),
            (CLOSED.to_owned(), self.closed.into()),
            (FILTERED.to_owned(), self.filtered.into()),
            (REFUSED.to_owned(), trapped.count),
        ];
        if trapped.count > 0 {
            counters.push((LAST_REFUSED.to_owned(), trapped.last));
        }
        counters
    }
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let landlock = if self.landlock > 0 { format!("version {}", self.landlock) } else { "none".into() };
        let filter = if self.filtered { "refuses" } else { "refuses nothing" };
        write!(f, "Landlock {landlock}; the filter of system calls {filter}")
    }
}

/// The counter that is the version of Landlock in force, 0 for none.
pub const LANDLOCK: &str = "landlock_version";
/// The counter that is 1 if other processes of the same user are kept from its memory.
pub const CLOSED: &str = "memory_closed";
/// The counter that is 1 if system calls are refused.
pub const FILTERED: &str = "system_calls_filtered";
/// The counter of refused system calls.
pub const REFUSED: &str = "system_calls_refused";
/// The counter that is the number of the last refused system call.
pub const LAST_REFUSED: &str = "system_calls_refused_last";
