//! IP, TCP, UDP and `virtio_net_hdr`: bytes to meaning and back, split and merge.
//!
//! The outbound journey uses [`virtio`] and [`gso`] (one super-packet from the TUN device becomes
//! ordinary packets), the inbound journey [`ip`], [`gro`] and [`virtio`] (the packets of one
//! receive batch become few writes to the TUN device); [`icmp`] tells an inner sender that there
//! is no way to its destination.
//!
//! Nothing here makes a system call, reads a clock, allocates or trusts a byte: a packet that lies
//! is a [`Malformed`], never a panic. Neighbours: `netio` moves the bytes, `engine` calls the steps
//! in order.
#![no_std]
#![forbid(unsafe_code)]

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
