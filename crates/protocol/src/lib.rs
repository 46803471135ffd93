//! WireGuard with time, randomness and I/O as arguments.
//!
//! The crate decides which message is answered and how, when a handshake starts, which session
//! seals, when keys are wiped and which peer owns an address. It never reads a clock, opens a
//! socket, draws randomness or logs: [`Now`] and [`Entropy`] are arguments, and the caller carries
//! out the decisions through [`Effects`]. `no_std` enforces this.
//!
//! One slow-path thread owns the [`Device`]: handshakes, cookies, timers, configuration. Any number
//! of data-path threads share the [`HandshakeFilter`], `Arc<Session>` (seal, open) and
//! `Arc<TrafficTimestamps>` (which arm the timers): atomics only.
//!
//! Neighbours: `aead` seals and opens the transport packets, `engine` drives everything here.
//! Rules cite the WireGuard paper ("section 5.4.2"); where the paper is silent, we do what the Linux
//! kernel module does.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod allowed_ips;
mod atomic_key;
pub mod constants;
mod cookie;
mod device;
mod drop_reason;
mod effects;
#[cfg(feature = "fleet")]
pub mod fleet;
#[cfg(feature = "fleet")]
mod group;
mod handshake;
mod handshake_filter;
mod indices;
mod keyed_hash;
mod keyring;
mod keys;
mod library;
mod load_state;
mod messages;
mod noise;
mod peer;
mod ratelimit;
mod replay;
mod scrub;
mod session;
mod source_bloom;
mod tai64n;
#[cfg(test)]
mod test_rng;
mod time;
mod timers;
mod traffic_timestamps;

pub use allowed_ips::{AllowedIps, Prefix};
pub use device::{AddPeerError, Device};
pub use drop_reason::DropReason;
pub use effects::Effects;
pub use handshake_filter::HandshakeFilter;
pub use keys::{PresharedKey, PrivateKey, PublicKey};
pub use messages::{DATA_HEADER, DataHeader, MessageKind, classify, receiver_index};
pub use peer::PeerId;
pub use replay::ReplayWindow;
pub use session::Session;
pub use time::{Boottime, Now};
pub use traffic_timestamps::{TrafficTimestamps, Wake};

/// A source of unpredictable bytes: the operating system's, or a test's seeded one.
pub trait Entropy {
    /// Fills all of `bytes`.
    fn fill(&mut self, bytes: &mut [u8]);
}

/// Draws `N` bytes.
fn draw<const N: usize>(rng: &mut dyn Entropy) -> [u8; N] {
    let mut bytes = [0; N];
    rng.fill(&mut bytes);
    bytes
}
