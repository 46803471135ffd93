//! Notices changes of the host's default routes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use linerate_netlink::rtnetlink::{RTM_DELROUTE, RTM_NEWROUTE, RTMSG};
use linerate_netlink::{Message, RECEIVE_BUFFER, messages};

use super::NETLINK_ROUTE;
use crate::step::MAIN;

/// A watch on the default routes of the main table (rtnetlink(7)). The kernel tells of every change of a route; those of
/// others are read and forgotten.
pub struct DefaultRouteWatch {
    socket: netlink_sys::Socket,
    received: Vec<u8>,
}

impl AsFd for DefaultRouteWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl DefaultRouteWatch {
    /// Watches those of this network namespace.
    ///
    /// # Errors
    /// There is no socket.
    pub fn new() -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(NETLINK_ROUTE)?;
        socket.bind(&netlink_sys::SocketAddr::new(0, RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE))?;
        Ok(Self { socket, received: vec![0; RECEIVE_BUFFER] })
    }

    /// Whether any has changed, or may have, since the last call.
    pub fn clear(&mut self) -> bool {
        let mut changed = false;
        loop {
            match recv(&self.socket, self.received.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    changed |= messages(&self.received[..length]).any(|message| is_of_default_route(&message));
                }
                Err(Errno::INTR) => {}
                // Messages were lost.
                Err(Errno::NOBUFS) => changed = true,
                Err(_) => return changed,
            }
        }
    }
}

/// linux/rtnetlink.h
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
const RTMGRP_IPV6_ROUTE: u32 = 0x400;

fn is_of_default_route(message: &Message<'_>) -> bool {
    let is_route = matches!(message.kind, RTM_NEWROUTE | RTM_DELROUTE) && message.payload.len() >= RTMSG;
    // `struct rtmsg`: family, length of the destination, two more, table.
    is_route && message.payload[1] == 0 && u32::from(message.payload[4]) == MAIN
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hostile::{hostile_attributes, read_back};
    use super::super::routes;
    use super::*;
    use crate::step::Route;

    #[test]
    fn default_routes_of_the_main_table_are_told_from_others() {
        for (to, table, expected) in
            [("0.0.0.0/0", MAIN, true), ("::/0", MAIN, true), ("10.0.0.0/8", MAIN, false), ("0.0.0.0/0", 51820, false)]
        {
            let route = Route {
                to: to.parse().unwrap(),
                device: Some("eth0".into()),
                via: None,
                table,
                metric: 0,
                protocol: 4,
                scope: 0,
                source: None,
                mtu: 0,
                onlink: false,
            };
            let requests = [routes::add(&route, Some(5)), routes::delete(&route, Some(5))];
            for request in requests {
                read_back(request, |message| assert_eq!(is_of_default_route(message), expected, "{to} in {table}"));
            }
        }
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(fixed in prop::collection::vec(any::<u8>(), 0..=RTMSG), odd in hostile_attributes()) {
            let payload = [fixed, odd].concat();
            let _ = is_of_default_route(&Message { kind: RTM_NEWROUTE, flags: 0, sequence: 0, payload: &payload });
        }
    }
}
