//! Peers as `ping` and `speed` are told of them: by name, key, or an address behind them.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use linerate_control::printable::printable;
use linerate_tunnel::status::{PeerStatus, Status};

/// A peer, and an address of it.
pub(crate) struct Target<'a> {
    pub(crate) tunnel: &'a str,
    pub(crate) peer: &'a PeerStatus,
    pub(crate) address: IpAddr,
    /// Why that address, where it was not asked for and is not the peer's only one.
    pub(crate) is_guess: bool,
}

impl Target<'_> {
    /// The peer's name, or its key.
    pub(crate) fn name(&self) -> &str {
        self.peer.name.as_deref().unwrap_or(&self.peer.public_key)
    }
}

/// `laptop (10.0.0.2)`, or the address alone.
impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.peer.name {
            Some(name) => write!(f, "{} ({})", printable(name), self.address),
            None => self.address.fmt(f),
        }
    }
}

/// The peer with that name or key, or the one to which the tunnel routes that address.
pub(crate) fn find<'a>(all: &'a [Status], wanted: &str) -> Result<Target<'a>, String> {
    let peers = || all.iter().flat_map(|tunnel| tunnel.peers.iter().map(move |peer| (tunnel, peer)));
    let found: Vec<(&Status, &PeerStatus)> = match wanted.parse::<IpAddr>() {
        Ok(address) => {
            let length = |peer: &PeerStatus| {
                networks(peer).filter(|net| net.contains(&address)).map(|net| net.prefix_len()).max()
            };
            let longest = peers().filter_map(|(_, peer)| length(peer)).max();
            peers().filter(|(_, peer)| longest.is_some() && length(peer) == longest).collect()
        }
        Err(_) => {
            peers().filter(|(_, peer)| peer.name.as_deref() == Some(wanted) || peer.public_key == wanted).collect()
        }
    };
    let (tunnel, peer) = match found[..] {
        [] if all.is_empty() => return Err("there are no tunnels; `linerate up NAME` brings one up".to_owned()),
        [] => return Err(format!("no tunnel has the peer {}; `linerate status` shows them", printable(wanted))),
        [one] => one,
        [(first, _), (second, _), ..] => {
            let both = [first, second].map(|tunnel| tunnel.interface.as_str()).join(" and ");
            return Err(format!("{both} have the peer {}; choose with --tunnel", printable(wanted)));
        }
    };
    let (address, is_guess) = match wanted.parse() {
        Ok(address) => (address, false),
        Err(_) => address_of(tunnel, peer)?,
    };
    Ok(Target { tunnel: &tunnel.interface, peer, address, is_guess })
}

/// The allowed IPs of a peer.
pub(crate) fn networks(peer: &PeerStatus) -> impl Iterator<Item = IpNet> {
    peer.allowed_ips.iter().filter_map(|text| text.parse().ok())
}

