//! The TUN device's link: which namespace it is in, whether it is up, its MTU, the routes over it.
//!
//! The device may be in another network namespace than the sockets: made there, or moved, as into a container. Then
//! there are two monitors, one for the link there and one for the routes that outer datagrams take here.
//! Of a device that was handed over, or that is this process's alone, the kernel is asked nothing: its link is up, with the
//! MTU that was told.
//! Queries the kernel; decides nothing. Neighbour: [`crate::control_thread`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use linerate_netio::link::{self, LinkEvent, Monitor};
use linerate_netio::namespace::NetworkNamespace;
use linerate_netio::{tun, udp};
use linerate_protocol::Prefix;

use crate::device::Device;
use crate::mtu::{MTU_DEFAULT, RouteMtu};
use crate::outbound::OVERHEAD;

/// The length of the device's transmit queue, which fills while the engine processes a batch; the kernel's default
/// of 500 is less than one burst of small datagrams.
const QUEUE_LEN: u32 = 1000;

/// The largest packet of most networks.
const ETHERNET_MTU: usize = 1500;

/// The most changes that are read in one pass; other work is done in between: flapping routes produce an endless
/// stream.
const CHANGES_PER_PASS: usize = 256;

/// The most changes that are read before the first pass: what a socket's buffer holds, and many more.
const FIRST_CHANGES: usize = 1 << 16;

/// The link of one device.
pub enum Link {
    /// The kernel is asked.
    Watched(WatchedLink),
    /// The device was handed over by an app, which looks after the interface, or nobody but this process sees it.
    Told {
        /// Its MTU in bytes.
        mtu: u32,
        /// Of the network of the sockets, if the kernel may be asked about that.
        outside: Option<Monitor>,
    },
}

/// A link of which the kernel tells changes.
pub struct WatchedLink {
    notified: Notified,
    here: Monitor,
    remote: Option<RemoteNamespace>,
}

/// The namespace of the device, which is another one than that of the sockets.
struct RemoteNamespace {
    network: NetworkNamespace,
    monitor: Monitor,
}

/// The link as the notifications so far describe it.
///
/// That it went down is read from them alone: a notification may be older than the state that was last read. `ip link
/// set mtu 1400 up` tells of the MTU while the link is down, and that may arrive when the link has been read as up.
struct Notified {
    ifindex: u32,
    up: bool,
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
    /// over, the one that it has. One that `is_private` is up already, and nobody else changes it.
    ///
    /// # Errors
    /// When there is no netlink, or the MTU may not be set.
    pub fn new(tun: &Device, mtu: Option<u32>, is_private: bool) -> io::Result<Self> {
        let told = |mtu: Option<u32>, outside| Self::Told { mtu: mtu.unwrap_or(MTU_DEFAULT), outside };
        match (tun, tun.ifindex()) {
            (Device::Kernel(tun), Some(ifindex)) if is_private => {
                let mtu = tun.network()?.inside(|| {
                    prepare(ifindex, mtu)?;
                    let mtu = link::mtu(ifindex)?;
                    limit_gso_segments(ifindex, mtu);
                    Ok(mtu)
                })?;
                Ok(told(Some(mtu), outside()))
            }
            (Device::Kernel(tun), Some(ifindex)) => WatchedLink::new(tun, ifindex, mtu).map(Self::Watched),
            _ => Ok(told(mtu, is_private.then(outside).flatten())),
        }
    }

    /// The descriptors to wait for, readable when there may be events. Both are the same while the device is in our
    /// namespace. `None` if nothing is monitored.
    pub fn descriptors(&self) -> Option<[BorrowedFd<'_>; 2]> {
        match self {
            Self::Watched(link) => Some(link.descriptors()),
            Self::Told { outside, .. } => outside.as_ref().map(|outside| [outside.as_fd(); 2]),
        }
    }

    /// Reads what has changed, or the first part of it; `None` if nothing has.
    pub fn events(&mut self, tun: &Device) -> Option<LinkChanges> {
        match (self, tun) {
            (Self::Watched(link), Device::Kernel(tun)) => link.events(tun),
            (Self::Told { outside: Some(outside), .. }, _) => changes_outside(outside),
            _ => None,
        }
    }

