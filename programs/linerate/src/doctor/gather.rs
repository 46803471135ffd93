//! Gathers the evidence about tunnels, all at the same time: what is there, what echo requests bring about, and what is
//! there then.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::path::Path;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use linerate_control::client::TunnelClient;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::Table;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::uapi::{AEAD_IN_USE, socket};
use linerate_doctor::evidence::{Counters, Evidence, Host, OtherTunnel, Peer, Probe, SESSION, Tunnel, Way};
use linerate_doctor::{Finding, examine, security};
use linerate_host::plan::foreign::{self, Obstacle};
use linerate_host::ranges::is_link_local;
use linerate_host::spec::{Forwarding, Gateway, HostSpec, Inbound};
use linerate_host::state::HostState;
use linerate_host::step::MAIN;
use linerate_netio::process::peer;
use linerate_tunnel::ConfigFile;
use linerate_tunnel::ledger;
use linerate_tunnel::status::{PeerStatus, RunBy, Status};

use super::machine::{self, Times};
use super::protection::{metadata, protection, routes_past};
use super::{confinement, echo, network};

/// What was found out about a tunnel.
#[derive(Default)]
pub(super) struct Examination {
    pub(super) name: String,
    pub(super) connected: usize,
    pub(super) peers: usize,
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) findings: Vec<Finding>,
}

/// At most as many peers are sent echo requests, and so many that may be asleep.
const PROBED: usize = 16;
const PROBED_ROAMING: usize = 2;

/// At most as many allowed IPs are looked up in the routes.
pub(super) const LOOKED_UP: usize = 256;

/// Shares of a processor's time are told from at least this time.
const WINDOW: Duration = Duration::from_millis(250);

/// A handshake is retried every 5 s and up to 0.3 s (section 6.1); a silent peer is waited for until one was sent, and a
/// second for the answer.
const RETRY: Duration = Duration::from_millis(5500);
const ANSWER: Duration = Duration::from_secs(1);

/// A name that is not resolved by then is not resolved.
const NAME_TIMEOUT: Duration = Duration::from_secs(2);

/// A clock that is so far behind what exists already was set back.
const CLOCK: Duration = Duration::from_secs(120);

/// The firewall, read once for all tunnels: it may be large.
type Firewall = OnceLock<network::Firewall>;

