//! The tunnel's file of an import.

use std::fmt::Write as _;
use std::time::SystemTime;

use ipnet::IpNet;
use linerate_control::document::Document;
use linerate_control::interface::InterfaceName;
use linerate_control::tunnel_file::{NoNames, Severity, TunnelFile};
use linerate_control::zeroizing::Buffer;

use super::text::rfc3339;
use super::value::{Client, Import};
use super::{Error, conf};

/// What begins each line of a client that may not connect, so that other tools read past it.
const DISABLED: &str = "#~ ";

/// How an import is written.
pub struct Options {
    /// The time of the import: of clients whose own is not known, and of those that are disabled.
    pub now: SystemTime,
    /// Whether clients' private keys are kept.
    pub keep_keys: bool,
    /// Whether ways are opened in firewalls of others.
    pub fix_firewall: bool,
}

impl Import {
    /// The file. It is read back before it is returned, so it is valid.
    ///
    /// # Errors
    /// A value that the file cannot have, or no public endpoint.
    pub fn to_bytes(&self, interface: &InterfaceName, options: &Options) -> Result<Buffer, Error> {
        let Some(endpoint) = &self.endpoint else {
            return Err(Error::new(
                "these files do not say where clients reach the server: add --endpoint HOST[:PORT]",
            ));
        };
        let mut out = Lines { bytes: Buffer::new(), is_broken: false, prefix: "" };
        let mut line = |parts: &[&str]| out.add(parts);
        line(&[&format!("# Imported from {} by linerate.", self.kind.title())]);
        line(&["[Interface]"]);
        line(&[&format!("Address = {}", list(&self.addresses))]);
        if let Some(port) = self.listen_port {
            line(&[&format!("ListenPort = {port}")]);
        }
        match &self.private_key_file {
            Some(path) => line(&[&format!("#! PrivateKeyFile = {path}")]),
            None => line(&["PrivateKey = ", &self.private_key.to_base64()]),
        }
        if let Some(mtu) = self.mtu {
            line(&[&format!("MTU = {mtu}")]);
        }
        for (name, value) in &self.other {
            line(&[&format!("{name} = {value}")]);
        }
        for (phase, command) in &self.hooks {
            line(&[&format!("{phase:?} = {command}")]);
        }
        line(&[&format!("#! PublicEndpoint = {endpoint}")]);
        if !self.pool.is_empty() {
            line(&[&format!("#! Pool = {}", list(&self.pool))]);
        }
        self.settings(options, &mut out);
        for client in &self.clients {
            out.prefix = "";
            out.add(&[]);
            client.write(options, &mut out);
        }
        if out.is_broken {
            return Err(Error::new("a value has a line end or another control character: correct it in the old tool"));
        }
        self.verify(&out.bytes, interface)?;
        Ok(out.bytes)
    }

    /// The settings of a gateway, and the defaults of client files.
    fn settings(&self, options: &Options, out: &mut Lines) {
        let mut line = |parts: &[&str]| out.add(parts);
        if let Some(interfaces) = &self.gateway {
            let through = if interfaces.is_empty() { "auto".to_owned() } else { interfaces.join(", ") };
            line(&[&format!("#! Gateway = {through}")]);
            if let Some(families) = self.masquerade_text() {
                line(&[&format!("#! Masquerade = {families}")]);
            }
            if self.inbound {
                line(&["#! Inbound = all"]);
            }
            if self.isolated {
                line(&["#! ClientIsolation = true"]);
            }
        }
        if options.fix_firewall {
            line(&["#! FixFirewall = true"]);
        }
        if !self.client_dns.is_empty() {
            line(&[&format!("#! ClientDNS = {}", self.client_dns.join(", "))]);
        }
        if !self.client_allowed_ips.is_empty() {
            line(&[&format!("#! ClientAllowedIPs = {}", list(&self.client_allowed_ips))]);
        }
        if let Some(mtu) = self.client_mtu {
            line(&[&format!("#! ClientMTU = {mtu}")]);
        }
        match self.client_keepalive {
            Some(0) => line(&["#! ClientKeepalive = off"]),
            Some(seconds) => line(&[&format!("#! ClientKeepalive = {seconds}")]),
            None => {}
        }
    }

