//! What can be measured: each scenario is a network, the families of addresses inside and outside the tunnel,
//! and a load. Names are `NETWORK/LOAD`, so `pair` or `pair/tcp*` selects several.

use std::time::Duration;

use crate::load::Traffic;
use crate::relay::Impairments;
use crate::subject::{Kind, Subject};
use crate::topology::{AddressFamily, Beside, Topology};

/// One measurement that every subject takes.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// `pair/tcp-1`.
    pub name: String,
    /// What it measures, in a line.
    pub about: &'static str,
    /// The hosts.
    pub topology: Topology,
    /// What the tunnel's own datagrams travel by.
    pub outside: AddressFamily,
    /// What the load travels by.
    pub inside: AddressFamily,
    /// What is done.
    pub load: Load,
}

/// What is done in a scenario.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// Traffic as fast as it goes.
    Traffic(Traffic),
    /// Probes with nothing else under way.
    Ping,
    /// Probes during traffic.
    PingUnder(Traffic),
    /// That many peers in one daemon, and one TCP stream to one of them.
    Peers(u32),
    /// From nothing to the first answer.
    Start,
    /// Nothing at all, for so long.
    Idle(Duration),
}

impl Load {
    /// Whether one round says it all: slow, and the same every time.
    #[must_use]
    pub fn is_done_once(&self) -> bool {
        matches!(self, Self::Idle(_) | Self::Peers(10_000..))
    }
}

/// What a datagram of a large packet carries through a tunnel of MTU 1420 over either family: the size that
/// field measurements use.
const LARGE: u16 = 1372;

/// As small as a datagram that does something gets.
pub const SMALL: u16 = 64;

/// The number of streams of a public field report.
pub const MANY_STREAMS: u16 = 105;

const ONE: Traffic = Traffic::Tcp { streams: 1, reverse: false };

/// A link across a country: 20 ms there and 20 back, a little of everything.
const COUNTRY: Impairments = Impairments {
    loss: 0.001,
    duplicate: 0.0,
    reorder: 0.001,
    delay: Duration::from_millis(20),
    jitter: Duration::from_millis(1),
    mtu: None,
};

/// A path that takes no datagram of a tunnel with the usual MTU in one piece.
const NARROW: Impairments = Impairments {
    loss: 0.0,
    duplicate: 0.0,
    reorder: 0.0,
    delay: Duration::from_millis(1),
    jitter: Duration::ZERO,
    mtu: Some(1400),
};

/// The scenarios of `--quick`.
const QUICK: [&str; 6] = ["pair/tcp-1", "pair/tcp-105", "pair/udp-large", "pair/udp-imix", "pair/ping", "pair/start"];

/// All scenarios, in the order in which they are measured.
#[must_use]
pub fn catalogue() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(pair());
    all.extend(routed("routed", "through a tunnel to a gateway, which forwards and filters", false, Beside::Nothing));
    all.extend(routed("routed-nat", "the same with NAT", true, Beside::Nothing));
    all.extend(routed("routed-rules", "NAT, and 1,000 rules of others that match nothing", true, Beside::Rules));
    all.extend(routed("routed-policies", "NAT, and IPsec policies that match nothing", true, Beside::Policies));
    all.extend(wan());
    all.extend(plain_nic());
    all
}

/// The scenarios that one of `patterns` selects, in their order: a name, a network, or a pattern with `*`.
///
/// # Errors
///
/// The first pattern that selects nothing.
pub fn select(patterns: &[String], quick: bool) -> Result<Vec<Scenario>, String> {
    let all = catalogue();
    if patterns.is_empty() {
        return Ok(all.into_iter().filter(|one| !quick || QUICK.contains(&one.name.as_str())).collect());
    }
    if let Some(useless) = patterns.iter().find(|pattern| !all.iter().any(|one| one.is_selected(pattern))) {
        return Err(useless.clone());
    }
    Ok(all.into_iter().filter(|one| patterns.iter().any(|pattern| one.is_selected(pattern))).collect())
}

impl Scenario {
    /// Whether this scenario applies to a subject of this kind: the bare wire has no start.
    #[must_use]
    pub fn has_part_for(&self, subject: &Subject) -> bool {
        let is_wire = subject.kind == Kind::Wire;
        match self.load {
            Load::Traffic(_) | Load::Ping | Load::PingUnder(_) => true,
            Load::Start => !is_wire,
            // The wake-ups of the kernel's tunnels are in no process that could be counted.
            Load::Idle(_) => matches!(subject.kind, Kind::Daemon { .. } | Kind::Commands(_)),
            // They are added through the configuration socket of a daemon.
            Load::Peers(_) => matches!(subject.kind, Kind::Daemon { .. }),
        }
    }

