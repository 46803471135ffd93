//! Why a call failed.

use std::io;
use std::path::{Path, PathBuf};

use linerate_control::interface::InterfaceName;
use linerate_host::plan::{PlanError, messages};
use linerate_host::step::Step;

use crate::ledger::LedgerError;

/// The exit code of a tunnel whose state cannot be queried; 1 is for one that does not work.
pub const CANNOT_QUERY: u8 = 2;

/// Why a call failed. Displayed, it is a sentence for the user, without the name of a program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be used.
    #[error("`{}': {error}{}", path.display(), root_hint(error))]
    Inaccessible {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no such file.
    #[error("`{}' does not exist{hint}", path.display())]
    NoFile {
        /// Where it was expected.
        path: PathBuf,
        /// What the user may have meant, as the end of the sentence.
        hint: String,
    },
    /// The file's name is not that of an interface.
    #[error(
        "`{}' has no name of a tunnel: at most 15 letters, digits and _=+.-, followed by .conf; rename it",
        .0.display()
    )]
    FileName(PathBuf),
    /// The file has errors: a line for each.
    #[error("{0}")]
    File(String),
    /// The ledger cannot be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The kernel's netlink sockets cannot be opened.
    #[error("cannot query the kernel: {0}")]
    Netlink(io::Error),
    /// The state of the host cannot be read.
    #[error("cannot read the state of this host: {0}")]
    Snapshot(io::Error),
    /// There is no network of its own for the tunnel.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Isolation(#[from] linerate_isolation::Refusal),
    /// The planner refuses to bring the tunnel up.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A step failed, or recording the last one. The host is as it was.
    #[error("{}{error}", step.as_ref().map_or_else(String::new, |step| format!("{}: ", messages::describe(step))))]
    Step {
        /// Which.
        step: Option<Box<Step>>,
        /// Why.
        error: io::Error,
        /// See [`Error::exit_code`].
        exit_code: u8,
    },
    /// Interrupted by a signal.
    #[error("interrupted")]
    Interrupted,
    /// Called from one of the tunnel's own hooks.
    #[error("this command cannot be run from the PreUp, PostUp, PreDown or PostDown of {0} itself")]
    OwnHook(InterfaceName),
    /// There is no such tunnel.
    #[error("`{0}' is not a WireGuard interface")]
    NoTunnel(InterfaceName),
    /// The tunnel is not in a state for this call, or the daemon refuses.
    #[error("{0}")]
    State(String),
    /// The state of tunnels cannot be queried.
    #[error("{0}")]
    CannotQuery(String),
    /// There is no daemon to start, or the environment names none.
    #[error("{0}")]
    NoDaemon(String),
    /// The tunnel is down, but some steps could not be undone.
    #[error("the tunnel is down, but some steps could not be undone; see above")]
    Incomplete {
        /// See [`Error::exit_code`].
        exit_code: u8,
    },
    /// The peers of a fleet have changed since the file was read.
    #[error(
        "{0}: the fleet's peers have changed and its file does not follow; is `linerate fleet run' running? \
         `linerate fleet status' tells"
    )]
    Outdated(InterfaceName),
    /// A system call failed: what it was for, and why.
    #[error("{0}: {1}")]
    System(String, io::Error),
    /// An error, and a second one during its rollback.
    #[error("{0}; and {1}")]
    Twice(Box<Error>, Box<Error>),
}

impl Error {
    /// The exit code of a program: as with wg-quick, that of the command that failed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Step { exit_code, .. } | Self::Incomplete { exit_code } => *exit_code,
            Self::Interrupted => 130,
            Self::NoDaemon(_) => 127,
            Self::CannotQuery(_) => CANNOT_QUERY,
            Self::Twice(first, _) => first.exit_code(),
            _ => 1,
        }
    }

    /// A ledger that cannot be used, with a hint to run as root where that would help.
    pub(crate) fn of_ledger(error: LedgerError) -> Self {
        match error {
            LedgerError::Io { path, error } => Self::Inaccessible { path, error },
            error => Self::Ledger(error),
        }
    }

    pub(crate) fn inaccessible(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::Inaccessible { path: path.to_owned(), error }
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System(what.to_owned(), error)
    }

    /// This error, and that of its rollback if there is one.
    pub(crate) fn and(self, second: Result<(), Self>) -> Self {
        match second {
            Ok(()) => self,
            Err(second) => Self::Twice(self.into(), second.into()),
        }
    }
}

/// Only root may look into /etc/wireguard and /run/linerate.
fn root_hint(error: &io::Error) -> &'static str {
    let needs_root = error.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root();
    if needs_root { "; run as root (sudo)" } else { "" }
}
