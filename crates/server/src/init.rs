//! What a new server is: its addresses, its port, where clients reach it, and its file; from what the user wishes and
//! what the host has. Whatever the user left open is decided here, and [`NewServer::notes`] says what is worth knowing.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linerate_control::document::{Document, InvalidValue, Setting};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::SecretKey;
use linerate_control::tunnel_file::{Diagnostic, NoNames, PublicEndpoint, Severity, TunnelFile, settings};

use crate::client_file::everything;
use crate::families::{self, Free, HostFamilies};

/// The port of a new server: firewalls, providers and guides know it, and WireGuard answers no one without a key, so
/// another port hides nothing.
pub const PORT: u16 = 51820;

/// What the user wishes; everything else is chosen.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Where clients reach the server.
    pub endpoint: Option<PublicEndpoint>,
    /// The port that it listens on.
    pub port: Option<u16>,
    /// The network that clients' IPv4 addresses come from.
    pub pool: Option<Ipv4Net>,
    /// The network that clients' IPv6 addresses come from, or one that contains it.
    pub prefix6: Option<Ipv6Net>,
    /// Whether there is IPv6 in the tunnel.
    pub ipv6: Option<bool>,
    /// What is masqueraded, as `Masquerade` says it.
    pub masquerade: Option<String>,
    /// Whether ways are opened in firewalls of others.
    pub fix_firewall: bool,
    /// Defaults of client files: the settings and their values.
    pub client_defaults: Vec<(Setting, String)>,
}

/// What a host has, as far as a new server has to know it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Networks that are in use: on links and routes of this host, and in the files of other tunnels.
    pub taken: Vec<IpNet>,
    /// The interface of the default route of IPv4.
    pub uplink4: Option<Uplink>,
    /// The interface of the default route of IPv6; none if IPv6 is off.
    pub uplink6: Option<Uplink>,
    /// IPv6 is off: no interface gets an address.
    pub ipv6_is_off: bool,
    /// Prefixes that are routed to this host: it has a route for them that leads nowhere.
    pub routed: Vec<RoutedPrefix>,
    /// The prefix of this host's unique local addresses (RFC 4193), a /48.
    pub local_prefix: Option<Ipv6Net>,
    /// UDP ports that are in use, or that the files of other tunnels have.
    pub ports: Vec<u16>,
    /// The name servers that this host asks and that packets of others reach through its default routes.
    pub resolvers: Vec<IpAddr>,
}

/// The interface of a default route.
#[derive(Clone, Debug)]
pub struct Uplink {
    /// Its name.
    pub interface: String,
    /// Its addresses, the preferred one first.
    pub addresses: Vec<IpAddr>,
}

/// A prefix that is routed to this host.
#[derive(Clone, Copy, Debug)]
pub struct RoutedPrefix {
    pub prefix: Ipv6Net,
    /// An administrator added the route. One that a DHCP client added may be another tomorrow.
    pub permanent: bool,
}

/// Random numbers for what is chosen by chance.
#[derive(Clone, Copy, Debug)]
pub struct Chance {
    /// Which of the 65,536 networks 10.x.y.0/24 is tried first.
    pub pool: u16,
    /// The 40 bits of a prefix of unique local addresses.
    pub local_prefix: [u8; 5],
}

impl Chance {
    /// Draws the random numbers from `fill`.
    pub fn new(fill: impl FnOnce(&mut [u8])) -> Self {
        let mut bytes = [0; 7];
        fill(&mut bytes);
        let [high, low, local_prefix @ ..] = bytes;
        Self { pool: u16::from_be_bytes([high, low]), local_prefix }
    }
}

/// A server to be made.
#[derive(Clone, Debug)]
pub struct NewServer {
    pub interface: InterfaceName,
    /// Where clients reach it.
    pub endpoint: PublicEndpoint,
    /// The port that it listens on.
    pub port: u16,
    /// The network that clients' IPv4 addresses come from.
    pub pool4: Ipv4Net,
    /// The network that clients' IPv6 addresses come from.
    pub pool6: Option<Ipv6Net>,
    /// What is masqueraded, as `Masquerade` says it.
    pub masquerade: String,
    /// Whether ways are opened in firewalls of others.
    pub fix_firewall: bool,
    /// The prefix of this host's unique local addresses, if it has to be kept because `pool6` is of it.
    pub local_prefix: Option<Ipv6Net>,
    /// Defaults of client files.
    pub client_defaults: Vec<(Setting, String)>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Why no server can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// The host does not know its public address.
    #[error("{}; say how clients reach this host: --endpoint NAME-OR-ADDRESS[:PORT]", unknown_address(found))]
    NoPublicAddress {
        /// The interface of the default route, and its address that is not public.
        found: Option<(String, Option<IpAddr>)>,
    },
    /// The port is in use.
    #[error("UDP port {0} is in use, by another program or by the file of another tunnel; choose another --port")]
    PortTaken(u16),
    /// No port is free.
    #[error("no UDP port from {PORT} on is free; choose one with --port")]
    NoPort,
    /// A network cannot be used for clients.
    #[error("{network} cannot be the clients' network: {why}")]
    Network {
        /// Which.
        network: IpNet,
        /// Why, and what would do.
        why: String,
    },
    /// No network of 10.0.0.0/8 is free.
    #[error("no /24 of 10.0.0.0/8 is free on this host; choose a network with --pool")]
    NoPool,
    /// A value is not one that the file can have.
    #[error("{0}")]
    Value(String),
    /// No /64 of a prefix is free.
    #[error("no /64 of {0} is free on this host; choose a network with --prefix6")]
    NoPrefix6(Ipv6Net),
}

