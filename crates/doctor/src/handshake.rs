//! No handshake, and why: the way to the peer, firewalls, keys, clocks, addresses of names.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linerate_host::plan::foreign::Obstacle;
use linerate_host::step::AddressFamily;

use crate::evidence::{Evidence, INITIATION, Peer, Way};
use crate::firewall::{Packet, to_port};
use crate::traffic::reverse_path;
use crate::{Finding, Severity};

/// NATs forget a UDP flow after half a minute to a few minutes.
const NAT_TIMEOUT: u16 = 60;

pub(crate) fn examine(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    let missing: Vec<&Peer> = evidence.tunnel.peers.iter().filter(|peer| peer.is_missing()).collect();
    let silent: Vec<&Peer> = missing.iter().copied().filter(|peer| peer.is_silent()).collect();
    let heard = of_tunnel(evidence, &silent);
    // What a counter of the whole tunnel tells explains every peer that does not answer.
    let is_explained = heard.iter().any(|finding| finding.severity == Severity::Error);
    for peer in &missing {
        match CAUSES.iter().find_map(|cause| cause(evidence, peer)) {
            Some(cause) => findings.push(cause.of_peer(&peer.label)),
            None if peer.is_silent() && !is_explained && not_confirmed(evidence, peer).is_none() => {
                findings.push(nothing_known(evidence, peer).of_peer(&peer.label))
            }
            None => {}
        }
    }
    findings.extend(heard);
    for peer in &evidence.tunnel.peers {
        findings.extend(not_confirmed(evidence, peer).map(|finding| finding.of_peer(&peer.label)));
        findings.extend(keepalive(evidence, peer).map(|finding| finding.of_peer(&peer.label)));
    }
    findings.extend(port_blocked(evidence, &silent));
    findings
}

type Cause = fn(&Evidence, &Peer) -> Option<Finding>;

/// Causes that explain why one peer does not answer, the most certain first.
const CAUSES: &[Cause] = &[name_unresolved, routed_into_tunnel, no_route, sending_denied, name_stale, reverse_path];

fn name_unresolved(evidence: &Evidence, peer: &Peer) -> Option<Finding> {
    let tunnel = &evidence.tunnel.name;
    let name = peer.endpoint_name.as_ref()?;
    let Some(Err(error)) = &peer.resolved else { return None };
    let into_tunnel = |(_, way): &&(IpAddr, Option<Way>)| *way == Some(Way::Device(tunnel.clone()));
    if let Some((server, _)) = evidence.host.name_servers.iter().find(into_tunnel) {
        return Some(Finding::new(
            "endpoint-name-through-tunnel",
            tunnel,
            format!("the endpoint {name} can only be looked up through the tunnel itself, which waits for it"),
            format!("name server {server} is reached over {tunnel}; the look-up failed: {error}"),
            "give the endpoint as an address, or keep a name server outside of the tunnel (ExcludedIPs)",
        ));
    }
    peer.endpoint.is_none().then(|| {
        Finding::new(
            "endpoint-name-unresolved",
            tunnel,
            format!("the endpoint {name} has no address"),
            format!("looking it up failed: {error}"),
            "check the name and /etc/resolv.conf, or give the endpoint as an address",
        )
    })
}

fn routed_into_tunnel(evidence: &Evidence, peer: &Peer) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let endpoint = peer.endpoint?;
    (peer.endpoint_way == Some(Way::Device(tunnel.name.clone()))).then(|| {
        let loops = tunnel.counters.total("drop_routing_loop");
        Finding::new(
            "endpoint-through-tunnel",
            &tunnel.name,
            format!("datagrams to the endpoint {endpoint} are routed into the tunnel itself"),
            format!("`ip route get {}` leads to {}; routing_loop counts {loops}", endpoint.ip(), tunnel.name),
            format!(
                "`ip route add {}/{} via GATEWAY`, or let `linerate up` make the routes (no Table = off)",
                endpoint.ip(),
                if endpoint.is_ipv4() { 32 } else { 128 }
            ),
        )
    })
}

fn no_route(evidence: &Evidence, peer: &Peer) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let endpoint = peer.endpoint?;
    let Some(Way::None(error)) = &peer.endpoint_way else { return None };
    let dropped = tunnel.counters.total("drop_send_unreachable");
    Some(Finding::new(
        "endpoint-no-route",
        &tunnel.name,
        format!("this host has no route to the endpoint {endpoint}"),
        format!("`ip route get {}`: {error}; send_unreachable counts {dropped}", endpoint.ip()),
        "connect this host to its network, or add a route or a default route",
    ))
}

