//! A gateway of a fleet, between whole engines.
#![cfg(feature = "fleet")]

mod hosts;

use std::net::IpAddr;

use hosts::{Clock, Host, settle, udp};
use linerate_engine::config::{ConfigError, DeviceChange, FleetChange, Initiate, PeerChange};
use linerate_engine::fleet::{FORWARD_HEADER, FORWARD_VERSION, changes};
use linerate_netio::memory::{Fate, MemoryNet};
use linerate_netio::udp::{Received, Socket};
use linerate_protocol::Prefix;
use linerate_protocol::fleet::{Hint, IndexKey};

fn gateway(host: &mut Host) {
    join(host, 3);
}

fn join(host: &mut Host, number: u8) {
    let fleet = Some(Some((number, IndexKey::new(&[5; 32]))));
    host.slow_path.set(DeviceChange { fleet, ..DeviceChange::default() }).unwrap();
}

#[test]
fn a_gateway_that_is_told_where_a_client_is_starts_a_handshake_and_carries_its_packets() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let (mut gate, mut client) = (Host::new(&net, &clock, 1), Host::new(&net, &clock, 2));
    client.add_peer(&gate);
    gateway(&mut gate);
    let hint = Some(Hint { endpoint: Some(client.outer), ..Hint::default() });
    gate.set_peer(PeerChange {
        allowed_ips: vec![(true, Prefix::new(client.inner, 32).unwrap())],
        fleet: FleetChange { number: Some(9), hint, initiate: Initiate::Now },
        ..PeerChange::new(client.public_key)
    });
    settle(&mut [&mut gate, &mut client]);
    let sent = |host: &Host, name| host.shared.counters.list().iter().find(|(counter, _)| counter == name).unwrap().1;
    assert_eq!((sent(&gate, "handshakes_done"), sent(&client, "handshake_initiations_sent")), (1, 0));
    client.send(&udp(client.inner, gate.inner, b"at once"));
    settle(&mut [&mut gate, &mut client]);
    assert_eq!(gate.receive().unwrap().1, udp(client.inner, gate.inner, b"at once"));
}

#[test]
fn a_hint_does_not_move_a_client_that_is_here() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let (mut gate, mut client) = (Host::new(&net, &clock, 1), Host::new(&net, &clock, 2));
    client.add_peer(&gate);
    gate.add_peer(&client);
    client.send(&udp(client.inner, gate.inner, b"here"));
    settle(&mut [&mut gate, &mut client]);
    gateway(&mut gate);
    let hint = Some(Hint { endpoint: Some("203.0.113.1:9".parse().unwrap()), ..Hint::default() });
    let fleet = FleetChange { hint, ..FleetChange::default() };
    gate.set_peer(PeerChange { fleet, ..PeerChange::new(client.public_key) });
    assert_eq!(gate.slow_path.get().peers[0].endpoint, Some(client.outer));
    // Unless another gateway has had a later handshake: the client has moved, and the session here is of before.
    let elsewhere = "203.0.113.1:9".parse().ok();
    let hint = Some(Hint { endpoint: elsewhere, received: Some([0x7f; 12]), ..Hint::default() });
    let fleet = FleetChange { hint, ..FleetChange::default() };
    gate.set_peer(PeerChange { fleet, ..PeerChange::new(client.public_key) });
    assert_eq!(gate.slow_path.get().peers[0].endpoint, elsewhere);
    // To where somebody only says that it is, no data of that session goes.
    let made_up = Some(Hint { endpoint: "203.0.113.2:9".parse().ok(), ..Hint::default() });
    let fleet = FleetChange { hint: made_up, initiate: Initiate::Once, ..FleetChange::default() };
    gate.set_peer(PeerChange { fleet, ..PeerChange::new(client.public_key) });
    assert_eq!(gate.slow_path.get().peers[0].endpoint, elsewhere);
}

/// A gateway with the fleet's address, a client that it is told to begin with, and the sources that the client sees.
fn addressed(fleet_address: &str) -> (Host, Vec<IpAddr>) {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let (mut gate, mut client) = (Host::new(&net, &clock, 1), Host::new(&net, &clock, 2));
    client.add_peer(&gate);
    gateway(&mut gate);
    net.add_source("192.0.2.100".parse().unwrap());
    let address = Some(fleet_address.parse().ok());
    gate.slow_path.set(DeviceChange { fleet_address: address, ..DeviceChange::default() }).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let to = client.outer;
    net.set_fate(move |datagram| {
        if datagram.to == to {
            tell.send(datagram.source.ip()).unwrap();
        }
        Fate::Deliver
    });
    let hint = Some(Hint { endpoint: Some(client.outer), ..Hint::default() });
    let fleet = FleetChange { number: Some(9), hint, initiate: Initiate::Now };
    gate.set_peer(PeerChange { fleet, ..PeerChange::new(client.public_key) });
    settle(&mut [&mut gate, &mut client]);
    (gate, told.try_iter().collect())
}

