//! A reference implementation of allowed IPs: a list with linear search.

use std::net::{IpAddr, Ipv4Addr};

use linerate_protocol::Prefix;

#[derive(Clone, Debug, Default)]
pub struct Table(Vec<(u32, u8, usize)>);

impl Table {
    /// Gives the prefix to `peer`, and takes it from its owner.
    pub fn allow(&mut self, (addr, len): ([u8; 4], u8), peer: usize) {
        let net = masked(u32::from_be_bytes(addr), len);
        self.0.retain(|&(other, other_len, _)| (other, other_len) != (net, len));
        self.0.push((net, len, peer));
    }

    pub fn forbid(&mut self, (addr, len): ([u8; 4], u8), peer: usize) {
        let net = masked(u32::from_be_bytes(addr), len);
        self.0.retain(|&entry| entry != (net, len, peer));
    }

    pub fn forget(&mut self, peer: usize) {
        self.0.retain(|&(.., other)| other != peer);
    }

    pub fn owner(&self, addr: [u8; 4]) -> Option<usize> {
        let addr = u32::from_be_bytes(addr);
        let holding = self.0.iter().filter(|&&(net, len, _)| masked(addr, len) == net);
        holding.max_by_key(|(_, len, _)| *len).map(|&(.., peer)| peer)
    }

    pub fn of(&self, peer: usize) -> Vec<(bool, Prefix)> {
        let own = self.0.iter().filter(|&&(.., other)| other == peer);
        own.map(|&(net, len, _)| (true, prefix((net.to_be_bytes(), len)))).collect()
    }
}

pub fn prefix((addr, len): ([u8; 4], u8)) -> Prefix {
    Prefix::new(IpAddr::V4(Ipv4Addr::from(addr)), len).expect("a length of an IPv4 prefix")
}

fn masked(addr: u32, len: u8) -> u32 {
    addr & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}