impl InitError {
    /// What was wrong, without what to do.
    pub fn reason(&self) -> String {
        match self {
            Self::NoPublicAddress { found } => unknown_address(found),
            other => other.to_string(),
        }
    }
}

fn unknown_address(found: &Option<(String, Option<IpAddr>)>) -> String {
    match found {
        None => "this host has no default route, so its public address is unknown".to_owned(),
        Some((interface, None)) => format!("{interface} has the default route and no address"),
        Some((interface, Some(address))) => {
            format!("{interface} has the default route, and its address {address} is not public (there is a NAT)")
        }
    }
}

/// Decides what the server of `interface` is.
///
/// # Errors
/// A wish cannot be fulfilled, or nothing is left to choose.
pub fn decide(
    interface: &InterfaceName,
    wishes: &Wishes,
    facts: &Facts,
    chance: Chance,
) -> Result<NewServer, InitError> {
    let mut notes = Vec::new();
    let endpoint = wishes.endpoint.clone().map_or_else(|| public_endpoint(facts), Ok)?;
    let port = port(wishes.port, &facts.ports)?;
    if port != wishes.port.unwrap_or(PORT) {
        notes.push(format!("UDP port {PORT} is in use: the server gets port {port}"));
    }
    let pool4 = match wishes.pool {
        Some(pool) => wished_pool(pool, &facts.taken)?,
        None => free_pool(chance.pool, &facts.taken).ok_or(InitError::NoPool)?,
    };
    let (pool6, local_prefix) = pool6(wishes, facts, chance, &mut notes)?;
    let masquerade = wishes.masquerade.clone().unwrap_or_else(|| {
        let local6 = pool6.is_some_and(|pool| is_unique_local(pool.network()));
        if local6 { "both" } else { "ipv4" }.to_owned()
    });
    let behind_nat = endpoint.address().is_none_or(|address| !is_of(address, &facts.uplink4, &facts.uplink6));
    if behind_nat && wishes.endpoint.is_some() && public_endpoint(facts).is_err() {
        let outside = endpoint.port().unwrap_or(port);
        notes.push(format!("the router in front of this host has to forward UDP port {outside} to port {port} here"));
    }
    if wishes.endpoint.is_none() && endpoint.address().is_some_and(|address| address.is_ipv6()) {
        notes.push(format!(
            "clients in networks without IPv6 do not reach this server, because {endpoint} is the only public address of \
            this host; if an IPv4 address is forwarded here, name it with `--endpoint`"
        ));
    }
    let client_defaults = client_defaults(wishes, facts, pool6.is_some(), &masquerade, &mut notes);
    let pools: Vec<IpNet> = [IpNet::from(pool4)].into_iter().chain(pool6.map(IpNet::from)).collect();
    let sent = sent(&client_defaults, &pools);
    notes.extend(families::notes(&sent, &pools, facts.families(), facts.free(chance)));
    let dns = client_defaults.iter().find(|(setting, _)| *setting == settings::CLIENT_DNS);
    let dns: Vec<String> =
        dns.iter().flat_map(|(_, words)| words.split(',')).map(|word| word.trim().to_owned()).collect();
    notes.extend(families::lost_name_servers(&dns, &sent, facts.families()));
    Ok(NewServer {
        interface: interface.clone(),
        endpoint,
        port,
        pool4,
        pool6,
        masquerade,
        fix_firewall: wishes.fix_firewall,
        local_prefix,
        client_defaults,
        notes,
    })
}

/// The networks that clients send through the tunnel.
fn sent(client_defaults: &[(Setting, String)], pools: &[IpNet]) -> Vec<IpNet> {
    match client_defaults.iter().find(|(setting, _)| *setting == settings::CLIENT_ALLOWED_IPS) {
        Some((_, networks)) => networks.split(',').filter_map(|network| network.trim().parse().ok()).collect(),
        None => everything(pools),
    }
}

