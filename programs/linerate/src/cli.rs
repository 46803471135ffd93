//! Between the command line and `linerate-tunnel`: output, signals, errors.

use linerate_cli::eprint_line;
use linerate_control::document::InvalidValue;
use linerate_control::tunnel_file::StripError;
use linerate_tunnel::{Error, Interruption, Reporter};

/// Reports on standard error.
pub(crate) struct Output {
    /// Whether steps are shown, as wg-quick does (`[#] ip link add …`).
    verbose: bool,
}

impl Output {
    pub(crate) const QUIET: Self = Self { verbose: false };
    pub(crate) const VERBOSE: Self = Self { verbose: true };
}

impl Reporter for Output {
    fn step(&self, command: &str) {
        if self.verbose {
            eprint_line(&format!("[#] {command}"));
        }
    }

    fn message(&self, message: &str) {
        eprint_line(message);
    }
}

/// A command that failed.
#[derive(Debug)]
pub(crate) struct CliError {
    /// A sentence, without the name of the program.
    pub(crate) message: String,
    pub(crate) exit_code: u8,
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        Self { message: error.to_string(), exit_code: error.exit_code() }
    }
}

impl From<String> for CliError {
    fn from(message: String) -> Self {
        Self { message, exit_code: 1 }
    }
}

impl From<StripError> for CliError {
    fn from(error: StripError) -> Self {
        error.to_string().into()
    }
}

impl From<InvalidValue> for CliError {
    fn from(error: InvalidValue) -> Self {
        error.to_string().into()
    }
}

/// Handles signals from now on.
pub(crate) fn interruption() -> Result<Interruption, CliError> {
    Interruption::listen().map_err(|error| format!("cannot handle signals: {error}").into())
}
