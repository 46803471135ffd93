//! The hooks of a file (`PreUp` and the others), run by a shell as wg-quick runs them.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use linerate_control::interface::InterfaceName;

use crate::interruption::Interruption;
use crate::ledger;
use crate::program::in_path;

/// The environment variables of a hook, as wg-quick sets them.
pub(crate) struct HookEnv {
    /// `INTERFACE`.
    pub(crate) interface: InterfaceName,
    /// `CONFIG_FILE`.
    pub(crate) file: PathBuf,
}

/// Runs `command` with the working directory, input and output of this process, and waits for it.
///
/// # Errors
/// There is no shell, or it cannot be started.
pub(crate) fn run(command: &str, hook_env: &HookEnv, interruption: &Interruption) -> io::Result<ExitStatus> {
    let mut child = shell(command)
        .env("INTERFACE", hook_env.interface.as_str())
        .env("CONFIG_FILE", &hook_env.file)
        .env(ledger::LOCKED, ledger::signature(ledger::directory(), &hook_env.interface))
        .env("LC_ALL", "C")
        .env("PATH", path())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot start a shell: {error}")))?;
    interruption.wait(&mut child)
}

/// bash with the options that wg-quick uses; without bash, the system's shell.
fn shell(text: &str) -> Command {
    match in_path("bash") {
        Some(bash) => {
            let mut command = Command::new(bash);
            command.args(["-e", "-o", "pipefail", "-O", "extglob", "-c", "--", text]);
            command
        }
        None => {
            let mut command = Command::new("/bin/sh");
            command.args(["-e", "-c", "--", text]);
            command
        }
    }
}

/// The search path with the directory of this program first, so that `wg` in a hook is the one beside it.
fn path() -> OsString {
    let own = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned));
    let rest = std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
    let folders = own.into_iter().chain(std::env::split_paths(&rest));
    std::env::join_paths(folders).unwrap_or(rest)
}
