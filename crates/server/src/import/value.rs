//! What every kind is turned into: a server, its clients, and for each of them what was taken, changed and dropped.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::SystemTime;

use ipnet::IpNet;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::{Phase, PublicEndpoint};

use super::conf::Conf;
use super::hooks::{self, Opens, Rule};
use super::{Context, Error, Input, Kind, names, text};

/// A server as another tool has left it. It holds secrets, so it has no `Debug`.
pub struct Import {
    /// The tool.
    pub kind: Kind,
    /// The interface's name there.
    pub interface: String,
    pub private_key: SecretKey,
    /// The file of the private key, if the key is not in the tunnel's file.
    pub private_key_file: Option<String>,
    /// Its addresses, host bits kept.
    pub addresses: Vec<IpNet>,
    /// The networks that clients have addresses of, if they are not those of `addresses`.
    pub pool: Vec<IpNet>,
    /// The UDP port.
    pub listen_port: Option<u16>,
    pub mtu: Option<u32>,
    /// `Table` and `FwMark` as they were, if they were set.
    pub other: Vec<(&'static str, String)>,
    /// The commands that are kept.
    pub hooks: Vec<(Phase, String)>,
    /// Where clients reach it.
    pub endpoint: Option<PublicEndpoint>,
    /// Whether the host forwards for the tunnel, and through which interfaces if not those of its default routes.
    pub gateway: Option<Vec<String>>,
    /// Whether the clients' addresses are masqueraded: IPv4, IPv6.
    pub masquerade: [bool; 2],
    /// Whether new connections may come into the tunnel.
    pub inbound: bool,
    /// Whether nothing is forwarded from client to client.
    pub isolated: bool,
    /// What client files have unless they say otherwise.
    pub client_dns: Vec<String>,
    /// Their prefixes.
    pub client_allowed_ips: Vec<IpNet>,
    /// Their MTU.
    pub client_mtu: Option<u32>,
    /// Their interval of keepalives; 0 is off.
    pub client_keepalive: Option<u16>,
    /// Whether endpoints of peers may be what SaveConfig has written.
    pub(super) endpoints_are_saved: bool,
    pub clients: Vec<Client>,
    /// What was done with the server's settings.
    pub remarks: Remarks,
}

/// A client, or a peer of another kind.
pub struct Client {
    /// Its name in our file.
    pub name: String,
    /// Its name in the old tool; may be empty.
    pub old_name: String,
    pub public_key: PublicKey,
    /// Its private key, if the old tool had it.
    pub private_key: Option<SecretKey>,
    pub preshared_key: Option<SecretKey>,
    /// What it may send from: its addresses, and the networks behind it.
    pub allowed_ips: Vec<IpNet>,
    /// Where to reach it.
    pub endpoint: Option<String>,
    /// The server's interval of keepalives to it.
    pub keepalive: Option<u16>,
    /// What its file routes into the tunnel, if that is not the server's default.
    pub client_allowed_ips: Option<Vec<IpNet>>,
    /// Whether it may connect.
    pub enabled: bool,
    /// When it was made, if that is known.
    pub created: Option<SystemTime>,
    /// When it expires.
    pub expires: Option<SystemTime>,
    /// How many bytes it may use in all.
    pub quota: Option<u64>,
    /// The only prefixes that it may reach.
    pub destinations: Vec<IpNet>,
    /// Free text.
    pub note: Option<String>,
    /// A peer that is no client: another site, whose section stays as it is.
    pub is_site: bool,
    /// What was done with its settings.
    pub remarks: Remarks,
}

/// What became of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// It is as it was.
    Taken,
    /// It is something else now.
    Changed,
    /// It is not in our file.
    Dropped,
}

/// Sentences about what became of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks(Vec<(Remark, String)>);

impl Remarks {
    pub(super) fn taken(&mut self, what: impl Into<String>) {
        self.add(Remark::Taken, what);
    }

    pub(super) fn changed(&mut self, what: impl Into<String>) {
        self.add(Remark::Changed, what);
    }

