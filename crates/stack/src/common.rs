//! What all shards share: settings, bounds, listeners, UDP sockets, echo requests.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use ipnet::IpNet;
use smoltcp::time::Instant;

use crate::counters::Counters;
use crate::datagrams::Port;
use crate::echo::Echo;
use crate::memory::{Capacity, Memory};
use crate::tcp::Backlog;
use crate::wire::{EchoKey, Key};
use crate::{Environment, Settings};

/// What all shards share.
pub(crate) struct Common {
    addresses: Vec<IpNet>,
    pub(crate) mtu: usize,
    pub(crate) shards: usize,
    pub(crate) memory: Memory,
    pub(crate) connections_max: usize,
    pub(crate) connections: AtomicUsize,
    pub(crate) counters: Counters,
    pub(crate) backlogs: RwLock<HashMap<SocketAddr, Arc<Backlog>>>,
    pub(crate) ports: RwLock<HashMap<SocketAddr, Arc<Port>>>,
    pub(crate) echoes: Mutex<HashMap<EchoKey, Echo>>,
    hasher: RandomState,
    environment: Box<dyn Environment>,
}

impl Common {
    pub(crate) fn new(settings: &Settings, environment: Box<dyn Environment>) -> Self {
        Self {
            addresses: settings.addresses.clone(),
            mtu: settings.mtu,
            shards: settings.shards,
            memory: Memory::new(settings.memory, settings.connections),
            connections_max: settings.connections,
            connections: AtomicUsize::new(0),
            counters: Counters::default(),
            backlogs: RwLock::default(),
            ports: RwLock::default(),
            echoes: Mutex::default(),
            hasher: RandomState::new(),
            environment,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_micros(self.environment.now().as_micros() as i64)
    }

    pub(crate) fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        self.environment.fill(&mut bytes);
        u64::from_ne_bytes(bytes)
    }

    /// A port that strangers cannot predict, of those that no service has.
    pub(crate) fn random_port(&self) -> u16 {
        (1 << 15) | (self.random() as u16 >> 1)
    }

    /// Whether the address is the tunnel's.
    pub(crate) fn is_ours(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.addr() == address)
    }

    /// The address to send from to `to`: the one beside it, as a kernel has it, or the first of its family. Peers drop what
    /// comes from an address that is another peer's business.
    pub(crate) fn source(&self, to: IpAddr) -> Option<IpAddr> {
        let beside = self.addresses.iter().filter(|own| own.contains(&to)).max_by_key(|own| own.prefix_len());
        let first = || self.addresses.iter().find(|own| own.addr().is_ipv4() == to.is_ipv4());
        beside.or_else(first).map(IpNet::addr)
    }

    /// Whether something can be at this local address: it is ours, or is all of ours of a family that we have.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        self.is_ours(address) || address.is_unspecified() && self.source(address).is_some()
    }

    /// Where the packets between two ends belong.
    pub(crate) fn shard_of(&self, key: Key) -> usize {
        (self.hasher.hash_one(key) % self.shards as u64) as usize
    }

    /// The listener for connections to `local`.
    pub(crate) fn backlog(&self, local: SocketAddr) -> Option<Arc<Backlog>> {
        let backlogs = self.backlogs.read().expect("a panic aborts the process");
        backlogs.get(&local).or_else(|| backlogs.get(&unspecified(local))).cloned()
    }

    /// The UDP socket for datagrams to `local`.
    pub(crate) fn port(&self, local: SocketAddr) -> Option<Arc<Port>> {
        let ports = self.ports.read().expect("a panic aborts the process");
        ports.get(&local).or_else(|| ports.get(&unspecified(local))).cloned()
    }

    /// The capacity of a new connection's buffers.
    pub(crate) fn capacity(&self) -> Capacity {
        self.memory.capacity(self.connections.load(Ordering::Relaxed))
    }

    /// Counts one more connection; false if that is one too many.
    pub(crate) fn take_connection(&self) -> bool {
        let below = |count: usize| (count < self.connections_max).then_some(count + 1);
        self.connections.try_update(Ordering::Relaxed, Ordering::Relaxed, below).is_ok()
    }

    pub(crate) fn give_connection(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All addresses of the family, and this port.
fn unspecified(local: SocketAddr) -> SocketAddr {
    let address = match local {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(address, local.port())
}
