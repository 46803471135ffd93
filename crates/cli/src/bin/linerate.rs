//! The tool, and `wg` if it is called that.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    linerate_cli::main()
}
