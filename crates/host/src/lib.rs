//! What the host needs for a tunnel: its link, addresses, routes, rules, firewall and DNS.
//!
//! [`plan`] is pure: what is [`wanted`], and the [`state`] of the host, become [`step`]s, each with what undoes it.
//! [`transaction`] carries them out and takes them back when one fails; [`ledger`] keeps what was done, so that it
//! can be undone when the file has changed or gone. Who talks to the kernel is in [`linux`].

#![forbid(unsafe_code)]

pub mod ledger;
pub mod linux;
pub mod plan;
pub mod state;
pub mod step;
pub mod transaction;
pub mod wanted;
