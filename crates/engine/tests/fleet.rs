//! A gateway of a fleet, between whole engines.
#![cfg(feature = "fleet")]

mod hosts;

use hosts::{Clock, Host, settle, udp};
use linerate_engine::config::{ConfigError, DeviceChange, FleetChange, PeerChange};
use linerate_netio::memory::MemoryNet;
use linerate_protocol::Prefix;
use linerate_protocol::fleet::{Hint, IndexKey};

fn gateway(host: &mut Host) {
    let fleet = Some(Some((3, IndexKey::new(&[5; 32]))));
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
        fleet: FleetChange { number: Some(9), hint, initiate: true },
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
