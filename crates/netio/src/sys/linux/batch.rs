//! sendmmsg and recvmmsg, with headers in arrays of which only the used part is initialized.

use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::super::counted;
use super::super::message::{FLAGS_IN, FLAGS_OUT, RecvMsg, SendMsg};
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
