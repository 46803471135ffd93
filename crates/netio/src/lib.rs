//! The doors to the kernel: TUN, UDP, netlink, clocks.
//!
//! Whatever the project asks of the operating system on the data path and around it is asked
//! here: [`tun`] and [`udp`] move packets, [`link`] reads and changes interfaces and watches the
//! routing, [`wait`] sleeps until something is there, [`clock`] and [`random`] feed the protocol,
//! [`namespace`] follows a device to another namespace, [`process`] serves the daemon, [`memory`]
//! stands in for all of it in tests.
//!
//! Nothing here knows WireGuard, keeps a thread, or logs. Receiving, sending, reading and writing
//! packets never allocate and never block. Raw system calls live in the private module `sys`
//! alone, each behind a safe function. Neighbours: `engine` moves packets through these doors,
//! programs open them.
#![deny(unsafe_code)]

#[cfg(feature = "attempts")]
pub mod attempts;
pub mod clock;
pub mod cores;
#[cfg(test)]
mod corpus;
#[cfg(test)]
#[path = "../tests/in_namespace/mod.rs"]
mod in_namespace;
pub mod link;
pub mod memory;
pub mod namespace;
mod netlink;
pub mod process;
pub mod random;
#[allow(unsafe_code)]
mod sys;
pub mod tun;
pub mod udp;
pub mod wait;
