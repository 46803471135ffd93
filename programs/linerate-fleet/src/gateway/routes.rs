//! Routes to the peers whose sessions are here, for a routing daemon to tell others of: in a table of the kernel that
//! nothing else uses, with a protocol number of our own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use ipnet::IpNet;
use linerate_control::interface::InterfaceName;
use linerate_host::program::{self, WaitLimit};

use super::Peers;

/// The routes' protocol, which routing daemons may select them by.
pub const PROTOCOL: u8 = 108;

/// What a table has.
pub(super) struct Routes {
    interface: InterfaceName,
    table: u32,
    there: BTreeMap<u32, Vec<IpNet>>,
}

impl Routes {
    pub(super) fn new(interface: &InterfaceName, table: u32) -> Self {
        Self { interface: interface.clone(), table, there: BTreeMap::new() }
    }

    /// The lines for `ip -batch` that bring the routes of these peers up to date.
    pub(super) fn update(&mut self, moved: &BTreeSet<u32>, peers: &Peers, is_here: impl Fn(u32) -> bool) -> String {
        let (mut removed, mut added) = (String::new(), String::new());
        let Self { interface, table, there } = self;
        for &number in moved {
            let peer = peers.get(&number).filter(|_| is_here(number));
            let wanted: Vec<IpNet> = peer.map_or_else(Vec::new, |peer| {
                peer.allowed_ips.iter().map(IpNet::trunc).filter(|prefix| prefix.prefix_len() > 0).collect()
            });
            let had = there.remove(&number).unwrap_or_default();
            for prefix in had.iter().filter(|prefix| !wanted.contains(prefix)) {
                let _ = writeln!(removed, "route del {prefix} dev {interface} table {table} proto {PROTOCOL}");
            }
            for prefix in wanted.iter().filter(|prefix| !had.contains(prefix)) {
                let _ = writeln!(added, "route replace {prefix} dev {interface} table {table} proto {PROTOCOL}");
            }
            if !wanted.is_empty() {
                there.insert(number, wanted);
            }
        }
        // A prefix may have gone from one peer to another.
        removed + &added
    }
}

/// Has `ip` carry lines out. It goes on after one that fails: the interface may be gone, and its routes with it.
pub(super) fn apply(lines: &str) -> io::Result<()> {
    ip(&["-force", "-batch", "-"], lines)
}

/// Removes all: what an earlier run left, and everything at the end.
pub(super) fn flush(table: u32) {
    for family in ["-4", "-6"] {
        // Where there never was a route there is no table, which is an error.
        let _ = ip(&[family, "route", "flush", "table", &table.to_string(), "proto", &PROTOCOL.to_string()], "");
    }
}

fn ip(arguments: &[&str], input: &str) -> io::Result<()> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "ip (iproute2) is not installed");
    let ip = program::find("ip").ok_or_else(missing)?;
    program::run(&ip, arguments, input.as_bytes(), &WaitLimit { limit: Duration::from_secs(30), stop: None })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use linerate_control::keys::PublicKey;

    use super::super::Peer;
    use super::*;

    #[test]
    fn routes_follow_the_sessions() {
        let mut routes = Routes::new(&"wg0".parse().unwrap(), 200);
        let peer = |allowed_ips: &[&str]| {
            let allowed_ips = allowed_ips.iter().map(|prefix| prefix.parse().unwrap()).collect();
            Arc::new(Peer { public_key: PublicKey([1; 32]), allowed_ips })
        };
        let peers: Peers = Arc::new(BTreeMap::from([(1, peer(&["10.9.0.2/32", "fd00::2/128"])), (2, peer(&["::/0"]))]));
        let all = BTreeSet::from([1, 2, 3]);
        let end = "dev wg0 table 200 proto 108\n";
        let added = format!("route replace 10.9.0.2/32 {end}route replace fd00::2/128 {end}");
        assert_eq!(routes.update(&all, &peers, |_| true), added);
        assert_eq!(routes.update(&all, &peers, |_| true), "");
        let peers: Peers = Arc::new(BTreeMap::from([(1, peer(&["fd00::2/128"]))]));
        assert_eq!(routes.update(&all, &peers, |_| true), format!("route del 10.9.0.2/32 {end}"));
        assert_eq!(routes.update(&all, &peers, |_| false), format!("route del fd00::2/128 {end}"));
        assert_eq!(routes.there.len(), 0);
    }
}
