//! What can go wrong in the lab, each as one sentence for a person.

use std::io;

/// The lab's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be set up or measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine lacks something or forbids it; the sentence says what to do.
    #[error("{0}")]
    Refused(String),
    /// A command failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command line.
        command: String,
        /// What it wrote to its standard error, or how it ended.
        said: String,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// What was being done, as a phrase.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The daemon under test did not do what a WireGuard daemon does.
    #[error("{0}")]
    Subject(String),
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { doing: doing.into(), source: source.into() }
    }
}

/// Names what was being done when a system call failed.
pub trait Doing<T> {
    /// Turns the error into [`Error::System`] with these words.
    ///
    /// # Errors
    ///
    /// That of the system call.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::system(what(), error))
    }
}
