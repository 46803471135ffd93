//! Handshakes but no traffic: routes, allowed IPs, filters, forwarding, sizes.

use ipnet::IpNet;
use linerate_host::plan::foreign::Obstacle;
use linerate_host::step::AddressFamily;

use crate::evidence::{Evidence, Peer, Probe, Way};
use crate::firewall::{ICMP, ICMPV6, Packet};
use crate::handshake::told;
use crate::{Finding, Severity, security};

/// What an IP and UDP header and WireGuard add to a packet, over IPv4 and over IPv6.
const OVERHEAD: [u32; 2] = [60, 80];

/// A peer that has sent less than this has sent handshakes and keepalives only.
const DATA: u64 = 1000;

pub(crate) fn examine(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    for peer in &evidence.tunnel.peers {
        let of_peer = |finding: Finding| finding.of_peer(&peer.label);
        findings.extend(routes(evidence, peer).map(of_peer));
        if let Some(probe) = &peer.probe
            && peer.is_alive()
        {
            findings.extend(probed(evidence, peer, probe).map(of_peer));
        }
    }
    findings.extend(route_without_peer(evidence));
    findings.extend(source_not_allowed(evidence));
    findings.extend(too_large(evidence));
    findings.extend(forwarding(evidence));
    findings
}

/// The first of the peer's allowed IPs that are routed elsewhere; the others usually share the cause.
fn routes(evidence: &Evidence, peer: &Peer) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    if tunnel.table_off || tunnel.link_down {
        return None;
    }
    let is_lost = |way: &Way| *way != Way::Device(tunnel.name.clone()) && *way != Way::Device("lo".into());
    let (net, way) = peer.ways.iter().find(|(_, way)| is_lost(way))?;
    let others = peer.ways.iter().filter(|(_, way)| is_lost(way)).count() - 1;
    let more = if others > 0 { format!(", nor are {others} more of its allowed IPs") } else { String::new() };
    let add = match net.prefix_len() {
        // A default route in the main table would lead the tunnel's own datagrams into it.
        0 => format!(
            "`linerate reload {}` restores its routes and rules; if that does not help, a rule of another program comes \
             first: `ip rule show` lists them in order, and `linerate plan` names it",
            tunnel.name
        ),
        _ => format!("`ip route add {net} dev {}`, or `linerate reload {}`", tunnel.name, tunnel.name),
    };
    let device = match way {
        Way::None(error) => {
            return Some(Finding::new(
                "route-missing",
                &tunnel.name,
                format!("no route leads to {net}, which the peer has among its allowed IPs{more}"),
                format!("the kernel says: {error}"),
                add,
            ));
        }
        Way::Device(device) => device,
    };
    let overlaps = evidence.host.link(device).and_then(|link| {
        link.addresses
            .iter()
            .find(|address| net.prefix_len() > 0 && (address.contains(&net.addr()) || net.contains(&address.addr())))
    });
    Some(match overlaps {
        Some(address) => Finding::new(
            "route-elsewhere",
            &tunnel.name,
            format!("{net} goes out over {device}: the local network there has the same addresses"),
            format!("{device} has {address}, and the peer's allowed IPs have {net}"),
            format!(
                "give one of the networks other addresses, or route single hosts: `ip route add ADDRESS/32 dev {}`",
                tunnel.name
            ),
        ),
        None => Finding::new(
            "route-elsewhere",
            &tunnel.name,
            format!("{net} does not go into the tunnel but over {device}{more}"),
            format!(
                "`ip route get` of an address in {net} leads to {device}: no route there over {} is preferred",
                tunnel.name
            ),
            add,
        ),
    })
}

fn probed(evidence: &Evidence, peer: &Peer, probe: &Probe) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    if !probe.answered {
        return blocked_inside(evidence, probe).or_else(|| unanswered(evidence, peer, probe));
    }
    let (good, bad) = probe.sizes?;
    Some(Finding::new(
        "mtu-black-hole",
        &tunnel.name,
        format!("packets above {good} bytes disappear on the way, so downloads and logins hang"),
        format!("{} answered packets of up to {good} bytes, none of {bad}; the MTU is {}", probe.to, tunnel.mtu),
        mtu_command(evidence, good) + ", at both ends",
    ))
}

