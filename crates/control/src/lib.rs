//! How a tunnel is spoken to: the UAPI of WireGuard's user-space implementations (its text, its
//! server, its client), generic netlink for the kernel's own, the configuration file, and the text
//! forms of keys.
//!
//! Never moves a packet, never derives a key, and does not know the engine: a daemon gives
//! [`uapi::server::Server`] a [`uapi::server::Handler`] and gets whole, checked requests.
//! Neighbours: `linerate-engine` answers the requests, `linerated` wires both.

#![forbid(unsafe_code)]

pub mod client;
pub mod document;
pub mod endpoint;
pub mod interface;
pub mod kernel;
pub mod keys;
pub mod printable;
pub mod tunnel_file;
pub mod uapi;
pub mod wg_config;
pub mod zeroizing;
