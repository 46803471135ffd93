//! The tunnel's MTU, and those of the routes over it that have one of their own.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::ArcSwap;
use linerate_protocol::Prefix;

/// Bytes that a datagram has around its inner packet, IPv6 and UDP headers included.
const ENCAPSULATION: u32 = 80;

/// The MTU that an interface starts with: Ethernet's, less the encapsulation (kernel: device.c).
pub const MTU_DEFAULT: u32 = 1500 - ENCAPSULATION;

/// The MTUs by destination.
pub struct Mtu {
    link: AtomicU32,
    has_routes: AtomicBool,
    routes: ArcSwap<Vec<RouteMtu>>,
}

/// A route over the tunnel that has its own MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteMtu {
    /// The route's destination.
    pub prefix: Prefix,
    /// Bytes of an inner packet.
    pub mtu: u32,
}

impl Mtu {
    /// The MTU of the link, and no routes.
    pub fn new(link: u32) -> Self {
        Self { link: AtomicU32::new(link), has_routes: AtomicBool::new(false), routes: ArcSwap::default() }
    }

    /// Sets the MTU of the link.
    pub fn set_link(&self, mtu: u32) {
        self.link.store(mtu, Ordering::Relaxed);
    }

    /// Replaces the routes.
    pub fn set_routes(&self, mut routes: Vec<RouteMtu>) {
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.cidr()));
        self.has_routes.store(!routes.is_empty(), Ordering::Relaxed);
        self.routes.store(Arc::new(routes));
    }

    /// The MTU of the route to `destination`: padding does not exceed it (kernel: send.c, calculate_skb_padding).
    pub fn for_destination(&self, destination: IpAddr) -> usize {
        let link = self.link.load(Ordering::Relaxed) as usize;
        if !self.has_routes.load(Ordering::Relaxed) {
            return link;
        }
        let routes = self.routes.load();
        let route = routes.iter().find(|route| route.prefix.contains(destination));
        route.map_or(link, |route| link.min(route.mtu as usize))
    }
}
