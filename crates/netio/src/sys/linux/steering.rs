//! A classic BPF program that selects the socket of a SO_REUSEPORT group for a datagram.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::super::checked;

/// The type of a WireGuard data message, its first byte (paper section 5.4.6).
const DATA: u32 = 4;

/// The offset of its receiver index, in bytes.
const RECEIVER: u32 = 4;

/// Delivers a data message to the socket number "receiver index modulo `sockets`" of the group, and everything else
/// to the first. Sockets are numbered in the order in which they were bound.
///
/// # Errors
///
/// EINVAL when `fd` is in no group; ENOPROTOOPT before Linux 4.5.
pub(crate) fn steer_by_receiver(fd: BorrowedFd<'_>, sockets: u32) -> io::Result<()> {
    let mut program = by_receiver(sockets);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the pointer is to a sock_fprog, the length is its size, and its own pointer is to as many
    // instructions as it says; both live past the call, and the kernel only reads and copies them.
    checked(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

// linux/filter.h and linux/bpf_common.h; libc has them for some systems only.
const BPF_LD: u16 = 0x00;
const BPF_ALU: u16 = 0x04;
const BPF_JMP: u16 = 0x05;
const BPF_RET: u16 = 0x06;
const BPF_W: u16 = 0x00;
const BPF_B: u16 = 0x10;
const BPF_ABS: u16 = 0x20;
const BPF_MOD: u16 = 0x90;
const BPF_JEQ: u16 = 0x10;
const BPF_K: u16 = 0x00;
const BPF_A: u16 = 0x10;

/// The program. It sees a datagram from its first byte on (net/core/sock_reuseport.c, run_bpf_filter); a load beyond
/// the end yields 0. Loads use network byte order and the index is little-endian, which does not matter: all bytes
/// are random.
fn by_receiver(sockets: u32) -> [libc::sock_filter; 6] {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    [
        step(BPF_LD | BPF_B | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, DATA),
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, RECEIVER),
        step(BPF_ALU | BPF_MOD | BPF_K, 0, 0, sockets),
        step(BPF_RET | BPF_A, 0, 0, 0),
        step(BPF_RET | BPF_K, 0, 0, 0),
    ]
}
