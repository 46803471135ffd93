//! What runs on this host, read cheaply and repeatedly.
//!
//! A [`Watcher`] reads all tunnels: each one whole at first and when its configuration has changed, and otherwise only
//! the peers that were active since (linerated's `activity`), so ten thousand peers at rest cost next to nothing. Each
//! [`Watcher::poll`] returns a [`View`]: tunnels, peers, rates, counters, and the processor time of the daemons. What
//! happened between two views are [`events`]; the text for Prometheus is made by [`metrics`]. [`Watchers`] read tunnels
//! side by side, so that a daemon that does not respond holds up none of the others.
//!
//! It only reads, and changes nothing. The texts in a view are as they were found: whoever prints names for people
//! makes them [`printable`](linerate_control::printable).

#![forbid(unsafe_code)]

pub mod events;
pub mod host;
pub mod metrics;
mod time;
mod view;
mod watcher;
mod watchers;

pub use time::Time;
pub use view::{Counter, Daemon, Peer, Rates, Settings, Tunnel, View};
pub use watcher::{Ask, WatchError, Watcher};
pub use watchers::Watchers;
