//! A peer's endpoint, and what the path to it supports (source address, GSO).
//!
//! The kernel module checks a peer's source address with every route look-up. For IPv4 it is a round trip over netlink
//! of 30 to 50 us here, so the slow path makes it once per change of routes or addresses, for peers that are sent to. No
//! packet waits for it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linerate_netio::udp::PacketInfo;
use linerate_protocol::Boottime;

/// Nanoseconds for which a destination that refused GSO batches gets single datagrams.
const NO_GSO_FOR: u64 = 60_000_000_000;

/// A peer's endpoint, as the data path sends to it. Immutable except for what the path is found to support.
pub struct Endpoint {
    /// The peer's address and port.
    pub addr: SocketAddr,
    /// The address of ours that the peer's last packet was sent to: answers leave from it.
    local: Option<PacketInfo>,
    source_addr_forgotten: AtomicBool,
    /// The routing epoch of the last check of `local`, and its result.
    source_addr_epoch: AtomicU64,
    source_addr_valid: AtomicBool,
    no_gso_until: AtomicU64,
}

impl Endpoint {
    /// An endpoint that was configured, or learnt from a packet to our address `local`.
    pub fn new(addr: SocketAddr, local: Option<PacketInfo>, routing_epoch: u64) -> Self {
        Self {
            addr,
            local,
            source_addr_forgotten: AtomicBool::new(false),
            source_addr_epoch: AtomicU64::new(routing_epoch),
            source_addr_valid: AtomicBool::new(true),
            no_gso_until: AtomicU64::new(0),
        }
    }

    /// The same peer's next endpoint: keeps what was learnt about the path if the address is the same.
    pub(super) fn successor(&self, addr: SocketAddr, local: Option<PacketInfo>, routing_epoch: u64) -> Self {
        let new = Self::new(addr, local, routing_epoch);
        if self.addr == addr {
            new.no_gso_until.store(self.no_gso_until.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        new
    }

    /// The address to send from; `None` leaves the choice to the kernel.
    pub fn source_addr(&self) -> Option<IpAddr> {
        let local = self.local()?;
        self.source_addr_valid.load(Ordering::Relaxed).then_some(local.addr)
    }

    /// Whether routes or addresses have changed since the source address was checked.
    pub fn needs_source_addr_check(&self, routing_epoch: u64) -> bool {
        self.local().is_some() && self.source_addr_epoch.load(Ordering::Relaxed) != routing_epoch
    }

    /// Checks the source address once for each routing epoch; `is_valid` answers `None` if it cannot tell. Traffic to
    /// an invalid address does not revalidate it; a later routing change may. False if the check failed: the address
    /// keeps its state, and the caller should check again in another epoch.
    pub fn check_source_addr(&self, routing_epoch: u64, is_valid: impl FnOnce(PacketInfo) -> Option<bool>) -> bool {
        let Some(local) = self.local() else { return true };
        if self.source_addr_epoch.swap(routing_epoch, Ordering::Relaxed) == routing_epoch {
            return true;
        }
        let valid = is_valid(local);
        if let Some(valid) = valid {
            self.source_addr_valid.store(valid, Ordering::Relaxed);
        }
        valid.is_some()
    }

    /// Leaves the choice of the source address to the kernel until the peer's next authentic packet.
    pub fn forget_source_addr(&self) {
        self.source_addr_forgotten.store(true, Ordering::Relaxed);
    }

    /// Whether the path takes GSO batches.
    pub fn takes_gso(&self, now: Boottime) -> bool {
        self.no_gso_until.load(Ordering::Relaxed) <= now.0
    }

    /// The path refused a GSO batch: sends single datagrams for a while, then tries GSO again.
    pub fn refuse_gso(&self, now: Boottime) {
        self.no_gso_until.store(now.0 + NO_GSO_FOR, Ordering::Relaxed);
    }

    fn local(&self) -> Option<PacketInfo> {
        self.local.filter(|_| !self.source_addr_forgotten.load(Ordering::Relaxed))
    }

    pub(super) fn is(&self, addr: SocketAddr, local: Option<PacketInfo>) -> bool {
        self.addr == addr && self.local == local && !self.source_addr_forgotten.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> PacketInfo {
        PacketInfo { addr: "192.0.2.1".parse().unwrap(), ifindex: 3 }
    }

    fn endpoint(local: Option<PacketInfo>) -> Endpoint {
        Endpoint::new("192.0.2.2:1".parse().unwrap(), local, 1)
    }

    #[test]
    fn the_source_address_is_checked_once_per_change_of_routing() {
        let (local, endpoint) = (local(), endpoint(Some(local())));
        endpoint.check_source_addr(1, |_| panic!("nothing changed"));
        assert!(endpoint.needs_source_addr_check(2));
        assert!(endpoint.check_source_addr(2, |local| Some(local.ifindex == 3)));
        assert!(!endpoint.needs_source_addr_check(2));
        endpoint.check_source_addr(2, |_| panic!("already checked"));
        assert_eq!(endpoint.source_addr(), Some(local.addr));
        endpoint.check_source_addr(3, |_| Some(false));
        assert_eq!(endpoint.source_addr(), None);
        endpoint.check_source_addr(4, |_| Some(true));
        assert_eq!(endpoint.source_addr(), Some(local.addr));
        endpoint.forget_source_addr();
        endpoint.check_source_addr(5, |_| panic!("it is forgotten"));
        assert_eq!(endpoint.source_addr(), None);
    }

    #[test]
    fn a_failed_check_leaves_the_source_address_as_it_was() {
        let (local, endpoint) = (local(), endpoint(Some(local())));
        for (epoch, valid) in [(2, true), (4, false)] {
            assert!(endpoint.check_source_addr(epoch, |_| Some(valid)));
            assert!(!endpoint.check_source_addr(epoch + 1, |_| None));
            assert_eq!(endpoint.source_addr().is_some(), valid);
        }
        assert!(endpoint.check_source_addr(6, |_| Some(true)), "it is checked again");
        assert_eq!(endpoint.source_addr(), Some(local.addr));
    }

    #[test]
    fn a_destination_that_refused_gso_gets_it_again_after_a_while() {
        let endpoint = endpoint(None);
        assert!(endpoint.takes_gso(Boottime(5)));
        endpoint.refuse_gso(Boottime(5));
        assert!(!endpoint.takes_gso(Boottime(5 + NO_GSO_FOR - 1)));
        assert!(endpoint.takes_gso(Boottime(5 + NO_GSO_FOR)));
    }
}
