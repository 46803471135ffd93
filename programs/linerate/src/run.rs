//! `run`: a command in a tunnel, and nowhere else.
//!
//! This process becomes the command, so that terminal, signals, exit code and job control are the command's own. What
//! stays beside it is the tunnel's daemon, which ends when the command does.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use linerate_cli::eprint_line;
use linerate_isolation::UserNamespace;
use linerate_tunnel::isolated;

use crate::cli::{CliError, Output};
use crate::tunnels::report_warnings;

#[derive(clap::Args)]
pub(super) struct RunArguments {
    /// Tunnel of the file ~/.config/linerate/NAME.conf, else /etc/wireguard/NAME.conf, or the path of another file NAME.conf
    #[arg(value_name = "NAME")]
    name: String,

    /// Command to run, and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// What env(1), timeout(1) and containers exit with if they fail themselves, if the command cannot be executed, and if there
/// is none.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Returns only if there is no command to become.
pub(super) fn main(arguments: &RunArguments) -> ExitCode {
    if let Err(error) = enter(&arguments.name) {
        eprint_line(&format!("linerate: {}", error.message));
        return ExitCode::from(FAILED);
    }
    let (program, rest) = arguments.command.split_first().expect("clap requires it");
    let error = Command::new(program).args(rest).exec();
    eprint_line(&format!("linerate: cannot run {}: {error}", program.display()));
    ExitCode::from(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// Brings the tunnel up, and moves this process in.
fn enter(name: &str) -> Result<(), CliError> {
    // Before anything that might start a thread.
    let user = UserNamespace::enter().map_err(|refusal| refusal.to_string())?;
    let file = isolated::find(name)?;
    report_warnings(&file)?;
    isolated::up(&file, &user, &Output::QUIET)?.enter(&user)?;
    Ok(())
}
