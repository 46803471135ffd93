//! `linerate`, the tool ([`tool`]). Called `wg` or `wg-quick`, it is that ([`wg`](linerate_wg::wg), [`wg_quick`]).
//!
//! Arguments are defined once, with clap; help, man pages and shell completions are made from that. Only `wg` has the
//! words of the original. This program parses, calls and prints; the work is done in the crates. `wg-quick`
//! exits with the code of what failed, as the original; everything else with 0 or 1.
//!
//! Elsewhere than on Linux there are the commands that need neither its namespaces nor its firewall, nor what it says of
//! processes and packets.

#![forbid(unsafe_code)]

mod cli;
mod client;
mod columns;
#[cfg(target_os = "linux")]
mod doctor;
mod events;
mod metrics;
mod names;
#[cfg(target_os = "linux")]
mod other_program;
#[cfg(target_os = "linux")]
mod ping;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod speed;
mod status;
#[cfg(target_os = "linux")]
mod target;
mod tool;
mod top;
mod tunnels;
#[cfg(target_os = "linux")]
mod web_helper;
#[cfg(target_os = "linux")]
mod wg_quick;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use linerate_wg::wg;

/// Runs the program by whose name this process was called.
pub fn main() -> ExitCode {
    linerate_cli::begin();
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let rest = || arguments.collect::<Vec<OsString>>();
    match Path::new(&program).file_name() {
        Some(name) if name == "wg" => wg::main(&program.to_string_lossy(), &rest()),
        #[cfg(target_os = "linux")]
        Some(name) if name == "wg-quick" => wg_quick::main(&program.to_string_lossy(), &rest()),
        _ => tool::main(),
    }
}
