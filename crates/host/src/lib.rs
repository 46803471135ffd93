//! What the host needs for a tunnel: its link, addresses, routes, rules, firewall and DNS.
//!
//! [`plan`] is pure: what is [`wanted`], and the [`state`] of the host, become [`step`]s, each with what undoes it.
//! [`linux`] talks to the kernel. Plans are executed, recorded and undone by `linerate-tunnel`.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod linux;
pub mod plan;
pub mod state;
pub mod step;
pub mod wanted;
