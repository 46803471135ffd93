//! What is wrong with a tunnel's file, for people: where, what, and what would be right.

use std::fmt;
use std::path::Path;

/// Something wrong with the file. The values of `PrivateKey` and `PresharedKey`, lines that are not understood, and what
/// may be a key in the place of something else, are not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the tunnel can come up all the same.
    pub severity: Severity,
    /// The line, from 1.
    pub line: usize,
    /// The character of the line, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What would be right, where that is clear.
    pub hint: Option<String>,
}

/// What a diagnostic means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The tunnel can come up, perhaps not as it was meant.
    Warning,
    /// The file says nothing that can be done.
    Error,
}

impl Diagnostic {
    /// `FILE:LINE:COLUMN: what (hint)`.
    pub fn in_file<'a>(&'a self, file: &'a Path) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| write!(f, "{}:{self}", file.display()))
    }
}

/// `LINE:COLUMN: what (hint)`.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.severity == Severity::Warning { "warning: " } else { "" };
        write!(f, "{}:{}: {kind}{}", self.line, self.column, self.what)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}
