//! A netlink socket for links, addresses and routes (NETLINK_ROUTE).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linerate_netlink::{
    Attributes, DUMP_ATTEMPTS, NLM_F_ACK, NLM_F_DUMP, NetlinkError, RECEIVE_BUFFER, Reply, Request,
};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, send, socket_with};

use crate::sys::option::IntOption;

/// A socket of the routing protocol.
pub(crate) struct NetlinkSocket {
    fd: OwnedFd,
}

impl NetlinkSocket {
    /// Opens a socket that receives the multicast `groups` (a mask of `1 << (RTNLGRP - 1)`).
    pub(crate) fn open(groups: u32, blocking: bool) -> io::Result<Self> {
        let mut flags = SocketFlags::CLOEXEC;
        if !blocking {
            flags |= SocketFlags::NONBLOCK;
        }
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { fd })
    }

    /// Receives one datagram from the kernel; returns 0 bytes for one from another process.
    ///
    /// # Errors
    ///
    /// ENOBUFS when messages were lost, also for one longer than `buf`.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let (_, len, source) = match recvfrom(&self.fd, &mut *buf, RecvFlags::TRUNC) {
                Err(Errno::INTR) => continue,
                received => received?,
            };
            let source = source.and_then(|source| SocketAddrNetlink::try_from(source).ok());
            return match source {
                Some(kernel) if kernel.pid() == 0 && len > buf.len() => Err(Errno::NOBUFS.into()),
                Some(kernel) if kernel.pid() == 0 => Ok(len),
                _ => Ok(0),
            };
        }
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Type and payload of a message.
pub(crate) type Received = (u16, Vec<u8>);

/// Sends a request and returns the payload of the reply. A request that changes something has none: it is empty.
pub(crate) fn request(kind: u16, fixed: &[u8], attributes: Attributes) -> io::Result<Vec<u8>> {
    let mut replies = transact(Request::new(kind, NLM_F_ACK, fixed, attributes), &open()?)?;
    Ok(replies.pop().map(|(_, payload)| payload).unwrap_or_default())
}

/// Requests a list; again, if it changed while it was read. Kernels before 4.20 send everything, whatever the
/// attributes ask for.
pub(crate) fn dump(kind: u16, fixed: &[u8], attributes: Attributes) -> io::Result<Vec<Received>> {
    let request = Request::new(kind, NLM_F_DUMP, fixed, attributes);
    let mut attempt = 1;
    loop {
        let socket = open()?;
        // The kernel reads the attributes of such a request only with this option, which older kernels do not have.
        let _ = IntOption::STRICT_CHECK.set(socket.as_fd(), 1);
        match transact(request.clone(), &socket) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) && attempt < DUMP_ATTEMPTS => attempt += 1,
            listed => return listed,
        }
    }
}

fn open() -> io::Result<NetlinkSocket> {
    NetlinkSocket::open(0, true)
}

fn transact(mut request: Request, socket: &NetlinkSocket) -> io::Result<Vec<Received>> {
    const SEQUENCE: u32 = 1;
    send(&socket.fd, request.with_sequence(SEQUENCE), SendFlags::empty())?;
    let (mut reply, mut replies) = (Reply::to(SEQUENCE), Vec::new());
    let mut buf = vec![0; RECEIVE_BUFFER];
    loop {
        let len = socket.receive(&mut buf)?;
        let end = reply.take(&buf[..len], |message| replies.push((message.kind, message.payload.to_vec())));
        if let Some(end) = end {
            return end.map(|()| replies).map_err(|NetlinkError { error, .. }| error);
        }
    }
}
