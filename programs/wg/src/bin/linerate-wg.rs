//! `wg` as a program of its own, where `linerate`, which is `wg` by that name, does not run: on FreeBSD and macOS.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    linerate_cli::begin();
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    linerate_wg::wg::main(&program.to_string_lossy(), &arguments.collect::<Vec<OsString>>())
}
