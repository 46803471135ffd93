//! The TUN device's link: where it is, whether it is up, its MTU, the routes over it.
//!
//! The device may be moved to another network namespace, as into a container, while the sockets
//! stay where they are; then two monitors listen, one for the link there and one for the routes
//! that outer datagrams take here. Asks the kernel; decides nothing. Neighbour: [`crate::engine`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use linerate_netio::link::{self, Change, Monitor};
use linerate_netio::namespace::NetworkNamespace;
use linerate_netio::tun;
use linerate_protocol::Prefix;

use crate::shared::RouteMtu;

/// Packets that wait in the device while the engine is busy with a batch; the kernel's 500 are
/// fewer than one burst of small datagrams.
const QUEUE_LEN: u32 = 1000;

/// Changes that are read before others have their turn again: where a host's routes flap they do not end.
const CHANGES_PER_PASS: usize = 256;

/// The link of one device.
pub struct Link {
    ifindex: u32,
    here: Monitor,
    remote: Option<RemoteNamespace>,
}

/// Another namespace that the device is in.
struct RemoteNamespace {
    network: NetworkNamespace,
    monitor: Monitor,
}

/// What has changed since it was read last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkEvents {
    /// The link, or a route over it.
    pub link: bool,
    /// The link was down for a moment at least: it may be up again by now.
    pub down: bool,
    /// Perhaps the link, or a route over it: what changed does not say.
    pub unsure: bool,
    /// A route or an address here.
    pub routing: bool,
    /// Another interface here: it came, changed or went.
    pub others: bool,
    /// The device was deleted.
    pub gone: bool,
}

impl Link {
    /// Begins to listen, and prepares the device.
    ///
    /// # Errors
    /// When there is no netlink, or the MTU may not be set.
    pub fn new(tun: &tun::TunDevice, mtu: Option<u32>) -> io::Result<Self> {
        let link = Self { ifindex: tun.ifindex(), here: Monitor::new()?, remote: None };
        if let Some(mtu) = mtu {
            link::set_mtu(link.ifindex, mtu)?;
        }
        if let Err(error) = link::set_tx_queue_len(link.ifindex, QUEUE_LEN) {
            tracing::debug!("the queue length stays as it is: {error}");
        }
        Ok(link)
    }

    /// What to wait for: readable when there may be news. The second is the first again while the
    /// device is here.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        let there = self.remote.as_ref().map_or(&self.here, |remote| &remote.monitor);
        [self.here.as_fd(), there.as_fd()]
    }

    /// Reads what has changed, or the first part of it; none if nothing has.
    pub fn news(&mut self, tun: &tun::TunDevice) -> Option<LinkEvents> {
        let (mut news, mut left) = (None, false);
        let ifindex = self.ifindex;
        let is_remote = self.remote.is_some();
        for _ in 0..CHANGES_PER_PASS {
            let Some(change) = self.here.next() else { break };
            let news = news.get_or_insert_with(LinkEvents::default);
            match change {
                Change::Link { ifindex: at, up, .. } if !is_remote && at == ifindex => {
                    (news.link, news.down) = (true, news.down || !up);
                }
                Change::LinkGone { ifindex: at } if !is_remote && at == ifindex => left = true,
                Change::Link { .. } | Change::LinkGone { .. } => (news.routing, news.others) = (true, true),
                // A route of the outer datagrams, and perhaps one over the device.
                Change::Routing { ifindex: Some(at) } if is_remote || at != ifindex => news.routing = true,
                Change::Routing { ifindex: Some(_) } => (news.link, news.routing) = (true, true),
                Change::Routing { ifindex: None } => (news.unsure, news.routing) = (true, true),
                Change::Lost => (news.unsure, news.routing, news.others) = (true, true, true),
            }
        }
        for _ in 0..CHANGES_PER_PASS {
            let Some(change) = self.remote.as_mut().and_then(|remote| remote.monitor.next()) else { break };
            let news = news.get_or_insert_with(LinkEvents::default);
            match change {
                Change::LinkGone { ifindex: at } if at == ifindex => left = true,
                Change::Link { ifindex: at, .. } | Change::Routing { ifindex: Some(at) } if at != ifindex => {}
                Change::Link { up, .. } => (news.link, news.down) = (true, news.down || !up),
                Change::Routing { ifindex: None } | Change::Lost => news.unsure = true,
                _ => news.link = true,
            }
        }
        if left {
            let news = news.get_or_insert_with(LinkEvents::default);
            // Where it cannot be followed now, whoever reads the link finds out, and tries again.
            news.gone = matches!(self.follow(tun), Ok(false));
            news.link = true;
        }
        news
    }

    /// Whether the link is up, and its MTU.
    ///
    /// # Errors
    /// ENODEV when it is gone.
    pub fn state(&self) -> io::Result<(bool, u32)> {
        self.in_namespace(|ifindex| Ok((link::is_up(ifindex)?, link::mtu(ifindex)?)))
    }

    /// The routes over the link that carry an MTU of their own.
    pub fn route_mtus(&self) -> Vec<RouteMtu> {
        let routes = self.in_namespace(link::route_mtus).unwrap_or_else(|error| {
            tracing::debug!("the routes' MTUs are not known: {error}");
            Vec::new()
        });
        let known = |(addr, cidr, mtu)| Some(RouteMtu { prefix: Prefix::new(addr, cidr)?, mtu });
        routes.into_iter().filter_map(known).collect()
    }

    /// Limits the segments of super-packets, so that each is one train.
    pub fn set_segments(&self, segments: usize) {
        let set = |ifindex| link::set_gso_max_segments(ifindex, segments as u32);
        if let Err(error) = self.in_namespace(set) {
            tracing::debug!("super-packets keep their size: {error}");
        }
    }

    /// Finds out where the device has gone; false if it exists no more.
    ///
    /// # Errors
    /// It is elsewhere, and cannot be listened to there: no permission, or nothing left of what that takes.
    pub fn follow(&mut self, tun: &tun::TunDevice) -> io::Result<bool> {
        let Ok(name) = tun.name() else { return Ok(false) };
        let (ifindex, remote) = open_namespace(tun, &name)?;
        tracing::info!("{name} has moved to another network namespace; its sockets stay in this one");
        (self.ifindex, self.remote) = (ifindex, Some(remote));
        Ok(true)
    }

    fn in_namespace<T: Send>(&self, ask: impl FnOnce(u32) -> io::Result<T> + Send) -> io::Result<T> {
        match &self.remote {
            None => ask(self.ifindex),
            Some(remote) => remote.network.inside(|| ask(self.ifindex)),
        }
    }
}

fn open_namespace(tun: &tun::TunDevice, name: &str) -> io::Result<(u32, RemoteNamespace)> {
    let network = tun.network()?;
    let (monitor, ifindex) = network.inside(|| Ok((Monitor::new()?, link::index_of(name)?)))?;
    Ok((ifindex, RemoteNamespace { network, monitor }))
}
