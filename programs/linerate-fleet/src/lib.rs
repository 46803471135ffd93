//! `linerate-fleet`: gateways with one identity share one set of peers, which is in etcd, and take clients over from each
//! other (docs/fleet.md).

#![forbid(unsafe_code)]

pub mod gateway;
pub mod peers;
pub mod seal;
pub mod store;
pub mod view;