/// Examines tunnels, side by side.
pub(super) fn examine_all(all: &[Status], probes: bool) -> Vec<Result<Examination, String>> {
    let firewall = &Firewall::new();
    thread::scope(|scope| {
        let threads: Vec<_> =
            all.iter().map(|one| scope.spawn(move || examine_one(one, all, probes, firewall))).collect();
        let died = |_| Err("a part of the examination ended unexpectedly".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
    })
}

/// Finds missing protection of a tunnel and its host. Returns false if rules that this needs could not be read.
pub(super) fn in_force(status: &Status) -> Result<(Vec<Finding>, bool), String> {
    let evidence = gather(status, std::slice::from_ref(status), false, &Firewall::new())?;
    let protection = &evidence.tunnel.protection;
    let needs_rules = protection.gateway_table.is_some() || protection.kill_switch.is_some();
    Ok((security(&evidence), !needs_rules || evidence.host.ruleset.is_some()))
}

fn examine_one(status: &Status, all: &[Status], probes: bool, firewall: &Firewall) -> Result<Examination, String> {
    let name = &status.interface;
    if status.is_unknown() {
        let reason = status.reason.as_deref().unwrap_or("the daemon does not respond");
        return Err(format!("{name}: cannot be examined: {reason}"));
    }
    let evidence = gather(status, all, probes, firewall)?;
    let confinement = confinement::findings(name, status);
    let mut findings = examine(&evidence);
    findings.extend(confinement);
    findings.sort_by_key(|finding| finding.severity);
    Ok(Examination {
        name: name.clone(),
        connected: evidence.tunnel.peers.iter().filter(|peer| peer.is_alive()).count(),
        peers: evidence.tunnel.peers.len(),
        counters: evidence.tunnel.counters.after,
        findings,
    })
}

fn gather(status: &Status, all: &[Status], probes: bool, firewall: &Firewall) -> Result<Evidence, String> {
    let name = &status.interface;
    if status.implementation == RunBy::Gone {
        let tunnel = Tunnel { name: name.clone(), is_dead: true, ..Tunnel::default() };
        return Ok(Evidence { tunnel, ..Evidence::default() });
    }
    if let Some(why) = &status.unexamined {
        return Err(why.clone());
    }
    let begin = Instant::now();
    let state = linerate_host::linux::Host::open().and_then(|mut host| host.state());
    let mut state = state.map_err(|error| format!("cannot read the host's network: {error}"))?;
    if state.link(name).is_none() {
        return Err(format!(
            "{name}: its interface has another name, or is in another network namespace: run this command there"
        ));
    }
    let file = file(status);
    let pid = daemon(name);
    let (device, stats) = ask(name)?;
    let (times, kernel, drops) = (Times::read(pid), network::counters(), network::socket_drops(device.listen_port));
    let mut tunnel = tunnel(status, &device, file.as_ref());
    tunnel.counters.before = stats;
    tunnel.peers = peers(status, &device, file.as_ref(), &state);

    let tried = if probes && !status.link_down { probe(&mut tunnel, begin)? } else { Vec::new() };
    thread::sleep(WINDOW.saturating_sub(begin.elapsed()));
    let (device_after, stats) = ask(name)?;
    tunnel.counters.after = stats;
    tunnel.window = begin.elapsed();
    update(&mut tunnel.peers, &device_after, &tried);

    let cipher = tunnel.counters.after.keys().find_map(|name| name.strip_prefix(AEAD_IN_USE)).map(str::to_owned);
    let port = device.listen_port;
    let network::Firewall { ruleset, foreign } = firewall.get_or_init(network::firewall).clone();
    state.foreign_chains = foreign;
    let obstacles = Obstacles::of(&mut tunnel, &state);
    // Without the privilege to list tables the list is empty; a process that can read a ledger has the privilege.
    let can_list = state.nftables && (ruleset.is_some() || tunnel.protection.is_ours);
    let host = Host {
        links: network::links(&state),
        tunnel_routes: tunnel_routes(&state, name),
        uplink: uplink(&state, false).or_else(|| uplink(&state, true)),
        reaches_ipv6: uplink(&state, true).is_some(),
        sysctls: network::sysctls(state.links.iter().map(|link| link.name.as_str())),
        port_obstacles: obstacles.before_port,
        forward_obstacles: obstacles.between,
        ruleset,
        has_legacy_rules: network::has_legacy_rules(),
        tables: can_list.then(|| state.firewall_tables.clone()),
        routes_past: routes_past(&tunnel, &state),
        metadata: metadata(),
        counters: Counters { before: kernel, after: network::counters() },
        socket_drops: Counters { before: drops, after: network::socket_drops(port) },
        name_servers: network::name_servers(),
        clock_behind: clock_behind(status),
    };
    let machine = machine::machine(&times, &Times::read(pid), pid, cipher);
    Ok(Evidence { tunnel, others: others(all, name), host, machine })
}

/// What other programs' firewalls drop of what a tunnel needs.
struct Obstacles {
    before_port: Vec<Obstacle>,
    between: Vec<Obstacle>,
}

impl Obstacles {
    /// Looks for them, and for what drops the answers of peers.
    fn of(tunnel: &mut Tunnel, state: &HostState) -> Self {
        let uplinks: Vec<String> = [false, true].into_iter().filter_map(|is_v6| uplink(state, is_v6)).collect();
        let is_beside = |link: &&linerate_host::state::Link| link.up && link.name != "lo" && link.name != tunnel.name;
        let links: Vec<String> = state.links.iter().filter(is_beside).map(|link| link.name.clone()).collect();
        let forwarding = Forwarding {
            listen_port: Some(tunnel.listen_port).filter(|port| *port != 0),
            // Packets from peer to peer, and new connections to peers, may be dropped on purpose.
            isolated: true,
            inbound: Inbound::Replies,
            ..Forwarding::default()
        };
        let spec = HostSpec {
            interface: tunnel.name.clone(),
            addresses: tunnel.addresses.iter().filter(|net| !is_link_local(net)).copied().collect(),
            allowed_ips: tunnel.peers.iter().flat_map(|peer| &peer.allowed_ips).copied().collect(),
            forwarding,
            ..HostSpec::default()
        };
        for peer in &mut tunnel.peers {
            let answers = peer.endpoint.zip(peer.endpoint_way.as_ref()).and_then(|(endpoint, way)| match way {
                Way::Device(device) => foreign::before_answers(&spec, state, device, endpoint.ip()),
                Way::None(_) => None,
            });
            peer.answers_obstacle = answers;
        }
        let devices = if tunnel.gateway.is_empty() { &uplinks } else { &tunnel.gateway };
        Self {
            before_port: foreign::before_port(&spec, state, &links),
            between: foreign::between(&spec, state, devices),
        }
    }
}

/// The tunnel's file, if it can be read.
fn file(status: &Status) -> Option<ConfigFile> {
    ConfigFile::open(status.file.as_ref().unwrap_or(&status.interface)).ok()
}

/// The daemon's process, if it is of this PID namespace.
pub(super) fn daemon(name: &str) -> Option<u32> {
    let tunnel = TunnelClient::of_interface(Path::new(socket::DIRECTORY), name).ok()?;
    peer(tunnel.closed()?).ok()?
}

/// The device's state, and the daemon's counters if it has any.
fn ask(name: &str) -> Result<(DeviceState, BTreeMap<String, u64>), String> {
    let directory = Path::new(socket::DIRECTORY);
    let open = || TunnelClient::of_interface(directory, name);
    let device =
        open().and_then(|mut tunnel| tunnel.get()).map_err(|error| linerate_wg::show::inaccessible(name, &error))?;
    // Other daemons close the connection, so this uses a separate one.
    let stats = open().and_then(|mut tunnel| tunnel.stats()).unwrap_or_default();
    Ok((device, stats.into_iter().collect()))
}

fn tunnel(status: &Status, device: &DeviceState, file: Option<&ConfigFile>) -> Tunnel {
    let twice = |file: &ConfigFile| {
        let is_about = |message: &&str| message.contains("is in the AllowedIPs of two peers");
        let messages = file.diagnostics.iter().map(|diagnostic| diagnostic.message.as_str()).filter(is_about);
        messages.filter_map(|message| message.split(' ').next()?.parse().ok()).collect()
    };
    let wanted_port = file.and_then(|file| file.contents.listen_port).unwrap_or(0);
    let listen_port = if device.listen_port == 0 { wanted_port } else { device.listen_port };
    Tunnel {
        name: status.interface.clone(),
        link_down: status.link_down,
        no_private_key: status.no_private_key,
        not_listening: status.not_listening,
        port_holder: status.not_listening.then(|| network::port_holder(listen_port)).flatten(),
        hook_failed: status.hook_failed,
        listen_port,
        mtu: status.mtu,
        fwmark: device.fwmark,
        addresses: status.addresses.clone(),
        file: status.file.clone(),
        table_off: file.is_some_and(|file| file.contents.table != Table::Auto),
        gateway: status.gateway.clone(),
        gateway_is_auto: file.is_some_and(|file| file.contents.gateway == Gateway::Auto),
        protection: protection(&status.interface, file),
        allowed_ips_twice: file.map(twice).unwrap_or_default(),
        public_key: device.private_key.as_ref().and_then(|key| {
            let key = linerate_protocol::PrivateKey::new(key.as_bytes())?;
            Some(PublicKey(key.public_key().0).to_string())
        }),
        ..Tunnel::default()
    }
}

fn peers(status: &Status, device: &DeviceState, file: Option<&ConfigFile>, state: &HostState) -> Vec<Peer> {
    let described: BTreeMap<&str, &PeerStatus> =
        status.peers.iter().map(|peer| (peer.public_key.as_str(), peer)).collect();
    let of_file = file.into_iter().flat_map(|file| &file.contents.peers);
    let has_endpoint: HashMap<PublicKey, bool> =
        of_file.map(|peer| (peer.public_key, peer.endpoint.is_some())).collect();
    // Of a peer that no file has, an endpoint may be where it was seen: it may be a client that is off by now.
    let is_client =
        |peer: &PeerState| !peer.last_handshake.is_zero() && peer.persistent_keepalive == 0 && device.peers.len() > 1;
    let destinations: HashMap<PublicKey, &Vec<IpNet>> = file
        .into_iter()
        .flat_map(|file| &file.contents.peers)
        .map(|peer| (peer.public_key, &peer.destinations))
        .collect();
    let own = own_addresses(state);
    let has_v6 = network::has_ipv6(&status.interface);
    // Without a file nobody is known to have wanted routes for everything.
    let is_routed = |net: &IpNet| (has_v6 || net.addr().is_ipv4()) && (file.is_some() || net.prefix_len() > 1);
    let mut lookups = LOOKED_UP;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let of = |peer: &PeerState| {
        let key = peer.public_key.to_string();
        let described = described.get(key.as_str());
        let allowed_ips: Vec<IpNet> =
            peer.allowed_ips.iter().filter_map(|(address, length)| IpNet::new(*address, *length).ok()).collect();
        let routed = allowed_ips.iter().filter(|net| is_routed(net));
        let inside = |net: &IpNet| Some((*net, inside(net, &own, state, &status.interface)?));
        let usable = routed.filter_map(inside).take(lookups);
        let ways: Vec<(IpNet, Way)> = usable.map(|(net, address)| (net, network::way(address, 0))).collect();
        lookups -= ways.len();
        let handshake_age = (!peer.last_handshake.is_zero()).then(|| now.saturating_sub(peer.last_handshake));
        Peer {
            label: described.and_then(|peer| peer.name.clone()).unwrap_or_else(|| key.clone()),
            endpoint: peer.endpoint,
            endpoint_name: described.and_then(|peer| peer.endpoint_name.clone()),
            resolved: None,
            // Of a group, only the one in use is.
            is_expected: described.is_none_or(|peer| peer.active != Some(false))
                && has_endpoint.get(&peer.public_key).copied().unwrap_or(peer.endpoint.is_some() && !is_client(peer)),
            is_suspended: peer.limits.suspended.is_some(),
            handshake_age,
            handshake_age_before: handshake_age,
            keepalive: peer.persistent_keepalive,
            has_preshared_key: peer.preshared_key.is_some(),
            sent_before: peer.tx_bytes,
            sent: peer.tx_bytes,
            received: peer.rx_bytes,
            allowed_ips,
            destinations: destinations.get(&peer.public_key).map(|nets| (*nets).clone()).unwrap_or_default(),
            endpoint_way: peer.endpoint.map(|endpoint| network::way(endpoint.ip(), device.fwmark)),
            ways,
            answers_obstacle: None,
            probe: None,
            public_key: key,
        }
    };
    device.peers.iter().map(of).collect()
}

/// Collects the addresses of this host's links.
pub(super) fn own_addresses(state: &HostState) -> Vec<IpAddr> {
    state.links.iter().flat_map(|link| &link.addresses).map(IpNet::addr).collect()
}

/// An address in `net` that is neither this host's own nor in a smaller network that is elsewhere, such as the local
/// one; of everything, one of the Internet. None for groups and for addresses of a link, whose way depends on the link.
pub(super) fn inside(net: &IpNet, own: &[IpAddr], state: &HostState, name: &str) -> Option<IpAddr> {
    let is_of_link = match net.addr() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    if is_of_link || net.addr().is_multicast() {
        return None;
    }
    if net.prefix_len() == net.max_prefix_len() {
        return Some(net.addr());
    }
    let elsewhere: Vec<IpNet> = state
        .routes
        .iter()
        .filter(|route| route.device.as_deref() != Some(name) && route.to.prefix_len() > net.prefix_len())
        .map(|route| route.to)
        .filter(|smaller| net.contains(smaller))
        .collect();
    let internet: &[&str] = match (net.prefix_len(), net.addr().is_ipv4()) {
        (0, true) => &["1.1.1.1", "8.8.8.8", "9.9.9.9"],
        (0, false) => &["2606:4700:4700::1111", "2001:4860:4860::8888"],
        _ => &[],
    };
    let internet = internet.iter().filter_map(|address| address.parse().ok());
    // The first addresses, and those that follow smaller networks.
    let after = elsewhere.iter().filter_map(|smaller| following(smaller.broadcast()));
    let mut candidates = internet.chain(net.hosts().take(8)).chain(after);
    candidates.find(|address| {
        net.contains(address) && !own.contains(address) && !elsewhere.iter().any(|smaller| smaller.contains(address))
    })
}

fn following(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => Some(Ipv4Addr::from(u32::from(address).checked_add(1)?).into()),
        IpAddr::V6(address) => Some(Ipv6Addr::from(u128::from(address).checked_add(1)?).into()),
    }
}

