//! Netlink messages as bytes: requests are built, replies are read (include/uapi/linux/netlink.h; lib/nlattr.c).
//!
//! Written by hand because general codecs type every attribute and reject a whole message over one whose layout
//! another kernel version has: netlink-packet-route failed on `RTM_NEWLINK` because of `IFLA_AF_SPEC` (its issue 151)
//! and of `IFLA_STATS` from kernels before 6.9 (its pull request 332, of September 2026). Here attributes that are not
//! asked for are skipped. A message or an attribute with a wrong length ends the reading; it never causes a panic.
//!
//! Nothing here opens a socket: `netio`, `host` and `control` have their own, as each waits in a different way.

#![forbid(unsafe_code)]

mod message;
mod reply;
mod request;
pub mod rtnetlink;

pub use message::{
    AttributeIter, Message, MessageIter, address_of, attribute, attributes, messages, strict_attributes, text_of,
    u16_at, u32_at, u32_of,
};
pub use reply::{NetlinkError, Reply};
pub use request::{Attributes, Request, octets};

/// Length of `struct nlmsghdr`: length, type, flags, sequence number, port.
pub const HEADER: usize = 16;
/// Length of `struct nlattr`: length, type.
const ATTRIBUTE_HEADER: usize = 4;

/// This message is a request.
pub const NLM_F_REQUEST: u16 = 1;
/// The kernel is to reply even on success.
pub const NLM_F_ACK: u16 = 4;
/// The request asks for a list.
pub const NLM_F_DUMP: u16 = 0x300;
/// Fail if the object exists.
pub const NLM_F_EXCL: u16 = 0x200;
/// Create the object if it does not exist.
pub const NLM_F_CREATE: u16 = 0x400;
/// Add the object at the end of its list.
pub const NLM_F_APPEND: u16 = 0x800;

/// `AF_UNSPEC` as the first byte of a request or reply.
pub const AF_UNSPEC: u8 = 0;
/// `AF_INET` as the first byte of a request or reply.
pub const AF_INET: u8 = 2;
/// `AF_INET6` likewise.
pub const AF_INET6: u8 = 10;

/// Bytes to receive at once: the kernel fills at most 32 KiB.
pub const RECEIVE_BUFFER: usize = 64 << 10;
/// How often to read a list again that changed while it was read.
pub const DUMP_ATTEMPTS: u32 = 10;
