//! `linerate-lab`, which `linerate lab` and `linerate demo` run.

#![forbid(unsafe_code)]

mod command_line;

use std::process::ExitCode;

fn main() -> ExitCode {
    linerate_cli::begin();
    command_line::main()
}
