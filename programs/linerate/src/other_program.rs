//! Commands that other programs do, so that this one carries neither load generators nor a proxy nor a store's client.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use linerate_netio::process::end_of;
use linerate_tunnel::Interruption;

/// The program that measures.
pub(super) const LAB: &str = "linerate-lab";

/// The program that is a tunnel without root.
pub(super) const PROXY: &str = "linerate-proxy";

/// The program of fleets.
pub(super) const FLEET: &str = "linerate-fleet";

/// Replaces this process by `name`: the one beside this program, or else the one in PATH.
pub(super) fn run(name: &str, arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode, String> {
    let beside = std::env::current_exe().map(|program| program.with_file_name(name)).ok();
    let program = beside.filter(|file| file.is_file()).unwrap_or_else(|| PathBuf::from(name));
    let error = Command::new(&program).args(arguments).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{name} is not installed: install the package {name}, or build it with `cargo build --release -p {name}`"
        ),
        _ => format!("cannot run {}: {error}", program.display()),
    })
}

/// Whether `child` ends before its time is over or a signal comes.
pub(crate) fn ends(child: &mut Child, time: Duration, interruption: &Interruption) -> bool {
    let Ok(process) = end_of(child) else { return false };
    let until = Instant::now() + time;
    loop {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || interruption.came() || interruption.pause(&[process.as_fd()], Some(left)).is_err() {
            return false;
        }
    }
}
