//! The calls of Linux and Android.

pub(crate) mod batch;
pub(super) mod control;
pub(super) mod descriptors;
#[cfg(feature = "forbidden-calls")]
pub(crate) mod forbidden_calls;
pub(crate) mod interface;
pub(crate) mod options;
pub(crate) mod signal;
pub(crate) mod steering;
pub(crate) mod trap;

pub(super) use descriptors::close_all_on_exec;

const _: () = assert!(std::mem::offset_of!(libc::sockaddr_in, sin_family) == 0);

/// The first two bytes of a socket address: the family alone.
pub(super) fn address_head(_len: usize, family: u16) -> [u8; 2] {
    family.to_ne_bytes()
}

/// The family of a socket address by its first two bytes.
pub(super) fn address_family(head: [u8; 2]) -> u16 {
    u16::from_ne_bytes(head)
}
