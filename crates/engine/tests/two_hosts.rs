//! Two whole engines and a network between them.

mod hosts;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hosts::{Clock, Host, OWN_V6, PORT, checksum, pair, settle, tcp_gso, udp};
use linerate_engine::config::{ConfigError, DeviceChange, PeerChange};
use linerate_engine::sequencer::Sequencer;
use linerate_engine::tables::Peer;
use linerate_netio::memory::{Fate, MemoryNet};
use linerate_netio::udp::PacketInfo;
use linerate_packet::gso;
use linerate_packet::virtio::{self, Gso};
use linerate_protocol::{Boottime, PeerId, Prefix, PrivateKey, PublicKey};
use proptest::prelude::*;

fn received(host: &Host) -> Vec<Vec<u8>> {
    writes(host).into_iter().flatten().collect()
}

/// The packets written to the host's device, those of each write together.
fn writes(host: &Host) -> Vec<Vec<Vec<u8>>> {
    std::iter::from_fn(|| host.receive()).map(|(header, packet)| split(&header, &packet)).collect()
}

fn counter(host: &Host, name: &str) -> u64 {
    host.shared.counters.list().iter().find(|(counter, _)| counter == name).unwrap().1
}

#[test]
fn packets_that_wait_for_the_handshake_arrive_in_order_and_unchanged() {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    let sent: Vec<_> = (0..100).map(|i| udp(one.inner, two.inner, &vec![i; 3 * usize::from(i)])).collect();
    sent.iter().for_each(|packet| one.send(packet));
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two), sent);
}

#[test]
fn handshakes_are_counted_by_how_far_they_came() {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    one.send(&udp(one.inner, two.inner, &[1]));
    settle(&mut [&mut one, &mut two]);
    let names = ["handshake_initiations_sent", "handshake_responses_sent", "handshakes_done"];
    assert_eq!(names.map(|name| counter(&one, name)), [1, 0, 1]);
    assert_eq!(names.map(|name| counter(&two, name)), [0, 1, 1]);
}

#[test]
fn the_oldest_of_too_many_waiting_packets_are_dropped_and_counted() {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    let sent: Vec<_> = (0..200).map(|i| udp(one.inner, two.inner, &[i])).collect();
    sent.iter().for_each(|packet| one.send(packet));
    // All are read before the slow path has a chance to start the handshake.
    while one.outbound.poll(0, &Sequencer::default(), true).unwrap().is_progress() {}
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two), sent[72..]);
    assert_eq!(one.drops("staged_overflow"), 72);
}

/// The IPv4 packet with another identification.
fn identified(mut packet: Vec<u8>, identification: u8) -> Vec<u8> {
    packet[5] = identification;
    packet[10..12].fill(0);
    let header = checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&header);
    packet
}

fn split(header: &virtio::Header, packet: &[u8]) -> Vec<Vec<u8>> {
    let split = gso::Split::new(header, packet).unwrap();
    let write = |i| {
        let mut segment = vec![0; split.len(i)];
        split.write(i, &mut segment);
        segment
    };
    (0..split.count()).map(write).collect()
}

#[test]
fn a_gso_packet_is_sent_as_one_gso_batch_and_delivered_as_one_gro_packet() {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    one.send(&udp(one.inner, two.inner, b"hello"));
    settle(&mut [&mut one, &mut two]);
    received(&two);
    let (header, packet) = tcp_gso(one.inner, two.inner, 45 * 1368, 1368);
    one.send_gso(&header, &packet);
    settle(&mut [&mut one, &mut two]);
    let (merged, bytes) = two.receive().unwrap();
    assert_eq!((merged.gso, merged.gso_size), (Gso::TcpV4, 1368));
    assert!(two.receive().is_none(), "one write");
    assert_eq!(split(&merged, &bytes), split(&header, &packet));
}

#[test]
fn gro_packets_of_a_kind_that_the_device_rejects_are_written_as_single_packets_for_a_minute() {
    let clock = Clock::new();
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &clock);
    one.send(&udp(one.inner, two.inner, b"hello"));
    settle(&mut [&mut one, &mut two]);
    received(&two);
    let tcp = tcp_gso(one.inner, two.inner, 4 * 1000, 1000);
    let datagrams: Vec<_> = (0..4).map(|i| identified(udp(one.inner, two.inner, &[i; 1000]), i)).collect();
    let merged = [split(&tcp.0, &tcp.1)];
    let apart: Vec<_> = merged[0].iter().map(|packet| vec![packet.clone()]).collect();
    let mut send_tcp = |two: &mut Host| {
        one.send_gso(&tcp.0, &tcp.1);
        settle(&mut [&mut one, &mut *two]);
        writes(two)
    };
    two.refuse_gro(1);
    assert!(send_tcp(&mut two) == apart, "nothing is lost");
    assert!(send_tcp(&mut two) == apart, "this kind is not merged");
    clock.advance(Duration::from_secs(60));
    assert!(send_tcp(&mut two) == merged, "it is merged again");
    two.refuse_gro(1);
    send_tcp(&mut two);
    datagrams.iter().for_each(|packet| one.send(packet));
    settle(&mut [&mut one, &mut two]);
    assert!(writes(&two) == [datagrams], "other kinds are merged all the while");
    assert_eq!(two.drops("tun_refused"), 0);
}

