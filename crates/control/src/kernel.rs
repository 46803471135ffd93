//! The tunnels of the kernel's own module, over generic netlink (include/uapi/linux/wireguard.h).
//!
//! Here is the conversation: `request` makes the questions, of netlink-packet-wireguard's messages, and `reply` reads
//! the answers. Keys pass through plain arrays of those messages, so every message is overwritten after use, as are the
//! buffers. Needs CAP_NET_ADMIN, but for the list of names.

#[cfg(test)]
mod corpus;
mod reply;
mod request;

use std::io;
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_wireguard::{WireguardAttribute, WireguardCmd, WireguardMessage};
use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use zeroize::Zeroizing;

use self::reply::Reply;
use crate::uapi::request::DeviceUpdate;
use crate::uapi::response::DeviceState;

/// The family's name.
const WIREGUARD: &str = "wireguard";

/// The longest name of an interface: IFNAMSIZ (linux/if.h) without its NUL.
const NAME_MAX: usize = 15;

/// Bytes of one receive. The kernel fills at most 32 KiB at a time.
const RECEIVE: usize = 64 << 10;

/// How often a state that changed while it was read is read again.
const DUMP_ATTEMPTS: u32 = 10;

/// A conversation with the kernel's module about one of its tunnels.
pub struct KernelClient {
    socket: Socket,
    family: u16,
    name: String,
}

impl KernelClient {
    /// Finds the module, which the kernel loads if it can. Whether there is a tunnel `name` shows later.
    ///
    /// # Errors
    /// EPROTONOSUPPORT if there is no module, ENAMETOOLONG if no interface can have that name.
    pub fn open(name: &str) -> io::Result<Self> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let mut socket = Socket::open(Some(GENERIC))?;
        let question =
            GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(WIREGUARD.into())] };
        let mut family = None;
        let asked = socket.ask(GenlMessage::from_payload(question), 0, |told| family = family.or(reply::family(told)));
        match asked {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => Err(Errno::PROTONOSUPPORT.into()),
            Err(error) => Err(error),
            Ok(()) => Ok(Self { socket, family: family.ok_or(Errno::PROTONOSUPPORT)?, name: name.to_owned() }),
        }
    }

    /// The whole state of the tunnel.
    ///
    /// # Errors
    /// ENODEV if there is no such interface, EOPNOTSUPP if it is no tunnel, EPERM without the right to ask.
    pub fn get(&mut self) -> io::Result<DeviceState> {
        let mut attempt = 1;
        loop {
            let mut state = DeviceState::default();
            let mut valid = true;
            let question = self.message(WireguardCmd::GetDevice, vec![]);
            let asked =
                self.socket.ask(question, NLM_F_DUMP, |told| valid &= reply::device(told, &mut state).is_some());
            match asked {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) && attempt < DUMP_ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
                Ok(()) if valid => return Ok(state),
                Ok(()) => return Err(Errno::PROTO.into()),
            }
        }
    }

    /// Changes the tunnel. A change that is larger than a message is several, so that the earlier ones
    /// stay if a later one is refused.
    ///
    /// # Errors
    /// As [`KernelClient::get`], and EINVAL for what the module does not know, such as taking away one allowed
    /// IP before Linux 6.16.
    pub fn set(&mut self, update: &DeviceUpdate) -> io::Result<()> {
        let mut done = Ok(());
        for attributes in request::messages(update) {
            let mut change = self.message(WireguardCmd::SetDevice, attributes);
            match done {
                Ok(()) => done = self.socket.ask(change, 0, |_| ()),
                // What is not sent any more holds keys, too.
                Err(_) => change.wipe(),
            }
        }
        done
    }

    fn message(&self, cmd: WireguardCmd, mut attributes: Vec<WireguardAttribute>) -> GenlMessage<WireguardMessage> {
        attributes.push(WireguardAttribute::IfName(self.name.clone()));
        let mut message = GenlMessage::from_payload(WireguardMessage { cmd, attributes });
        message.set_resolved_family_id(self.family);
        message
    }
}

/// The names of the kernel's tunnels, in its order.
///
/// # Errors
/// The kernel does not list its links.
pub fn interfaces() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    // A list that changed while it was read is good enough, as it may change right after, too.
    match Socket::open(None)?.ask(AllLinks, NLM_F_DUMP, |told| names.extend(reply::tunnel(told))) {
        Err(error) if Errno::from_io_error(&error) != Some(Errno::INTR) => Err(error),
        _ => Ok(names),
    }
}

/// `RTM_GETLINK` for all of them.
struct AllLinks;

// linux/rtnetlink.h
const RTM_GETLINK: u16 = 18;
const IFINFOMSG: usize = 16;

impl NetlinkSerializable for AllLinks {
    fn message_type(&self) -> u16 {
        RTM_GETLINK
    }

    fn buffer_len(&self) -> usize {
        IFINFOMSG
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.fill(0);
    }
}

/// What is sent to the kernel.
trait Question: NetlinkSerializable {
    /// Overwrites the keys in it, if it can have any.
    fn wipe(&mut self) {}
}

impl Question for AllLinks {}

impl Question for GenlMessage<GenlCtrl> {}

impl Question for GenlMessage<WireguardMessage> {
    fn wipe(&mut self) {
        request::wipe(&mut self.payload);
    }
}

/// A blocking netlink socket that asks one thing at a time.
struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// For generic netlink, or without a protocol for links (NETLINK_ROUTE is 0).
    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Sends `question` and gives what each message of the answer says to `tell`, until the kernel says
    /// that it is done.
    ///
    /// # Errors
    /// What the kernel refuses it with, or EINTR if what it told changed meanwhile.
    fn ask<Q: Question>(&mut self, question: Q, flags: u16, mut tell: impl FnMut(&[u8])) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.sequence_number = self.sequence;
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        message.finalize();
        let mut bytes = Zeroizing::new(vec![0; message.buffer_len()]);
        message.serialize(&mut bytes);
        if let NetlinkPayload::InnerMessage(question) = &mut message.payload {
            question.wipe();
        }
        send(&self.fd, &bytes, SendFlags::empty())?;

        let mut answer = Reply::to(self.sequence);
        let mut received = Zeroizing::new(vec![0; RECEIVE]);
        loop {
            let (length, whole) = recv(&self.fd, received.as_mut_slice(), RecvFlags::TRUNC)?;
            if whole > length {
                return Err(Errno::NOBUFS.into());
            }
            if let Some(end) = answer.take(&received[..length], &mut tell) {
                return end;
            }
        }
    }
}