impl Facts {
    /// Returns the host's IP families.
    pub fn families(&self) -> HostFamilies {
        let Self { uplink4, uplink6, ipv6_is_off, .. } = self;
        HostFamilies { ipv4: uplink4.is_some(), ipv6: uplink6.is_some(), ipv6_is_off: *ipv6_is_off }
    }

    /// Returns the public addresses of the default routes' interfaces.
    pub fn public_addresses(&self) -> Vec<IpAddr> {
        let uplinks = self.uplink4.iter().chain(&self.uplink6);
        let mut addresses: Vec<IpAddr> = uplinks.flat_map(|uplink| &uplink.addresses).copied().collect();
        addresses.retain(|address| is_public(*address));
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Returns free networks that a tunnel may get in a family that it lacks.
    pub fn free(&self, chance: Chance) -> Free {
        let pool6 = free_subnet(local_prefix_of(self, chance), &self.taken);
        Free { pool4: free_pool(chance.pool, &self.taken), pool6 }
    }
}

/// Returns the public address of the default route's interface: IPv4, which more clients reach, or else IPv6. An uplink
/// without an IPv4 address, or whose IPv4 a CLAT translates to IPv6 (RFC 6877), counts as without IPv4. A host with a
/// private IPv4 address and a public IPv6 one is behind a router that may let nothing in, so the user is asked.
fn public_endpoint(facts: &Facts) -> Result<PublicEndpoint, InitError> {
    let has_ipv4 = |uplink: &&Uplink| !uplink.addresses.iter().all(|address| is_of_clat(*address));
    let uplink4 = facts.uplink4.as_ref();
    let uplink = uplink4.filter(has_ipv4).or(facts.uplink6.as_ref()).or(uplink4);
    let addresses = || uplink.iter().flat_map(|uplink| &uplink.addresses).copied();
    let public = addresses().find(|address| is_public(*address));
    public.map(PublicEndpoint::from).ok_or_else(|| InitError::NoPublicAddress {
        found: uplink.map(|uplink| (uplink.interface.clone(), addresses().next())),
    })
}

/// The defaults of client files. A client that sends everything through the tunnel does not reach the name server of its
/// own network any more, so it gets those of this host.
fn client_defaults(
    wishes: &Wishes,
    facts: &Facts,
    has_ipv6: bool,
    masquerade: &str,
    notes: &mut Vec<String>,
) -> Vec<(Setting, String)> {
    /// Resolvers use at most three (resolv.conf(5), MAXNS).
    const MAX_NAME_SERVERS: usize = 3;
    let mut defaults = wishes.client_defaults.clone();
    let wish = |setting: Setting| wishes.client_defaults.iter().find(|(wished, _)| *wished == setting);
    if let Some((_, servers)) = wish(settings::CLIENT_DNS) {
        // As `server set` has it.
        let is_none = servers == "none";
        defaults.retain(|(setting, _)| !is_none || *setting != settings::CLIENT_DNS);
        return defaults;
    }
    if wish(settings::CLIENT_ALLOWED_IPS).is_some_and(|(_, networks)| !networks.contains("/0")) {
        return defaults;
    }
    let is_reached = |address: &&IpAddr| {
        let (is_ipv4, family) = (address.is_ipv4(), if address.is_ipv4() { "ipv4" } else { "ipv6" });
        let is_translated = ["both", family].contains(&masquerade);
        (is_ipv4 || (has_ipv6 && facts.uplink6.is_some()))
            && (is_public(**address) || is_translated)
            && !is_of(**address, &facts.uplink4, &facts.uplink6)
    };
    let found: Vec<IpAddr> = facts.resolvers.iter().filter(is_reached).take(MAX_NAME_SERVERS).copied().collect();
    if found.is_empty() {
        notes.push(format!(
            "clients get no name server, because this host asks none that they could reach; one that sends everything \
             through the tunnel, as phones do, may find no name then: {NAME_SERVERS}"
        ));
    } else {
        defaults.push((settings::CLIENT_DNS, list(&found)));
    }
    defaults
}

/// How name servers are given to clients.
pub const NAME_SERVERS: &str = "`linerate server set --dns ADDRESS` names one that you trust, in the internet or in the \
    tunnel (docs/server.md has ways)";

fn is_of(address: IpAddr, uplink4: &Option<Uplink>, uplink6: &Option<Uplink>) -> bool {
    uplink4.iter().chain(uplink6).any(|uplink| uplink.addresses.contains(&address))
}

/// Whether an address may be reached from everywhere. Addresses for documentation count: nobody else has them.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            // RFC 6598 and RFC 2544.
            let shared = first == 100 && (64..128).contains(&second);
            let benchmark = first == 198 && (18..20).contains(&second);
            let elsewhere = address.is_private() || address.is_loopback() || address.is_link_local();
            let is_clat = is_of_clat(address.into());
            !elsewhere && !is_clat && !shared && !benchmark && first != 0 && first < 224
        }
        IpAddr::V6(address) => address.segments()[0] & 0xe000 == 0x2000,
    }
}

