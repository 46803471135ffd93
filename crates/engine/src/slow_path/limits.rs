//! Until when and for how many bytes a peer is let in, and which key follows which.
//!
//! A peer whose time or bytes are used up is suspended: it stays configured, but nothing is sent to it and its
//! handshakes are refused. Only a change of its limits ends that. Time here never runs backwards, so a clock that is
//! set back lets nobody in again.
//!
//! The data path compares a peer's bytes with its limit ([`Peer::count_tx`]) and wakes the slow path; the next expiry
//! is one of the slow path's deadlines. So nothing polls.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::time::Duration;

use linerate_protocol::{Boottime, Now, PeerId, PublicKey};

use super::effects::BackendRng;
use super::{EVENTS_PER_PASS, SlowPath};
use crate::backend::Backend;
use crate::config::{LimitChange, LimitReport, PeerUsage, Replacement, Suspension, UsageReport};
use crate::tables::{NO_LIMIT, Peer};

/// For how long traffic goes unreported. The report is then late by the longest time between two wake-ups of this
/// thread in steady traffic, 10 s: together less than a minute.
const REPORT_AFTER: Duration = Duration::from_secs(45);

/// The limits of all peers that have some.
#[derive(Default)]
pub struct Limits {
    peers: HashMap<PeerId, Limit>,
    /// When peers expire that have not yet.
    expiries: BTreeSet<(Duration, PeerId)>,
    clock: LatchedClock,
    /// When traffic is reported next.
    report_at: Option<Boottime>,
    /// Keys that have been replaced since the last report.
    replaced: Vec<Replacement>,
}

/// The limits of one peer.
#[derive(Default)]
struct Limit {
    expires: Option<Duration>,
    quota: Option<u64>,
    /// The bytes that were used when the peer's counters had this value.
    used_before: (u64, u64),
    suspended: Option<Suspension>,
    /// When it is among the expiries.
    armed: Option<Duration>,
}

impl Limit {
    fn used(&self, peer: &Peer) -> u64 {
        let (used, counted) = self.used_before;
        used.saturating_add(peer.total_bytes() - counted)
    }

    /// Why the peer may not be let in.
    fn reason(&self, peer: &Peer, time: Duration) -> Option<Suspension> {
        match (self.expires, self.quota) {
            (Some(expires), _) if expires <= time => Some(Suspension::Expired),
            (_, Some(quota)) if quota <= self.used(peer) => Some(Suspension::QuotaReached),
            _ => None,
        }
    }

    /// At which value of the peer's counters the quota is reached.
    fn byte_limit(&self) -> u64 {
        let (used, counted) = self.used_before;
        self.quota.map_or(NO_LIMIT, |quota| quota.saturating_sub(used).saturating_add(counted))
    }
}

/// The wall clock, as one that never goes back: where it is set back, it goes on from the latest time that it had.
#[derive(Default)]
struct LatchedClock {
    latest: Duration,
    at: Boottime,
}

impl LatchedClock {
    fn read(&mut self, now: Now) -> Duration {
        let passed = self.latest + now.boot.since(self.at);
        *self = Self { latest: now.wall.max(passed), at: now.boot };
        self.latest
    }

    fn set_earliest(&mut self, now: Now, time: Duration) {
        let read = self.read(now);
        self.latest = read.max(time);
    }
}

/// What the limits are.
impl<B: Backend> SlowPath<B> {
    /// From here on it is `time` or later, whatever the clock says.
    pub(super) fn set_earliest_time(&mut self, time: Duration) {
        self.limits.clock.set_earliest(self.shared.backend.now(), time);
    }

