//! Clients for people and for programs.

use std::collections::HashMap;
use std::fmt::Write as _;

use ipnet::IpNet;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};
use linerate_control::keys::PublicKey;
use linerate_control::printable::printable;
use linerate_control::tunnel_file::QuotaReset;
use linerate_control::uapi::limits::Suspension;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_server::{Client, State};
use linerate_wg::show::human::amount;
use serde_json::{Value, json};

use super::addresses;
use crate::columns;

/// For how long after a handshake a client is online: no session lasts longer.
const ONLINE: i64 = 180;

/// All about clients, for programs.
pub(super) fn json_list(clients: &[&Client], running: Option<&DeviceState>) -> Value {
    let peers = peers(running);
    clients.iter().map(|client| json(client, peers.get(&client.peer.public_key).copied())).collect()
}

/// All about a client, without its secrets.
pub(super) fn json(client: &Client, running: Option<&PeerState>) -> Value {
    let settings = &client.peer.client;
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
    let mut value = json!({
        "name": client.name.as_str(),
        "fileName": client.file_name,
        "state": client.state.word(),
        "publicKey": client.peer.public_key.to_string(),
        "nextPublicKey": settings.next_public_key.map(|key| key.to_string()),
        "addresses": client.addresses().collect::<Vec<IpNet>>(),
        "networks": client.networks().collect::<Vec<IpNet>>(),
        "created": time(settings.created),
        "expires": time(settings.expires),
        "expired": time(settings.expired),
        "disabled": time(settings.disabled),
        "quotaBytes": settings.quota.map(|quota| quota.bytes()),
        "quotaReset": settings.quota_reset.to_string(),
        "rateDownBits": settings.rate.and_then(|rate| bits(rate.down)),
        "rateUpBits": settings.rate.and_then(|rate| bits(rate.up)),
        "destinations": client.peer.destinations,
        "allowedIPs": settings.allowed_ips,
        "keyKept": settings.private_key.is_some(),
        "note": settings.note,
    });
    if let Some(peer) = running {
        let handshake = seen(peer);
        value["latestHandshake"] = json!(handshake.map(|time| time.to_string()));
        value["quotaUsedBytes"] = json!(peer.limits.used);
        value["suspended"] = json!(peer.limits.suspended.map(Suspension::name));
        value["receivedBytes"] = json!(peer.rx_bytes);
        value["sentBytes"] = json!(peer.tx_bytes);
    }
    value
}

/// Bits per second, if there is a rate.
fn bits(rate: u64) -> Option<u64> {
    Some(rate).filter(|rate| *rate > 0)
}

/// A word for whether a client is let in, its quota included.
fn state(client: &Client, running: Option<&PeerState>) -> &'static str {
    let is_used_up = running.is_some_and(|peer| peer.limits.suspended == Some(Suspension::Quota));
    if client.state == State::Enabled && is_used_up { "suspended" } else { client.state.word() }
}

const HEADER: [&str; 9] = ["NAME", "STATE", "ADDRESSES", "EXPIRES", "QUOTA", "RATE", "LAST SEEN", "RECEIVED", "SENT"];

/// A line for each client.
pub(super) fn table(clients: &[&Client], running: Option<&DeviceState>, now: Timestamp) -> String {
    let peers = peers(running);
    let rows: Vec<[String; 9]> =
        clients.iter().map(|client| row(client, peers.get(&client.peer.public_key).copied(), now)).collect();
    // Numbers are right-aligned.
    let lines = columns::lines(HEADER, &rows, &[7, 8]);
    lines.into_iter().map(|line| line + "\n").collect()
}

fn row(client: &Client, running: Option<&PeerState>, now: Timestamp) -> [String; 9] {
    let settings = &client.peer.client;
    let none = || "-".to_owned();
    [
        client.name.to_string(),
        state(client, running).to_owned(),
        addresses(client),
        settings.expires.map_or_else(none, |time| time.to_string()),
        settings.quota.map_or_else(none, |quota| quota.to_string()),
        settings.rate.map_or_else(none, |rate| rate.to_string()),
        running.map_or_else(none, |peer| last_seen(peer, now)),
        running.map_or_else(none, |peer| bytes(peer.rx_bytes)),
        running.map_or_else(none, |peer| bytes(peer.tx_bytes)),
    ]
}

