//! The file of a client, with only those settings that every app takes: the phones' refuse any other.

use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::TunnelFile;
use linerate_control::zeroizing::Buffer;

use crate::init::{is_public, list};
use crate::roster::Client;

/// Seconds between keepalives, where nothing else is said: most clients are behind NAT.
const KEEPALIVE: u16 = 25;

/// Why a client cannot have a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoClientFile {
    /// The server's file does not say where it is reached.
    #[error("the server's file does not say how clients reach it: `linerate server set --endpoint NAME-OR-ADDRESS`")]
    NoEndpoint,
    /// The server's port is another at each start.
    #[error("the server's file has no ListenPort, and clients have to know the port: add `ListenPort = 51820`")]
    NoPort,
}

/// The file of `client` of the server whose file is `server`, with the private key if it is known: else a comment says
/// where it belongs.
///
/// # Errors
/// The server's file does not say where it is reached.
pub fn client_file(
    server: &TunnelFile,
    server_key: &PublicKey,
    client: &Client,
    private_key: Option<&SecretKey>,
) -> Result<Buffer, NoClientFile> {
    let endpoint = server.public_endpoint.as_ref().ok_or(NoClientFile::NoEndpoint)?;
    let port = server.listen_port.filter(|port| *port != 0).or(endpoint.port()).ok_or(NoClientFile::NoPort)?;
    let mut text = Buffer::with_capacity(1024);
    let mut line = |name: &str, value: &str| {
        // A buffer takes everything.
        let _ = writeln!(text, "{name} = {value}");
    };
    line("[Interface]\n# Name", client.name.as_str());
    match private_key {
        Some(key) => line("PrivateKey", &key.to_base64()),
        None => line("# PrivateKey", "the private key of this client"),
    }
    let addresses: Vec<IpNet> = client.addresses().collect();
    line("Address", &list(&addresses));
    let dns = dns(server, client);
    if !dns.is_empty() {
        line("DNS", &list(&dns));
    }
    if let Some(mtu) = server.clients.mtu {
        line("MTU", &mtu.to_string());
    }
    line("\n[Peer]\nPublicKey", &server_key.to_string());
    if let Some(key) = &client.peer.preshared_key {
        line("PresharedKey", &key.to_base64());
    }
    line("AllowedIPs", &list(&allowed_ips(server, client)));
    line("Endpoint", &endpoint.with_port(port));
    match server.clients.keepalive.unwrap_or(KEEPALIVE) {
        0 => {}
        seconds => line("PersistentKeepalive", &seconds.to_string()),
    }
    Ok(text)
}

/// Returns the name servers and search domains for the file of `client`. Leaves out a name server in a private network that
/// the client does not reach through the tunnel; the client then keeps its own.
pub fn dns(server: &TunnelFile, client: &Client) -> Vec<String> {
    let sent = allowed_ips(server, client);
    let is_reached = |word: &&String| {
        let Ok(address) = word.parse::<IpAddr>() else { return true };
        is_public(address) || sent.iter().any(|net| net.contains(&address))
    };
    server.clients.dns.iter().filter(is_reached).cloned().collect()
}

/// What `client` sends through the tunnel.
pub fn allowed_ips(server: &TunnelFile, client: &Client) -> Vec<IpNet> {
    if !client.peer.client.allowed_ips.is_empty() {
        return client.peer.client.allowed_ips.clone();
    }
    if !server.clients.allowed_ips.is_empty() {
        return server.clients.allowed_ips.clone();
    }
    everything(&client.addresses().collect::<Vec<IpNet>>())
}

/// All addresses of the families that `addresses` are of: a route of the other one would lead nowhere.
pub fn everything(addresses: &[IpNet]) -> Vec<IpNet> {
    let all = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
    let has = |net: &IpNet| addresses.iter().any(|own| own.addr().is_ipv4() == net.addr().is_ipv4());
    all.into_iter().filter(has).collect()
}

/// `net` without `holes`, as the fewest prefixes.
pub fn without(net: IpNet, holes: &[IpNet]) -> Vec<IpNet> {
    if holes.iter().any(|hole| hole.contains(&net)) {
        return Vec::new();
    }
    if !holes.iter().any(|hole| net.contains(hole)) {
        return vec![net];
    }
    let halves = net.subnets(net.prefix_len() + 1);
    halves.into_iter().flatten().flat_map(|half| without(half, holes)).collect()
}

/// What is not on the internet: private networks (RFC 1918, RFC 4193), link-local addresses and multicast of IPv6.
pub const PRIVATE: [&str; 6] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10", "ff00::/8"];