    pub(super) fn dropped(&mut self, what: impl Into<String>) {
        self.add(Remark::Dropped, what);
    }

    fn add(&mut self, remark: Remark, what: impl Into<String>) {
        let what = what.into();
        if !self.0.iter().any(|(_, other)| *other == what) {
            self.0.push((remark, what));
        }
    }

    /// The sentences of one kind.
    pub fn of(&self, remark: Remark) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(other, _)| *other == remark).map(|(_, what)| &**what)
    }
}

impl Client {
    pub(super) fn new(name: &str, public_key: PublicKey) -> Self {
        Self {
            name: String::new(),
            old_name: name.trim().to_owned(),
            public_key,
            private_key: None,
            preshared_key: None,
            allowed_ips: Vec::new(),
            endpoint: None,
            keepalive: None,
            client_allowed_ips: None,
            enabled: true,
            created: None,
            expires: None,
            quota: None,
            destinations: Vec::new(),
            note: None,
            is_site: false,
            remarks: Remarks::default(),
        }
    }

    /// Whether there are networks behind it, beside its own addresses.
    fn has_networks(&self) -> bool {
        self.allowed_ips.iter().any(|net| net.prefix_len() < net.max_prefix_len())
    }

    pub(super) fn add_note(&mut self, text: &str) {
        let line = text::one_line(text);
        if line.is_empty() {
            return;
        }
        if line != text.trim() {
            self.remarks.changed("its note is one line without `#`");
        }
        self.note = Some(match self.note.take() {
            Some(note) => format!("{note}; {line}"),
            None => line,
        });
    }
}

impl Import {
    /// A server of which nothing else is known.
    pub(super) fn new(kind: Kind, interface: &str, private_key: SecretKey) -> Self {
        Self {
            kind,
            interface: interface.to_owned(),
            private_key,
            private_key_file: None,
            addresses: Vec::new(),
            pool: Vec::new(),
            listen_port: None,
            mtu: None,
            other: Vec::new(),
            hooks: Vec::new(),
            endpoint: None,
            gateway: None,
            masquerade: [false; 2],
            inbound: false,
            isolated: false,
            client_dns: Vec::new(),
            client_allowed_ips: Vec::new(),
            client_mtu: None,
            client_keepalive: None,
            endpoints_are_saved: false,
            clients: Vec::new(),
            remarks: Remarks::default(),
        }
    }

    /// Where clients reach the server; `port` if it differs from the one that it listens on.
    pub(super) fn set_endpoint(&mut self, host: &str, port: Option<u16>, place: &str) -> Result<(), Error> {
        let host = host.trim().trim_start_matches('[').trim_end_matches(']');
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let text = match port.filter(|&port| Some(port) != self.listen_port) {
            Some(port) => format!("{bracketed}:{port}"),
            None => bracketed,
        };
        let endpoint = text.parse().map_err(|error| Error::at(place, format!("{error}")))?;
        self.endpoint = Some(endpoint);
        Ok(())
    }

