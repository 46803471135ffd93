//! Changes of peers that belong to a fleet: `linerate-fleet commit` takes them to the fleet's store, before the file is
//! replaced. This crate knows neither the store nor how to speak with it.

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use linerate_control::interface::operands;

use crate::error::Error;
use crate::program::{how_it_ended, in_path};
use crate::read::ConfigFile;

/// For how long an edit is tried again while the file does not follow the store.
pub(crate) const CATCH_UP_TIME: Duration = Duration::from_secs(10);

/// How long it waits in between.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// The program that speaks with the store.
const PROGRAM: &str = "linerate-fleet";

/// Its exit code if the peers have changed in the store since the file was written (`EX_TEMPFAIL`).
const OUTDATED: i32 = 75;

/// Its exit code if a part of a large change is in the store, and the rest cannot be.
const PARTLY: i32 = 76;

/// Commits what `new` changes of the peers of `old` to the store of their fleet, if they belong to one.
pub(crate) fn commit(old: &ConfigFile, new: &ConfigFile) -> Result<(), Error> {
    let Some(fleet) = &old.contents.fleet else { return Ok(()) };
    let program = find().ok_or_else(|| {
        let path = old.path.display();
        Error::State(format!("{path} belongs to the fleet {fleet}, and {PROGRAM} is not installed: it was not changed"))
    })?;
    let cannot = |error| Error::System(format!("the file was not changed: cannot run {}", program.display()), error);
    let output = ask(&program, old, new).map_err(cannot)?;
    if output.status.code() == Some(OUTDATED) {
        return Err(Error::Outdated(old.interface.clone()));
    }
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("linerate-fleet: ");
    let reason = if said.is_empty() { format!("{PROGRAM} {}", how_it_ended(output.status)) } else { said.to_owned() };
    match output.status.code() {
        Some(PARTLY) => Err(Error::State(reason)),
        _ => Err(Error::State(format!("the file was not changed: {reason}"))),
    }
}

/// Runs the program with both texts on its standard input: a line with their lengths in bytes, the old, and the new.
fn ask(program: &PathBuf, old: &ConfigFile, new: &ConfigFile) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.arg("commit").args(operands(old.interface.as_str()));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().expect("it was asked for");
    let (old, new) = (old.text(), new.text());
    let lengths = format!("{} {}\n", old.len(), new.len());
    let written = [lengths.as_bytes(), old, new].into_iter().try_for_each(|part| input.write_all(part));
    drop(input);
    let output = child.wait_with_output()?;
    match written {
        // What ended before it had read all of it says why.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(output),
    }
}

/// The program beside this one, or else the one in PATH.
fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    beside.filter(|file| file.is_file()).or_else(|| in_path(PROGRAM))
}