/// What the peers are by now. Only those of `tried` have had time to answer.
fn update(peers: &mut [Peer], device: &DeviceState, tried: &[String]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let states: BTreeMap<String, &PeerState> =
        device.peers.iter().map(|peer| (peer.public_key.to_string(), peer)).collect();
    for peer in peers {
        let Some(state) = states.get(&peer.public_key) else { continue };
        (peer.sent, peer.received) = (state.tx_bytes, state.rx_bytes);
        if !tried.contains(&peer.public_key) {
            peer.sent_before = peer.sent;
        }
        let since = (!state.last_handshake.is_zero()).then(|| now.saturating_sub(state.last_handshake));
        peer.handshake_age = since;
    }
}

/// Sends echo requests to peers, and waits for the handshakes that these begin.
fn probe(tunnel: &mut Tunnel, begin: Instant) -> Result<Vec<String>, String> {
    let mtu = tunnel.mtu;
    let targets = targets(tunnel);
    let names = tunnel.peers.iter().filter(|peer| peer.is_missing()).filter_map(|peer| peer.endpoint_name.clone());
    let lookups: Vec<_> = names.map(|name| (name.clone(), look_up(name))).collect();

    let probes: Vec<(usize, Option<Probe>)> = thread::scope(|scope| {
        let probing: Vec<_> =
            targets.iter().map(|target| (*target, scope.spawn(move || echo::probe(target.address, mtu)))).collect();
        let join = |(target, thread): (Target, thread::ScopedJoinHandle<'_, Option<Probe>>)| {
            // An address that was guessed need not be anybody's.
            let probe = thread.join().ok().flatten().filter(|probe| probe.answered || !target.is_guessed);
            (target.peer, probe)
        };
        probing.into_iter().map(join).collect()
    });
    for (peer, probe) in probes {
        tunnel.peers[peer].probe = probe;
    }
    let tried = wait(tunnel, &targets, begin)?;
    for (name, lookup) in lookups {
        let left = NAME_TIMEOUT.saturating_sub(begin.elapsed());
        let addresses = lookup.recv_timeout(left).unwrap_or_else(|_| Err("no answer in time".to_owned()));
        for peer in tunnel.peers.iter_mut().filter(|peer| peer.endpoint_name.as_ref() == Some(&name)) {
            peer.resolved = Some(addresses.clone());
        }
    }
    Ok(tried)
}

