//! What a gateway needs: a firewall table, and the sysctls that have the kernel forward.
//!
//! Forwarding is switched on for the interfaces between which packets pass, not for the whole host: IPv4 asks the
//! interface on which a packet comes (`ip_route_input_slow` in net/ipv4/route.c), IPv6 does since Linux 6.17
//! (`force_forwarding`). Older kernels forward IPv6 everywhere or nowhere, and then links ignore router advertisements
//! unless their `accept_ra` is 2. The table comes before forwarding: at no time does more pass than it allows.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use linerate_control::interface::InterfaceName;

use super::model::PROTOCOL_KERNEL;
use super::routes::PROTOCOL_RA;
use super::{Plan, PlanError, Warning, addresses, foreign};
use crate::ranges::{MACHINE_SERVICES, is_link_local, is_local};
use crate::spec::{AddressRange, Forwarding, Gateway, HostSpec, Restriction};
use crate::state::{HostState, Link};
use crate::step::{AddressFamily, GatewayTable, MAIN, OpenGateway, Opening, Route, Step};

/// The headers of IP and TCP without options, by which segments are smaller than packets.
pub(crate) const IPV4_AND_TCP: u32 = 40;
pub(crate) const IPV6_AND_TCP: u32 = 60;

/// The smallest MTU for IPv6 (RFC 8200, section 5).
pub(crate) const IPV6_MIN_MTU: u32 = 1280;

/// Replaces `Gateway = auto` by the interfaces of the host's default routes ([`Uplinks`]), and returns warnings. While
/// the host has no default route, a tunnel that is up keeps the interfaces it had `before`: a short loss of the default
/// route must not cut off clients.
pub fn resolve(spec: &mut HostSpec, state: &HostState, before: Option<&Gateway>) -> Vec<Warning> {
    if spec.forwarding.gateway != Gateway::Auto {
        return Vec::new();
    }
    let Uplinks { devices, unconfirmed } = Uplinks::of(&spec.interface, state, before);
    let kept = before.filter(|before| devices.is_empty() && matches!(before, Gateway::Interfaces(_)));
    let mut warnings: Vec<Warning> = unconfirmed.into_iter().map(Warning::from).collect();
    let mut found = Vec::new();
    for device in devices {
        match device.parse::<InterfaceName>() {
            Ok(name) => found.push(name),
            Err(error) => warnings.push(Warning::Other {
                sentence: format!("Gateway = auto: nothing is forwarded to the interface of a default route: {error}"),
            }),
        }
    }
    spec.forwarding.gateway = kept.cloned().unwrap_or(Gateway::Interfaces(found));
    warnings
}

/// The restrictions of peers, from the prefixes of all peers with what `Destinations` says for each: one for all peers of
/// the same destinations. An address belongs to the peer with the longest prefix that contains it, as for packets.
pub fn restrictions<'a>(peers: impl IntoIterator<Item = (&'a [IpNet], &'a [IpNet])>) -> Vec<Restriction> {
    let peers: Vec<(&[IpNet], &[IpNet])> = peers.into_iter().collect();
    if peers.iter().all(|(_, destinations)| destinations.is_empty()) {
        return Vec::new();
    }
    let mut restrictions = Restrictions::default();
    let of_peers: Vec<Option<usize>> = peers
        .iter()
        .map(|(_, destinations)| {
            (!destinations.is_empty()).then(|| restrictions.to(IpNet::aggregate(&destinations.to_vec())))
        })
        .collect();
    let mut prefixes: Vec<(IpNet, usize)> = Vec::new();
    for (peer, (allowed, _)) in peers.iter().enumerate() {
        prefixes.extend(allowed.iter().map(|net| (*net, peer)));
    }
    prefixes.sort_by_key(|(net, _)| (net.addr(), net.prefix_len()));
    let (v4, v6): (Vec<_>, Vec<_>) = prefixes.into_iter().partition(|(net, _)| net.addr().is_ipv4());
    for (range, peer) in owned_ranges(&v4).into_iter().chain(owned_ranges(&v6)) {
        if let Some(restriction) = of_peers[peer] {
            restrictions.all[restriction].sources.push(range);
        }
    }
    restrictions.merged()
}

