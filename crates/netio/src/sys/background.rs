//! What a new process takes over from the one that starts it, beyond what std can say.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{checked, signal_mask, system};

/// Where the kernel cannot mark a range, descriptors up to this number are marked one by one.
const LAST: RawFd = 1 << 16;

/// Has `command` start without the descriptors from 3 on, except `kept`, which it gets under their numbers; with
/// the umask 022 and no signal blocked or, of SIGCHLD, ignored; and as the leader of a session of its own, if `leads_session`.
pub(crate) fn detach(command: &mut Command, kept: Vec<OwnedFd>, leads_session: bool) {
    let prepare = move || {
        // Marked, not closed: std tells by one of them why a program cannot be executed.
        if system::close_all_on_exec().is_err() {
            (3..LAST).for_each(|number| drop(close_on_exec(number, true)));
        }
        kept.iter().try_for_each(|fd| close_on_exec(fd.as_raw_fd(), false))?;
        if leads_session {
            // SAFETY: takes nothing, and changes only which session this process is in.
            checked(unsafe { libc::setsid() })?;
        }
        signal_mask::unblock_all()?;
        reset_sigchld();
        // SAFETY: only sets a number of the process, and always succeeds.
        unsafe { libc::umask(0o022) };
        Ok(())
    };
    // SAFETY: between fork and exec only system calls may be made that are safe in a signal handler, because other threads
    // of the parent may have held locks: `prepare` makes nothing but such calls, allocates nothing, and locks nothing. An
    // error is passed on as a number.
    unsafe { command.pre_exec(prepare) };
}

/// Restores the default action of SIGCHLD, without which a process cannot wait for its children. Safe between fork and exec.
pub(crate) fn reset_sigchld() {
    // SAFETY: the default action has no function that could be called.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Sets whether a descriptor is closed when a program is executed. EBADF if it is not open.
fn close_on_exec(number: RawFd, closed: bool) -> io::Result<()> {
    let flags = if closed { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: F_SETFD only changes the flags of a descriptor, or fails if there is none; FD_CLOEXEC is the only flag.
    checked(unsafe { libc::fcntl(number, libc::F_SETFD, flags) }).map(drop)
}