/// Waits until each peer that was sent an echo request and is missing was sent a handshake, and has had time to answer.
/// Returns the keys of those that have not.
fn wait(tunnel: &Tunnel, targets: &[Target], begin: Instant) -> Result<Vec<String>, String> {
    let name = &tunnel.name;
    // Where datagrams do not leave, none need be waited for.
    let leaves = |peer: &Peer| matches!(&peer.endpoint_way, Some(Way::Device(device)) if device != name);
    let peers = targets.iter().map(|target| &tunnel.peers[target.peer]);
    let missing = peers.filter(|peer| peer.is_missing() && leaves(peer));
    // Those that are waited for, and when each was seen to have been sent something.
    let mut waited: BTreeMap<String, Option<Instant>> = missing.map(|peer| (peer.public_key.clone(), None)).collect();
    let before: BTreeMap<String, u64> =
        tunnel.peers.iter().map(|peer| (peer.public_key.clone(), peer.sent_before)).collect();
    let initiations = |stats: &BTreeMap<String, u64>| stats.get("handshake_initiations_sent").copied().unwrap_or(0);
    let mut all_begun = None;
    while waited.values().any(|tried| tried.is_none_or(|tried| tried.elapsed() < ANSWER))
        && begin.elapsed() < RETRY + ANSWER
    {
        let asked = Instant::now();
        let (device, stats) = ask(name)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for peer in &device.peers {
            let key = peer.public_key.to_string();
            if now.saturating_sub(peer.last_handshake) < SESSION {
                waited.remove(&key);
            } else if let Some(tried @ None) = waited.get_mut(&key)
                && Some(&peer.tx_bytes) > before.get(&key)
            {
                *tried = Some(Instant::now());
            }
        }
        // A firewall of this host may keep what was sent from being counted as sent.
        let begun = initiations(&stats).saturating_sub(initiations(&tunnel.counters.before));
        if begun >= waited.len() as u64 {
            all_begun.get_or_insert_with(Instant::now);
        }
        if all_begun.is_some_and(|begun| begun.elapsed() > ANSWER) {
            break;
        }
        // A tunnel of many peers is not asked all the time.
        thread::sleep(Duration::from_millis(50).max(asked.elapsed() * 4));
    }
    let had_time = |tried: &Option<Instant>| tried.is_some_and(|tried| tried.elapsed() >= ANSWER);
    Ok(waited.into_iter().filter(|(_, tried)| had_time(tried)).map(|(key, _)| key).collect())
}

