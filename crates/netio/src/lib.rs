//! The system call layer of the data path: TUN, UDP, netlink, clocks.
//!
//! [`tun`] and [`udp`] move packets, [`link`] reads and changes interfaces and watches the routing, [`wait`] waits for
//! descriptors, [`clock`] and [`random`] serve the protocol, [`namespace`] follows a device to another network
//! namespace, [`process`] serves the daemon, [`tcp`] measurements, `memory` replaces all of it in tests.
//!
//! Nothing here knows WireGuard, has a thread, or logs. Receiving, sending, reading and writing packets never allocate
//! and never block. Raw system calls are in the private module `sys`, each behind a safe function. `engine` moves
//! packets through this crate; `linerated` opens the devices and sockets.
#![deny(unsafe_code)]

pub mod clock;
pub mod cores;
#[cfg(test)]
mod corpus;
mod datagram;
#[cfg(feature = "forbidden-calls")]
pub mod forbidden_calls;
#[cfg(test)]
#[path = "../tests/in_namespace/mod.rs"]
mod in_namespace;
pub mod link;
#[cfg(any(test, feature = "memory"))]
pub mod memory;
pub mod namespace;
mod netlink;
pub mod process;
pub mod random;
mod send_buffer;
#[allow(unsafe_code)]
mod sys;
pub mod tcp;
pub mod tun;
pub mod udp;
pub mod wait;
