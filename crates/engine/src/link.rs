//! The TUN device's link: which namespace it is in, whether it is up, its MTU, the routes over it.
//!
//! The device may be moved to another network namespace, as into a container, while the sockets stay where they are;
//! then there are two monitors, one for the link there and one for the routes that outer datagrams take here.
//! Of a device that was handed over the kernel is asked nothing: its link is up, with the MTU that was told.
//! Queries the kernel; decides nothing. Neighbour: [`crate::control_thread`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use linerate_netio::link::{self, LinkEvent, Monitor};
use linerate_netio::namespace::NetworkNamespace;
use linerate_netio::tun;
use linerate_protocol::Prefix;

use crate::mtu::{MTU_DEFAULT, RouteMtu};

/// The length of the device's transmit queue, which fills while the engine processes a batch; the kernel's default
/// of 500 is less than one burst of small datagrams.
const QUEUE_LEN: u32 = 1000;

/// The most changes that are read in one pass; other work is done in between: flapping routes produce an endless
/// stream.
const CHANGES_PER_PASS: usize = 256;

/// The link of one device.
pub enum Link {
    /// The kernel is asked.
    Watched(WatchedLink),
    /// The device was handed over by an app, which looks after the interface.
    Told {
        /// Its MTU in bytes.
        mtu: u32,
    },
}

/// A link of which the kernel tells changes.
pub struct WatchedLink {
    ifindex: u32,
    here: Monitor,
    remote: Option<RemoteNamespace>,
}

/// The namespace that the device was moved to.
struct RemoteNamespace {
    network: NetworkNamespace,
    monitor: Monitor,
}

/// What has changed since the last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkChanges {
    /// The link, or a route over it.
    pub link: bool,
    /// The link went down; it may be up again by now.
    pub down: bool,
    /// Possibly the link or a route over it: the notification does not say which.
    pub maybe_link: bool,
    /// A route or an address in our namespace.
    pub routing: bool,
    /// Another interface in our namespace.
    pub other_interfaces: bool,
    /// The device was deleted.
    pub deleted: bool,
}

impl Link {
    /// Starts to monitor the link, and prepares the device. `mtu` is the one to give it; for a device that was handed
    /// over, the one that it has.
    ///
    /// # Errors
    /// When there is no netlink, or the MTU may not be set.
    pub fn new(tun: &tun::TunDevice, mtu: Option<u32>) -> io::Result<Self> {
        match tun.ifindex() {
            Some(ifindex) => WatchedLink::new(ifindex, mtu).map(Self::Watched),
            None => Ok(Self::Told { mtu: mtu.unwrap_or(MTU_DEFAULT) }),
        }
    }

    /// The descriptors to wait for, readable when there may be events. Both are the same while the device is in our
    /// namespace. `None` if nothing is monitored.
    pub fn descriptors(&self) -> Option<[BorrowedFd<'_>; 2]> {
        match self {
            Self::Watched(link) => Some(link.descriptors()),
            Self::Told { .. } => None,
        }
    }

    /// Reads what has changed, or the first part of it; `None` if nothing has.
    pub fn events(&mut self, tun: &tun::TunDevice) -> Option<LinkChanges> {
        match self {
            Self::Watched(link) => link.events(tun),
            Self::Told { .. } => None,
        }
    }

    /// Whether the link is up, and its MTU.
    ///
    /// # Errors
    /// ENODEV when it is gone.
    pub fn state(&self) -> io::Result<(bool, u32)> {
        match self {
            Self::Watched(link) => link.state(),
            Self::Told { mtu } => Ok((true, *mtu)),
        }
    }

    /// The routes over the link that carry an MTU of their own.
    pub fn route_mtus(&self) -> Vec<RouteMtu> {
        match self {
            Self::Watched(link) => link.route_mtus(),
            Self::Told { .. } => Vec::new(),
        }
    }

    /// Limits the segments of GSO packets, so that each makes one GSO batch.
    pub fn limit_gso_segments(&self, segments: usize) {
        match self {
            Self::Watched(link) => link.limit_gso_segments(segments),
            // It has no GSO packets.
            Self::Told { .. } => {}
        }
    }

    /// Finds the namespace that the device was moved to; false if it was deleted.
    ///
    /// # Errors
    /// When it cannot be monitored there: no permission, or no descriptors or memory left.
    pub fn follow(&mut self, tun: &tun::TunDevice) -> io::Result<bool> {
        match self {
            Self::Watched(link) => link.follow(tun),
            Self::Told { .. } => Ok(true),
        }
    }
}

