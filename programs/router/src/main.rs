//! `linerated` and `wg` in one program, for routers: their flash is small, and their own tools set addresses and routes.
//!
//! Called `linerated`, it is the daemon. Under another name it is `wg`; `linerate wg` is the same, so that what calls
//! the tool of a large machine can call this one.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    linerate_cli::begin();
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    if Path::new(&program).file_name().is_some_and(|name| name == "linerated") {
        return linerated::main();
    }
    let mut rest: Vec<OsString> = arguments.collect();
    if rest.first().is_some_and(|word| word == "wg") {
        rest.remove(0);
    }
    linerate_wg::wg::main(&program.to_string_lossy(), &rest)
}