    fn is_selected(&self, pattern: &str) -> bool {
        let network = self.name.split('/').next();
        network == Some(pattern) || matches(pattern, &self.name)
    }

    fn new(network: &str, topology: &Topology, load: &str, about: &'static str, what: Load) -> Self {
        Self {
            name: format!("{network}/{load}"),
            about,
            topology: topology.clone(),
            outside: AddressFamily::V4,
            inside: AddressFamily::V4,
            load: what,
        }
    }

    fn with(mut self, outside: AddressFamily, inside: AddressFamily) -> Self {
        (self.outside, self.inside) = (outside, inside);
        self
    }
}

/// Whether the tunnel of a scenario ends at a gateway, and the load goes on to a server.
#[must_use]
pub fn is_routed(name: &str) -> bool {
    let network = name.split('/').next().unwrap_or_default();
    network == "routed" || network.starts_with("routed-")
}

/// The scenarios that one by this name is also compared with, and what they are in tables: the same load through a
/// tunnel that ends at the server, and the same load over IPv4.
#[must_use]
pub fn references(name: &str) -> Vec<(&'static str, String)> {
    let mut references = Vec::new();
    let Some((network, load)) = name.split_once('/') else { return references };
    if is_routed(name) {
        references.push(("unrouted", format!("pair/{load}")));
    }
    if let Some(over_ipv4) = load.strip_suffix("-ipv6").filter(|over_ipv4| !over_ipv4.ends_with("-over")) {
        references.push(("IPv4", format!("{network}/{over_ipv4}")));
    }
    references
}

/// Whether `name` is what `pattern` says, in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            (0..=tail.len()).filter(|&at| tail.is_char_boundary(at)).any(|at| matches(rest, &tail[at..]))
        }),
    }
}

fn pair() -> Vec<Scenario> {
    let one = |load: &str, about, what| Scenario::new("pair", &Topology::Pair, load, about, what);
    let tcp = |streams, reverse| Load::Traffic(Traffic::Tcp { streams, reverse });
    let udp = |payload, segmented| Load::Traffic(Traffic::Datagrams { payload, segmented });
    vec![
        one("tcp-1", "one TCP stream", tcp(1, false)),
        one("tcp-1-reverse", "one TCP stream, from the server", tcp(1, true)),
        one("tcp-4", "four TCP streams", tcp(4, false)),
        one("tcp-4-ipv6", "four TCP streams over IPv6 in the tunnel", tcp(4, false))
            .with(AddressFamily::V4, AddressFamily::V6),
        one("tcp-105", "105 TCP streams", tcp(MANY_STREAMS, false)),
        one("tcp-105-reverse", "105 TCP streams, from the server", tcp(MANY_STREAMS, true)),
        one("tcp-1-ipv6", "one TCP stream over IPv6 in the tunnel", tcp(1, false))
            .with(AddressFamily::V4, AddressFamily::V6),
        one("tcp-1-over-ipv6", "one TCP stream, the tunnel over IPv6", tcp(1, false))
            .with(AddressFamily::V6, AddressFamily::V4),
        one("udp-large", "UDP datagrams of 1372 bytes, one by one", udp(LARGE, false)),
        one("udp-large-segmented", "the same, handed to the kernel in GSO batches", udp(LARGE, true)),
        one("udp-64", "UDP datagrams of 64 bytes, one by one", udp(SMALL, false)),
        one("udp-64-segmented", "the same, handed to the kernel in GSO batches", udp(SMALL, true)),
        one(
            "udp-imix",
            "UDP datagrams of 12, 548 and 1392 bytes (IMIX, 7:4:1), one by one",
            Load::Traffic(Traffic::Mix),
        ),
        one("ping", "round trips at rest", Load::Ping),
        one("ping-loaded", "round trips during one TCP stream", Load::PingUnder(ONE)),
        one("peers-1", "one TCP stream to the only peer", Load::Peers(1)),
        one("peers-100", "one TCP stream to one of 100 peers", Load::Peers(100)),
        one("peers-10000", "one TCP stream to one of 10,000 peers", Load::Peers(10_000)),
        one("peers-100000", "one TCP stream to one of 100,000 peers", Load::Peers(100_000)),
        one("start", "from nothing to the first answer", Load::Start),
        one("idle", "a minute of nothing", Load::Idle(Duration::from_secs(60))),
    ]
}

