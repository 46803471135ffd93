//! Gathers the evidence about tunnels, all at the same time: what is there, what echo requests bring about, and what is
//! there then.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use linerate_control::client::TunnelClient;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::Table;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::uapi::{AEAD_IN_USE, socket};
use linerate_doctor::evidence::{Counters, Evidence, Host, OtherTunnel, Peer, Probe, SESSION, Tunnel, Way};
use linerate_doctor::{Finding, examine};
use linerate_host::state::HostState;
use linerate_host::step::MAIN;
use linerate_netio::process::peer;
use linerate_tunnel::ConfigFile;
use linerate_tunnel::ledger;
use linerate_tunnel::status::{PeerStatus, RunBy, Status};

use super::machine::{self, Times};
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
const LOOKED_UP: usize = 256;

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

/// Examines tunnels, side by side.
pub(super) fn examine_all(all: &[Status], probes: bool) -> Vec<Result<Examination, String>> {
    thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|one| scope.spawn(move || examine_one(one, all, probes))).collect();
        let died = |_| Err("a part of the examination ended unexpectedly".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
    })
}

fn examine_one(status: &Status, all: &[Status], probes: bool) -> Result<Examination, String> {
    let name = &status.interface;
    if status.is_unknown() {
        let reason = status.reason.as_deref().unwrap_or("the daemon does not respond");
        return Err(format!("{name}: cannot be examined: {reason}"));
    }
    let confinement = confinement::findings(name, status)?;
    let evidence = gather(status, all, probes)?;
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

fn gather(status: &Status, all: &[Status], probes: bool) -> Result<Evidence, String> {
    let name = &status.interface;
    if status.implementation == RunBy::Gone {
        let tunnel = Tunnel { name: name.clone(), is_dead: true, ..Tunnel::default() };
        return Ok(Evidence { tunnel, ..Evidence::default() });
    }
    let begin = Instant::now();
    let state = linerate_host::linux::Host::open().and_then(|mut host| host.state());
    let state = state.map_err(|error| format!("cannot read the host's network: {error}"))?;
    if state.link(name).is_none() {
        return Err(format!("{name}: its interface is in another network namespace; run this command there"));
    }
    let file = file(status);
    let pid = daemon(name);
    let (device, stats) = ask(name)?;
    let (times, kernel, drops) = (Times::read(pid), network::counters(), network::socket_drops(device.listen_port));
    let mut tunnel = tunnel(status, &device, file.as_ref());
    tunnel.counters.before = stats;
    tunnel.peers = peers(status, &device, file.as_ref(), &state);

    if probes && !status.link_down {
        probe(&mut tunnel, &device, begin)?;
    }
    thread::sleep(WINDOW.saturating_sub(begin.elapsed()));
    let (device_after, stats) = ask(name)?;
    tunnel.counters.after = stats;
    tunnel.window = begin.elapsed();
    update(&mut tunnel.peers, &device_after);

    let cipher = tunnel.counters.after.keys().find_map(|name| name.strip_prefix(AEAD_IN_USE)).map(str::to_owned);
    let devices = tunnel.peers.iter().filter_map(|peer| match &peer.endpoint_way {
        Some(Way::Device(device)) => Some(device.as_str()),
        _ => None,
    });
    let port = device.listen_port;
    let host = Host {
        links: network::links(&state),
        tunnel_routes: tunnel_routes(&state, name),
        uplink: uplink(&state),
        sysctls: network::sysctls(devices.chain([name.as_str()])),
        ruleset: network::ruleset(),
        counters: Counters { before: kernel, after: network::counters() },
        socket_drops: Counters { before: drops, after: network::socket_drops(port) },
        name_servers: network::name_servers(),
        clock_behind: clock_behind(status),
    };
    let machine = machine::machine(&times, &Times::read(pid), pid, cipher);
    Ok(Evidence { tunnel, others: others(all, name), host, machine })
}

/// The tunnel's file, if it can be read.
fn file(status: &Status) -> Option<ConfigFile> {
    ConfigFile::open(status.file.as_ref().unwrap_or(&status.interface)).ok()
}

/// The daemon's process, if it is of this PID namespace.
fn daemon(name: &str) -> Option<u32> {
    let tunnel = TunnelClient::open(Path::new(socket::DIRECTORY), name).ok()?;
    peer(tunnel.closed()?).ok()?
}

/// The device's state, and the daemon's counters if it has any.
fn ask(name: &str) -> Result<(DeviceState, BTreeMap<String, u64>), String> {
    let directory = Path::new(socket::DIRECTORY);
    let open = || TunnelClient::open(directory, name);
    let device = open().and_then(|mut tunnel| tunnel.get()).map_err(|error| crate::show::inaccessible(name, &error))?;
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
        table_off: file.is_some_and(|file| file.contents.table == Table::Off),
        gateway: status.gateway.clone(),
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
    let has_endpoint = |key: &PublicKey| {
        let peer = file.and_then(|file| file.contents.peers.iter().find(|peer| peer.public_key == *key));
        peer.map(|peer| peer.endpoint.is_some())
    };
    let own: Vec<IpAddr> = state.links.iter().flat_map(|link| &link.addresses).map(IpNet::addr).collect();
    let mut lookups = LOOKED_UP;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let of = |peer: &PeerState| {
        let key = peer.public_key.to_string();
        let described = described.get(key.as_str());
        let allowed_ips: Vec<IpNet> =
            peer.allowed_ips.iter().filter_map(|(address, length)| IpNet::new(*address, *length).ok()).collect();
        let usable = allowed_ips.iter().filter_map(|net| Some((*net, inside(net, &own)?))).take(lookups);
        let ways: Vec<(IpNet, Way)> = usable.map(|(net, address)| (net, network::way(address, 0))).collect();
        lookups -= ways.len();
        let handshake_age = (!peer.last_handshake.is_zero()).then(|| now.saturating_sub(peer.last_handshake));
        Peer {
            label: described.and_then(|peer| peer.name.clone()).unwrap_or_else(|| key.clone()),
            endpoint: peer.endpoint,
            endpoint_name: described.and_then(|peer| peer.endpoint_name.clone()),
            resolved: None,
            // Without a file, an endpoint was configured by hand.
            is_expected: has_endpoint(&peer.public_key).unwrap_or(peer.endpoint.is_some()),
            is_suspended: peer.limits.suspended.is_some(),
            handshake_age,
            handshake_age_before: handshake_age,
            keepalive: peer.persistent_keepalive,
            has_preshared_key: peer.preshared_key.is_some(),
            sent: peer.tx_bytes,
            received: peer.rx_bytes,
            allowed_ips,
            endpoint_way: peer.endpoint.map(|endpoint| network::way(endpoint.ip(), device.fwmark)),
            ways,
            probe: None,
            public_key: key,
        }
    };
    device.peers.iter().map(of).collect()
}

/// An address in `net` that is not this host's own; of everything, one of the Internet.
fn inside(net: &IpNet, own: &[IpAddr]) -> Option<IpAddr> {
    match net {
        _ if net.prefix_len() == net.max_prefix_len() => Some(net.addr()),
        IpNet::V4(net) if net.prefix_len() == 0 => Some(IpAddr::from([1, 1, 1, 1])),
        IpNet::V6(net) if net.prefix_len() == 0 => "2606:4700:4700::1111".parse().ok(),
        _ => net.hosts().take(8).find(|address| !own.contains(address)),
    }
}

/// What the peers are by now.
fn update(peers: &mut [Peer], device: &DeviceState) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let states: BTreeMap<String, &PeerState> =
        device.peers.iter().map(|peer| (peer.public_key.to_string(), peer)).collect();
    for peer in peers {
        let Some(state) = states.get(&peer.public_key) else { continue };
        (peer.sent, peer.received) = (state.tx_bytes, state.rx_bytes);
        let since = (!state.last_handshake.is_zero()).then(|| now.saturating_sub(state.last_handshake));
        peer.handshake_age = since;
    }
}

