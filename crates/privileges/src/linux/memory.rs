//! Keeps keys out of swap, and other processes out of our memory.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Keeps all memory of this process out of swap, present and future. Pages are locked as they come into use
/// (MCL_ONFAULT), so that unused parts of stacks and arenas cost nothing.
///
/// Requires CAP_IPC_LOCK in the initial user namespace: otherwise later allocations beyond RLIMIT_MEMLOCK would fail
/// (mm/mlock.c, mlock_future_ok). Locking with the limit set to 0 shows whether it is there.
pub fn lock() -> Result<(), String> {
    let before = getrlimit(Resource::Memlock);
    let set = |limit| setrlimit(Resource::Memlock, limit).map_err(|error| format!("RLIMIT_MEMLOCK: {error}"));
    if before.current.is_some() {
        set(Rlimit { current: Some(0), ..before })?;
    }
    let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    // Programs that this one starts inherit the limit.
    set(before)?;
    locked.map_err(|error| match error {
        Errno::PERM | Errno::NOMEM => "grant CAP_IPC_LOCK, or lift RLIMIT_MEMLOCK".to_owned(),
        error => format!("mlockall: {error}"),
    })
}

/// Prevents core files and tracing by processes of the same user; /proc/PID then belongs to root (PR_SET_DUMPABLE).
/// Call it after changing the user, which resets it to fs.suid_dumpable.
///
/// # Errors
/// In one sentence.
pub fn deny_tracing() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| format!("PR_SET_DUMPABLE: {error}"))
}
