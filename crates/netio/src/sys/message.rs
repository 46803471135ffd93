//! sendmsg and recvmsg of datagrams with their control messages.
//!
//! All headers are on the stack. Never blocks. Tests against the kernel: tests/kernel.rs.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::Address;
use super::control::{RecvControl, SendControl};
use super::counted;
use crate::datagram::{Received, Transmit};

/// Sends one message.
pub(crate) fn send_one(fd: BorrowedFd<'_>, message: &Transmit<'_>) -> io::Result<()> {
    let mut msg = SendMsg::new(message);
    let header = msg.header();
    // SAFETY: `header` points into `msg`, which lives past the call, and at the message's
    // contents, which the kernel only reads; the lengths beside the pointers are those of what
    // they point to.
    counted(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, FLAGS_OUT) })?;
    Ok(())
}

/// Receives one message into `buf`.
pub(crate) fn receive_one(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Received> {
    let mut msg = RecvMsg::new(buf);
    let mut header = msg.header();
    // SAFETY: `header` points into `msg`, which lives past the call, and at `buf`, which is
    // borrowed mutably until then; the lengths beside the pointers are those of what they point to.
    let answer = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, FLAGS_IN) };
    let len = counted(answer)?;
    Ok(msg.read(&header, len))
}

pub(super) const FLAGS_OUT: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
pub(super) const FLAGS_IN: libc::c_int = libc::MSG_DONTWAIT;

/// What the header of a message to send points to.
pub(super) struct SendMsg {
    address: Address,
    control: SendControl,
    piece: libc::iovec,
}

impl SendMsg {
    pub(super) fn new(message: &Transmit<'_>) -> Self {
        // The kernel does not write through the iovec of a send.
        let base = message.contents.as_ptr().cast_mut().cast();
        Self {
            address: Address::new(message.to),
            control: SendControl::new(message),
            piece: libc::iovec { iov_base: base, iov_len: message.contents.len() },
        }
    }

    pub(super) fn header(&mut self) -> libc::msghdr {
        let mut header = empty();
        header.msg_name = self.address.as_mut_ptr();
        header.msg_namelen = self.address.len();
        header.msg_iov = &raw mut self.piece;
        header.msg_iovlen = 1;
        if self.control.len() > 0 {
            header.msg_control = self.control.as_mut_ptr();
            header.msg_controllen = self.control.len() as _;
        }
        header
    }
}

/// What the header of a received message points to.
pub(super) struct RecvMsg {
    address: Address,
    control: RecvControl,
    piece: libc::iovec,
}

impl RecvMsg {
    pub(super) fn new(buf: &mut [u8]) -> Self {
        Self {
            address: Address::room(),
            control: RecvControl::room(),
            piece: libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() },
        }
    }

    pub(super) fn header(&mut self) -> libc::msghdr {
        let mut header = empty();
        header.msg_name = self.address.as_mut_ptr();
        header.msg_namelen = self.address.len();
        header.msg_iov = &raw mut self.piece;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr();
        header.msg_controllen = self.control.len() as _;
        header
    }

    /// The received message, once the kernel has filled `header` and what it points to. It reads as empty if it or its
    /// control messages were truncated, or if the source is not an IP address.
    pub(super) fn read(&self, header: &libc::msghdr, len: usize) -> Received {
        let Some(source) = self.address.read(header.msg_namelen) else {
            return Received::default();
        };
        let cut = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
        let len = if cut { 0 } else { len };
        let control = self.control.read(header.msg_controllen as _);
        let segment = control.segment.filter(|&size| size > 0 && size < len).unwrap_or(len);
        Received { len, segment, source, local: control.local, tos: control.tos }
    }
}

fn empty() -> libc::msghdr {
    // SAFETY: msghdr is made of integers and pointers, for which zero is a value; some libcs have
    // private padding in it, which is why it is not written out.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
