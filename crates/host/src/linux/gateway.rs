//! The firewall table of a gateway: its sets and rules. The number of rules does not depend on the number of peers.

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_netlink::{NetlinkError, Request};

use super::firewall::{FILTER, MANGLE, RAW};
use super::nftables::{
    ACCEPT, DROP, Element, FORWARD, Key, META_IIFNAME, META_NFPROTO, META_OIFNAME, NFPROTO_IPV4, NFPROTO_IPV6,
    PRE_ROUTING, Rule, Table, padded,
};
use crate::plan::forwarding_guard::{ForwardingGuard, Opened};
use crate::plan::gateway::{IPV4_AND_TCP, IPV6_AND_TCP, IPV6_MIN_MTU, merged, named_services, next};
use crate::ranges::MACHINE_SERVICES;
use crate::spec::{AddressRange, Inbound, Restriction};
use crate::step::{GatewayTable, OpenGateway};

/// linux/netfilter_ipv4.h, `NF_IP_PRI_NAT_SRC`: what `nft` calls srcnat.
const SOURCE_NAT: i32 = 100;

/// The sets of one address family, and their keys (`TYPE_*` in nft's datatype.h).
struct Family {
    is_v4: bool,
    protocol: u8,
    restricted: &'static str,
    destinations: &'static str,
    services: &'static str,
    named_services: &'static str,
    masqueraded: &'static str,
    clients: &'static str,
    behind_peers: &'static str,
    opened: &'static str,
    address: Key,
    pair: Key,
}

const FAMILIES: [Family; 2] = [
    Family {
        is_v4: true,
        protocol: NFPROTO_IPV4,
        restricted: "restricted4",
        destinations: "destinations4",
        services: "services4",
        named_services: "named_services4",
        masqueraded: "masqueraded4",
        clients: "clients4",
        behind_peers: "behind_peers4",
        opened: "opened4",
        address: Key { fields: &[(7, 4)], interval: true, host_order: false },
        pair: Key { fields: &[(7, 4), (7, 4)], interval: true, host_order: false },
    },
    Family {
        is_v4: false,
        protocol: NFPROTO_IPV6,
        restricted: "restricted6",
        destinations: "destinations6",
        services: "services6",
        named_services: "named_services6",
        masqueraded: "masqueraded6",
        clients: "clients6",
        behind_peers: "behind_peers6",
        opened: "opened6",
        address: Key { fields: &[(8, 16)], interval: true, host_order: false },
        pair: Key { fields: &[(8, 16), (8, 16)], interval: true, host_order: false },
    },
];

const DEVICES: &str = "gateways";
const DEVICE: Key = Key { fields: &[(41, 16)], interval: false, host_order: true };

/// Requests that put the sets, chains and rules of a gateway into the empty `table`.
pub(super) fn additions(gateway: &GatewayTable, table: &Table) -> Result<Vec<Request>, NetlinkError> {
    let mut made = Additions { table, requests: Vec::new(), sets: 0 };
    made.requests.push(table.chain("forward", FORWARD, FILTER, ACCEPT));
    let interface = padded(&gateway.interface)?;
    for family in &FAMILIES {
        made.restrict(family, &interface, &gateway.restrictions);
    }
    if gateway.gateway.is_some() {
        for family in &FAMILIES {
            made.keep_from_services(family, &interface, &gateway.restrictions);
        }
    }
    let between_peers = || Rule::default().name_is(META_IIFNAME, &interface).name_is(META_OIFNAME, &interface);
    if gateway.isolated {
        made.rule("forward", between_peers().counter().verdict(DROP));
    }
    if let Some(open) = &gateway.gateway {
        if !gateway.isolated {
            made.rule("forward", between_peers().verdict(ACCEPT));
        }
        made.open(&interface, open)?;
    }
    Ok(made.requests)
}

struct Additions<'a> {
    table: &'a Table,
    requests: Vec<Request>,
    /// How many sets there are.
    sets: u32,
}

