//! `server set`.

use std::path::Path;
use std::process::ExitCode;

use ipnet::IpNet;
use linerate_cli::{eprint_line, print};
use linerate_control::interface::InterfaceName;
use linerate_control::tunnel_file::{PublicEndpoint, settings};
use linerate_netio::random;
use linerate_server::change::Changes;
use linerate_server::init::{Chance, Facts};
use linerate_server::{everything, families};
use linerate_tunnel::{self as tunnel, Applied, ConfigFile, Error, edit, ledger, server};
use serde::Serialize;

use super::init::ClientDefaults;
use super::{Verbosity, json, options, pool};
use crate::cli::{CliError, interruption};

#[derive(clap::Args)]
#[group(id = "changes", required = true, multiple = true,
    args = ["endpoint", "port", "pool", "fix_firewall", "dns", "client_allowed_ips", "client_mtu", "client_keepalive"])]
pub(crate) struct SetArguments {
    /// Server to change (default: the only one)
    name: Option<String>,

    /// Where clients reach this host: a name or an address, with a port if a router forwards another one
    #[arg(long, value_name = "HOST[:PORT]")]
    endpoint: Option<PublicEndpoint>,

    /// UDP port to listen on; the port in the endpoint follows, unless a router forwards another one
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// A wider network for the clients' addresses: it must contain the present one, or the server's address if there is no
    /// network. In a family that the tunnel lacks, the server gets the network's first address
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pool: Vec<IpNet>,

    /// Open ways in firewalls of others that drop what the server needs, as long as the tunnel is up; =false closes them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    fix_firewall: Option<bool>,

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
    /// Clients whose files name an endpoint that is no longer true.
    export_again: Vec<String>,
    notes: Vec<String>,
    /// Settings of the file that the running tunnel does not follow.
    unmet: Vec<String>,
}

/// Where clients reached the server before, and their names.
struct Before {
    listen_port: Option<u16>,
    endpoint: Option<String>,
    clients: Vec<String>,
    /// The number of the server's addresses.
    addresses: usize,
}

impl Before {
    fn of(file: &ConfigFile) -> Result<Self, Error> {
        let listen_port = file.contents.listen_port;
        let addresses = file.contents.addresses.len();
        Ok(Self { listen_port, endpoint: reached_at(file), clients: pool::client_names(file)?, addresses })
    }
}

/// The `Endpoint` of client files.
fn reached_at(file: &ConfigFile) -> Option<String> {
    let contents = &file.contents;
    Some(contents.public_endpoint.as_ref()?.with_port(contents.listen_port?))
}

pub(super) fn run(arguments: &SetArguments) -> Result<ExitCode, CliError> {
    let interruption = interruption()?;
    let file = server::find(arguments.name.as_deref())?;
    let name = &file.interface;
    let word = |value: String| if value == "none" { None } else { Some(value) };
    let changes = Changes {
        port: arguments.port,
        endpoint: arguments.endpoint.clone(),
        pools: arguments.pool.clone(),
        fix_firewall: arguments.fix_firewall,
        client_defaults: arguments.clients.settings().into_iter().map(|(at, value)| (at, word(value))).collect(),
    };
    let facts = server::facts(name)?;
    if let Some(port) = arguments.port {
        check_free(port, &file, &facts)?;
    }
    let edited = edit(&file, &options()?, arguments.verbosity.context(&interruption), |file| {
        let networks = pool::networks(file)?;
        let mut document = file.document.clone();
        let changed = changes.apply(&mut document, &networks, &facts.taken);
        changed.map_err(|error| Error::State(error.to_string()))?;
        let is_same = *document.to_bytes() == *file.document.to_bytes();
        Ok((document, (is_same, Before::of(file)?)))
    })?;
    let ((is_same, before), after) = (edited.value, file.reopen()?);
    let mut notes = notes(&changes, &before, &after, edited.unmet.is_empty());
    notes.extend(of_families(&changes, &after, &facts)?);
    let has_moved = before.endpoint != reached_at(&after);
    let done = Done {
        name: name.to_string(),
        applied: matches!(edited.applied, Applied::Peers(_) | Applied::Reloaded),
        notes,
        unmet: edited.unmet,
        export_again: if has_moved { before.clients } else { Vec::new() },
    };
    let exit_code = if done.unmet.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if arguments.json {
        print(&json(&done)?)?;
        return Ok(exit_code);
    }
    let path = file.path.display();
    match (is_same, done.applied) {
        (true, _) => eprint_line(&format!("{name}: {path} says that already")),
        (false, true) if done.unmet.is_empty() => {
            eprint_line(&format!("{name}: {path} is changed, and the running tunnel follows it"))
        }
        (false, _) => eprint_line(&format!("{name}: {path} is changed")),
    }
    done.notes.iter().for_each(|note| eprint_line(&format!("Note: {note}.")));
    done.unmet.iter().for_each(|sentence| eprint_line(sentence));
    Ok(exit_code)
}

