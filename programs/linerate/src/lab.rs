//! `lab` and `demo`: another program does them, so that this one carries no load generators.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The program that measures.
const PROGRAM: &str = "linerate-lab";

/// Replaces this process by linerate-lab: the one beside this program, or else the one in PATH.
pub(super) fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode, String> {
    let beside = std::env::current_exe().map(|program| program.with_file_name(PROGRAM)).ok();
    let program = beside.filter(|file| file.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(arguments).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{PROGRAM} is not installed: install the package {PROGRAM}, or build it with \
             `cargo build --release -p {PROGRAM}`"
        ),
        _ => format!("cannot run {}: {error}", program.display()),
    })
}
