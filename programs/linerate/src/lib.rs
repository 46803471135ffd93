//! `linerate`, the tool ([`tool`]). Called `wg` or `wg-quick`, it is that ([`wg`](linerate_wg::wg), [`wg_quick`]).
//!
//! Arguments are defined once, with clap; help, man pages and shell completions are made from that. Only `wg` has the
//! words of the original. This program parses, calls and prints; the work is done in the crates. `wg-quick`
//! exits with the code of what failed, as the original; everything else with 0 or 1.

#![forbid(unsafe_code)]

mod cli;
mod client;
mod doctor;
mod events;
mod metrics;
mod names;
mod other_program;
mod ping;
mod run;
mod server;
mod speed;
mod status;
mod target;
mod tool;
mod top;
mod tunnels;
mod web_helper;
mod wg_quick;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use linerate_wg::wg;

/// Runs the program by whose name this process was called.
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