#[test]
fn an_initiation_leaves_from_the_fleets_address() {
    let (_, sources) = addressed("192.0.2.100");
    assert_eq!(sources.first(), Some(&"192.0.2.100".parse().unwrap()));
    // Of the other family, or not of this host: the system chooses.
    for other in ["2001:db8::100", "192.0.2.99", "none"] {
        let (gate, sources) = addressed(other);
        assert_eq!(sources.first(), Some(&gate.outer.ip()), "{other}");
    }
}

#[test]
fn the_fleets_address_is_forgotten_with_the_fleet() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let mut host = Host::new(&net, &clock, 1);
    let address: IpAddr = "192.0.2.100".parse().unwrap();
    let addressed = || DeviceChange { fleet_address: Some(Some(address)), ..DeviceChange::default() };
    assert!(matches!(host.slow_path.set(addressed()), Err(ConfigError::NoFleet)));
    join(&mut host, 1);
    host.slow_path.set(addressed()).unwrap();
    assert_eq!(host.shared.fleet.source_addr("192.0.2.1".parse().unwrap()), Some(address));
    host.slow_path.set(DeviceChange { fleet: Some(None), ..DeviceChange::default() }).unwrap();
    assert_eq!(host.shared.fleet.source_addr("192.0.2.1".parse().unwrap()), None);
}

#[test]
fn a_number_without_a_fleet_changes_nothing() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let mut host = Host::new(&net, &clock, 1);
    let fleet = FleetChange { number: Some(1), ..FleetChange::default() };
    let peers = vec![PeerChange { fleet, ..PeerChange::new(linerate_protocol::PublicKey([7; 32])) }];
    let refused = host.slow_path.set(DeviceChange { peers, ..DeviceChange::default() });
    assert!(matches!(refused, Err(ConfigError::NoFleet)));
    assert!(host.slow_path.get().peers.is_empty());
}

const NUMBER: u32 = 9;
const FORWARD: &str = "127.0.0.1:51822";

/// Two gateways with one peer, where all that comes to the first is delivered to the second as well.
fn rerouted(net: &MemoryNet, clock: &Clock) -> (Host, Host, Host) {
    let mut hosts = [1, 2, 3].map(|seed| Host::new(net, clock, seed));
    let [first, second, client] = &mut hosts;
    for (number, gate) in [(1, &mut *first), (2, &mut *second)] {
        join(gate, number);
        gate.add_peer(client);
        // A client that no gateway has seen.
        let hint = Some(Hint { received: Some([0; 12]), ..Hint::default() });
        let fleet = FleetChange { number: Some(NUMBER), hint, ..FleetChange::default() };
        gate.set_peer(PeerChange { fleet, ..PeerChange::new(client.public_key) });
    }
    client.add_peer(first);
    client.send(&udp(client.inner, first.inner, b"to the first"));
    settle(&mut [first, client]);
    client.send(&udp(client.inner, first.inner, b"confirmed"));
    settle(&mut [first, client]);
    hosts.into()
}

#[test]
fn a_datagram_of_another_gateways_session_is_forwarded_as_it_came() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let (first, mut second, mut client) = rerouted(&net, &clock);
    let listener = net.socket(FORWARD.parse().unwrap()).unwrap();
    second
        .slow_path
        .set(DeviceChange { fleet_forward: Some(FORWARD.parse().ok()), ..DeviceChange::default() })
        .unwrap();
    let (from, to) = (first.outer, second.outer);
    let mut sent = Vec::new();
    let (tell, told) = std::sync::mpsc::channel();
    net.set_fate(move |datagram| {
        if datagram.to == from {
            datagram.to = to;
            tell.send(datagram.contents.clone()).unwrap();
        }
        Fate::Deliver
    });
    client.send(&udp(client.inner, first.inner, b"elsewhere"));
    settle(&mut [&mut second, &mut client]);
    sent.extend(told.try_iter());
    let (mut buf, mut meta) = (vec![0; 1 << 16], [Received::default()]);
    assert_eq!(listener.recv(&mut buf, &mut meta).unwrap(), 1);
    let message = &buf[..meta[0].len];
    assert_eq!(&message[..2], [FORWARD_VERSION, 1]);
    assert_eq!(message[2..4], client.outer.port().to_be_bytes());
    assert_eq!(message[4..8], NUMBER.to_le_bytes());
    let std::net::IpAddr::V4(source) = client.outer.ip() else { panic!("IPv4 only") };
    assert_eq!(message[8..24], source.to_ipv6_mapped().octets());
    assert_eq!(&message[FORWARD_HEADER..], sent[0]);
    assert_eq!(second.drops("unknown_index"), 0);
}