    /// Takes from the clients' own files what the server's files do not say: names, private keys, and the defaults.
    pub(super) fn take_client_files(&mut self, input: &Input, context: &Context<'_>) {
        let own = (context.public_key)(&self.private_key);
        let mut at = HashMap::new();
        for (index, client) in self.clients.iter().enumerate() {
            at.insert(client.public_key, index);
        }
        let mut lists: HashMap<Vec<IpNet>, usize> = HashMap::new();
        let mut own_lists = HashMap::new();
        for file in
            input.files.iter().filter(|file| file.path.ends_with(".conf") && super::conf::is_tunnel(&file.bytes))
        {
            let Ok(conf) = Conf::read(file) else { continue };
            let is_clients =
                |key: &SecretKey| conf.is_clients() || (conf.may_be_clients() && (context.public_key)(key) != own);
            let Some(private_key) = conf.file.private_key.clone().filter(is_clients) else { continue };
            let Some(peer) = conf.file.peers.first() else { continue };
            let Some(&index) = at.get(&(context.public_key)(&private_key)) else {
                self.remarks.dropped(format!("{} belongs to no client of this server", conf.path));
                continue;
            };
            let client = &mut self.clients[index];
            if peer.public_key != own {
                client
                    .remarks
                    .changed(format!("{} has another server's key: it did not work before either", conf.path));
                continue;
            }
            client.is_site = false;
            client.forget_saved_endpoint(self.endpoints_are_saved);
            client.private_key.get_or_insert(private_key);
            if client.old_name.is_empty() {
                file.stem().clone_into(&mut client.old_name);
            }
            *lists.entry(peer.allowed_ips.clone()).or_default() += 1;
            own_lists.insert(index, peer.allowed_ips.clone());
            if self.client_dns.is_empty() {
                self.client_dns = conf.dns();
            }
            self.client_mtu = self.client_mtu.or(conf.file.mtu);
            self.client_keepalive = self.client_keepalive.or(peer.persistent_keepalive);
            if self.endpoint.is_none()
                && let Some((host, port)) = conf.endpoint()
            {
                // What is not a public endpoint is left for the user to say.
                let _ = self.set_endpoint(&host, port, &conf.path);
            }
        }
        if self.client_allowed_ips.is_empty() {
            // The list that most have; of several, the shortest, so that the choice does not depend on a hash.
            let most = lists.into_iter().max_by_key(|(list, count)| (*count, std::cmp::Reverse(list.clone())));
            self.client_allowed_ips = most.map(|(list, _)| list).unwrap_or_default();
        }
        for (index, list) in own_lists {
            let client = &mut self.clients[index];
            if client.client_allowed_ips.is_none() && !same(&list, &self.client_allowed_ips) {
                client.client_allowed_ips = Some(list);
            }
        }
    }

    /// Chooses the clients' networks from their addresses, if the prefix length of the server's address leaves no room for
    /// clients. The address itself is kept, so no route changes.
    pub(super) fn find_pool(&mut self) {
        let has_room = |net: &&IpNet| net.prefix_len() + 1 < net.max_prefix_len();
        let own = self.clients.iter().filter(|client| !client.is_site).flat_map(|client| &client.allowed_ips);
        let own: Vec<IpNet> = own.filter(|net| net.prefix_len() == net.max_prefix_len()).copied().collect();
        let (mut pool, mut is_found) = (Vec::new(), false);
        for ipv4 in [true, false] {
            let of_family = |net: &&IpNet| net.addr().is_ipv4() == ipv4;
            let addresses = || self.addresses.iter().filter(of_family);
            let clients: Vec<&IpNet> = own.iter().filter(of_family).collect();
            if let Some(network) = addresses().find(has_room) {
                pool.push(network.trunc());
            } else if let Some(network) = addresses().find_map(|address| around(address, &clients)) {
                pool.push(network);
                is_found = true;
            }
        }
        let list = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if pool.is_empty() && !self.addresses.is_empty() {
            self.remarks.changed(format!(
                "its address {} has no length, and no network follows from what clients have: before clients can be \
                 added, say one that contains the address (`linerate server set --pool PREFIX`)",
                list(&self.addresses)
            ));
        }
        if is_found {
            self.remarks.changed(format!(
                "its address {} has no length that leaves room for clients: new ones get addresses of Pool = {}",
                list(&self.addresses),
                list(&pool)
            ));
            self.pool = pool;
        }
    }

