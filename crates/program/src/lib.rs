//! What the programs have in common: how they end, what they say on standard error, how they print, and the
//! [`documents`] made from their arguments.
//!
//! Exit codes are 0 and 1, as `wg`'s are.

#![forbid(unsafe_code)]

pub mod documents;
pub mod standard_error;

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

pub use linerate_control::printable::for_people;

/// What went wrong, in one or two sentences that say what to do.
pub type Complaint = String;

/// Ends a program: nothing to say and 0, or a complaint on standard error and 1.
pub fn exit(program: &str, outcome: Result<ExitCode, Complaint>) -> ExitCode {
    outcome.unwrap_or_else(|complaint| {
        complain(&format!("{program}: {complaint}"));
        ExitCode::FAILURE
    })
}

/// How long a complaint waits for a reader: whoever keeps a tunnel alive has to go on without one.
const COMPLAINT_PATIENCE: Duration = Duration::from_secs(1);

/// Writes a line to standard error, if that is still there.
pub fn complain(line: &str) {
    let line = for_people(line);
    standard_error::say(format!("{line}\n").as_bytes(), COMPLAINT_PATIENCE);
}

/// Prints what clap has to say. Help that was asked for is no failure; a wrong command line is 1, not
/// clap's 2, because scripts around `wg` know only that.
pub fn refuse_arguments(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Writes `text` to standard output. A reader that went away early has what it wanted, so that ends
/// without a word; every other failure, a full disk say, is one.
pub fn print(text: &[u8]) -> Result<ExitCode, Complaint> {
    // Not std's Stdout: its buffer is never wiped, and keys go this way.
    let mut out =
        File::from(rustix::io::dup(rustix::stdio::stdout()).map_err(|error| format!("cannot write: {error}"))?);
    match out.write_all(text) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::FAILURE),
        Err(error) => Err(format!("cannot write to standard output: {error}")),
    }
}
