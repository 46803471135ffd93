//! The system call layer of the data path: TUN, UDP, netlink, clocks.
//!
//! [`tun`] and [`udp`] move packets, [`link`] reads and changes interfaces and watches the routing, [`wait`] waits for
//! descriptors, [`files`] tells of a deleted file, [`clock`] and [`random`] serve the protocol, [`namespace`] follows a
//! device to another network namespace, [`process`] serves the daemon, [`tcp`] measurements, `memory` replaces all of it
//! in tests.
//!
//! What is said above the system is in the modules of these names; what differs between systems is in a folder for
//! each, `linux` and `bsd` (FreeBSD and macOS), and its raw calls in folders of the same names in `sys`.
//!
//! Nothing here knows WireGuard, has a thread, or logs. Receiving, sending, reading and writing packets never allocate
//! and never block. Raw system calls are in the private module `sys`, each behind a safe function. `engine` moves
//! packets through this crate; `linerated` opens the devices and sockets.
#![deny(unsafe_code)]

pub mod clock;
pub mod cores;
mod datagram;
#[cfg(feature = "forbidden-calls")]
pub mod forbidden_calls;
#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
#[path = "../tests/in_namespace/mod.rs"]
mod in_namespace;
pub mod link;
#[cfg(any(test, feature = "memory"))]
pub mod memory;
pub mod process;
pub mod random;
mod send_buffer;
#[allow(unsafe_code)]
mod sys;
// One folder for each system, and nothing else in this crate asks which one it is.
#[cfg_attr(any(target_os = "linux", target_os = "android"), path = "linux/mod.rs")]
#[cfg_attr(any(target_os = "freebsd", target_os = "macos"), path = "bsd/mod.rs")]
mod system;
// What is decided on BSD is tested on every system.
#[cfg(any(test, target_os = "freebsd", target_os = "macos"))]
#[cfg_attr(test, allow(dead_code, reason = "each system uses its part"))]
#[path = "bsd/decisions/mod.rs"]
mod bsd_decisions;
pub mod tcp;
pub mod tun;
pub mod udp;
pub mod wait;

pub use system::{files, namespace};
