//! What FreeBSD's part and macOS's decide. Where it takes system calls, they are behind a trait or an argument, and
//! tests answer them as the kernels' sources do.

pub(crate) mod family_header;
#[cfg(any(test, target_os = "freebsd"))]
pub(crate) mod freebsd;
#[cfg(any(test, target_os = "macos"))]
pub(crate) mod macos;
pub(crate) mod one_by_one;
pub(crate) mod parking;
pub(crate) mod route_message;

/// The most bytes of an interface's name, without the zero at its end.
pub(crate) const NAME_MAX: usize = 15;

/// The error for an interface that does not exist (sys/net/if.c, ifunit; XNU: bsd/net/if.c).
pub(crate) const GONE: i32 = libc::ENXIO;
