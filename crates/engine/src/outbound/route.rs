//! Finds the peer that a packet goes to.

use std::net::SocketAddr;
use std::sync::Arc;

use linerate_packet::UDP;
use linerate_packet::ip::Ip;

use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::shared::Shared;
use crate::tables::Peer;

/// The peer whose allowed IPs contain the destination.
pub fn peer_for<B: Backend>(shared: &Shared<B>, inner: &Ip, packet: &[u8]) -> Result<Arc<Peer>, EngineDropReason> {
    let peer = shared.tables.routes().peer_for(inner.destination).cloned().ok_or(EngineDropReason::NoPeer)?;
    let addr = peer.endpoint().as_ref().ok_or(EngineDropReason::NoEndpoint)?.addr;
    if inner.protocol == UDP && inner.destination == addr.ip() && is_ours(shared, inner, packet, addr) {
        return Err(EngineDropReason::RoutingLoop);
    }
    Ok(peer)
}

/// Whether the packet is a datagram that this engine sent to the peer's endpoint and that the host routed back into
/// the tunnel. Encapsulating it again would never end (the kernel module answers ELOOP when a peer's route leads to
/// the tunnel's own device: socket.c, send4).
fn is_ours<B: Backend>(shared: &Shared<B>, inner: &Ip, packet: &[u8], endpoint: SocketAddr) -> bool {
    let Some(ports) = packet.get(inner.transport..inner.transport + 4) else { return false };
    let source = u16::from_be_bytes([ports[0], ports[1]]);
    let destination = u16::from_be_bytes([ports[2], ports[3]]);
    let sockets = shared.sockets.load();
    destination == endpoint.port() && sockets.as_ref().is_some_and(|sockets| sockets.port == source)
}