    /// Whether the file says to a reader what this import says.
    fn verify(&self, bytes: &[u8], interface: &InterfaceName) -> Result<(), Error> {
        let mut uncovered = Buffer::with_capacity(bytes.len());
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            uncovered.extend(line.strip_prefix(DISABLED.as_bytes()).unwrap_or(line));
        }
        let (file, diagnostics) = TunnelFile::read(&Document::parse(&uncovered), interface, &NoNames);
        if let Some(error) = diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Error) {
            return Err(Error::new(format!("a value cannot be written: {}", error.message)));
        }
        let peers = file.peers.iter().map(|peer| (peer.public_key, &peer.preshared_key, &peer.allowed_ips));
        let clients = self.clients.iter();
        let same = file.peers.len() == self.clients.len()
            && file.hooks.len() == self.hooks.len()
            && peers.zip(clients).all(|((public_key, preshared_key, allowed_ips), client)| {
                let nets: Vec<IpNet> = client.allowed_ips.iter().map(IpNet::trunc).collect();
                public_key == client.public_key
                    && *preshared_key == client.preshared_key
                    && super::value::same(allowed_ips, &nets)
            });
        let has_key = self.private_key_file.is_some() || file.private_key.as_ref() == Some(&self.private_key);
        let is_same = same && has_key && file.addresses == self.addresses;
        if !is_same || !conf::is_tunnel(&uncovered) {
            return Err(Error::new(
                "the clients could not all be written: a name, a note or a command breaks the file",
            ));
        }
        Ok(())
    }
}

/// Lines that may hold secrets: no part of them is copied on the way.
struct Lines {
    bytes: Buffer,
    /// A value would have ended its line.
    is_broken: bool,
    /// What begins each line.
    prefix: &'static str,
}

impl Lines {
    fn add(&mut self, parts: &[&str]) {
        for part in [self.prefix].iter().chain(parts) {
            self.is_broken |= part.contains(char::is_control);
            self.bytes.extend(part.as_bytes());
        }
        self.bytes.extend(b"\n");
    }
}

impl Client {
    fn write(&self, options: &Options, out: &mut Lines) {
        out.prefix = if self.enabled { "" } else { DISABLED };
        let mut line = |parts: &[&str]| out.add(parts);
        line(&["[Peer]"]);
        if !self.enabled {
            line(&[&format!("#! Disabled = {}", rfc3339(options.now))]);
        }
        if !(self.is_site && self.old_name.is_empty()) {
            line(&[&format!("# Name = {}", self.name)]);
        }
        if !self.is_site {
            line(&[&format!("#! Created = {}", rfc3339(self.created.unwrap_or(options.now)))]);
        }
        if let Some(time) = self.expires {
            line(&[&format!("#! Expires = {}", rfc3339(time))]);
        }
        if let Some(bytes) = self.quota {
            line(&[&format!("#! Quota = {}", quota(bytes))]);
        }
        if !self.destinations.is_empty() {
            line(&[&format!("#! Destinations = {}", list(&self.destinations))]);
        }
        if let Some(prefixes) = &self.client_allowed_ips {
            line(&[&format!("#! ClientAllowedIPs = {}", list(prefixes))]);
        }
        if let Some(note) = &self.note {
            line(&[&format!("#! Note = {note}")]);
        }
        if let Some(key) = self.private_key.as_ref().filter(|_| options.keep_keys) {
            line(&["#! ClientPrivateKey = ", &key.to_base64()]);
        }
        line(&[&format!("PublicKey = {}", self.public_key)]);
        if let Some(key) = &self.preshared_key {
            line(&["PresharedKey = ", &key.to_base64()]);
        }
        if !self.allowed_ips.is_empty() {
            line(&[&format!("AllowedIPs = {}", list(&self.allowed_ips))]);
        }
        if let Some(endpoint) = &self.endpoint {
            line(&[&format!("Endpoint = {endpoint}")]);
        }
        if let Some(seconds) = self.keepalive.filter(|&seconds| seconds > 0) {
            line(&[&format!("PersistentKeepalive = {seconds}")]);
        }
    }
}

fn list(nets: &[IpNet]) -> String {
    let mut text = String::new();
    for (index, net) in nets.iter().enumerate() {
        let _ = write!(text, "{}{net}", if index == 0 { "" } else { ", " });
    }
    text
}

/// In binary gigabytes if that is exact.
fn quota(bytes: u64) -> String {
    const GI: u64 = 1 << 30;
    if bytes > 0 && bytes.is_multiple_of(GI) { format!("{}Gi", bytes / GI) } else { bytes.max(1).to_string() }
}
