//! Warnings about servers whose host or tunnel has only one IP family: the other family's traffic of clients goes past the
//! tunnel, or gets no answer.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::init::{NAME_SERVERS, is_public, list};

/// The IP families of a server's host.
#[derive(Clone, Copy, Debug)]
pub struct HostFamilies {
    /// The host has a default route for IPv4.
    pub ipv4: bool,
    /// The host has a default route for IPv6.
    pub ipv6: bool,
    /// IPv6 is off: no interface gets an address.
    pub ipv6_is_off: bool,
}

/// Free networks that a tunnel may get in a family that it lacks.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    pub pool4: Option<Ipv4Net>,
    pub pool6: Option<Ipv6Net>,
}

/// Returns warnings about clients that send `sent` through the tunnel and have addresses of `pools`, each a sentence
/// without its full stop.
pub fn notes(sent: &[IpNet], pools: &[IpNet], host: HostFamilies, free: Free) -> Vec<String> {
    let of = |is_v4| Family { is_v4, pools, host, free };
    let [v4, v6] = [true, false].map(|is_v4| is_nearly_everything(sent, is_v4));
    match (v4, v6) {
        (true, false) => vec![of(false).past_the_tunnel()],
        (false, true) => vec![of(true).past_the_tunnel()],
        (true, true) => of(true).unanswered().into_iter().chain(of(false).unanswered()).collect(),
        (false, false) => Vec::new(),
    }
}

/// Whether the networks cover the internet of a family, possibly without the local networks (`--exclude-lan`).
fn is_nearly_everything(sent: &[IpNet], is_v4: bool) -> bool {
    /// The internet without local networks has prefixes as short as this; no network of a site is so large.
    const MAX_PREFIX_LEN: u8 = 3;
    sent.iter().any(|net| net.addr().is_ipv4() == is_v4 && net.prefix_len() <= MAX_PREFIX_LEN)
}

struct Family<'a> {
    is_v4: bool,
    pools: &'a [IpNet],
    host: HostFamilies,
    free: Free,
}

impl Family<'_> {
    fn name(&self) -> &'static str {
        if self.is_v4 { "IPv4" } else { "IPv6" }
    }

    fn has_pool(&self) -> bool {
        self.pools.iter().any(|pool| pool.addr().is_ipv4() == self.is_v4)
    }

    /// The warning for clients that send all of the other family through the tunnel, and nothing of this one.
    fn past_the_tunnel(&self) -> String {
        let name = self.name();
        let past = format!("{name} traffic of clients goes past the tunnel wherever their network has {name}");
        let send = "with `linerate server set --client-allowed-ips 0.0.0.0/0,::/0` clients send it into the tunnel";
        let free = if self.is_v4 { self.free.pool4.map(IpNet::from) } else { self.free.pool6.map(IpNet::from) };
        match free {
            _ if self.has_pool() => format!("client files list no {name} network, so {past}: {send}"),
            _ if !self.is_v4 && self.host.ipv6_is_off => {
                format!("IPv6 is off on this host, so {past}: {send}, which does not forward it")
            }
            Some(free) => format!(
                "the tunnel has no {name}, so {past}: with `linerate server set --pool {free}` new clients get {name} \
                addresses, and their {name} traffic goes through the tunnel"
            ),
            None => format!("the tunnel has no {name}, so {past}: {send}, which does not forward it"),
        }
    }

    /// The warning for clients that send all of both families through the tunnel, if the host has no route for this one.
    fn unanswered(&self) -> Option<String> {
        let HostFamilies { ipv4, ipv6, ipv6_is_off } = self.host;
        if self.is_v4 {
            return (!ipv4 && ipv6).then(|| {
                "this host has no default route for IPv4, so IPv4 packets of clients are answered with an error. If its \
                network has NAT64, clients reach the rest of the internet by IPv6 with a name server that does DNS64: \
                `linerate server set --dns ADDRESS`"
                    .to_owned()
            });
        }
        (ipv6_is_off && self.has_pool()).then(|| {
            "IPv6 is off on this host, so clients get no answer to their IPv6 packets: switch IPv6 on with `sysctl -w \
            net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0`, then run `linerate reload`"
                .to_owned()
        })
    }
}

/// Warns that the host has no default route to any name server in client files. Private addresses are not judged: they may
/// be in the tunnel or on a network of the host.
pub fn lost_name_servers(dns: &[String], sent: &[IpNet], host: HostFamilies) -> Option<String> {
    let servers: Vec<IpAddr> = dns.iter().filter_map(|word| word.parse().ok()).collect();
    let is_lost = |server: &IpAddr| {
        let (has_way, other) = if server.is_ipv4() { (host.ipv4, host.ipv6) } else { (host.ipv6, host.ipv4) };
        !has_way && other && is_public(*server) && sent.iter().any(|net| net.contains(server))
    };
    let name = if servers.first()?.is_ipv4() { "IPv4" } else { "IPv6" };
    servers.iter().all(is_lost).then(|| {
        format!(
            "clients cannot resolve names: this host has no default route for {name}, so they do not reach their name servers ({}): {NAME_SERVERS}",
            list(&servers)
        )
    })
}

