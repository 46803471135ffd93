//! Saves the running tunnel to its file, and changes only lines whose values differ.
//!
//! Where the original's `save` writes a new file, this merges: comments, names, host names, search domains and the
//! order of lines stay. Values that were chosen automatically (a random port, the mark of a full tunnel, a link-local
//! address) are not written unless the file sets them.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::group;
use super::values::{address, compact, items, looks_like_server, prefix};
use super::{Endpoint, NameServer, NoNames, Peer, TunnelFile, settings};
use crate::document::{Document, InvalidValue, SectionKind, Setting};
use crate::endpoint;
use crate::interface::InterfaceName;
use crate::keys::PublicKey;
use crate::uapi::response::{DeviceState, PeerState};

/// The running tunnel.
pub struct RunningTunnel<'a> {
    /// The interface.
    pub interface: &'a InterfaceName,
    /// The state of the device.
    pub device: &'a DeviceState,
    /// The addresses of the interface, host bits kept.
    pub addresses: &'a [IpNet],
    /// Whether the host has IPv6. If not, the IPv6 addresses of the file stay.
    pub has_ipv6: bool,
    /// The MTU of the interface.
    pub mtu: u32,
    /// The name servers set for the interface, if known.
    pub dns_servers: Option<&'a [NameServer]>,
    /// The port that was chosen because the file sets none, if known.
    pub chosen_port: Option<u16>,
    /// The mark that was chosen because the file sets none.
    pub chosen_fwmark: Option<u32>,
    /// The file as last applied, by `up` or `reload`. Values that have not changed at run time since then are not
    /// saved; without it, the file is assumed unchanged.
    pub previous: Option<&'a TunnelFile>,
    /// Whether the name of a peer in the file was resolved to this address.
    pub is_resolved_address: &'a dyn Fn(&PublicKey, SocketAddr) -> bool,
}

/// Merges the running tunnel into its file.
///
/// # Errors
/// A value cannot be written: the zone of an endpoint is an interface whose name is not allowed in a file.
pub fn save(document: &mut Document, runtime: &RunningTunnel<'_>) -> Result<(), InvalidValue> {
    // Removing a line may bring another into effect: of peers that list the same prefix, the last one has it.
    for _ in 0..=document.sections().len() {
        let before = document.to_bytes();
        let (file, _) = TunnelFile::read(document, runtime.interface, &NoNames);
        save_interface(document, &file, runtime)?;
        let device = group::spread(&file, &file, runtime.device);
        save_peers(document, &file, &RunningTunnel { device: &device, ..*runtime })?;
        if *document.to_bytes() == *before {
            break;
        }
    }
    Ok(())
}

fn save_interface(document: &mut Document, file: &TunnelFile, runtime: &RunningTunnel<'_>) -> Result<(), InvalidValue> {
    let (device, previous) = (runtime.device, runtime.previous);

    let from_elsewhere = file.private_key_file.is_some()
        || previous.is_some_and(|previous| previous.private_key == device.private_key)
        || (file.private_key.is_none() && file.hooks.iter().any(|hook| hook.command.contains("private-key")));
    if !from_elsewhere && file.private_key != device.private_key {
        let key = device.private_key.as_ref().map(|key| key.to_base64());
        put_interface(document, &settings::PRIVATE_KEY, key.as_ref().map(|key| &***key))?;
    }
    let chosen = match file.listen_port {
        // 0 means a random port.
        None | Some(0) => runtime.chosen_port.is_none_or(|chosen| chosen == device.listen_port),
        Some(port) => port == device.listen_port,
    };
    // A device without a socket has no port.
    let unchanged =
        device.listen_port == 0 || previous.is_some_and(|previous| previous.listen_port == Some(device.listen_port));
    if !chosen && !unchanged {
        put_interface(document, &settings::LISTEN_PORT, Some(&device.listen_port.to_string()))?;
    }
    let chosen = file.fwmark.is_none() && runtime.chosen_fwmark == Some(device.fwmark);
    let unchanged =
        previous.is_some_and(|previous| previous.fwmark.is_some() && previous.fwmark == Some(device.fwmark));
    if !chosen && !unchanged && file.fwmark.unwrap_or(0) != device.fwmark {
        let mark = Some(format!("{:#x}", device.fwmark)).filter(|_| device.fwmark != 0);
        put_interface(document, &settings::FWMARK, mark.as_deref())?;
    }
    if file.mtu.is_some_and(|mtu| mtu != runtime.mtu)
        && previous.is_none_or(|previous| previous.mtu != Some(runtime.mtu))
    {
        put_interface(document, &settings::MTU, Some(&runtime.mtu.to_string()))?;
    }
    save_addresses(document, file, runtime)?;
    save_dns(document, file, runtime)
}

