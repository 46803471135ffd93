//! Other people's programs: found, run, and not waited for longer than they deserve.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{env, thread};

use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal};

/// The program of that name: in PATH, or where the system keeps such programs if PATH leaves that out.
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
/// It cannot be started, fails, or takes longer than `limit` and is killed; in one sentence with what it said on stderr.
pub fn run(program: &Path, arguments: &[&str], input: &[u8], limit: Duration) -> io::Result<()> {
    let said = |what: String| {
        let program = program.file_name().unwrap_or(program.as_os_str()).display();
        io::Error::other(format!("`{program} {}` {what}", arguments.join(" ")))
    };
    let mut stdin = scratch()?;
    stdin.write_all(input)?;
    stdin.rewind()?;
    let mut stderr = scratch()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(stdin).stdout(Stdio::null()).stderr(stderr.try_clone()?).process_group(0);
    let status = match wait(&mut command, limit).map_err(|error| said(format!("cannot be run: {error}")))? {
        Some(status) if status.success() => return Ok(()),
        Some(status) => status.code().map_or_else(|| status.to_string(), |code| format!("ended with {code}")),
        None => format!("was ended after {} seconds", limit.as_secs()),
    };
    let mut words = Vec::new();
    stderr.rewind()?;
    stderr.take(STDERR_LIMIT).read_to_end(&mut words)?;
    let words = String::from_utf8_lossy(&words);
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    Err(said(if words.is_empty() { status } else { format!("{status}: {words}") }))
}

const STDERR_LIMIT: u64 = 4096;

/// A file in memory. A pipe would stay open for as long as what the program leaves behind lives, and one of the two
/// ends would need somebody to serve it.
fn scratch() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("linerate-program", MemfdFlags::CLOEXEC)?.into())
}

/// How it ended; none if it had to be killed, with all that it started.
fn wait(command: &mut Command, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let mut child = command.spawn()?;
    let group = Pid::from_child(&child);
    let (ended, end) = mpsc::channel();
    let waiter = thread::spawn(move || ended.send(child.wait()));
    let status = match end.recv_timeout(limit) {
        Ok(status) => status.map(Some),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            rustix::process::kill_process_group(group, Signal::KILL)?;
            Ok(None)
        }
    };
    // Nothing is left that it could wait for.
    let _ = waiter.join();
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_before_it_fails_is_in_the_error() {
        let error = shell("read line; echo \"no $line\" >&2; exit 3", b"such link\n", MINUTE).unwrap_err().to_string();
        assert!(error.starts_with("`sh -c ") && error.ends_with("ended with 3: no such link"), "{error}");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_what_it_started() {
        let error = shell("sleep 1000 & sleep 1000", b"", Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("was ended after 0 seconds"), "{error}");
    }

    #[test]
    fn a_program_that_does_not_read_does_no_harm() {
        shell("exit 0", &[b'x'; 1 << 20], MINUTE).unwrap();
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn shell(script: &str, input: &[u8], limit: Duration) -> io::Result<()> {
        run(&find("sh").unwrap(), &["-c", script], input, limit)
    }
}
