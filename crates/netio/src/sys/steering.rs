//! A classic BPF program that selects the socket of a SO_REUSEPORT group for a datagram.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::checked;

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

/// The program. It sees a datagram from its first byte on (net/core/sock_reuseport.c, run_bpf_filter); a load beyond
/// the end yields 0. Loads use network byte order and the index is little-endian, which does not matter: all bytes
/// are random.
fn by_receiver(sockets: u32) -> [libc::sock_filter; 6] {
    use libc::{BPF_A, BPF_ABS, BPF_ALU, BPF_B, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_MOD, BPF_RET, BPF_W};
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    [
        step(BPF_LD | BPF_B | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, DATA),
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, RECEIVER),
        step(BPF_ALU | BPF_MOD | BPF_K, 0, 0, sockets),
        step(BPF_RET | BPF_A, 0, 0, 0),
        step(BPF_RET | BPF_K, 0, 0, 0),
    ]
}