/// Whether the address is from the range of interfaces whose IPv4 is translated to IPv6 (RFC 7335).
fn is_of_clat(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.octets()[..3] == [192, 0, 0])
}

fn is_unique_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xfe00 == 0xfc00
}

fn port(wished: Option<u16>, taken: &[u16]) -> Result<u16, InitError> {
    match wished {
        Some(port) if taken.contains(&port) => Err(InitError::PortTaken(port)),
        Some(port) => Ok(port),
        None => (PORT..=u16::MAX).find(|port| !taken.contains(port)).ok_or(InitError::NoPort),
    }
}

/// What nobody gets by chance: networks that other tools, providers and home routers give to everyone, and that are
/// therefore at the other end of a client's connection, too.
const COMMON: [Ipv4Net; 3] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 23),
    Ipv4Net::new_assert(Ipv4Addr::new(10, 8, 0, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(10, 66, 66, 0), 24),
];

/// The first free /24 of 10.0.0.0/8 from that number on.
fn free_pool(first: u16, taken: &[IpNet]) -> Option<Ipv4Net> {
    let candidates = (0..=u16::MAX).map(|step| {
        let [high, low] = first.wrapping_add(step).to_be_bytes();
        Ipv4Net::new_assert(Ipv4Addr::new(10, high, low, 0), 24)
    });
    let mut free = candidates.filter(|net| !COMMON.iter().any(|common| common.contains(net)));
    free.find(|net| conflict(&(*net).into(), taken).is_none())
}

/// The network of `taken` that overlaps `net`. A default route, and the halves and quarters that some tools make of one,
/// are no one's network.
pub fn conflict<'a>(net: &IpNet, taken: &'a [IpNet]) -> Option<&'a IpNet> {
    taken.iter().find(|other| other.prefix_len() >= 8 && (other.contains(net) || net.contains(*other)))
}

fn wished_pool(pool: Ipv4Net, taken: &[IpNet]) -> Result<Ipv4Net, InitError> {
    let refuse = |why: String| Err(InitError::Network { network: pool.into(), why });
    let address = pool.addr();
    if pool.trunc() != pool {
        return refuse(format!("it has host bits; write {}", pool.trunc()));
    }
    if !(8..=30).contains(&pool.prefix_len()) {
        return refuse("its prefix length must be from 8 to 30".to_owned());
    }
    if address.is_loopback() || address.is_link_local() || !(1..224).contains(&address.octets()[0]) {
        return refuse("hosts cannot have such addresses; use one of 10.0.0.0/8, for example".to_owned());
    }
    not_taken(pool.into(), taken).map(|()| pool)
}

fn not_taken(net: IpNet, taken: &[IpNet]) -> Result<(), InitError> {
    match conflict(&net, taken) {
        None => Ok(()),
        Some(other) => {
            let why = format!("this host, or the file of another tunnel, uses {other}; choose another");
            Err(InitError::Network { network: net, why })
        }
    }
}

/// The clients' IPv6 network, and the prefix of unique local addresses if it is of that.
fn pool6(
    wishes: &Wishes,
    facts: &Facts,
    chance: Chance,
    notes: &mut Vec<String>,
) -> Result<(Option<Ipv6Net>, Option<Ipv6Net>), InitError> {
    if let Some(prefix) = wishes.prefix6 {
        return Ok((Some(wished_pool6(prefix, facts)?), None));
    }
    if !wishes.ipv6.unwrap_or(!facts.ipv6_is_off) {
        return Ok((None, None));
    }
    if facts.uplink6.is_none() && wishes.ipv6.is_none() {
        notes.push(
            "this host has no default route for IPv6: IPv6 packets of clients go into the tunnel, so that none go past \
            it, and are answered with an error; `--no-ipv6` leaves IPv6 out"
                .to_owned(),
        );
    }
    let usable = || facts.routed.iter().filter(|routed| routed.prefix.prefix_len() <= 64);
    let permanent = usable().filter(|routed| routed.permanent);
    if let Some(pool) = permanent.filter_map(|routed| free_subnet(routed.prefix, &facts.taken)).next() {
        notes.push(format!("{pool} is routed to this host: clients get public IPv6 addresses, without NAT"));
        return Ok((Some(pool), None));
    }
    if let Some(routed) = usable().next() {
        notes.push(format!(
            "{} is delegated to this host; if it stays the same, `--prefix6 {0}` avoids NAT for IPv6",
            routed.prefix
        ));
    }
    let local = local_prefix_of(facts, chance);
    let pool = free_subnet(local, &facts.taken).ok_or(InitError::NoPrefix6(local))?;
    Ok((Some(pool), Some(local)))
}

