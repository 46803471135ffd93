//! [`wg`], and what `linerate` has of it: [`show`], [`keys`].
//!
//! It speaks to daemons by their sockets and, on Linux, to the kernel module.

#![forbid(unsafe_code)]

pub mod keys;
pub mod show;
pub mod wg;
