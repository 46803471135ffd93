//! The data path allocates nothing once it has started, whatever the packets.
//!
//! Counts the steps in both directions on this thread, without the memory backend and the slow path. Two things do
//! allocate and are not tested: staging a packet, and a peer's change of address.

mod hosts;

use std::net::IpAddr;
use std::time::Duration;

use hosts::{Clock, Host, tcp_gso, udp};
use linerate_engine::config::PeerChange;
use linerate_netio::memory::{Fate, MemoryNet};
use linerate_packet::virtio::{self, Gso};
use linerate_packet::{checksum, gso};

/// Rounds after which nothing grows any more. As many follow; all end before the sessions expire.
const ROUNDS: usize = 20;

#[test]
fn the_data_path_allocates_nothing_once_it_has_started() {
    let (net, clock) = (MemoryNet::new(4096), Clock::new());
    let mut hub = Host::new(&net, &clock, 1);
    let (mut left, mut right) = (Host::new(&net, &clock, 2), Host::new(&net, &clock, 3));
    for spoke in [&mut left, &mut right] {
        hub.add_peer(spoke);
        hub.set_peer(PeerChange { persistent_keepalive: Some(1), ..PeerChange::new(spoke.public_key) });
        spoke.add_peer(&hub);
    }
    // Of the data messages some come twice and some are damaged, each time at another offset.
    let mut datagrams = 0;
    net.set_fate(move |datagram| {
        let is_data = datagram.contents[0] == 4;
        datagrams += u32::from(is_data);
        match datagrams % 97 {
            13 if is_data => Fate::Twice,
            45 if is_data => {
                let offset = datagrams as usize % datagram.contents.len();
                datagram.contents[offset] ^= 1;
                Fate::Deliver
            }
            _ => Fate::Deliver,
        }
    });
    let mut hosts = [hub, left, right];
    for round in 0..2 * ROUNDS {
        send_of_every_kind(&hosts, round);
        let allocations = allocations_until_rest(&mut hosts);
        assert!(hosts.iter().all(|host| std::iter::from_fn(|| host.receive()).count() > 0), "round {round}");
        // Time for a keepalive to each spoke, with which the next round begins.
        clock.advance(Duration::from_secs(2));
        assert!(round < ROUNDS || allocations == 0, "round {round} allocated {allocations} times");
    }
    for reason in ["undecryptable", "counter_replayed", "source_not_allowed", "no_peer"] {
        assert!(hosts[0].drops(reason) > 0, "no packet was dropped as {reason}");
    }
}

/// GSO packets and single ones of TCP and UDP, neighbours for different peers, from a foreign address and to an unknown
/// one.
fn send_of_every_kind(hosts: &[Host; 3], round: usize) {
    let [hub, left, right] = hosts;
    for (from, to) in [(hub, left), (left, hub), (hub, right), (right, hub)] {
        let (header, packet) = tcp_gso(from.inner, to.inner, 45 * 1368, 1368);
        from.send_gso(&header, &packet);
        let (header, packet) = udp_gso(from.inner, to.inner, 40 * 1200 + round, 1200);
        from.send_gso(&header, &packet);
        from.send(&udp(from.inner, IpAddr::from([10, 9, 9, 9]), b"no route"));
        from.send(&udp(IpAddr::from([10, 0, 0, 77]), to.inner, b"from another"));
    }
    for i in 0..300 {
        for (from, to) in [(hub, left), (hub, right), (left, hub)] {
            from.send(&udp(from.inner, to.inner, &vec![i as u8; 64 + i % 3]));
        }
    }
    let (header, packet) = tcp_gso(hub.inner, right.inner, 9 * 1368, 1368);
    let split = gso::Split::new(&header, &packet).unwrap();
    for i in 0..split.count() {
        let mut segment = vec![0; split.len(i)];
        split.write(i, &mut segment);
        hub.send(&segment);
    }
}

fn udp_gso(from: IpAddr, to: IpAddr, payload: usize, size: u16) -> (virtio::Header, Vec<u8>) {
    let mut packet = udp(from, to, &vec![7; payload]);
    let pseudo = checksum::pseudo_header(&packet[12..20], 17, packet.len() - 20).fold();
    packet[26..28].copy_from_slice(&pseudo.to_be_bytes());
    let header = virtio::Header {
        flags: virtio::NEEDS_CSUM,
        gso: Gso::UdpL4,
        gso_size: size,
        hdr_len: 28,
        csum_start: 20,
        csum_offset: 6,
        ..virtio::Header::default()
    };
    (header, packet)
}

/// Runs all hosts until they are idle; returns how often their data paths allocated.
fn allocations_until_rest(hosts: &mut [Host]) -> u64 {
    let mut allocations = 0;
    for _ in 0..10_000 {
        let mut worked = false;
        for host in hosts.iter_mut() {
            allocations += allocation_counter::measure(|| worked |= host.carry()).count_total;
            worked |= host.slow_path.process();
        }
        if !worked {
            return allocations;
        }
    }
    panic!("the hosts never become idle");
}