#[test]
fn a_damaged_checksum_is_neither_repaired_nor_refused() {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    let (header, packet) = tcp_gso(one.inner, two.inner, 4 * 1368, 1368);
    let mut segments = split(&header, &packet);
    segments[2][36] ^= 1;
    segments.iter().for_each(|segment| one.send(segment));
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two), segments);
}

#[test]
fn a_path_that_refuses_gso_gets_every_datagram_one_by_one() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    net.refuse_segments_above(1300);
    let (header, packet) = tcp_gso(one.inner, two.inner, 40 * 1368, 1368);
    for _ in 0..2 {
        one.send_gso(&header, &packet);
        settle(&mut [&mut one, &mut two]);
        assert_eq!(received(&two), split(&header, &packet));
    }
    assert_eq!(counter(&one, "segmentation_refused"), 1, "the second time it was known");
}

#[test]
fn a_vanished_source_address_does_not_disable_gso() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    one.send(&udp(one.inner, two.inner, b"hello"));
    settle(&mut [&mut one, &mut two]);
    received(&two);
    // The kernel answers EINVAL to the address that is gone, segmented or not.
    let moved = "192.0.2.77:51820".parse().unwrap();
    one.shared.sockets.load().as_ref().unwrap().v4[0].0.move_to(moved).unwrap();
    let (header, packet) = tcp_gso(one.inner, two.inner, 40 * 1368, 1368);
    for batch in 1..=2 {
        let before = net.gso_batches();
        one.send_gso(&header, &packet);
        settle(&mut [&mut one, &mut two]);
        assert!(received(&two) == split(&header, &packet));
        assert_eq!(net.gso_batches() - before, 1, "batch {batch} is one GSO batch");
    }
    assert_eq!(counter(&one, "segmentation_refused"), 0);
}

#[test]
fn a_path_that_refuses_gso_with_einval_keeps_its_source_address() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    one.send(&udp(one.inner, two.inner, b"hello"));
    settle(&mut [&mut one, &mut two]);
    received(&two);
    net.refuse_segments_above(1300);
    net.refuse_segments_with_einval();
    let (header, packet) = tcp_gso(one.inner, two.inner, 40 * 1368, 1368);
    one.send_gso(&header, &packet);
    while one.carry() {}
    let peer = one.shared.tables.routes().peer_for(two.inner).unwrap().clone();
    assert_eq!(peer.endpoint().as_ref().unwrap().source_addr(), Some(one.outer.ip()));
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two), split(&header, &packet));
    assert_eq!(counter(&one, "segmentation_refused"), 1);
}

#[test]
fn a_destination_without_a_route_is_counted_as_one_whatever_the_source() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    one.send(&udp(one.inner, two.inner, b"hello"));
    settle(&mut [&mut one, &mut two]);
    net.remove_route(two.outer);
    one.send(&udp(one.inner, two.inner, b"hello"));
    while one.carry() {}
    assert_eq!((one.drops("send_unreachable"), one.drops("send_failed")), (1, 0));
}

#[test]
fn a_full_socket_drops_and_does_not_delay_what_arrives() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    one.send(&udp(one.inner, two.inner, b"hello"));
    settle(&mut [&mut one, &mut two]);
    received(&two);
    net.fill(Some(one.outer));
    let (header, packet) = tcp_gso(one.inner, two.inner, 40 * 1368, 1368);
    let answers: Vec<_> = (0..10).map(|i| udp(two.inner, one.inner, &[i; 100])).collect();
    for answer in &answers {
        one.send_gso(&header, &packet);
        two.send(answer);
        while one.carry() | two.carry() {}
    }
    assert!(received(&one) == answers);
    assert!(received(&two).is_empty());
    assert_eq!((net.waits(), one.drops("send_busy")), (0, 400));
    net.fill(None);
    one.send_gso(&header, &packet);
    settle(&mut [&mut one, &mut two]);
    assert!(received(&two) == split(&header, &packet), "there is room again");
}

#[test]
fn a_handshake_message_waits_for_room_once() {
    let net = MemoryNet::new(1000);
    let (mut one, two) = pair(&net, &Clock::new());
    net.fill(Some(one.outer));
    one.send(&udp(one.inner, two.inner, b"hello"));
    settle(&mut [&mut one]);
    assert_eq!((net.waits(), one.drops("send_busy")), (1, 1));
}

#[test]
fn a_socket_without_gso_is_never_given_a_gso_batch() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    net.disable_gso();
    let (header, packet) = tcp_gso(one.inner, two.inner, 40 * 1368, 1368);
    one.send_gso(&header, &packet);
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two), split(&header, &packet));
    assert_eq!(counter(&one, "segmentation_refused"), 0);
}

#[test]
fn packets_for_many_peers_in_turn_arrive_in_order_and_count_for_the_right_peer() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let mut one = Host::new(&net, &clock, 1);
    let mut others: Vec<Host> = (2..10).map(|seed| Host::new(&net, &clock, seed)).collect();
    for other in &mut others {
        one.add_peer(other);
        other.add_peer(&one);
        one.send(&udp(one.inner, other.inner, b"hello."));
        settle(&mut [&mut one, &mut *other]);
        assert_eq!(received(other).len(), 1);
    }
    // Peers get one, two or three packets of a size in a row: datagrams and GSO batches, of which the longest are
    // refused.
    net.refuse_segments_above(600);
    let packet = |to: &Host, turn: usize, i: usize| udp(one.inner, to.inner, &vec![(turn + i) as u8; 100 * turn]);
    let mut sent = vec![Vec::new(); others.len()];
    for turn in 1..9 {
        for (index, other) in others.iter().enumerate() {
            for i in 0..=index % 3 {
                sent[index].push(packet(other, turn, i));
                one.send(sent[index].last().unwrap());
            }
        }
    }
    let mut hosts: Vec<&mut Host> = std::iter::once(&mut one).chain(&mut others).collect();
    settle(&mut hosts);
    for (other, sent) in others.iter_mut().zip(&sent) {
        assert_eq!(received(other), *sent);
        let here = one.slow_path.get();
        let peer = here.peers.iter().find(|peer| peer.public_key == other.public_key).unwrap();
        assert_eq!(peer.tx_bytes, other.slow_path.get().peers[0].rx_bytes);
    }
}

