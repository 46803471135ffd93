//! What is wrong with a tunnel file: where, what, and how to fix it.

use std::fmt;
use std::path::Path;

/// An error or warning about the file. It never contains the value of a secret, an unreadable line, or a value that
/// may be a misplaced secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the tunnel can still come up.
    pub severity: Severity,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// How to fix it, where that is clear.
    pub hint: Option<String>,
}

/// How serious a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The tunnel can come up, perhaps not as intended.
    Warning,
    /// The tunnel cannot come up.
    Error,
}

impl Diagnostic {
    /// `FILE:LINE:COLUMN: message (hint)`.
    pub fn in_file<'a>(&'a self, file: &'a Path) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| write!(f, "{}:{self}", file.display()))
    }
}

/// `LINE:COLUMN: message (hint)`.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.severity == Severity::Warning { "warning: " } else { "" };
        write!(f, "{}:{}: {kind}{}", self.line, self.column, self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}