    /// Replaces the old tool's NAT and forwarding by settings of ours; commands that do something else stay.
    pub(super) fn replace_hooks(&mut self, context: &Context<'_>) {
        let pool = self.networks();
        let mut networks = pool.clone();
        for client in self.clients.iter().filter(|client| !client.is_site) {
            let is_own = |net: &&IpNet| net.prefix_len() == net.max_prefix_len();
            let outside = |net: &&IpNet| !pool.iter().any(|pool| pool.contains(*net));
            networks.extend(client.allowed_ips.iter().filter(is_own).filter(outside));
        }
        let scene = hooks::Scene {
            interface: &self.interface,
            networks: &networks,
            port: self.listen_port,
            keep_open_port: context.input_is_closed && !self.kind.is_in_container(),
            undoes: false,
        };
        let undoing = hooks::Scene { undoes: true, ..scene };
        let scene = |phase: &Phase| if matches!(phase, Phase::PreDown | Phase::PostDown) { &undoing } else { &scene };
        let mut outs: Vec<String> = Vec::new();
        let mut reached = Reached::of(self.kind, context);
        let mut into_tunnel = self.clients.iter().any(Client::has_networks);
        let mut opens_port = false;
        let mut forwards = false;
        let mut kept = Vec::new();
        let sorted: Vec<_> =
            self.hooks.iter().map(|(phase, command)| (phase, hooks::sort(command, scene(phase)))).collect();
        // All rules are replaced or none, because removing one changes the effect of the others.
        if self.gateway.is_none() && sorted.iter().any(|(_, sorted)| sorted.is_entangled) {
            self.keep_hooks();
            return;
        }
        for (phase, sorted) in sorted {
            for rule in &sorted.replaced {
                match rule {
                    Rule::Masquerade { ipv6, out } => {
                        self.masquerade[usize::from(*ipv6)] = true;
                        outs.extend(out.clone().filter(|out| !outs.contains(out)));
                        forwards = true;
                    }
                    Rule::Forward(opens) => {
                        reached.add(opens);
                        forwards = true;
                    }
                    Rule::OpenPort => opens_port = true,
                    Rule::Forwarding | Rule::SegmentSize => {}
                }
            }
            if let Some(rest) = sorted.kept {
                into_tunnel |= rest.contains("DNAT");
                kept.push((*phase, rest));
            }
        }
        if self.kind.is_in_container() {
            outs.clear();
        }
        if forwards {
            self.gateway.get_or_insert_default().extend(outs);
        }
        let mut others = Vec::new();
        if let Some(gateway) = &mut self.gateway {
            others = reached.complete(gateway, context);
            self.isolated = !reached.between && !reached.everything;
        }
        // Without a gateway nothing takes the place of any command.
        if self.gateway.is_some() {
            self.hooks = kept;
        }
        for (phase, command) in &self.hooks {
            self.remarks.taken(format!("{phase:?} = {command}"));
        }
        let Some(gateway) = &self.gateway else {
            self.remarks.changed(
                "nothing in these files forwards for the clients: write `#! Gateway = auto` and `#! Masquerade = both` \
                 into the file if they are to reach more than this host",
            );
            return;
        };
        let has = |ipv6: bool| pool.iter().any(|net| matches!(net, IpNet::V6(_)) == ipv6);
        for ipv6 in [false, true] {
            if self.masquerade[usize::from(ipv6)] && !has(ipv6) {
                self.masquerade[usize::from(ipv6)] = false;
            }
        }
        self.inbound = into_tunnel;
        let through = if gateway.is_empty() { "auto".to_owned() } else { gateway.join(", ") };
        let masquerade = self.masquerade_text().map_or(String::new(), |text| format!(", Masquerade = {text}"));
        let inbound = if into_tunnel { ", Inbound = all" } else { "" };
        self.remarks.changed(format!("its NAT and forwarding are now Gateway = {through}{masquerade}{inbound}"));
        if self.isolated {
            self.remarks.changed("clients do not reach each other, as before: ClientIsolation = true");
        }
        if !others.is_empty() {
            let translated = if self.masquerade.contains(&true) {
                "; there their packets now have an address of this host, as in the internet"
            } else {
                ""
            };
            self.remarks.changed(format!(
                "clients still reach the networks of {} as well{translated}; remove from Gateway the interfaces that they \
                must not reach",
                others.join(", ")
            ));
        }
        let uplinks = if gateway.is_empty() { "those of the default routes" } else { &*through };
        self.remarks.changed(format!(
            "nothing is forwarded to other interfaces than {uplinks}: add to Gateway what clients have to reach besides"
        ));
        if !into_tunnel {
            self.remarks.changed(
                "new connections from outside into the tunnel are no longer forwarded, only replies \
                 (`#! Inbound = all` allows them)",
            );
        }
        if opens_port {
            self.remarks.changed(
                "the rule that opened the port is now the gateway's own; `linerate up` names a firewall that closes it",
            );
        }
    }

