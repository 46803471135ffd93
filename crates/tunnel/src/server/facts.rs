//! What this host has, as far as a new server has to know it.

use std::fs;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use linerate_control::interface::InterfaceName;
use linerate_host::state::{HostState, Link};
use linerate_host::step::{AddressFamily, MAIN, Route};
use linerate_server::init::{Facts, RoutedPrefix, Uplink};

use super::{files, record};
use crate::error::Error;
use crate::read::ConfigFile;
use crate::snapshot;

/// Reads the facts: links, addresses and routes from the kernel, the ports that are in use, and the files of tunnels,
/// which need not be up. What belongs to the tunnel `own` is left out.
///
/// # Errors
/// The kernel, or the folder of the files, cannot be read.
pub fn facts(own: &InterfaceName) -> Result<Facts, Error> {
    let mut state = snapshot::open()?.state().map_err(Error::Snapshot)?;
    state.links.retain(|link| link.name != own.as_str());
    state.routes.retain(|route| route.device.as_deref() != Some(own.as_str()));
    let mut files = files()?;
    files.retain(|file| file.interface != *own);
    let mut ports = used_ports(&["/proc/self/net/udp", "/proc/self/net/udp6"]);
    ports.extend(files.iter().filter_map(|file| file.contents.listen_port));
    let has_ipv6 = !state.disabled_families.contains(&AddressFamily::V6);
    let texts = RESOLVERS.iter().filter_map(|path| fs::read_to_string(path).ok()).collect::<Vec<_>>();
    Ok(Facts {
        resolvers: resolvers(&texts, &state),
        taken: taken(&state, &files),
        uplink4: uplink(&state, AddressFamily::V4),
        uplink6: has_ipv6.then(|| uplink(&state, AddressFamily::V6)).flatten(),
        ipv6_is_off: !has_ipv6,
        routed: state.routes.iter().filter_map(routed).collect(),
        local_prefix: record::local_prefix()?,
        ports,
    })
}

/// Returns the interfaces of the default routes, and all other interfaces that have addresses, tunnels among them.
///
/// # Errors
/// The kernel cannot be asked.
pub fn interfaces() -> Result<(Vec<String>, Vec<String>), Error> {
    let state = snapshot::open()?.state().map_err(Error::Snapshot)?;
    let mut uplinks: Vec<String> = Vec::new();
    for family in [AddressFamily::V4, AddressFamily::V6] {
        let found = uplink(&state, family).map(|uplink| uplink.interface);
        uplinks.extend(found.filter(|name| !uplinks.contains(name)));
    }
    let has_address = |link: &&Link| {
        let leads_out = |address: &IpNet| !address.addr().is_loopback() && !is_link_local(address.addr());
        link.up && link.addresses.iter().any(leads_out)
    };
    let names = state.links.iter().filter(has_address).map(|link| link.name.clone());
    let others = names.filter(|name| !uplinks.contains(name)).collect();
    Ok((uplinks, others))
}

fn taken(state: &HostState, files: &[ConfigFile]) -> Vec<IpNet> {
    let addresses = state.links.iter().flat_map(|link| &link.addresses).copied();
    let routes = state.routes.iter().filter(|route| routed(route).is_none()).map(|route| route.to);
    let of_file = |file: &ConfigFile| {
        let allowed_ips = file.contents.peers.iter().flat_map(|peer| &peer.allowed_ips);
        file.contents.addresses.iter().chain(allowed_ips).copied().collect::<Vec<_>>()
    };
    addresses.chain(routes).chain(files.iter().flat_map(of_file)).collect()
}

/// The interface of the best default route of a family. The address that the route prefers comes first: the others may
/// not be reachable from outside.
fn uplink(state: &HostState, family: AddressFamily) -> Option<Uplink> {
    let is_default = |route: &&Route| {
        route.table == MAIN && route.to.prefix_len() == 0 && AddressFamily::of_net(&route.to) == family
    };
    let routes = state.routes.iter().filter(is_default).filter(|route| route.device.is_some());
    let route = routes.min_by_key(|route| route.metric)?;
    let interface = route.device.clone()?;
    let of_family = |address: &IpAddr| AddressFamily::of(address) == family;
    let of_link = |link: &Link| link.addresses.iter().map(IpNet::addr).filter(of_family).collect::<Vec<_>>();
    let mut addresses: Vec<IpAddr> = route.source.into_iter().collect();
    addresses.extend(state.link(&interface).map(of_link).unwrap_or_default());
    addresses.retain(|address| !is_link_local(*address));
    Some(Uplink { interface, addresses })
}

/// Files with the host's name servers. If the first names a forwarder on the host itself, those of systemd-resolved and
/// NetworkManager have the servers behind it.
const RESOLVERS: [&str; 3] =
    ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"];

/// Returns the name servers of the first text with any that forwarded packets reach by the default routes' interfaces.
fn resolvers(texts: &[String], state: &HostState) -> Vec<IpAddr> {
    let is_reached =
        |address: &IpAddr| !address.is_loopback() && !is_link_local(*address) && leads_out(*address, state);
    let of_text = |text: &String| {
        let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok());
        servers.filter(is_reached).collect::<Vec<IpAddr>>()
    };
    texts.iter().map(of_text).find(|servers| !servers.is_empty()).unwrap_or_default()
}