/// Reduces restrictions to the destinations that name one of [`MACHINE_SERVICES`]. A prefix that merely contains a
/// service, such as `0.0.0.0/0`, does not name it.
pub(crate) fn named_services(restrictions: &[Restriction]) -> Vec<Restriction> {
    let is_named = |to: &&IpNet| MACHINE_SERVICES.iter().any(|service| service.contains(*to));
    let named = restrictions.iter().map(|Restriction { sources, destinations }| Restriction {
        sources: sources.clone(),
        destinations: destinations.iter().filter(is_named).copied().collect(),
    });
    named.filter(|one| !one.destinations.is_empty()).collect()
}

/// What lets those packets pass that `old` and `new` both let pass: for as long as nobody knows of which of the two the
/// peers are.
pub fn restrictions_of_both(old: &[Restriction], new: &[Restriction]) -> Vec<Restriction> {
    // What only one of them has concerns addresses that the other says nothing of.
    let has_all = |all: &[Restriction], of: &[Restriction]| {
        let all: HashSet<&Restriction> = all.iter().collect();
        of.iter().all(|one| all.contains(one))
    };
    if let Some((larger, _)) = [(new, old), (old, new)].into_iter().find(|(all, of)| has_all(all, of)) {
        return larger.to_vec();
    }
    let mut restrictions = Restrictions::default();
    let mut known: HashMap<[Option<usize>; 2], usize> = HashMap::new();
    for (range, of) in overlaid([old, new]) {
        let restriction = *known.entry(of).or_insert_with(|| {
            let [of_old, of_new] = [of[0].map(|index| &old[index]), of[1].map(|index| &new[index])];
            restrictions.to(match (of_old, of_new) {
                (Some(old), Some(new)) => common(&old.destinations, &new.destinations),
                (one, other) => one.or(other).map(|one| one.destinations.clone()).unwrap_or_default(),
            })
        });
        restrictions.all[restriction].sources.push(range);
    }
    let both = restrictions.merged();
    // Their order says nothing. With that of one of the two, a table that stays is not made again.
    let sorted = |all: &[Restriction]| {
        let mut sorted: Vec<Restriction> = all.to_vec();
        sorted.sort_by(|one, other| one.destinations.cmp(&other.destinations));
        sorted
    };
    let sorted_both = sorted(&both);
    let same = [new, old].into_iter().find(|one| sorted(one) == sorted_both);
    same.map_or(both, <[_]>::to_vec)
}

/// The addresses that at least one of two has, cut where a range of either begins or ends, with the index in each.
fn overlaid(sides: [&[Restriction]; 2]) -> Vec<(AddressRange, [Option<usize>; 2])> {
    let sides = sides.map(|restrictions| {
        let mut ranges: Vec<(AddressRange, usize)> = Vec::new();
        for (index, restriction) in restrictions.iter().enumerate() {
            ranges.extend(restriction.sources.iter().map(|range| (*range, index)));
        }
        ranges.sort();
        ranges
    });
    let bounds = sides.iter().flatten().flat_map(|(range, _)| [Some(range.first), next(range.last)]);
    let mut firsts: Vec<IpAddr> = bounds.flatten().collect();
    firsts.sort();
    firsts.dedup();
    let mut overlaid = Vec::new();
    for (index, &first) in firsts.iter().enumerate() {
        let at = sides.each_ref().map(|ranges| {
            let of = ranges.get(ranges.partition_point(|(range, _)| range.last < first));
            of.filter(|(range, _)| range.first <= first)
        });
        let Some(last) = at.iter().flatten().map(|(range, _)| range.last).min() else { continue };
        let last = match firsts.get(index + 1) {
            Some(&next) if next <= last => address(number(next) - 1, next.is_ipv4()),
            _ => last,
        };
        overlaid.push((AddressRange { first, last }, at.map(|of| of.map(|(_, index)| *index))));
    }
    overlaid
}

/// The addresses that are in prefixes of both; those of one do not overlap.
fn common(one: &[IpNet], other: &[IpNet]) -> Vec<IpNet> {
    let within = |inner: &[IpNet], outer: &[IpNet]| {
        let is_within = |net: &&IpNet| outer.iter().any(|outer| outer.contains(*net));
        inner.iter().filter(is_within).copied().collect::<Vec<_>>()
    };
    IpNet::aggregate(&[within(one, other), within(other, one)].concat())
}

/// Restrictions that are being made, one for all peers of the same destinations.
#[derive(Default)]
struct Restrictions {
    all: Vec<Restriction>,
    known: HashMap<Vec<IpNet>, usize>,
}

