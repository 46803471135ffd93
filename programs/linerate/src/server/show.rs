//! `server show`.

use std::fmt::Write as _;
use std::process::ExitCode;

use linerate_cli::{eprint_line, print};
use linerate_control::document::{Entry, Section, SectionKind};
use linerate_control::printable::printable;
use linerate_control::tunnel_file::settings;
use linerate_server::init::list;
use linerate_tunnel::server::record::{Record, State};
use linerate_tunnel::server::{self, service::ServiceState};
use linerate_tunnel::{self as tunnel, ConfigFile, Context};
use linerate_wg::keys;
use serde::Serialize;

use super::json;
use super::pool::Clients;
use crate::cli::{CliError, Output, interruption};

#[derive(clap::Args)]
pub(crate) struct ShowArguments {
    /// Server to show (default: all)
    name: Option<String>,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A server, as in the output of `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    name: String,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    endpoint: Option<String>,
    listen_port: Option<u16>,
    addresses: Vec<String>,
    settings: Vec<Setting>,
    running: bool,
    service: Option<Service>,
    /// Whether `server init` or `server import` made it, and whether that is complete.
    made: Option<State>,
    clients: Clients,
    /// Peers that are no clients.
    other_peers: usize,
}

#[derive(Serialize)]
struct Setting {
    name: String,
    value: String,
}

#[derive(Serialize)]
struct Service {
    name: String,
    #[serde(flatten)]
    state: ServiceState,
}

pub(super) fn run(arguments: &ShowArguments) -> Result<ExitCode, CliError> {
    let interruption = interruption()?;
    let context = Context { reporter: &Output::QUIET, interruption: &interruption };
    let files = match &arguments.name {
        Some(name) => vec![server::find(Some(name))?],
        None => server::servers()?,
    };
    if files.is_empty() && !arguments.json {
        eprint_line("there is no server here; `linerate server init' makes one");
        return Ok(ExitCode::SUCCESS);
    }
    let views = files.iter().map(|file| view(file, context)).collect::<Result<Vec<View>, CliError>>()?;
    if arguments.json {
        return Ok(print(&json(&views)?)?);
    }
    let texts: Vec<String> = views.iter().map(text).collect();
    Ok(print(texts.join("\n").as_bytes())?)
}

fn view(file: &ConfigFile, context: Context<'_>) -> Result<View, CliError> {
    file.check()?;
    let clients = Clients::of(file)?;
    let contents = &file.contents;
    let record = Record::read(&file.interface)?;
    let service = record.as_ref().and_then(|record| record.service.as_ref());
    let service =
        service.map(|service| service.state(context).map(|state| Service { name: service.to_string(), state }));
    Ok(View {
        name: file.interface.to_string(),
        file: file.path.display().to_string(),
        public_key: contents.private_key.as_ref().map(|key| keys::public_key(key).to_string()),
        endpoint: contents.public_endpoint.as_ref().map(|endpoint| match contents.listen_port {
            Some(port) => endpoint.with_port(port),
            None => endpoint.to_string(),
        }),
        listen_port: contents.listen_port,
        addresses: contents.addresses.iter().map(ToString::to_string).collect(),
        settings: marked(file),
        running: tunnel::running(&file.interface).is_some(),
        service: service.transpose()?,
        made: record.map(|record| record.state),
        other_peers: contents.peers.iter().filter(|peer| peer.client.created.is_none()).count(),
        clients,
    })
}

/// What the file says to linerate alone, except for what has a line of its own.
fn marked(file: &ConfigFile) -> Vec<Setting> {
    let interface = file.document.sections().iter().filter(|section| section.kind() == SectionKind::Interface);
    let entries = interface.flat_map(Section::entries).filter(|entry| entry.marked);
    let setting =
        |entry: Entry<'_>| Setting { name: entry.name(), value: String::from_utf8_lossy(entry.value()).into_owned() };
    let has_line = |name: &str| {
        [settings::PUBLIC_ENDPOINT, settings::POOL, settings::RELEASED].iter().any(|known| known.name == name)
    };
    entries.map(setting).filter(|setting| !has_line(&setting.name)).collect()
}

fn text(view: &View) -> String {
    let state = match (view.running, view.made) {
        (_, Some(State::Making)) => "is half made: `linerate server init' starts over",
        (_, Some(State::Removing)) => "is half removed: `linerate server remove' goes on",
        (true, _) => "is up",
        (false, _) => "is not up",
    };
    let mut text = format!("{} {state}\n", view.name);
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<18}{}", printable(value));
    };
    row("endpoint", view.endpoint.as_deref().unwrap_or("none"));
    row(
        "listens on",
        &view.listen_port.map_or_else(|| "a random UDP port".to_owned(), |port| format!("UDP port {port}")),
    );
    row("public key", view.public_key.as_deref().unwrap_or("in a file of its own"));
    row("addresses", &list(&view.addresses));
    row("clients", &view.clients.text());
    let Clients { pools, used, usable, .. } = &view.clients;
    row("clients' networks", &format!("{}: {used} of {usable} addresses are taken", list(pools)));
    if view.other_peers > 0 {
        row("other peers", &view.other_peers.to_string());
    }
    row("file", &view.file);
    match &view.service {
        Some(Service { name, state }) => row("run by", &format!("{name}: {}, {}", state.active, state.enabled)),
        None if view.running && view.made.is_some() => row("run by", "a daemon; nothing starts it at boot"),
        None if view.running => row("run by", "a service that linerate did not set up, or a daemon"),
        None => row("run by", "nothing"),
    }
    for Setting { name, value } in &view.settings {
        row(name, value);
    }
    text
}
