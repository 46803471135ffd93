//! tun(4) and interfaces: ioctls (sys/net/if_tun.h, sys/sys/sockio.h, sys/netinet6/in6_var.h), and what libc tells.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::super::checked;
use crate::system::decisions::interface::{NAME_MAX, PATH};

/// PF_ROUTE, the routing socket's family.
pub(crate) const ROUTING: AddressFamily = AddressFamily::from_raw(libc::AF_ROUTE as u16);

const TUNSIFMODE: libc::c_ulong = write_request(b't', 94, 4);
const TUNSIFPID: libc::c_ulong = 0x2000_0000 | request(b't', 95, 0);
const TUNSIFHEAD: libc::c_ulong = write_request(b't', 96, 4);
const TUNSTRANSIENT: libc::c_ulong = write_request(b't', 98, 4);
const TUNGIFNAME: libc::c_ulong = 0x4000_0000 | request(b't', 93, 32);
const SIOCGIFFLAGS: libc::c_ulong = 0xc000_0000 | request(b'i', 17, 32);
const SIOCSIFNAME: libc::c_ulong = write_request(b'i', 40, 32);
const SIOCGIFMTU: libc::c_ulong = 0xc000_0000 | request(b'i', 51, 32);
const SIOCSIFMTU: libc::c_ulong = write_request(b'i', 52, 32);
const SIOCIFDESTROY: libc::c_ulong = write_request(b'i', 121, 32);
const SIOCGIFGROUP: libc::c_ulong = 0xc000_0000 | request(b'i', 136, 40);
const SIOCGIFINFO_IN6: libc::c_ulong = 0xc000_0000 | request(b'i', 108, 72);
const SIOCSIFINFO_IN6: libc::c_ulong = 0xc000_0000 | request(b'i', 109, 72);

// As wireguard-go has them (tun/tun_freebsd.go).
const _: () = {
    assert!(TUNGIFNAME == 0x4020_745d && TUNSIFHEAD == 0x8004_7460 && TUNSIFMODE == 0x8004_745e);
    assert!(TUNSIFPID == 0x2000_745f && TUNSTRANSIENT == 0x8004_7462);
    assert!(SIOCGIFINFO_IN6 == 0xc048_696c && SIOCSIFINFO_IN6 == 0xc048_696d);
    assert!(size_of::<libc::ifreq>() == 32 && size_of::<Request>() == 32 && size_of::<NeighborInfo>() == 72);
    assert!(SIOCGIFGROUP == 0xc028_6988 && size_of::<GroupRequest>() == 40);
};

/// ND6_IFF_AUTO_LINKLOCAL and ND6_IFF_NO_DAD (sys/netinet6/nd6.h).
const AUTO_LINKLOCAL: u32 = 0x20;
const NO_DAD: u32 = 0x100;

/// struct ifreq: a name and what the request is about.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Request {
    name: [u8; 16],
    data: [u8; 16],
}

/// struct in6_ndireq: a name and struct nd_ifinfo, of which the flags are the sixth word.
#[repr(C, align(8))]
struct NeighborInfo {
    name: [u8; 16],
    before: [u32; 5],
    flags: u32,
    after: [u32; 8],
}

/// struct ifgroupreq: a name, the length of the room for groups, and where it is.
#[repr(C)]
struct GroupRequest {
    name: [u8; 16],
    len: u32,
    groups: *mut u8,
    rest: [u8; 8],
}

/// An open device of the driver.
pub(crate) struct TunFile(OwnedFd);