#[test]
fn what_goes_nowhere_does_not_change_the_way_of_its_neighbours() {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    one.send(&udp(one.inner, two.inner, b"hello"));
    settle(&mut [&mut one, &mut two]);
    received(&two);
    let nowhere = udp(one.inner, IpAddr::from([10, 9, 9, 9]), b"no route");
    let sent: Vec<_> = (0..6).map(|i| udp(one.inner, two.inner, &[i; 64])).collect();
    let cut_off = &sent[0][..40];
    for packet in [&sent[0], &nowhere, &sent[1], cut_off, &sent[2], &[][..], &sent[3], &nowhere, &nowhere, &sent[4]] {
        one.send(packet);
    }
    one.send_gso(&virtio::Header { gso: Gso::TcpV6, ..virtio::Header::default() }, &sent[0]);
    one.send(&sent[5]);
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two), sent);
    assert_eq!(["no_peer", "inner_malformed", "gso_malformed"].map(|reason| one.drops(reason)), [3, 2, 1]);
}

#[test]
fn an_allowed_ip_that_moves_to_another_peer_moves_with_the_next_batch() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    let mut three = Host::new(&net, &Clock::new(), 3);
    one.add_peer(&three);
    three.add_peer(&one);
    for other in [&mut two, &mut three] {
        one.send(&udp(one.inner, other.inner, b"hello"));
        settle(&mut [&mut one, other]);
        received(other);
    }
    let (two_inner, key_of_three) = (two.inner, three.public_key);
    let packet = udp(one.inner, two.inner, b"to whom?");
    let mut arrive = |one: &mut Host| {
        one.send(&packet);
        settle(&mut [one, &mut two, &mut three]);
        (received(&two).len(), received(&three).len())
    };
    assert_eq!(arrive(&mut one), (1, 0));
    let moved = vec![(true, Prefix::new(two_inner, 32).unwrap())];
    one.set_peer(PeerChange { allowed_ips: moved, ..PeerChange::new(key_of_three) });
    assert_eq!(arrive(&mut one), (0, 1));
}

#[test]
fn a_packet_from_an_address_that_is_not_its_peers_is_dropped() {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    let (own, foreign) = (one.inner, IpAddr::from([10, 0, 0, 77]));
    one.send(&udp(foreign, two.inner, b"not mine"));
    one.send(&udp(own, two.inner, b"mine"));
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two), [udp(own, two.inner, b"mine")]);
    assert_eq!(two.drops("source_not_allowed"), 1);
}

/// A host with that many peers, whose packets came from `from(n)` to our address `to`, and its count of source-address
/// queries.
fn host_with_peers(peers: u32, from: impl Fn(u32) -> IpAddr, to: IpAddr) -> (Host, impl Fn(&Host) -> u64) {
    let mut host = Host::new(&MemoryNet::new(1000), &Clock::new(), 1);
    let key = |i: u32| PublicKey(std::array::from_fn(|at| i.to_le_bytes()[at % 4] ^ at as u8));
    let changes = (0..peers).map(|n| PeerChange::new(key(n))).collect();
    host.slow_path.set(DeviceChange { peers: changes, ..DeviceChange::default() }).unwrap();
    let here = Some(PacketInfo { addr: to, ifindex: 1 });
    for (n, peer) in (0..).zip(all_peers(&host)) {
        peer.set_roaming_endpoint(SocketAddr::new(from(n), 1000 + n as u16), here, host.shared.routing_epoch());
    }
    (host, |host: &Host| host.shared.backend.queries.load(Ordering::Relaxed))
}

fn all_peers(host: &Host) -> Vec<Arc<Peer>> {
    let routes = host.shared.tables.routes();
    (0..).map_while(|id| routes.peer(PeerId(id)).cloned()).collect()
}

/// Requests the source-address checks of all peers, as sending to them does after a change of routes.
fn send_to_all(host: &mut Host) {
    all_peers(host)
        .iter()
        .filter(|peer| needs_check(host, peer))
        .for_each(|peer| host.shared.slow_path_queue.request_source_addr_check(peer));
    while host.slow_path.process() {}
    assert!(!all_peers(host).iter().any(|peer| needs_check(host, peer)));
}

fn needs_check(host: &Host, peer: &Peer) -> bool {
    peer.endpoint().as_ref().unwrap().needs_source_addr_check(host.shared.routing_epoch())
}

