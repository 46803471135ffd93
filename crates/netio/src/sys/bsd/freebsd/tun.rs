//! tun(4): ioctls (sys/net/if_tun.h, sys/sys/sockio.h, sys/netinet6/in6_var.h).

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketType};

use super::super::interface::{READ, Request, change, named, request, text, write_request};
use super::socket;
use crate::bsd_decisions::freebsd::interface::PATH;
use crate::sys::checked;

const TUNSIFMODE: libc::c_ulong = write_request(b't', 94, 4);
const TUNSIFPID: libc::c_ulong = 0x2000_0000 | request(b't', 95, 0);
const TUNSIFHEAD: libc::c_ulong = write_request(b't', 96, 4);
const TUNSTRANSIENT: libc::c_ulong = write_request(b't', 98, 4);
const TUNGIFNAME: libc::c_ulong = READ | request(b't', 93, 32);
const SIOCSIFNAME: libc::c_ulong = write_request(b'i', 40, 32);
const SIOCIFDESTROY: libc::c_ulong = write_request(b'i', 121, 32);
const SIOCGIFGROUP: libc::c_ulong = READ | write_request(b'i', 136, 40);
const SIOCGIFINFO_IN6: libc::c_ulong = READ | write_request(b'i', 108, 72);
const SIOCSIFINFO_IN6: libc::c_ulong = READ | write_request(b'i', 109, 72);

// As wireguard-go has them (tun/tun_freebsd.go).
const _: () = {
    assert!(TUNGIFNAME == 0x4020_745d && TUNSIFHEAD == 0x8004_7460 && TUNSIFMODE == 0x8004_745e);
    assert!(TUNSIFPID == 0x2000_745f && TUNSTRANSIENT == 0x8004_7462);
    assert!(SIOCGIFINFO_IN6 == 0xc048_696c && SIOCSIFINFO_IN6 == 0xc048_696d);
    assert!(size_of::<NeighborInfo>() == 72);
    assert!(SIOCGIFGROUP == 0xc028_6988 && size_of::<GroupRequest>() == 40);
};

/// ND6_IFF_AUTO_LINKLOCAL and ND6_IFF_NO_DAD (sys/netinet6/nd6.h).
const AUTO_LINKLOCAL: u32 = 0x20;
const NO_DAD: u32 = 0x100;

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
    let socket = socket(AddressFamily::INET6, SocketType::DGRAM)?;
    let mut info = NeighborInfo { name: named(name)?, before: [0; 5], flags: 0, after: [0; 8] };
    for number in [SIOCGIFINFO_IN6, SIOCSIFINFO_IN6] {
        // SAFETY: both read and write one struct in6_ndireq; ours is as large and lives past the call.
        checked(unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw mut info) })?;
        info.flags = info.flags & !AUTO_LINKLOCAL | NO_DAD;
    }
    Ok(())
}

/// The groups of an interface into `names`; EINVAL if there are more.
pub(crate) fn groups(name: &str, names: &mut [u8]) -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM)?;
    let len = names.len() as u32;
    let mut request = GroupRequest { name: named(name)?, len, groups: names.as_mut_ptr(), rest: [0; 8] };
    // SAFETY: it reads and writes one struct ifgroupreq, and writes at most `len` bytes of names; both live past the
    // call.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGIFGROUP, &raw mut request) })?;
    Ok(())
}