fn sending_denied(evidence: &Evidence, peer: &Peer) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let endpoint = peer.endpoint?;
    let Some(Way::Device(device)) = &peer.endpoint_way else { return None };
    let packet = Packet {
        outgoing: device,
        destination: Some(endpoint.ip()),
        source_port: Some(tunnel.listen_port),
        mark: tunnel.fwmark,
        ..to_port("output", endpoint.port(), false, endpoint.is_ipv6())
    };
    let ruleset = evidence.host.ruleset.as_ref()?;
    let drop = ruleset.drops(&packet)?;
    let port = endpoint.port().to_string();
    let accept = drop.accept(&["-p", "udp", "--dport", &port], &format!("udp dport {port}"));
    let denied = tunnel.counters.total("drop_send_denied");
    let counted =
        if denied > 0 { format!("; the daemon was refused {denied} times (send_denied)") } else { String::new() };
    Some(Finding::new(
        "firewall-drops-sent",
        &tunnel.name,
        format!("this host's firewall drops what the tunnel sends to {endpoint}"),
        format!("{}{counted}", drop.place()),
        format!("accept UDP to port {port} there: `{accept}`; `{}` shows the rules", drop.show()),
    ))
}

fn name_stale(evidence: &Evidence, peer: &Peer) -> Option<Finding> {
    let (name, endpoint) = (peer.endpoint_name.as_ref()?, peer.endpoint?);
    let Some(Ok(addresses)) = &peer.resolved else { return None };
    let now = addresses.first().filter(|_| !addresses.contains(&endpoint.ip()))?;
    let new = SocketAddr::new(*now, endpoint.port());
    Some(Finding::new(
        "endpoint-name-stale",
        &evidence.tunnel.name,
        format!("the endpoint {name} has moved, and the tunnel still uses its old address"),
        format!("the name is {now} by now, the tunnel sends to {endpoint}"),
        format!(
            "`wg set {} peer {} endpoint {new}`; up --supervise looks names up again",
            evidence.tunnel.name, peer.public_key
        ),
    ))
}

/// What counters tell of handshakes that failed; they are those of the whole tunnel.
fn of_tunnel(evidence: &Evidence, silent: &[&Peer]) -> Vec<Finding> {
    let tunnel = &evidence.tunnel;
    let counters = &tunnel.counters;
    let mut findings = Vec::new();
    // Peers that were removed try for years, and a server always has clients that are off. So a counter explains who is
    // missing only if it grows meanwhile, or if there is nobody else.
    let waits = |peer: &Peer| !peer.is_suspended && !peer.is_alive();
    let never = tunnel.peers.iter().any(|peer| waits(peer) && peer.handshake_age.is_none());
    let severity = |name: &str| {
        let (total, growth) = (counters.total(name), counters.growth(name));
        match (total, silent.len()) {
            (0, _) => None,
            (_, 1..) if growth > 0 || tunnel.peers.len() == 1 => Some(Severity::Error),
            (_, 1..) => Some(Severity::Warning),
            _ if growth > 0 && tunnel.peers.iter().any(waits) => Some(Severity::Warning),
            (2.., _) if never => Some(Severity::Note),
            _ => None,
        }
    };
    let count = |name: &str| counters.total(name);
    if let Some(severity) = severity("drop_mac1") {
        let key = tunnel.public_key.as_deref().unwrap_or("of `wg show`");
        let finding = Finding::new(
            "handshake-for-another-key",
            &tunnel.name,
            "handshakes arrive that were made for another public key than ours",
            format!(
                "{} dropped for their first MAC (mac1): the sender has a wrong public key of this end",
                count("drop_mac1")
            ),
            format!("at the other end: PublicKey = {key}"),
        );
        findings.push(finding.with(severity));
    }
    if let Some(severity) = severity("drop_unknown_peer") {
        let finding = Finding::new(
            "handshake-from-unknown-key",
            &tunnel.name,
            "handshakes arrive from a key that no peer here has",
            format!(
                "{} dropped (unknown_peer): the sender knows our key, we do not know theirs",
                count("drop_unknown_peer")
            ),
            "at the other end `wg show` prints its public key; it has to be a peer's PublicKey here. If it is one that \
             was removed here, take the tunnel down there",
        );
        findings.push(finding.with(severity));
    }
    if let Some(severity) = severity("drop_undecryptable").filter(|_| !silent.is_empty()) {
        let finding = Finding::new(
            "preshared-key-differs",
            &tunnel.name,
            "the peer answers, but its answer does not fit: the preshared keys differ",
            format!("{} answers could not be decrypted (undecryptable)", count("drop_undecryptable")),
            "the same PresharedKey at both ends, or at neither",
        );
        findings.push(finding.with(severity));
    }
    // The session from before may look alive here.
    let is_deaf = |peer: &Peer| peer.probe.as_ref().is_some_and(|probe| !probe.answered);
    let of_deaf = || (count("drop_replayed") > 0 && tunnel.peers.iter().any(is_deaf)).then_some(Severity::Warning);
    if let Some(severity) = severity("drop_replayed").filter(|severity| *severity < Severity::Note).or_else(of_deaf) {
        let finding = Finding::new(
            "handshake-replayed",
            &tunnel.name,
            "a peer's handshakes are older than those that it sent before: its clock was set back",
            format!("{} dropped for their time (replayed)", count("drop_replayed")),
            format!(
                "set the peer's clock; or forget its latest time here: `linerate down {0}`, `linerate up {0}`",
                tunnel.name
            ),
        );
        findings.push(finding.with(severity));
    }
    if let Some((what, behind)) = evidence.host.clock_behind.as_ref().filter(|_| !silent.is_empty()) {
        findings.push(Finding::new(
            "clock-behind",
            &tunnel.name,
            "this host's clock is behind, so peers take its handshakes for old ones",
            format!("{what} is {} in the future", age(*behind)),
            "set the clock (`timedatectl set-ntp true`), then wait for the next handshake",
        ));
    }
    findings
}

