//! Changes of a server: its port, where clients reach it, the size of their networks, and the defaults of their files.

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_control::document::{Document, InvalidValue, Section, SectionKind, Setting};
use linerate_control::tunnel_file::{PublicEndpoint, settings};

use crate::init::{conflict, is_public, list};

/// What to change.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The UDP port that it listens on.
    pub port: Option<u16>,
    /// Where clients reach the server.
    pub endpoint: Option<PublicEndpoint>,
    /// Networks that take the place of those of the clients that they contain.
    pub pools: Vec<IpNet>,
    /// Whether ways in firewalls of others are opened.
    pub fix_firewall: Option<bool>,
    /// Defaults of client files: the settings with their values, or without one to remove it.
    pub client_defaults: Vec<(Setting, Option<String>)>,
}

/// Why a server cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// A network cannot be that of the clients.
    #[error("{network} cannot be the clients' network: {why}")]
    Pool {
        /// Which.
        network: IpNet,
        /// Why, and what would do.
        why: String,
    },
    /// A value is not one that the file can have.
    #[error(transparent)]
    Value(#[from] InvalidValue),
}

impl Changes {
    /// Changes the file of a server whose clients have addresses of `networks`; those in `taken` are others'.
    ///
    /// # Errors
    /// A network is not wider than before or belongs to others, or a value is not valid.
    pub fn apply(&self, document: &mut Document, networks: &[IpNet], taken: &[IpNet]) -> Result<(), ChangeError> {
        let section = document.interface();
        if let Some(port) = self.port {
            set_port(document, section, port)?;
        }
        if let Some(endpoint) = &self.endpoint {
            document.set(section, &settings::PUBLIC_ENDPOINT, &endpoint.to_string())?;
        }
        if !self.pools.is_empty() {
            let own = addresses(document);
            // An address without a prefix length, as some tools write it, has no network: the pool becomes its network.
            let mut before = networks.to_vec();
            let mut added: Vec<IpNet> = Vec::new();
            for pool in &self.pools {
                let has_family = |net: &&IpNet| net.addr().is_ipv4() == pool.addr().is_ipv4();
                if !before.iter().any(|net| has_family(&net)) {
                    let single: Vec<IpNet> = own.iter().filter(has_family).copied().collect();
                    if single.is_empty() {
                        added.push(first_host(*pool)?);
                        before.push(*pool);
                    } else {
                        before.push(bare(*pool, &single)?);
                    }
                }
            }
            let mut wider = before.clone();
            self.pools.iter().try_for_each(|pool| widen(&mut wider, *pool, taken))?;
            resize_addresses(document, &before, &wider)?;
            for address in &added {
                document.insert(section, &settings::ADDRESS, &address.to_string())?;
                translate(document, section, address)?;
            }
            document.unset(section, &settings::POOL);
            document.set(section, &settings::POOL, &list(&wider))?;
        }
        if let Some(fixes) = self.fix_firewall {
            document.unset(section, &settings::FIX_FIREWALL);
            if fixes {
                document.set(section, &settings::FIX_FIREWALL, "true")?;
            }
        }
        for (setting, value) in &self.client_defaults {
            document.unset(section, setting);
            if let Some(value) = value {
                document.set(section, setting, value)?;
            }
        }
        Ok(())
    }
}

/// Changes the port, and that of the endpoint where it was the same.
fn set_port(document: &mut Document, section: usize, port: u16) -> Result<(), InvalidValue> {
    let interfaces = document.sections().iter().filter(|section| section.kind() == SectionKind::Interface);
    let entries: Vec<_> = interfaces.flat_map(Section::entries).collect();
    let value = |setting: &Setting| {
        let entry = entries.iter().rev().find(|entry| entry.is(setting))?;
        str::from_utf8(entry.value()).ok()
    };
    let before = value(&settings::LISTEN_PORT).and_then(|value| value.parse().ok());
    let endpoint = value(&settings::PUBLIC_ENDPOINT).and_then(|value| value.parse::<PublicEndpoint>().ok());
    document.set(section, &settings::LISTEN_PORT, &port.to_string())?;
    match before.zip(endpoint) {
        Some((before, endpoint)) if endpoint.port() == Some(before) => {
            document.set(section, &settings::PUBLIC_ENDPOINT, &endpoint.moved(before, port).to_string())
        }
        _ => Ok(()),
    }
}