impl TunFile {
    /// Makes an interface. Reads never block.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(Self(open(PATH, flags, Mode::empty())?))
    }

    /// The interface's name as it was made.
    pub(crate) fn name(&self) -> io::Result<String> {
        let mut asked = Request { name: [0; 16], data: [0; 16] };
        self.ioctl(TUNGIFNAME, &raw mut asked)?;
        text(&asked.name)
    }

    /// Each packet has its family before it, so that IPv6 passes.
    pub(crate) fn with_family_header(&self) -> io::Result<()> {
        let mut on = 1i32;
        self.ioctl(TUNSIFHEAD, &raw mut on)
    }

    /// Not point to point: addresses have a prefix and no destination.
    pub(crate) fn with_broadcast(&self) -> io::Result<()> {
        let mut mode = libc::IFF_BROADCAST | libc::IFF_MULTICAST;
        self.ioctl(TUNSIFMODE, &raw mut mode)
    }

    /// This process is the owner that ifconfig shows.
    pub(crate) fn own(&self) -> io::Result<()> {
        self.ioctl(TUNSIFPID, ptr::null_mut::<i32>())
    }

    /// The interface goes when the device is closed.
    pub(crate) fn make_transient(&self) -> io::Result<()> {
        let mut on = 1i32;
        self.ioctl(TUNSTRANSIENT, &raw mut on)
    }

    fn ioctl<T>(&self, number: libc::c_ulong, argument: *mut T) -> io::Result<()> {
        // SAFETY: each caller's request, on this driver, reads and writes as many bytes as its number says, and the
        // argument is as large (asserted above) and lives past the call.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), number, argument) })?;
        Ok(())
    }
}

impl AsFd for TunFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Renames an interface; EEXIST if the name is taken.
pub(crate) fn rename(name: &str, to: &str) -> io::Result<()> {
    let to = CString::new(to)?;
    let mut data = [0; 16];
    data[..size_of::<usize>()].copy_from_slice(&to.as_ptr().expose_provenance().to_ne_bytes());
    change(SIOCSIFNAME, name, data).map(drop)
}

/// Deletes an interface.
pub(crate) fn destroy(name: &str) -> io::Result<()> {
    change(SIOCIFDESTROY, name, [0; 16]).map(drop)
}

/// No link-local address is made, and no address waits for its duplicates.
pub(crate) fn without_link_local(name: &str) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut info = NeighborInfo { name: named(name)?, before: [0; 5], flags: 0, after: [0; 8] };
    for number in [SIOCGIFINFO_IN6, SIOCSIFINFO_IN6] {
        // SAFETY: both read and write one struct in6_ndireq; ours is as large and lives past the call.
        checked(unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw mut info) })?;
        info.flags = info.flags & !AUTO_LINKLOCAL | NO_DAD;
    }
    Ok(())
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

/// The groups of an interface into `names`; EINVAL if there are more.
pub(crate) fn groups(name: &str, names: &mut [u8]) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let len = names.len() as u32;
    let mut request = GroupRequest { name: named(name)?, len, groups: names.as_mut_ptr(), rest: [0; 8] };
    // SAFETY: it reads and writes one struct ifgroupreq, and writes at most `len` bytes of names; both live past the
    // call.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGIFGROUP, &raw mut request) })?;
    Ok(())
}

/// A request about an interface; answers what it is about then.
fn change(number: libc::c_ulong, name: &str, data: [u8; 16]) -> io::Result<[u8; 16]> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut request = Request { name: named(name)?, data };
    // SAFETY: each caller's request reads and writes one struct ifreq; ours is as large and lives past the call, and so
    // does the name that SIOCSIFNAME points to.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw mut request) })?;
    Ok(request.data)
}

fn named(name: &str) -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let room = bytes[..NAME_MAX].get_mut(..name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(name.as_bytes());
    Ok(bytes)
}

fn text(name: &[u8; 16]) -> io::Result<String> {
    let name = CStr::from_bytes_until_nul(name).map_err(io::Error::other)?;
    Ok(name.to_string_lossy().into_owned())
}

fn first_word(data: [u8; 16]) -> u32 {
    let [a, b, c, d, ..] = data;
    u32::from_ne_bytes([a, b, c, d])
}

/// _IOW of sys/ioccom.h.
const fn write_request(group: u8, number: u8, size: libc::c_ulong) -> libc::c_ulong {
    0x8000_0000 | request(group, number, size)
}

const fn request(group: u8, number: u8, size: libc::c_ulong) -> libc::c_ulong {
    size << 16 | (group as libc::c_ulong) << 8 | number as libc::c_ulong
}