impl Additions<'_> {
    fn rule(&mut self, chain: &str, rule: Rule) {
        self.requests.push(self.table.rule(chain, rule));
    }

    fn set(&mut self, name: &str, key: &Key, elements: &[Element]) {
        self.sets += 1;
        self.requests.push(self.table.set(name, self.sets, key));
        self.requests.extend(self.table.elements(name, elements));
    }

    /// Drops what restricted peers send elsewhere.
    fn restrict(&mut self, family: &Family, interface: &[u8], restrictions: &[Restriction]) {
        let is_of_family = |address: IpAddr| address.is_ipv4() == family.is_v4;
        let sources = restrictions.iter().flat_map(|restriction| &restriction.sources);
        let sources: Vec<AddressRange> = sources.filter(|range| is_of_family(range.first)).copied().collect();
        if sources.is_empty() {
            return;
        }
        self.set(family.restricted, &family.address, &ranges(sources));
        self.set(family.destinations, &family.pair, &pairs(family, restrictions));
        let rule = self.table.only(Rule::default().name_is(META_IIFNAME, interface), family.protocol);
        let rule = rule.source(family.is_v4).within(family.restricted);
        let rule = rule.source_and_destination(family.is_v4).outside(family.destinations);
        self.rule("forward", rule.counter().verdict(DROP));
    }

    /// Drops packets of peers to [`MACHINE_SERVICES`], unless `Destinations` names them.
    fn keep_from_services(&mut self, family: &Family, interface: &[u8], restrictions: &[Restriction]) {
        let services = MACHINE_SERVICES.iter().filter(|net| net.addr().is_ipv4() == family.is_v4);
        self.set(family.services, &family.address, &ranges(services.map(range).collect()));
        let named = pairs(family, &named_services(restrictions));
        let rule = self.table.only(Rule::default().name_is(META_IIFNAME, interface), family.protocol);
        let mut rule = rule.destination(family.is_v4).within(family.services);
        if !named.is_empty() {
            self.set(family.named_services, &family.pair, &named);
            rule = rule.source_and_destination(family.is_v4).outside(family.named_services);
        }
        self.rule("forward", rule.counter().verdict(DROP));
    }

    /// Drops packets that have a client's source address but do not come from the tunnel, before conntrack sees them.
    fn keep_sources(&mut self, interface: &[u8], open: &OpenGateway) -> Result<(), NetlinkError> {
        self.requests.push(self.table.chain("sources", PRE_ROUTING, RAW, ACCEPT));
        self.rule("sources", Rule::default().name_is(META_IIFNAME, &padded("lo")?).verdict(ACCEPT));
        self.rule("sources", Rule::default().name_is(META_IIFNAME, interface).verdict(ACCEPT));
        for family in &FAMILIES {
            for (name, nets, is_routed) in
                [(family.clients, &open.clients, false), (family.behind_peers, &open.behind_peers, true)]
            {
                let nets = nets.iter().filter(|net| net.addr().is_ipv4() == family.is_v4);
                let nets: Vec<AddressRange> = nets.map(range).collect();
                if nets.is_empty() {
                    continue;
                }
                self.set(name, &family.address, &ranges(nets));
                let rule = self.table.only(Rule::default(), family.protocol).source(family.is_v4).within(name);
                let rule = if is_routed { rule.route_to_source_is(interface) } else { rule };
                self.rule("sources", rule.counter().verdict(DROP));
            }
        }
        Ok(())
    }

    /// Lets packets pass between the tunnel and the gateway's interfaces.
    fn open(&mut self, interface: &[u8], open: &OpenGateway) -> Result<(), NetlinkError> {
        self.keep_sources(interface, open)?;
        self.set(DEVICES, &DEVICE, &names(&open.devices)?);
        let (incoming, outgoing) = (META_IIFNAME, META_OIFNAME);
        let from_tunnel = || Rule::default().name_is(incoming, interface);
        let into_tunnel = || Rule::default().name_is(outgoing, interface);
        self.rule("forward", from_tunnel().meta(outgoing).within(DEVICES).verdict(ACCEPT));
        // A port that somebody has published on this host (Docker) leads elsewhere by its own rule, and back.
        self.rule("forward", from_tunnel().of_translated_connection().verdict(ACCEPT));
        self.rule("forward", from_tunnel().counter().verdict(DROP));
        self.rule("forward", into_tunnel().of_translated_connection().of_known_connection().verdict(ACCEPT));
        let inbound = into_tunnel().meta(incoming).within(DEVICES);
        let inbound = match open.inbound {
            Inbound::Replies => inbound.of_known_connection(),
            Inbound::All => inbound,
        };
        self.rule("forward", inbound.verdict(ACCEPT));
        self.rule("forward", into_tunnel().counter().verdict(DROP));

        self.requests.push(self.table.chain("segments", FORWARD, MANGLE, ACCEPT));
        self.rule("segments", into_tunnel().opens_tcp().segment_size_of_route().limit_segments());
        // What comes from the tunnel says how long the segments may be that go back into it.
        for (family, headers, least) in [(&FAMILIES[0], IPV4_AND_TCP, 0), (&FAMILIES[1], IPV6_AND_TCP, IPV6_MIN_MTU)] {
            if let Ok(size) = u16::try_from(open.mtu.saturating_sub(headers))
                && open.mtu >= least
            {
                let rule = self.table.only(from_tunnel(), family.protocol);
                self.rule("segments", rule.opens_tcp().segment_size(size).limit_segments());
            }
        }

        if !open.masqueraded.is_empty() {
            self.requests.push(self.table.nat_chain("nat", SOURCE_NAT));
        }
        for family in &FAMILIES {
            let networks = open.masqueraded.iter().filter(|net| net.addr().is_ipv4() == family.is_v4);
            let networks: Vec<AddressRange> = networks.map(range).collect();
            if networks.is_empty() {
                continue;
            }
            self.set(family.masqueraded, &family.address, &ranges(networks));
            let rule = self.table.only(Rule::default().meta(outgoing).within(DEVICES), family.protocol);
            self.rule("nat", rule.source(family.is_v4).within(family.masqueraded).masquerade());
        }
        Ok(())
    }
}