/// The address in `pool` of a server that has no network of this family, only the addresses `own`.
fn bare(pool: IpNet, own: &[IpNet]) -> Result<IpNet, ChangeError> {
    let refuse = |why: String| Err(ChangeError::Pool { network: pool, why });
    match own.iter().find(|address| pool.contains(*address)) {
        Some(address) if address.addr() == pool.trunc().addr() => refuse(format!(
            "the server's own address, {}, is this network's first, which no host can have: choose a network that begins before it",
            address.addr()
        )),
        Some(address) => Ok(address.trunc()),
        None => refuse(format!("it does not contain the server's own address, {}", list(own))),
    }
}

/// Returns the server's address in a pool of a family in which it has no address: the pool's first host address.
fn first_host(pool: IpNet) -> Result<IpNet, ChangeError> {
    let longest = pool.max_prefix_len() - 2;
    match pool.trunc().hosts().find(|host| *host != pool.trunc().addr()) {
        Some(first) if pool.prefix_len() <= longest && pool.prefix_len() > 0 => {
            Ok(IpNet::new_assert(first, pool.prefix_len()))
        }
        _ => Err(ChangeError::Pool { network: pool, why: format!("its prefix length must be from 8 to {longest}") }),
    }
}

/// Sets `Masquerade = both` if the new network is private and the other family's is masqueraded.
fn translate(document: &mut Document, section: usize, address: &IpNet) -> Result<(), InvalidValue> {
    let other = if address.addr().is_ipv4() { "ipv6" } else { "ipv4" };
    let interfaces = document.sections().iter().filter(|section| section.kind() == SectionKind::Interface);
    let entries: Vec<_> = interfaces.flat_map(Section::entries).filter(|it| it.is(&settings::MASQUERADE)).collect();
    let is_other = entries.last().is_some_and(|entry| entry.value().eq_ignore_ascii_case(other.as_bytes()));
    match is_other && !is_public(address.addr()) {
        true => document.set(section, &settings::MASQUERADE, "both"),
        false => Ok(()),
    }
}

/// The server's own addresses.
fn addresses(document: &Document) -> Vec<IpNet> {
    let interfaces = document.sections().iter().filter(|section| section.kind() == SectionKind::Interface);
    let entries = interfaces.flat_map(Section::entries).filter(|entry| entry.is(&settings::ADDRESS));
    let values = entries.map(|entry| String::from_utf8_lossy(entry.value()).into_owned());
    values.flat_map(|value| value.split([',', ' ', '\t']).filter_map(address).collect::<Vec<_>>()).collect()
}

/// An address with its length, which is the full one where none is written.
fn address(word: &str) -> Option<IpNet> {
    word.parse().ok().or_else(|| Some(word.parse::<IpAddr>().ok()?.into()))
}

/// Puts `pool` in the place of the networks that it contains.
fn widen(networks: &mut Vec<IpNet>, pool: IpNet, taken: &[IpNet]) -> Result<(), ChangeError> {
    let refuse = |why: String| Err(ChangeError::Pool { network: pool, why });
    if pool.trunc() != pool {
        return refuse(format!("it has host bits; write {}", pool.trunc()));
    }
    let Some(first) = networks.iter().position(|network| pool.contains(network)) else {
        let same_family = |network: &&IpNet| network.addr().is_ipv4() == pool.addr().is_ipv4();
        let old: Vec<&IpNet> = networks.iter().filter(same_family).collect();
        return refuse(match &old[..] {
            [] => "the server has no addresses of this family".to_owned(),
            old => format!(
                "it does not contain {}. A network can only be widened, because all clients would need new files otherwise",
                list(old)
            ),
        });
    };
    if pool.addr().is_ipv4() && pool.prefix_len() < 8 {
        return refuse("its prefix length must be at least 8".to_owned());
    }
    if let Some(other) = conflict(&pool, taken) {
        return refuse(format!(
            "this host or another tunnel's file uses {other}. Remove it there, or free addresses with `linerate client remove`"
        ));
    }
    networks[first] = pool;
    let mut index = 0;
    networks.retain(|network| {
        index += 1;
        index - 1 == first || !pool.contains(network)
    });
    Ok(())
}

