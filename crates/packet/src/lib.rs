//! IP, TCP, UDP and `virtio_net_hdr`: parsing, writing, splitting and merging.
//!
//! Outbound, [`virtio`] and [`gso`] split one GSO packet from the TUN device into ordinary packets.
//! Inbound, [`ip`], [`gro`] and [`virtio`] merge the packets of a receive batch into few writes to the
//! TUN device. [`icmp`] tells an inner sender that its destination is unreachable.
//!
//! Nothing here makes a system call, reads a clock, allocates or trusts its input: an inconsistent
//! packet is a [`Malformed`], never a panic. `netio` moves the bytes, `engine` calls the steps in order.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod checksum;
pub mod gro;
pub mod gso;
pub mod icmp;
pub mod ip;
mod malformed;
pub mod virtio;

pub use malformed::Malformed;

/// IP protocol number of ICMP for IPv4.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

#[cfg(test)]
extern crate std;
