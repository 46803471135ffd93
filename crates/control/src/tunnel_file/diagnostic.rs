//! What is wrong with a tunnel file: where, what, and how to fix it.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use crate::characters::{Odd, visible, without_comment};

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

/// Has the errors about `lines` name the character in them that is not seen or taken for another, if there is one: the
/// first that is not in a comment.
pub fn name_odd_characters<'a>(lines: impl IntoIterator<Item = &'a [u8]>, diagnostics: &mut [Diagnostic]) {
    let is_error = |diagnostic: &&mut Diagnostic| diagnostic.severity == Severity::Error;
    let mut errors: Vec<&mut Diagnostic> = diagnostics.iter_mut().filter(is_error).collect();
    if errors.is_empty() {
        return;
    }
    errors.sort_by_key(|error| error.line);
    let mut errors = errors.into_iter().peekable();
    for (number, line) in (1..).zip(lines) {
        while let Some(error) = errors.next_if(|error| error.line <= number) {
            if error.line == number {
                error.name_odd_character(line);
            }
        }
    }
}

impl Diagnostic {
    fn name_odd_character(&mut self, line: &[u8]) {
        if let Cow::Owned(escaped) = visible(&self.message) {
            self.message = escaped;
        }
        let Some(odd) = Odd::first(without_comment(line)) else { return };
        self.message = format!("{}; there is {odd}", self.message);
        self.hint = odd.hint().or(self.hint.take());
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
