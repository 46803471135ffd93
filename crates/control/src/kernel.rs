//! Tunnels of the kernel module, over generic netlink (include/uapi/linux/wireguard.h).
//!
//! This module has the socket; `request` builds the messages, with netlink-packet-wireguard's types, and `reply`
//! parses what the kernel returns. Those types hold keys in plain arrays, so every message is wiped after use, as are
//! the buffers. Needs CAP_NET_ADMIN, except for the list of names.

#[cfg(test)]
mod corpus;
mod reply;
mod request;

use linerate_netlink::rtnetlink::{IFINFOMSG, RTM_GETLINK};
use linerate_netlink::{DUMP_ATTEMPTS, NetlinkError, RECEIVE_BUFFER, Reply};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_wireguard::{WireguardAttribute, WireguardCmd, WireguardMessage};
use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
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
    pub fn open(name: &str) -> Result<Self, NetlinkError> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let mut socket = Socket::open(NETLINK_GENERIC)?;
        let query = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(WIREGUARD.into())] };
        let mut family = None;
        let result =
            socket.request(GenlMessage::from_payload(query), 0, |payload| family = family.or(reply::family(payload)));
        match result {
            Err(error) if is(&error, Errno::NOENT) => Err(Errno::PROTONOSUPPORT.into()),
            Err(error) => Err(error),
            Ok(()) => Ok(Self { socket, family: family.ok_or(Errno::PROTONOSUPPORT)?, name: name.to_owned() }),
        }
    }

    /// The whole state of the tunnel.
    ///
    /// # Errors
    /// ENODEV without such an interface, EOPNOTSUPP if it is not a tunnel, EPERM without the privilege.
    pub fn get(&mut self) -> Result<DeviceState, NetlinkError> {
        let mut attempt = 1;
        loop {
            let mut state = DeviceState::default();
            let mut valid = true;
            let query = self.message(WireguardCmd::GetDevice, vec![]);
            let result =
                self.socket.request(query, NLM_F_DUMP, |payload| valid &= reply::device(payload, &mut state).is_some());
            match result {
                Err(error) if is(&error, Errno::INTR) && attempt < DUMP_ATTEMPTS => attempt += 1,
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
    pub fn set(&mut self, update: &DeviceUpdate) -> Result<(), NetlinkError> {
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
pub fn interfaces() -> Result<Vec<String>, NetlinkError> {
    let mut names = Vec::new();
    // A list that changed while it was read is good enough: it may change right afterwards, too.
    match Socket::open(NETLINK_ROUTE)?.request(AllLinks, NLM_F_DUMP, |payload| names.extend(reply::tunnel(payload))) {
        Err(error) if !is(&error, Errno::INTR) => Err(error),
        _ => Ok(names),
    }
}

fn is(error: &NetlinkError, errno: Errno) -> bool {
    Errno::from_io_error(&error.error) == Some(errno)
}

/// `RTM_GETLINK` for all links.
struct AllLinks;

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
    socket: netlink_sys::Socket,
    sequence: u32,
}

impl Socket {
    /// Opens a socket of a protocol (linux/netlink.h, `NETLINK_*`).
    fn open(protocol: isize) -> Result<Self, NetlinkError> {
        let mut socket = netlink_sys::Socket::new(protocol)?;
        socket.bind_auto()?;
        // Linux 4.12 and 4.2. Without them there are no explanations, and refusals repeat the request.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends `message` and passes the payload of each message of the reply to `read`, up to the last one.
    ///
    /// # Errors
    /// The kernel's error with its explanation, or EINTR if the state changed during the reply.
    fn request<M: Message>(&mut self, message: M, flags: u16, mut read: impl FnMut(&[u8])) -> Result<(), NetlinkError> {
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
        send(&self.socket, &bytes, SendFlags::empty())?;

        let mut reply = Reply::to(self.sequence);
        let mut received = Zeroizing::new(vec![0; RECEIVE_BUFFER]);
        loop {
            let (length, whole) = recv(&self.socket, received.as_mut_slice(), RecvFlags::TRUNC)?;
            if whole > length {
                return Err(Errno::NOBUFS.into());
            }
            if let Some(end) = reply.take(&received[..length], |message| read(message.payload)) {
                return end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_errno_and_the_explanation_of_the_kernel() {
        // The kernel allows 15 bytes (GENL_NAMSIZ), and says so only in its extended ACK.
        let name = GenlCtrlAttrs::FamilyName("a-name-that-no-family-has".into());
        let query = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![name] };
        let mut socket = Socket::open(NETLINK_GENERIC).unwrap();
        let refused = socket.request(GenlMessage::from_payload(query), 0, |_| ()).unwrap_err();
        assert!(refused.error.raw_os_error().is_some());
        assert!(refused.explanation.as_ref().is_some_and(|text| refused.to_string().ends_with(text)), "{refused:?}");
    }
}
