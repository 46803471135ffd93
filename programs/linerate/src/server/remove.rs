//! `server remove`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use linerate_cli::eprint_line;
use linerate_tunnel::server::{self, record::Record};

use super::{Verbosity, ask, options};
use crate::cli::{CliError, interruption};

#[derive(clap::Args)]
pub(crate) struct RemoveArguments {
    /// Server to remove (default: the only one)
    name: Option<String>,

    /// Remove it without asking, clients included
    #[arg(short, long)]
    yes: bool,

    #[command(flatten)]
    verbosity: Verbosity,
}

pub(super) fn run(arguments: &RemoveArguments) -> Result<ExitCode, CliError> {
    let interruption = interruption()?;
    let (interface, peers) = match server::find(arguments.name.as_deref()) {
        Ok(file) => (file.interface.clone(), file.contents.peers.len()),
        // One whose file is gone, or that is half-done, is removed by its record.
        Err(error) => match arguments.name.as_deref().and_then(|name| name.parse().ok()) {
            Some(interface) if Record::read(&interface)?.is_some() => (interface, 0),
            _ => return Err(error.into()),
        },
    };
    if !arguments.yes {
        let clients = match peers {
            0 => String::new(),
            1 => " and its client".to_owned(),
            count => format!(" and its {count} clients"),
        };
        if io::stdin().is_terminal() {
            let answer = ask(&format!("Remove {interface}{clients}, keys included? [y/N] "))?;
            if !answer.is_some_and(|answer| ["y", "yes"].contains(&&*answer.to_lowercase())) {
                return Err("nothing was removed".to_owned().into());
            }
        } else if peers > 0 {
            let why = format!("{interface} has {peers} clients, which lose their keys; add --yes to remove it");
            return Err(why.into());
        }
    }
    server::remove(&interface, &options()?, arguments.verbosity.context(&interruption))?;
    eprint_line(&format!("{interface} is removed"));
    Ok(ExitCode::SUCCESS)
}
