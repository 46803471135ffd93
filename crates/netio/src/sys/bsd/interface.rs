//! Interfaces: ioctls that FreeBSD and macOS share (sys/sys/sockio.h; XNU: bsd/sys/sockio.h), and what libc tells.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::ptr;

use rustix::net::{AddressFamily, SocketType};

use super::super::checked;
use super::os;
use crate::bsd_decisions::NAME_MAX;

/// PF_ROUTE, the routing socket's family.
pub(crate) const ROUTING: AddressFamily = AddressFamily::from_raw(libc::AF_ROUTE as u16);

const SIOCGIFFLAGS: libc::c_ulong = READ | write_request(b'i', 17, 32);
const SIOCGIFMTU: libc::c_ulong = READ | write_request(b'i', 51, 32);
const SIOCSIFMTU: libc::c_ulong = write_request(b'i', 52, 32);

const _: () = {
    assert!(SIOCGIFMTU == 0xc020_6933 && SIOCSIFMTU == 0x8020_6934);
    assert!(size_of::<libc::ifreq>() == 32 && size_of::<Request>() == 32);
};

/// struct ifreq: a name and what the request is about.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) name: [u8; 16],
    pub(super) data: [u8; 16],
}

pub(crate) fn mtu(name: &str) -> io::Result<u32> {
    Ok(first_word(change(SIOCGIFMTU, name, [0; 16])?))
}

pub(crate) fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
    let mut data = [0; 16];
    data[..4].copy_from_slice(&mtu.to_ne_bytes());
    change(SIOCSIFMTU, name, data).map(drop)
}

/// Whether IFF_UP is set.
pub(crate) fn is_up(name: &str) -> io::Result<bool> {
    // Two shorts: the low and the high half of the flags.
    Ok(first_word(change(SIOCGIFFLAGS, name, [0; 16])?) & libc::IFF_UP as u32 != 0)
}

pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: the name ends with a zero and lives past the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

pub(crate) fn name_of(ifindex: u32) -> io::Result<String> {
    let mut name = [0u8; 16];
    // SAFETY: there is room for IF_NAMESIZE (16) bytes, which lives past the call.
    if unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    text(&name)
}

/// The IP addresses of this host.
pub(crate) fn addresses() -> io::Result<Vec<IpAddr>> {
    let mut first = ptr::null_mut();
    // SAFETY: the pointer is to room for one, which lives past the call.
    checked(unsafe { libc::getifaddrs(&raw mut first) })?;
    let (mut found, mut next) = (Vec::new(), first);
    // SAFETY: getifaddrs answers a list that ends with null, until freeifaddrs.
    while let Some(entry) = unsafe { next.as_ref() } {
        let address = entry.ifa_addr;
        // SAFETY: an address is null, or as long as its family says and aligned as that asks.
        let family = unsafe { address.as_ref() }.map_or(libc::AF_UNSPEC, |address| address.sa_family.into());
        if family == libc::AF_INET {
            // SAFETY: as above, and this is its family.
            let address = unsafe { &*address.cast::<libc::sockaddr_in>() };
            found.push(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into());
        } else if family == libc::AF_INET6 {
            // SAFETY: as above, and this is its family.
            let address = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            found.push(Ipv6Addr::from(address.sin6_addr.s6_addr).into());
        }
        next = entry.ifa_next;
    }
    // SAFETY: it is getifaddrs' list, and nothing keeps a part of it.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// A request about an interface; answers what it is about then.
pub(super) fn change(number: libc::c_ulong, name: &str, data: [u8; 16]) -> io::Result<[u8; 16]> {
    let socket = os::socket(AddressFamily::INET, SocketType::DGRAM)?;
    let mut request = Request { name: named(name)?, data };
    // SAFETY: each caller's request reads and writes one struct ifreq; ours is as large and lives past the call, and so
    // does the name that SIOCSIFNAME points to.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw mut request) })?;
    Ok(request.data)
}

pub(super) fn named(name: &str) -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let room = bytes[..NAME_MAX].get_mut(..name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(name.as_bytes());
    Ok(bytes)
}

pub(super) fn text(name: &[u8; 16]) -> io::Result<String> {
    let name = CStr::from_bytes_until_nul(name).map_err(io::Error::other)?;
    Ok(name.to_string_lossy().into_owned())
}

fn first_word(data: [u8; 16]) -> u32 {
    let [a, b, c, d, ..] = data;
    u32::from_ne_bytes([a, b, c, d])
}

/// IOC_OUT of sys/ioccom.h: the kernel answers.
pub(super) const READ: libc::c_ulong = 0x4000_0000;

/// _IOW of sys/ioccom.h.
pub(super) const fn write_request(group: u8, number: u8, size: libc::c_ulong) -> libc::c_ulong {
    0x8000_0000 | request(group, number, size)
}

pub(super) const fn request(group: u8, number: u8, size: libc::c_ulong) -> libc::c_ulong {
    size << 16 | (group as libc::c_ulong) << 8 | number as libc::c_ulong
}
