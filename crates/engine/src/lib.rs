//! The WireGuard engine: moves packets between a TUN device and UDP sockets.
//!
//! A packet's journey is the listing of two folders, one file per step: `outbound/` from the TUN device to the wire,
//! `inbound/` from the wire to the TUN device. [`slow_path`] owns handshakes, timers and configuration; [`tables`]
//! and [`shared`] hold what the three share. [`engine`] starts the threads: workers, which poll the receive queues
//! ([`rx_queue`]), and the [`control_thread`]. [`sequencer`] keeps the packets of a receive queue in order while
//! several workers poll it. Everything below the threads runs single-threaded on a memory backend in tests.
//!
//! The engine must never
//! - allocate for a packet that a session carries (a packet that has to wait for a session is copied, within the
//!   bounds of [`staged`]);
//! - block, except for the sequencer of a receive queue that other workers poll, too, and, on the slow path, briefly
//!   for room in a full socket;
//! - log above debug because of something that came from the network.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod backend;
pub mod config;
mod control_thread;
pub mod counters;
pub mod device;
pub mod embedder;
mod engine;
#[cfg(feature = "fleet")]
pub mod fleet;
pub mod forecast;
pub mod inbound;
mod link;
pub mod mtu;
pub mod outbound;
pub mod policer;
pub mod poller;
mod rejected_gro;
mod runtime;
pub mod rx_queue;
mod scaling;
pub mod sequencer;
pub mod shared;
pub mod slow_path;
pub mod slow_path_queue;
mod spin;
pub mod staged;
mod sync;
pub mod tables;
pub mod tokens;
mod worker;
mod worker_pool;
mod zones;

pub use engine::{Engine, EngineError, Handle, Helpers, Options, Prepared};