impl Restrictions {
    /// The index of that with these destinations.
    fn to(&mut self, destinations: Vec<IpNet>) -> usize {
        let Self { all, known } = self;
        *known.entry(destinations).or_insert_with_key(|destinations| {
            all.push(Restriction { sources: Vec::new(), destinations: destinations.clone() });
            all.len() - 1
        })
    }

    /// Those that concern anybody, neighbouring sources as one.
    fn merged(self) -> Vec<Restriction> {
        let restrictions = self.all.into_iter().filter(|one| !one.sources.is_empty());
        restrictions.map(|one| Restriction { sources: merged(one.sources), ..one }).collect()
    }
}

/// Which addresses belong to whom: prefixes of one family, sorted, with their owners, as ranges that do not overlap.
fn owned_ranges(prefixes: &[(IpNet, usize)]) -> Vec<(AddressRange, usize)> {
    let mut ranges = Vec::new();
    let mut open: Vec<(u128, usize)> = Vec::new();
    // The first address that no range has yet; the last address of all has no successor.
    let mut next = Some(0);
    let is_v4 = prefixes.first().is_some_and(|(net, _)| net.addr().is_ipv4());
    let mut emit = |next: Option<u128>, last: u128, owner: usize| {
        let Some(first) = next.filter(|next| *next <= last) else { return next };
        ranges.push((AddressRange { first: address(first, is_v4), last: address(last, is_v4) }, owner));
        last.checked_add(1)
    };
    for (net, owner) in prefixes {
        let (first, last) = (number(net.network()), number(net.broadcast()));
        // Prefixes nest or are disjoint: those that end before this one begins are complete.
        while let Some((end, of)) = open.pop_if(|(end, _)| *end < first) {
            next = emit(next, end, of);
        }
        if let (Some((_, of)), Some(before)) = (open.last(), first.checked_sub(1)) {
            next = emit(next, before, *of);
        }
        next = next.map(|next| next.max(first));
        open.push((last, *owner));
    }
    while let Some((end, of)) = open.pop() {
        next = emit(next, end, of);
    }
    ranges
}

/// Ranges that do not overlap, sorted, neighbours as one.
pub(crate) fn merged(mut ranges: Vec<AddressRange>) -> Vec<AddressRange> {
    ranges.sort();
    let mut merged: Vec<AddressRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(before) if next(before.last) == Some(range.first) => before.last = range.last,
            _ => merged.push(range),
        }
    }
    merged
}