fn not_confirmed(evidence: &Evidence, peer: &Peer) -> Option<Finding> {
    let counters = &evidence.tunnel.counters;
    let answered = counters.total("handshake_responses_sent");
    let is_known = counters.total("drop_undecryptable") > 0 || peer.is_suspended;
    let never_done = peer.handshake_age.is_none() && peer.received >= INITIATION && answered > 1;
    (never_done && !is_known).then(|| {
        let keys = if peer.has_preshared_key {
            "the preshared key here is another one"
        } else {
            "it has a preshared key, and none is set here"
        };
        Finding::new(
            "handshake-not-confirmed",
            &evidence.tunnel.name,
            "the peer's handshakes arrive and are answered, but it takes none of the answers",
            format!("{answered} answers sent, no handshake done: they do not reach the peer, or {keys}"),
            "compare PresharedKey at both ends; if equal, look for a firewall on the way back to the peer",
        )
    })
}

fn nothing_known(evidence: &Evidence, peer: &Peer) -> Finding {
    let tunnel = &evidence.tunnel;
    let counters = &tunnel.counters;
    let to = peer.endpoint.map_or_else(|| "its endpoint".to_owned(), |endpoint| endpoint.to_string());
    let since = peer.handshake_age.map_or_else(|| "never".to_owned(), |age_of| format!("{} ago", age(age_of)));
    let key = tunnel.public_key.as_deref().unwrap_or("ours");
    let remedy = format!(
        "at {to}: is it on, is UDP port {} open and forwarded, has it the peer {key}, and is its key {}?",
        peer.endpoint.map_or(0, |endpoint| endpoint.port()),
        peer.public_key
    );
    let why = format!("sent {} bytes to {to}, received {}; last handshake: {since}", peer.sent, peer.received);
    if counters.after.is_empty() || counters.growth("wakeups_inbound_work") > 0 {
        return Finding::new("no-handshake-no-answer", &tunnel.name, "the peer does not answer", why, remedy);
    }
    Finding::new(
        "no-handshake-nothing-arrives",
        &tunnel.name,
        "the peer does not answer: nothing at all arrives here",
        format!("{why}; no datagram within {}", age(tunnel.window)),
        remedy,
    )
}