#[test]
fn datagrams_of_no_peer_of_the_fleet_and_without_a_place_to_forward_to_are_dropped() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let (first, mut second, mut client) = rerouted(&net, &clock);
    let (from, to) = (first.outer, second.outer);
    net.set_fate(move |datagram| {
        if datagram.to == from {
            datagram.to = to;
        }
        Fate::Deliver
    });
    client.send(&udp(client.inner, first.inner, b"elsewhere"));
    settle(&mut [&mut second, &mut client]);
    assert_eq!(second.drops("unknown_index"), 1);
    // Another peer has the number now, and is removed.
    let listener = net.socket(FORWARD.parse().unwrap()).unwrap();
    second
        .slow_path
        .set(DeviceChange { fleet_forward: Some(FORWARD.parse().ok()), ..DeviceChange::default() })
        .unwrap();
    second.set_peer(PeerChange { remove: true, ..PeerChange::new(client.public_key) });
    client.send(&udp(client.inner, first.inner, b"elsewhere"));
    settle(&mut [&mut second, &mut client]);
    assert_eq!(second.drops("unknown_index"), 2);
    assert!(listener.recv(&mut vec![0; 1 << 16], &mut [Received::default()]).is_err());
}

#[test]
fn the_answer_to_another_gateways_initiation_is_forwarded() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let (mut first, mut second, mut client) = rerouted(&net, &clock);
    let listener = net.socket(FORWARD.parse().unwrap()).unwrap();
    first.slow_path.set(DeviceChange { fleet_forward: Some(FORWARD.parse().ok()), ..DeviceChange::default() }).unwrap();
    let key = Some(linerate_protocol::PrivateKey::new(&[1; 32]));
    second.slow_path.set(DeviceChange { private_key: key, ..DeviceChange::default() }).unwrap();
    let (from, to) = (second.outer, first.outer);
    net.set_fate(move |datagram| {
        if datagram.to == from {
            datagram.to = to;
        }
        Fate::Deliver
    });
    clock.advance(std::time::Duration::from_secs(6));
    let hint = Some(Hint { endpoint: Some(client.outer), ..Hint::default() });
    let fleet = FleetChange { hint, initiate: Initiate::Now, ..FleetChange::default() };
    second.set_peer(PeerChange { fleet, ..PeerChange::new(client.public_key) });
    settle(&mut [&mut first, &mut second, &mut client]);
    let (mut buf, mut meta) = (vec![0; 1 << 16], [Received::default()]);
    assert_eq!(listener.recv(&mut buf, &mut meta).unwrap(), 1);
    assert_eq!((buf[1], meta[0].len - FORWARD_HEADER), (2, 92));
}

#[test]
fn what_is_forwarded_needs_a_fleet_and_ends_with_it() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let mut host = Host::new(&net, &clock, 1);
    let forward = || DeviceChange { fleet_forward: Some(FORWARD.parse().ok()), ..DeviceChange::default() };
    assert!(matches!(host.slow_path.set(forward()), Err(ConfigError::NoFleet)));
    join(&mut host, 1);
    host.slow_path.set(forward()).unwrap();
    assert!(host.shared.fleet.forwards_to().is_some());
    host.slow_path.set(DeviceChange { fleet: Some(None), ..DeviceChange::default() }).unwrap();
    assert!(host.shared.fleet.forwards_to().is_none());
}

#[test]
fn changes_tell_of_sessions_timestamps_and_moves_once_and_not_of_hints() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let (first, second, mut client) = rerouted(&net, &clock);
    let all = changes(&first.shared, 0);
    assert_eq!(all.peers.len(), 1);
    let peer = &all.peers[0];
    assert_eq!((peer.public_key, peer.endpoint, peer.sent), (client.public_key, Some(client.outer), None));
    assert!(peer.accepted.is_some() && !peer.last_handshake.is_zero());
    assert!(changes(&first.shared, all.now).peers.is_empty());
    assert!(changes(&second.shared, 0).peers.is_empty(), "it only knows the configuration");
    // The client is elsewhere.
    let (from, moved) = (client.outer, "198.51.100.7:7".parse().unwrap());
    net.set_fate(move |datagram| {
        if datagram.source == from {
            datagram.source = moved;
        }
        Fate::Deliver
    });
    let mut first = first;
    client.send(&udp(client.inner, first.inner, b"moved"));
    settle(&mut [&mut first, &mut client]);
    let more = changes(&first.shared, all.now);
    assert_eq!(more.peers.iter().map(|peer| peer.endpoint).collect::<Vec<_>>(), [Some(moved)]);
    let fleet = FleetChange { hint: Some(Hint { sent: Some([1; 12]), ..Hint::default() }), ..FleetChange::default() };
    first.set_peer(PeerChange { fleet, ..PeerChange::new(client.public_key) });
    assert!(changes(&first.shared, more.now).peers.is_empty());
}
