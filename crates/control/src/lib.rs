//! Configuring and querying tunnels: the UAPI of user-space WireGuard (text, server, client), generic netlink for the
//! kernel module, the configuration files, and the text forms of keys.
//!
//! Never moves a packet, never derives a key, and does not know the engine: a daemon passes a
//! [`uapi::server::Handler`] to [`uapi::server::Server`] and gets whole, validated requests.

#![forbid(unsafe_code)]

pub mod atomic_file;
pub mod characters;
pub mod client;
pub mod document;
pub mod endpoint;
pub mod interface;
#[cfg_attr(not(feature = "kernel"), path = "no_kernel.rs")]
pub mod kernel;
pub mod keys;
mod number;
pub mod printable;
pub mod rate;
#[cfg(feature = "resolver")]
pub mod resolver;
pub mod tunnel_file;
pub mod uapi;
pub mod usage;
pub mod wg_config;
pub mod zeroizing;
