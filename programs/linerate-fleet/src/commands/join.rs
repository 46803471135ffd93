//! `join`: this host becomes a gateway of a fleet that exists.

use std::process::ExitCode;

use linerate_cli::eprint_line;

use super::followed;
use super::init::{check_alone, check_port, member, warn_of_missing, warn_of_plain, write_fleet};
use crate::arguments::Join;
use crate::gateway::GATEWAYS_MAX;
use crate::local::{self, Local, Saved};
use crate::peers;
use crate::seal::Seal;
use crate::store::layout::{self, Config, Key, Keys, Member};
use crate::store::{Client, Compare, StoreError, Transaction};
use crate::view::{Peers, View};

/// How often another gateway that joins at the same time may be faster.
const TRIES: usize = 8;

pub(super) async fn run(arguments: &Join) -> Result<ExitCode, String> {
    let Join { name, tunnel, mesh_endpoint, store } = arguments;
    let (file, key) = local::tunnel(tunnel)?;
    check_alone(&file, name)?;
    let (keys, seal) = (Keys::of(name), Seal::new(&key, name));
    let client = store.client()?;
    let said = |error: StoreError| error.to_string();
    let (revision, all) = client.list(keys.all()).await.map_err(said)?;
    let missing = || format!("the store has no fleet {name}: `linerate fleet init {name} {tunnel}' makes it");
    let config = all.iter().find(|kv| keys.read(&kv.key) == Key::Config).ok_or_else(missing)?;
    let config: Config = layout::read(&seal, config).map_err(|why| {
        format!(
            "the fleet {name} has another private key than {}, or its `config' was changed ({why}): copy the private key of one of its gateways",
            file.path.display()
        )
    })?;
    let mut view = View::new(keys.clone(), seal.clone(), file.interface.clone(), Peers::new());
    view.list(revision, all);
    let address = config.address;
    check_port(&file, address.port())?;
    let own = peers::sections(&file.document, &file.interface)?;
    if let Some(key) = own.keys().find(|key| !view.peers().contains_key(key)) {
        return Err(format!(
            "{} has peers that are not in the fleet, such as {key}: remove them from it, or add them on another gateway first",
            file.path.display()
        ));
    }
    let mesh_key = local::new_key()?;
    let member = member(&mesh_key, *mesh_endpoint)?;
    let number = take_number(&client, &keys, &seal, &member).await?;
    let local = Local {
        file: file.called.clone(),
        gateway: number,
        store: store.absolute(),
        mesh_endpoint: *mesh_endpoint,
        route_table: None,
    };
    local::save(name, &local, &mesh_key)?;
    let sections = view.peers().iter().map(|(key, peer)| (*key, peer.section.clone())).collect();
    let unmet = write_fleet(&file, name, Some(&sections))?;
    let mut members = view.stored_members().clone();
    members.insert(number, member);
    let saved = Saved {
        revision,
        digest: peers::digest(&sections),
        config,
        members,
        numbers: view.peers().iter().map(|(key, peer)| (key.to_hex(), peer.number)).collect(),
    };
    local::save_view(name, &saved)?;
    eprint_line(&format!(
        "this host is gateway {number} of {name}, with {} peers. `linerate fleet run {name}' follows it, as a service",
        sections.len()
    ));
    view.refused().values().for_each(|why| eprint_line(&format!("Warning: a peer of the store is refused: {why}")));
    warn_of_plain(store);
    warn_of_missing(address);
    Ok(followed(&unmet))
}

/// Takes the lowest number that is free.
async fn take_number(client: &Client, keys: &Keys, seal: &Seal, member: &Member) -> Result<u8, String> {
    let said = |error: StoreError| error.to_string();
    for _ in 0..TRIES {
        let (_, members) = client.list(&keys.members()).await.map_err(said)?;
        let is_taken = |number: u8| members.iter().any(|kv| keys.read(&kv.key) == Key::Member(number));
        let number = (0..GATEWAYS_MAX).find(|number| !is_taken(*number));
        let number =
            number.ok_or_else(|| format!("the fleet has {GATEWAYS_MAX} gateways, which is all that it can have"))?;
        let key = keys.member(number);
        let compares = vec![Compare::Absent(key.clone()), Compare::Present(keys.config())];
        let operations = vec![layout::put(seal, key, member)];
        if client.transact(&Transaction { compares, operations }).await.map_err(said)?.is_done {
            return Ok(number);
        }
    }
    Err("other gateways join at the same time: try again".to_owned())
}
