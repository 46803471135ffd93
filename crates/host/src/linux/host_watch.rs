//! Notices changes of what tunnels depend on: the host's default routes, and what a tunnel has set on the host.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{RecvFlags, recv};

use linerate_netlink::rtnetlink::*;
use linerate_netlink::{Message, NetlinkError, RECEIVE_BUFFER, attribute, messages, u32_at, u32_of};

use super::socket::NetlinkSocket;
use super::{NETLINK_NETFILTER, NETLINK_ROUTE, links};
use crate::state::HostChanges;
use crate::step::MAIN;

/// Watches this network namespace for one tunnel (rtnetlink(7)). The kernel reports every change; changes that concern only
/// other tunnels and programs are dropped.
pub struct HostWatch {
    routing: netlink_sys::Socket,
    /// `None` if the kernel has no netfilter, or does not let this process listen to it.
    filter: Option<netlink_sys::Socket>,
    names: Names,
    received: Vec<u8>,
}

impl HostWatch {
    /// Watches this network namespace.
    ///
    /// # Errors
    /// There is no socket.
    pub fn new() -> io::Result<Self> {
        // The socket first, so that no change is missed.
        let routing = listening(NETLINK_ROUTE, ROUTING_GROUPS)?;
        Ok(Self {
            routing,
            names: Names::of_host()?,
            filter: listening(NETLINK_NETFILTER, NFTABLES_GROUP).ok(),
            received: vec![0; RECEIVE_BUFFER],
        })
    }

    /// Returns what has changed, or may have, for this interface's tunnel since the last call.
    pub fn clear(&mut self, interface: &str) -> HostChanges {
        let index = name_to_index(&self.routing, interface).ok();
        let mut changes = HostChanges::default();
        let names = &mut self.names;
        drain(&self.routing, &mut self.received, &mut changes, |message| HostChanges {
            names: names.have_changed(message),
            ..changes_by(message, index)
        });
        if let Some(filter) = &self.filter {
            let any = HostChanges { tunnel: true, ..HostChanges::default() };
            drain(filter, &mut self.received, &mut changes, |_| any);
        }
        changes
    }

    /// The descriptors that become readable with a change.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [Some(&self.routing), self.filter.as_ref()].into_iter().flatten().map(AsFd::as_fd)
    }
}

/// linux/rtnetlink.h: links, and addresses, routes and rules of both families. Rules of IPv6 have a group without a name
/// of this kind (`RTNLGRP_IPV6_RULE`, 19).
const ROUTING_GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;

/// linux/netfilter/nfnetlink.h, `NFNLGRP_NFTABLES`, 7.
const NFTABLES_GROUP: u32 = 1 << 6;

fn listening(protocol: isize, groups: u32) -> io::Result<netlink_sys::Socket> {
    let mut socket = netlink_sys::Socket::new(protocol)?;
    socket.bind(&netlink_sys::SocketAddr::new(0, groups))?;
    Ok(socket)
}

fn drain(
    socket: &netlink_sys::Socket,
    buffer: &mut [u8],
    changes: &mut HostChanges,
    mut read: impl FnMut(&Message<'_>) -> HostChanges,
) {
    loop {
        match recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((length, _)) => messages(&buffer[..length]).for_each(|message| *changes |= read(&message)),
            Err(Errno::INTR) => {}
            // Messages were lost.
            Err(Errno::NOBUFS) => *changes |= HostChanges { default_routes: true, names: true, tunnel: true },
            Err(_) => return,
        }
    }
}

/// The names of links by index. A renamed link keeps its routes, and a link that is plugged in again has lost its sysctls:
/// of both the kernel reports only the link.
struct Names(HashMap<u32, String>);

impl Names {
    fn of_host() -> io::Result<Self> {
        let links = NetlinkSocket::open(NETLINK_ROUTE)?.list(links::list(), links::read);
        let links = links.map_err(NetlinkError::into_io_error)?;
        Ok(Self(links.into_iter().map(|link| (link.index, link.name)).collect()))
    }

    /// Whether `message` reports a new link or a renamed one. Keeps the names up to date.
    fn have_changed(&mut self, message: &Message<'_>) -> bool {
        let Self(names) = self;
        if message.kind == RTM_DELLINK {
            u32_at(message.payload, 4).and_then(|index| names.remove(&index));
            return false;
        }
        let Some(link) = links::read(message) else { return false };
        let name = link.name.clone();
        names.insert(link.index, link.name).is_none_or(|before| before != name)
    }
}

