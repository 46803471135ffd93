//! FreeBSD 14 and later, and macOS: an interface with a family header, UDP without offloads, kqueue, the routing
//! socket.
//!
//! They are linked and have never run. What is decided is in `bsd_decisions`, which is tested on every system; facts
//! are cited by the file of FreeBSD's source tree that has them, or of XNU's. What only one of them has is in `os`.
//! What they do not have fails with `Unsupported`, which the engine logs and does without.

pub mod clock;
pub mod cores;
pub mod event;
pub mod files;
pub mod link;
pub mod namespace;
#[cfg_attr(target_os = "freebsd", path = "freebsd.rs")]
#[cfg_attr(target_os = "macos", path = "macos.rs")]
mod os;
pub mod process;
pub mod tun;
pub mod udp;

pub(crate) use crate::bsd_decisions::parking as futex;
