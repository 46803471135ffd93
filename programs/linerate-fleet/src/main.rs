//! `linerate-fleet`: gateways that share one set of peers.

#![forbid(unsafe_code)]

fn main() {}
