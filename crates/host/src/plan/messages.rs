//! Steps as text: as the commands that wg-quick(8) prints, and for people.

use super::forwarding_guard::{ForwardingGuard, needs_guard};
use super::gateway_commands::nft_commands;
use super::opening;
use crate::spec::Inbound;
use crate::step::{AddressFamily, DnsManager, GatewayTable, Implementation, Route, Rule, Step};

/// The commands that wg-quick echoes for these steps, each without its `[#] `. Steps that it takes with one command
/// (the MTU with the interface up, the tables of the firewall that go) are one line, if they are given together. The
/// table of a gateway, which it does not have, is several.
pub fn as_commands(steps: &[Step]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = steps;
    while let [step, after @ ..] = rest {
        rest = after;
        lines.push(line(step));
        match (step, after) {
            (Step::AddGateway(table), _) => {
                lines.pop();
                lines.extend(nft_commands(table));
            }
            (Step::Open(way), _) => {
                lines.pop();
                lines.extend(opening::to_open(way).iter().map(|command| opening::line(command)));
            }
            (Step::Close(way), _) => {
                lines.pop();
                lines.extend(opening::to_close(way).iter().map(|command| opening::line(command)));
            }
            (Step::SetMtu { interface, mtu, .. }, [Step::LinkUp { .. }, after @ ..]) => {
                lines.pop();
                lines.push(format!("ip link set mtu {mtu} up dev {interface}"));
                rest = after;
            }
            (Step::DeleteFirewall(_), _) => {
                let others = after.iter().take_while(|step| matches!(step, Step::DeleteFirewall(_))).count();
                rest = &after[others..];
            }
            _ => {}
        }
    }
    lines
}

/// What a step does, for people, as an item of a list.
pub fn describe(step: &Step) -> String {
    match step {
        Step::AddLink { interface, implementation: Implementation::Daemon } => {
            format!("interface {interface}, run by linerated")
        }
        Step::AddLink { interface, .. } => format!("interface {interface}, run by the kernel"),
        Step::DeleteLink { interface } => format!("interface {interface} deleted, with its addresses and routes"),
        Step::Hook { phase, command } => format!("{phase:?}: {command}"),
        Step::Configure { interface } => format!("keys and peers of {interface}"),
        Step::SetFwmark { interface, fwmark: 0, .. } => format!("no firewall mark on {interface}'s own packets"),
        Step::SetFwmark { interface, fwmark, .. } => format!("firewall mark {fwmark} on {interface}'s own packets"),
        Step::AddAddress { interface, address } => format!("address {address} on {interface}"),
        Step::DeleteAddress { interface, address } => format!("address {address} removed from {interface}"),
        Step::SetMtu { interface, mtu, .. } => format!("MTU {mtu} on {interface}"),
        Step::LinkUp { interface } => format!("{interface} up"),
        Step::SetDns { interface, dns, exclusive, .. } => {
            let queries = if *exclusive { "for all queries" } else { "for queries in its domains" };
            let servers: Vec<String> = dns.servers.iter().map(ToString::to_string).collect();
            match (servers.is_empty(), dns.search.is_empty()) {
                (true, _) => format!("search domains {} on {interface}", dns.search.join(", ")),
                (false, true) => format!("name servers {} on {interface} {queries}", servers.join(", ")),
                (false, false) => {
                    let domains = dns.search.join(", ");
                    format!("name servers {} on {interface} {queries}, search domains {domains}", servers.join(", "))
                }
            }
        }
        Step::UnsetDns { interface, .. } => format!("name servers of {interface} removed"),
        Step::AddRoute(route) => format!("route {}", route_sentence(route)),
        Step::DeleteRoute(route) => format!("route {} removed", route_sentence(route)),
        Step::AddRule(rule) => format!("rule {}", rule_sentence(rule)),
        Step::DeleteRule(rule) => format!("rule {} removed", rule_sentence(rule)),
        Step::SetSysctl { name, value, .. } => format!("{name} = {value}"),
        Step::HoldSysctl { interface, name, value, .. } if needs_guard(interface, name) => {
            format!("{name} = {value}, only for packets of tunnels (firewall table {})", ForwardingGuard::TABLE)
        }
        Step::HoldSysctl { name, value, .. } => format!("{name} = {value}"),
        Step::ReleaseSysctl { name, before, .. } => format!("{name} = {before}, as it was"),
        Step::AddGateway(table) => gateway_sentence(table),
        Step::DeleteGateway(table) => format!("firewall table {} deleted", table.name()),
        Step::Open(way) => opening::describe(way),
        Step::Close(way) => format!("no longer: {}", opening::describe(way)),
        Step::AddFirewall(firewall) if firewall.kill_switch.is_some() => {
            format!("firewall table {}: only traffic through {} may leave", firewall.table, firewall.interface)
        }
        Step::AddFirewall(firewall) => format!("firewall table {} protecting {}", firewall.table, firewall.interface),
        Step::DeleteFirewall(firewall) => format!("firewall table {} deleted", firewall.table),
    }
}

