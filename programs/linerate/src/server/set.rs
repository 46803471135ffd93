//! `server set`.

use std::process::ExitCode;

use ipnet::IpNet;
use linerate_cli::{eprint_line, print};
use linerate_control::tunnel_file::{PublicEndpoint, settings};
use linerate_server::change::Changes;
use linerate_tunnel::{Applied, Error, edit, server};
use serde::Serialize;

use super::init::ClientDefaults;
use super::{Verbosity, json, options, pool};
use crate::cli::{CliError, interruption};

#[derive(clap::Args)]
#[group(id = "changes", required = true, multiple = true,
    args = ["endpoint", "pool", "dns", "client_allowed_ips", "client_mtu", "client_keepalive"])]
pub(crate) struct SetArguments {
    /// Server to change (default: the only one)
    name: Option<String>,

    /// Where clients reach this host: a name or an address, with a port if a router forwards another one
    #[arg(long, value_name = "HOST[:PORT]")]
    endpoint: Option<PublicEndpoint>,

    /// A wider network for the clients' addresses: it has to contain the one of before
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pool: Vec<IpNet>,

    #[command(flatten)]
    clients: ClientDefaults,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// What was done, as in the output of `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    name: String,
    applied: bool,
    notes: Vec<String>,
}

pub(super) fn run(arguments: &SetArguments) -> Result<ExitCode, CliError> {
    let interruption = interruption()?;
    let file = server::find(arguments.name.as_deref())?;
    let name = &file.interface;
    let word = |value: String| if value == "none" { None } else { Some(value) };
    let changes = Changes {
        endpoint: arguments.endpoint.clone(),
        pools: arguments.pool.clone(),
        client_defaults: arguments.clients.settings().into_iter().map(|(at, value)| (at, word(value))).collect(),
    };
    let taken = server::facts(name)?.taken;
    let edited = edit(&file, &options()?, arguments.verbosity.context(&interruption), |file| {
        let networks = pool::networks(file)?;
        let mut document = file.document.clone();
        let changed = changes.apply(&mut document, &networks, &taken);
        changed.map_err(|error| Error::State(error.to_string()))?;
        Ok((document, ()))
    })?;
    let done = Done {
        name: name.to_string(),
        applied: matches!(edited.applied, Applied::Peers(_) | Applied::Reloaded),
        notes: notes(&changes, edited.applied),
    };
    if arguments.json {
        return Ok(print(&json(&done)?)?);
    }
    let ends = if done.applied { ", and the running tunnel follows it" } else { "" };
    eprint_line(&format!("{name}: {} is changed{ends}", file.path.display()));
    done.notes.iter().for_each(|note| eprint_line(&format!("Note: {note}.")));
    Ok(ExitCode::SUCCESS)
}

fn notes(changes: &Changes, applied: Applied) -> Vec<String> {
    let mut notes = Vec::new();
    if applied == Applied::NotOurs {
        notes.push("the tunnel that runs is not of this file: it has not followed".to_owned());
    }
    let of_files = |setting| changes.client_defaults.iter().any(|(changed, _)| *changed == setting);
    if changes.endpoint.is_some() {
        notes.push("files that clients have keep the old endpoint: change it there, or export them again".to_owned());
    } else if [settings::CLIENT_DNS, settings::CLIENT_ALLOWED_IPS, settings::CLIENT_MTU].into_iter().any(of_files) {
        notes.push("files that clients have stay as they are; those exported from now on have it".to_owned());
    }
    notes
}
