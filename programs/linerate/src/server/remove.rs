//! `server remove`.

use std::process::ExitCode;

use linerate_cli::eprint_line;
use linerate_tunnel::ConfigFile;
use linerate_tunnel::server::{self, record::Record};
use linerate_wg::keys;

use super::pool::Clients;
use super::{Verbosity, ask, options, somebody_is_there};
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
        Ok(file) => (file.interface.clone(), peers(&file)),
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
        let has = if peers == 1 {
            "a client, which loses its key".to_owned()
        } else {
            format!("{peers} clients, which lose their keys")
        };
        if somebody_is_there() {
            let kept = match Record::read(&interface)?.and_then(|record| record.replaced) {
                Some(_) => " The file that was imported comes back.",
                None => "",
            };
            let answer = ask(&format!("Remove {interface}{clients}, keys included?{kept} [y/N] "), &interruption)?;
            if !answer.is_some_and(|answer| ["y", "yes"].contains(&&*answer.to_lowercase())) {
                return Err("nothing was removed".to_owned().into());
            }
        } else if peers > 0 {
            return Err(format!("{interface} has {has}; add --yes to remove it").into());
        }
    }
    let context = arguments.verbosity.context(&interruption);
    let removed = server::remove(&interface, keys::public_key, &options()?, context)?;
    let restored = removed
        .restored
        .map_or_else(String::new, |file| format!("; {} is what it was before the import", file.display()));
    eprint_line(&format!("{interface} is removed{restored}"));
    Ok(ExitCode::SUCCESS)
}

/// How many clients and other peers there are, those that are disabled included.
fn peers(file: &ConfigFile) -> usize {
    let in_force = file.contents.peers.len();
    Clients::of(file).map_or(in_force, |clients| in_force.max(clients.total))
}