/// Where an echo request goes, for which peer.
#[derive(Clone, Copy)]
struct Target {
    peer: usize,
    address: IpAddr,
    is_guessed: bool,
}

/// The addresses of the peers that should answer, and of some that were there a moment ago.
fn targets(tunnel: &Tunnel) -> Vec<Target> {
    let mut chosen: Vec<usize> = (0..tunnel.peers.len()).collect();
    let peer = |index: &usize| &tunnel.peers[*index];
    chosen.retain(|index| !peer(index).is_suspended && (peer(index).is_expected || peer(index).is_alive()));
    chosen.sort_by_key(|index| (!peer(index).is_expected, peer(index).handshake_age));
    let expected = chosen.iter().filter(|index| peer(index).is_expected).count();
    chosen.truncate(PROBED.min(expected + PROBED_ROAMING));
    chosen.into_iter().filter_map(|index| target(tunnel, index)).collect()
}

fn target(tunnel: &Tunnel, index: usize) -> Option<Target> {
    let own = |address: &IpAddr| tunnel.addresses.iter().any(|own| own.addr() == *address);
    let ways = &tunnel.peers[index].ways;
    let into_tunnel = |way: &Way| *way == Way::Device(tunnel.name.clone());
    let routed = ways.iter().filter(|(_, way)| into_tunnel(way)).map(|(net, _)| net);
    let host = routed.clone().find(|net| net.prefix_len() == net.max_prefix_len() && !own(&net.addr()));
    if let Some(host) = host {
        return Some(Target { peer: index, address: host.addr(), is_guessed: false });
    }
    // The first address of our own network is usually the server's.
    let first = |address: &IpNet| {
        let net = IpNet::new(address.addr(), address.prefix_len().min(if address.addr().is_ipv4() { 24 } else { 64 }));
        net.ok()?.hosts().find(|address| !own(address))
    };
    let net = routed.clone().next()?;
    let neighbour = tunnel.addresses.iter().filter_map(first).find(|address| net.contains(address));
    let address = neighbour.or_else(|| net.hosts().find(|address| !own(address)))?;
    Some(Target { peer: index, address, is_guessed: true })
}

