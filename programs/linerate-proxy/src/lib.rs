//! `linerate-proxy`: a tunnel without root, as SOCKS5 and HTTP proxies and as forwards of TCP and UDP.
//!
//! A client's protocol ([`socks`], [`http`], [`sni`]) yields a [`target`], [`dial`] connects to it in the tunnel, and
//! [`relay`] passes bytes on; datagrams have [`udp`]. What TCP/IP there is in the tunnel is known by the traits of
//! `linerate-sockets` alone; [`kernel`] is the kernel's. Names are looked up through the tunnel ([`names`]).
//!
//! [`tunnel`] makes the tunnel, with the kernel's stack or that of `linerate-stack`. There is one thread, with tokio's runtime
//! for it; the engine has threads of its own.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod config;
pub mod dial;
pub mod failure;
pub mod health;
pub mod http;
pub mod kernel;
pub mod load;
pub mod names;
mod pipe;
pub mod relay;
pub mod resolver;
pub mod sandbox;
pub mod server;
pub mod services;
pub mod sni;
pub mod socks;
mod stdio;
pub mod target;
mod tls;
pub mod tunnel;
pub mod udp;
mod wait;
