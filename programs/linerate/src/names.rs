//! `names`: what the completions of shells ask for while somebody types. It is quick and silent: where names cannot be read,
//! as by other users than root, there are none.

use std::process::ExitCode;

use clap::ValueEnum;
use linerate_cli::print;
use linerate_tunnel::server;

use crate::client;

/// Whose names.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum What {
    /// Of a server's clients
    Clients,
    /// Of all servers
    Servers,
}

pub(super) fn main(what: What, server: Option<&str>) -> Result<ExitCode, String> {
    let names: Vec<String> = match what {
        What::Clients => client::names(server).unwrap_or_default(),
        What::Servers => server::servers().unwrap_or_default().iter().map(|file| file.interface.to_string()).collect(),
    };
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    print(text.as_bytes())
}