/// An address that is the peer's own: the only one of an allowed IP, else the first one of the tunnel's network, where
/// servers usually are. Whether it is that guess.
fn address_of(tunnel: &Status, peer: &PeerStatus) -> Result<(IpAddr, bool), String> {
    let own = networks(peer).filter(|net| net.prefix_len() == net.max_prefix_len()).map(|net| net.addr());
    let first = |net: &IpNet| net.hosts().next().filter(|first| *first != net.addr());
    let here = tunnel.addresses.iter().filter(|net| net.prefix_len() < net.max_prefix_len()).filter_map(first);
    let behind = here.filter(|address| networks(peer).any(|net| net.contains(address)));
    own.map(|address| (address, false)).chain(behind.map(|address| (address, true))).next().ok_or_else(|| {
        let name = printable(peer.name.as_deref().unwrap_or(&peer.public_key)).into_owned();
        let allowed = peer.allowed_ips.join(", ");
        format!("which address {name} has is not in its allowed IPs ({allowed}); give an address instead of the name")
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use linerate_tunnel::status::{Health, RunBy};

    use super::*;

    /// A peer that was never heard of, for tests of all commands.
    pub(crate) fn peer(name: &str, allowed_ips: &[&str]) -> PeerStatus {
        PeerStatus {
            name: Some(name.to_owned()),
            public_key: format!("key of {name}"),
            endpoint: None,
            endpoint_name: None,
            health: Health::Never,
            seconds_since_handshake: None,
            received: 0,
            sent: 0,
            allowed_ips: allowed_ips.iter().map(|text| (*text).to_owned()).collect(),
            expires: None,
            quota: None,
            quota_used: None,
            group: None,
            active: None,
            suspended: None,
        }
    }

    /// A tunnel that is up, and has no problem.
    pub(crate) fn tunnel(interface: &str, address: &str, peers: Vec<PeerStatus>) -> Status {
        Status {
            interface: interface.to_owned(),
            implementation: RunBy::Daemon,
            reason: None,
            file: None,
            listen_port: 51820,
            mtu: 1420,
            addresses: vec![address.parse().unwrap()],
            gateway: Vec::new(),
            hook_failed: false,
            link_down: false,
            no_private_key: false,
            not_listening: false,
            place: None,
            unexamined: None,
            misplaced: false,
            lost: Vec::new(),
            bypassed: Vec::new(),
            supervisor: Vec::new(),
            peers,
        }
    }

    fn found(all: &[Status], wanted: &str) -> Result<String, String> {
        find(all, wanted).map(|target| format!("{} {target} {}", target.tunnel, target.is_guess))
    }

    #[test]
    fn a_peer_is_found_by_name_key_or_the_longest_network() {
        let peers = vec![peer("router", &["10.0.0.0/8", "fd00::/8"]), peer("laptop", &["10.0.0.2/32", "fd00::2/128"])];
        let all = [tunnel("wg0", "10.0.0.1/24", peers)];
        for wanted in ["laptop", "key of laptop", "10.0.0.2"] {
            assert_eq!(found(&all, wanted).unwrap(), "wg0 laptop (10.0.0.2) false");
        }
        assert_eq!(found(&all, "fd00::2").unwrap(), "wg0 laptop (fd00::2) false");
        assert_eq!(found(&all, "10.0.0.3").unwrap(), "wg0 router (10.0.0.3) false");
        assert!(found(&all, "192.0.2.1").unwrap_err().contains("no tunnel has the peer 192.0.2.1"));
    }

    #[test]
    fn a_peer_of_two_tunnels_needs_the_choice() {
        let all = ["wg0", "wg1"].map(|name| tunnel(name, "10.0.0.1/24", vec![peer("laptop", &["10.0.0.2/32"])]));
        assert!(found(&all, "laptop").unwrap_err().contains("wg0 and wg1"));
        assert_eq!(found(&all[1..], "laptop").unwrap(), "wg1 laptop (10.0.0.2) false");
    }

    #[test]
    fn where_all_traffic_goes_to_is_taken_to_have_the_first_address() {
        let of = |address, allowed: &[&str]| found(&[tunnel("wg0", address, vec![peer("server", allowed)])], "server");
        assert_eq!(of("10.0.0.7/24", &["0.0.0.0/0"]).unwrap(), "wg0 server (10.0.0.1) true");
        assert_eq!(of("10.0.0.7/24", &["10.0.0.9/32", "0.0.0.0/0"]).unwrap(), "wg0 server (10.0.0.9) false");
        // We are the first, there is no network, or it is another peer's.
        assert!(of("10.0.0.1/24", &["0.0.0.0/0"]).unwrap_err().contains("give an address"));
        assert!(of("10.0.0.7/32", &["0.0.0.0/0"]).unwrap_err().contains("give an address"));
        assert!(of("10.0.0.7/24", &["10.0.1.0/24"]).unwrap_err().contains("give an address"));
    }
}
