//! Keys stay out of swap, and other processes out of our memory.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Keeps all memory of this process out of swap, present and future.
///
/// Pages are locked as they come into use (MCL_ONFAULT), so that stacks and arenas cost no more than what is used of
/// them. Only for a process that may lock any amount: to another one, an allocation beyond RLIMIT_MEMLOCK would be
/// refused later (mm/mlock.c, mlock_future_ok). That is who may lock under a limit of 0: whoever has CAP_IPC_LOCK,
/// and has it of the machine, not of a user namespace.
pub fn lock() -> Result<(), String> {
    let before = getrlimit(Resource::Memlock);
    let set = |limit| setrlimit(Resource::Memlock, limit).map_err(|error| format!("RLIMIT_MEMLOCK: {error}"));
    if before.current.is_some() {
        set(Rlimit { current: Some(0), ..before })?;
    }
    let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    // Programs that this one starts have the limit that it had.
    set(before)?;
    locked.map_err(|error| match error {
        Errno::PERM | Errno::NOMEM => "grant CAP_IPC_LOCK, or lift RLIMIT_MEMLOCK".to_owned(),
        error => format!("mlockall: {error}"),
    })
}

/// Neither tracing by processes of the same user nor core files, and /proc/PID belongs to root (PR_SET_DUMPABLE).
/// After the user has changed, which sets it to what fs.suid_dumpable says.
pub(super) fn close() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| format!("PR_SET_DUMPABLE: {error}"))
}
