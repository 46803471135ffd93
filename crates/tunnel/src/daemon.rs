//! The daemon of a tunnel: which program it is, how it is started, and its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_control::interface::{InterfaceName, operands};
use linerate_control::tunnel_file::TunnelFile;
use linerate_control::uapi::client::DaemonClient;
use linerate_control::uapi::socket::{self, OpenError};
use linerate_host::step::Implementation;
use linerate_netio::process::{Terminal, detach};

use crate::context::Context;
use crate::error::Error;
use crate::identity::Identity;
use crate::interruption::Interruption;
use crate::ledger::Ledger;
use crate::places;
use crate::program::{how_it_ended, in_path};

/// The implementation: the kernel's module if `kernel`, else what the environment asks for (`WG_QUICK_BACKEND`).
///
/// # Errors
/// The variable names no implementation.
pub fn implementation(kernel: bool) -> Result<Implementation, Error> {
    let variable = std::env::var_os("WG_QUICK_BACKEND");
    match variable.as_ref().map(|value| value.to_string_lossy()) {
        _ if kernel => Ok(Implementation::Kernel),
        None => Ok(Implementation::Daemon),
        Some(value) => match &*value {
            "" | "user" => Ok(Implementation::Daemon),
            "kernel" => Ok(Implementation::Kernel),
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
            // The daemon is started in another folder, so a relative path would not be found.
            return std::path::absolute(&name).map_err(Error::inaccessible(&name));
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

/// For how many microseconds it looks for packets before it sleeps: that of the environment (`LINERATE_SPIN`), else that
/// of the file.
pub(crate) fn spin(file: Option<u16>) -> Option<String> {
    let variable = std::env::var(SPIN).ok().filter(|text| !text.is_empty());
    variable.or_else(|| file.map(|microseconds| microseconds.to_string()))
}

/// The variable by which a daemon learns it.
const SPIN: &str = "LINERATE_SPIN";

/// Where it keeps what peers have used of their quotas: what the environment says (`LINERATE_USAGE`), or the usual
/// place for the file of a server, or one with limits.
pub(crate) fn usage(file: &TunnelFile) -> Option<PathBuf> {
    let variable = std::env::var_os(USAGE).filter(|path| !path.is_empty()).map(PathBuf::from);
    variable.or_else(|| file.may_have_limits().then(|| places::USAGE.into()))
}

/// The variable by which a daemon learns it.
const USAGE: &str = "LINERATE_USAGE";

/// How to start a daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartOptions {
    /// The user that it becomes, if any.
    pub(crate) user: Option<String>,
    /// What [`spin`] gives.
    pub(crate) spin: Option<String>,
    /// What [`usage`] gives.
    pub(crate) usage: Option<PathBuf>,
}

impl StartOptions {
    /// Those of a tunnel, when it is brought up and when its daemon is started again.
    pub(crate) fn of(ledger: &Ledger) -> Self {
        Self { user: ledger.user.clone(), spin: ledger.spin.clone(), usage: ledger.usage.clone() }
    }
}

/// Starts `daemon` for `interface` in the background; returns when it answers.
///
/// # Errors
/// It cannot be started, or it failed and wrote the reason to standard error.
pub(crate) fn start(
    daemon: &Path,
    options: &StartOptions,
    interface: &str,
    interruption: &Interruption,
) -> io::Result<()> {
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("cannot start {}: {error}", daemon.display()));
    let mut child = command(daemon, options, interface, Vec::new()).spawn().map_err(failed)?;
    let status = interruption.wait(&mut child)?;
    match status.success() {
        true => Ok(()),
        // The signal was passed on to it.
        false if interruption.came() => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
        false => Err(io::Error::other(format!("{} {}", daemon.display(), how_it_ended(status)))),
    }
}

/// Returns the command that starts the daemon. The daemon inherits the descriptors `kept`, and no others.
pub(crate) fn command(daemon: &Path, options: &StartOptions, interface: &str, kept: Vec<OwnedFd>) -> Command {
    let mut command = Command::new(daemon);
    detach(&mut command, kept, Terminal::Shared);
    command.args(options.user.as_ref().map(|user| format!("--user={user}"))).args(operands(interface));
    // What a supervisor inherited is not for the tunnel that it starts again: the ledger says what is.
    match &options.spin {
        Some(spin) => command.env(SPIN, spin),
        None => command.env_remove(SPIN),
    };
    match &options.usage {
        Some(usage) => command.env(USAGE, usage),
        None => command.env_remove(USAGE),
    };
    command
}

/// Waits for the daemon, whose interface is gone, to close our connection, the last thing it does: a live one removes
/// its socket first; a killed one leaves it to us.
pub(crate) fn wait_for_exit(interface: &InterfaceName, context: Context<'_>) {
    let directory = socket::DIRECTORY.as_ref();
    if let Ok(daemon) = DaemonClient::connect(directory, interface)
        && let Err(error) = context.interruption.pause(&[daemon.as_fd()], Some(EXIT_TIMEOUT))
    {
        context.warn(format_args!("cannot wait for the daemon to exit: {error}"));
    }
    match socket::remove_stale(directory, interface) {
        Ok(()) | Err(OpenError::InUse(..)) => {}
        Err(error) => context.message(error),
    }
}

/// Ends the daemon of a tunnel whose interface is out of reach, by removing the daemon's socket. Does nothing unless the
/// socket is known to be that daemon's.
///
/// # Errors
/// The socket cannot be removed, or the daemon does not end.
pub(crate) fn end(identity: &Identity, interface: &InterfaceName, context: Context<'_>) -> io::Result<()> {
    let directory = socket::DIRECTORY.as_ref();
    let Some(daemon) = Some(DaemonClient::connect(directory, interface)).filter(|_| identity.has_socket(interface))
    else {
        return Ok(());
    };
    let path = socket::path(directory, interface);
    std::fs::remove_file(&path)?;
    let Ok(daemon) = daemon else { return Ok(()) };
    let is_over = Instant::now() + EXIT_TIMEOUT;
    while !daemon.is_closed() {
        let left = is_over.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::other(format!(
                "the daemon of {interface} still runs, although its socket {} was removed; end the process by hand",
                path.display()
            )));
        }
        context.interruption.pause(&[daemon.as_fd()], Some(left))?;
        // A signal interrupts the command only after the daemon has ended.
        context.interruption.clear();
    }
    Ok(())
}

/// How long a daemon may take to notice that its interface is gone, on a busy machine.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_an_option() {
        let command = command("/bin/linerated".as_ref(), &StartOptions::default(), "--user=root", Vec::new());
        assert!(command.get_args().eq(["--", "--user=root"]));
    }

    #[test]
    fn a_daemon_is_started_with_the_tunnels_options_and_none_of_the_environment() {
        let spin = |spin: Option<&str>| {
            let (user, spin) = (Some("nobody".to_owned()), spin.map(str::to_owned));
            let options = StartOptions { user, spin, usage: None };
            let command = command("/bin/linerated".as_ref(), &options, "wg0", Vec::new());
            assert!(command.get_args().eq(["--user=nobody", "wg0"]));
            let set = command.get_envs().find(|(name, _)| *name == SPIN);
            set.map(|(_, value)| value.map(|value| value.to_str().unwrap().to_owned()))
        };
        assert_eq!(spin(Some("200")), Some(Some("200".to_owned())));
        assert_eq!(spin(None), Some(None), "removed");
    }
}
