//! How a tunnel is spoken to: the UAPI of WireGuard's user-space implementations (its text, its
//! server, its client) and the text forms of keys.
//!
//! Never moves a packet, never derives a key, and does not know the engine: a daemon gives
//! [`uapi::server::Server`] a [`uapi::server::Handler`] and gets whole, checked requests.
//! Neighbours: `linerate-engine` answers the requests, `linerate-cli` wires both.

#![forbid(unsafe_code)]

pub mod client;
pub mod interface;
pub mod keys;
pub mod uapi;
pub mod wiped;