fn save_addresses(document: &mut Document, file: &TunnelFile, runtime: &RunningTunnel<'_>) -> Result<(), InvalidValue> {
    let unseen = |net: &IpNet| matches!(net, IpNet::V6(_)) && !runtime.has_ipv6;
    // The kernel assigns a link-local address to a TUN device (fe80::/10, RFC 4291).
    let own = |net: &IpNet| matches!(net, IpNet::V6(v6) if v6.addr().is_unicast_link_local());
    let visible = |list: &[IpNet]| list.iter().copied().filter(|net| !unseen(net)).collect::<HashSet<IpNet>>();
    let in_file = visible(&file.addresses);
    let wanted: Vec<IpNet> =
        runtime.addresses.iter().copied().filter(|net| in_file.contains(net) || !own(net)).collect();
    let mut missing: HashSet<IpNet> = wanted.iter().copied().collect();
    if missing == in_file || runtime.previous.is_some_and(|previous| visible(&previous.addresses) == missing) {
        return Ok(());
    }
    let interfaces = sections(document, SectionKind::Interface);
    retain_items(document, &interfaces, &settings::ADDRESS, |item| {
        address(item).ok().is_some_and(|net| unseen(&net) || missing.remove(&net))
    })?;
    let new = wanted.iter().filter(|net| missing.contains(net)).map(IpNet::to_string);
    append(document, &interfaces, &settings::ADDRESS, new.collect())
}

fn save_dns(document: &mut Document, file: &TunnelFile, runtime: &RunningTunnel<'_>) -> Result<(), InvalidValue> {
    let Some(servers) = runtime.dns_servers else { return Ok(()) };
    let set = |list: &[NameServer]| list.iter().cloned().collect::<HashSet<NameServer>>();
    let mut missing = set(servers);
    if missing == set(&file.dns_servers)
        || runtime.previous.is_some_and(|previous| set(&previous.dns_servers) == missing)
    {
        return Ok(());
    }
    let interfaces = sections(document, SectionKind::Interface);
    retain_items(document, &interfaces, &settings::DNS, |word| {
        !looks_like_server(word) || word.parse().is_ok_and(|server| missing.remove(&server))
    })?;
    let new = servers.iter().filter(|server| missing.contains(server)).map(NameServer::to_string);
    append(document, &interfaces, &settings::DNS, new.collect())
}

fn save_peers(document: &mut Document, file: &TunnelFile, runtime: &RunningTunnel<'_>) -> Result<(), InvalidValue> {
    let running: HashMap<PublicKey, &PeerState> = by_key(&runtime.device.peers, |peer| peer.public_key);
    let in_file: HashMap<PublicKey, &Arc<Peer>> = by_key(&file.peers, |peer| peer.public_key);
    let previous: Option<HashMap<PublicKey, &Arc<Peer>>> =
        runtime.previous.map(|previous| by_key(&previous.peers, |peer| peer.public_key));
    let in_previous = |key: &PublicKey| previous.as_ref().and_then(|previous| previous.get(key).copied());

    let mut removed = Vec::new();
    let mut places: HashMap<PublicKey, Vec<usize>> = HashMap::new();
    for section in sections(document, SectionKind::Peer) {
        if let Some(key) = public_key(document, section) {
            places.entry(key).or_default().push(section);
        }
    }
    for (key, mut places) in places {
        let (Some(peer), Some(&last)) = (in_file.get(&key), places.last()) else { continue };
        let Some(state) = running.get(&key) else {
            // A peer that was added to the file later was not removed at run time.
            if previous.is_none() || in_previous(&key).is_some() {
                removed.append(&mut places);
            }
            continue;
        };
        if agrees(peer, state, runtime) || in_previous(&key).is_some_and(|previous| agrees(previous, state, runtime)) {
            continue;
        }
        save_peer(document, last, peer, state, runtime)?;
        // The last section now holds everything.
        places.pop();
        removed.append(&mut places);
    }
    removed.sort_unstable();
    removed.into_iter().rev().for_each(|section| document.remove_section(section));
    // A peer that was removed from the file is not written again.
    let new = runtime.device.peers.iter().filter(|peer| !in_file.contains_key(&peer.public_key));
    // One that waits to replace another is in that one's section.
    let new = new.filter(|peer| peer.limits.replaces.is_none());
    for state in new.filter(|peer| in_previous(&peer.public_key).is_none()) {
        let section = document.add_peer();
        document.insert(section, &settings::PUBLIC_KEY, &state.public_key.to_string())?;
        save_peer(document, section, &Peer::new(state.public_key), state, runtime)?;
    }
    Ok(())
}