/// Looks a `HOST:PORT` up, in a thread of its own: it may take long.
fn look_up(name: String) -> mpsc::Receiver<Result<Vec<IpAddr>, String>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let addresses = name.to_socket_addrs().map(|all| all.map(|address| address.ip()).collect());
        // Whoever asked may have given up.
        let _ = sender.send(addresses.map_err(|error| error.to_string()));
    });
    receiver
}

/// The routes over the tunnel that somebody made.
fn tunnel_routes(state: &HostState, name: &str) -> Vec<IpNet> {
    // rtnetlink.h, RTPROT_KERNEL: those come with addresses.
    const KERNEL: u8 = 2;
    let over = state.routes.iter().filter(|route| route.device.as_deref() == Some(name) && route.protocol != KERNEL);
    over.map(|route| route.to).collect()
}

fn uplink(state: &HostState, is_v6: bool) -> Option<String> {
    let everything = |net: &IpNet| net.prefix_len() == 0 && net.addr().is_ipv6() == is_v6;
    let default =
        state.routes.iter().find(|route| everything(&route.to) && route.table == MAIN && route.device.is_some());
    default.and_then(|route| route.device.clone())
}

fn others(all: &[Status], name: &str) -> Vec<OtherTunnel> {
    let other = |status: &Status| OtherTunnel {
        name: status.interface.clone(),
        listen_port: status.listen_port,
        allowed_ips: status
            .peers
            .iter()
            .flat_map(|peer| &peer.allowed_ips)
            .filter_map(|net| net.parse().ok())
            .collect(),
    };
    let is_other = |status: &&Status| status.interface != name && status.is_running();
    if all.len() > 1 {
        return all.iter().filter(is_other).map(other).collect();
    }
    let all = linerate_tunnel::status::status(None).unwrap_or_default();
    all.iter().filter(is_other).map(other).collect()
}

