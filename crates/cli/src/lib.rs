//! What the programs have in common: how they end, what they print, and the [`documents`] made from their arguments.
//!
//! Errors are one or two sentences that say what was wrong and what to do. Exit codes are 0 and 1, as `wg`'s are.

#![forbid(unsafe_code)]

pub mod documents;
pub mod standard_error;

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

pub use linerate_control::printable::for_people;

/// Each program calls this first. It protects this process's memory, which may hold keys: it leaves no core file, and other
/// processes of the same user cannot read it. Programs that it starts are not affected (exec resets PR_SET_DUMPABLE).
/// And it lets this process wait for them, even if its caller ignores SIGCHLD.
pub fn begin() {
    // Where the system cannot do this, the program goes on without it; the daemon reports it.
    let _ = linerate_privileges::deny_tracing();
    linerate_netio::process::reset_sigchld();
}

/// The exit code of `outcome`; for an error, prints it and returns 1.
pub fn exit(program: &str, outcome: Result<ExitCode, String>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprint_line(&format!("{program}: {error}"));
        ExitCode::FAILURE
    })
}

/// How long writing a message may block: a supervisor must not hang on it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes a line to standard error, if that is still there.
pub fn eprint_line(line: &str) {
    let line = for_people(line);
    standard_error::write(format!("{line}\n").as_bytes(), WRITE_TIMEOUT);
}

/// Prints clap's help or error. Help that was asked for is success; a wrong command line is 1, not clap's 2, because
/// scripts around `wg` expect nothing else.
pub fn refuse_arguments(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Writes `text` to standard output. A closed pipe (EPIPE) ends the program with 1 and no message; any other failure,
/// such as a full disk, is an error.
pub fn print(text: &[u8]) -> Result<ExitCode, String> {
    // Not std's Stdout: its buffer is never wiped, and keys are printed this way.
    let mut out =
        File::from(rustix::io::dup(rustix::stdio::stdout()).map_err(|error| format!("cannot write: {error}"))?);
    match out.write_all(text) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::FAILURE),
        Err(error) => Err(format!("cannot write to standard output: {error}")),
    }
}