    /// Changes the limits of a peer, and lets it in or not as they say.
    pub(super) fn set_limits(&mut self, id: PeerId, change: &LimitChange) {
        let Some(peer) = self.shared.tables.routes().peer(id).cloned() else { return };
        let limit = self.limits.peers.entry(id).or_insert_with(|| {
            // Its usage begins now.
            Limit { used_before: (0, peer.total_bytes()), ..Limit::default() }
        });
        if let Some(expires) = change.expires {
            limit.expires = expires;
        }
        if let Some(quota) = change.quota {
            limit.quota = quota;
        }
        if let Some(used) = change.used {
            limit.used_before = (used, peer.total_bytes());
        }
        if let Some(replaces) = change.replaces {
            self.effects.replacements.set(id, replaces);
        }
        self.enforce(&peer);
        let has_none = |limit: &Limit| limit.expires.is_none() && limit.quota.is_none();
        if self.limits.peers.get(&id).is_some_and(has_none) {
            self.limits.peers.remove(&id);
        }
    }

    /// The limits of a peer, if it has any.
    pub(super) fn limits_of(&self, peer: &Peer) -> LimitReport {
        let limit = self.limits.peers.get(&peer.id);
        LimitReport {
            expires: limit.and_then(|limit| limit.expires),
            quota: limit.and_then(|limit| limit.quota),
            used: limit.map_or(0, |limit| limit.used(peer)),
            suspended: limit.and_then(|limit| limit.suspended),
            replaces: self.effects.replacements.of(peer.id),
        }
    }

    /// Forgets the limits of a peer that is removed.
    pub(super) fn forget_limits(&mut self, id: PeerId) {
        self.effects.replacements.set(id, None);
        let Some(limit) = self.limits.peers.remove(&id) else { return };
        self.count_suspended(limit.suspended, None);
        if let Some(armed) = limit.armed {
            self.limits.expiries.remove(&(armed, id));
        }
    }

    /// What peers with limits have used, and which keys have been replaced since the last call.
    pub fn usage(&mut self) -> UsageReport {
        let routes = self.shared.tables.routes();
        let usage = |(id, limit): (&PeerId, &Limit)| {
            let peer = routes.peer(*id)?;
            Some(PeerUsage { public_key: peer.key, used: limit.used(peer), suspended: limit.suspended })
        };
        UsageReport {
            time: self.limits.clock.read(self.shared.backend.now()),
            peers: self.limits.peers.iter().filter_map(usage).collect(),
            replaced: std::mem::take(&mut self.limits.replaced),
        }
    }
}

/// What happens when one is reached.
impl<B: Backend> SlowPath<B> {
    /// When the next peer expires, or traffic is to be reported.
    pub(super) fn limits_deadline(&self) -> Option<Boottime> {
        let now = self.shared.backend.now();
        let expiry = self.limits.expiries.first().map(|(expires, _)| {
            let passed = self.limits.clock.latest + now.boot.since(self.limits.clock.at);
            now.boot.after(expires.saturating_sub(passed.max(now.wall)))
        });
        [expiry, self.limits.report_at].into_iter().flatten().min()
    }

    /// Suspends peers that have expired, and asks for a report that is due; true if there was any.
    pub(super) fn process_limits(&mut self) -> bool {
        if self.limits.expiries.is_empty() && self.limits.report_at.is_none() {
            return false;
        }
        let now = self.shared.backend.now();
        let time = self.limits.clock.read(now);
        let mut found = false;
        for _ in 0..EVENTS_PER_PASS {
            let Some(&(_, id)) = self.limits.expiries.first().filter(|(expires, _)| *expires <= time) else { break };
            found = true;
            let peer = self.shared.tables.routes().peer(id).cloned();
            peer.into_iter().for_each(|peer| self.enforce(&peer));
        }
        if self.limits.report_at.is_some_and(|at| at <= now.boot) {
            self.limits.report_at = None;
            self.shared.usage_changed.signal();
            found = true;
        }
        found
    }

    /// There was traffic, of which the peers with limits may have had a part.
    pub(super) fn note_traffic(&mut self) {
        if !self.limits.peers.is_empty() {
            let at = self.shared.backend.boottime().after(REPORT_AFTER);
            self.limits.report_at.get_or_insert(at);
        }
    }