fn blocked_inside(evidence: &Evidence, probe: &Probe) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let ruleset = evidence.host.ruleset.as_ref()?;
    let protocol = if probe.to.is_ipv4() { ICMP } else { ICMPV6 };
    let echo = Packet {
        hook: "output",
        outgoing: &tunnel.name,
        protocol,
        source: tunnel.addresses.iter().map(IpNet::addr).find(|own| own.is_ipv4() == probe.to.is_ipv4()),
        destination: Some(probe.to),
        is_v6: probe.to.is_ipv6(),
        ..Packet::default()
    };
    let reply = Packet {
        hook: "input",
        incoming: &tunnel.name,
        outgoing: "",
        source: echo.destination,
        destination: echo.source,
        is_known: true,
        ..echo.clone()
    };
    let (drop, direction, option, key) = match ruleset.drops(&echo) {
        Some(drop) => (drop, "into", "-o", "oifname"),
        None => (ruleset.drops(&reply)?, "out of", "-i", "iifname"),
    };
    let accept = drop.accept(&[option, &tunnel.name], &format!("{key} \"{}\"", tunnel.name));
    Some(Finding::new(
        "firewall-drops-tunnel",
        &tunnel.name,
        format!("this host's firewall drops what goes {direction} the tunnel"),
        format!("{}; an echo request to {} was not answered", drop.place(), probe.to),
        format!("accept packets of {} there: `{accept}`; `{}` shows the rules", tunnel.name, drop.show()),
    ))
}

/// The name of an interface as sysctl(8) takes it: in `eth0.7` the dot would be read as the end of a part.
pub(crate) fn in_sysctl(interface: &str) -> String {
    interface.replace('.', "/")
}

/// The command that sets the MTU. Linux takes IPv6 from an interface whose MTU is below what IPv6 demands.
fn mtu_command(evidence: &Evidence, mtu: u32) -> String {
    let tunnel = &evidence.tunnel;
    let has_v6 = tunnel.addresses.iter().any(|address| address.addr().is_ipv6());
    let loses = if mtu < 1280 && has_v6 { " (below 1280 it loses its IPv6 addresses)" } else { "" };
    format!("`ip link set {} mtu {mtu}`{loses}, and MTU = {mtu} in the file", tunnel.name)
}

/// Datagrams of the peer that the kernel dropped because it would have answered another way: there is no handshake.
/// IPv6 has no such filter.
pub(crate) fn reverse_path(evidence: &Evidence, peer: &Peer) -> Option<Finding> {
    let (host, tunnel) = (&evidence.host, &evidence.tunnel);
    let strict = |device: &str| {
        let value =
            |of: &str| host.sysctl(&format!("net.ipv4.conf.{of}.rp_filter")).and_then(|value| value.parse::<u8>().ok());
        value("all").max(value(device)) == Some(1)
    };
    let Some(Way::Device(device)) = &peer.endpoint_way else { return None };
    if !strict(device) || !peer.endpoint?.is_ipv4() {
        return None;
    }
    let dropped = host.counters.growth("TcpExt.IPReversePathFilter");
    let is_default =
        peer.ways.iter().any(|(net, way)| net.prefix_len() == 0 && *way == Way::Device(tunnel.name.clone()));
    let unmarked = tunnel.fwmark != 0 && is_default && host.sysctl("net.ipv4.conf.all.src_valid_mark") == Some("0");
    if (dropped == 0 || !peer.is_silent()) && !unmarked {
        return None;
    }
    Some(Finding::new(
        "reverse-path-filter",
        &tunnel.name,
        format!("the reverse path filter of {device} drops the peer's packets"),
        format!("rp_filter is 1 (strict), and {dropped} packets were dropped by it meanwhile (IPReversePathFilter)"),
        format!("`sysctl -w net.ipv4.conf.{}.rp_filter=2` (loose)", in_sysctl(device)),
    ))
}

fn unanswered(evidence: &Evidence, peer: &Peer, probe: &Probe) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let counters = &tunnel.counters;
    let is_explained = counters.growth("drop_source_not_allowed") > 0 || counters.total("drop_replayed") > 0;
    if peer.received >= DATA || peer.received >= peer.sent || is_explained {
        return None;
    }
    // Many hosts answer no echo requests; only those were sent.
    let severity = if peer.sent < DATA { Severity::Note } else { Severity::Warning };
    let own: Vec<String> = tunnel.addresses.iter().map(|own| own.addr().to_string()).collect();
    let finding = Finding::new(
        "traffic-unanswered",
        &tunnel.name,
        "the handshake works, and the peer answers nothing else",
        format!("sent {} bytes, received {}; {} answered no echo request", peer.sent, peer.received, probe.to),
        format!("at the other end: our AllowedIPs there must have {}, and its firewall let us in", own.join(" and ")),
    );
    Some(finding.with(severity))
}

