//! The WireGuard engine: moves packets between a TUN device and UDP sockets.
//!
//! The way of a packet is the listing of two folders: `outbound/` from the TUN device to the
//! wire, `inbound/` from the wire to the TUN device, one file per step. [`slow_path`] owns
//! handshakes, timers and configuration. [`tables`] holds what the three share. Only
//! [`engine`] and the workers that it starts know which thread runs which step, and [`sequencer`]
//! keeps the packets of a source in order where several do; everything else runs single-threaded on the
//! memory backend in a test just as well.
//!
//! What the engine must never do: allocate per packet that a session carries (a packet that has to
//! wait for one is copied, within the bounds of [`staged`]); wait, but for its turn at a source that
//! other workers serve, too, and for a moment for room in a full socket; log above debug because of
//! something that came from the network.

#![forbid(unsafe_code)]

pub mod backend;
pub mod config;
pub mod counters;
mod engine;
pub mod inbound;
mod link;
pub mod outbound;
pub mod sequencer;
pub mod shared;
pub mod slow_path;
pub mod staged;
mod sync;
pub mod tables;
pub mod tokens;
mod worker;
mod worker_pool;
mod zones;

pub use engine::{Engine, Failure, Handle, Helpers, Options, Prepared};