    /// The networks that clients have addresses of.
    fn networks(&self) -> Vec<IpNet> {
        if self.pool.is_empty() { self.addresses.iter().map(IpNet::trunc).collect() } else { self.pool.clone() }
    }

    /// Leaves NAT and forwarding to the old tool's commands.
    fn keep_hooks(&mut self) {
        for (phase, command) in &self.hooks {
            self.remarks.taken(format!("{phase:?} = {command}"));
        }
        self.remarks.changed(
            "its commands for NAT and forwarding stay, all of them, because some let only a part through or are not \
             understood: the tunnel has no Gateway, and who reaches what is as before. To change to `#! Gateway`, take \
             them out and give clients `Destinations`",
        );
        if self.kind.is_in_container() {
            self.remarks.changed(
                "these commands were written for the interfaces of its container: put those of this host in their place \
                 (`ip route show default`) before `linerate up`",
            );
        }
    }

    /// `Masquerade` as the file says it.
    pub(super) fn masquerade_text(&self) -> Option<&'static str> {
        match self.masquerade {
            [true, true] => Some("both"),
            [true, false] => Some("ipv4"),
            [false, true] => Some("ipv6"),
            [false, false] => None,
        }
    }

    /// Warns that client files name this host as their name server: the old tool may have run one, as container images do.
    pub(super) fn say_who_resolves(&mut self) {
        let is_own =
            |server: &&String| self.addresses.iter().any(|own| server.parse().is_ok_and(|ip: IpAddr| ip == own.addr()));
        if let Some(server) = self.client_dns.iter().find(is_own) {
            self.remarks.changed(format!(
                "clients ask {server} for names, which is this host: if the old tool answered there (in its container, \
                 for example), start a name server that does, or clients resolve no names; `linerate server set --dns` \
                 chooses another one for new clients"
            ));
        }
    }

    /// Gives each client a name that is valid and unique.
    pub(super) fn settle_names(&mut self) {
        let mut taken = names::Taken::default();
        // Names that are valid already come first: nobody else may get them.
        for client in &mut self.clients {
            client.name = taken.take(&client.old_name).unwrap_or_default();
        }
        for client in self.clients.iter_mut().filter(|client| client.name.is_empty()) {
            if client.is_site && client.old_name.is_empty() {
                // Its section needs no name; messages do.
                client.name = taken.made_from("site");
                continue;
            }
            client.name = taken.made_from(&client.old_name);
            let name = &client.name;
            if client.old_name.is_empty() {
                client.remarks.changed(format!("it had no name: it is `{name}`"));
            } else {
                client.remarks.changed(format!(
                    "its name is `{name}`: at most 64 characters, none of them invisible, and no two names alike"
                ));
                let old = client.old_name.clone();
                client.add_note(&old);
            }
        }
    }

    /// What no tool's file could have, or only a broken one.
    pub(super) fn check(&mut self, context: &Context<'_>) -> Result<(), Error> {
        if let Err(error) = self.interface.parse::<InterfaceName>() {
            return Err(Error::new(error.to_string()));
        }
        if self.addresses.is_empty() {
            return Err(Error::new("the server has no address in these files"));
        }
        let own = (context.public_key)(&self.private_key);
        let mut keys = HashMap::new();
        let mut addresses: HashMap<IpNet, String> = HashMap::new();
        for client in &self.clients {
            let title = &client.name;
            if client.public_key == own {
                return Err(Error::new(format!("`{title}` has the server's own public key")));
            }
            if let Some(other) = keys.insert(client.public_key, title.clone()) {
                return Err(Error::new(format!(
                    "`{other}` and `{title}` have the same public key: remove one of them"
                )));
            }
            if client.private_key.as_ref().is_some_and(|key| (context.public_key)(key) != client.public_key) {
                return Err(Error::new(format!("the private and the public key of `{title}` do not belong together")));
            }
            for net in &client.allowed_ips {
                if let Some(other) = addresses.insert(net.trunc(), title.clone()).filter(|other| other != title) {
                    return Err(Error::new(format!(
                        "`{other}` and `{title}` both have {net}: give one of them another"
                    )));
                }
            }
        }
        for client in &mut self.clients {
            // All zeros are none.
            client.preshared_key.take_if(|key| key.is_zero());
            if client.allowed_ips.is_empty() {
                client.remarks.changed("it has no address: it can neither send nor receive");
            }
        }
        Ok(())
    }
}