fn route_without_peer(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let allowed = || tunnel.peers.iter().flat_map(|peer| &peer.allowed_ips);
    let overlaps = |route: &IpNet| allowed().any(|net| net.contains(route) || route.contains(net));
    let lost = evidence.host.tunnel_routes.iter().find(|route| !overlaps(route))?;
    let dropped = tunnel.counters.total("drop_no_peer");
    Some(Finding::new(
        "route-without-peer",
        &tunnel.name,
        format!("{lost} is routed into the tunnel, and no peer has it among its allowed IPs"),
        format!("{dropped} packets dropped for want of a peer (no_peer)"),
        format!("add {lost} to the AllowedIPs of the peer behind which it is, then `linerate reload {}`", tunnel.name),
    ))
}

fn source_not_allowed(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let (total, growth) =
        (tunnel.counters.total("drop_source_not_allowed"), tunnel.counters.growth("drop_source_not_allowed"));
    let finding = Finding::new(
        "source-not-allowed",
        &tunnel.name,
        "peers send packets from addresses that they have not among their allowed IPs here",
        format!("{total} packets dropped (source_not_allowed), {growth} of them meanwhile"),
        "add the address of the peer, and the networks behind it, to its AllowedIPs here",
    );
    match (total, growth) {
        (0, _) => None,
        (_, 0) => Some(finding.with(Severity::Note)),
        _ => Some(finding),
    }
}

fn too_large(evidence: &Evidence) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    tunnel.peers.iter().find_map(|peer| {
        let endpoint = peer.endpoint?;
        let Some(Way::Device(device)) = &peer.endpoint_way else { return None };
        let link = evidence.host.link(device).filter(|link| link.name != tunnel.name)?;
        let fits = link.mtu.saturating_sub(OVERHEAD[usize::from(endpoint.is_ipv6())]);
        (tunnel.mtu > fits && fits >= 576).then(|| {
            Finding::new(
                "mtu-too-large",
                &tunnel.name,
                format!("full packets do not fit: the MTU {} is above what {device} can carry", tunnel.mtu),
                format!("{device} has MTU {}, which leaves {fits} bytes for a packet", link.mtu),
                mtu_command(evidence, fits),
            )
            .of_peer(&peer.label)
        })
    })
}

/// For hosts that are gateways, by the tunnel's file or by rules for network address translation.
fn forwarding(evidence: &Evidence) -> Vec<Finding> {
    let (host, tunnel) = (&evidence.host, &evidence.tunnel);
    let mut findings: Vec<Finding> =
        gateway_missing(evidence).or_else(|| gateway_empty(evidence)).into_iter().collect();
    let families = [false, true].into_iter().filter(|is_v6| is_gateway(evidence, *is_v6));
    let mut forwarded = Vec::new();
    for is_v6 in families {
        if is_forwarding_off(evidence, is_v6) {
            let uplink = host.uplink.as_deref().unwrap_or("UPLINK");
            // A host that forwards ignores router advertisements unless it is told not to.
            let (family, command) = if is_v6 {
                (
                    "IPv6",
                    format!(
                        "`sysctl -w net.ipv6.conf.{}.accept_ra=2 net.ipv6.conf.all.forwarding=1`",
                        in_sysctl(uplink)
                    ),
                )
            } else {
                ("IPv4", "`sysctl -w net.ipv4.ip_forward=1`".to_owned())
            };
            let command = format!("Gateway = auto in the tunnel's file; or {command}, and a file in /etc/sysctl.d");
            findings.push(Finding::new(
                "forwarding-off",
                &tunnel.name,
                format!("this host is to be a gateway and does not forward {family}"),
                format!(
                    "packets of peers get network address translation or a gateway's rules, and forwarding is 0 for {}",
                    tunnel.name
                ),
                command,
            ));
        } else {
            forwarded.push(if is_v6 { AddressFamily::V6 } else { AddressFamily::V4 });
        }
    }
    findings.extend(forward_blocked(evidence, &forwarded));
    let is_gateway = is_gateway(evidence, false) || is_gateway(evidence, true);
    let narrower = host.uplink.as_ref().and_then(|uplink| host.link(uplink)).is_some_and(|link| link.mtu > tunnel.mtu);
    if is_gateway
        && narrower
        && !host.has_legacy_rules
        && host.ruleset.as_ref().is_some_and(|ruleset| !ruleset.limits_segments())
    {
        findings.push(Finding::new(
            "mss-not-limited",
            &tunnel.name,
            "TCP segments of others are not limited to what the tunnel carries",
            format!("no firewall rule sets the maximum segment size, and the tunnel's MTU is {}", tunnel.mtu),
            "Gateway = auto in the tunnel's file does it, or a rule `tcp flags syn tcp option maxseg size set rt mtu`",
        ));
    }
    findings
}

