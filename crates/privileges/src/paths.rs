//! The file system, closed but for one thing: removing the socket. By Landlock (landlock(7)).
//!
//! What is open stays open. Nothing can be opened, made, run or renamed; where the kernel knows how (Linux 6.7 and
//! 6.12), TCP, abstract sockets of others and signals to others are closed as well.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest version of Landlock whose rules are asked for; older kernels enforce those they know.
const NEWEST: ABI = ABI::V6;

/// Leaves this thread, and those it starts, nothing of the file system but removing files from `directory`. Answers
/// the kernel's version of Landlock. Sets no_new_privs, which Landlock asks for.
pub(super) fn confine(directory: &Path) -> Result<u64, String> {
    let directory = PathFd::new(directory).map_err(|error| error.to_string())?;
    version(restrict(directory).map_err(|error| error.to_string())?)
}

fn restrict(directory: PathFd) -> Result<RestrictionStatus, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rule(PathBeneath::new(directory, AccessFs::RemoveFile))?
        .restrict_self()
}

/// Leaves this thread, and those it starts, of the file system only what it can read, and no signals to other processes.
/// Sockets stay open to it.
pub(super) fn read_only() -> Result<u64, String> {
    let restrict = || {
        Ruleset::default()
            .handle_access(AccessFs::from_write(NEWEST) | AccessFs::Execute)?
            .scope(Scope::Signal)?
            .create()?
            .restrict_self()
    };
    version(restrict().map_err(|error: RulesetError| error.to_string())?)
}

/// The kernel's version of Landlock, if that is in force.
fn version(status: RestrictionStatus) -> Result<u64, String> {
    match status.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } if status.ruleset != RulesetStatus::NotEnforced => {
            Ok(kernel_abi.unwrap_or(effective_abi as i32).unsigned_abs().into())
        }
        LandlockStatus::NotImplemented => Err("this kernel has no Landlock, which came with Linux 5.13".into()),
        _ => Err("Landlock is not switched on: add it to the kernel's parameter lsm=".into()),
    }
}
