//! What runs a tunnel: a daemon of its own, or the kernel's module.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use linerate_host::step::Backend;

use crate::execute::hook::in_path;
use crate::interruption::Interruption;
use linerate_program::Complaint;

/// The kind of engine that the environment asks for (`WG_QUICK_BACKEND`), unless the command line does.
///
/// # Errors
/// The variable names none.
pub fn backend(kernel: bool) -> Result<Backend, Complaint> {
    let variable = std::env::var_os("WG_QUICK_BACKEND");
    match variable.as_ref().map(|value| value.to_string_lossy()) {
        _ if kernel => Ok(Backend::Kernel),
        None => Ok(Backend::Daemon),
        Some(value) => match &*value {
            "" | "user" => Ok(Backend::Daemon),
            "kernel" => Ok(Backend::Kernel),
            other => Err(format!("WG_QUICK_BACKEND is `{other}'; use `user' (linerated) or `kernel'")),
        },
    }
}

/// The daemon to start: `WG_QUICK_USERSPACE_IMPLEMENTATION`, else the linerated beside this program or in the path.
///
/// # Errors
/// There is none.
pub fn daemon() -> Result<PathBuf, Complaint> {
    if let Some(name) = std::env::var_os("WG_QUICK_USERSPACE_IMPLEMENTATION").filter(|name| !name.is_empty()) {
        let name = PathBuf::from(name);
        if name.components().count() > 1 {
            return Ok(name);
        }
        let found = in_path(&name.to_string_lossy());
        return found
            .ok_or_else(|| format!("WG_QUICK_USERSPACE_IMPLEMENTATION is {}: no such program", name.display()));
    }
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("linerated")));
    beside
        .filter(|daemon| daemon.is_file())
        .or_else(|| in_path("linerated"))
        .ok_or_else(|| "linerated was not found beside this program or in PATH".to_owned())
}

/// The user that the daemon is to become: of the command line, else of the environment (`LINERATE_USER`), else of the
/// tunnel's file.
pub fn user(option: Option<&str>, file: Option<&str>) -> Option<String> {
    let variable = std::env::var("LINERATE_USER").ok().filter(|name| !name.is_empty());
    option.map(str::to_owned).or(variable).or_else(|| file.map(str::to_owned))
}

/// Starts `daemon` for `interface` in the background, as `user` if one is named; returns when the tunnel answers.
///
/// # Errors
/// It cannot be started, or it failed and has said why.
pub fn start(daemon: &Path, user: Option<&str>, interface: &str, interruption: &Interruption) -> io::Result<()> {
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("cannot start {}: {error}", daemon.display()));
    let user = user.map(|user| format!("--user={user}"));
    let mut child = Command::new(daemon).args(user).arg(interface).spawn().map_err(failed)?;
    let status = interruption.wait(&mut child)?;
    match status.success() {
        true => Ok(()),
        // It was told to end because we were.
        false if interruption.came() => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
        false => Err(io::Error::other(format!("{} {}", daemon.display(), how_it_ended(status)))),
    }
}

/// How a program ended, as the end of a sentence.
pub fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// What a shell would give as the status of a program.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