    /// Whether the link is up, and its MTU.
    ///
    /// # Errors
    /// ENODEV when it is gone.
    pub fn state(&self) -> io::Result<(bool, u32)> {
        match self {
            Self::Watched(link) => link.state(),
            Self::Told { mtu, .. } => Ok((true, *mtu)),
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
    pub fn limit_gso_segments(&self, mtu: u32) {
        match self {
            Self::Watched(link) => link.limit_gso_segments(mtu),
            // It has no GSO packets, or whoever makes them keeps to this.
            Self::Told { .. } => {}
        }
    }

    /// Finds the namespace that the device was moved to; false if it was deleted.
    ///
    /// # Errors
    /// When it cannot be monitored there: no permission, or no descriptors or memory left.
    pub fn follow(&mut self, tun: &Device) -> io::Result<bool> {
        match (self, tun) {
            (Self::Watched(link), Device::Kernel(tun)) => link.follow(tun),
            _ => Ok(true),
        }
    }
}

impl WatchedLink {
    fn new(tun: &tun::TunDevice, ifindex: u32, mtu: Option<u32>) -> io::Result<Self> {
        let mut here = Monitor::new()?;
        let (notified, remote) = if tun.is_elsewhere() {
            let (notified, remote) = open_namespace(tun, &tun.name()?)?;
            (notified, Some(remote))
        } else {
            here.watch(ifindex)?;
            (Notified::first(ifindex, || link::is_up(ifindex), || here.next())?, None)
        };
        let link = Self { notified, here, remote };
        link.in_namespace(|ifindex| prepare(ifindex, mtu))?;
        Ok(link)
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        let remote = self.remote.as_ref().map_or(&self.here, |remote| &remote.monitor);
        [self.here.as_fd(), remote.as_fd()]
    }

    fn events(&mut self, tun: &tun::TunDevice) -> Option<LinkChanges> {
        let (mut events, mut left) = (None, false);
        for _ in 0..CHANGES_PER_PASS {
            let Some(change) = self.here.next() else { break };
            let events = events.get_or_insert_default();
            match self.remote {
                None => left |= self.notified.with_device(&change, events),
                Some(_) => Notified::without_device(&change, events),
            }
        }
        for _ in 0..CHANGES_PER_PASS {
            let Some(change) = self.remote.as_mut().and_then(|remote| remote.monitor.next()) else { break };
            left |= self.notified.in_remote(&change, events.get_or_insert_default());
        }
        if left {
            let events = events.get_or_insert_default();
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

    fn limit_gso_segments(&self, mtu: u32) {
        let set = |ifindex| {
            limit_gso_segments(ifindex, mtu);
            Ok(())
        };
        if let Err(error) = self.in_namespace(set) {
            tracing::debug!("cannot limit the size of GSO packets: {error}");
        }
    }

    fn follow(&mut self, tun: &tun::TunDevice) -> io::Result<bool> {
        let Ok(name) = tun.name() else { return Ok(false) };
        let (notified, remote) = open_namespace(tun, &name)?;
        tracing::info!("{name} has moved to another network namespace; its sockets stay in this one");
        (self.notified, self.remote) = (notified, Some(remote));
        // The kernel has forgotten this with the interface's IPv6 addresses.
        self.in_namespace(|ifindex| {
            without_link_local(ifindex);
            Ok(())
        })?;
        Ok(true)
    }

    fn in_namespace<T: Send>(&self, query: impl FnOnce(u32) -> io::Result<T> + Send) -> io::Result<T> {
        match &self.remote {
            None => query(self.notified.ifindex),
            Some(remote) => remote.network.inside(|| query(self.notified.ifindex)),
        }
    }
}

impl Notified {
    /// The link when no notification waits any more: those that do are read, and mean nothing else. What is read of the
    /// link may be newer than they are, or older, so the last of them counts.
    fn first(
        ifindex: u32,
        is_up: impl Fn() -> io::Result<bool>,
        mut next: impl FnMut() -> Option<LinkEvent>,
    ) -> io::Result<Self> {
        let mut up = is_up()?;
        for _ in 0..FIRST_CHANGES {
            match next() {
                Some(LinkEvent::Link { ifindex: at, up: told, .. }) if at == ifindex => up = told,
                Some(LinkEvent::Lost) => up = is_up()?,
                Some(_) => {}
                None => break,
            }
        }
        Ok(Self { ifindex, up })
    }

    /// What a change in our namespace means while the device is here; true if the device has left.
    fn with_device(&mut self, change: &LinkEvent, events: &mut LinkChanges) -> bool {
        match *change {
            LinkEvent::Link { ifindex, up, .. } if ifindex == self.ifindex => self.link(up, events),
            LinkEvent::LinkGone { ifindex } if ifindex == self.ifindex => return true,
            // One over the device, and perhaps a route of the outer datagrams.
            LinkEvent::Routing { ifindex: Some(at) } if at == self.ifindex => {
                (events.link, events.routing) = (true, true);
            }
            LinkEvent::Routing { ifindex: None } => (events.maybe_link, events.routing) = (true, true),
            LinkEvent::Lost => {
                self.lost(events);
                (events.routing, events.other_interfaces) = (true, true);
            }
            _ => Self::without_device(change, events),
        }
        false
    }

    /// What a change in our namespace means for the routes of outer datagrams, whose device is elsewhere.
    fn without_device(change: &LinkEvent, events: &mut LinkChanges) {
        events.routing = true;
        events.other_interfaces |= !matches!(change, LinkEvent::Routing { .. });
    }

    /// What a change in the device's own namespace means, which is not ours; true if the device has left.
    fn in_remote(&mut self, change: &LinkEvent, events: &mut LinkChanges) -> bool {
        match *change {
            LinkEvent::Link { ifindex, up, .. } if ifindex == self.ifindex => self.link(up, events),
            LinkEvent::LinkGone { ifindex } if ifindex == self.ifindex => return true,
            LinkEvent::Routing { ifindex: Some(at) } if at == self.ifindex => events.link = true,
            LinkEvent::Routing { ifindex: None } => events.maybe_link = true,
            LinkEvent::Lost => self.lost(events),
            LinkEvent::Link { .. } | LinkEvent::LinkGone { .. } | LinkEvent::Routing { .. } => {}
        }
        false
    }

    fn link(&mut self, up: bool, events: &mut LinkChanges) {
        events.link = true;
        events.down |= self.up && !up;
        self.up = up;
    }

    /// Among what was lost may be that it came up; if it goes down next, that counts.
    fn lost(&mut self, events: &mut LinkChanges) {
        events.maybe_link = true;
        self.up = true;
    }
}

/// Without netlink, as in some sandboxes, an endpoint's path is found anew only when its peer is silent.
fn outside() -> Option<Monitor> {
    let unavailable = |error: &io::Error| tracing::debug!("changes of the host's network are not noticed: {error}");
    Monitor::new().inspect_err(unavailable).ok()
}

/// What has changed in the network of the sockets while the device is not there.
fn changes_outside(monitor: &mut Monitor) -> Option<LinkChanges> {
    let mut events = None;
    for _ in 0..CHANGES_PER_PASS {
        let Some(change) = monitor.next() else { break };
        Notified::without_device(&change, events.get_or_insert_default());
    }
    events
}

/// A GSO packet of full segments then makes exactly one GSO batch; a larger one would take two.
fn limit_gso_segments(ifindex: u32, mtu: u32) {
    // Behind a tunnel with a larger MTU most peers still have that of Ethernet. Segments of theirs that came as one GRO
    // packet and are more than this, the kernel passes on one by one.
    let segment = (mtu as usize + OVERHEAD).min(ETHERNET_MTU);
    let segments = (udp::GSO_BATCH_MAX / segment).clamp(1, udp::SEGMENTS_MAX);
    if let Err(error) = link::set_gso_max_segments(ifindex, segments as u32) {
        tracing::debug!("cannot limit the size of GSO packets: {error}");
    }
}

fn prepare(ifindex: u32, mtu: Option<u32>) -> io::Result<()> {
    if let Some(mtu) = mtu {
        link::set_mtu(ifindex, mtu)?;
    }
    if let Err(error) = link::set_tx_queue_len(ifindex, QUEUE_LEN) {
        tracing::debug!("cannot set the queue length: {error}");
    }
    without_link_local(ifindex);
    Ok(())
}

/// No peer has a link-local address that the kernel makes up, nor the multicast that goes with it (kernel module:
/// device.c, wg_open).
fn without_link_local(ifindex: u32) {
    if let Err(error) = link::set_no_link_local_address(ifindex) {
        tracing::debug!("the interface may get a link-local address: {error}");
    }
}

fn open_namespace(tun: &tun::TunDevice, name: &str) -> io::Result<(Notified, RemoteNamespace)> {
    let network = tun.network()?;
    let (monitor, notified) = network.inside(|| {
        let (mut monitor, ifindex) = (Monitor::new()?, link::index_of(name)?);
        let notified = Notified::first(ifindex, || link::is_up(ifindex), || monitor.next())?;
        Ok((monitor, notified))
    })?;
    Ok((notified, RemoteNamespace { network, monitor }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEVICE: u32 = 7;

    fn link(ifindex: u32, up: bool) -> LinkEvent {
        LinkEvent::Link { ifindex, up, mtu: 1420, name: "wg0".into() }
    }

    /// Whether each of these, one read at a time, says that the link went down.
    fn downs(up: bool, remote: bool, changes: &[LinkEvent]) -> Vec<bool> {
        downs_after(Notified { ifindex: DEVICE, up }, remote, changes)
    }

    fn downs_after(mut notified: Notified, remote: bool, changes: &[LinkEvent]) -> Vec<bool> {
        let down = |change| {
            let mut events = LinkChanges::default();
            let left = if remote {
                notified.in_remote(change, &mut events)
            } else {
                notified.with_device(change, &mut events)
            };
            assert!(!left, "{change:?}");
            events.down
        };
        changes.iter().map(down).collect()
    }

    #[test]
    fn a_change_before_the_link_came_up_is_not_that_it_went_down() {
        // `ip link set mtu 1400 up`, and then `down`.
        let changes = [link(DEVICE, false), link(DEVICE, true), link(DEVICE, false)];
        assert_eq!(downs(false, false, &changes), [false, false, true]);
    }

    #[test]
    fn after_what_was_lost_at_the_beginning_the_link_is_read_again() {
        let reads = std::cell::Cell::new(0);
        let is_up = || Ok(reads.replace(reads.get() + 1) == 0);
        let mut told = [link(9, true), LinkEvent::Lost].into_iter();
        let notified = Notified::first(DEVICE, is_up, || told.next()).unwrap();
        assert!(!notified.up && reads.get() == 2);
    }

    #[test]
    fn after_a_loss_the_next_that_is_down_counts() {
        let changes = [LinkEvent::Lost, link(DEVICE, false), link(DEVICE, false)];
        assert_eq!(downs(false, false, &changes), [false, true, false]);
    }

    proptest! {
        /// The kernel tells of `early` before the link is read for the first time, of `late` before what it told is read,
        /// and of `then` afterwards.
        #[test]
        fn a_link_that_changes_while_its_monitor_begins_goes_down_as_often_as_then(
            before: bool,
            remote: bool,
            early in prop::collection::vec(any::<bool>(), 0..6),
            late in prop::collection::vec(any::<bool>(), 0..6),
            then in prop::collection::vec(any::<bool>(), 0..6),
        ) {
            let read = early.last().copied().unwrap_or(before);
            let mut told = early.iter().chain(&late).map(|&up| link(DEVICE, up));
            let notified = Notified::first(DEVICE, || Ok(read), || told.next()).unwrap();
            let mut was_up = late.last().copied().unwrap_or(read);
            let expected = then.iter().map(|&up| std::mem::replace(&mut was_up, up) && !up);
            let expected: Vec<bool> = expected.collect();
            let changes: Vec<_> = then.iter().map(|&up| link(DEVICE, up)).collect();
            prop_assert_eq!(downs_after(notified, remote, &changes), expected);
        }

        #[test]
        fn a_link_goes_down_once_for_each_time_that_it_was_up(
            start: bool, remote: bool, told in prop::collection::vec((any::<bool>(), any::<bool>()), 0..40),
        ) {
            let changes: Vec<_> = told.iter().map(|&(ours, up)| link(if ours { DEVICE } else { 9 }, up)).collect();
            let mut was_up = start;
            let expected = told.iter().map(|&(ours, up)| ours && std::mem::replace(&mut was_up, up) && !up);
            let expected: Vec<bool> = expected.collect();
            prop_assert_eq!(downs(start, remote, &changes), expected);
        }
    }
}