/// Requests that put the sets, chains and rules of the [`ForwardingGuard`] into the empty `table`.
pub(super) fn guard_additions(guard: &ForwardingGuard, table: &Table) -> Result<Vec<Request>, NetlinkError> {
    let mut made = Additions { table, requests: Vec::new(), sets: 0 };
    made.requests.push(table.chain("forward", FORWARD, FILTER, ACCEPT));
    made.set(TUNNELS, &DEVICE, &names(&guard.tunnels)?);
    // Each tunnel's own table filters packets from and into it.
    for key in [META_IIFNAME, META_OIFNAME] {
        made.rule("forward", Rule::default().meta(key).within(TUNNELS).verdict(ACCEPT));
    }
    made.rule("forward", Rule::default().of_known_connection().verdict(ACCEPT));
    made.rule("forward", Rule::default().of_translated_connection().verdict(ACCEPT));
    for (family, opened) in FAMILIES.iter().zip([&guard.opened_v4, &guard.opened_v6]) {
        let rule = Rule::default().meta(META_NFPROTO).equals(&[family.protocol]);
        let rule = match opened {
            Opened::Interfaces(devices) if devices.is_empty() => continue,
            Opened::Interfaces(devices) => {
                made.set(family.opened, &DEVICE, &names(devices)?);
                rule.meta(META_IIFNAME).within(family.opened)
            }
            Opened::All => rule,
        };
        made.rule("forward", rule.counter().verdict(DROP));
    }
    Ok(made.requests)
}

const TUNNELS: &str = "tunnels";

fn names(devices: &[String]) -> Result<Vec<Element>, NetlinkError> {
    devices.iter().map(|device| Ok(Element::key(&padded(device)?))).collect()
}

/// The set elements for all pairs of a source and a destination.
fn pairs(family: &Family, restrictions: &[Restriction]) -> Vec<Element> {
    let is_of_family = |address: IpAddr| address.is_ipv4() == family.is_v4;
    let mut pairs = Vec::new();
    for Restriction { sources, destinations } in restrictions {
        for source in sources.iter().filter(|source| is_of_family(source.first)) {
            for to in destinations.iter().filter(|to| is_of_family(to.addr())) {
                let first = [octets(source.first), octets(to.network())].concat();
                pairs.push(Element::ranges(&first, &[octets(source.last), octets(to.broadcast())].concat()));
            }
        }
    }
    pairs
}

fn range(net: &IpNet) -> AddressRange {
    AddressRange { first: net.network(), last: net.broadcast() }
}

/// Ranges as the elements of a set, neighbours as one. As `nft` does, the addresses before the first are named as a
/// range that ends.
fn ranges(ranges: Vec<AddressRange>) -> Vec<Element> {
    let merged = merged(ranges);
    let mut elements = Vec::new();
    if let Some(zero) = merged.first().map(|range| vec![0; octets(range.first).len()])
        && merged.first().is_some_and(|range| octets(range.first) != zero)
    {
        elements.push(Element::end(&zero));
    }
    for AddressRange { first, last } in merged {
        elements.push(Element::key(&octets(first)));
        // A range up to the last address of all has no end.
        elements.extend(next(last).map(|after| Element::end(&octets(after))));
    }
    elements
}

fn octets(address: IpAddr) -> Vec<u8> {
    linerate_netlink::octets(address)
}
