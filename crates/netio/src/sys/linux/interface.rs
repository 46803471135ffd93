//! The ioctls of /dev/net/tun.
//!
//! Request numbers mean different things to different drivers, so every call takes a [`TunFile`], which is known to
//! be a file of the TUN driver.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor, open};

use super::super::checked;

/// The path of the TUN driver.
#[cfg(not(target_os = "android"))]
pub(crate) const PATH: &str = "/dev/net/tun";
/// The path of the TUN driver.
#[cfg(target_os = "android")]
pub(crate) const PATH: &str = "/dev/tun";

/// The TUN driver's device number: misc (10), minor 200 (Documentation/admin-guide/devices.txt).
const DEVICE: (u32, u32) = (10, 200);

/// The most bytes of an interface's name, without the zero at its end.
pub(crate) const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// TUNGETDEVNETNS, `_IO('T', 227)`, since Linux 5.2 (linux/if_tun.h).
const GET_NAMESPACE: libc::c_ulong = 0x54e3;

/// An open file of the TUN driver.
pub(crate) struct TunFile(OwnedFd);

/// An interface's name and IFF_ flags, as `struct ifreq` lays them out.
#[repr(C)]
#[derive(Clone, Copy)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: u16,
    unused: [u8; 22],
}

// struct ifreq is 40 bytes on 64-bit kernels and 32 on 32-bit ones; the kernel copies its own size.
const _: () = assert!(size_of::<InterfaceRequest>() == 40 && size_of::<InterfaceRequest>() >= size_of::<libc::ifreq>());

