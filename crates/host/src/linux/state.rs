//! Reads the state of the host.

use std::collections::{BTreeMap, HashMap};
use std::io;

use rustix::io::Errno;

use super::socket::NetlinkSocket;
use super::{links, nftables, routes, rules, sysctl};
use crate::plan::gateway;
use crate::state::{HostState, Link};
use crate::step::AddressFamily;
use linerate_netlink::NetlinkError;

/// The sysctls that a plan may set for the host, or needs to know. Those of links are [`gateway::sysctls_of`].
const SYSCTLS: [&str; 4] = [
    "net.ipv4.conf.all.src_valid_mark",
    "net.ipv4.conf.default.forwarding",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.conf.default.force_forwarding",
];

/// Reads all of it except what manages name servers.
///
/// # Errors
/// The kernel refuses a request.
pub(super) fn read(routing: &mut NetlinkSocket, filter: Option<&mut NetlinkSocket>) -> io::Result<HostState> {
    let links = read_links(routing).map_err(NetlinkError::into_io_error)?;
    let names: HashMap<u32, String> = links.iter().map(|link| (link.index, link.name.clone())).collect();
    let routes = routing.list(routes::list(), |message| {
        Some((routes::read(message, &names)?, routes::hops_of_default(message, &names)))
    });
    let (routes, hops): (Vec<_>, Vec<_>) = routes.map_err(NetlinkError::into_io_error)?.into_iter().unzip();
    let rules = routing.list(rules::list(), rules::read).map_err(NetlinkError::into_io_error)?;
    let tables = read_tables(filter)?;
    Ok(HostState {
        routes,
        multipath_defaults: hops.concat(),
        rules,
        disabled_families: if ipv6_is_off() { vec![AddressFamily::V6] } else { vec![] },
        sysctls: read_sysctls(&links),
        links,
        nftables: tables.is_some(),
        firewall_tables: tables.unwrap_or_default(),
        ..HostState::default()
    })
}

fn read_links(routing: &mut NetlinkSocket) -> Result<Vec<Link>, NetlinkError> {
    let mut links = routing.list(links::list(), links::read)?;
    let mut addresses: HashMap<u32, Vec<_>> = HashMap::new();
    for (index, address) in routing.list(links::list_addresses(), links::read_address)? {
        addresses.entry(index).or_default().push(address);
    }
    for link in &mut links {
        link.addresses = addresses.remove(&link.index).unwrap_or_default();
    }
    Ok(links)
}

/// The firewall tables; none if the kernel has no nf_tables.
fn read_tables(filter: Option<&mut NetlinkSocket>) -> io::Result<Option<Vec<String>>> {
    let Some(filter) = filter else { return Ok(None) };
    match filter.list(nftables::list(), nftables::read) {
        Ok(tables) => Ok(Some(tables)),
        Err(refused) => match Errno::from_io_error(&refused.error) {
            // The error of nfnetlink for a subsystem that it cannot load (net/netfilter/nfnetlink.c,
            // `nfnetlink_rcv_msg`).
            Some(Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
            // A plan is possible without the permission to read them.
            Some(Errno::PERM) => Ok(Some(Vec::new())),
            _ => Err(refused.into_io_error()),
        },
    }
}

/// IPv6 is absent (`ipv6.disable=1`) or disabled on links (Documentation/networking/ip-sysctl.rst).
fn ipv6_is_off() -> bool {
    let off = |name| match sysctl::get(name) {
        Ok(value) => value == "1",
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    off("net.ipv6.conf.all.disable_ipv6") || off("net.ipv6.conf.default.disable_ipv6")
}

fn read_sysctls(links: &[Link]) -> BTreeMap<String, String> {
    let of_host = SYSCTLS.iter().map(|name| (*name).to_owned());
    let names = of_host.chain(links.iter().flat_map(|link| gateway::sysctls_of(&link.name)));
    names.filter_map(|name| sysctl::get(&name).ok().map(|value| (name, value))).collect()
}
