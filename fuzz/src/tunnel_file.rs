//! Any bytes as a tunnel file: diagnostics have correct positions, an unchanged file plans no change, `strip` outputs
//! what `wg` reads, and a saved file describes what runs.
//!
//! An input is a sequence of changes to the running tunnel, of a few bytes each, a zero byte, and the file.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use linerate_control::document::Document;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::{
    AllowedIpRemoval, Endpoint, NoNames, RunningTunnel, Severity, TunnelFile, changes, save, strip,
};
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::wg_config::{self, Mode, Resolver, ValueError};

use crate::bytes::Bytes;

pub fn check(input: &[u8]) {
    let end = input.iter().position(|&byte| byte == 0).unwrap_or(input.len());
    let (edits, bytes) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    let document = Document::parse(bytes);
    let interface: InterfaceName = "wg0".parse().expect("it is a name");
    let (file, diagnostics) = TunnelFile::read(&document, &interface, &NoNames);

    let lines = bytes.split(|&byte| byte == b'\n').count();
    assert!(diagnostics.iter().all(|diagnostic| (1..=lines).contains(&diagnostic.line) && diagnostic.column > 0));
    assert!(diagnostics.is_sorted_by_key(|diagnostic| (diagnostic.line, diagnostic.column)));

    let mut device = running(&file);
    for lists in [AllowedIpRemoval::Replace, AllowedIpRemoval::OneByOne] {
        let settings = changes(&file, &file, &device, lists);
        assert!(settings.update == DeviceUpdate::default() && settings.unresolved.is_empty());
    }
    let is_right = diagnostics.is_empty();
    if diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        // A file with errors is neither brought up nor saved.
        return;
    }
    is_read_by_wg(&document, &file);

    let mut saved = document.clone();
    bring_back(&mut saved, &interface, &file, &device);
    if is_right {
        assert_eq!(saved.to_bytes()[..], *bytes, "a tunnel that equals its file leaves the file unchanged");
    }
    let mut edits = Bytes(edits);
    while !edits.is_empty() {
        change(&mut device, &mut edits);
    }
    bring_back(&mut saved, &interface, &file, &device);
    let text = saved.to_bytes();
    if is_right {
        let (saved_file, diagnostics) = TunnelFile::read(&Document::parse(&text), &interface, &NoNames);
        assert!(diagnostics.iter().all(|diagnostic| diagnostic.severity == Severity::Warning), "{diagnostics:?}");
        assert_describes(&saved_file, &device);
    }
    bring_back(&mut saved, &interface, &file, &device);
    assert_eq!(saved.to_bytes()[..], text[..], "saving again changes nothing");
}

/// The device described by the file; names are not resolved.
fn running(file: &TunnelFile) -> DeviceState {
    let peers = file.peers.iter().map(|peer| {
        let mut made = PeerState::new(peer.public_key);
        made.preshared_key = peer.preshared_key.clone().filter(|key| !key.is_zero());
        made.endpoint = match peer.endpoint {
            Some(Endpoint::Address(address)) => Some(address),
            _ => None,
        };
        made.persistent_keepalive = peer.persistent_keepalive.unwrap_or(0);
        made.allowed_ips = peer.allowed_ips.iter().map(|net| (net.addr(), net.prefix_len())).collect();
        made
    });
    DeviceState {
        private_key: file.private_key.clone().filter(|key| !key.is_zero()),
        listen_port: file.listen_port.unwrap_or(0),
        fwmark: file.fwmark.unwrap_or(0),
        peers: peers.collect(),
    }
}

/// Changes the running tunnel.
fn change(device: &mut DeviceState, edits: &mut Bytes<'_>) {
    let (what, which) = (edits.byte(), edits.byte());
    let net = (IpAddr::from([10, which, 0, 0]), 16 + which % 17);
    let net = IpNet::new(net.0, net.1).map_or(net, |net| (net.trunc().addr(), net.prefix_len()));
    let endpoint = SocketAddr::from(([192, 0, 2, which], 51820));
    match what % 8 {
        0 => device.private_key = Some(SecretKey::from_bytes(&[which.max(1); 32])),
        1 => device.listen_port = u16::from(which),
        2 => device.fwmark = u32::from(which),
        3 if device.peers.iter().all(|peer| peer.public_key.0 != [which; 32]) => {
            device.peers.push(PeerState::new(PublicKey([which; 32])));
        }
        4 if !device.peers.is_empty() => {
            device.peers.remove(usize::from(which) % device.peers.len());
        }
        5 => device.peers.iter_mut().for_each(|peer| peer.allowed_ips.retain(|has| *has != net)),
        _ => {}
    }
    let Some(peer) = device.peers.last_mut() else { return };
    match what % 8 {
        5 => peer.allowed_ips.push(net),
        6 => peer.endpoint = Some(endpoint),
        7 => peer.persistent_keepalive = u16::from(which),
        _ => {}
    }
}

