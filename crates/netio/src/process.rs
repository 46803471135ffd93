//! What a daemon needs from its process beyond std: signals on a descriptor, inherited descriptors by number, a
//! handler for system calls that a seccomp filter traps, and a start in which it takes nothing over from its caller.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::sys::{background, heap, inherited};
pub use crate::system::process::*;

/// Takes the descriptor `number` that this process inherited (`WG_TUN_FD`, `WG_UAPI_FD`), once. Child processes do not
/// inherit it.
///
/// # Errors
///
/// When no such descriptor is open (EBADF), when it is standard input, output or error
/// (InvalidInput), and when it is close-on-exec (PermissionDenied), which means that it was taken
/// before or that this process opened it itself.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    inherited::take(number)
}

/// The terminal of a process that is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    /// The caller's: Ctrl-C ends both.
    Shared,
    /// None: it leads a session of its own.
    None,
}

/// Has `command`, which outlives its caller, start in the folder `/`, with the umask 022, an empty signal mask, and
/// without descriptors but for 0, 1, 2 and `kept`, which it gets under their numbers. It keeps the caller's priority, limits
/// and control group: that is how they are given to it.
pub fn detach(command: &mut Command, kept: Vec<OwnedFd>, terminal: Terminal) {
    command.current_dir("/");
    background::detach(command, kept, terminal == Terminal::None);
}

/// Restores the default action of SIGCHLD. A process whose caller ignores that signal cannot wait for its children.
pub fn reset_sigchld() {
    background::reset_sigchld();
}

/// What a process in the background needs of this one's environment. There may be keys and passwords among the rest.
pub fn background_environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| is_for_background(name))
}

fn is_for_background(name: &OsStr) -> bool {
    const NAMES: [&str; 11] = [
        "CREDENTIALS_DIRECTORY",
        "GLIBC_TUNABLES",
        "HOSTALIASES",
        "LANG",
        "LOCALDOMAIN",
        "LOG_LEVEL",
        "PATH",
        "RES_OPTIONS",
        "RUST_BACKTRACE",
        "TZ",
        "TZDIR",
    ];
    let is_ours = ["LD_", "LINERATE", "WG_"].iter().any(|start| name.as_bytes().starts_with(start.as_bytes()));
    is_ours || NAMES.iter().any(|known| name == *known)
}

/// Whether `output` is there for longer than a command: a file, a terminal, a socket of the journal. Whoever reads a
/// pipe, or a socket without a name, waits until all who have it have ended.
pub fn outlasts_a_command(output: BorrowedFd<'_>) -> bool {
    let Ok(file) = output.try_clone_to_owned().map(File::from) else { return false };
    let Ok(kind) = file.metadata().map(|there| there.file_type()) else { return false };
    if kind.is_socket() {
        return UnixStream::from(OwnedFd::from(file)).peer_addr().is_ok_and(|peer| !peer.is_unnamed());
    }
    !kind.is_fifo()
}

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT, Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// Makes all threads allocate from one heap, so that the C library opens no file later (glibc reads /proc when
/// another heap shrinks). Call it before any thread is started.
pub fn share_heap() {
    heap::share();
}

/// Makes every allocation of `bytes` and more a mapping of its own, so that zeroed memory is provided page by page as it
/// is touched, and goes back when it is freed. Call it before any thread is started.
pub fn map_allocations_from(bytes: i32) {
    heap::map_from(bytes);
}

/// How many system calls were trapped and refused, and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrappedCalls {
    /// How many.
    pub count: u64,
    /// The number of the last one, for this architecture; meaningless while `count` is 0.
    pub last: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

    #[test]
    fn the_process_at_the_other_end_of_a_socket_is_known() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer(one.as_fd()).unwrap(), Some(std::process::id()));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(peer(null.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }

    #[test]
    fn the_end_of_a_child_is_readable_and_stays_so_until_it_is_waited_for() {
        use std::process::{Command, Stdio};
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let end = end_of(&child).unwrap();
        let readable = || {
            let mut ready = [rustix::event::PollFd::new(&end, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut ready, Some(&rustix::event::Timespec::default())).unwrap() > 0
        };
        assert!(!readable());
        drop(child.stdin.take());
        crate::wait::wait(&[end.as_fd()]).unwrap();
        assert!(readable());
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_descriptor_of_our_own_is_not_an_inherited_one() {
        let ours = std::fs::File::open("/dev/null").unwrap();
        let error = take_inherited(ours.as_raw_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_descriptor_that_came_through_exec_is_taken_once() {
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let number = file.into_raw_fd();
        let taken = take_inherited(number).unwrap();
        assert_eq!(taken.as_raw_fd(), number);
        assert!(take_inherited(number).is_err());
    }

    #[test]
    fn a_detached_process_has_the_kept_descriptors_and_no_others() {
        use std::process::Stdio;
        let null = || std::fs::File::open("/dev/null").unwrap();
        let [inherited, kept] = [null(), null()].map(OwnedFd::from);
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "ls -d /dev/fd/* >&2; pwd; umask; ps -o pid=,sid= -p $$"]);
        command.stdin(Stdio::null());
        let number = kept.as_raw_fd();
        let has = |number: RawFd, shown: &str| shown.lines().any(|line| line == format!("/dev/fd/{number}"));
        detach(&mut command, vec![kept], Terminal::None);
        let output = command.output().unwrap();
        let (shown, said) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert!(has(number, &shown), "{shown}");
        assert!(!has(inherited.as_raw_fd(), &shown), "{shown}");
        let words: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(words[..2], ["/", "0022"], "{said}");
        assert_eq!(words[2], words[3], "it leads a session");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_in_the_parent() {
        let mut command = Command::new("/no/such/program");
        detach(&mut command, Vec::new(), Terminal::Shared);
        assert_eq!(command.spawn().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_pipe_does_not_outlast_a_command_and_a_file_does() {
        assert!(outlasts_a_command(std::fs::File::open("/dev/null").unwrap().as_fd()));
        let (reader, writer) = io::pipe().unwrap();
        assert!(!outlasts_a_command(writer.as_fd()));
        drop(reader);
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(!outlasts_a_command(one.as_fd()));
    }

    #[test]
    fn the_background_gets_what_it_reads_of_the_environment() {
        assert!(
            ["PATH", "LD_LIBRARY_PATH", "LINERATE_SPIN", "WG_TUN_FD"]
                .iter()
                .all(|name| is_for_background(name.as_ref()))
        );
        assert!(
            !["AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "NOTIFY_SOCKET"]
                .iter()
                .any(|name| is_for_background(name.as_ref()))
        );
    }

    #[test]
    fn the_standard_streams_and_closed_descriptors_are_refused() {
        for number in [-1, 0, 1, 2] {
            let error = take_inherited(number).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let error = take_inherited(RawFd::MAX).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
