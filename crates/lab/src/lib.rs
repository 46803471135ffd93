//! Measures any WireGuard on this machine as a black box: two hosts in network namespaces, a tunnel
//! between them by the daemon under test, then load, latency, CPU and memory.
//!
//! It never links the engine: a daemon is a command that follows wireguard-go's conventions
//! (`COMMAND -f IFACE`, a configuration socket in `/var/run/wireguard`), and everything known about it
//! comes from the kernel's counters and from that socket. It needs iproute2 and nothing else: the load
//! generator and the latency probe are its own.
//!
//! In the order of a measurement: [`enclosure`] makes a private part of the machine that disappears
//! with the process, [`hosts`] puts two hosts into it, [`subject`] starts and configures the daemons
//! (by the client of `linerate-control`), [`load`], [`ping`] and [`usage`] measure, [`stats`] sums up,
//! [`report`] tells.
//! [`demo`] is the whole of it in one call. [`relay`] is a bad network for tests: loss, reorder, delay.

#![forbid(unsafe_code)]

pub mod demo;
pub mod enclosure;
pub mod hosts;
pub mod load;
pub mod ping;
pub mod relay;
pub mod report;
pub mod stats;
pub mod subject;
pub mod usage;

mod error;
mod progress;

pub use error::{Error, Result};
