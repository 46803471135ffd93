//! A TCP/IP stack inside of the process, for a tunnel without a TUN device of the host: [`StackTun`] is a TUN device
//! for the engine, and what travels through it ends in the connections, listeners and UDP sockets of [`Stack`].
//!
//! TCP is smoltcp's. This crate finds the socket that a packet is for, decides when smoltcp is asked, and bounds what
//! it may take:
//!
//! - [`shard`] has the connections. smoltcp never sees more than one of them at a time.
//! - [`flow`] is a connection, [`tcp`], [`datagrams`] and [`echo`] are what users have of it.
//! - [`wire`] reads packets, and is smoltcp's device; [`tun`] is the engine's.
//! - [`memory`] counts what buffers take.
//!
//! A program makes a stack, gives its device to an engine, and then has connections through the tunnel:
//!
//! ```no_run
//! use linerate_engine::config::{DeviceChange, PeerChange};
//! use linerate_engine::device::Device;
//! use linerate_engine::{Engine, Options};
//! use linerate_protocol::{Prefix, PrivateKey, PublicKey};
//! use linerate_sockets::Sockets;
//! use linerate_stack::{Settings, Stack, System};
//! # fn up(private_key: PrivateKey, peer: PublicKey) -> Result<(), Box<dyn std::error::Error>> {
//!
//! let stack = Stack::new(&Settings::new(vec!["10.0.0.2".parse()?], 1420), Box::new(System))?;
//! let options = Options { mtu: Some(1420), ..Options::default() };
//! let mut engine = Engine::prepare(Device::InProcess(Box::new(stack.tun())), &options)?;
//! let peer = PeerChange {
//!     endpoint: Some("192.0.2.1:51820".parse()?),
//!     allowed_ips: vec![(true, Prefix::new("0.0.0.0".parse()?, 0).expect("a prefix of no bits"))],
//!     ..PeerChange::new(peer)
//! };
//! engine.configure(DeviceChange { private_key: Some(Some(private_key)), peers: vec![peer], ..Default::default() })?;
//! let engine = engine.start()?;
//! let connecting = stack.connect("10.0.0.1:80".parse()?);
//! // To be awaited, while something calls `stack.expire` whenever `stack.poll_deadline` says so.
//! # drop(connecting);
//! engine.stop();
//! # Ok(())
//! # }
//! ```
//!
//! From a tunnel's file, `linerate-configure` makes the change that the engine is configured by.
//!
//! There is no thread and no runtime in here. TCP is done by whoever writes a packet, reads one, or uses a connection;
//! time passes when [`Stack::expire`] is called, and [`Stack::poll_deadline`] says when that is due. The only system
//! calls are those of the events that tell the engine of packets.
//!
//! What arrives may be anything: it never panics, and what it makes this crate hold is bounded ([`Settings`]).

#![forbid(unsafe_code)]

mod common;
mod counters;
mod datagrams;
mod echo;
mod flow;
mod memory;
mod shard;
mod stack;
mod tcp;
mod tun;
mod wire;

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use linerate_netio::tun::QUEUES_MAX;
use linerate_netio::{clock, random};

pub use counters::DropReason;
pub use stack::Stack;
pub use tun::StackTun;

/// What a stack is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tunnel's addresses, with the lengths of their prefixes. What is sent from is that in whose prefix the target is,
    /// else the first of the family.
    pub addresses: Vec<IpNet>,
    /// The longest packet, from 1,280 to 65,535 bytes.
    pub mtu: usize,
    /// Into how many parts the connections are divided, each with a lock of its own; at most as many as a TUN device
    /// has queues.
    pub shards: usize,
    /// The most connections.
    pub connections: usize,
    /// What all connections may take together, in bytes; at least 36 KiB for each of `connections`, which
    /// [`Stack::new`] adds if it is less. Datagrams that nobody has read come on top: 128 KiB for each UDP socket.
    pub memory: usize,
}

impl Settings {
    /// The bounds that a proxy has: 10,000 connections in 512 MiB.
    pub fn new(addresses: Vec<IpAddr>, mtu: usize) -> Self {
        let addresses = addresses.into_iter().map(IpNet::from).collect();
        Self { addresses, mtu, shards: 1, connections: 10_000, memory: 512 << 20 }
    }

    fn check(&self) {
        assert!((1280..=wire::PACKET_MAX).contains(&self.mtu), "an MTU of {}", self.mtu);
        assert!((1..=QUEUES_MAX).contains(&self.shards), "{} shards", self.shards);
    }
}

// 10,000 connections leave 128 MiB to those that need more than what is set aside for each.
const _: () = assert!(10_000 * memory::CONNECTION <= (512 - 128) << 20);
// And UDP sockets take at most as much as connections have for certain.
const _: () = assert!(datagrams::PORTS_MAX * datagrams::QUEUE_BYTES <= 128 << 20);

/// What a stack takes from outside.
pub trait Environment: Send + Sync {
    /// The time, from any beginning on, but never backwards.
    fn now(&self) -> Duration;

    /// Fills `bytes` with random ones: first sequence numbers and ports.
    fn fill(&self, bytes: &mut [u8]);
}

/// The system's clock and random numbers.
pub struct System;

impl Environment for System {
    fn now(&self) -> Duration {
        Duration::from_nanos(clock::boottime())
    }

    fn fill(&self, bytes: &mut [u8]) {
        random::fill(bytes);
    }
}

/// What a stack holds, and what it has dropped.
#[derive(Clone, Debug)]
pub struct Report {
    /// Connections, with those that close in the background.
    pub connections: usize,
    /// Bytes of memory that connections take beyond what is set aside for them.
    pub memory: usize,
    /// How often a packet was dropped or a connection refused, by reason.
    pub drops: [(DropReason, u64); DropReason::ALL.len()],
}