#[test]
fn a_change_of_routes_costs_one_query_for_all_ipv6_peers() {
    let v6 = |n: u32| IpAddr::from([0x2001, 0xdb8, 1, 0, 0, 0, 0, n as u16]);
    for (to, holds) in [(OWN_V6, true), (v6(0), false)] {
        let (mut host, queries) = host_with_peers(1000, v6, to);
        send_to_all(&mut host);
        assert_eq!(queries(&host), 0);
        for changes in 1..=5 {
            host.slow_path.routing_changed();
            send_to_all(&mut host);
            assert_eq!(queries(&host), changes);
            assert!(
                all_peers(&host).iter().all(|peer| peer.endpoint().as_ref().unwrap().source_addr().is_some() == holds)
            );
        }
    }
}

#[test]
fn a_change_of_routes_costs_one_query_for_all_peers_behind_one_address() {
    let (mut host, queries) = host_with_peers(1000, |_| [198, 51, 100, 1].into(), [192, 0, 2, 1].into());
    for changes in 1..=5 {
        host.slow_path.routing_changed();
        send_to_all(&mut host);
        assert_eq!(queries(&host), changes);
    }
    host.slow_path.set(DeviceChange { fwmark: Some(7), ..DeviceChange::default() }).unwrap();
    host.slow_path.routing_changed();
    send_to_all(&mut host);
    assert_eq!(queries(&host), 5, "another mark clears all source addresses");
}

#[test]
fn many_changes_of_routes_at_once_cost_one_query_per_peer() {
    let (mut host, queries) = host_with_peers(1000, |n| [10, 1, (n >> 8) as u8, n as u8].into(), [192, 0, 2, 1].into());
    for _ in 0..5 {
        host.slow_path.routing_changed();
        all_peers(&host).iter().for_each(|peer| host.shared.slow_path_queue.request_source_addr_check(peer));
    }
    send_to_all(&mut host);
    assert_eq!(queries(&host), 1000);
}

#[test]
fn a_handshake_does_not_wait_for_source_address_checks() {
    let flapped = |host: &mut Host| {
        let peers = (0..1000).map(|i: u32| PublicKey(std::array::from_fn(|at| i.to_le_bytes()[at % 4] ^ at as u8)));
        let peers = peers.map(PeerChange::new).collect();
        host.slow_path.set(DeviceChange { peers, ..DeviceChange::default() }).unwrap();
        let here = Some(PacketInfo { addr: host.outer.ip(), ifindex: 1 });
        for (n, peer) in (0..).zip(all_peers(host)).skip(1) {
            peer.set_roaming_endpoint(SocketAddr::new([10, 1, (n >> 8) as u8, n as u8].into(), 1), here, 0);
        }
        host.slow_path.routing_changed();
        all_peers(host).iter().for_each(|peer| host.shared.slow_path_queue.request_source_addr_check(peer));
    };
    assert!(answered_in(flapped, |host, _| {
        host.slow_path.process();
        assert!(host.shared.backend.queries.load(Ordering::Relaxed) <= 32, "few at once");
    }));
}

#[test]
fn no_packet_waits_for_a_source_address_check() {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    two.send(&udp(two.inner, one.inner, b"from here"));
    settle(&mut [&mut one, &mut two]);
    let queries = |host: &Host| host.shared.backend.queries.load(Ordering::Relaxed);
    one.slow_path.routing_changed();
    one.send(&udp(one.inner, two.inner, b"first"));
    assert_eq!((one.carry(), queries(&one)), (true, 0), "the packet has left");
    settle(&mut [&mut one, &mut two]);
    assert_eq!(queries(&one), 1, "the slow path queries instead");
    one.send(&udp(one.inner, two.inner, b"second"));
    settle(&mut [&mut one, &mut two]);
    assert_eq!((received(&two).len(), queries(&one)), (2, 1), "and it queries once");
}

#[test]
fn a_packet_without_a_peer_is_answered_with_an_icmp_error() {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    one.send(&udp(one.inner, IpAddr::from([10, 9, 9, 9]), b"no route"));
    settle(&mut [&mut one, &mut two]);
    assert_eq!(one.drops("no_peer"), 1);
    let (_, answer) = one.receive().unwrap();
    assert_eq!((answer[9], answer[20], answer[21]), (1, 3, 1), "ICMP host unreachable");
}

#[test]
fn packets_without_a_peer_do_not_prolong_a_poll() {
    let mut host = Host::new(&MemoryNet::new(10), &Clock::new(), 1);
    (0..1000).for_each(|_| host.send(&udp(host.inner, IpAddr::from([10, 9, 9, 9]), b"no route")));
    host.outbound.poll(0, &Sequencer::default(), true).unwrap();
    assert_eq!(host.drops("no_peer"), linerate_aead::BATCH_MAX as u64);
}

#[test]
fn only_sent_and_accepted_packets_count_as_transfer() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    one.send(&udp(one.inner, two.inner, &[0; 68]));
    settle(&mut [&mut one, &mut two]);
    let transfer = |host: &mut Host| {
        let peer = &host.slow_path.get().peers[0];
        (peer.tx_bytes, peer.rx_bytes)
    };
    // Initiation, then a packet of 96 bytes in a message of 128; and the response.
    assert_eq!((transfer(&mut one), transfer(&mut two)), ((148 + 128, 92), (92, 148 + 128)));
    one.send(&udp(IpAddr::from([10, 0, 0, 77]), two.inner, &[0; 68]));
    settle(&mut [&mut one, &mut two]);
    assert_eq!(transfer(&mut two), (92, 148 + 128), "a packet from an address that is not the peer's was not received");
}