fn wished_pool6(prefix: Ipv6Net, facts: &Facts) -> Result<Ipv6Net, InitError> {
    let refuse = |why: String| Err(InitError::Network { network: prefix.into(), why });
    let address = prefix.addr();
    if prefix.trunc() != prefix {
        return refuse(format!("it has host bits; write {}", prefix.trunc()));
    }
    if !(16..=126).contains(&prefix.prefix_len()) {
        return refuse("its prefix length must be from 16 to 126".to_owned());
    }
    if !is_public(address.into()) && !is_unique_local(address) {
        return refuse("use a prefix that is routed to this host, or one of fd00::/8".to_owned());
    }
    let on_link = facts.uplink6.iter().flat_map(|uplink| &uplink.addresses);
    if let Some(own) = on_link.into_iter().find(|own| IpNet::from(prefix).contains(*own))
        && prefix.prefix_len() >= 64
    {
        return refuse(format!(
            "the host itself has {own} of it, so it is the uplink's network and not routed here; \
             ask the provider for a routed prefix, or leave --prefix6 out"
        ));
    }
    if prefix.prefix_len() < 64 {
        return free_subnet(prefix, &facts.taken).ok_or(InitError::NoPrefix6(prefix));
    }
    not_taken(prefix.into(), &facts.taken).map(|()| prefix)
}

/// Returns the prefix of this host's unique local addresses, or a new one if it has none.
fn local_prefix_of(facts: &Facts, chance: Chance) -> Ipv6Net {
    facts.local_prefix.unwrap_or_else(|| local_prefix(chance.local_prefix))
}

/// The prefix with these 40 bits (RFC 4193, section 3.1).
fn local_prefix(bits: [u8; 5]) -> Ipv6Net {
    let mut octets = [0; 16];
    octets[0] = 0xfd;
    octets[1..6].copy_from_slice(&bits);
    Ipv6Net::new_assert(octets.into(), 48)
}

/// The first free /64 of a prefix that is not longer. Of a large prefix only the first 65,536 are tried.
fn free_subnet(prefix: Ipv6Net, taken: &[IpNet]) -> Option<Ipv6Net> {
    let mut subnets = prefix.subnets(64).ok()?.take(1 << 16);
    subnets.find(|subnet| conflict(&(*subnet).into(), taken).is_none())
}

impl NewServer {
    /// The server's own addresses: the first of each network.
    pub fn addresses(&self) -> Vec<IpNet> {
        let first4 = Ipv4Net::new_assert((u32::from(self.pool4.network()) + 1).into(), self.pool4.prefix_len());
        let first6 = |pool: Ipv6Net| Ipv6Net::new_assert((u128::from(pool.network()) + 1).into(), pool.prefix_len());
        [IpNet::from(first4)].into_iter().chain(self.pool6.map(|pool| first6(pool).into())).collect()
    }

    /// The name servers in client files.
    pub fn name_servers(&self) -> Option<&str> {
        let dns = self.client_defaults.iter().find(|(setting, _)| *setting == settings::CLIENT_DNS);
        dns.map(|(_, servers)| &**servers)
    }

    /// The networks that clients' addresses come from.
    pub fn pools(&self) -> Vec<IpNet> {
        [IpNet::from(self.pool4)].into_iter().chain(self.pool6.map(IpNet::from)).collect()
    }

    /// The file, with this private key.
    ///
    /// # Errors
    /// A default of client files is not a value.
    pub fn file(&self, private_key: &SecretKey) -> Result<Document, InitError> {
        let document = self.compose(private_key).map_err(|error| InitError::Value(error.to_string()))?;
        match TunnelFile::read(&document, &self.interface, &NoNames).1.iter().find(|found| is_error(found)) {
            Some(Diagnostic { message, hint, .. }) => {
                let hint = hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                Err(InitError::Value(format!("{message}{hint}")))
            }
            None => Ok(document),
        }
    }