/// Sends echo requests to peers, and waits for the handshakes that these begin.
fn probe(tunnel: &mut Tunnel, device: &DeviceState, begin: Instant) -> Result<(), String> {
    let mtu = tunnel.mtu;
    let targets = targets(tunnel);
    let silent = || tunnel.peers.iter().filter(|peer| peer.is_silent());
    let names: Vec<String> = silent().filter_map(|peer| peer.endpoint_name.clone()).collect();
    // Where datagrams do not leave, none need be waited for.
    let leaves = |peer: &&Peer| matches!(&peer.endpoint_way, Some(Way::Device(device)) if *device != tunnel.name);
    let mut expected: Vec<String> = silent().filter(leaves).map(|peer| peer.public_key.clone()).collect();
    let lookups: Vec<_> = names.into_iter().map(|name| (name.clone(), look_up(name))).collect();
    let (name, before) = (tunnel.name.clone(), device);

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
        if probe.as_ref().is_some_and(|probe| probe.answered) {
            expected.retain(|key| *key != tunnel.peers[peer].public_key);
        }
        tunnel.peers[peer].probe = probe;
    }
    let sent = |device: &DeviceState| device.peers.iter().map(|peer| peer.tx_bytes).sum::<u64>();
    let mut tried = None;
    while !expected.is_empty() && begin.elapsed() < RETRY + ANSWER {
        let (device, stats) = ask(&name)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        expected.retain(|key| {
            let alive = |peer: &&PeerState| now.saturating_sub(peer.last_handshake) < SESSION;
            device.peers.iter().filter(alive).all(|peer| peer.public_key.to_string() != *key)
        });
        let initiations = |stats: &BTreeMap<String, u64>| stats.get("handshake_initiations_sent").copied();
        let has_tried = match (initiations(&tunnel.counters.before), initiations(&stats)) {
            (Some(before), Some(after)) => after > before,
            _ => sent(&device) > sent(before),
        };
        if has_tried && tried.is_none() {
            tried = Some(Instant::now());
        }
        if tried.is_some_and(|tried| tried.elapsed() > ANSWER) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    for (name, lookup) in lookups {
        let left = NAME_TIMEOUT.saturating_sub(begin.elapsed());
        let addresses = lookup.recv_timeout(left).unwrap_or_else(|_| Err("no answer in time".to_owned()));
        for peer in tunnel.peers.iter_mut().filter(|peer| peer.endpoint_name.as_ref() == Some(&name)) {
            peer.resolved = Some(addresses.clone());
        }
    }
    Ok(())
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

fn uplink(state: &HostState) -> Option<String> {
    let default =
        state.routes.iter().find(|route| route.to.prefix_len() == 0 && route.table == MAIN && route.device.is_some());
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