#[test]
fn a_replayed_gso_batch_is_delivered_once() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    net.set_fate(|datagram| if datagram.contents[0] == 4 { Fate::Twice } else { Fate::Deliver });
    let sent: Vec<_> = (0..50).map(|i| udp(one.inner, two.inner, &[i])).collect();
    sent.iter().for_each(|packet| one.send(packet));
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two), sent);
    assert_eq!(two.drops("counter_replayed"), 50);
}

#[test]
fn a_congested_path_marks_inner_packets_that_support_ecn() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    net.set_fate(move |datagram| {
        if datagram.contents[0] == 4 {
            log.lock().unwrap().push(datagram.tos);
            datagram.tos |= 3;
        }
        Fate::Deliver
    });
    for ecn in [0, 2] {
        let mut packet = udp(one.inner, two.inner, b"x");
        packet[1] = ecn;
        packet[10..12].fill(0);
        let header = checksum(&[&packet[..20]]);
        packet[10..12].copy_from_slice(&header);
        one.send(&packet);
        settle(&mut [&mut one, &mut two]);
    }
    let tos: Vec<_> = received(&two).iter().map(|packet| packet[1]).collect();
    assert_eq!(tos, [0, 3], "not-ECT stays, ECT becomes CE");
    let tos = seen.lock().unwrap();
    assert!(tos.contains(&2) && tos.iter().all(|tos| [0, 2].contains(tos)), "the outer header carries the inner bits");
}

#[test]
fn the_endpoint_follows_a_peer_that_moves() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    one.send(&udp(one.inner, two.inner, b"from home"));
    settle(&mut [&mut one, &mut two]);
    received(&two);
    let sockets = one.shared.sockets.load_full().unwrap();
    sockets.v4[0].0.move_to("198.51.100.7:4500".parse().unwrap()).unwrap();
    one.send(&udp(one.inner, two.inner, b"from afar"));
    settle(&mut [&mut one, &mut two]);
    let state = two.slow_path.get();
    assert_eq!(state.peers[0].endpoint, Some("198.51.100.7:4500".parse().unwrap()));
    two.send(&udp(two.inner, one.inner, b"welcome"));
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&one).len(), 1);
}

#[test]
fn an_overtaken_packet_does_not_move_the_endpoint_back() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    one.send(&udp(one.inner, two.inner, b"from home"));
    settle(&mut [&mut one, &mut two]);
    net.set_fate(|_| Fate::Delay(1));
    one.send(&udp(one.inner, two.inner, b"from home, slowly"));
    settle(&mut [&mut one, &mut two]);
    net.set_fate(|_| Fate::Deliver);
    let sockets = one.shared.sockets.load_full().unwrap();
    sockets.v4[0].0.move_to("198.51.100.7:4500".parse().unwrap()).unwrap();
    one.send(&udp(one.inner, two.inner, b"from afar"));
    settle(&mut [&mut one, &mut two]);
    net.release();
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two).len(), 3, "late is not lost");
    assert_eq!(two.slow_path.get().peers[0].endpoint, Some("198.51.100.7:4500".parse().unwrap()));
}

#[test]
fn only_endpoints_in_the_zone_of_an_interface_follow_it_to_another_index() {
    let mut host = Host::new(&MemoryNet::new(1), &Clock::new(), 1);
    let interfaces = |host: &mut Host, there: &[(u32, &str)]| {
        let there = there.iter().map(|&(index, name)| (index, name.to_owned())).collect();
        *host.shared.backend.interfaces.lock().unwrap() = there;
        host.slow_path.interfaces_changed();
    };
    let endpoints = |host: &mut Host| {
        let peers = host.slow_path.get().peers;
        peers.iter().map(|peer| peer.endpoint.unwrap().to_string()).collect::<Vec<_>>()
    };
    interfaces(&mut host, &[(2, "eth0"), (3, "eth1")]);
    for (seed, endpoint) in [(2, "[fe80::1%2]:1"), (3, "[fe80::1%3]:1"), (4, "[fe80::1%9]:1"), (5, "192.0.2.1:1")] {
        let public_key = PrivateKey::new(&[seed; 32]).unwrap().public_key();
        host.set_peer(PeerChange { endpoint: Some(endpoint.parse().unwrap()), ..PeerChange::new(public_key) });
    }
    let with = |first: &'static str| [first, "[fe80::1%3]:1", "[fe80::1%9]:1", "192.0.2.1:1"];
    interfaces(&mut host, &[(3, "eth1")]);
    assert_eq!(endpoints(&mut host), with("[fe80::1%2]:1"), "it is away");
    interfaces(&mut host, &[(3, "eth1"), (4, "usb0")]);
    assert_eq!(endpoints(&mut host), with("[fe80::1%2]:1"), "another is there");
    interfaces(&mut host, &[(3, "eth1"), (4, "eth0")]);
    assert_eq!(endpoints(&mut host), with("[fe80::1%4]:1"), "it is back, after all");
    interfaces(&mut host, &[(3, "eth1"), (4, "wan"), (5, "eth0")]);
    assert_eq!(endpoints(&mut host), with("[fe80::1%4]:1"), "it was renamed, and another took its name");
    interfaces(&mut host, &[(3, "eth1"), (5, "eth0"), (6, "wan")]);
    assert_eq!(endpoints(&mut host), with("[fe80::1%6]:1"), "it was made anew under its new name");
}