fn line(step: &Step) -> String {
    match step {
        Step::AddLink { interface, implementation: Implementation::Kernel } => {
            format!("ip link add dev {interface} type wireguard")
        }
        Step::AddLink { interface, .. } => format!("linerated {interface}"),
        Step::DeleteLink { interface } => format!("ip link delete dev {interface}"),
        Step::Hook { command, .. } => command.clone(),
        Step::Configure { interface } => format!("wg addconf {interface} /dev/fd/63"),
        Step::SetFwmark { interface, fwmark, .. } => format!("wg set {interface} fwmark {fwmark}"),
        Step::AddAddress { interface, address } => {
            format!("ip {} address add {address} dev {interface}", flag(AddressFamily::of_net(address)))
        }
        Step::DeleteAddress { interface, address } => {
            format!("ip {} address delete {address} dev {interface}", flag(AddressFamily::of_net(address)))
        }
        Step::SetMtu { interface, mtu, .. } => format!("ip link set mtu {mtu} dev {interface}"),
        Step::LinkUp { interface } => format!("ip link set up dev {interface}"),
        Step::SetDns { interface, manager, exclusive, dns } => match manager {
            DnsManager::Resolvconf { prefix } => {
                let exclusive = if *exclusive { " -x" } else { "" };
                format!("resolvconf -a {prefix}{interface} -m 0{exclusive}")
            }
            DnsManager::Resolved => {
                let servers: Vec<String> = dns.servers.iter().map(ToString::to_string).collect();
                format!("resolvectl dns {interface} {}", servers.join(" "))
            }
            DnsManager::File => format!("edit /etc/resolv.conf for {interface}"),
        },
        Step::UnsetDns { interface, manager } => match manager {
            DnsManager::Resolvconf { prefix } => format!("resolvconf -d {prefix}{interface} -f"),
            DnsManager::Resolved => format!("resolvectl revert {interface}"),
            DnsManager::File => format!("edit /etc/resolv.conf without {interface}"),
        },
        Step::AddRoute(route) => {
            format!("ip {} route add {}", flag(AddressFamily::of_net(&route.to)), route_arguments(route))
        }
        Step::DeleteRoute(route) => {
            format!("ip {} route delete {}", flag(AddressFamily::of_net(&route.to)), route_arguments(route))
        }
        Step::AddRule(rule) => format!("ip {} rule add {}", flag(rule.family), rule_arguments(rule)),
        Step::DeleteRule(rule) if rule.not => format!("ip {} rule delete table {}", flag(rule.family), rule.table),
        Step::DeleteRule(rule) => format!("ip {} rule delete {}", flag(rule.family), rule_arguments(rule)),
        Step::SetSysctl { name, value, .. } | Step::HoldSysctl { name, value, .. } => {
            format!("sysctl -q {name}={value}")
        }
        Step::ReleaseSysctl { name, before, .. } => format!("sysctl -q {name}={before}"),
        Step::AddGateway(table) => format!("nft 'add table {}'", table.nft_name()),
        Step::DeleteGateway(table) => format!("nft delete table {}", table.nft_name()),
        Step::Open(way) | Step::Close(way) => opening::describe(way),
        Step::AddFirewall(_) | Step::DeleteFirewall(_) => "nft -f /dev/fd/63".to_owned(),
    }
}

