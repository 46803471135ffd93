//! The calls of FreeBSD, 64-bit. Numbers and layouts that libc does not have are written out, with asserts.

pub(super) mod control;
pub(crate) mod credentials;
pub(crate) mod futex;
pub(crate) mod interface;
pub(crate) mod kqueue;
pub(crate) mod options;
pub(crate) mod signal_mask;

const _: () = {
    assert!(std::mem::offset_of!(libc::sockaddr_in, sin_len) == 0);
    assert!(std::mem::offset_of!(libc::sockaddr_in, sin_family) == 1);
};

/// The first two bytes of a socket address: its length and the family.
pub(super) fn address_head(len: usize, family: u16) -> [u8; 2] {
    [len as u8, family as u8]
}

/// The family of a socket address by its first two bytes.
pub(super) fn address_family([_, family]: [u8; 2]) -> u16 {
    family.into()
}
