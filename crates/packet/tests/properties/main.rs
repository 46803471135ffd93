//! Properties of this crate, tested with packet builders that share no code with it.

mod checksum;
mod ecn;
mod hostile;
mod icmp;
mod merge;
mod packets;
mod split;