pub(crate) fn is_gateway(evidence: &Evidence, is_v6: bool) -> bool {
    let tunnel = &evidence.tunnel;
    // The kernel gives each interface a link-local IPv6 address, which does not make it a network to serve.
    let serves = |address: &&IpNet| security::is_routed(address, is_v6);
    let mut own = tunnel.addresses.iter().filter(serves).peekable();
    let has_address = own.peek().is_some();
    let has_nat = host_nat(evidence, own.copied());
    // A client has NAT rules for other reasons.
    let serves = tunnel.peers.iter().any(|peer| !peer.is_expected);
    has_address && (!tunnel.gateway.is_empty() || (has_nat && serves))
}

fn host_nat(evidence: &Evidence, nets: impl Iterator<Item = IpNet>) -> bool {
    let Some(ruleset) = &evidence.host.ruleset else { return false };
    nets.into_iter().any(|net| ruleset.translates(&net.trunc()))
}

fn is_forwarding_off(evidence: &Evidence, is_v6: bool) -> bool {
    let value = |name: String| evidence.host.sysctl(&name).map(str::to_owned);
    let name = &evidence.tunnel.name;
    if is_v6 {
        value("net.ipv6.conf.all.forwarding".into()).as_deref() == Some("0")
            && value(format!("net.ipv6.conf.{name}.force_forwarding")).as_deref() != Some("1")
    } else {
        value(format!("net.ipv4.conf.{name}.forwarding")).as_deref() == Some("0")
    }
}

/// Reports interfaces of the gateway that do not exist: the file is another host's, or they were renamed.
fn gateway_missing(evidence: &Evidence) -> Option<Finding> {
    let (host, tunnel) = (&evidence.host, &evidence.tunnel);
    let missing: Vec<&str> =
        tunnel.gateway.iter().map(String::as_str).filter(|name| host.link(name).is_none()).collect();
    let (first, uplink) = (missing.first()?, host.uplink.as_deref());
    let is_open = uplink.is_some_and(|uplink| tunnel.gateway.iter().any(|name| name == uplink));
    let way = match uplink {
        Some(uplink) => format!("the default route leads over {uplink}"),
        None => "this host has no default route".to_owned(),
    };
    let file = tunnel.file.as_deref().unwrap_or("the tunnel's file");
    let remedy = if tunnel.gateway_is_auto {
        format!("`linerate reload {}` looks for the interface of the default route again", tunnel.name)
    } else {
        format!(
            "`#! Gateway = auto` in {file} takes the interface of the default route; then `linerate reload {}`",
            tunnel.name
        )
    };
    let finding = Finding::new(
        "gateway-interface-missing",
        &tunnel.name,
        format!("there is no interface {first}, to which the tunnel's packets are to be forwarded"),
        format!("the gateway is for {}, and {way}", tunnel.gateway.join(", ")),
        remedy,
    );
    Some(if is_open { finding.with(Severity::Warning) } else { finding })
}

/// Reports `Gateway = auto` that found no interface: the default route came after the tunnel and is not trusted.
fn gateway_empty(evidence: &Evidence) -> Option<Finding> {
    let (host, tunnel) = (&evidence.host, &evidence.tunnel);
    let uplink = host.uplink.as_deref()?;
    (tunnel.gateway_is_auto && tunnel.gateway.is_empty()).then(|| {
        let file = tunnel.file.as_deref().unwrap_or("the tunnel's file");
        Finding::new(
            "gateway-without-interface",
            &tunnel.name,
            "the tunnel's file makes this host a gateway, but nothing is forwarded",
            format!(
                "Gateway = auto found no default route that it trusts: the route through {uplink} came later, or from a \
                router advertisement, which any host on that link can send"
            ),
            format!(
                "if {uplink} is the uplink, write `#! Gateway = {uplink}` into {file}, then run `linerate reload {}`",
                tunnel.name
            ),
        )
    })
}

fn forward_blocked(evidence: &Evidence, families: &[AddressFamily]) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let meets = |obstacle: &&Obstacle| match obstacle.family {
        Some(family) => families.contains(&family),
        None => !families.is_empty(),
    };
    let (drops, why, remedy, severity) = told(evidence.host.forward_obstacles.iter().filter(meets).collect())?;
    let what = format!("this host's firewall {drops} what it should forward for {}", tunnel.name);
    Some(Finding::new("firewall-drops-forwarded", &tunnel.name, what, why, remedy).with(severity))
}
