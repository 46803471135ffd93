//! What runs a tunnel: a daemon of its own, or the kernel's module.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use linerate_host::step::Backend;

use super::hook::in_path;
use crate::error::Error;
use crate::interruption::Interruption;

/// The backend: the kernel's module if `kernel`, else what the environment asks for (`WG_QUICK_BACKEND`).
///
/// # Errors
/// The variable names no backend.
pub fn backend(kernel: bool) -> Result<Backend, Error> {
    let variable = std::env::var_os("WG_QUICK_BACKEND");
    match variable.as_ref().map(|value| value.to_string_lossy()) {
        _ if kernel => Ok(Backend::Kernel),
        None => Ok(Backend::Daemon),
        Some(value) => match &*value {
            "" | "user" => Ok(Backend::Daemon),
            "kernel" => Ok(Backend::Kernel),
            other => Err(Error::State(format!("WG_QUICK_BACKEND is `{other}'; use `user' (linerated) or `kernel'"))),
        },
    }
}

/// The daemon to start: `WG_QUICK_USERSPACE_IMPLEMENTATION`, else the linerated beside this program or in the path.
///
/// # Errors
/// There is none.
pub(crate) fn find() -> Result<PathBuf, Error> {
    if let Some(name) = std::env::var_os("WG_QUICK_USERSPACE_IMPLEMENTATION").filter(|name| !name.is_empty()) {
        let name = PathBuf::from(name);
        if name.components().count() > 1 {
            return Ok(name);
        }
        let missing = || format!("WG_QUICK_USERSPACE_IMPLEMENTATION is {}: no such program", name.display());
        return in_path(&name.to_string_lossy()).ok_or_else(|| Error::NoDaemon(missing()));
    }
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("linerated")));
    let found = beside.filter(|daemon| daemon.is_file()).or_else(|| in_path("linerated"));
    found.ok_or_else(|| Error::NoDaemon("linerated was not found beside this program or in PATH".to_owned()))
}

/// The user that the daemon becomes: `option`, else that of the environment (`LINERATE_USER`), else that of the file.
pub(crate) fn user(option: Option<&str>, file: Option<&str>) -> Option<String> {
    let variable = std::env::var("LINERATE_USER").ok().filter(|name| !name.is_empty());
    option.map(str::to_owned).or(variable).or_else(|| file.map(str::to_owned))
}

/// Starts `daemon` for `interface` in the background, as `user` if there is one; returns when it answers.
///
/// # Errors
/// It cannot be started, or it failed and has said why on standard error.
pub(crate) fn start(daemon: &Path, user: Option<&str>, interface: &str, interruption: &Interruption) -> io::Result<()> {
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("cannot start {}: {error}", daemon.display()));
    let user = user.map(|user| format!("--user={user}"));
    let mut child = Command::new(daemon).args(user).arg(interface).spawn().map_err(failed)?;
    let status = interruption.wait(&mut child)?;
    match status.success() {
        true => Ok(()),
        // The signal was passed on to it.
        false if interruption.came() => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
        false => Err(io::Error::other(format!("{} {}", daemon.display(), how_it_ended(status)))),
    }
}

/// How a program ended, as the end of a sentence.
pub(crate) fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// What a shell would give as the status of a program.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
