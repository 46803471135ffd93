//! FreeBSD 14 and later: tun(4) with its family header, UDP without offloads, kqueue, the routing socket.
//!
//! It is linked and has never run. What is decided is in `decisions`, which is tested on every system; facts are cited
//! by the file of FreeBSD's source tree that has them. What FreeBSD does not have fails with `Unsupported`, which the
//! engine logs and does without.

pub mod clock;
pub mod cores;
pub(crate) mod decisions;
pub mod files;
pub mod futex;
pub mod link;
pub mod namespace;
pub mod process;
pub mod tun;
pub mod udp;