    fn count_suspended(&self, before: Option<Suspension>, now: Option<Suspension>) {
        let count = &self.shared.counters.peers_suspended;
        match (before, now) {
            (None, Some(_)) => count.fetch_add(1, Ordering::Relaxed),
            (Some(_), None) => count.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
    }

    /// Lets a peer in or not, as its limits say.
    pub(super) fn enforce(&mut self, peer: &Peer) {
        let Some(limit) = self.limits.peers.get_mut(&peer.id) else { return };
        let now = self.shared.backend.now();
        let time = self.limits.clock.read(now);
        let reason = limit.reason(peer, time);
        let before = std::mem::replace(&mut limit.suspended, reason);
        let to_come = limit.expires.filter(|expires| *expires > time);
        if let Some(armed) = std::mem::replace(&mut limit.armed, to_come) {
            self.limits.expiries.remove(&(armed, peer.id));
        }
        self.limits.expiries.extend(to_come.map(|expires| (expires, peer.id)));
        peer.set_byte_limit(if reason.is_some() { NO_LIMIT } else { limit.byte_limit() });
        if before == reason {
            return;
        }
        self.count_suspended(before, reason);
        self.shared.configured.fetch_add(1, Ordering::SeqCst);
        peer.set_suspended(reason.is_some());
        match reason {
            Some(reason) => {
                tracing::info!("peer {:?} is suspended: {reason}", peer.key);
                self.device.suspend(peer.id, &mut self.effects);
            }
            None => {
                tracing::info!("peer {:?} is let in again", peer.key);
                self.device.resume(now, &mut BackendRng(&self.shared.backend), peer.id, &mut self.effects);
            }
        }
        self.shared.usage_changed.signal();
    }
}

/// A key that takes the place of another.
#[derive(Default)]
pub struct Replacements {
    /// The keys that peers replace once they have confirmed a session.
    replaced: HashMap<PeerId, PublicKey>,
    /// Peers that have.
    confirmed: Vec<PeerId>,
}

impl Replacements {
    fn set(&mut self, id: PeerId, replaces: Option<PublicKey>) {
        match replaces {
            Some(key) => self.replaced.insert(id, key),
            None => self.replaced.remove(&id),
        };
    }

    fn of(&self, id: PeerId) -> Option<PublicKey> {
        self.replaced.get(&id).copied()
    }

    /// A handshake of the peer is complete.
    pub(super) fn handshake_done(&mut self, id: PeerId) {
        if self.replaced.contains_key(&id) {
            self.confirmed.push(id);
        }
    }

    /// A peer to be put in the place of the one with this key.
    fn next(&mut self) -> Option<(PeerId, PublicKey)> {
        while let Some(id) = self.confirmed.pop() {
            if let Some(key) = self.replaced.remove(&id) {
                return Some((id, key));
            }
        }
        None
    }
}

impl<B: Backend> SlowPath<B> {
    /// Puts peers that have confirmed a session in the place of those that they replace: with their allowed IPs, and
    /// with what they have used. Until then the old key is the one that is let in. True if there was any.
    pub(super) fn finish_replacements(&mut self) -> bool {
        let mut found = false;
        while let Some((id, old_key)) = self.effects.replacements.next() {
            let new = self.shared.tables.routes().peer(id).cloned();
            let (Some(new), Some(old)) = (new, self.device.peer(&old_key).filter(|old| *old != id)) else { continue };
            found = true;
            self.shared.configured.fetch_add(1, Ordering::SeqCst);
            let old_peer = self.shared.tables.routes().peer(old).cloned();
            let prefixes: Vec<_> = self.allowed_ips(old).into_iter().map(|prefix| (true, prefix)).collect();
            // Each is the new peer's as soon as it is no longer the old one's.
            self.set_allowed_ips(id, false, &prefixes);
            let used = self.limits.peers.get(&old).zip(old_peer).map_or(0, |(limit, peer)| limit.used(&peer));
            if let Some(limit) = self.limits.peers.get_mut(&id) {
                limit.used_before.0 = limit.used_before.0.saturating_add(used);
            }
            self.remove(old);
            self.enforce(&new);
            tracing::info!("peer {:?} has taken the place of {old_key:?}", new.key);
            self.limits.replaced.push(Replacement { old: old_key, new: new.key });
            self.shared.usage_changed.signal();
        }
        found
    }
}
