//! The gateway between client and server: its rules, and what it may have beside them that matches nothing.

use std::process::Command;

use super::addresses::{AddressFamily, Network};
use super::{Beside, Testbed, Topology};
use crate::hosts::Host;
use crate::subject::MTU;
use crate::{Error, Result};

/// The gateway's interface to the server.
pub(crate) const UPLINK: &str = "eth1";

impl Testbed {
    /// Routes the server's answers through the gateway, and gives that what it has beside the tunnel. What it
    /// forwards, and the client's routes, come with the tunnel.
    pub(super) fn set_up_gateway(&self, beside: Beside) -> Result<()> {
        let Some(gateway) = self.gateway() else { return Ok(()) };
        self.route(&self.server, Network::FAR.host(1))?;
        match beside {
            Beside::Nothing => Ok(()),
            Beside::Rules => load_rules(gateway, &foreign_rules()),
            Beside::Policies => load_policies(gateway),
        }
    }

    /// Whether the gateway, if there is one, translates the client's addresses.
    pub(crate) fn translates(&self) -> Option<bool> {
        match self.topology {
            Topology::Routed { nat, .. } => Some(nat),
            Topology::Pair | Topology::Wan(_) | Topology::PlainNic => None,
        }
    }

    /// Lets the gateway, if there is one, forward between its interface `inner` and the server as linerate's own
    /// gateways do. What comes from the network `inside` is translated where the network says so.
    pub(crate) fn open_gateway(&self, inner: &str, inside: Network) -> Result<()> {
        let (Some(gateway), Some(nat)) = (self.gateway(), self.translates()) else { return Ok(()) };
        gateway.forward()?;
        load_rules(gateway, &rules(inner, inside, nat))
    }
}

/// Loads the policies of two tunnels between networks that no packet here comes from or goes to.
fn load_policies(gateway: &Host) -> Result<()> {
    policies().iter().try_for_each(|line| gateway.ip(line)).map_err(|error| {
        Error::Refused(format!(
            "the gateway takes no IPsec policies ({error}): they need a kernel with CONFIG_XFRM_USER"
        ))
    })
}

/// Loads rules on `host` by nft.
fn load_rules(host: &Host, rules: &str) -> Result<()> {
    host.run(Command::new("nft").arg(rules)).map(drop).map_err(|error| match error {
        Error::Command { said, .. } => {
            let (name, reason) = (host.name(), said.lines().next().unwrap_or_default());
            Error::Refused(format!(
                "nft did not load the rules of the {name} ({reason}): they need a kernel with CONFIG_NF_TABLES_INET, \
                 CONFIG_NFT_CT and CONFIG_NFT_MASQ"
            ))
        }
        other => other,
    })
}

