//! Caches source-address checks until routes, addresses or the mark change. Without the cache each active peer would
//! then cost a system call or a dump of all addresses.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use linerate_netio::udp::PacketInfo;

use crate::backend::Backend;
use crate::shared::Shared;

/// The most results that are cached: 400 KB.
const CACHE_MAX: usize = 4096;

/// The results since the last change.
#[derive(Default)]
pub struct SourceAddrCache {
    epoch: u64,
    mark: u32,
    /// By destination, for peers behind one address.
    v4: HashMap<(IpAddr, PacketInfo), bool>,
    /// The host's own addresses; the inner `None` if they cannot be listed.
    v6: Option<Option<HashSet<IpAddr>>>,
}

impl SourceAddrCache {
    /// Whether datagrams to `to` may be sent from `from`; `None` if that cannot be found out.
    ///
    /// As in the kernel module, an IPv4 address is invalid when it is no longer ours or when the route uses another
    /// interface; an IPv6 address only when it is no longer ours (socket.c, send4 and send6).
    pub fn is_valid<B: Backend>(
        &mut self,
        shared: &Shared<B>,
        epoch: u64,
        to: IpAddr,
        from: PacketInfo,
    ) -> Option<bool> {
        let mark = shared.mark.load(Ordering::Relaxed);
        if (self.epoch, self.mark) != (epoch, mark) {
            *self = Self { epoch, mark, ..Self::default() };
        }
        if to.is_ipv6() {
            let own = self.v6.get_or_insert_with(|| shared.backend.ipv6_addresses()).as_ref()?;
            return Some(own.contains(&from.addr));
        }
        if let Some(known) = self.v4.get(&(to, from)) {
            return Some(*known);
        }
        let valid = shared.backend.source_addr_is_valid(to, from, mark)?;
        if self.v4.len() < CACHE_MAX {
            self.v4.insert((to, from), valid);
        }
        Some(valid)
    }
}