impl TunFile {
    /// Opens the TUN driver, without an interface yet. Reads never block.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(Self(open(PATH, flags, Mode::empty())?))
    }

    /// Takes an inherited descriptor; returns it unless it is a file of the TUN driver.
    pub(crate) fn verify(fd: OwnedFd) -> Result<Self, OwnedFd> {
        match fstat(&fd) {
            Ok(stat)
                if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
                    && (major(stat.st_rdev), minor(stat.st_rdev)) == DEVICE =>
            {
                Ok(Self(fd))
            }
            _ => Err(fd),
        }
    }

    /// TUNSETIFF: attaches to the interface `name`, which is created if it does not exist. Bytes of `name` beyond
    /// [`NAME_MAX`] are cut off.
    pub(crate) fn attach(&self, name: &str, flags: u16) -> io::Result<()> {
        let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], flags, unused: [0; 22] };
        let len = name.len().min(NAME_MAX);
        request.name[..len].copy_from_slice(&name.as_bytes()[..len]);
        self.request(libc::TUNSETIFF as _, &mut request)
    }

    /// TUNGETIFF: the name and flags of the interface that the file is attached to.
    pub(crate) fn interface(&self) -> io::Result<(String, u16)> {
        let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], flags: 0, unused: [0; 22] };
        self.request(libc::TUNGETIFF as _, &mut request)?;
        let name = CStr::from_bytes_until_nul(&request.name).map_err(io::Error::other)?;
        Ok((name.to_string_lossy().into_owned(), request.flags))
    }

    /// TUNSETOWNER: only `user`, and who has CAP_NET_ADMIN over the interface, may attach to it from here on.
    pub(crate) fn set_owner(&self, user: u32) -> io::Result<()> {
        // SAFETY: TUNSETOWNER on the TUN driver takes its argument by value.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETOWNER as _, libc::c_ulong::from(user)) })?;
        Ok(())
    }

    /// TUNSETOFFLOAD: the TUN_F_ offloads that reads may use.
    pub(crate) fn set_offload(&self, offloads: u32) -> io::Result<()> {
        // SAFETY: TUNSETOFFLOAD on the TUN driver takes its argument by value.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(offloads)) })?;
        Ok(())
    }

    /// TUNSETVNETHDRSZ: the length of the virtio header in bytes.
    pub(crate) fn set_header_len(&self, len: i32) -> io::Result<()> {
        self.set_number(libc::TUNSETVNETHDRSZ as _, len)
    }

    /// Takes back what another file may have set for the whole interface and no query tells: the byte order of virtio
    /// headers, offloads, the limit of what may wait to be sent, programs that choose queues or drop packets, and a
    /// carrier that is off. Kernels that do not know one of them have nothing to take back.
    pub(crate) fn reset(&self) {
        let numbers = [
            (libc::TUNSETVNETLE as libc::c_ulong, 0),
            (libc::TUNSETVNETBE as _, 0),
            (libc::TUNSETSNDBUF as _, i32::MAX),
            (libc::TUNSETSTEERINGEBPF as _, -1),
            (libc::TUNSETFILTEREBPF as _, -1),
            (libc::TUNSETCARRIER as _, 1),
        ];
        for (request, number) in numbers {
            let _ = self.set_number(request, number);
        }
        let _ = self.set_offload(0);
    }

    /// TUNGETDEVNETNS: the network namespace that the interface is in.
    pub(crate) fn namespace(&self) -> io::Result<OwnedFd> {
        // SAFETY: TUNGETDEVNETNS on the TUN driver takes no argument.
        let fd = checked(unsafe { libc::ioctl(self.0.as_raw_fd(), GET_NAMESPACE as _) })?;
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Puts `other` in the place of this file, for all threads at once: the descriptor keeps its number. A call that has
    /// begun goes on with the old file.
    pub(crate) fn replace(&self, other: &Self) -> io::Result<()> {
        // SAFETY: both descriptors are open. Ours stays open, stays ours and stays a file of the TUN driver, since
        // `other` is one; whoever has borrowed it knows no more of it than that. By its number, because not every
        // libc declares dup3.
        let answer = unsafe { libc::syscall(libc::SYS_dup3, other.0.as_raw_fd(), self.0.as_raw_fd(), libc::O_CLOEXEC) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// One of the requests that read an int.
    fn set_number(&self, request: libc::c_ulong, number: i32) -> io::Result<()> {
        // SAFETY: the callers' requests, on the TUN driver, read one int, which lives past the call.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, &raw const number) })?;
        Ok(())
    }

    fn request(&self, number: libc::c_ulong, request: &mut InterfaceRequest) -> io::Result<()> {
        // SAFETY: both callers' requests, on the TUN driver, read and write one struct ifreq; ours
        // is as large as the kernel's and lives past the call.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), number as _, &raw mut *request) })?;
        Ok(())
    }
}

#[cfg(test)]
impl TunFile {
    pub(crate) fn set_group(&self, group: u32) {
        // SAFETY: TUNSETGROUP on the TUN driver takes its argument by value.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETGROUP as _, libc::c_ulong::from(group)) })
            .unwrap();
    }

    pub(crate) fn set_persistent(&self) {
        // SAFETY: TUNSETPERSIST on the TUN driver takes its argument by value.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETPERSIST as _, 1 as libc::c_ulong) }).unwrap();
    }

    pub(crate) fn set_kind(&self, kind: u16) {
        // SAFETY: TUNSETLINK on the TUN driver takes its argument by value.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETLINK as _, libc::c_ulong::from(kind)) }).unwrap();
    }

    pub(crate) fn take_carrier(&self) {
        self.set_number(libc::TUNSETCARRIER as _, 0).unwrap();
    }

    pub(crate) fn set_send_buffer(&self, bytes: i32) {
        self.set_number(libc::TUNSETSNDBUF as _, bytes).unwrap();
    }

    pub(crate) fn send_buffer(&self) -> i32 {
        let mut bytes = 0;
        // SAFETY: TUNGETSNDBUF on the TUN driver writes one int, which lives past the call.
        checked(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNGETSNDBUF as _, &raw mut bytes) }).unwrap();
        bytes
    }
}

impl AsFd for TunFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_driver_is_handed_back() {
        for path in ["/dev/null", "/"] {
            let fd = open(path, OFlags::RDONLY, Mode::empty()).unwrap();
            assert!(TunFile::verify(fd).is_err(), "{path}");
        }
    }
}