/// Warns that client files name an address that the host does not have, and proposes one of the host's public addresses,
/// `own`.
pub fn moved(endpoint: Option<IpAddr>, own: &[IpAddr]) -> Option<String> {
    let endpoint = endpoint.filter(|endpoint| !own.contains(endpoint))?;
    let here = own.iter().find(|own| own.is_ipv4() == endpoint.is_ipv4())?;
    Some(format!(
        "client files name {endpoint}, and this host has {}: if the server has moved here, run `linerate server set \
        --endpoint {here}`, and give clients their new files",
        list(own)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: HostFamilies = HostFamilies { ipv4: true, ipv6: true, ipv6_is_off: false };
    const OFF: HostFamilies = HostFamilies { ipv4: true, ipv6: false, ipv6_is_off: true };
    const V4: HostFamilies = HostFamilies { ipv4: true, ipv6: false, ipv6_is_off: false };
    const V6: HostFamilies = HostFamilies { ipv4: false, ipv6: true, ipv6_is_off: false };
    const NONE: HostFamilies = HostFamilies { ipv4: false, ipv6: false, ipv6_is_off: false };

    fn nets(text: &str) -> Vec<IpNet> {
        text.split_whitespace().map(|net| net.parse().unwrap()).collect()
    }

    fn said(sent: &str, pools: &str, host: HostFamilies) -> String {
        let free = Free { pool4: "10.7.0.0/24".parse().ok(), pool6: "fd00:7::/64".parse().ok() };
        notes(&nets(sent), &nets(pools), host, free).join("\n")
    }

    #[test]
    fn a_family_that_goes_past_the_tunnel_is_said_with_what_takes_it_in() {
        let pools = "10.0.0.0/24 fd00::/64";
        for full in ["0.0.0.0/0", "0.0.0.0/1 128.0.0.0/1", "0.0.0.0/5 32.0.0.0/3 64.0.0.0/2"] {
            let alone = said(full, "10.0.0.0/24", BOTH);
            assert!(
                alone.contains("IPv6 traffic of clients goes past") && alone.contains("--pool fd00:7::/64"),
                "{alone}"
            );
            assert!(said(full, "10.0.0.0/24", OFF).contains("--client-allowed-ips 0.0.0.0/0,::/0"), "{full}");
            assert!(said(full, pools, BOTH).contains("--client-allowed-ips 0.0.0.0/0,::/0"), "{full}");
        }
        let alone = said("::/0", "fd00::/64", BOTH);
        assert!(alone.contains("IPv4 traffic of clients goes past") && alone.contains("--pool 10.7.0.0/24"), "{alone}");
        for split in ["10.0.0.0/24", "10.0.0.0/8 fd00::/64", ""] {
            for host in [BOTH, OFF, V4, V6] {
                assert_eq!(said(split, pools, host), "", "{split}");
            }
        }
    }

    #[test]
    fn a_family_that_gets_no_answer_is_said() {
        let (full, pools) = ("0.0.0.0/0 ::/0", "10.0.0.0/24 fd00::/64");
        assert!(said(full, pools, V6).contains("no default route for IPv4"));
        assert!(said(full, pools, OFF).contains("IPv6 is off on this host"));
        // The tunnel takes IPv6 on purpose, so that none goes past it.
        assert_eq!(said(full, "10.0.0.0/24", OFF), "");
        // Without a default route of either family, the uplink is gone for a moment.
        for host in [BOTH, V4, NONE] {
            assert_eq!(said(full, pools, host), "");
        }
    }

    #[test]
    fn name_servers_that_no_client_reaches_are_said() {
        let said = |dns: &[&str], sent: &str, host| {
            let dns: Vec<String> = dns.iter().map(|&word| word.to_owned()).collect();
            lost_name_servers(&dns, &nets(sent), host).is_some()
        };
        let full = "0.0.0.0/0 ::/0";
        assert!(said(&["9.9.9.9", "example.com"], full, V6));
        assert!(said(&["2620:fe::fe"], full, V4));
        assert!(!said(&["9.9.9.9", "2620:fe::fe"], full, V6), "one of two is enough");
        assert!(!said(&["10.0.0.1"], full, V6), "it is in the tunnel");
        assert!(!said(&["9.9.9.9"], "10.0.0.0/24", V6), "it is asked outside of the tunnel");
        assert!(!said(&["9.9.9.9"], full, NONE) && !said(&[], full, V6) && !said(&["9.9.9.9"], full, BOTH));
    }

    #[test]
    fn an_endpoint_of_another_host_is_said_if_this_one_has_a_public_address_of_its_family() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let own = [address("203.0.113.5")];
        assert!(moved(Some(address("203.0.113.9")), &own).unwrap().contains("--endpoint 203.0.113.5"));
        for same in [Some(own[0]), Some(address("2001:db8::1")), None] {
            assert_eq!(moved(same, &own), None);
        }
        assert_eq!(moved(Some(own[0]), &[]), None);
    }
}