fn by_key<T>(list: &[T], key: fn(&T) -> PublicKey) -> HashMap<PublicKey, &T> {
    list.iter().map(|item| (key(item), item)).collect()
}

fn public_key(document: &Document, section: usize) -> Option<PublicKey> {
    let entry = document.sections()[section].entries().rfind(|entry| entry.is(&settings::PUBLIC_KEY))?;
    PublicKey::from_base64(compact(std::str::from_utf8(entry.value()).ok()?).as_bytes())
}

/// Whether the file matches the running peer.
fn agrees(peer: &Peer, state: &PeerState, runtime: &RunningTunnel<'_>) -> bool {
    (peer.preshared_key_file.is_some() || peer.preshared_key == state.preshared_key)
        && leads_to(peer, state, runtime)
        && peer.persistent_keepalive.unwrap_or(0) == state.persistent_keepalive
        && peer.allowed_ips.iter().copied().collect::<HashSet<IpNet>>() == prefixes(state).into_iter().collect()
}

/// Whether the endpoint in the file leads to the running peer, as far as its address is known and can be written.
fn leads_to(peer: &Peer, state: &PeerState, runtime: &RunningTunnel<'_>) -> bool {
    match (&peer.endpoint, state.endpoint) {
        (_, None) => true,
        // A client is found where it is: its last address is of no use to a server that starts again.
        _ if peer.client.created.is_some() => true,
        (_, Some(running)) if endpoint::has_stale_zone(&running) => true,
        (None, Some(_)) => false,
        (Some(Endpoint::Address(address)), Some(running)) => *address == running,
        (Some(Endpoint::Name { .. }), Some(running)) => (runtime.is_resolved_address)(&peer.public_key, running),
    }
}

fn prefixes(state: &PeerState) -> Vec<IpNet> {
    state.allowed_ips.iter().filter_map(|&(address, length)| IpNet::new(address, length).ok()).collect()
}

/// Updates one section to match its running peer.
fn save_peer(
    document: &mut Document,
    section: usize,
    peer: &Peer,
    state: &PeerState,
    runtime: &RunningTunnel<'_>,
) -> Result<(), InvalidValue> {
    let (file, _) = TunnelFile::read(&document.only(section), runtime.interface, &NoNames);
    let here = file.peers.first().map_or(peer, |here| &**here);
    if here.preshared_key_file.is_none() && here.preshared_key != state.preshared_key {
        let key = state.preshared_key.as_ref().map(|key| key.to_base64());
        put(document, &[section], section, &settings::PRESHARED_KEY, key.as_ref().map(|key| &***key))?;
    }
    let wanted = prefixes(state);
    let mut missing: HashSet<IpNet> = wanted.iter().copied().collect();
    if here.allowed_ips.iter().copied().collect::<HashSet<IpNet>>() != missing {
        retain_items(document, &[section], &settings::ALLOWED_IPS, |item| {
            prefix(item).is_ok_and(|net| missing.remove(&net.trunc()))
        })?;
        let new = wanted.iter().filter(|net| missing.contains(net)).map(IpNet::to_string);
        append(document, &[section], &settings::ALLOWED_IPS, new.collect())?;
    }
    if let Some(running) = state.endpoint.filter(|_| !leads_to(here, state, runtime)) {
        put(document, &[section], section, &settings::ENDPOINT, Some(&endpoint::text(&running)))?;
    }
    if here.persistent_keepalive.unwrap_or(0) != state.persistent_keepalive {
        let seconds = Some(state.persistent_keepalive.to_string()).filter(|_| state.persistent_keepalive != 0);
        put(document, &[section], section, &settings::PERSISTENT_KEEPALIVE, seconds.as_deref())?;
    }
    Ok(())
}