/// Returns the rules by which `linerate up` opens a gateway (`linerate plan` prints them), for subjects that make none:
/// which packets pass between `inner` and the server's side, the limit of TCP segments, and what is dropped. The
/// clients' network is `inside`; with `nat` its addresses are masqueraded. The rules replace those of an earlier
/// subject.
fn rules(inner: &str, inside: Network, nat: bool) -> String {
    let opens_tcp = "tcp flags & (syn | rst) == syn";
    let segment = |headers: u32| MTU - headers;
    let [v4, v6] = AddressFamily::BOTH.map(|family| inside.prefix(family));
    let networks = |name: &str| {
        format!(
            "set {name}4 {{ type ipv4_addr; flags interval; elements = {{ {}/{} }}; }}
            set {name}6 {{ type ipv6_addr; flags interval; elements = {{ {}/{} }}; }}",
            v4.0, v4.1, v6.0, v6.1
        )
    };
    let nat = if nat {
        networks("masqueraded")
            + "
            chain nat {
                type nat hook postrouting priority srcnat;
                oifname @gateways ip saddr @masqueraded4 masquerade
                oifname @gateways ip6 saddr @masqueraded6 masquerade
            }"
    } else {
        String::new()
    };
    format!(
        "table inet gateway
        delete table inet gateway
        table inet gateway {{
            set services4 {{
                type ipv4_addr; flags interval
                elements = {{ 100.100.100.200, 168.63.129.16, 169.254.0.0/16, 192.0.0.192 }}
            }}
            set services6 {{
                type ipv6_addr; flags interval
                elements = {{ fd00:ec2::254, fd20:ce::254, fe80::/10 }}
            }}
            {}
            set gateways {{ type ifname; elements = {{ \"{UPLINK}\" }}; }}
            chain forward {{
                type filter hook forward priority filter;
                iifname \"{inner}\" ip daddr @services4 counter drop
                iifname \"{inner}\" ip6 daddr @services6 counter drop
                iifname \"{inner}\" oifname \"{inner}\" accept
                iifname \"{inner}\" oifname @gateways accept
                iifname \"{inner}\" ct status dnat accept
                iifname \"{inner}\" counter drop
                oifname \"{inner}\" ct status dnat ct state established,related accept
                oifname \"{inner}\" iifname @gateways ct state established,related accept
                oifname \"{inner}\" counter drop
            }}
            chain sources {{
                type filter hook prerouting priority raw;
                iifname \"lo\" accept
                iifname \"{inner}\" accept
                ip saddr @clients4 counter drop
                ip6 saddr @clients6 counter drop
            }}
            chain segments {{
                type filter hook forward priority mangle;
                oifname \"{inner}\" {opens_tcp} tcp option maxseg size set rt mtu
                iifname \"{inner}\" meta nfproto ipv4 {opens_tcp} tcp option maxseg size set {}
                iifname \"{inner}\" meta nfproto ipv6 {opens_tcp} tcp option maxseg size set {}
            }}
            {nat}
        }}
        table inet forwarding
        delete table inet forwarding
        table inet forwarding {{
            set tunnels {{ type ifname; elements = {{ \"{inner}\" }}; }}
            set opened4 {{ type ifname; elements = {{ \"{UPLINK}\" }}; }}
            set opened6 {{ type ifname; elements = {{ \"{UPLINK}\" }}; }}
            chain forward {{
                type filter hook forward priority filter;
                iifname @tunnels accept
                oifname @tunnels accept
                ct state established,related accept
                ct status dnat accept
                meta nfproto ipv4 iifname @opened4 counter drop
                meta nfproto ipv6 iifname @opened6 counter drop
            }}
        }}",
        networks("clients"),
        segment(40),
        segment(60)
    )
}

/// Rules of another firewall that no packet here matches, and that every forwarded one is compared with: their ports
/// are below those of clients, and not the server's.
fn foreign_rules() -> String {
    let rules: String = (10_000..11_000).map(|port| format!("tcp dport {port} drop\n")).collect();
    format!("table inet foreign {{ chain forward {{ type filter hook forward priority filter\n{rules}}}\n}}")
}

/// The arguments of `ip` that load two tunnels' policies, both directions and both families.
fn policies() -> Vec<String> {
    let gateway = Network::FAR.host(1).v4;
    let mut lines = Vec::new();
    for tunnel in 1..=2 {
        let remote = format!("203.0.113.{tunnel}");
        for (here, there) in [
            (format!("10.101.{tunnel}.0/24"), format!("10.102.{tunnel}.0/24")),
            (format!("fd65:{tunnel}::/64"), format!("fd66:{tunnel}::/64")),
        ] {
            let out = format!("tmpl src {gateway} dst {remote} proto esp reqid {tunnel} mode tunnel");
            let back = format!("tmpl src {remote} dst {gateway} proto esp reqid {tunnel} mode tunnel");
            lines.push(format!("xfrm policy add src {here} dst {there} dir out {out}"));
            lines.push(format!("xfrm policy add src {there} dst {here} dir in {back}"));
            lines.push(format!("xfrm policy add src {there} dst {here} dir fwd {back}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_policies_match_no_network_of_the_lab() {
        let lines = policies();
        assert_eq!(lines.len(), 2 * 2 * 3);
        for network in [Network::NEAR, Network::TUNNEL, Network::FAR] {
            for (address, length) in AddressFamily::BOTH.map(|family| network.prefix(family)) {
                assert!(!lines.iter().any(|line| line.contains(&format!(" {address}/{length} "))));
            }
        }
    }

    #[test]
    fn forwarding_rules_name_both_interfaces() {
        let text = rules("wg-gateway", Network::TUNNEL, true);
        let forward = text.split("chain forward").nth(1).and_then(|rest| rest.split("chain").next()).unwrap();
        let is_own = |line: &&str| line.contains(" accept") && !line.contains("ct status dnat");
        let accepting = forward.lines().filter(is_own).collect::<Vec<_>>();
        assert_eq!(accepting.len(), 3);
        assert!(accepting.iter().all(|line| line.contains("iifname ") && line.contains("oifname ")));
        assert!(
            text.contains("{ fd02::/64 }")
                && text.contains("masquerade")
                && !rules("wg-gateway", Network::TUNNEL, false).contains("masquerade")
        );
    }

    #[test]
    fn a_thousand_foreign_rules_match_no_port_of_the_load() {
        let rules = foreign_rules();
        let ports: Vec<u16> =
            rules.split("dport ").skip(1).filter_map(|rest| rest.split(' ').next()?.parse().ok()).collect();
        assert_eq!(ports.len(), 1000);
        // iperf3's, and the first of net.ipv4.ip_local_port_range.
        assert!(!ports.contains(&5201) && ports.iter().all(|port| *port < 32_768));
    }
}
