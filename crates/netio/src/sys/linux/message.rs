//! sendmsg, sendmmsg, recvmsg and recvmmsg of datagrams with their control messages.
//!
//! All headers are on the stack, in arrays of which only the used part is initialized. Never blocks.
//! Tests against the kernel: tests/kernel.rs.

use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::super::address::Address;
use super::super::counted;
use super::control::{RecvControl, SendControl};
use crate::datagram::{Received, Transmit};

/// The most messages that one [`send_many`] takes.
pub(crate) const SEND_MAX: usize = 128;
/// The most messages that one [`receive_many`] takes.
pub(crate) const RECEIVE_MAX: usize = 64;

// The stack that the headers of a call take.
const _: () = {
    assert!(SEND_MAX * (size_of::<SendMsg>() + size_of::<libc::mmsghdr>()) <= 32 << 10);
    assert!(RECEIVE_MAX * (size_of::<RecvMsg>() + size_of::<libc::mmsghdr>()) <= 16 << 10);
};

// The kernel's user_msghdr has size_t for both lengths (linux/socket.h). Where the C library's are shorter, they lie
// where their low halves are.
const _: () = {
    const WORD: usize = size_of::<usize>();
    const LOW: usize = if cfg!(target_endian = "big") { WORD - size_of::<libc::c_int>() } else { 0 };
    const IOVLEN: usize = offset_of!(libc::msghdr, msg_iovlen);
    const CONTROLLEN: usize = offset_of!(libc::msghdr, msg_controllen);
    assert!(size_of::<libc::msghdr>() == 7 * WORD);
    assert!(IOVLEN == 3 * WORD || IOVLEN == 3 * WORD + LOW);
    assert!(CONTROLLEN == 5 * WORD || CONTROLLEN == 5 * WORD + LOW);
};

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

/// Sends the first [`SEND_MAX`] messages of `batch` in order; returns how many were sent.
///
/// # Errors
///
/// Those of the first message. An error of a later message shortens the count.
pub(crate) fn send_many(fd: BorrowedFd<'_>, batch: &[Transmit<'_>]) -> io::Result<usize> {
    let mut messages = [const { MaybeUninit::<SendMsg>::uninit() }; SEND_MAX];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; SEND_MAX];
    let batch = &batch[..batch.len().min(SEND_MAX)];
    for ((message, msg), header) in batch.iter().zip(&mut messages).zip(&mut headers) {
        let msg = msg.write(SendMsg::new(message));
        header.write(libc::mmsghdr { msg_hdr: msg.header(), msg_len: 0 });
    }
    let first = headers.as_mut_ptr().cast::<libc::mmsghdr>();
    // The system call itself, as for receive_many: musl's function of that name calls sendmsg for each message, because
    // POSIX has smaller types for two fields of msghdr than the kernel reads. musl has padding there, which is zero.
    // SAFETY: the first `batch.len()` headers were written above, each pointing into its msg
    // (which lives past the call and is not touched before it) and at its message's contents,
    // which the kernel only reads. The count is at most SEND_MAX, so that it fits.
    let sent = unsafe { libc::syscall(libc::SYS_sendmmsg, fd.as_raw_fd(), first, batch.len(), FLAGS_OUT) };
    counted(sent as libc::ssize_t)
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

/// Receives up to [`RECEIVE_MAX`] messages, one into each `stride` bytes of `buf`, and describes
/// them in `meta`; returns how many there were.
///
/// # Panics
///
/// When `stride` is 0.
pub(crate) fn receive_many(
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
    stride: usize,
    meta: &mut [Received],
) -> io::Result<usize> {
    let mut messages = [const { MaybeUninit::<RecvMsg>::uninit() }; RECEIVE_MAX];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; RECEIVE_MAX];
    let room = meta.len().min(RECEIVE_MAX);
    let parts = buf.chunks_exact_mut(stride).take(room);
    let mut count = 0_usize;
    for ((part, msg), header) in parts.zip(&mut messages).zip(&mut headers) {
        let msg = msg.write(RecvMsg::new(part));
        header.write(libc::mmsghdr { msg_hdr: msg.header(), msg_len: 0 });
        count += 1;
    }
    let first = headers.as_mut_ptr().cast::<libc::mmsghdr>();
    let no_limit = ptr::null_mut::<libc::timespec>();
    // SAFETY: the first `count` headers were written above, each pointing into its msg (which
    // lives past the call and is not touched before it) and at its own part of `buf`, which is
    // borrowed mutably until then. The count is at most RECEIVE_MAX, so that it fits. A null
    // timeout is allowed.
    let answer = unsafe { libc::syscall(libc::SYS_recvmmsg, fd.as_raw_fd(), first, count, FLAGS_IN, no_limit) };
    let received = counted(answer as libc::ssize_t)?;
    for ((meta, msg), header) in meta.iter_mut().zip(&messages).zip(&headers).take(received) {
        // SAFETY: the kernel says that it filled this many, which is at most `count`, and the
        // first `count` headers were written above.
        let header = unsafe { header.assume_init_ref() };
        // SAFETY: as for the header, whose neighbour this is.
        let msg = unsafe { msg.assume_init_ref() };
        // A message is at most 64 KiB.
        *meta = msg.read(&header.msg_hdr, header.msg_len as usize);
    }
    Ok(received)
}

const FLAGS_OUT: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const FLAGS_IN: libc::c_int = libc::MSG_DONTWAIT;

/// What the header of a message to send points to.
struct SendMsg {
    address: Address,
    control: SendControl,
    piece: libc::iovec,
}

impl SendMsg {
    fn new(message: &Transmit<'_>) -> Self {
        // The kernel does not write through the iovec of a send.
        let base = message.contents.as_ptr().cast_mut().cast();
        Self {
            address: Address::new(message.to),
            control: SendControl::new(message),
            piece: libc::iovec { iov_base: base, iov_len: message.contents.len() },
        }
    }

    fn header(&mut self) -> libc::msghdr {
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
struct RecvMsg {
    address: Address,
    control: RecvControl,
    piece: libc::iovec,
}

impl RecvMsg {
    fn new(buf: &mut [u8]) -> Self {
        Self {
            address: Address::room(),
            control: RecvControl::room(),
            piece: libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() },
        }
    }

    fn header(&mut self) -> libc::msghdr {
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
    fn read(&self, header: &libc::msghdr, len: usize) -> Received {
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
