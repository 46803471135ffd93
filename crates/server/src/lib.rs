//! A server and its clients as values: who they are, which addresses they have, until when and for how much, and the
//! files that they get.
//!
//! The tunnel's file is the only truth. Nothing here opens a file, reads the clock or makes random numbers: the file's
//! content, the time and random bytes are arguments.
#![forbid(unsafe_code)]

pub mod change;
mod client_file;
pub mod expiry;
pub mod families;
pub mod import;
pub mod init;
mod name;
mod pool;
mod qr;
mod roster;

pub use client_file::{NoClientFile, PRIVATE, allowed_ips, client_file, dns, everything, without};
pub use name::{ClientName, InvalidClientName, folded, searchable};
pub use pool::{InvalidPool, Pool, PoolFull};
pub use qr::{QrCode, TooLong};
pub use roster::{Client, NewClient, Properties, Refusal, Roster, State};
