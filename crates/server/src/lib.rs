//! A server and its clients as values: who they are, which addresses they have, until when and for how much, and the
//! files that they get.
//!
//! The tunnel's file is the only truth. Nothing here opens a file, reads the clock or makes random numbers: the file's
//! content, the time and random bytes are arguments.
#![forbid(unsafe_code)]

pub mod import;
pub mod init;
