//! Carries out the protocol's decisions.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linerate_protocol::{Boottime, Effects, Entropy, MessageKind, PeerId, Session, classify};

use super::limits::Replacements;
use super::source_addrs::SourceAddrCache;
use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::embedder::Event;
use crate::outbound::Sender;
use crate::shared::Shared;
use crate::slow_path_queue::PendingHandshake;
use crate::sync::lock;
use crate::tables::Peer;

/// The backend's randomness as the protocol's source of entropy.
pub struct BackendRng<'a, B>(pub &'a B);

impl<B: Backend> Entropy for BackendRng<'_, B> {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// Carries out the protocol's effects on tables and sockets.
pub struct EffectHandler<B: Backend> {
    shared: Arc<Shared<B>>,
    sender: Sender<B>,
    /// The handshake message that is being processed.
    pub origin: Option<PendingHandshake>,
    source_addrs: SourceAddrCache,
    /// Peers that take the place of others.
    pub replacements: Replacements,
}

impl<B: Backend> EffectHandler<B> {
    /// A handler that is not processing a handshake message.
    pub fn new(shared: Arc<Shared<B>>) -> Self {
        Self {
            sender: Sender::new(shared.clone()),
            shared,
            origin: None,
            source_addrs: SourceAddrCache::default(),
            replacements: Replacements::default(),
        }
    }

    /// Checks the peer's source address if routes or addresses have changed since the last check.
    pub fn check_source_addr(&mut self, peer: &Peer) {
        if let Some(endpoint) = peer.endpoint().as_ref() {
            let epoch = self.shared.routing_epoch();
            let is_valid = |from| self.source_addrs.is_valid(&self.shared, epoch, endpoint.addr.ip(), from);
            if !endpoint.check_source_addr(epoch, is_valid) {
                self.shared.source_addr_check_failed.store(true, Ordering::Relaxed);
            }
        }
    }

    fn peer(&self, id: PeerId) -> Option<Arc<Peer>> {
        self.shared.tables.routes().peer(id).cloned()
    }

    /// The peer to send to, with its source address checked.
    fn addressee(&mut self, id: PeerId) -> Option<Arc<Peer>> {
        let peer = self.peer(id)?;
        self.check_source_addr(&peer);
        Some(peer)
    }

    fn now(&self) -> Boottime {
        self.shared.backend.boottime()
    }

    fn origin(&self) -> Option<(SocketAddr, Option<IpAddr>)> {
        self.origin.as_ref().map(|handshake| (handshake.source, handshake.local.map(|local| local.addr)))
    }
}

impl<B: Backend> Effects for EffectHandler<B> {
    fn send(&mut self, peer: PeerId, message: &[u8]) {
        if let Some(peer) = self.addressee(peer) {
            let is_initiation = classify(message) == Ok(MessageKind::Initiation);
            let counters = &self.shared.counters;
            let sent = if is_initiation { &counters.initiations_sent } else { &counters.responses_sent };
            sent.fetch_add(1, Ordering::Relaxed);
            peer.handshake_sent(is_initiation, self.now());
            self.sender.send_message(&peer, message, self.now());
        }
    }

    fn reply(&mut self, message: &[u8]) {
        if let Some((to, from)) = self.origin() {
            self.sender.reply(message, to, from);
        }
    }

    fn roam(&mut self, peer: PeerId) {
        if let (Some(peer), Some(handshake)) = (self.peer(peer), self.origin) {
            peer.set_roaming_endpoint(handshake.source, handshake.local, self.shared.routing_epoch());
            // That a handshake is complete tells other gateways of the endpoint, too.
            self.shared.count_rx(&peer, handshake.message().len());
        }
    }

    fn session_added(&mut self, session: &Arc<Session>) {
        if let Some(peer) = self.peer(session.peer) {
            self.shared.tables.add_receiver(session, peer);
        }
    }

    fn session_removed(&mut self, session: &Arc<Session>) {
        self.shared.tables.remove_receiver(session);
    }

    fn set_sending_session(&mut self, peer: PeerId, session: Option<&Arc<Session>>) {
        if let Some(peer) = self.peer(peer) {
            peer.set_sending(session.cloned());
        }
    }

    fn send_keepalive(&mut self, peer: PeerId) {
        if let Some(peer) = self.addressee(peer) {
            self.sender.send_keepalive(&peer, self.now());
        }
    }

    fn send_staged(&mut self, peer: PeerId) {
        if let Some(peer) = self.addressee(peer) {
            self.sender.send_staged(&peer, self.now());
        }
    }

    fn drop_staged(&mut self, peer: PeerId) {
        if let Some(peer) = self.peer(peer) {
            let dropped = lock(&peer.staged).clear(&self.shared.staged);
            self.shared.counters.count_drops(EngineDropReason::StagedAbandoned, dropped as u64);
        }
    }

    fn forget_source_addr(&mut self, peer: PeerId) {
        if let Some(peer) = self.peer(peer)
            && let Some(endpoint) = peer.endpoint().as_ref()
        {
            endpoint.forget_source_addr();
            tracing::debug!("no answer of peer {:?}", peer.key);
            self.shared.backend.notify(Event::Unanswered(peer.key));
        }
    }

    fn handshake_done(&mut self, peer: PeerId, wall: Duration) {
        self.replacements.handshake_done(peer);
        self.shared.counters.handshakes_done.fetch_add(1, Ordering::Relaxed);
        if let Some(peer) = self.peer(peer) {
            peer.set_last_handshake(wall, self.now());
            #[cfg(feature = "fleet")]
            self.shared.fleet.peer_changed(&peer);
            tracing::debug!("handshake with peer {:?} complete", peer.key);
            self.shared.backend.notify(Event::Handshake(peer.key));
        }
    }

    #[cfg(feature = "fleet")]
    fn timestamps_changed(&mut self, peer: PeerId, sent: [u8; 12], accepted: [u8; 12]) {
        if let Some(peer) = self.peer(peer) {
            self.shared.fleet.timestamps_changed(&peer, sent, accepted);
        }
    }

    fn has_endpoint(&self, peer: PeerId) -> bool {
        self.peer(peer).is_some_and(|peer| peer.endpoint().is_some())
    }
}
