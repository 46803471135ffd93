//! The calls of FreeBSD and macOS, 64-bit. Numbers and layouts that libc does not have are written out, with asserts.
//!
//! What each has of its own is in a folder of its name.

pub(crate) mod credentials;
pub(crate) mod interface;
pub(crate) mod kqueue;
pub(crate) mod options;
#[cfg_attr(target_os = "freebsd", path = "freebsd/mod.rs")]
#[cfg_attr(target_os = "macos", path = "macos/mod.rs")]
pub(crate) mod os;

pub(super) use os::control;

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, SocketType};

const _: () = {
    assert!(std::mem::offset_of!(libc::sockaddr_in, sin_len) == 0);
    assert!(std::mem::offset_of!(libc::sockaddr_in, sin_family) == 1);
};

/// The first two bytes of a socket address: its length and the family.
pub(super) fn address_head(len: usize, family: u16) -> [u8; 2] {
    [len as u8, family as u8]
}

/// The family of a socket address by its first two bytes.
pub(super) fn address_family([_, family]: [u8; 2]) -> u16 {
    family.into()
}

/// There is no call that marks all of them.
pub(super) fn close_all_on_exec() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A socket whose calls never block. Programs that this process starts do not inherit it.
pub(crate) fn nonblocking_socket(domain: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = os::socket(domain, kind)?;
    ioctl_fionbio(&socket, true)?;
    Ok(socket)
}
