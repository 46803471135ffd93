//! `status`: the gateways, from the store and from the service that runs here.

use std::collections::BTreeMap;
use std::process::ExitCode;

use linerate_cli::{eprint_line, print};
use serde_json::json;

use super::run::ServiceStatus;
use crate::arguments::Status;
use crate::feed::now;
use crate::gateway::Seen;
use crate::local::{self, Fleet};
use crate::seal::Seal;
use crate::store::KeyValue;
use crate::store::layout::{self, Applied, Config, Gateway, Key, Member, Next};

/// What the store has, apart from the peers.
#[derive(Default)]
struct Stored {
    config: Option<Config>,
    next: Option<Next>,
    members: BTreeMap<u8, Member>,
    gateways: BTreeMap<u8, Gateway>,
    applied: BTreeMap<u8, Applied>,
    /// What is none of these, by its key.
    refused: Vec<String>,
}

pub(super) async fn run(arguments: &Status) -> Result<ExitCode, String> {
    let fleet = Fleet::open(arguments.of.fleet.as_ref())?;
    let service: Option<ServiceStatus> = local::read_json(&local::status(&fleet.name))?;
    let (stored, trouble) = match read(&fleet).await {
        Ok(stored) => (stored, None),
        // What was known last.
        Err(error) => {
            let saved = fleet.saved()?;
            let (config, members) = saved.map_or_else(Default::default, |saved| (Some(saved.config), saved.members));
            (Stored { config, members, ..Stored::default() }, Some(error))
        }
    };
    match arguments.json {
        true => print_json(&fleet, &stored, service.as_ref(), trouble.as_deref())?,
        false => print_table(&fleet, &stored, service.as_ref(), trouble.as_deref())?,
    };
    let is_well =
        trouble.is_none() && service.is_some_and(|service| service.hold.is_none() && service.gateway.trouble.is_none());
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn read(fleet: &Fleet) -> Result<Stored, String> {
    let mut stored = Stored::default();
    let keys = &fleet.keys;
    let mut all: Vec<KeyValue> = Vec::new();
    for prefix in ["members/", "gateways/", "applied/"] {
        let prefix = format!("{}{prefix}", keys.all());
        all.extend(fleet.client.list(&prefix).await.map_err(|error| error.to_string())?.1);
    }
    for key in [keys.config(), keys.next()] {
        all.extend(fleet.client.get(&key).await.map_err(|error| error.to_string())?.1);
    }
    let seal = fleet.seal()?;
    for kv in &all {
        if let Err(why) = stored.take(keys.read(&kv.key), &seal, kv) {
            let key = linerate_cli::for_people(&String::from_utf8_lossy(&kv.key)).to_string();
            stored.refused.push(format!("{key} in the store is refused: {why}"));
        }
    }
    Ok(stored)
}

impl Stored {
    fn take(&mut self, key: Key, seal: &Seal, kv: &KeyValue) -> Result<(), String> {
        match key {
            Key::Config => self.config = Some(layout::read(seal, kv)?),
            Key::Next => self.next = Some(layout::read(seal, kv)?),
            Key::Member(number) => drop(self.members.insert(number, layout::read(seal, kv)?)),
            Key::Gateway(number) => drop(self.gateways.insert(number, layout::read(seal, kv)?)),
            Key::Applied(number) => {
                self.applied.insert(number, layout::read(seal, kv)?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// What the service here sees of a gateway, if it runs.
fn seen(service: Option<&ServiceStatus>, number: u8) -> Option<&Seen> {
    service?.gateway.gateways.get(&number)
}

fn print_json(
    fleet: &Fleet,
    stored: &Stored,
    service: Option<&ServiceStatus>,
    trouble: Option<&str>,
) -> Result<ExitCode, String> {
    let member = |(number, member): (&u8, &Member)| {
        let seen = seen(service, *number);
        json!({
            "gateway": number,
            "name": member.name,
            "mesh_endpoint": member.mesh_endpoint,
            "draining": member.draining,
            "has_lease": stored.gateways.contains_key(number),
            "version": stored.gateways.get(number).map(|gateway| &gateway.version),
            "applied_revision": stored.applied.get(number).map(|applied| applied.revision),
            "applied_time": stored.applied.get(number).map(|applied| applied.time),
            "alive": seen.map(|seen| seen.is_alive),
            "skew_ms": seen.and_then(|seen| seen.skew_ms),
            "peers": seen.map(|seen| seen.peers),
        })
    };
    let value = json!({
        "fleet": fleet.name.as_str(),
        "gateway": fleet.local.gateway,
        "store": { "answers": trouble.is_none(), "trouble": trouble },
        "address": stored.config.as_ref().map(|config| config.address),
        "epoch": stored.config.as_ref().map(|config| config.epoch),
        "peers": stored.next.as_ref().map(|next| next.peers),
        "gateways": stored.members.iter().map(member).collect::<Vec<_>>(),
        "refused": stored.refused,
        "service": service,
    });
    let mut text = serde_json::to_vec_pretty(&value).map_err(|error| error.to_string())?;
    text.push(b'\n');
    print(&text)
}

fn print_table(
    fleet: &Fleet,
    stored: &Stored,
    service: Option<&ServiceStatus>,
    trouble: Option<&str>,
) -> Result<ExitCode, String> {
    let mut text = format!("fleet {}", fleet.name);
    if let Some(config) = &stored.config {
        text += &format!(" at {}", config.address);
    }
    if let Some(next) = &stored.next {
        text += &format!(", {} peers", next.peers);
    }
    text += &format!(
        "\n\n{:<7} {:<20} {:<8} {:>9} {:>9} {:>7}  {}\n",
        "gateway", "name", "state", "applied", "skew", "peers", "mesh"
    );
    for (number, member) in &stored.members {
        let seen = seen(service, *number);
        let state = match (stored.gateways.contains_key(number), seen.map(|seen| seen.is_alive)) {
            _ if member.draining => "draining",
            (_, Some(true)) => "alive",
            (true, None) => "running",
            (true, Some(false)) => "silent",
            (false, _) => "down",
        };
        let applied = stored.applied.get(number).map_or_else(|| "-".to_owned(), |applied| applied.revision.to_string());
        let skew = seen.and_then(|seen| seen.skew_ms).map_or_else(|| "-".to_owned(), |skew| format!("{skew} ms"));
        let peers = seen.map_or_else(|| "-".to_owned(), |seen| seen.peers.to_string());
        let own = if *number == fleet.local.gateway { " (this one)" } else { "" };
        text += &format!(
            "{number:<7} {:<20} {state:<8} {applied:>9} {skew:>9} {peers:>7}  {}{own}\n",
            linerate_cli::for_people(&member.name),
            member.mesh_endpoint
        );
    }
    print(text.as_bytes())?;
    if let Some(trouble) = trouble {
        eprint_line(&format!("{trouble} Above is what was known last"));
    }
    stored.refused.iter().for_each(|why| eprint_line(why));
    match service {
        None => eprint_line(&format!("the service does not run here: `linerate fleet run {}'", fleet.name)),
        Some(service) => say(service),
    }
    let late = |(number, applied): (&u8, &Applied)| {
        let age = now().saturating_sub(applied.time);
        stored.gateways.contains_key(number).then(|| format!("gateway {number} last followed a change {age} s ago"))
    };
    let newest = stored.applied.values().map(|applied| applied.revision).max().unwrap_or(0);
    stored
        .applied
        .iter()
        .filter(|(_, applied)| applied.revision < newest)
        .filter_map(late)
        .for_each(|said| eprint_line(&said));
    Ok(ExitCode::SUCCESS)
}

/// What of the service here a person should know.
fn say(service: &ServiceStatus) {
    let troubles = [
        service.hold.clone(),
        (!service.daemon_is_told)
            .then(|| "the tunnel is down, or its daemon does not take its part in the fleet".to_owned()),
        service.store_is_stale.then(|| "the store has not answered for longer than max_stale".to_owned()),
        service.gateway.trouble.clone(),
        service.gateway.reason.clone(),
    ];
    troubles.iter().flatten().for_each(|said| eprint_line(said));
    service.refused.iter().for_each(|why| eprint_line(&format!("a peer of the store is refused: {why}")));
}