fn sections(document: &Document, kind: SectionKind) -> Vec<usize> {
    let all = document.sections().iter().enumerate();
    all.filter(|(_, section)| section.kind() == kind).map(|(index, _)| index).collect()
}

fn put_interface(document: &mut Document, setting: &Setting, value: Option<&str>) -> Result<(), InvalidValue> {
    let home = document.interface();
    let interfaces = sections(document, SectionKind::Interface);
    put(document, &interfaces, home, setting, value)
}

/// Sets a setting where it was last set, else in the section `home`; without a value, removes it from all sections.
fn put(
    document: &mut Document,
    sections: &[usize],
    home: usize,
    setting: &Setting,
    value: Option<&str>,
) -> Result<(), InvalidValue> {
    let Some(value) = value else {
        sections.iter().for_each(|&section| document.unset(section, setting));
        return Ok(());
    };
    let section = last_with(document, sections, setting).map_or(home, |(section, _)| section);
    document.set(section, setting, value)
}

/// The last of `sections` that has the setting, and its last line with it.
fn last_with(document: &Document, sections: &[usize], setting: &Setting) -> Option<(usize, usize)> {
    sections.iter().rev().find_map(|&section| {
        let entry = document.sections()[section].entries().rfind(|entry| entry.is(setting))?;
        Some((section, entry.index))
    })
}

/// Removes the items of a list that `keep` rejects, and lines that lose all of theirs. Other lines stay unchanged.
fn retain_items(
    document: &mut Document,
    sections: &[usize],
    setting: &Setting,
    mut keep: impl FnMut(&str) -> bool,
) -> Result<(), InvalidValue> {
    for &section in sections {
        let entries = document.sections()[section].entries().filter(|entry| entry.is(setting));
        let lines = entries.map(|entry| (entry.index, String::from_utf8_lossy(entry.value()).into_owned()));
        let mut emptied = Vec::new();
        for (index, value) in lines.collect::<Vec<_>>() {
            let all: Vec<&str> = list(&value, setting).collect();
            let kept: Vec<&str> = all.iter().copied().filter(|item| keep(&compact(item))).collect();
            if kept.is_empty() && !all.is_empty() {
                emptied.push(index);
            } else if kept.len() < all.len() {
                document.replace(section, index, setting, &kept.join(separator(&value)))?;
            }
        }
        emptied.into_iter().rev().for_each(|index| document.remove(section, index));
    }
    Ok(())
}

/// Adds items to the last line of a list. Addresses and name servers get a line each, as the original writes them,
/// unless the file lists several in one line.
fn append(
    document: &mut Document,
    sections: &[usize],
    setting: &Setting,
    new: Vec<String>,
) -> Result<(), InvalidValue> {
    if new.is_empty() {
        return Ok(());
    }
    let last = last_with(document, sections, setting);
    let entry = last.and_then(|(section, index)| {
        let entry = document.sections()[section].entries().find(|entry| entry.index == index)?;
        Some(String::from_utf8_lossy(entry.value()).into_owned())
    });
    let value = entry.unwrap_or_default();
    let is_list = *setting == settings::ALLOWED_IPS || list(&value, setting).nth(1).is_some();
    let (section, index) = match last {
        Some(place) if is_list => place,
        _ => {
            let home = last.map(|(section, _)| section).or_else(|| sections.first().copied());
            let home = home.unwrap_or_else(|| document.interface());
            let lines = if is_list { vec![new.join(", ")] } else { new };
            return lines.iter().try_for_each(|line| document.insert(home, setting, line));
        }
    };
    let separator = separator(&value);
    let items = list(&value, setting).map(str::to_owned).chain(new);
    document.replace(section, index, setting, &items.collect::<Vec<_>>().join(separator))
}

fn list<'a>(value: &'a str, setting: &Setting) -> impl Iterator<Item = &'a str> + use<'a> {
    let items = items(value, *setting != settings::ALLOWED_IPS);
    items.map(|(_, item)| item.trim()).filter(|item| !item.is_empty())
}

/// The separator between the items of a list.
fn separator(value: &str) -> &'static str {
    if value.contains(',') && !value.contains(", ") { "," } else { ", " }
}