#[test]
fn a_session_from_before_a_new_private_key_does_not_seal_once_it_is_confirmed() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    two.send(&udp(two.inner, one.inner, b"the first of the session"));
    for _ in 0..3 {
        two.carry();
        two.slow_path.process();
        one.carry();
        if one.slow_path.process() {
            break;
        }
    }
    // `one` has answered, and does not know yet whether the response arrived.
    let secret = PrivateKey::new(&[77; 32]).unwrap();
    one.slow_path.set(DeviceChange { private_key: Some(Some(secret)), ..DeviceChange::default() }).unwrap();
    // More than a batch holds.
    let packet = udp(one.inner, two.inner, &[7; 1392]);
    (0..120).for_each(|_| one.send(&packet));
    while one.outbound.poll(0, &Sequencer::default(), true).unwrap().is_progress() {}
    two.carry();
    two.slow_path.process();
    two.carry();
    one.carry();
    assert_eq!(received(&one).len(), 1, "what the session opens is still good");
    one.send(&packet);
    while one.outbound.poll(0, &Sequencer::default(), true).unwrap().is_progress() {}
    assert_eq!(one.drops("staged_overflow"), 0, "they wait for the next session");
    assert_eq!(received(&two).len(), 0);
}

#[test]
fn a_port_in_use_changes_nothing() {
    let net = MemoryNet::new(1000);
    let (mut one, mut two) = pair(&net, &Clock::new());
    let _other = net.socket((one.outer.ip(), 7777).into()).unwrap();
    let refused =
        one.slow_path.set(DeviceChange { listen_port: Some(7777), replace_peers: true, ..DeviceChange::default() });
    assert!(matches!(refused, Err(ConfigError::Port { port: 7777, .. })));
    let state = one.slow_path.get();
    assert_eq!((state.listen_port, state.peers.len()), (PORT, 1));
    one.send(&udp(one.inner, two.inner, b"still here"));
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two).len(), 1);
}

#[test]
fn a_port_that_the_system_chose_is_kept_while_the_link_is_down() {
    let net = MemoryNet::new(1000);
    let (mut one, _two) = pair(&net, &Clock::new());
    let listens = |port| DeviceChange { listen_port: Some(port), ..DeviceChange::default() };
    one.slow_path.set(listens(0)).unwrap();
    let chosen = one.slow_path.get().listen_port;
    one.slow_path.down();
    assert_eq!(one.slow_path.get().listen_port, chosen);
    one.slow_path.up().unwrap();
    assert_eq!(one.slow_path.get().listen_port, chosen);

    one.slow_path.down();
    let other = net.socket((one.outer.ip(), chosen).into()).unwrap();
    one.slow_path.up().unwrap();
    assert_ne!(one.slow_path.get().listen_port, chosen, "another program has it");

    one.slow_path.down();
    one.slow_path.set(listens(chosen)).unwrap();
    one.slow_path.up().expect_err("it was asked for");
    drop(other);
    one.slow_path.up().unwrap();
    one.slow_path.down();
    one.slow_path.set(listens(0)).unwrap();
    assert_eq!(one.slow_path.get().listen_port, 0, "none is chosen yet");
}

#[test]
fn packets_of_a_removed_peer_are_dropped() {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    one.send(&udp(one.inner, two.inner, b"hello"));
    settle(&mut [&mut one, &mut two]);
    received(&two);
    two.set_peer(PeerChange { remove: true, ..PeerChange::new(one.public_key) });
    one.send(&udp(one.inner, two.inner, b"are you there?"));
    settle(&mut [&mut one, &mut two]);
    assert!(received(&two).is_empty());
    assert_eq!(two.drops("unknown_index"), 1);
    assert!(two.slow_path.get().peers.is_empty());
}

#[test]
fn an_idle_pair_has_no_deadline_after_its_keepalives() {
    let clock = Clock::new();
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &clock);
    one.send(&udp(one.inner, two.inner, b"hello"));
    settle(&mut [&mut one, &mut two]);
    for _ in 0..700 {
        clock.advance(Duration::from_secs(1));
        settle(&mut [&mut one, &mut two]);
    }
    assert_eq!((one.slow_path.deadline(), two.slow_path.deadline()), (None, None));
}

#[test]
fn a_suspend_wipes_the_keys_and_the_next_packet_makes_new_ones() {
    let clock = Clock::new();
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &clock);
    one.send(&udp(one.inner, two.inner, b"before"));
    settle(&mut [&mut one, &mut two]);
    received(&two);
    let before = two.slow_path.get().peers[0].last_handshake;
    let peer = one.shared.tables.routes().peer_for(two.inner).unwrap().clone();
    let old = peer.sending().as_ref().map(|session| session.local).unwrap();
    clock.suspend(Duration::from_secs(20));
    settle(&mut [&mut one, &mut two]);
    assert!(one.shared.tables.receiver(old).is_none());
    one.send(&udp(one.inner, two.inner, b"after"));
    settle(&mut [&mut one, &mut two]);
    assert_eq!(received(&two), [udp(one.inner, two.inner, b"after")]);
    assert!(two.slow_path.get().peers[0].last_handshake > before);
}

#[test]
fn a_tunnel_renews_its_keys() {
    let clock = Clock::new();
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &clock);
    for second in 0..1000u32 {
        one.send(&udp(one.inner, two.inner, &second.to_be_bytes()));
        settle(&mut [&mut one, &mut two]);
        assert_eq!(received(&two), [udp(one.inner, two.inner, &second.to_be_bytes())], "second {second}");
        clock.advance(Duration::from_secs(1));
        settle(&mut [&mut one, &mut two]);
    }
}