/// Gives the server's own addresses the lengths of the wider networks, so that one route leads to all clients.
fn resize_addresses(document: &mut Document, before: &[IpNet], after: &[IpNet]) -> Result<(), InvalidValue> {
    let resized = |word: &str| -> Option<IpNet> {
        let address = address(word)?;
        let was_network = before.contains(&address.trunc());
        let network = after.iter().find(|network| was_network && network.contains(&address))?;
        IpNet::new(address.addr(), network.prefix_len()).ok()
    };
    let mut lines = Vec::new();
    for (section, content) in document.sections().iter().enumerate() {
        if content.kind() != SectionKind::Interface {
            continue;
        }
        for entry in content.entries().filter(|entry| entry.is(&settings::ADDRESS)) {
            let value = String::from_utf8_lossy(entry.value()).into_owned();
            let words = value.split([',', ' ', '\t']).filter(|word| !word.is_empty());
            let new: Vec<String> =
                words.map(|word| resized(word).map_or_else(|| word.to_owned(), |net| net.to_string())).collect();
            lines.push((section, entry.index, list(&new)));
        }
    }
    lines.iter().try_for_each(|(section, index, value)| document.replace(*section, *index, &settings::ADDRESS, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[Interface]\n# mine\nAddress = 10.7.4.1/24, fd00::1/64 # both\nAddress = 192.0.2.7/32\n\
        #! PublicEndpoint = 192.0.2.7\n#! Pool = 10.7.4.0/24, fd00::/64\n#! ClientDNS = 9.9.9.9\n\n[Peer]\nPublicKey = x\n";

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn changed(changes: &Changes, taken: &[&str]) -> Result<String, String> {
        let mut document = Document::parse(FILE.as_bytes());
        let applied = changes.apply(&mut document, &nets(&["10.7.4.0/24", "fd00::/64"]), &nets(taken));
        let text = String::from_utf8(document.to_bytes().to_vec()).unwrap();
        applied.map(|()| text).map_err(|error| error.to_string())
    }

    fn pools(texts: &[&str]) -> Changes {
        Changes { pools: nets(texts), ..Changes::default() }
    }

    #[test]
    fn a_wider_pool_takes_the_place_of_the_one_it_contains_and_the_servers_address_follows() {
        let expected = FILE.replace("10.7.4.1/24", "10.7.4.1/20").replace("Pool = 10.7.4.0/24", "Pool = 10.7.0.0/20");
        let mut lines: Vec<&str> = expected.lines().collect();
        lines.sort_unstable();
        let text = changed(&pools(&["10.7.0.0/20"]), &[]).unwrap();
        let mut found: Vec<&str> = text.lines().collect();
        found.sort_unstable();
        assert_eq!(found, lines);
        assert!(text.ends_with("\n[Peer]\nPublicKey = x\n"), "{text}");
    }

    #[test]
    fn a_pool_that_is_not_wider_or_not_free_is_refused() {
        let refused = |pool: &str, taken: &[&str]| changed(&pools(&[pool]), taken).unwrap_err();
        assert!(refused("10.8.0.0/16", &[]).contains("does not contain 10.7.4.0/24"));
        assert!(refused("10.7.4.0/25", &[]).contains("only be widened"));
        assert!(refused("10.7.4.0/16", &[]).contains("write 10.7.0.0/16"));
        assert!(refused("10.7.0.0/16", &["10.7.99.0/24"]).contains("uses 10.7.99.0/24"));
        assert!(refused("10.0.0.0/7", &[]).contains("at least 8"));
    }

    #[test]
    fn an_address_without_a_length_gets_that_of_the_pool_that_contains_it() {
        let with = |address: &str, pools: &[&str]| {
            let text =
                format!("[Interface]\nAddress = {address}\nListenPort = 1\n[Peer]\nAllowedIPs = 10.13.13.2/32\n");
            let mut document = Document::parse(text.as_bytes());
            let applied = self::pools(pools).apply(&mut document, &[], &[]);
            let text = String::from_utf8(document.to_bytes().to_vec()).unwrap();
            applied.map(|()| text.lines().nth(1).unwrap().to_owned() + &text.contains(&list(&nets(pools))).to_string())
        };
        let made = |address: &str| Ok(format!("Address = {address}true"));
        assert_eq!(with("10.13.13.1", &["10.13.13.0/24"]), made("10.13.13.1/24"));
        assert_eq!(with("10.13.13.1/32", &["10.13.0.0/16"]), made("10.13.13.1/16"));
        assert_eq!(with("10.13.13.1,fd00::1", &["10.13.13.0/24", "fd00::/64"]), made("10.13.13.1/24, fd00::1/64"));
        let refused = |address: &str, pool: &str| with(address, &[pool]).unwrap_err().to_string();
        assert!(
            refused("10.13.13.1", "10.14.0.0/16").contains("does not contain the server's own address, 10.13.13.1/32")
        );
        assert!(refused("10.13.13.1", "10.13.13.1/24").contains("write 10.13.13.0/24"));
        assert!(refused("10.13.13.0/31", "10.13.13.0/24").contains("begins before it"));
        assert_eq!(with("10.13.13.0/31", &["10.13.0.0/16"]), Ok("Address = 10.13.13.0/16true".to_owned()));
    }

    #[test]
    fn a_pool_of_a_family_that_the_tunnel_lacks_gives_the_server_an_address_of_it() {
        let with = |pool: &str, taken: &[&str]| {
            let text = "[Interface]\nAddress = 10.7.4.1/24\n#! Masquerade = ipv4\n[Peer]\nPublicKey = x\n";
            let mut document = Document::parse(text.as_bytes());
            let applied = pools(&[pool]).apply(&mut document, &nets(&["10.7.4.0/24"]), &nets(taken));
            let text = String::from_utf8(document.to_bytes().to_vec()).unwrap();
            applied.map(|()| text).map_err(|error| error.to_string())
        };
        let local = with("fd00:7::/64", &[]).unwrap();
        for line in ["10.7.4.1/24", "fd00:7::1/64", "Pool = 10.7.4.0/24, fd00:7::/64", "Masquerade = both"] {
            assert!(local.contains(line), "{local}");
        }
        let public = with("2001:db8:5::/64", &[]).unwrap();
        assert!(public.contains("2001:db8:5::1/64") && public.contains("Masquerade = ipv4"), "{public}");
        assert!(with("fd00:7::1/64", &[]).unwrap_err().contains("write fd00:7::/64"));
        assert!(with("fd00:7::/64", &["fd00:7::/48"]).unwrap_err().contains("uses fd00:7::/48"));
        for small in ["fd00:7::/127", "fd00:7::/128"] {
            assert!(with(small, &[]).unwrap_err().contains("must be"), "{small}");
        }
    }

    #[test]
    fn the_endpoints_port_follows_the_port_unless_a_router_forwards_another_one() {
        let with = |lines: &str, port| {
            let mut document = Document::parse(format!("[Interface]\n{lines}\n[Peer]\nPublicKey = x\n").as_bytes());
            Changes { port: Some(port), ..Changes::default() }.apply(&mut document, &[], &[]).unwrap();
            String::from_utf8(document.to_bytes().to_vec()).unwrap()
        };
        let text = with("ListenPort = 51820\n#! PublicEndpoint = a.example:51820\n", 443);
        assert!(text.contains("ListenPort = 443\n#! PublicEndpoint = a.example:443\n"), "{text}");
        let text = with("ListenPort = 51820\n#! PublicEndpoint = [2001:db8::1]:443\n", 4433);
        assert!(text.contains("ListenPort = 4433\n#! PublicEndpoint = [2001:db8::1]:443\n"), "{text}");
        let text = with("#! PublicEndpoint = a.example\n", 443);
        assert!(text.contains("ListenPort = 443\n") && text.contains("PublicEndpoint = a.example\n"), "{text}");
    }

    #[test]
    fn endpoint_and_defaults_are_set_and_removed() {
        let changes = Changes {
            endpoint: Some("vpn.example.com".parse().unwrap()),
            client_defaults: vec![(settings::CLIENT_DNS, None), (settings::CLIENT_MTU, Some("1380".into()))],
            ..Changes::default()
        };
        let text = changed(&changes, &[]).unwrap();
        assert!(
            text.contains("#! PublicEndpoint = vpn.example.com\n") && text.contains("#! ClientMTU = 1380\n"),
            "{text}"
        );
        assert!(!text.contains("ClientDNS"), "{text}");
        let invalid =
            Changes { client_defaults: vec![(settings::CLIENT_DNS, Some("a\nb".into()))], ..Changes::default() };
        assert!(changed(&invalid, &[]).is_err());
    }
}
