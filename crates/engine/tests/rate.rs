//! Peers with a rate, between whole engines.

mod hosts;

use std::time::Duration;

use hosts::{Clock, Host, checksum, pair, settle, tcp_gso, udp};
use linerate_engine::config::{PeerChange, RateChange};
use linerate_netio::memory::MemoryNet;
use linerate_protocol::PublicKey;

/// The bytes that a rate of 1 Mbit/s lets through at once: those of the queue, and the packet after it.
const AT_ONCE: usize = 30_000 + 1420;

fn set_rate(host: &mut Host, peer: PublicKey, tx: Option<u64>, rx: Option<u64>) {
    let rate = RateChange { tx: Some(tx), rx: Some(rx) };
    host.set_peer(PeerChange { rate, update_only: true, ..PeerChange::new(peer) });
}

/// Sends this many packets of 1000 bytes with these ECN bits; those that arrive.
fn stream(from: &mut Host, to: &mut Host, packets: usize, ecn: u8) -> Vec<Vec<u8>> {
    let mut arrived = Vec::new();
    for _ in 0..packets {
        let mut packet = udp(from.inner, to.inner, &[7; 972]);
        packet[1] = ecn;
        packet[10..12].fill(0);
        let header = checksum(&[&packet[..20]]);
        packet[10..12].copy_from_slice(&header);
        from.send(&packet);
        settle(&mut [&mut *from, &mut *to]);
        arrived.extend(std::iter::from_fn(|| to.receive()).map(|(_, packet)| packet));
    }
    arrived
}

fn counter(host: &Host, name: &str) -> usize {
    host.shared.counters.list().iter().find(|(counter, _)| counter == name).unwrap().1 as usize
}

#[test]
fn each_direction_has_its_own_rate_and_what_is_over_it_is_counted() {
    let clock = Clock::new();
    let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
    set_rate(&mut server, client.public_key, Some(1_000_000), None);
    let down = stream(&mut server, &mut client, 100, 0).len();
    assert!(down * 1000 <= AT_ONCE && down * 1000 >= AT_ONCE - 3000, "{down}");
    assert_eq!(server.drops("over_rate") as usize, 100 - down);
    assert_eq!(stream(&mut client, &mut server, 100, 0).len(), 100);
    set_rate(&mut server, client.public_key, None, Some(1_000_000));
    assert_eq!(stream(&mut server, &mut client, 100, 0).len(), 100);
    let received = server.slow_path.get().peers[0].rx_bytes as usize;
    let up = stream(&mut client, &mut server, 100, 0).len();
    assert!(up * 1000 <= AT_ONCE && up * 1000 >= AT_ONCE - 3000, "{up}");
    let counted = server.slow_path.get().peers[0].rx_bytes as usize - received;
    assert!((up * 1000..up * 1100).contains(&counted), "what was dropped is not counted as received: {counted}");
    assert_eq!(client.drops("over_rate"), 0);
}

#[test]
fn a_rate_that_changes_takes_effect_at_once_and_ends_no_session() {
    let clock = Clock::new();
    let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
    assert_eq!(stream(&mut server, &mut client, 100, 0).len(), 100);
    for rate in [Some(1_000_000), Some(100_000_000), None, Some(1_000_000)] {
        set_rate(&mut server, client.public_key, rate, rate);
        let report = server.slow_path.get().peers.remove(0);
        assert_eq!((report.rate_tx, report.rate_rx), (rate, rate));
        let arrived = stream(&mut server, &mut client, 100, 0).len();
        assert_eq!(arrived == 100, rate != Some(1_000_000), "{rate:?}: {arrived}");
        clock.advance(Duration::from_secs(2));
    }
    assert_eq!(counter(&server, "handshakes_done"), 1);
    // The tunnel's file may set what is there already: that gives no second burst.
    set_rate(&mut server, client.public_key, Some(64_000), None);
    stream(&mut server, &mut client, 100, 0);
    set_rate(&mut server, client.public_key, Some(64_000), None);
    assert_eq!(stream(&mut server, &mut client, 100, 0).len(), 0);
}

#[test]
fn the_segments_of_a_gso_packet_and_packets_that_wait_for_a_session_count() {
    let clock = Clock::new();
    let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
    set_rate(&mut server, client.public_key, Some(1_000_000), None);
    for _ in 0..3 {
        let (header, packet) = tcp_gso(server.inner, client.inner, 40_000, 1000);
        server.send_gso(&header, &packet);
    }
    settle(&mut [&mut server, &mut client]);
    let bytes: usize = std::iter::from_fn(|| client.receive()).map(|(_, packet)| packet.len()).sum();
    assert!(bytes > 20_000 && bytes <= AT_ONCE, "{bytes}");
    clock.advance(Duration::from_secs(2));
    let before = server.drops("over_rate");
    let (header, packet) = tcp_gso(server.inner, client.inner, 60_000, 1000);
    server.send_gso(&header, &packet);
    settle(&mut [&mut server, &mut client]);
    let bytes: usize = std::iter::from_fn(|| client.receive()).map(|(_, packet)| packet.len()).sum();
    assert!(bytes > 28_000 && bytes <= AT_ONCE, "{bytes}");
    assert!((60 - 31..=60 - 28).contains(&(server.drops("over_rate") - before)));
}

#[test]
fn packets_that_support_ecn_are_marked_before_any_is_dropped() {
    for down in [true, false] {
        let clock = Clock::new();
        let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
        set_rate(&mut server, client.public_key, Some(1_000_000), Some(1_000_000));
        let arrived = match down {
            true => stream(&mut server, &mut client, 20, 2),
            false => stream(&mut client, &mut server, 20, 2),
        };
        assert_eq!(arrived.len(), 20, "none is dropped");
        assert!(arrived.iter().all(|packet| checksum(&[&packet[..20]]) == [0, 0]), "the header's checksum is right");
        let marked = arrived.iter().filter(|packet| packet[1] == 3).count();
        assert!((1..10).contains(&marked), "{marked}");
        assert_eq!(counter(&server, "rate_marked"), marked);
    }
}

#[test]
fn a_rate_is_its_peers_alone() {
    let (net, clock) = (MemoryNet::new(1000), Clock::new());
    let [mut server, mut one, mut two] = [1, 2, 3].map(|seed| Host::new(&net, &clock, seed));
    for client in [&mut one, &mut two] {
        server.add_peer(client);
        client.add_peer(&server);
    }
    set_rate(&mut server, one.public_key, Some(64_000), Some(64_000));
    assert!(stream(&mut server, &mut one, 100, 0).len() < 100);
    assert_eq!(stream(&mut server, &mut two, 100, 0).len(), 100);
    assert_eq!(stream(&mut two, &mut server, 100, 0).len(), 100);
}

#[test]
fn a_peer_at_rest_has_no_deadline_for_its_rate() {
    let clock = Clock::new();
    let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
    set_rate(&mut server, client.public_key, Some(1_000_000), Some(1_000_000));
    stream(&mut server, &mut client, 100, 0);
    for _ in 0..700 {
        clock.advance(Duration::from_secs(1));
        settle(&mut [&mut server, &mut client]);
    }
    assert_eq!(server.slow_path.deadline(), None);
    assert_eq!(stream(&mut server, &mut client, 10, 0).len(), 10);
}