/// Something that exists already, and how far in the future it was written by this clock.
fn clock_behind(status: &Status) -> Option<(String, Duration)> {
    let ledger = Path::new(ledger::DIRECTORY).join(format!("{}.json", status.interface));
    let files = status.file.iter().map(Into::into).chain([ledger, "/proc/self/exe".into()]);
    files.into_iter().find_map(|file: std::path::PathBuf| {
        let written = std::fs::metadata(&file).ok()?.modified().ok()?;
        let ahead = written.duration_since(SystemTime::now()).ok().filter(|ahead| *ahead > CLOCK)?;
        Some((format!("{} was written at a time that", file.display()), ahead))
    })
}

#[cfg(test)]
mod tests {
    use linerate_host::step::Route;

    use super::*;

    fn chosen(net: &str, routes: &[(&str, &str)]) -> Option<String> {
        let route = |(to, device): &(&str, &str)| Route {
            to: to.parse().unwrap(),
            device: Some((*device).to_owned()),
            via: None,
            table: MAIN,
            metric: 0,
            protocol: 4,
            scope: 0,
            source: None,
            mtu: 0,
            onlink: false,
        };
        let state = HostState { routes: routes.iter().map(route).collect(), ..HostState::default() };
        inside(&net.parse().unwrap(), &["10.0.0.1".parse().unwrap()], &state, "wg0").map(|address| address.to_string())
    }

    #[test]
    fn the_way_of_a_network_is_that_of_an_address_that_is_nowhere_else() {
        assert_eq!(chosen("10.0.0.0/24", &[]).unwrap(), "10.0.0.2", "10.0.0.1 is this host's");
        assert_eq!(chosen("192.168.0.0/16", &[("192.168.0.0/24", "eth0")]).unwrap(), "192.168.1.0");
        assert_eq!(chosen("192.168.0.0/16", &[("192.168.0.0/16", "eth0")]).unwrap(), "192.168.0.1");
        assert_eq!(chosen("192.168.0.0/16", &[("192.168.0.0/24", "wg0")]).unwrap(), "192.168.0.1");
        assert_eq!(chosen("0.0.0.0/0", &[("1.1.1.1/32", "eth0")]).unwrap(), "8.8.8.8");
        assert_eq!(chosen("0.0.0.0/0", &[("0.0.0.0/1", "tun0"), ("128.0.0.0/1", "tun0")]), None);
        assert_eq!(chosen("::/0", &[]).unwrap(), "2606:4700:4700::1111");
        for net in ["224.0.0.5/32", "fe80::/64", "fe80::/10", "ff02::/16", "169.254.0.0/16"] {
            assert_eq!(chosen(net, &[]), None, "{net}");
        }
    }
}
