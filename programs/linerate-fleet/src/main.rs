//! `linerate-fleet`: gateways that share one set of peers and take over from each other.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use linerate_cli::{exit, refuse_arguments};
use linerate_fleet::arguments::Arguments;
use linerate_fleet::commands;
use rustix::process::{Resource, Rlimit, setrlimit};

fn main() -> ExitCode {
    linerate_cli::begin();
    match Arguments::try_parse() {
        Ok(arguments) => exit("linerate-fleet", run(arguments)),
        Err(error) => refuse_arguments(&error),
    }
}

fn run(arguments: Arguments) -> Result<ExitCode, String> {
    if let Some(written) = arguments.documents() {
        return written;
    }
    // A core file would hold the keys.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(|error| format!("cannot turn core dumps off: {error}"))?;
    match arguments.command {
        Some(command) => commands::run(command),
        None => {
            let _ = Arguments::command().print_help();
            Ok(ExitCode::FAILURE)
        }
    }
}
