//! The two programs: [`tool`] is `linerate`, [`daemon`] is `linerated`. `linerate` under the name of
//! [`wg`] or [`wg_quick`] is that.
//!
//! Their arguments are defined once, with clap; help, man pages and shell completions are made from
//! that. Only `wg` has the words of the original. Everything that does something lives in the crates
//! below; this one reads arguments and the environment, wires, and says what went wrong. Exit codes are
//! 0 and 1, as `wg`'s are; `wg-quick` has those of what failed, as the original.

#![forbid(unsafe_code)]

pub mod daemon;
mod standard_error;
pub mod tool;
mod tunnel;
pub mod wg;
pub mod wg_quick;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use linerate_control::printable::printable;

/// What went wrong, in one or two sentences that say what to do.
pub type Complaint = String;

/// Runs the program that this process was called as: a link named `wg` is [`wg`], one named `wg-quick` is [`wg_quick`],
/// all else is [`tool`].
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let rest = || arguments.collect::<Vec<OsString>>();
    match Path::new(&program).file_name() {
        Some(name) if name == "wg" => wg::main(&program.to_string_lossy(), &rest()),
        Some(name) if name == "wg-quick" => wg_quick::main(&program.to_string_lossy(), &rest()),
        _ => tool::main(),
    }
}

/// Ends a program: nothing to say and 0, or a complaint on standard error and 1.
fn exit(program: &str, outcome: Result<ExitCode, Complaint>) -> ExitCode {
    outcome.unwrap_or_else(|complaint| {
        complain(&format!("{program}: {complaint}"));
        ExitCode::FAILURE
    })
}

/// How long a complaint waits for a reader: whoever keeps a tunnel alive has to go on without one.
const COMPLAINT_PATIENCE: Duration = Duration::from_secs(1);

/// Writes a line to standard error, if that is still there.
fn complain(line: &str) {
    let line = for_people(line);
    standard_error::say(format!("{line}\n").as_bytes(), COMPLAINT_PATIENCE);
}

/// A complaint as a terminal may have it: [`printable`], line by line, and without the numbers that std adds to errors of
/// the system.
fn for_people(text: &str) -> String {
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
fn refuse_arguments(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
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
