//! Interfaces by ioctl(2), addresses by getifaddrs(3), routes and changes by the routing socket (route(4)).

use std::collections::HashSet;
use std::io;
use std::iter;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send};

use super::os;
pub(crate) use crate::bsd_decisions::GONE;
use crate::bsd_decisions::route_message::{self, Events};
use crate::link::LinkEvent;
use crate::sys::kqueue::{Queue, TIMER};
use crate::sys::{self, interface, nonblocking_socket};

/// How long the answer to a question may take.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// The MTU of an interface, in bytes.
///
/// # Errors
///
/// ENXIO when it is gone.
pub fn mtu(ifindex: u32) -> io::Result<u32> {
    interface::mtu(&name_of(ifindex)?)
}

/// Sets the MTU of an interface, in bytes.
pub fn set_mtu(ifindex: u32, mtu: u32) -> io::Result<()> {
    interface::set_mtu(&name_of(ifindex)?, mtu)
}

/// # Errors
///
/// Always: there are no GSO packets.
pub fn set_gso_max_segments(_ifindex: u32, _segments: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// # Errors
///
/// Always: the system decides (on FreeBSD the tunable net.link.ifqmaxlen).
pub fn set_tx_queue_len(_ifindex: u32, _packets: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing: on FreeBSD the interface is made so, and macOS makes no such address for `utun`.
///
/// # Errors
///
/// Never.
pub fn set_no_link_local_address(_ifindex: u32) -> io::Result<()> {
    Ok(())
}

/// Whether an interface is up, as the user set it (IFF_UP).
///
/// # Errors
///
/// ENXIO when it is gone.
pub fn is_up(ifindex: u32) -> io::Result<bool> {
    interface::is_up(&name_of(ifindex)?)
}

/// The index of the interface `name`.
///
/// # Errors
///
/// ENXIO when there is none.
pub fn index_of(name: &str) -> io::Result<u32> {
    interface::index_of(name)
}

/// The name of an interface.
///
/// # Errors
///
/// ENXIO when it is gone.
pub fn name_of(ifindex: u32) -> io::Result<String> {
    interface::name_of(ifindex)
}

pub use {index_of as zone_index, name_of as zone_name};

/// Whether `address` is one of this host's, so that datagrams may be sent from it.
pub fn is_local_address(address: IpAddr) -> io::Result<bool> {
    Ok(interface::addresses()?.contains(&address))
}

/// The IPv6 addresses of this host that datagrams may be sent from.
pub fn addresses_v6() -> io::Result<HashSet<IpAddr>> {
    Ok(interface::addresses()?.into_iter().filter(IpAddr::is_ipv6).collect())
}

/// The interface that the kernel would use to send to `to` from the address `from` (unspecified: any). The mark is not
/// one of routing here.
///
/// # Errors
///
/// When there is no route, or `from` is not this host's.
pub fn egress(to: IpAddr, from: IpAddr, _mark: u32) -> io::Result<u32> {
    static SEQUENCE: AtomicU32 = AtomicU32::new(1);
    if !from.is_unspecified() && !is_local_address(from)? {
        return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
    }
    let socket = sys::os::socket(interface::ROUTING, SocketType::RAW)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_MAX))?;
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    // ESRCH without a route. The answer comes by a queue of the kernel's (sys/net/rtsock.c, rt_dispatch).
    send(&socket, &os::ROUTES.get(sequence, to), SendFlags::empty())?;
    let receive = |buf: &mut [u8]| Ok(recv(&socket, buf, RecvFlags::empty())?.1);
    route_message::answer(receive, std::process::id(), sequence)
}

/// # Errors
///
/// Always: every route has an MTU here, and which one was set by somebody cannot be told.
pub fn route_mtus(_ifindex: u32) -> io::Result<Vec<(IpAddr, u8, u32)>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// How soon an interface that is about to be deleted is noticed.
const ALIVE_PERIOD: Duration = Duration::from_secs(1);

/// What a monitor waits for if it watches an interface: the socket, and the next look.
struct Watched {
    ifindex: u32,
    queue: Queue,
}

/// Receives changes of links, addresses and routes of both families, from its creation on. Its descriptor is
/// readable when there are any.
pub struct Monitor {
    socket: OwnedFd,
    /// The interface that may be about to be deleted.
    watched: Option<Watched>,
    events: Events,
}

impl Monitor {
    /// Starts to listen.
    pub fn new() -> io::Result<Self> {
        let socket = nonblocking_socket(interface::ROUTING, SocketType::RAW)?;
        Ok(Self { socket, watched: None, events: Events::new() })
    }

    /// Also notices within a second that a TUN interface of this process is about to be deleted, which waits until its
    /// device is closed: the event is the same as if it were gone. Not if it looks so from the start.
    pub fn watch(&mut self, ifindex: u32) -> io::Result<()> {
        if !os::is_alive(&name_of(ifindex)?) {
            return Ok(());
        }
        let queue = Queue::new()?;
        queue.watch_readable(self.socket.as_fd())?;
        queue.watch_time(ALIVE_PERIOD)?;
        self.watched = Some(Watched { ifindex, queue });
        Ok(())
    }

    /// The next event; `None` when there is none yet. Not an iterator: more may follow `None`.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<LinkEvent> {
        let receive = |buf: &mut [u8]| Ok(recv(&self.socket, buf, RecvFlags::empty())?.1);
        let look = |ifindex| {
            let name = name_of(ifindex)?;
            Ok(LinkEvent::Link { ifindex, up: interface::is_up(&name)?, mtu: interface::mtu(&name)?, name })
        };
        self.events.next(receive, look).or_else(|| self.deleted())
    }

    /// That the watched interface is being deleted, if it is time to look.
    fn deleted(&self) -> Option<LinkEvent> {
        let watched = self.watched.as_ref()?;
        // The socket has been read empty; if there is more, it is next.
        let is_due = iter::from_fn(|| watched.queue.take()).take_while(|taken| *taken == TIMER).count() > 0;
        let is_alive = || name_of(watched.ifindex).is_ok_and(|name| os::is_alive(&name));
        (is_due && !is_alive()).then_some(LinkEvent::LinkGone { ifindex: watched.ifindex })
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_ref().map_or(self.socket.as_fd(), |watched| watched.queue.as_fd())
    }
}
