//! utun: an interface behind a socket of the kernel's control protocol (bsd/net/if_utun.h, bsd/sys/kern_control.h,
//! bsd/sys/sys_domain.h).

use std::io;
use std::mem::size_of;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, Protocol, SocketType};

use super::super::interface::text;
use super::socket_of;
use crate::bsd_decisions::macos::Step;
use crate::sys::checked;

/// UTUN_CONTROL_NAME.
const CONTROL: &[u8] = b"com.apple.net.utun_control";

const _: () = {
    assert!(size_of::<libc::ctl_info>() == 100 && libc::CTLIOCGINFO == 0xc064_4e03);
    assert!(size_of::<libc::sockaddr_ctl>() == 32 && libc::UTUN_OPT_IFNAME == 2);
    assert!(libc::AF_SYSTEM == 32 && libc::AF_SYS_CONTROL == 2 && libc::SYSPROTO_CONTROL == 2);
};

/// An open utun interface, which goes when it is closed. It is up from the beginning (utun_ctl_connect).
pub(crate) struct TunFile(OwnedFd);

impl TunFile {
    /// Makes the interface of a unit, of a free one for 0. Reads never block. Also says which step failed.
    pub(crate) fn open(unit: u32) -> Result<Self, (Step, io::Error)> {
        let protocol = NonZeroU32::new(libc::SYSPROTO_CONTROL as u32).map(Protocol::from_raw);
        let family = AddressFamily::from_raw(libc::AF_SYSTEM as u16);
        let socket = socket_of(family, SocketType::DGRAM, protocol).map_err(|error| (Step::Socket, error))?;
        let id = control_id(&socket).map_err(|error| (Step::Find, error))?;
        let address = libc::sockaddr_ctl {
            sc_len: size_of::<libc::sockaddr_ctl>() as u8,
            sc_family: libc::AF_SYSTEM as u8,
            ss_sysaddr: libc::AF_SYS_CONTROL as u16,
            sc_id: id,
            sc_unit: unit,
            sc_reserved: [0; 5],
        };
        // SAFETY: the pointer is to an address of that length, which lives past the call.
        checked(unsafe {
            libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ctl>() as u32)
        })
        .map_err(|error| (Step::Connect, error))?;
        ioctl_fionbio(&socket, true).map_err(|error| (Step::Socket, error.into()))?;
        Ok(Self(socket))
    }

    /// The interface's name (UTUN_OPT_IFNAME).
    pub(crate) fn name(&self) -> io::Result<String> {
        let mut name = [0u8; 16];
        let mut len = name.len() as libc::socklen_t;
        // SAFETY: the pointers are to the name and to its length, which live past the call; the kernel writes no more
        // than that length.
        checked(unsafe {
            let name = name.as_mut_ptr().cast();
            libc::getsockopt(self.0.as_raw_fd(), libc::SYSPROTO_CONTROL, libc::UTUN_OPT_IFNAME, name, &raw mut len)
        })?;
        text(&name)
    }
}

impl AsFd for TunFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The number of utun's control (CTLIOCGINFO).
fn control_id(socket: &OwnedFd) -> io::Result<u32> {
    let mut info = libc::ctl_info { ctl_id: 0, ctl_name: [0; 96] };
    info.ctl_name.iter_mut().zip(CONTROL).for_each(|(to, from)| *to = *from as libc::c_char);
    // SAFETY: it reads and writes one struct ctl_info; ours lives past the call.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::CTLIOCGINFO, &raw mut info) })?;
    Ok(info.ctl_id)
}