impl WatchedLink {
    fn new(ifindex: u32, mtu: Option<u32>) -> io::Result<Self> {
        let link = Self { ifindex, here: Monitor::new()?, remote: None };
        if let Some(mtu) = mtu {
            link::set_mtu(link.ifindex, mtu)?;
        }
        if let Err(error) = link::set_tx_queue_len(link.ifindex, QUEUE_LEN) {
            tracing::debug!("cannot set the queue length: {error}");
        }
        Ok(link)
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        let remote = self.remote.as_ref().map_or(&self.here, |remote| &remote.monitor);
        [self.here.as_fd(), remote.as_fd()]
    }

    fn events(&mut self, tun: &tun::TunDevice) -> Option<LinkChanges> {
        let (mut events, mut left) = (None, false);
        let ifindex = self.ifindex;
        let is_remote = self.remote.is_some();
        for _ in 0..CHANGES_PER_PASS {
            let Some(change) = self.here.next() else { break };
            let events = events.get_or_insert_with(LinkChanges::default);
            match change {
                LinkEvent::Link { ifindex: at, up, .. } if !is_remote && at == ifindex => {
                    (events.link, events.down) = (true, events.down || !up);
                }
                LinkEvent::LinkGone { ifindex: at } if !is_remote && at == ifindex => left = true,
                LinkEvent::Link { .. } | LinkEvent::LinkGone { .. } => {
                    (events.routing, events.other_interfaces) = (true, true);
                }
                // A route of the outer datagrams, and perhaps one over the device.
                LinkEvent::Routing { ifindex: Some(at) } if is_remote || at != ifindex => events.routing = true,
                LinkEvent::Routing { ifindex: Some(_) } => (events.link, events.routing) = (true, true),
                LinkEvent::Routing { ifindex: None } => (events.maybe_link, events.routing) = (true, true),
                LinkEvent::Lost => {
                    (events.maybe_link, events.routing, events.other_interfaces) = (true, true, true);
                }
            }
        }
        for _ in 0..CHANGES_PER_PASS {
            let Some(change) = self.remote.as_mut().and_then(|remote| remote.monitor.next()) else { break };
            let events = events.get_or_insert_with(LinkChanges::default);
            match change {
                LinkEvent::LinkGone { ifindex: at } if at == ifindex => left = true,
                LinkEvent::Link { ifindex: at, .. } | LinkEvent::Routing { ifindex: Some(at) } if at != ifindex => {}
                LinkEvent::Link { up, .. } => (events.link, events.down) = (true, events.down || !up),
                LinkEvent::Routing { ifindex: None } | LinkEvent::Lost => events.maybe_link = true,
                _ => events.link = true,
            }
        }
        if left {
            let events = events.get_or_insert_with(LinkChanges::default);
            // If it cannot be followed now, reading the link fails too and is retried.
            events.deleted = matches!(self.follow(tun), Ok(false));
            events.link = true;
        }
        events
    }

    fn state(&self) -> io::Result<(bool, u32)> {
        self.in_namespace(|ifindex| Ok((link::is_up(ifindex)?, link::mtu(ifindex)?)))
    }

    fn route_mtus(&self) -> Vec<RouteMtu> {
        let routes = self.in_namespace(link::route_mtus).unwrap_or_else(|error| {
            tracing::debug!("cannot read the MTUs of routes: {error}");
            Vec::new()
        });
        let known = |(addr, cidr, mtu)| Some(RouteMtu { prefix: Prefix::new(addr, cidr)?, mtu });
        routes.into_iter().filter_map(known).collect()
    }

    fn limit_gso_segments(&self, segments: usize) {
        let set = |ifindex| link::set_gso_max_segments(ifindex, segments as u32);
        if let Err(error) = self.in_namespace(set) {
            tracing::debug!("cannot limit the size of GSO packets: {error}");
        }
    }

    fn follow(&mut self, tun: &tun::TunDevice) -> io::Result<bool> {
        let Ok(name) = tun.name() else { return Ok(false) };
        let (ifindex, remote) = open_namespace(tun, &name)?;
        tracing::info!("{name} has moved to another network namespace; its sockets stay in this one");
        (self.ifindex, self.remote) = (ifindex, Some(remote));
        Ok(true)
    }

    fn in_namespace<T: Send>(&self, query: impl FnOnce(u32) -> io::Result<T> + Send) -> io::Result<T> {
        match &self.remote {
            None => query(self.ifindex),
            Some(remote) => remote.network.inside(|| query(self.ifindex)),
        }
    }
}

fn open_namespace(tun: &tun::TunDevice, name: &str) -> io::Result<(u32, RemoteNamespace)> {
    let network = tun.network()?;
    let (monitor, ifindex) = network.inside(|| Ok((Monitor::new()?, link::index_of(name)?)))?;
    Ok((ifindex, RemoteNamespace { network, monitor }))
}
