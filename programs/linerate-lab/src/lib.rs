//! Measures any WireGuard on this machine as a black box: hosts in network namespaces, a tunnel between them by the
//! subject under test, then load, latency, CPU and memory.
//!
//! It never links the engine. A daemon is a command that follows wireguard-go's conventions (`COMMAND -f IFACE`, a
//! configuration socket in `/var/run/wireguard`), and everything known about it comes from the kernel's counters
//! and from that socket. The demo needs iproute2 and nothing else; the lab's load is iperf3, which users trust.
//!
//! In the order of a measurement: [`sandbox`] makes a private part of the machine that disappears with the
//! process, [`topology`] puts [`hosts`] into it, [`subject`] says what there is to measure and [`tunnel`] brings it
//! up. [`scenario`] lists what is measured; [`run`] measures every subject in turn: meanwhile [`load`], [`ping`]
//! and [`peers`] do something and [`usage`](linerate_probe::usage) and [`counters`] watch. What comes out is a
//! [`record`] of [`measure`]s with the [`bottleneck`](linerate_doctor::bottleneck) of each tunnel; [`stats`] sums up,
//! and [`table`], [`mod@page`], [`markdown`] and [`mod@compare`] show it.
//!
//! [`demo`] is a small measurement in one call. [`relay`] is a bad network: loss, reorder, delay.

#![forbid(unsafe_code)]

pub mod commands;
pub mod compare;
pub mod counters;
pub mod demo;
pub mod hosts;
pub mod load;
pub mod markdown;
pub mod measure;
pub mod page;
pub mod peers;
pub mod ping;
pub mod record;
pub mod relay;
pub mod run;
pub mod sandbox;
pub mod scenario;
pub mod stats;
pub mod subject;
pub mod table;
pub mod topology;
pub mod tunnel;

mod daemon;
mod error;
mod figures;
mod kernel;
mod machine;
mod progress;
mod sentences;
mod snapshot;

pub use error::{Doing, Error, Result};