impl Import {
    /// Says of each client what is as it was, and sorts them by their addresses.
    pub(super) fn say_what_was_taken(&mut self) {
        self.clients.sort_by_key(|client| client.allowed_ips.first().copied());
        for client in &mut self.clients {
            if client.is_site {
                client.remarks.taken("its section, as that of another site");
                continue;
            }
            let mut what = vec!["its key"];
            if client.preshared_key.is_some() {
                what.push("its preshared key");
            }
            if client.expires.is_some() {
                what.push("its expiry");
            }
            if !client.enabled {
                what.push("that it is disabled");
            }
            let nets = client.allowed_ips.iter().map(ToString::to_string).collect::<Vec<_>>();
            client.remarks.taken([what.join(", "), nets.join(", ")].join(", ").trim_end_matches(", ").to_owned());
        }
    }
}

/// The interfaces by which clients' packets left the host.
struct Reached {
    /// All interfaces, because no rule forbade it.
    everything: bool,
    /// Packets went from one client to another.
    between: bool,
    /// The interfaces that rules opened.
    named: Vec<String>,
}

impl Reached {
    fn of(kind: Kind, context: &Context<'_>) -> Self {
        // Scripts of this kind accept all packets from the pool. A container's packets leave by the host's own rules.
        let everything = !context.forward_is_closed || kind == Kind::Hwdsl2 || kind.is_in_container();
        Self { everything, between: everything, named: Vec::new() }
    }

    fn add(&mut self, opens: &Opens) {
        self.everything |= opens.everywhere;
        self.between |= opens.between;
        self.named.extend(opens.out.clone().filter(|out| !self.named.contains(out)));
    }

    /// Adds to a gateway's interfaces the others that clients reached, and returns those.
    fn complete(&self, gateway: &mut Vec<String>, context: &Context<'_>) -> Vec<String> {
        if !self.everything && !self.named.is_empty() {
            // Only these were open: rules that masquerade on other interfaces do not matter.
            gateway.clone_from(&self.named);
            return Vec::new();
        }
        gateway.extend(self.named.iter().filter(|name| !gateway.contains(name)).cloned().collect::<Vec<_>>());
        if !self.everything {
            return Vec::new();
        }
        let is_new = |name: &&String| !gateway.contains(name);
        let others: Vec<String> = context.networks.iter().filter(is_new).cloned().collect();
        if others.is_empty() || (gateway.is_empty() && context.uplinks.is_empty()) {
            return Vec::new();
        }
        if gateway.is_empty() {
            gateway.extend_from_slice(context.uplinks);
        }
        gateway.extend_from_slice(&others);
        others
    }
}

/// The smallest usual network with a server's address and those of its clients, if it has clients and is not larger than
/// anybody would choose.
fn around(address: &IpNet, clients: &[&IpNet]) -> Option<IpNet> {
    let (usual, largest) = if address.addr().is_ipv4() { (24, 16) } else { (64, 48) };
    let holds = |network: &IpNet| clients.iter().all(|net| network.contains(*net));
    let mut networks = (largest..=usual).rev().filter_map(|length| IpNet::new(address.addr(), length).ok());
    networks.find(holds).map(|network| network.trunc()).filter(|_| !clients.is_empty())
}

/// Whether two lists have the same prefixes.
pub(super) fn same(one: &[IpNet], other: &[IpNet]) -> bool {
    one.iter().all(|net| other.contains(net)) && other.iter().all(|net| one.contains(net))
}