/// Refuses a port that somebody else has.
fn check_free(port: u16, file: &ConfigFile, facts: &Facts) -> Result<(), String> {
    let own = [file.contents.listen_port, tunnel::running(&file.interface).map(|running| running.listen_port)];
    match facts.ports.contains(&port) && !own.contains(&Some(port)) {
        true => {
            Err(format!("UDP port {port} is in use on this host, or by the file of another tunnel; choose another one"))
        }
        false => Ok(()),
    }
}

fn notes(changes: &Changes, before: &Before, after: &ConfigFile, is_followed: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let (old, new) = (before.listen_port, after.contents.listen_port);
    if let Some((old, new)) = old.zip(new).filter(|(old, new)| is_followed && old != new) {
        notes.push(format!(
            "nothing listens on UDP port {old} any more; a firewall in front of this host has to let port {new} in"
        ));
    }
    let of_files = |setting| changes.client_defaults.iter().any(|(changed, _)| *changed == setting);
    let reached = reached_at(after);
    if let (Some(from), Some(to)) = (&before.endpoint, &reached)
        && from != to
    {
        notes.extend(stale_files(&before.clients, from, to));
    } else if let (Some(port), Some(to)) = (changes.port.filter(|_| old != new), &reached) {
        notes.push(format!(
            "clients keep sending to {to}: the router has to forward that to UDP port {port} of this host"
        ));
    }
    if after.contents.addresses.len() > before.addresses && !before.clients.is_empty() {
        notes.push(
            "present clients keep their addresses; to give a client both families, remove it and add it again"
                .to_owned(),
        );
    }
    if changes.fix_firewall == Some(false) && keeps_ways(&after.interface) {
        notes.push(
            "ways in firewalls of others stay open until the tunnel is taken down: that is what `up --fix-firewall` or \
             `reload --fix-firewall` has asked for"
                .to_owned(),
        );
    }
    if [settings::CLIENT_DNS, settings::CLIENT_ALLOWED_IPS, settings::CLIENT_MTU].into_iter().any(of_files) {
        notes.push("files that clients have stay as they are; those exported from now on have it".to_owned());
    }
    notes
}

/// Returns warnings about parts of the internet that clients with the changed defaults do not reach, or reach past the
/// tunnel.
fn of_families(changes: &Changes, after: &ConfigFile, facts: &Facts) -> Result<Vec<String>, Error> {
    let is_about = |(setting, _): &(_, _)| [settings::CLIENT_DNS, settings::CLIENT_ALLOWED_IPS].contains(setting);
    if !changes.client_defaults.iter().any(is_about) {
        return Ok(Vec::new());
    }
    let (clients, pools) = (&after.contents.clients, pool::networks(after)?);
    let sent = if clients.allowed_ips.is_empty() { everything(&pools) } else { clients.allowed_ips.clone() };
    let notes = families::notes(&sent, &pools, facts.families(), facts.free(Chance::new(random::fill)));
    Ok(notes.into_iter().chain(families::lost_name_servers(&clients.dns, &sent, facts.families())).collect())
}

/// Whether the tunnel is up with `--fix-firewall`, or with a file that says so.
fn keeps_ways(interface: &InterfaceName) -> bool {
    let ledger = ledger::read(Path::new(ledger::DIRECTORY), interface).ok().flatten();
    ledger.is_some_and(|ledger| ledger.spec.forwarding.fixes_firewall)
}

/// Which clients' files have an endpoint that is not true any more, and what to do.
fn stale_files(clients: &[String], from: &str, to: &str) -> Option<String> {
    const MAX_NAMES: usize = 10;
    let whose = match clients.len() {
        0 => return None,
        1..=MAX_NAMES => clients.join(", "),
        count => format!("all {count} clients"),
    };
    Some(format!(
        "the files of {whose} have the endpoint {from}: change it there to {to}, or export them again with `linerate client \
         export'"
    ))
}
