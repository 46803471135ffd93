//! What a tunnel needs on the host: link, addresses, routes, rules, firewall and DNS.
//!
//! [`plan`] is pure: from the [`spec`] of a tunnel and the [`state`] of the host it makes [`step`]s, each with its
//! inverse. [`system`] is the one that this host has: it reads its state, and carries steps out ([`dns`] those for name
//! servers). A [`transaction`] executes steps in order, as far as they go. Plans are recorded, executed and undone by
//! `linerate-tunnel`.

#![forbid(unsafe_code)]

pub mod condition;
pub mod dns;
// FreeBSD's is decided by functions that are tested on every system.
#[cfg(any(test, not(target_os = "linux")))]
pub mod freebsd;
#[cfg(target_os = "linux")]
pub mod linux;
pub mod plan;
pub mod program;
pub mod ranges;
pub mod spec;
pub mod state;
pub mod step;
pub mod transaction;
pub mod verdict;

#[cfg(not(target_os = "linux"))]
pub use freebsd as system;
#[cfg(target_os = "linux")]
pub use linux as system;