fn changes_by(message: &Message<'_>, index: Option<u32>) -> HostChanges {
    let is_of_tunnel = |at: usize| index.is_some() && u32_at(message.payload, at) == index;
    match message.kind {
        RTM_NEWROUTE | RTM_DELROUTE => HostChanges {
            default_routes: is_default_route(message.payload),
            tunnel: index.is_some() && outgoing(message.payload) == index,
            ..HostChanges::default()
        },
        // `struct ifinfomsg` and `struct ifaddrmsg`: the index is the fifth byte and the three after it.
        RTM_NEWLINK | RTM_DELLINK | RTM_NEWADDR | RTM_DELADDR => {
            HostChanges { tunnel: is_of_tunnel(4), ..HostChanges::default() }
        }
        RTM_NEWRULE | RTM_DELRULE => HostChanges { tunnel: true, ..HostChanges::default() },
        _ => HostChanges::default(),
    }
}

/// Whether it is one of the main table. `struct rtmsg`: family, length of the destination, two more, table.
fn is_default_route(payload: &[u8]) -> bool {
    payload.len() >= RTMSG && payload[1] == 0 && u32::from(payload[4]) == MAIN
}

/// The index of a route's interface.
fn outgoing(payload: &[u8]) -> Option<u32> {
    attribute(payload.get(RTMSG..)?, RTA_OIF).and_then(u32_of)
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use linerate_netlink::{Attributes, Request};
    use proptest::prelude::*;

    use super::super::hostile::{hostile_attributes, read_back};
    use super::super::{routes, rules};
    use super::*;
    use crate::step::{AddressFamily, Route, Rule};

    fn route(to: &str, table: u32) -> Route {
        Route {
            to: to.parse().unwrap(),
            device: Some("wg0".into()),
            via: None,
            table,
            metric: 0,
            protocol: 4,
            scope: 0,
            source: None,
            mtu: 0,
            onlink: false,
        }
    }

    #[test]
    fn default_routes_of_the_main_table_are_told_from_others() {
        for (to, table, expected) in
            [("0.0.0.0/0", MAIN, true), ("::/0", MAIN, true), ("10.0.0.0/8", MAIN, false), ("0.0.0.0/0", 51820, false)]
        {
            let route = route(to, table);
            for request in [routes::add(&route, Some(5)), routes::delete(&route, Some(5))] {
                let changes = |message: &Message<'_>| changes_by(message, Some(7));
                read_back(request, |message| {
                    let changes = changes(message);
                    assert_eq!((changes.default_routes, changes.tunnel), (expected, false), "{to}");
                });
            }
        }
    }

    #[test]
    fn what_a_tunnel_has_set_is_told_from_what_others_have() {
        let address: IpNet = "10.0.0.1/24".parse().unwrap();
        let route = route("10.0.0.0/8", MAIN);
        let of_five = [
            routes::delete(&route, Some(5)),
            links::add_address(5, &address),
            links::delete_address(5, &address),
            links::set_up(5),
        ];
        for request in of_five {
            read_back(request, |message| {
                let is_of_tunnel = [Some(5), Some(6), None].map(|index| changes_by(message, index).tunnel);
                assert_eq!(is_of_tunnel, [true, false, false], "{}", message.kind);
            });
        }
        let rule = Rule {
            family: AddressFamily::V4,
            priority: 18_000,
            not: true,
            fwmark: Some(7),
            to: None,
            table: 7,
            suppress_prefixlength: None,
            protocol: 0,
        };
        read_back(rules::delete(&rule), |message| assert!(changes_by(message, None).tunnel));
    }

    #[test]
    fn a_link_that_is_new_or_gets_another_name_is_told_from_one_that_changes_otherwise() {
        let mut names = Names(HashMap::new());
        let mut said = |kind, index: u32, name| {
            let mut payload = vec![0; IFINFOMSG];
            payload[4..8].copy_from_slice(&index.to_ne_bytes());
            let attributes = Attributes::default().with_text(IFLA_IFNAME, name).with_u32(IFLA_MTU, 1500);
            let mut changed = false;
            read_back(Request::new(kind, 0, &payload, attributes), |message| changed = names.have_changed(message));
            changed
        };
        assert!(said(RTM_NEWLINK, 2, "eth0"), "a new link");
        assert!(!said(RTM_NEWLINK, 2, "eth0"), "another change");
        assert!(said(RTM_NEWLINK, 2, "ens18"));
        assert!(!said(RTM_DELLINK, 2, "ens18"));
        assert!(said(RTM_NEWLINK, 2, "eth0"), "another link of the same index");
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(kind: u16, fixed in prop::collection::vec(any::<u8>(), 0..=RTMSG), odd in hostile_attributes()) {
            let payload = [fixed, odd].concat();
            for kind in [kind, RTM_NEWROUTE, RTM_NEWLINK, RTM_DELADDR] {
                let _ = changes_by(&Message { kind, flags: 0, sequence: 0, payload: &payload }, Some(1));
            }
        }
    }
}
