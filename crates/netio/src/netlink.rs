//! The few netlink messages that [`link`](crate::link) speaks, as bytes.
//!
//! Written out rather than taken from a general codec, because such a codec refuses a whole
//! message over one attribute whose layout a newer kernel has changed; here what is not asked for
//! is stepped over. A message that lies about a length ends the reading, never panics.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, send, socket_with};

use crate::sys::option::IntOption;

/// Room for what one receive may bring: the kernel fills at most 32 KiB at a time.
pub(crate) const BUFFER: usize = 64 << 10;

const HEADER: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// How often a list that changed while it was read is read again.
const DUMP_ATTEMPTS: u32 = 10;

/// A netlink socket for links, addresses and routes (NETLINK_ROUTE).
pub(crate) struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Opens a socket that hears the multicast `groups` (a mask of `1 << (RTNLGRP - 1)`).
    pub(crate) fn open(groups: u32, blocking: bool) -> io::Result<Self> {
        let mut flags = SocketFlags::CLOEXEC;
        if !blocking {
            flags |= SocketFlags::NONBLOCK;
        }
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { fd })
    }

    /// Receives what one datagram of the kernel's holds; 0 bytes for a datagram of anyone else's.
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

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A request to the kernel, under construction.
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A message of type `kind` with its fixed part.
    pub(crate) fn new(kind: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self { bytes }
    }

    /// Adds an attribute.
    pub(crate) fn attribute(mut self, kind: u16, data: &[u8]) -> Self {
        let len = u16::try_from(4 + data.len()).expect("attributes of ours are a few bytes long");
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// Asks the kernel and answers the one message that it replied with, or for a request that
    /// changes something, which has no reply, an empty one.
    pub(crate) fn ask(self) -> io::Result<Reply> {
        let mut replies = self.transact(NLM_F_REQUEST | NLM_F_ACK)?;
        Ok(replies.pop().unwrap_or(Reply { kind: 0, payload: Vec::new() }))
    }

    /// Asks the kernel for a list; again, if it changed while it was read. Kernels before 4.20 tell all that there is,
    /// whatever the request's attributes ask for.
    pub(crate) fn list(self) -> io::Result<Vec<Reply>> {
        let mut attempt = 1;
        loop {
            let request = Self { bytes: self.bytes.clone() };
            match request.transact(NLM_F_REQUEST | NLM_F_DUMP) {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) && attempt < DUMP_ATTEMPTS => {
                    attempt += 1;
                }
                listed => return listed,
            }
        }
    }

    fn transact(mut self, flags: u16) -> io::Result<Vec<Reply>> {
        let len = u32::try_from(self.bytes.len()).expect("requests of ours are short");
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        let socket = Socket::open(0, true)?;
        if flags & NLM_F_DUMP == NLM_F_DUMP {
            // Attributes of a request for a list are looked at only then. An older kernel has not the option.
            let _ = IntOption::STRICT_CHECK.set(socket.as_fd(), 1);
        }
        send(&socket.fd, &self.bytes, SendFlags::empty())?;
        let mut answer = Answer::default();
        let mut buf = vec![0; BUFFER];
        loop {
            let len = socket.receive(&mut buf)?;
            if let Some(end) = answer.take(&buf[..len]) {
                return end.map(|()| answer.replies);
            }
        }
    }
}

/// What the kernel answered, as far as it was received.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) replies: Vec<Reply>,
    /// Whether a list changed while it was told.
    interrupted: bool,
}

impl Answer {
    /// Takes the messages of one datagram, and answers how it went once the last one was there:
    /// what the kernel refuses, EINTR for a list that changed meanwhile, EPROTO for a message that
    /// lies about its length, after which the last one could not be found.
    pub(crate) fn take(&mut self, datagram: &[u8]) -> Option<io::Result<()>> {
        let mut rest = datagram;
        while let Some(message) = take_message(&mut rest) {
            self.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                NLMSG_NOOP => {}
                NLMSG_ERROR | NLMSG_DONE => {
                    // Both begin with a negative errno, or zero for success.
                    return Some(match int(message.payload).unwrap_or_default() {
                        0 if self.interrupted => Err(Errno::INTR.into()),
                        0 => Ok(()),
                        error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
                    });
                }
                kind => self.replies.push(Reply { kind, payload: message.payload.to_vec() }),
            }
        }
        (!rest.is_empty()).then(|| Err(Errno::PROTO.into()))
    }
}