#[test]
fn ten_thousand_peers_keep_their_prefixes() {
    let mut host = Host::new(&MemoryNet::new(10), &Clock::new(), 1);
    let key = |i: u32| PublicKey(std::array::from_fn(|at| i.to_le_bytes()[at % 4] ^ at as u8));
    let prefix = |i: u32| Prefix::new(IpAddr::from((0x0a00_0000 + i).to_be_bytes()), 32).unwrap();
    let peers =
        (0..10_000).map(|i| PeerChange { allowed_ips: vec![(true, prefix(i))], ..PeerChange::new(key(i)) }).collect();
    host.slow_path.set(DeviceChange { peers, ..DeviceChange::default() }).unwrap();
    let state = host.slow_path.get();
    assert_eq!(state.peers.len(), 10_000);
    for (i, peer) in (0..).zip(&state.peers) {
        assert_eq!((peer.public_key, &peer.allowed_ips[..]), (key(i), &[prefix(i)][..]));
    }
    host.slow_path.set(DeviceChange { replace_peers: true, ..DeviceChange::default() }).unwrap();
    assert!(host.slow_path.get().peers.is_empty());
    assert!(host.shared.tables.routes().peer_for(IpAddr::from([10, 0, 0, 1])).is_none());
}

/// Whether a host answers a waiting initiation before a command is done.
fn answered_in(before: impl FnOnce(&mut Host), command: impl FnOnce(&mut Host, PublicKey)) -> bool {
    let (mut one, mut two) = pair(&MemoryNet::new(1000), &Clock::new());
    before(&mut one);
    two.send(&udp(two.inner, one.inner, b"hello"));
    two.carry();
    two.slow_path.process();
    // The initiation is in the queue of the slow path.
    one.carry();
    command(&mut one, two.public_key);
    two.carry();
    two.slow_path.process();
    two.shared.tables.routes().peer_for(one.inner).unwrap().sending().is_some()
}

#[test]
fn activity_lists_the_peers_active_since_in_order_without_the_slow_path() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let (mut one, mut two) = pair(&net, &clock);
    let mut third = Host::new(&net, &clock, 3);
    one.add_peer(&third);
    third.add_peer(&one);
    // The last of the list has the lowest index in the tables.
    one.set_peer(PeerChange { remove: true, ..PeerChange::new(two.public_key) });
    one.add_peer(&two);
    let active_since = |host: &Host, since| {
        let activity = host.shared.activity(since);
        (activity.now, activity.peers.iter().map(|peer| peer.public_key).collect::<Vec<_>>())
    };
    clock.advance(Duration::from_secs(10));
    let (now, all) = active_since(&one, Boottime(0));
    assert_eq!(all, [third.public_key, two.public_key]);
    clock.advance(Duration::from_secs(10));
    let (now, idle) = active_since(&one, now);
    assert!(idle.is_empty());
    two.send(&udp(two.inner, one.inner, b"hello"));
    settle(&mut [&mut one, &mut two, &mut third]);
    assert_eq!(active_since(&one, now).1, [two.public_key]);
    let (activity, state) = (one.shared.activity(now), one.slow_path.get());
    let (active, peer) = (&activity.peers[0], &state.peers[1]);
    assert_eq!((active.rx_bytes, active.tx_bytes), (peer.rx_bytes, peer.tx_bytes));
    assert_eq!((active.endpoint, active.last_handshake), (peer.endpoint, peer.last_handshake));
    assert!(active.last_received >= now && active.last_received <= activity.now);
    assert!(active.rx_bytes > 0 && active.endpoint == Some(two.outer) && !active.last_handshake.is_zero());
    // A change of what is not reported here shows.
    one.set_peer(PeerChange { allowed_ips: many_prefixes(1), ..PeerChange::new(third.public_key) });
    assert_ne!(one.shared.activity(now).configured, activity.configured);
}

fn many_prefixes(count: u32) -> Vec<(bool, Prefix)> {
    (0..count).map(|i| (true, Prefix::new(IpAddr::from((0x0b00_0000 + i).to_be_bytes()), 32).unwrap())).collect()
}

#[test]
fn a_handshake_does_not_wait_for_a_long_change() {
    let some_key = |i: u32| PublicKey(std::array::from_fn(|at| i.to_le_bytes()[at % 4] ^ at as u8));
    assert!(!answered_in(|_| (), |host, two| host.set_peer(PeerChange::new(two))), "a short one is over before");
    assert!(answered_in(
        |_| (),
        |host, two| {
            host.set_peer(PeerChange { allowed_ips: many_prefixes(64), ..PeerChange::new(two) });
        }
    ));
    assert!(answered_in(
        |_| (),
        |host, _| {
            let peers = (0..64).map(|i| PeerChange::new(some_key(i))).collect();
            host.slow_path.set(DeviceChange { peers, ..DeviceChange::default() }).unwrap();
        }
    ));
}

#[test]
fn a_handshake_does_not_wait_for_the_removal_of_many_prefixes() {
    let key = PrivateKey::new(&[9; 32]).unwrap().public_key();
    for remove in [true, false] {
        let before =
            |host: &mut Host| host.set_peer(PeerChange { allowed_ips: many_prefixes(64), ..PeerChange::new(key) });
        let command = |host: &mut Host, _| {
            host.set_peer(PeerChange { remove, replace_allowed_ips: true, ..PeerChange::new(key) });
            assert!(host.shared.tables.routes().peer_for([11, 0, 0, 0].into()).is_none());
        };
        assert!(answered_in(before, command));
    }
}

