//! The gateway between client and server: its firewall's rules, and IPsec policies that match nothing.

use std::process::Command;

use super::Testbed;
use super::addresses::Network;
use crate::hosts::Host;
use crate::subject::LISTEN_PORT;
use crate::{Error, Result};

impl Testbed {
    /// Loads the gateway's rules and routes the server's answers through it. The client's routes are the tunnel's.
    pub(super) fn set_up_gateway(&self, nat: bool) -> Result<()> {
        let Some(gateway) = self.gateway() else { return Ok(()) };
        gateway.forward()?;
        load_rules(gateway, &rules(gateway.interface().as_str(), nat))?;
        self.route(&self.server, Network::FAR.host(1))
    }

    /// Loads the policies of two tunnels between networks that no packet here comes from or goes to.
    pub(super) fn load_policies(&self) -> Result<()> {
        let Some(gateway) = self.gateway() else { return Ok(()) };
        for line in policies() {
            gateway.ip(&line).map_err(|error| {
                Error::Refused(format!(
                    "the gateway takes no IPsec policies ({error}): they need a kernel with CONFIG_XFRM_USER"
                ))
            })?;
        }
        Ok(())
    }
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

// By number: nft knows the names from /etc/protocols, which small systems lack.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;
const ICMPV6: u8 = 58;

/// The rules of a small gateway: what it accepts, and what it forwards between which interfaces. `eth0` is
/// the client's side and `eth1` the server's.
fn rules(tunnel: &str, nat: bool) -> String {
    let postrouting = if nat {
        "chain postrouting {
                type nat hook postrouting priority srcnat;
                oifname \"eth1\" counter masquerade
            }"
    } else {
        ""
    };
    format!(
        "table inet gateway {{
            chain input {{
                type filter hook input priority filter; policy drop;
                ct state established,related counter accept
                ct state invalid counter drop
                iifname \"lo\" accept
                meta l4proto {{ {ICMP}, {ICMPV6} }} counter accept
                iifname \"eth0\" meta l4proto {ESP} counter accept
                iifname \"eth0\" meta l4proto {{ {TCP}, {UDP} }} th dport {LISTEN_PORT} counter accept
            }}
            chain forward {{
                type filter hook forward priority filter; policy drop;
                ct state invalid counter drop
                iifname \"{tunnel}\" oifname \"eth1\" ct state new,established,related counter accept
                iifname \"eth1\" oifname \"{tunnel}\" ct state established,related counter accept
                iifname \"eth0\" oifname \"eth1\" ct state new,established,related counter accept
                iifname \"eth1\" oifname \"eth0\" ct state established,related counter accept
                counter
            }}
            {postrouting}
        }}"
    )
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
    use super::super::addresses::AddressFamily;
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
        let text = rules("wg-gateway", true);
        let forward = text.split("chain forward").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
        let accepting = forward.lines().filter(|line| line.contains("accept")).collect::<Vec<_>>();
        assert_eq!(accepting.len(), 4);
        assert!(accepting.iter().all(|line| line.contains("iifname \"") && line.contains("oifname \"")));
        assert!(text.contains("masquerade") && !rules("wg-gateway", false).contains("masquerade"));
    }
}