/// All about a client, for people.
pub(super) fn details(
    client: &Client,
    allowed_ips: &[IpNet],
    running: Option<&DeviceState>,
    now: Timestamp,
    zone: &TimeZone,
) -> String {
    let settings = &client.peer.client;
    let running = running.and_then(|device| device.peers.iter().find(|peer| peer.public_key == client.peer.public_key));
    let mut text = format!("{}\n", client.name);
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(text, "  {what:<13} {value}");
    };
    let time = |time: Timestamp| local(time, zone);
    line("state", state(client, running));
    if !client.name.is_plain() {
        line("file", &format!("{}.conf", client.file_name));
    }
    line("addresses", &addresses(client));
    let networks = client.networks().map(|net| net.to_string()).collect::<Vec<String>>();
    if !networks.is_empty() {
        line("networks", &networks.join(", "));
    }
    line("public key", &client.peer.public_key.to_string());
    let key = if settings.private_key.is_some() { "kept in the server's file" } else { "only the client has it" };
    line("private key", key);
    let times = [
        ("created", settings.created),
        ("expires", settings.expires),
        ("expired", settings.expired),
        ("disabled", settings.disabled),
    ];
    times.into_iter().filter_map(|(what, at)| Some((what, at?))).for_each(|(what, at)| line(what, &time(at)));
    if let Some(key) = &settings.next_public_key {
        line("next key", &format!("{key}, from its first handshake on"));
    }
    if let Some(quota) = settings.quota {
        let reset = if settings.quota_reset == QuotaReset::Monthly { " each month" } else { "" };
        line("quota", &format!("{quota}{reset}"));
        if let Some(peer) = running {
            line("used", &bytes(peer.limits.used));
        }
    }
    if let Some(rate) = settings.rate {
        line("rate", &format!("{rate} bit/s{}", if rate.down == rate.up { " each way" } else { ", down/up" }));
    }
    let list = |nets: &[IpNet]| nets.iter().map(IpNet::to_string).collect::<Vec<String>>().join(", ");
    if !client.peer.destinations.is_empty() {
        line("destinations", &list(&client.peer.destinations));
    }
    line("sends", &list(allowed_ips));
    if let Some(note) = &settings.note {
        line("note", &printable(note));
    }
    if let Some(peer) = running {
        line("last seen", &last_seen(peer, now));
        line("received", &bytes(peer.rx_bytes));
        line("sent", &bytes(peer.tx_bytes));
    }
    text
}

/// Until when a client is let in, in full.
pub(super) fn until(expires: Option<Timestamp>, zone: &TimeZone) -> String {
    expires.map_or_else(|| "it never expires".to_owned(), |time| format!("it expires on {}", local(time, zone)))
}

/// A time with its zone and as the file has it.
fn local(time: Timestamp, zone: &TimeZone) -> String {
    let there = time.to_zoned(zone.clone());
    format!("{} ({time})", there.strftime("%A, %Y-%m-%d %H:%M:%S %Z"))
}

fn peers(running: Option<&DeviceState>) -> HashMap<PublicKey, &PeerState> {
    running.into_iter().flat_map(|device| &device.peers).map(|peer| (peer.public_key, peer)).collect()
}

/// When the last handshake was.
fn seen(peer: &PeerState) -> Option<Timestamp> {
    let seconds = i64::try_from(peer.last_handshake.as_secs()).ok().filter(|seconds| *seconds > 0)?;
    Timestamp::from_second(seconds).ok()
}

fn last_seen(peer: &PeerState, now: Timestamp) -> String {
    let Some(time) = seen(peer) else { return "never".to_owned() };
    let age = now.since((Unit::Second, time)).map_or(0, |span| span.get_seconds()).max(0);
    match age {
        _ if age <= ONLINE => "online".to_owned(),
        ..=7199 => format!("{} min ago", age / 60),
        7200..172_800 => format!("{} h ago", age / 3600),
        _ => format!("{} days ago", age / 86_400),
    }
}

fn bytes(count: u64) -> String {
    let (number, unit) = amount(count);
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_control::tunnel_file::Peer;

    #[test]
    fn a_client_that_its_quota_cuts_off_does_not_look_healthy() {
        let key = PublicKey([7; 32]);
        let client = Client {
            name: "guest".parse().unwrap(),
            file_name: "guest".to_owned(),
            state: State::Enabled,
            peer: Peer::new(key).into(),
        };
        let mut peer = PeerState::new(key);
        peer.limits.used = 5000;
        assert_eq!(state(&client, Some(&peer)), "enabled");
        peer.limits.suspended = Some(Suspension::Quota);
        assert_eq!(state(&client, Some(&peer)), "suspended");
        let value = json(&client, Some(&peer));
        assert_eq!((&value["quotaUsedBytes"], &value["suspended"]), (&json!(5000), &json!("quota")));
    }
}
