//! `wg show`: its operands, and its messages for wrong ones.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::ValueEnum;
use linerate_control::uapi::client::ClientError;

use super::{Outcome, usage_of};
use crate::show::{Field, Form, Selection, ShowError, View, Which, show};
use linerate_cli::{eprint_line, print};

/// Shows the tunnels that `arguments` select. `--json` is our extension: everything, for programs.
pub(super) fn main(program: &str, arguments: &[OsString]) -> Outcome {
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let (json, operands): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(|argument| &**argument).partition(|argument| *argument == "--json");
    let usage = usage_of(program, "show").unwrap_or_default();
    let form = if json.is_empty() { Form::Human } else { Form::Json };
    let (which, form) = match operands[..] {
        [] => (Which::All, form),
        ["-h" | "--help" | "help"] => {
            eprint_line(&usage);
            return Ok(ExitCode::SUCCESS);
        }
        ["interfaces"] if json.is_empty() => (Which::Names, form),
        ["interfaces", ..] => return Err(usage),
        [which] => (named(which), form),
        [which, field] if json.is_empty() => match Field::from_str(field, false) {
            Ok(field) => (named(which), Form::Field(field)),
            Err(_) => return wrong_field(named(which), field, &usage),
        },
        _ => return Err(usage),
    };
    let shown = show(&Selection { which, form }, &View::from_environment()).map_err(|error| message(&error))?;
    let printed = print(&shown.text)?;
    eprint_failures(&shown.failures);
    Ok(if shown.any || shown.failures.is_empty() { printed } else { ExitCode::FAILURE })
}

fn named(which: &str) -> Which {
    if which == "all" { Which::All } else { Which::One(which.to_owned()) }
}

/// As in `wg`, an unknown field is an error only if there is an interface to show.
fn wrong_field(which: Which, field: &str, usage: &str) -> Outcome {
    let selection = Selection { which, form: Form::Field(Field::Peers) };
    let shown = show(&selection, &View::from_environment()).map_err(|error| message(&error))?;
    eprint_failures(&shown.failures);
    match (shown.any, shown.failures.is_empty()) {
        (true, _) => Err(format!("Invalid parameter: `{field}'\n{usage}")),
        (false, true) => Ok(ExitCode::SUCCESS),
        (false, false) => Ok(ExitCode::FAILURE),
    }
}

fn message(error: &ShowError) -> String {
    match error {
        ShowError::Listing(error) => format!("Unable to list interfaces: {error}"),
        ShowError::Tunnel(_, error) => format!("Unable to access interface: {}", error.reason_of_get()),
    }
}

fn eprint_failures(failures: &[(String, ClientError)]) {
    for (name, error) in failures {
        eprint_line(&format!("Unable to access interface {name}: {}", error.reason_of_get()));
    }
}
