//! Finds and runs other programs, with a time limit.

use std::env;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use linerate_netio::process::end_of;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

/// Limits how long a program may run.
#[derive(Clone, Copy)]
pub struct WaitLimit<'a> {
    /// It is killed after this time.
    pub limit: Duration,
    /// It is stopped when this descriptor is readable.
    pub stop: Option<BorrowedFd<'a>>,
}

/// The program of that name, in PATH or in the system directories.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).map(|directory| directory.join(name)).find(|program| is_executable(program))
}

fn is_executable(program: &Path) -> bool {
    program.is_file() && rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Runs a program to its end with `input` on its stdin.
///
/// # Errors
/// As [`output`].
pub fn run(program: &Path, arguments: &[&str], input: &[u8], wait: &WaitLimit<'_>) -> io::Result<()> {
    let mut stdin = scratch()?;
    stdin.write_all(input)?;
    stdin.rewind()?;
    output(program, arguments, stdin, wait).map(drop)
}

/// Runs a program to its end, and returns what it printed.
///
/// # Errors
/// It cannot be started, fails, or exceeds the limit and is killed; in one sentence with its stderr. Interrupted if
/// it was stopped.
pub fn output(program: &Path, arguments: &[&str], stdin: File, wait: &WaitLimit<'_>) -> io::Result<String> {
    let said = |what: String| {
        let program = program.file_name().unwrap_or(program.as_os_str()).display();
        io::Error::other(format!("`{program} {}` {what}", arguments.join(" ")))
    };
    let (stdout, stderr) = (scratch()?, scratch()?);
    let mut command = Command::new(program);
    command.args(arguments).stdin(stdin).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).process_group(0);
    let cannot = |error: io::Error| said(format!("cannot be run: {error}"));
    let mut child = command.spawn().map_err(cannot)?;
    let status = match wait_for(&mut child, wait).map_err(cannot)? {
        End::Exited(status) if status.success() => return printed(stdout),
        End::Exited(status) => status.code().map_or_else(|| status.to_string(), |code| format!("ended with {code}")),
        End::TimedOut => format!("took longer than {} s and was killed", wait.limit.as_secs()),
        End::Interrupted => return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
    };
    let text = printed(stderr)?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text: String = text.chars().take(LONGEST_REASON).collect();
    Err(said(if text.is_empty() { status } else { format!("{status}: {text}") }))
}

fn printed(mut file: File) -> io::Result<String> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(OUTPUT_LIMIT).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

const OUTPUT_LIMIT: u64 = 1 << 24;
const LONGEST_REASON: usize = 4096;

/// A file in memory. A pipe would stay open as long as a child of the program, and would need a thread to serve it.
fn scratch() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("linerate-program", MemfdFlags::CLOEXEC)?.into())
}

/// How a program ended.
enum End {
    Exited(ExitStatus),
    /// It ran too long and was killed, with its children.
    TimedOut,
    /// It was asked to end, with its children, and killed if it did not.
    Interrupted,
}

fn wait_for(child: &mut Child, wait: &WaitLimit<'_>) -> io::Result<End> {
    let group = Pid::from_child(child);
    let end = ended(child, group, wait);
    // It exists, at least as a zombie, until it is waited for: the process group is still its own.
    if !matches!(end, Ok(None)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait()?;
    Ok(end?.unwrap_or(End::Exited(status)))
}

/// Returns `None` if the program exited, else why it must be killed.
fn ended(child: &Child, group: Pid, wait: &WaitLimit<'_>) -> io::Result<Option<End>> {
    let end = end_of(child)?;
    let stop: Vec<BorrowedFd<'_>> = wait.stop.into_iter().collect();
    match readable(end.as_fd(), &stop, wait.limit)? {
        Some(0) => Ok(None),
        Some(_) => {
            kill_process_group(group, Signal::TERM)?;
            readable(end.as_fd(), &[], GRACE)?;
            Ok(Some(End::Interrupted))
        }
        None => Ok(Some(End::TimedOut)),
    }
}

/// How long an interrupted program has to clean up.
const GRACE: Duration = Duration::from_millis(300);

/// The index of the first readable descriptor, `first` being 0; none within `limit`.
fn readable(first: BorrowedFd<'_>, others: &[BorrowedFd<'_>], limit: Duration) -> io::Result<Option<usize>> {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let all = [first].into_iter().chain(others.iter().copied());
        let mut ready: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut ready, Some(&left)) {
            Ok(_) => return Ok(ready.iter().position(|fd| !fd.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_contains_the_stderr_of_the_program() {
        let error = shell("read line; echo \"no $line\" >&2; exit 3", b"such link\n", MINUTE).unwrap_err().to_string();
        assert!(error.starts_with("`sh -c ") && error.ends_with("ended with 3: no such link"), "{error}");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let error = shell("sleep 1000 & sleep 1000", b"", Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("took longer than 0 s and was killed"), "{error}");
    }

    #[test]
    fn a_program_that_hangs_ends_when_the_user_interrupts() {
        let (stop, mut user) = io::pipe().unwrap();
        user.write_all(b"x").unwrap();
        let wait = WaitLimit { limit: MINUTE, stop: Some(stop.as_fd()) };
        let hangs = ["-c", "sleep 1000 & sleep 1000"];
        let error = run(&find("sh").unwrap(), &hangs, b"", &wait).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        drop(user);
    }

    #[test]
    fn a_program_that_does_not_read_its_stdin_is_harmless() {
        shell("exit 0", &[b'x'; 1 << 20], MINUTE).unwrap();
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn shell(script: &str, input: &[u8], limit: Duration) -> io::Result<()> {
        run(&find("sh").unwrap(), &["-c", script], input, &WaitLimit { limit, stop: None })
    }
}