    fn compose(&self, private_key: &SecretKey) -> Result<Document, InvalidValue> {
        let mut document = Document::parse(HEAD.as_bytes());
        let section = document.interface();
        let mut set = |setting: &Setting, value: &str| document.set(section, setting, value);
        set(&settings::ADDRESS, &list(&self.addresses()))?;
        set(&settings::LISTEN_PORT, &self.port.to_string())?;
        set(&settings::PRIVATE_KEY, &private_key.to_base64())?;
        set(&settings::PUBLIC_ENDPOINT, &self.endpoint.to_string())?;
        set(&settings::POOL, &list(&self.pools()))?;
        set(&settings::GATEWAY, "auto")?;
        set(&settings::MASQUERADE, &self.masquerade)?;
        if self.fix_firewall {
            set(&settings::FIX_FIREWALL, "true")?;
        }
        self.client_defaults.iter().try_for_each(|(setting, value)| set(setting, value))?;
        Ok(document)
    }
}

fn is_error(diagnostic: &Diagnostic) -> bool {
    diagnostic.severity == Severity::Error
}

const HEAD: &str = "\
# A server for WireGuard clients, made by `linerate server init'. `linerate client add' adds clients below.
# Settings after #! are linerate's; to other tools they are comments. linerate.conf(5) has all of them.
[Interface]
";

