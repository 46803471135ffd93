//! What a tunnel needs on the host: link, addresses, routes, rules, firewall and DNS.
//!
//! [`plan`] is pure: from what is [`wanted`] and the [`state`] of the host it makes [`step`]s, each with its inverse.
//! [`linux`] talks to the kernel. Plans are executed, recorded and undone by `linerate-tunnel`.

#![forbid(unsafe_code)]

pub mod file;
pub mod linux;
pub mod plan;
pub mod state;
pub mod step;
pub mod wanted;