/// A message that the kernel replied with.
pub(crate) struct Reply {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

/// A message in a buffer.
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    flags: u16,
    pub(crate) payload: &'a [u8],
}

/// Takes the first message off a buffer; `None` when there is none that fits.
pub(crate) fn take_message<'a>(rest: &mut &'a [u8]) -> Option<Message<'a>> {
    let bytes = *rest;
    let len = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16_at(bytes, 4)?;
    let flags = u16_at(bytes, 6)?;
    let payload = bytes.get(HEADER..len)?;
    // `len` is at most the buffer's length, so that rounding it up cannot overflow.
    *rest = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some(Message { kind, flags, payload })
}

/// The attributes (type, data) in a part of a message, up to the first that does not fit.
pub(crate) fn attributes(part: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// The upper two bits of a type are flags (NLA_TYPE_MASK).
    const TYPE: u16 = 0x3fff;
    let mut rest = part;
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & TYPE;
        let data = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, data))
    })
}

/// The u16 at byte `at`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// The u32 at byte `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// The address that `data` is, by its length.
pub(crate) fn address(data: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(data) {
        return Some(IpAddr::V4(Ipv4Addr::from(octets)));
    }
    <[u8; 16]>::try_from(data).ok().map(|octets| IpAddr::V6(Ipv6Addr::from(octets)))
}

/// An address as the data of an attribute.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn int(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Request {
        /// All but the header.
        pub(crate) fn payload(&self) -> &[u8] {
            &self.bytes[HEADER..]
        }
    }

    /// The messages in a buffer, up to the first that does not fit.
    pub(crate) fn messages(mut buf: &[u8]) -> impl Iterator<Item = Message<'_>> {
        std::iter::from_fn(move || take_message(&mut buf))
    }

    proptest! {
        #[test]
        fn no_buffer_makes_the_readers_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for message in messages(&bytes) {
                attributes(message.payload).count();
            }
            attributes(&bytes).count();
        }

        #[test]
        fn attributes_read_back(
            datas in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..6),
            cut in 0usize..8,
        ) {
            let request = datas
                .iter()
                .zip(1..)
                .fold(Request::new(16, &[]), |request, (data, kind)| request.attribute(kind, data));
            let part = request.payload();
            let read: Vec<(u16, &[u8])> = attributes(part).collect();
            let written: Vec<(u16, &[u8])> =
                (1..).zip(datas.iter().map(|data| data.as_slice())).collect();
            prop_assert_eq!(&read, &written);
            // What is cut off is missing, and nothing else changes.
            let short = &part[..part.len().saturating_sub(cut)];
            prop_assert!(attributes(short).all(|attribute| written.contains(&attribute)));
        }
    }

    #[test]
    fn an_answer_whose_end_cannot_be_found_is_an_error() {
        let mut reply = Request::new(24, &[]).bytes;
        reply[0] = 16;
        let mut done = reply.clone();
        done[4] = 3;
        let end = |datagram: &[u8]| Answer::default().take(datagram);
        assert!(end(&reply).is_none(), "more is to come");
        assert!(end(&[reply.clone(), done.clone()].concat()).is_some_and(|end| end.is_ok()));
        reply[0] = 40;
        let lied = end(&[reply, done].concat()).and_then(Result::err);
        assert_eq!(lied.and_then(|error| error.raw_os_error()), Some(libc::EPROTO));
    }

    #[test]
    fn lying_lengths_end_the_reading() {
        for len in [0u32, 1, 15, 33, u32::MAX, u32::MAX - 3] {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(messages(&bytes).count(), 0, "message length {len}");
        }
        for len in [0u16, 1, 3, 9, u16::MAX] {
            let mut bytes = [0; 8];
            bytes[..2].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(attributes(&bytes).count(), 0, "attribute length {len}");
        }
    }
}