/// The values of a list, as the file separates them.
pub fn list<T: std::fmt::Display>(values: &[T]) -> String {
    let mut text = String::new();
    for value in values {
        let _ = write!(text, "{}{value}", if text.is_empty() { "" } else { ", " });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANCE: Chance = Chance { pool: 0x530c, local_prefix: [0x12, 0x34, 0x56, 0x78, 0x9a] };

    fn uplink(interface: &str, addresses: &[&str]) -> Option<Uplink> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Some(Uplink { interface: interface.into(), addresses })
    }

    /// A host at a provider, with both families.
    fn vps() -> Facts {
        Facts {
            taken: nets(&["203.0.113.0/24", "2001:db8:1::/64", "0.0.0.0/0", "::/0"]),
            uplink4: uplink("eth0", &["203.0.113.5"]),
            uplink6: uplink("eth0", &["2001:db8:1::5"]),
            resolvers: vec!["198.51.100.53".parse().unwrap()],
            ..Facts::default()
        }
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn decide(wishes: &Wishes, facts: &Facts) -> Result<NewServer, InitError> {
        super::decide(&"wg0".parse().unwrap(), wishes, facts, CHANCE)
    }

    fn refusal(wishes: &Wishes, facts: &Facts) -> String {
        decide(wishes, facts).unwrap_err().to_string()
    }

    #[test]
    fn a_host_with_public_addresses_needs_no_wishes() {
        let server = decide(&Wishes::default(), &vps()).unwrap();
        let file = server.file(&SecretKey::from_bytes(&[1; 32])).unwrap().to_bytes();
        let file = std::str::from_utf8(&file).unwrap().split_once("[Interface]\n").unwrap().1;
        let expected = "Address = 10.83.12.1/24, fd12:3456:789a::1/64\nListenPort = 51820\n\
            PrivateKey = AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n#! PublicEndpoint = 203.0.113.5\n\
            #! Pool = 10.83.12.0/24, fd12:3456:789a::/64\n#! Gateway = auto\n#! Masquerade = both\n\
            #! ClientDNS = 198.51.100.53\n";
        assert_eq!(file, expected);
        assert_eq!(server.notes, [""; 0]);
    }

    #[test]
    fn without_a_default_route_for_ipv6_it_ends_in_the_tunnel_and_where_it_is_off_it_is_said_to_go_past() {
        let facts = Facts { uplink6: None, ..vps() };
        let server = decide(&Wishes::default(), &facts).unwrap();
        assert_eq!((server.pool6.is_some(), &*server.masquerade), (true, "both"));
        assert!(server.notes[0].contains("answered with an error"), "{:?}", server.notes);
        let facts = Facts { uplink6: None, ipv6_is_off: true, ..vps() };
        let server = decide(&Wishes::default(), &facts).unwrap();
        assert_eq!((server.pool6, &*server.masquerade), (None, "ipv4"));
        assert_eq!(server.addresses().len(), 1);
        assert!(server.notes[0].contains("IPv6 traffic of clients goes past the tunnel"), "{:?}", server.notes);
        let wishes = Wishes { ipv6: Some(true), ..Wishes::default() };
        assert!(decide(&wishes, &facts).unwrap().pool6.is_some());
        let wishes = Wishes { ipv6: Some(false), ..Wishes::default() };
        assert_eq!(decide(&wishes, &vps()).unwrap().pool6, None);
    }

    #[test]
    fn a_host_behind_a_nat_is_asked_for_its_endpoint_and_told_to_forward_the_port() {
        let facts = Facts { uplink4: uplink("eth0", &["192.168.1.5"]), ..vps() };
        let why = refusal(&Wishes::default(), &facts);
        assert!(why.contains("eth0") && why.contains("192.168.1.5") && why.contains("--endpoint"), "{why}");
        let wishes = Wishes { endpoint: Some("home.example:443".parse().unwrap()), ..Wishes::default() };
        let server = decide(&wishes, &facts).unwrap();
        assert_eq!(server.endpoint.to_string(), "home.example:443");
        assert!(server.notes[0].contains("forward UDP port 443 to port 51820"), "{:?}", server.notes);
        for address in ["10.0.0.1", "172.31.0.1", "100.64.0.1", "169.254.1.1", "198.18.0.1"] {
            let facts = Facts { uplink4: uplink("eth0", &[address]), ..vps() };
            assert!(decide(&Wishes::default(), &facts).is_err(), "{address}");
        }
        let nowhere = Facts { uplink4: None, uplink6: None, ..vps() };
        assert!(refusal(&Wishes::default(), &nowhere).contains("no default route"));
    }

    #[test]
    fn a_host_with_ipv6_alone_is_reached_by_ipv6() {
        let facts = Facts { uplink4: None, uplink6: uplink("eth0", &["fd00::1", "2001:db8:1::5"]), ..vps() };
        let server = decide(&Wishes::default(), &facts).unwrap();
        assert_eq!(server.endpoint.to_string(), "[2001:db8:1::5]");
        assert!(server.notes[0].contains("networks without IPv6 do not reach this server"), "{:?}", server.notes);
        assert!(server.notes[1].contains("no default route for IPv4"), "{:?}", server.notes);
        for no_ipv4 in [&["192.0.0.1"][..], &[]] {
            let facts = Facts { uplink4: uplink("clat0", no_ipv4), ..vps() };
            assert_eq!(decide(&Wishes::default(), &facts).unwrap().endpoint.to_string(), "[2001:db8:1::5]");
        }
    }

    #[test]
    fn clients_get_the_hosts_name_servers_that_they_reach_or_it_is_said() {
        let dns = |wishes: &Wishes, resolvers: &[&str], facts: Facts| {
            let resolvers = resolvers.iter().map(|address| address.parse().unwrap()).collect();
            let server = decide(wishes, &Facts { resolvers, ..facts }).unwrap();
            let named = server.client_defaults.iter().find(|(setting, _)| *setting == settings::CLIENT_DNS);
            let is_said = server.notes.iter().any(|note| note.contains("no name server"));
            (named.map(|(_, servers)| servers.clone()).unwrap_or_default(), is_said)
        };
        let none = Wishes::default();
        let given = |setting: Setting, value: &str| Wishes {
            client_defaults: vec![(setting, value.to_owned())],
            ..Wishes::default()
        };
        let found = |servers: &str| (servers.to_owned(), false);
        let nothing = (String::new(), true);
        assert_eq!(dns(&none, &["9.9.9.9", "2620:fe::fe"], vps()), found("9.9.9.9, 2620:fe::fe"));
        assert_eq!(
            dns(&none, &["1.1.1.1", "1.0.0.1", "8.8.8.8", "8.8.4.4"], vps()),
            found("1.1.1.1, 1.0.0.1, 8.8.8.8")
        );
        // A router at home, which clients reach by the host's address.
        assert_eq!(dns(&none, &["192.168.1.1"], vps()), found("192.168.1.1"));
        let off = Wishes { masquerade: Some("off".to_owned()), ..Wishes::default() };
        assert_eq!(dns(&off, &["192.168.1.1"], vps()), nothing);
        assert_eq!(dns(&none, &["2620:fe::fe"], Facts { uplink6: None, ..vps() }), nothing);
        // A name server on the host itself may answer its own programs only.
        assert_eq!(dns(&none, &["203.0.113.5"], vps()), nothing);
        assert_eq!(dns(&none, &[], vps()), nothing);
        assert_eq!(dns(&given(settings::CLIENT_DNS, "10.0.0.1"), &["9.9.9.9"], vps()), found("10.0.0.1"));
        assert_eq!(dns(&given(settings::CLIENT_DNS, "none"), &["9.9.9.9"], vps()), found(""));
        assert_eq!(dns(&given(settings::CLIENT_ALLOWED_IPS, "10.0.0.0/8"), &["9.9.9.9"], vps()), found(""));
    }

    #[test]
    fn the_pool_is_no_network_of_the_host_and_none_that_everybody_has() {
        let pool = |first, taken: &[&str]| free_pool(first, &nets(taken)).unwrap().to_string();
        assert_eq!(pool(0, &[]), "10.0.2.0/24");
        assert_eq!(pool(0x0800, &[]), "10.8.1.0/24");
        assert_eq!(pool(0x4242, &[]), "10.66.67.0/24");
        assert_eq!(pool(0xffff, &["10.255.255.128/25", "10.0.0.0/16"]), "10.1.0.0/24");
        assert_eq!(pool(0x0100, &["0.0.0.0/1", "0.0.0.0/0", "8.0.0.0/7"]), "10.1.0.0/24");
        assert_eq!(free_pool(0, &nets(&["10.0.0.0/8"])), None);
        let facts = Facts { taken: nets(&["10.0.0.0/8"]), ..vps() };
        assert!(refusal(&Wishes::default(), &facts).contains("--pool"));
    }

    #[test]
    fn a_pool_that_collides_or_is_none_is_refused_with_the_reason() {
        let refused = |pool: &str, taken: &[&str]| {
            let wishes = Wishes { pool: Some(pool.parse().unwrap()), ..Wishes::default() };
            refusal(&wishes, &Facts { taken: nets(taken), ..vps() })
        };
        assert!(refused("10.9.0.0/24", &["10.9.0.0/16"]).contains("uses 10.9.0.0/16"));
        assert!(refused("10.9.0.0/16", &["10.9.5.1/32"]).contains("uses 10.9.5.1/32"));
        assert!(refused("10.9.0.1/24", &[]).contains("write 10.9.0.0/24"));
        for pool in ["10.9.0.0/31", "10.9.0.1/32", "0.0.0.0/0", "127.0.1.0/24", "224.0.0.0/24", "169.254.0.0/24"] {
            refused(pool, &[]);
        }
    }

    #[test]
    fn a_prefix_that_is_routed_to_the_host_needs_no_nat() {
        let routed = |permanent| Facts {
            routed: vec![RoutedPrefix { prefix: "2001:db8:5::/56".parse().unwrap(), permanent }],
            taken: nets(&["2001:db8:5::/64"]),
            ..vps()
        };
        let server = decide(&Wishes::default(), &routed(true)).unwrap();
        assert_eq!(server.pool6.unwrap().to_string(), "2001:db8:5:1::/64");
        assert_eq!((&*server.masquerade, server.local_prefix), ("ipv4", None));
        let server = decide(&Wishes::default(), &routed(false)).unwrap();
        assert_eq!(&*server.masquerade, "both");
        assert!(server.notes[0].contains("--prefix6 2001:db8:5::/56"), "{:?}", server.notes);
    }

    #[test]
    fn a_wished_prefix_is_masqueraded_if_it_is_local_and_refused_if_it_is_the_uplinks() {
        let with = |prefix: &str| Wishes { prefix6: Some(prefix.parse().unwrap()), ..Wishes::default() };
        let server = decide(&with("2001:db8:9::/64"), &vps()).unwrap();
        assert_eq!((server.pool6.unwrap().to_string(), &*server.masquerade), ("2001:db8:9::/64".into(), "ipv4"));
        assert_eq!(&*decide(&with("fd00:1::/64"), &vps()).unwrap().masquerade, "both");
        assert!(refusal(&with("2001:db8:1::/64"), &vps()).contains("uplink"));
        let inside = decide(&with("2001:db8:1::/48"), &vps()).unwrap();
        assert_eq!(inside.pool6.unwrap().to_string(), "2001:db8:1:1::/64");
        for prefix in ["fe80::/64", "ff00::/64", "::/64", "2001:db8:9::1/64", "2001:db8:9::1/128", "2000::/3"] {
            refusal(&with(prefix), &vps());
        }
    }

    #[test]
    fn the_port_is_the_usual_one_or_the_next_and_a_wished_one_that_is_taken_is_refused() {
        let facts = Facts { ports: vec![51820, 51821, 443], ..vps() };
        let server = decide(&Wishes::default(), &facts).unwrap();
        assert_eq!(server.port, 51822);
        assert!(server.notes[0].contains("51822"), "{:?}", server.notes);
        assert!(refusal(&Wishes { port: Some(443), ..Wishes::default() }, &facts).contains("443"));
        assert_eq!(decide(&Wishes { port: Some(80), ..Wishes::default() }, &facts).unwrap().port, 80);
    }

    #[test]
    fn a_host_keeps_its_local_prefix_and_each_tunnel_has_a_network_of_it() {
        let kept: Ipv6Net = "fdaa:bbcc:ddee::/48".parse().unwrap();
        let facts = Facts { local_prefix: Some(kept), taken: nets(&["fdaa:bbcc:ddee::1/64"]), ..vps() };
        let server = decide(&Wishes::default(), &facts).unwrap();
        assert_eq!(server.pool6.unwrap().to_string(), "fdaa:bbcc:ddee:1::/64");
        assert_eq!(server.local_prefix, Some(kept));
    }
}
