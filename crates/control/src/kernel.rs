//! Tunnels of the kernel module, over generic netlink (include/uapi/linux/wireguard.h).
//!
//! This module has the socket; `request` builds the messages, with netlink-packet-wireguard's types, and `reply` parses
//! what the kernel returns. Those types hold keys in plain arrays, so every message is wiped after use, as are the buffers.
//! Needs CAP_NET_ADMIN, except for the list of names.

#[cfg(test)]
mod corpus;
mod reply;
mod request;

use std::io;
use std::os::fd::OwnedFd;

use linerate_netlink::{DUMP_ATTEMPTS, RECEIVE_BUFFER, Reply};
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

use crate::uapi::request::DeviceUpdate;
use crate::uapi::response::DeviceState;

/// The name of the generic netlink family.
const WIREGUARD: &str = "wireguard";

/// The longest name of an interface: IFNAMSIZ (linux/if.h) without its NUL.
const NAME_MAX: usize = 15;

/// A client of the kernel module for one of its tunnels.
pub struct KernelClient {
    socket: Socket,
    family: u16,
    name: String,
}

impl KernelClient {
    /// Finds the module, which the kernel loads if it can. The first request tells whether `name` exists.
    ///
    /// # Errors
    /// EPROTONOSUPPORT if there is no module, ENAMETOOLONG if no interface can have that name.
    pub fn open(name: &str) -> io::Result<Self> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let mut socket = Socket::open(Some(GENERIC))?;
        let query = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(WIREGUARD.into())] };
        let mut family = None;
        let result =
            socket.request(GenlMessage::from_payload(query), 0, |payload| family = family.or(reply::family(payload)));
        match result {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => Err(Errno::PROTONOSUPPORT.into()),
            Err(error) => Err(error),
            Ok(()) => Ok(Self { socket, family: family.ok_or(Errno::PROTONOSUPPORT)?, name: name.to_owned() }),
        }
    }

    /// The whole state of the tunnel.
    ///
    /// # Errors
    /// ENODEV without such an interface, EOPNOTSUPP if it is not a tunnel, EPERM without the privilege.
    pub fn get(&mut self) -> io::Result<DeviceState> {
        let mut attempt = 1;
        loop {
            let mut state = DeviceState::default();
            let mut valid = true;
            let query = self.message(WireguardCmd::GetDevice, vec![]);
            let result =
                self.socket.request(query, NLM_F_DUMP, |payload| valid &= reply::device(payload, &mut state).is_some());
            match result {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) && attempt < DUMP_ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
                Ok(()) if valid => return Ok(state),
                Ok(()) => return Err(Errno::PROTO.into()),
            }
        }
    }

    /// Changes the tunnel. A large change takes several messages: if one fails, the earlier ones stay applied.
    ///
    /// # Errors
    /// As [`KernelClient::get`], and EINVAL for what the module does not support, such as removing a single allowed IP
    /// before Linux 6.16.
    pub fn set(&mut self, update: &DeviceUpdate) -> io::Result<()> {
        let mut result = Ok(());
        for attributes in request::messages(update) {
            let mut change = self.message(WireguardCmd::SetDevice, attributes);
            match result {
                Ok(()) => result = self.socket.request(change, 0, |_| ()),
                // Messages that are not sent hold keys, too.
                Err(_) => change.wipe(),
            }
        }
        result
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
/// The links cannot be listed.
pub fn interfaces() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    // A list that changed while it was read is good enough: it may change right afterwards, too.
    match Socket::open(None)?.request(AllLinks, NLM_F_DUMP, |payload| names.extend(reply::tunnel(payload))) {
        Err(error) if Errno::from_io_error(&error) != Some(Errno::INTR) => Err(error),
        _ => Ok(names),
    }
}

/// `RTM_GETLINK` for all links.
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

/// A message to the kernel.
trait Message: NetlinkSerializable {
    /// Wipes the keys in it, if it can have any.
    fn wipe(&mut self) {}
}

impl Message for AllLinks {}

impl Message for GenlMessage<GenlCtrl> {}

impl Message for GenlMessage<WireguardMessage> {
    fn wipe(&mut self) {
        request::wipe(&mut self.payload);
    }
}

/// A blocking netlink socket with one request at a time.
struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// For generic netlink, or without a protocol for links: NETLINK_ROUTE is 0.
    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Sends `message` and passes the payload of each message of the reply to `read`, up to the last one.
    ///
    /// # Errors
    /// The kernel's error, or EINTR if the state changed during the reply.
    fn request<M: Message>(&mut self, message: M, flags: u16, mut read: impl FnMut(&[u8])) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.sequence_number = self.sequence;
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = Zeroizing::new(vec![0; message.buffer_len()]);
        message.serialize(&mut bytes);
        if let NetlinkPayload::InnerMessage(message) = &mut message.payload {
            message.wipe();
        }
        send(&self.fd, &bytes, SendFlags::empty())?;

        let mut reply = Reply::to(self.sequence);
        let mut received = Zeroizing::new(vec![0; RECEIVE_BUFFER]);
        loop {
            let (length, whole) = recv(&self.fd, received.as_mut_slice(), RecvFlags::TRUNC)?;
            if whole > length {
                return Err(Errno::NOBUFS.into());
            }
            if let Some(end) = reply.take(&received[..length], |message| read(message.payload)) {
                return end.map_err(|refused| refused.error);
            }
        }
    }
}