#[test]
fn a_handshake_does_not_wait_for_a_long_answer() {
    let some_key = |i: u32| PublicKey(std::array::from_fn(|at| i.to_le_bytes()[at % 4] ^ at as u8));
    let get = |host: &mut Host, _| drop(host.slow_path.get());
    assert!(!answered_in(|_| (), get), "a short answer is over before");
    assert!(answered_in(
        |host| {
            let peers = (0..255).map(|i| PeerChange::new(some_key(i))).collect();
            host.slow_path.set(DeviceChange { peers, ..DeviceChange::default() }).unwrap();
        },
        get,
    ));
    let prefixes = many_prefixes(257);
    assert!(answered_in(
        |host| host.set_peer(PeerChange { allowed_ips: prefixes.clone(), ..PeerChange::new(some_key(0)) }),
        |host, _| {
            let reported = host.slow_path.get().peers.swap_remove(1).allowed_ips;
            assert!(reported.into_iter().eq(prefixes.iter().map(|(_, prefix)| *prefix)));
        },
    ));
}

/// Sets the flag when it is dropped, so that a thread that waits for it ends when the test panics, too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn prefixes_that_a_peer_keeps_stay_its_own_while_its_allowed_ips_are_replaced() {
    let mut host = Host::new(&MemoryNet::new(10), &Clock::new(), 1);
    let key = PrivateKey::new(&[9; 32]).unwrap().public_key();
    let all = many_prefixes(1000);
    let set = |host: &mut Host, allowed_ips: &[(bool, Prefix)]| {
        let allowed_ips = allowed_ips.to_vec();
        host.set_peer(PeerChange { replace_allowed_ips: true, allowed_ips, ..PeerChange::new(key) });
        host.slow_path.get().peers[0].allowed_ips.clone()
    };
    let prefixes = |given: &[(bool, Prefix)]| given.iter().map(|(_, prefix)| *prefix).collect::<Vec<_>>();
    assert_eq!(set(&mut host, &all), prefixes(&all));
    // Look-ups of a prefix that is kept, throughout.
    let (kept, over) = (all[700].1.addr(), AtomicBool::new(false));
    let shared = host.shared.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert!(shared.tables.routes().peer_for(kept).is_some());
            }
        });
        let _over = SetOnDrop(&over);
        for from in 0..50 {
            let given: Vec<_> = all[500 + from..900].iter().rev().copied().collect();
            assert_eq!(set(&mut host, &given), prefixes(&given), "in the order in which they were given");
        }
    });
    assert!(set(&mut host, &[]).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever the network does to datagrams, a packet is delivered at most once, unaltered,
    /// and a good network delivers again.
    #[test]
    fn nothing_is_delivered_twice_or_altered(
        fates in prop::collection::vec(0u8..12, 1..400),
        sizes in prop::collection::vec(1usize..1390, 1..60),
        pauses in prop::collection::vec(0u64..40, 60),
    ) {
        let (net, clock) = (MemoryNet::new(1000), Clock::new());
        let (mut one, mut two) = pair(&net, &clock);
        let mut fates = fates.into_iter().cycle();
        net.set_fate(move |datagram| match fates.next().unwrap() {
            0 => Fate::Lose,
            1 => Fate::Twice,
            2 => Fate::Delay(1),
            3 => Fate::Delay(20),
            4 => {
                let at = datagram.contents.len() / 2;
                datagram.contents[at] ^= 0x10;
                Fate::Deliver
            }
            5 => {
                datagram.contents.pop();
                Fate::Deliver
            }
            _ => Fate::Deliver,
        });
        let mut sent = HashSet::new();
        let mut seen = HashSet::new();
        for (number, size) in (0u32..).zip(sizes) {
            let payload = [&number.to_be_bytes()[..], &vec![number as u8; size]].concat();
            let (there, back) = (udp(one.inner, two.inner, &payload), udp(two.inner, one.inner, &payload));
            one.send(&there);
            two.send(&back);
            sent.extend([there, back]);
            settle(&mut [&mut one, &mut two]);
            clock.advance(Duration::from_millis(pauses[number as usize % 60] * 500));
            settle(&mut [&mut one, &mut two]);
            for packet in received(&one).into_iter().chain(received(&two)) {
                prop_assert!(sent.contains(&packet), "altered");
                prop_assert!(seen.insert(packet), "twice");
            }
        }
        net.set_fate(|_| Fate::Deliver);
        net.release();
        // Within the time that the protocol takes to notice: 15 s, a retry each 5 s.
        for _ in 0..30 {
            clock.advance(Duration::from_secs(1));
            one.send(&udp(one.inner, two.inner, b"again"));
            two.send(&udp(two.inner, one.inner, b"again"));
            settle(&mut [&mut one, &mut two]);
        }
        received(&one);
        received(&two);
        one.send(&udp(one.inner, two.inner, b"last"));
        two.send(&udp(two.inner, one.inner, b"last"));
        settle(&mut [&mut one, &mut two]);
        prop_assert_eq!(received(&two).len(), 1);
        prop_assert_eq!(received(&one).len(), 1);
    }
}
