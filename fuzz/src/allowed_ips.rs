//! The table of allowed IPs equals a list of prefixes that is searched linearly.

use std::net::IpAddr;

use linerate_protocol::{AllowedIps, PeerId, Prefix};

use crate::bytes::Bytes;

const PEERS: u32 = 4;

/// An input is a sequence of changes, of a few bytes each.
pub fn check(input: &[u8]) {
    let mut input = Bytes(input);
    let mut table = AllowedIps::new();
    let mut naive: Vec<(Prefix, PeerId)> = Vec::new();
    while !input.is_empty() {
        let (what, peer) = (input.byte(), PeerId(u32::from(input.byte()) % PEERS));
        let address = address_of(input.array());
        let longest = if address.is_ipv4() { 33 } else { 129 };
        let prefix = Prefix::new(address, input.below(longest) as u8).expect("it is no longer than its address");
        let index = naive.iter().position(|(has, _)| *has == prefix);
        match what % 8 {
            0 => {
                while table.remove_first(peer) {}
                naive.retain(|(_, owner)| *owner != peer);
            }
            1 | 2 => {
                let owns = index.is_some_and(|index| naive[index].1 == peer);
                assert_eq!(table.remove(prefix, peer), owns);
                if owns {
                    naive.retain(|(has, _)| *has != prefix);
                }
            }
            _ => {
                let before = index.map(|index| naive.remove(index).1);
                assert_eq!(table.insert(prefix, peer), before);
                naive.push((prefix, peer));
            }
        }
        for of in [address, prefix.addr(), address_of([what; 5])] {
            let best = naive.iter().filter(|(prefix, _)| prefix.contains(of)).max_by_key(|(prefix, _)| prefix.cidr());
            assert_eq!(table.lookup(of), best.map(|(_, owner)| *owner), "{of} in {naive:?}");
        }
    }
    for peer in (0..PEERS).map(PeerId) {
        let of_peer = naive.iter().filter(|(_, owner)| *owner == peer).map(|(prefix, _)| *prefix);
        assert!(table.prefixes(peer).eq(of_peer), "the prefixes of a peer are in the order in which they were added");
    }
}

fn address_of([version, first, second, third, fourth]: [u8; 5]) -> IpAddr {
    if version & 1 == 0 {
        return IpAddr::from([first, second, third, fourth]);
    }
    let mut octets = [0; 16];
    (octets[0], octets[7], octets[8], octets[15]) = (first, second, third, fourth);
    IpAddr::from(octets)
}