fn bring_back(document: &mut Document, interface: &InterfaceName, file: &TunnelFile, device: &DeviceState) {
    let runtime = RunningTunnel {
        interface,
        device,
        addresses: &file.addresses,
        has_ipv6: true,
        mtu: file.mtu.unwrap_or(1420),
        dns_servers: None,
        // An unused port, so that restoring one is tested.
        chosen_port: Some(u16::MAX),
        chosen_fwmark: None,
        previous: None,
        is_resolved_address: &|_, _| false,
    };
    save(document, &runtime).expect("the values of a device can be written");
}

fn assert_describes(file: &TunnelFile, device: &DeviceState) {
    let saved_file = running(file);
    if file.private_key_file.is_none() && file.hooks.is_empty() {
        assert!(saved_file.private_key == device.private_key);
    }
    // A device without a socket has no port to restore.
    assert!(saved_file.listen_port == device.listen_port || device.listen_port == 0);
    assert_eq!(saved_file.fwmark, device.fwmark);
    assert_eq!(saved_file.peers.len(), device.peers.len());
    for peer in &device.peers {
        let saved_peer =
            saved_file.peers.iter().find(|saved| saved.public_key == peer.public_key).expect("every peer is saved");
        assert_eq!(saved_peer.persistent_keepalive, peer.persistent_keepalive);
        assert_eq!(nets(&saved_peer.allowed_ips), nets(&peer.allowed_ips));
        assert!(saved_peer.endpoint == peer.endpoint || peer.endpoint.is_none());
    }
}

/// `wg` accepts what wg-quick would pass to it, and gets the same tunnel.
fn is_read_by_wg(document: &Document, file: &TunnelFile) {
    // A NUL ends a line for `wg` but not for bash, so the output of `strip` has more.
    if document.has_byte_order_mark() || document.to_bytes().contains(&0) {
        return;
    }
    let stripped = strip(document).unwrap_or_else(|refused| panic!("{refused}"));
    // `wg` ignores white space within keys, and wg-quick does not: it passes `D NS` to `wg`, which does not know DNS.
    if stripped.split(|&byte| byte == b'\n').any(has_blank_key) {
        return;
    }
    let update = match wg_config::parse(&stripped, Mode::Append, &mut OneAddress) {
        Ok(update) => update,
        Err(wrong) => panic!("{wrong}"),
    };
    assert!(file.private_key_file.is_some() || update.private_key == file.private_key);
    assert_eq!((update.listen_port, update.fwmark), (file.listen_port, file.fwmark));
    let named: BTreeSet<PublicKey> = update.peers.iter().map(|peer| peer.public_key).collect();
    assert_eq!(named, file.peers.iter().map(|peer| peer.public_key).collect());
}

fn has_blank_key(line: &[u8]) -> bool {
    let key = line.split(|byte| b"=#".contains(byte)).next().unwrap_or_default();
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    key.split(is_blank).filter(|word| !word.is_empty()).count() > 1
}

fn nets(nets: &[(IpAddr, u8)]) -> BTreeSet<(IpAddr, u8)> {
    nets.iter().copied().collect()
}

/// A resolver that returns the same host for every name.
struct OneAddress;

impl Resolver for OneAddress {
    fn resolve(&mut self, text: &str, _: &str, _: &str) -> Result<SocketAddr, ValueError> {
        Ok(text.parse().unwrap_or(SocketAddr::from(([192, 0, 2, 1], 51820))))
    }

    fn port(&mut self, service: &str) -> Result<u16, ValueError> {
        service.parse().map_err(|_| ValueError::Value(service.to_owned()))
    }

    fn warn(&mut self, _: &str) {}
}
