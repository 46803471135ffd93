//! Finds the peer that a packet goes to, and tells the sender when there is none.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;

use linerate_netio::tun::Tun;
use linerate_packet::ip::Ip;
use linerate_packet::{UDP, icmp, virtio};
use linerate_protocol::Boottime;

use crate::backend::Backend;
use crate::counters::EngineDiscard;
use crate::shared::Shared;
use crate::tables::Peer;

/// The peer whose allowed IPs hold the destination.
pub fn peer_for<B: Backend>(shared: &Shared<B>, inner: &Ip, packet: &[u8]) -> Result<Arc<Peer>, EngineDiscard> {
    let peer = shared.tables.routes().peer_for(inner.destination).cloned().ok_or(EngineDiscard::NoPeer)?;
    let addr = peer.endpoint().as_ref().ok_or(EngineDiscard::NoEndpoint)?.addr;
    if inner.protocol == UDP && inner.destination == addr.ip() && is_ours(shared, inner, packet, addr) {
        return Err(EngineDiscard::RoutingLoop);
    }
    Ok(peer)
}

/// Whether the packet is a datagram that this engine sent to the peer's endpoint and that the
/// host's routes led back into the tunnel. Wrapping it again would go on for ever (the kernel
/// module answers ELOOP when a peer's route leads to the tunnel's own device: socket.c, send4).
fn is_ours<B: Backend>(shared: &Shared<B>, inner: &Ip, packet: &[u8], endpoint: SocketAddr) -> bool {
    let Some(ports) = packet.get(inner.transport..inner.transport + 4) else { return false };
    let source = u16::from_be_bytes([ports[0], ports[1]]);
    let destination = u16::from_be_bytes([ports[2], ports[3]]);
    let sockets = shared.sockets.load();
    destination == endpoint.port() && sockets.as_ref().is_some_and(|sockets| sockets.port == source)
}

/// Answers the senders of packets that cannot go anywhere, at a bounded rate, as a router does
/// (kernel: device.c, wg_xmit).
pub struct Unreachable {
    answer: Box<[u8]>,
}

impl Default for Unreachable {
    fn default() -> Self {
        Self { answer: vec![0; icmp::LONGEST].into_boxed_slice() }
    }
}

impl Unreachable {
    /// Tells the packet's sender that its destination is unreachable, if `reason` says so, by the
    /// queue that the packet came by.
    pub fn answer<B: Backend>(
        &mut self,
        shared: &Shared<B>,
        queue: usize,
        reason: EngineDiscard,
        packet: &[u8],
        now: Boottime,
    ) {
        let told = matches!(reason, EngineDiscard::NoPeer | EngineDiscard::NoEndpoint);
        if !told || !shared.unreachable.lock().expect("no thread panics while it counts").take(now) {
            return;
        }
        let Some(len) = icmp::unreachable(packet, &mut self.answer) else { return };
        let header = virtio::Header::default().encode();
        let pieces = [IoSlice::new(&header), IoSlice::new(&self.answer[..len])];
        if shared.backend.tun().write(queue, &pieces).is_err() {
            shared.counters.discard(EngineDiscard::TunRefused);
        }
    }
}