/// Whether packets to an address leave by the interface of the default route: another tunnel's server is not for clients.
fn leads_out(address: IpAddr, state: &HostState) -> bool {
    let routes = state.routes.iter().filter(|route| route.table == MAIN && route.to.contains(&address));
    let best = routes.max_by_key(|route| (route.to.prefix_len(), std::cmp::Reverse(route.metric)));
    let uplink = uplink(state, AddressFamily::of(&address)).map(|uplink| uplink.interface);
    best.is_some_and(|route| route.device.is_some() && route.device == uplink)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The prefix of a route that leads nowhere: an administrator or a DHCP client adds one for a prefix that is routed to
/// this host, so that packets to its unused parts do not go back to the router.
fn routed(route: &Route) -> Option<RoutedPrefix> {
    // rtnetlink.h: RTPROT_BOOT, which `ip route add' sets, and RTPROT_STATIC.
    const OF_ADMINISTRATORS: [u8; 2] = [3, 4];
    let IpNet::V6(prefix) = route.to else { return None };
    let leads_nowhere = route.device.is_none() && route.via.is_none() && route.table == MAIN;
    let is_global = prefix.prefix_len() >= 16 && prefix.addr().segments()[0] & 0xe000 == 0x2000;
    let permanent = OF_ADMINISTRATORS.contains(&route.protocol);
    (leads_nowhere && is_global).then_some(RoutedPrefix { prefix: Ipv6Net::trunc(&prefix), permanent })
}

/// The local ports in tables of sockets (proc_pid_net(5)). A table that cannot be read is one of a family that the host
/// does not have.
fn used_ports(tables: &[&str]) -> Vec<u16> {
    let tables = tables.iter().filter_map(|table| fs::read_to_string(table).ok());
    tables.flat_map(|table| table.lines().skip(1).filter_map(local_port).collect::<Vec<_>>()).collect()
}

fn local_port(line: &str) -> Option<u16> {
    let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(to: &str, device: Option<&str>, metric: u32, protocol: u8) -> Route {
        let to: IpNet = to.parse().unwrap();
        Route {
            device: device.map(str::to_owned),
            via: None,
            table: MAIN,
            metric,
            protocol,
            scope: 0,
            source: None,
            mtu: 0,
            onlink: false,
            to,
        }
    }

    fn link(name: &str, addresses: &[&str]) -> Link {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Link { name: name.into(), addresses, ..Link::default() }
    }

    #[test]
    fn the_uplink_is_the_best_default_routes_interface_and_the_address_that_it_prefers_comes_first() {
        let preferring = Route { source: Some("203.0.113.9".parse().unwrap()), ..route("0.0.0.0/0", Some("b"), 10, 4) };
        let state = HostState {
            links: vec![link("a", &["192.0.2.1/24"]), link("b", &["10.0.0.1/24", "203.0.113.9/32", "fe80::1/64"])],
            routes: vec![route("0.0.0.0/0", Some("a"), 100, 4), preferring, route("::/0", Some("b"), 1024, 9)],
            ..HostState::default()
        };
        let found = uplink(&state, AddressFamily::V4).unwrap();
        let first: IpAddr = "203.0.113.9".parse().unwrap();
        assert_eq!((&*found.interface, found.addresses[0]), ("b", first));
        assert_eq!(uplink(&state, AddressFamily::V6).unwrap().addresses, [] as [IpAddr; 0]);
    }

    #[test]
    fn the_resolvers_are_those_behind_a_forwarder_and_none_of_another_tunnel() {
        let state = HostState {
            links: vec![link("a", &["192.168.1.5/24"])],
            routes: vec![
                route("0.0.0.0/0", Some("a"), 100, 4),
                route("192.168.1.0/24", Some("a"), 0, 2),
                route("10.64.0.0/24", Some("wg5"), 0, 2),
            ],
            ..HostState::default()
        };
        let found = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            resolvers(&texts, &state).iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found(&["# a\nnameserver 9.9.9.9\nsearch x\nnameserver\t192.168.1.1\n"]), "9.9.9.9 192.168.1.1");
        let stub = "nameserver 127.0.0.53\noptions edns0 trust-ad\n";
        assert_eq!(found(&[stub, "nameserver 192.168.1.1\nnameserver fe80::1%a\n"]), "192.168.1.1");
        assert_eq!(found(&[stub, stub, "nameserver 1.1.1.1\n"]), "1.1.1.1");
        for none in
            [stub, "nameserver 10.64.0.1\n", "nameserver 169.254.169.253\n", "nameserver 2620:fe::fe\n", "x", ""]
        {
            assert_eq!(found(&[none]), "", "{none}");
        }
    }

    #[test]
    fn a_route_that_leads_nowhere_is_that_of_a_prefix_routed_here_and_is_not_in_use() {
        let state = HostState {
            links: vec![link("a", &["2001:db8:5:7::1/64"])],
            routes: vec![
                route("2001:db8:5::/56", None, 1024, 16),
                route("2001:db8:6::/48", None, 1024, 4),
                route("fd00::/8", None, 1024, 4),
                route("10.1.0.0/16", Some("a"), 0, 4),
            ],
            ..HostState::default()
        };
        let found: Vec<(String, bool)> =
            state.routes.iter().filter_map(routed).map(|found| (found.prefix.to_string(), found.permanent)).collect();
        assert_eq!(found, [("2001:db8:5::/56".to_owned(), false), ("2001:db8:6::/48".to_owned(), true)]);
        let taken: Vec<String> = taken(&state, &[]).iter().map(IpNet::to_string).collect();
        assert_eq!(taken, ["2001:db8:5:7::1/64", "fd00::/8", "10.1.0.0/16"]);
    }

    #[test]
    fn a_line_of_the_table_of_sockets_has_the_port_in_hexadecimal() {
        let line = "  812: 00000000:CA6C 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0";
        assert_eq!(local_port(line), Some(51820));
        let line = "  812: 00000000000000000000000000000000:0035 00000000000000000000000000000000:0000 07";
        assert_eq!(local_port(line), Some(53));
        assert_eq!([local_port(""), local_port(" 1: 0"), local_port(" 1: 0:xyz")], [None; 3]);
    }
}