fn gateway_sentence(table: &GatewayTable) -> String {
    let (name, interface) = (table.name(), &table.interface);
    let mut parts = Vec::new();
    match &table.gateway {
        Some(open) if open.devices.is_empty() => parts.push("nothing is forwarded".to_owned()),
        Some(open) => {
            let devices = open.devices.join(", ");
            let back = match open.inbound {
                Inbound::Replies => "answers back",
                Inbound::All => "back",
            };
            parts.push(format!("packets pass from {interface} to {devices} and {back}"));
            if !open.masqueraded.is_empty() {
                let networks: Vec<String> = open.masqueraded.iter().map(ToString::to_string).collect();
                parts.push(format!("NAT for {}", shortened(&networks)));
            }
        }
        None => {}
    }
    if table.isolated {
        parts.push("none pass from peer to peer".to_owned());
    }
    if !table.restrictions.is_empty() {
        parts.push("some peers reach only their destinations".to_owned());
    }
    format!("firewall table {name}: {}", parts.join("; "))
}

/// The first few of a list, and how many more there are.
fn shortened(items: &[String]) -> String {
    const MAX_ITEMS: usize = 8;
    match items.len() {
        0..=MAX_ITEMS => items.join(", "),
        all => format!("{} and {} more", items[..MAX_ITEMS].join(", "), all - MAX_ITEMS),
    }
}

fn flag(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::V4 => "-4",
        AddressFamily::V6 => "-6",
    }
}

/// A route as `ip route` takes it, without what `ip` chooses itself.
fn route_arguments(route: &Route) -> String {
    let mut words = route.to.to_string();
    if let Some(via) = route.via {
        words += &format!(" via {via}");
    }
    if let Some(device) = &route.device {
        words += &format!(" dev {device}");
    }
    if route.table != crate::step::MAIN {
        words += &format!(" table {}", route.table);
    }
    let usual = if AddressFamily::of_net(&route.to) == AddressFamily::V4 { 0 } else { 1024 };
    if route.metric != usual {
        words += &format!(" metric {}", route.metric);
    }
    words
}

/// A rule as `ip rule` takes it, without the priority, which wg-quick leaves to the kernel.
fn rule_arguments(rule: &Rule) -> String {
    let mut words = Vec::new();
    if rule.not {
        words.push("not".to_owned());
    }
    words.extend(rule.to.map(|to| format!("to {to}")));
    words.extend(rule.fwmark.map(|mark| format!("fwmark {mark}")));
    words.push(format!("table {}", table(rule.table)));
    words.extend(rule.suppress_prefixlength.map(|length| format!("suppress_prefixlength {length}")));
    words.join(" ")
}

fn table(number: u32) -> String {
    if number == crate::step::MAIN { "main".to_owned() } else { number.to_string() }
}

fn route_sentence(route: &Route) -> String {
    let mut sentence = route.to.to_string();
    match (&route.device, route.via) {
        (Some(device), Some(via)) => sentence += &format!(" to {device} via {via}"),
        (Some(device), None) => sentence += &format!(" to {device}"),
        (None, _) => sentence += " unreachable",
    }
    if route.table != crate::step::MAIN {
        sentence += &format!(" in table {}", route.table);
    }
    sentence
}

fn rule_sentence(rule: &Rule) -> String {
    let mut sentence = format!("{} ({}): ", rule.priority, super::family_name(rule.family));
    if let Some(to) = rule.to {
        sentence += &format!("packets to {to} ");
    } else {
        sentence += "packets ";
    }
    match (rule.not, rule.fwmark) {
        (true, Some(mark)) => sentence += &format!("without mark {mark} "),
        (false, Some(mark)) => sentence += &format!("with mark {mark} "),
        _ => {}
    }
    sentence += &format!("use table {}", table(rule.table));
    if let Some(length) = rule.suppress_prefixlength {
        sentence += &format!(" for prefixes longer than /{length}");
    }
    sentence
}
