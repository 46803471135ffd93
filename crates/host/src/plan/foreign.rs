//! Firewalls of others: what they drop of a gateway's packets, and the commands that make way.
//!
//! What one table accepts another may still drop, so nothing that the tunnel's own table says helps.

use crate::spec::{HostSpec, Inbound};
use crate::state::{FirewallTool, ForeignChain, ForeignHook, ForeignRule, HostState};

/// A sentence for each way that a foreign chain leaves closed.
pub(super) fn warnings(spec: &HostSpec, state: &HostState, devices: &[String]) -> Vec<String> {
    let mut sentences = Vec::new();
    for chain in &state.foreign_chains {
        match chain.hook {
            ForeignHook::Forward => {
                let closed: Vec<_> = devices.iter().filter_map(|device| forward(spec, chain, device)).collect();
                sentences.extend(closed);
            }
            ForeignHook::Input => sentences.extend(input(spec, chain, devices)),
        }
    }
    sentences.sort();
    sentences.dedup();
    sentences
}

/// What is missing between the tunnel and one interface.
fn forward(spec: &HostSpec, chain: &ForeignChain, device: &str) -> Option<String> {
    let tunnel = &*spec.interface;
    let needs_new = spec.forwarding.inbound == Inbound::All;
    let accepts = |rule: &ForeignRule, from: &str, to: &str| {
        rule.ports.is_none() && matches(&rule.incoming, from) && matches(&rule.outgoing, to)
    };
    let is_out = chain.rules.iter().any(|rule| !rule.known && accepts(rule, tunnel, device));
    let is_back = chain.rules.iter().any(|rule| (!rule.known || !needs_new) && accepts(rule, device, tunnel));
    let mut commands = Vec::new();
    if !is_out {
        commands.push(command(chain, tunnel, device, false));
    }
    // ufw and firewalld let answers pass on their own.
    let lets_answers_pass = matches!(chain.tool, FirewallTool::Ufw | FirewallTool::Firewalld) && !needs_new;
    if !is_back && !lets_answers_pass {
        commands.push(command(chain, device, tunnel, !needs_new));
    }
    let whose = whose(chain);
    (!commands.is_empty()).then(|| {
        let commands = commands.join("` and `");
        format!("{whose} drops what passes between {tunnel} and {device}; this lets it pass: `{commands}`")
    })
}

fn input(spec: &HostSpec, chain: &ForeignChain, devices: &[String]) -> Option<String> {
    let port = spec.forwarding.listen_port?;
    let accepts = |rule: &ForeignRule| {
        let is_port = rule.ports.is_none_or(|(first, last)| (first..=last).contains(&port));
        let is_from_outside = rule.incoming.is_none() || devices.iter().any(|device| matches(&rule.incoming, device));
        !rule.known && is_port && is_from_outside
    };
    if chain.rules.iter().any(accepts) {
        return None;
    }
    let [family, table] = table_of(chain);
    let command = match chain.tool {
        FirewallTool::Ufw => format!("ufw allow {port}/udp"),
        FirewallTool::Firewalld => format!("firewall-cmd --add-port={port}/udp"),
        _ if is_iptables(chain) => format!("{} -I INPUT -p udp --dport {port} -j ACCEPT", iptables(chain)),
        _ => format!("nft insert rule {family} {table} {} udp dport {port} accept", chain.chain),
    };
    Some(format!("{} drops the datagrams of peers; this lets them in: `{command}`", whose(chain)))
}

fn command(chain: &ForeignChain, from: &str, to: &str, known: bool) -> String {
    let [family, table] = table_of(chain);
    match chain.tool {
        FirewallTool::Ufw => format!("ufw route allow in on {from} out on {to}"),
        FirewallTool::Firewalld => format!("firewall-cmd --zone=trusted --add-interface={from}"),
        _ if is_iptables(chain) => {
            let at = if chain.tool == FirewallTool::Docker { "DOCKER-USER" } else { &chain.chain };
            let state = if known { " -m conntrack --ctstate RELATED,ESTABLISHED" } else { "" };
            format!("{} -I {at} -i {from} -o {to}{state} -j ACCEPT", iptables(chain))
        }
        _ => {
            let state = if known { " ct state established,related" } else { "" };
            let rule = format!("iifname \"{from}\" oifname \"{to}\"{state} accept");
            format!("nft insert rule {family} {table} {} {rule}", chain.chain)
        }
    }
}

fn whose(chain: &ForeignChain) -> String {
    let tool = match chain.tool {
        FirewallTool::Docker => "Docker's ",
        FirewallTool::Ufw => "ufw's ",
        FirewallTool::Firewalld => "firewalld's ",
        FirewallTool::Other => "the ",
    };
    format!("{tool}chain {} of the firewall table {}", chain.chain, chain.table)
}

fn table_of(chain: &ForeignChain) -> [&str; 2] {
    let (family, table) = chain.table.split_once(' ').unwrap_or(("inet", &chain.table));
    [family, table]
}

/// Whether the table is one that iptables-nft keeps.
fn is_iptables(chain: &ForeignChain) -> bool {
    ["ip filter", "ip6 filter"].contains(&&*chain.table) && ["FORWARD", "INPUT"].contains(&&*chain.chain)
}

fn iptables(chain: &ForeignChain) -> &'static str {
    if chain.table.starts_with("ip6 ") { "ip6tables" } else { "iptables" }
}

fn matches(pattern: &Option<String>, name: &str) -> bool {
    match pattern.as_deref() {
        None => true,
        Some(pattern) => match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => pattern == name,
        },
    }
}