/// A firewall in front of our port: for peers that begin themselves, and for answers where it forgets what was sent.
fn port_blocked(evidence: &Evidence, silent: &[&Peer]) -> Option<Finding> {
    let tunnel = &evidence.tunnel;
    let begins = |peer: &&Peer| !peer.is_expected && !peer.is_suspended;
    let waits =
        tunnel.peers.iter().any(|peer| begins(&peer)) || (tunnel.peers.is_empty() && tunnel.protection.is_gateway);
    let answers: Vec<&Obstacle> = silent.iter().filter_map(|peer| peer.answers_obstacle.as_ref()).collect();
    if tunnel.listen_port == 0 || (!waits && answers.is_empty()) {
        return None;
    }
    let mut obstacles: Vec<&Obstacle> = if waits { evidence.host.port_obstacles.iter().collect() } else { answers };
    let connected: Vec<&Peer> = tunnel.peers.iter().filter(|peer| waits && peer.is_alive()).collect();
    if !connected.is_empty() {
        // A connected peer proves that the firewall lets peers in. One on another link proves nothing for the uplink.
        obstacles.retain(|obstacle| obstacle.is_certain);
        let over = |peer: &&Peer| evidence.host.uplink.clone().map(Way::Device) == peer.endpoint_way;
        if !connected.iter().filter(|peer| begins(peer)).all(over) {
            return None;
        }
    }
    let (drops, why, remedy, severity) = told(obstacles)?;
    let others = if connected.is_empty() { "" } else { "; peers that are connected are let in until they are idle" };
    let severity = if connected.is_empty() { severity } else { severity.max(Severity::Warning) };
    let what = format!("this host's firewall {drops} datagrams to the tunnel's port {}", tunnel.listen_port);
    let finding = Finding::new("firewall-drops-port", &tunnel.name, what, why + others, remedy);
    Some(finding.with(severity))
}

/// Returns the verb, the reason, the remedy and the severity for the worst obstacle; `None` without obstacles.
pub(crate) fn told(mut obstacles: Vec<&Obstacle>) -> Option<(&'static str, String, String, Severity)> {
    obstacles.sort_by_key(|obstacle| (!obstacle.is_certain, obstacle.family == Some(AddressFamily::V6)));
    let worst = *obstacles.first()?;
    let why = match &obstacles[..] {
        [_] => worst.why.clone(),
        [_, others @ ..] => {
            let others: Vec<&str> = others.iter().map(|obstacle| &*obstacle.chain).collect();
            format!("{}; so does {}", worst.why, others.join(", "))
        }
        [] => return None,
    };
    let mut commands: Vec<&str> = Vec::new();
    for command in obstacles.iter().flat_map(|obstacle| &obstacle.commands) {
        if !commands.contains(&command.as_str()) {
            commands.push(command);
        }
    }
    let mut remedy = format!("`{}`", commands.join("`, then `"));
    if obstacles.iter().any(|obstacle| obstacle.is_forgotten) {
        remedy += "; write it where these rules are kept, too: they are forgotten at the next start";
    }
    let (verb, severity) = if worst.is_certain { ("drops", Severity::Error) } else { ("may drop", Severity::Warning) };
    Some((verb, why, remedy, severity))
}

fn keepalive(evidence: &Evidence, peer: &Peer) -> Option<Finding> {
    let endpoint = peer.endpoint?;
    let Some(Way::Device(device)) = &peer.endpoint_way else { return None };
    let link = evidence.host.link(device)?;
    let of_family =
        link.addresses.iter().map(ipnet::IpNet::addr).find(|address| address.is_ipv4() && endpoint.is_ipv4())?;
    if !peer.is_expected || peer.is_suspended || !is_private(of_family) || is_private(endpoint.ip()) {
        return None;
    }
    let nat = format!("{device} has the private address {of_family}, the endpoint {} is a public one", endpoint.ip());
    let command = format!(
        "`wg set {} peer {} persistent-keepalive 25`, and PersistentKeepalive = 25 in the file",
        evidence.tunnel.name, peer.public_key
    );
    if peer.keepalive > NAT_TIMEOUT {
        return Some(Finding::new(
            "keepalive-too-long",
            &evidence.tunnel.name,
            format!("keepalives every {} s are too rare for most NATs", peer.keepalive),
            format!("{nat}; many NATs forget a flow after 30 s"),
            command,
        ));
    }
    // Whoever only begins connections itself needs none.
    let old = peer.handshake_age_before.filter(|age| *age >= crate::evidence::SESSION)?;
    (peer.keepalive == 0).then(|| {
        Finding::new(
            "nat-without-keepalive",
            &evidence.tunnel.name,
            "behind NAT and without keepalives the peer cannot reach this end while it is quiet; for a client that is \
             all right",
            format!("{nat}; the last handshake was {} ago", age(old)),
            command,
        )
    })
}

/// Private (RFC 1918) or shared by a provider's customers (RFC 6598).
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, ..] = address.octets();
            address.is_private() || address.is_link_local() || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local(),
    }
}

/// A time for people.
pub(crate) fn age(time: Duration) -> String {
    match time.as_secs() {
        ..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
