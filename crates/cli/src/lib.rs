//! The two programs: [`tool`] is `linerate`, [`daemon`] is `linerated`. `linerate` under the name of
//! [`wg`] is that.
//!
//! Their arguments are defined once, with clap; help, man pages and shell completions are made from
//! that. Only `wg` has the words of the original. Everything that does something lives in the crates
//! below; this one reads arguments and the environment, wires, and says what went wrong. Exit codes are
//! 0 and 1, as `wg`'s are.

#![forbid(unsafe_code)]

pub mod daemon;
pub mod tool;
pub mod wg;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// What went wrong, in one or two sentences that say what to do.
pub type Complaint = String;

/// Runs the program that this process was called as: a link named `wg` is [`wg`], all else is [`tool`].
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    match Path::new(&program).file_name() {
        Some(name) if name == "wg" => wg::main(&program.to_string_lossy(), &arguments.collect::<Vec<OsString>>()),
        _ => tool::main(),
    }
}

/// Ends a program: nothing to say and 0, or a complaint on standard error and 1.
fn exit(program: &str, outcome: Result<ExitCode, Complaint>) -> ExitCode {
    outcome.unwrap_or_else(|complaint| {
        complain(&format!("{program}: {complaint}"));
        ExitCode::FAILURE
    })
}

/// Writes a line to standard error, if that is still there.
fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints what clap has to say. Help that was asked for is no failure; a wrong command line is 1, not
/// clap's 2, because scripts around `wg` know only that.
fn refuse_arguments(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
