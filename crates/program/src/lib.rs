//! What the programs have in common: how they end, what they say on standard error, how they print, and the
//! [`documents`] made from their arguments.
//!
//! Exit codes are 0 and 1, as `wg`'s are.

#![forbid(unsafe_code)]

pub mod documents;
pub mod standard_error;

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

use linerate_control::printable::printable;

/// What went wrong, in one or two sentences that say what to do.
pub type Complaint = String;

/// Ends a program: nothing to say and 0, or a complaint on standard error and 1.
pub fn exit(program: &str, outcome: Result<ExitCode, Complaint>) -> ExitCode {
    outcome.unwrap_or_else(|complaint| {
        complain(&format!("{program}: {complaint}"));
        ExitCode::FAILURE
    })
}

/// How long a complaint waits for a reader: whoever keeps a tunnel alive has to go on without one.
const COMPLAINT_PATIENCE: Duration = Duration::from_secs(1);

/// Writes a line to standard error, if that is still there.
pub fn complain(line: &str) {
    let line = for_people(line);
    standard_error::say(format!("{line}\n").as_bytes(), COMPLAINT_PATIENCE);
}

/// A complaint as a terminal may have it: [`printable`], line by line, and without the numbers that std adds to errors of
/// the system.
pub fn for_people(text: &str) -> String {
    let parts = text.split_inclusive(['\n', '\t']);
    let mut shown = String::with_capacity(text.len());
    for part in parts {
        let whole = part.trim_end_matches(['\n', '\t']);
        shown.push_str(&printable(&without_error_numbers(whole)));
        shown.push_str(&part[whole.len()..]);
    }
    shown
}

fn without_error_numbers(text: &str) -> String {
    let mut pieces = text.split(" (os error ");
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => shown.push_str(rest),
            _ => shown.extend([" (os error ", piece]),
        }
    }
    shown
}

/// Prints what clap has to say. Help that was asked for is no failure; a wrong command line is 1, not
/// clap's 2, because scripts around `wg` know only that.
pub fn refuse_arguments(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Writes `text` to standard output. A reader that went away early has what it wanted, so that ends
/// without a word; every other failure, a full disk say, is one.
pub fn print(text: &[u8]) -> Result<ExitCode, Complaint> {
    // Not std's Stdout: its buffer is never wiped, and keys go this way.
    let mut out =
        File::from(rustix::io::dup(rustix::stdio::stdout()).map_err(|error| format!("cannot write: {error}"))?);
    match out.write_all(text) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::FAILURE),
        Err(error) => Err(format!("cannot write to standard output: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_errors_of_the_system_without_their_number() {
        let error = std::io::Error::from_raw_os_error(13);
        assert!(error.to_string().ends_with(" (os error 13)"), "std says it otherwise: {error}");
        assert_eq!(for_people(&format!("`/run': {error}; run as root")), "`/run': Permission denied; run as root");
        assert_eq!(for_people(&format!("{error}\n{error}")), "Permission denied\nPermission denied");
        // Of a daemon that forgot the sign.
        assert_eq!(for_people(&std::io::Error::from_raw_os_error(-98).to_string()), "Unknown error -98");
    }

    #[test]
    fn a_complaint_keeps_its_lines_and_no_other_control_character() {
        assert_eq!(for_people("a\tb\n\x1b[31mred\n"), "a\tb\n\\u{1b}[31mred\n");
    }

    #[test]
    fn what_only_looks_like_such_a_number_stays() {
        for text in ["", "an (os error ", " (os error )", "x (os error 1", "x (os error one)", " (os error"] {
            assert_eq!(for_people(text), text);
        }
    }
}
