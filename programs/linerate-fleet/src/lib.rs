//! `linerate-fleet`: gateways with one identity share one set of peers, which is in etcd, and take clients over from each
//! other (docs/fleet.md).
//!
//! | module | what it does |
//! |---|---|
//! | [`store`] | speaks with etcd; [`store::layout`] is what is in it |
//! | [`seal`] | keys that are made of the shared private key |
//! | [`peers`] | peers as sections of a tunnel's file, and as values of the store; whoever wrote them |
//! | [`edit`] | an administrator's change as a transaction |
//! | [`view`] | a mirror of the store, and the peers in force |
//! | [`feed`] | list, watch, lease |
//! | [`daemon`], [`file`](mod@file) | follow the peers |
//! | [`gateway`] | heartbeats, hints, take-over, drain |
//! | [`commands`] | what the command line asks for; `run` wires the others together |
//! | [`local`] | the files of this host |
//!
//! There is one thread, with tokio's runtime; what blocks (UAPI, the tunnel's file) is on threads beside it.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod commands;
pub mod daemon;
pub mod edit;
pub mod feed;
pub mod file;
pub mod gateway;
pub mod local;
pub mod peers;
pub mod seal;
pub mod store;
pub mod view;
