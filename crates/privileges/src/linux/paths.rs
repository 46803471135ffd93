//! Landlock rules (landlock(7)): which file operations are left, for the daemon removing its socket.
//!
//! Open files stay open. Opening, creating, executing and renaming files is denied; on Linux 6.7 and 6.12 also TCP,
//! the abstract sockets of other processes, and signals to them.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest Landlock ABI whose rules are requested; older kernels enforce those that they know.
const NEWEST: ABI = ABI::V6;

/// Restricts this thread and its future threads to removing files from `directory`. Returns the kernel's Landlock ABI
/// version. Sets no_new_privs, which Landlock requires.
pub(super) fn removal_only(directory: &Path) -> Result<u64, String> {
    let directory = PathFd::new(directory).map_err(|error| error.to_string())?;
    let restrict = || {
        Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?
            .add_rule(PathBeneath::new(directory, AccessFs::RemoveFile))?
            .restrict_self()
    };
    abi_version(restrict().map_err(|error: RulesetError| error.to_string())?)
}

/// Denies this thread and its future threads all files, TCP servers, and without `connects` all of TCP; what is open
/// stays open.
pub(super) fn sockets_only(connects: bool) -> Result<u64, String> {
    let network = if connects { AccessNet::BindTcp.into() } else { AccessNet::from_all(NEWEST) };
    let restrict = || {
        Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(network)?
            .scope(Scope::from_all(NEWEST))?
            .create()?
            .restrict_self()
    };
    abi_version(restrict().map_err(|error: RulesetError| error.to_string())?)
}

/// Restricts this thread and its future threads to reading files, and denies signals to other processes. Sockets are
/// not restricted.
pub(super) fn read_only() -> Result<u64, String> {
    let restrict = || {
        Ruleset::default()
            .handle_access(AccessFs::from_write(NEWEST) | AccessFs::Execute)?
            .scope(Scope::Signal)?
            .create()?
            .restrict_self()
    };
    abi_version(restrict().map_err(|error: RulesetError| error.to_string())?)
}

/// The kernel's Landlock ABI version, if the rules are in force.
fn abi_version(status: RestrictionStatus) -> Result<u64, String> {
    match status.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } if status.ruleset != RulesetStatus::NotEnforced => {
            Ok(kernel_abi.unwrap_or(effective_abi as i32).unsigned_abs().into())
        }
        LandlockStatus::NotImplemented => Err("this kernel has no Landlock, which came with Linux 5.13".into()),
        _ => Err("Landlock is not switched on: add it to the kernel's parameter lsm=".into()),
    }
}