fn routed(network: &str, about: &'static str, nat: bool, beside: Beside) -> Vec<Scenario> {
    let topology = Topology::Routed { nat, beside };
    let tcp = |streams| Load::Traffic(Traffic::Tcp { streams, reverse: false });
    let one = |load, streams| Scenario::new(network, &topology, load, about, tcp(streams));
    vec![
        one("tcp-1", 1),
        one("tcp-1-ipv6", 1).with(AddressFamily::V4, AddressFamily::V6),
        one("tcp-4", 4),
        one("tcp-4-ipv6", 4).with(AddressFamily::V4, AddressFamily::V6),
    ]
}

fn wan() -> Vec<Scenario> {
    let country = Topology::Wan(COUNTRY);
    let narrow = Topology::Wan(NARROW);
    vec![
        Scenario::new("wan", &country, "tcp-1", "20 ms each way, 0.1 % loss and reordering", Load::Traffic(ONE)),
        Scenario::new("wan", &country, "ping", "20 ms each way, 0.1 % loss and reordering", Load::Ping),
        Scenario::new("wan-narrow", &narrow, "tcp-1", "a path MTU of 1400", Load::Traffic(ONE)),
    ]
}

fn plain_nic() -> Vec<Scenario> {
    let topology = Topology::PlainNic;
    let udp = Traffic::Datagrams { payload: LARGE, segmented: false };
    let one = |load, about, what| Scenario::new("plain-nic", &topology, load, about, what);
    vec![
        one("tcp-1", "one TCP stream, links without offloads", Load::Traffic(ONE)),
        one("tcp-105", "105 TCP streams, links without offloads", {
            Load::Traffic(Traffic::Tcp { streams: MANY_STREAMS, reverse: false })
        }),
        one("udp-large", "UDP datagrams of 1372 bytes, links without offloads", Load::Traffic(udp)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_what_is_quick_exists() {
        let all = catalogue();
        let mut names: Vec<_> = all.iter().map(|one| one.name.clone()).collect();
        assert!(QUICK.iter().all(|quick| names.iter().any(|name| name == quick)));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn a_name_a_network_or_a_pattern_selects() {
        let names = |patterns: &[&str]| -> Vec<String> {
            let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.into()).collect();
            select(&patterns, false).unwrap().into_iter().map(|one| one.name).collect()
        };
        assert_eq!(names(&["pair/ping"]), ["pair/ping"]);
        assert_eq!(names(&["wan"]), ["wan/tcp-1", "wan/ping"]);
        assert_eq!(names(&["pair/peers-*"]).len(), 4);
        assert_eq!(names(&["*/udp-large", "pair/ping"]), ["pair/udp-large", "pair/ping", "plain-nic/udp-large"]);
        assert_eq!(names(&[]).len(), catalogue().len());
    }

    #[test]
    fn a_pattern_that_selects_nothing_is_named() {
        let patterns = ["pair/ping".to_owned(), "pear/*".to_owned()];
        assert_eq!(select(&patterns, false).unwrap_err(), "pear/*");
    }

    #[test]
    fn every_reference_is_a_scenario_that_differs_in_what_its_label_says() {
        let all = catalogue();
        let find = |name: &str| all.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("there is no {name}"));
        let mut labels = Vec::new();
        for own in &all {
            for (label, name) in references(&own.name) {
                let other = find(&name);
                assert_eq!(own.load, other.load);
                match label {
                    "unrouted" => assert_eq!((&other.topology, own.inside), (&Topology::Pair, other.inside)),
                    _ => assert_eq!((&own.topology, other.inside), (&other.topology, AddressFamily::V4)),
                }
                labels.push(label);
            }
        }
        assert_eq!(labels.iter().filter(|label| **label == "unrouted").count(), 16);
        assert_eq!(labels.iter().filter(|label| **label == "IPv4").count(), 10);
    }

    #[test]
    fn a_star_stands_for_anything_and_nothing() {
        assert!(matches("a*", "a") && matches("*", "") && matches("a*c", "abbc") && matches("*b*", "abc"));
        assert!(!matches("a*c", "acb") && !matches("", "a"));
    }
}