/// The address after this one.
pub(crate) fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => address.to_bits().checked_add(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(address) => address.to_bits().checked_add(1).map(|next| IpAddr::V6(next.into())),
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address(number: u128, is_v4: bool) -> IpAddr {
    match u32::try_from(number) {
        Ok(number) if is_v4 => IpAddr::V4(number.into()),
        _ => IpAddr::V6(number.into()),
    }
}

/// The table. It comes before the link is up: on a host that forwards already, nothing passes without it.
///
/// # Errors
/// The kernel has no nf_tables, and the file asks for what needs it.
pub(super) fn table(
    spec: &HostSpec,
    state: &HostState,
    mtu: u32,
    disabled: &[(AddressFamily, String)],
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let Forwarding { gateway, isolated, restrictions, .. } = &spec.forwarding;
    if *gateway == Gateway::Off && !isolated && restrictions.is_empty() {
        if spec.forwarding.masquerade != Default::default() {
            plan.warn("Masquerade has no effect without Gateway".to_owned());
        }
        return Ok(());
    }
    if !state.nftables {
        return Err(PlanError(
            "Gateway, ClientIsolation and Destinations need nf_tables, which this kernel lacks".to_owned(),
        ));
    }
    let open = devices(spec, state).map(|devices| {
        let Pool { clients, behind_peers } = Pool::of(spec, state);
        let masqueraded = masqueraded(spec, disabled);
        OpenGateway { devices, inbound: spec.forwarding.inbound, masqueraded, clients, behind_peers, mtu }
    });
    plan.steps.push(Step::AddGateway(GatewayTable {
        interface: spec.interface.clone(),
        gateway: open,
        isolated: *isolated,
        restrictions: restrictions.clone(),
    }));
    Ok(())
}

/// The sysctls, and what else it takes that packets are forwarded.
pub(super) fn forwarding(spec: &HostSpec, state: &HostState, disabled: &[(AddressFamily, String)], plan: &mut Plan) {
    let Some(devices) = devices(spec, state) else { return };
    warn_of_devices(spec, state, &devices, plan);
    warn_of_neighbours(spec, state, &devices, disabled, plan);
    sysctls(spec, state, &devices, disabled, plan);
    foreign::plan(spec, state, &devices, plan);
}

/// The table without rules, to delete it by its name.
pub fn bare_table(interface: &str) -> GatewayTable {
    let interface = interface.to_owned();
    GatewayTable { interface, gateway: None, isolated: false, restrictions: Vec::new() }
}

/// What is opened for the tunnel in firewalls of others, as their rules and the file say.
pub(super) fn openings_there(spec: &HostSpec, state: &HostState) -> Vec<Opening> {
    let devices = devices(spec, state).unwrap_or_default();
    let needed = foreign::needed(spec, state, &devices);
    needed.into_iter().filter(|opening| state.openings.contains(&opening.id())).collect()
}

/// The interfaces of the gateway, sorted; none if there is no gateway.
fn devices(spec: &HostSpec, state: &HostState) -> Option<Vec<String>> {
    let mut devices = match &spec.forwarding.gateway {
        Gateway::Off => return None,
        Gateway::Auto => Uplinks::of(&spec.interface, state, None).devices,
        Gateway::Interfaces(names) => names.iter().map(ToString::to_string).collect(),
    };
    devices.sort();
    devices.dedup();
    Some(devices)
}

/// The interfaces that `Gateway = auto` stands for: those of the best default route of each family, except the tunnel's
/// own.
///
/// Any host on a link can give the link an IPv6 default route by a router advertisement: as a router, or by announcing
/// the on-link prefix `::/0`, which the kernel adds as its own route (`RTPROT_KERNEL`). So an advertisement alone does
/// not make a link an uplink: the link needs another default route as well, or must be one of the uplinks `before`.
/// While all default routes of the host are advertised on a single link, there are two exceptions. The link is accepted
/// when a tunnel comes up, because the administrator trusts the link by running `up`. It is also accepted when the host
/// has no other link except tunnels, because no other link can be the uplink.
#[derive(Default)]
pub(super) struct Uplinks {
    pub(super) devices: Vec<String>,
    /// Default routes that only an advertisement announces. They are not used.
    unconfirmed: Vec<Unconfirmed>,
}

/// A default route that only a router advertisement announces.
struct Unconfirmed {
    device: String,
    router: Option<IpAddr>,
}

impl From<Unconfirmed> for Warning {
    fn from(Unconfirmed { device, router }: Unconfirmed) -> Self {
        let router = router.map_or_else(|| "a router".to_owned(), |router| router.to_string());
        Self::Advertisement { device, router }
    }
}

impl Uplinks {
    pub(super) fn of(own: &str, state: &HostState, before: Option<&Gateway>) -> Self {
        let defaults = || {
            let of_main = state.routes.iter().filter(|route| route.table == MAIN && route.to.prefix_len() == 0);
            let others = of_main.filter_map(|route| Some((route, route.device.as_ref()?)));
            others.filter(|(_, device)| *device != own && *device != "lo")
        };
        let mut uplinks = Self::default();
        for family in [AddressFamily::V4, AddressFamily::V6] {
            let confirmed =
                || defaults().filter(|(route, _)| AddressFamily::of_net(&route.to) == family && !is_advertised(route));
            let Some(best) = confirmed().map(|(route, _)| route.metric).min() else { continue };
            let devices = confirmed().filter(|(route, _)| route.metric == best).map(|(_, device)| device.clone());
            uplinks.devices.extend(devices);
        }
        // `state.routes` has only the first next hop of a multipath route.
        if uplinks.devices.iter().any(|device| state.multipath_defaults.contains(device)) {
            let others = state.multipath_defaults.iter().filter(|device| *device != own && *device != "lo");
            uplinks.devices.extend(others.cloned());
        }
        let mut advertised: Vec<(&String, Option<IpAddr>)> = defaults()
            .filter(|(route, device)| is_advertised(route) && !uplinks.devices.contains(device))
            .map(|(route, device)| (device, route.via))
            .collect();
        advertised.sort();
        advertised.dedup_by_key(|(device, _)| *device);
        let is_only_one = uplinks.devices.is_empty() && advertised.len() == 1;
        let is_trusted = |device: &str| before.is_none() || is_only_link(own, device, state);
        let was_used = |device: &str| matches!(before, Some(Gateway::Interfaces(names)) if names.iter().any(|name| name.as_str() == device));
        for (device, router) in advertised {
            match (is_only_one && is_trusted(device)) || was_used(device) {
                true => uplinks.devices.push(device.clone()),
                false => uplinks.unconfirmed.push(Unconfirmed { device: device.clone(), router }),
            }
        }
        uplinks.devices.sort();
        uplinks.devices.dedup();
        uplinks
    }
}

/// Whether the host has no other link except tunnels. A link that is down counts: it may be an uplink later.
fn is_only_link(own: &str, device: &str, state: &HostState) -> bool {
    let mut others = state.links.iter().filter(|link| ![own, device, "lo"].contains(&&*link.name));
    others.all(|link| link.wireguard || link.tun)
}

/// Whether a router advertisement may have made this default route.
fn is_advertised(route: &Route) -> bool {
    AddressFamily::of_net(&route.to) == AddressFamily::V6 && [PROTOCOL_KERNEL, PROTOCOL_RA].contains(&route.protocol)
}

fn warn_of_devices(spec: &HostSpec, state: &HostState, devices: &[String], plan: &mut Plan) {
    let interface = &spec.interface;
    if devices.is_empty() {
        plan.warn(
            "Gateway = auto: this host has no default route, so nothing is forwarded until it has one".to_owned(),
        );
    }
    for device in devices.iter().filter(|device| state.link(device).is_none()) {
        let uplinks: Vec<&str> = state
            .routes
            .iter()
            .filter(|route| route.table == MAIN && route.to.prefix_len() == 0)
            .filter_map(|route| route.device.as_deref().filter(|device| *device != interface.as_str()))
            .collect();
        let advice = match uplinks.first() {
            Some(uplink) if !devices.iter().any(|device| uplinks.contains(&&**device)) => {
                format!(". The default route is by {uplink}: with `Gateway = auto` clients reach the internet by it")
            }
            _ => String::new(),
        };
        plan.warn(format!(
            "Gateway: there is no interface {device}; packets from it are forwarded only if {interface} comes up after \
             it{advice}"
        ));
    }
}

/// Warns where others on a link of the gateway look for peers on that link itself, because their addresses are of its
/// network: nobody there answers for them.
fn warn_of_neighbours(
    spec: &HostSpec,
    state: &HostState,
    devices: &[String],
    disabled: &[(AddressFamily, String)],
    plan: &mut Plan,
) {
    let masqueraded = spec.forwarding.masquerade;
    let on_link: Vec<(&IpNet, &String)> = state
        .routes
        .iter()
        .filter(|route| route.table == MAIN && route.via.is_none() && route.to.prefix_len() > 0)
        .filter_map(|route| Some((&route.to, route.device.as_ref().filter(|device| devices.contains(device))?)))
        .collect();
    for (family, is_translated, masquerade, answer) in [
        (AddressFamily::V4, masqueraded.ipv4, "ipv4", "net.ipv4.conf.*.proxy_arp"),
        (AddressFamily::V6, masqueraded.ipv6, "ipv6", "ndppd"),
    ] {
        let mut networks = spec
            .addresses
            .iter()
            .chain(&spec.allowed_ips)
            .map(IpNet::trunc)
            .filter(|net| AddressFamily::of_net(net) == family && net.prefix_len() > 0 && !is_link_local(net));
        let found =
            networks.find_map(|net| on_link.iter().find(|(link, _)| link.contains(&net)).map(|found| (net, found)));
        if let Some((net, (link, device))) =
            found.filter(|(net, _)| !is_translated && !addresses::is_disabled(disabled, net))
        {
            plan.warn(format!(
                "Gateway: {net} is part of {link}, which is on the link of {device}: hosts there do not look for it \
                 behind this one, so answers get lost. Set `Masquerade = {masquerade}`, have a network of its own \
                 routed to this host, or have it answer for the tunnel's addresses on {device} ({answer})"
            ));
        }
    }
}

/// Source addresses that are valid only in packets from the tunnel.
///
/// On other interfaces they are forged. The gateway would masquerade such a packet, and the connection that it opens
/// would let an accomplice's packets into the tunnel despite `Inbound = replies`.
#[derive(Default)]
struct Pool {
    /// Networks of the interface and single addresses of peers. They belong to the tunnel even while it has no
    /// interface because its daemon has died.
    clients: Vec<IpNet>,
    /// Other networks behind peers. More specific routes may lead to parts of them outside the tunnel.
    behind_peers: Vec<IpNet>,
}

impl Pool {
    fn of(spec: &HostSpec, state: &HostState) -> Self {
        let has_endpoint = |net: &IpNet| spec.endpoints.iter().any(|endpoint| net.contains(&endpoint.ip()));
        // A prefix this wide means most of the Internet, as behind a VPN provider's peer; it does not identify clients.
        let is_wide = |net: &IpNet| net.prefix_len() < if net.addr().is_ipv4() { 8 } else { 16 };
        let wide: Vec<&IpNet> = spec.allowed_ips.iter().filter(|net| is_wide(net)).collect();
        let is_of_pool = |net: &IpNet| {
            let is_beside_wide = wide.iter().any(|wide| AddressFamily::of_net(wide) == AddressFamily::of_net(net));
            !is_wide(net) && !is_link_local(net) && !has_endpoint(net) && (!is_beside_wide || is_local(net))
        };
        let others = state.links.iter().filter(|link| link.name != spec.interface && link.name != "lo");
        let elsewhere: Vec<IpNet> = others.flat_map(|link| &link.addresses).map(IpNet::trunc).collect();
        let is_elsewhere = |net: &IpNet| elsewhere.iter().any(|other| other.contains(net) || net.contains(other));
        let networks: Vec<IpNet> = spec.addresses.iter().map(IpNet::trunc).collect();
        let all = networks.iter().copied().chain(spec.allowed_ips.iter().map(IpNet::trunc));
        let is_client = |net: &IpNet| match networks.contains(net) {
            true => !is_elsewhere(net),
            false => net.prefix_len() == net.max_prefix_len(),
        };
        let (clients, behind_peers) = all.filter(is_of_pool).partition::<Vec<IpNet>, _>(is_client);
        let [mut clients, mut behind_peers] = [clients, behind_peers].map(|nets| IpNet::aggregate(&nets));
        clients.sort();
        behind_peers.retain(|net| !clients.iter().any(|clients| clients.contains(net)));
        behind_peers.sort();
        Self { clients, behind_peers }
    }
}

/// The networks whose addresses are translated: those that peers send from. A default route is not one of them, nor are
/// its halves: what passes between other interfaces of the host is not ours to translate.
fn masqueraded(spec: &HostSpec, disabled: &[(AddressFamily, String)]) -> Vec<IpNet> {
    let families = spec.forwarding.masquerade;
    let wanted = |net: &IpNet| match net {
        IpNet::V4(_) => families.ipv4,
        IpNet::V6(_) => families.ipv6,
    };
    let networks = spec.addresses.iter().chain(&spec.allowed_ips).map(IpNet::trunc);
    let mut networks: Vec<IpNet> = networks.filter(|net| net.prefix_len() > 0 && wanted(net)).collect();
    networks.retain(|net| !addresses::is_disabled(disabled, net));
    networks = IpNet::aggregate(&networks);
    networks.retain(|net| net.prefix_len() > 0);
    networks.sort();
    networks
}

fn sysctls(
    spec: &HostSpec,
    state: &HostState,
    devices: &[String],
    disabled: &[(AddressFamily, String)],
    plan: &mut Plan,
) {
    for device in devices {
        let name = sysctl_name("ipv4", device, "forwarding");
        if state.link(device).is_some() && !state.sysctls.contains_key(&name) {
            plan.warn(format!("{name} cannot be read: packets are forwarded only if it is 1"));
        }
    }
    let has = |family| {
        let mut nets = spec.addresses.iter().chain(&spec.allowed_ips);
        !disabled.iter().any(|(off, _)| *off == family) && nets.any(|net| AddressFamily::of_net(net) == family)
    };
    let mut hold = |name: String, value: &str| plan.steps.extend(held(spec, state, name, value));
    let present = devices.iter().filter(|device| state.link(device).is_some());
    let ends: Vec<&String> = std::iter::once(&spec.interface).chain(present).collect();
    if has(AddressFamily::V4) {
        ends.iter().for_each(|end| hold(sysctl_name("ipv4", end, "forwarding"), "1"));
    }
    let everywhere = "net.ipv6.conf.all.forwarding";
    if !has(AddressFamily::V6) {
        return;
    }
    let is_held = state.held_sysctls.contains_key(everywhere);
    if state.sysctls.get(everywhere).is_some_and(|value| value == "1") && !is_held {
        return;
    }
    if state.sysctls.contains_key("net.ipv6.conf.default.force_forwarding") {
        ends.iter().for_each(|end| hold(sysctl_name("ipv6", end, "force_forwarding"), "1"));
        return;
    }
    // Without an uplink nothing leaves anyway, and one that comes later would ignore its first advertisement.
    if devices.is_empty() {
        return;
    }
    // Any link may hear the router of the next moment, and would not obey it.
    let is_ours = |link: &Link| link.wireguard || link.tun || link.name == "lo" || link.name == spec.interface;
    for link in state.links.iter().filter(|link| !is_ours(link)) {
        let name = sysctl_name("ipv6", &link.name, "accept_ra");
        if ["1", "2"].iter().any(|value| state.sysctls.get(&name).is_some_and(|set| set == value)) {
            hold(name, "2");
        }
    }
    hold(everywhere.to_owned(), "1");
}

/// The step that holds a sysctl. One that is set already, and not by a tunnel, needs none.
fn held(spec: &HostSpec, state: &HostState, name: String, value: &str) -> Option<Step> {
    // A link that does not exist yet takes over the default.
    let default = || {
        let (family, rest) = name.strip_prefix("net.")?.split_once(".conf.")?;
        let (_, variable) = rest.split_once('.')?;
        state.sysctls.get(&sysctl_name(family, "default", variable))
    };
    let current = match is_sysctl_of(&name, &spec.interface) {
        true => default(),
        false => state.sysctls.get(&name),
    };
    let before = match state.held_sysctls.get(&name) {
        Some(held) if current.is_some_and(|current| current == value) => held.before.clone(),
        _ => current.filter(|current| *current != value)?.clone(),
    };
    Some(Step::HoldSysctl { interface: spec.interface.clone(), name, value: value.to_owned(), before })
}

/// The dotted name of a sysctl of an interface, as `sysctl` takes it: a dot in the interface's name is a slash.
pub(super) fn sysctl_name(family: &str, interface: &str, variable: &str) -> String {
    format!("net.{family}.conf.{}.{variable}", interface.replace('.', "/"))
}

/// The sysctls of an interface that a plan may set.
pub fn sysctls_of(interface: &str) -> [String; 3] {
    [
        sysctl_name("ipv4", interface, "forwarding"),
        sysctl_name("ipv6", interface, "force_forwarding"),
        sysctl_name("ipv6", interface, "accept_ra"),
    ]
}

/// Whether the sysctl is one of this interface, with which it comes and goes.
pub fn is_sysctl_of(name: &str, interface: &str) -> bool {
    let mut parts = name.split('.').skip(3);
    parts.next() == Some(&*interface.replace('.', "/")) && name.contains(".conf.")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spec::Masquerade;

    #[test]
    fn halves_of_the_address_space_are_not_masqueraded() {
        let mut spec = HostSpec::default();
        spec.forwarding.masquerade = Masquerade { ipv4: true, ipv6: true };
        spec.allowed_ips = nets(&["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"]);
        assert_eq!(masqueraded(&spec, &[]), []);
        spec.allowed_ips = nets(&["10.0.0.0/25", "10.0.0.128/25"]);
        assert_eq!(masqueraded(&spec, &[]), nets(&["10.0.0.0/24"]));
    }

    #[test]
    fn the_last_address_of_all_belongs_to_one_peer() {
        let (to, all, upper) = (nets(&["10.0.0.0/8"]), nets(&["::/0"]), nets(&["8000::/1"]));
        let found = restrictions([(&*all, &*to), (&*upper, &*all)]);
        let sources: Vec<AddressRange> = found.into_iter().flat_map(|restriction| restriction.sources).collect();
        let range =
            |first: &str, last: &str| AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() };
        let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(sources, [range("::", "7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), range("8000::", last)]);
        let found = restrictions([(&*all, &*to), (&*upper, &*to)]);
        assert_eq!(found, [Restriction { sources: vec![range("::", last)], destinations: to }]);
    }

    proptest! {
        #[test]
        fn what_passes_restrictions_of_both_passes_each(old in peers(), new in peers()) {
            let [old, new] = [old, new].map(|peers| {
                restrictions(peers.iter().map(|(allowed, to)| (&**allowed, &**to)))
            });
            let both = restrictions_of_both(&old, &new);
            for from in (0..=255).flat_map(|last| [[10, 0, 0, last], [255, 255, 255, last]]) {
                for to in 0..16 {
                    let passes = |all: &[Restriction]| passes(all, from.into(), [192, 0, 2, to].into());
                    prop_assert_eq!(passes(&both), passes(&old) && passes(&new), "{:?} to {}", from, to);
                }
            }
            prop_assert!(both.iter().all(|one| one.sources.is_sorted() && merged(one.sources.clone()) == one.sources));
            // What is no change is none, in whatever order it is written.
            let backwards: Vec<_> = new.iter().rev().cloned().collect();
            prop_assert_eq!(&restrictions_of_both(&backwards, &new), &new);
            prop_assert_eq!(&restrictions_of_both(&both, &new), &restrictions_of_both(&new, &both));
            prop_assert_eq!(&restrictions_of_both(&both, &old), &both);
        }
    }

    /// Peers with prefixes at both ends of a small part of the addresses, and destinations.
    fn peers() -> impl Strategy<Value = Vec<(Vec<IpNet>, Vec<IpNet>)>> {
        let net = |address: [u8; 4], length| IpNet::new(IpAddr::from(address), length).unwrap().trunc();
        let allowed = (any::<bool>(), any::<u8>(), 24u8..=32).prop_map(move |(high, last, length)| {
            net(if high { [255, 255, 255, last] } else { [10, 0, 0, last] }, length)
        });
        let to = (0..16u8, 28u8..=32).prop_map(move |(last, length)| net([192, 0, 2, last], length));
        let one = (prop::collection::vec(allowed, 0..4), prop::collection::vec(to, 0..3));
        // A prefix is one peer's.
        prop::collection::vec(one, 0..5).prop_map(|mut peers| {
            let mut taken = HashSet::new();
            peers.iter_mut().for_each(|(allowed, _)| allowed.retain(|net| taken.insert(*net)));
            peers
        })
    }

    fn passes(restrictions: &[Restriction], from: IpAddr, to: IpAddr) -> bool {
        let is_from = |range: &AddressRange| range.first <= from && from <= range.last;
        let mut of = restrictions.iter().filter(|one| one.sources.iter().any(is_from));
        let found = of.next().is_none_or(|one| one.destinations.iter().any(|net| net.contains(&to)));
        assert!(of.next().is_none(), "an address has two restrictions");
        found
    }

    #[test]
    fn without_a_default_route_a_tunnel_that_is_up_keeps_its_interfaces() {
        let eth0 = Gateway::Interfaces(vec!["eth0".parse().unwrap()]);
        for (before, resolved) in [(None, Gateway::Interfaces(vec![])), (Some(&eth0), eth0.clone())] {
            let mut spec = HostSpec::default();
            spec.forwarding.gateway = Gateway::Auto;
            resolve(&mut spec, &HostState::default(), before);
            assert_eq!(spec.forwarding.gateway, resolved);
        }
    }

    #[test]
    fn before_linux_6_17_all_links_but_tunnels_go_on_to_obey_routers_while_ipv6_is_forwarded() {
        let link = |name: &str| Link { name: name.into(), ..Link::default() };
        let tun = Link { tun: true, ..link("tun5") };
        let wireguard = Link { wireguard: true, ..link("wg9") };
        let links = vec![link("lo"), link("eth0"), link("eth1.5"), link("docker0"), tun, wireguard];
        let accept_ra = |link: &Link| sysctl_name("ipv6", &link.name, "accept_ra");
        let mut state = HostState { nftables: true, ..HostState::default() };
        state.sysctls.extend(links.iter().map(|link| (accept_ra(link), "1".to_owned())));
        state.sysctls.insert("net.ipv6.conf.docker0.accept_ra".into(), "0".into());
        state.sysctls.insert("net.ipv6.conf.all.forwarding".into(), "0".into());
        state.links = links;
        let mut spec = HostSpec { interface: "wg0".into(), addresses: nets(&["fd00::1/64"]), ..HostSpec::default() };
        let mut held = |devices: &[&str]| {
            let devices = devices.iter().map(|device| device.parse().unwrap()).collect();
            spec.forwarding.gateway = Gateway::Interfaces(devices);
            let mut plan = Plan::default();
            forwarding(&spec, &state, &[], &mut plan);
            let held = plan.steps.into_iter().map(|step| match step {
                Step::HoldSysctl { name, value, .. } => format!("{name}={value}"),
                step => panic!("{step:?}"),
            });
            held.collect::<Vec<_>>()
        };
        assert_eq!(
            held(&["eth0"]),
            ["net.ipv6.conf.eth0.accept_ra=2", "net.ipv6.conf.eth1/5.accept_ra=2", "net.ipv6.conf.all.forwarding=1"]
        );
        assert_eq!(held(&[]), [""; 0]);
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }
}
