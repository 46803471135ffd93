//! Linux and Android, whose kernel is the same: /dev/net/tun, GSO and GRO, netlink, timerfd.
//!
//! What every system offers, and the traits, are in the modules of the same names above. Constants of system calls and
//! the layouts of what they read are in `sys/linux`.

pub mod clock;
pub mod cores;
#[cfg(test)]
mod corpus;
pub mod event;
pub mod files;
pub mod futex;
pub mod link;
pub mod namespace;
mod netlink;
pub mod process;
pub mod tun;
pub mod udp;
