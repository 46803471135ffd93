//! Finds the peers that packets go to.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use linerate_packet::UDP;
use linerate_packet::ip::{self, Ip};

use super::read_tun::TunPackets;
use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::shared::Shared;
use crate::tables::{Peer, Routes};

/// Consecutive packets to one destination.
pub struct RouteRun {
    /// The peer that they go to, or why they are dropped.
    pub to: Result<NextHop, EngineDropReason>,
    /// The end of the run's packets, which begin at the end of the run before.
    pub end: usize,
}

/// A peer, and where it was when it was looked up.
pub struct NextHop {
    /// The peer.
    pub peer: Arc<Peer>,
    endpoint: SocketAddr,
}

/// Finds where the packets go: one look-up per run, all in one copy of the routes. A change of the routes takes effect
/// with the next batch.
pub fn find_runs<B: Backend>(shared: &Shared<B>, packets: &TunPackets, runs: &mut Vec<RouteRun>) {
    let routes = shared.tables.routes();
    let mut last = None;
    for index in 0..packets.len() {
        let destination = ip::destination(packets.get(index).1);
        match runs.last_mut().filter(|_| destination == last) {
            Some(run) => run.end = index + 1,
            None => runs.push(RouteRun { to: next_hop(&routes, destination), end: index + 1 }),
        }
        last = destination;
    }
}

/// The peer whose allowed IPs contain the destination.
fn next_hop(routes: &Routes, destination: Option<IpAddr>) -> Result<NextHop, EngineDropReason> {
    let destination = destination.ok_or(EngineDropReason::InnerMalformed)?;
    let peer = routes.peer_for(destination).cloned().ok_or(EngineDropReason::NoPeer)?;
    if peer.is_suspended() {
        return Err(EngineDropReason::Suspended);
    }
    let endpoint = peer.endpoint().as_ref().ok_or(EngineDropReason::NoEndpoint)?.addr;
    Ok(NextHop { peer, endpoint })
}

impl NextHop {
    /// Whether the packet is a datagram that this engine sent to the peer's endpoint and that the host routed back into
    /// the tunnel. Encapsulating it again would never end (the kernel module answers ELOOP when a peer's route leads to
    /// the tunnel's own device: socket.c, send4).
    pub fn is_loop_for<B: Backend>(&self, shared: &Shared<B>, inner: &Ip, packet: &[u8]) -> bool {
        if inner.protocol != UDP || inner.destination != self.endpoint.ip() {
            return false;
        }
        let Some(ports) = packet.get(inner.transport..inner.transport + 4) else { return false };
        let source = u16::from_be_bytes([ports[0], ports[1]]);
        let destination = u16::from_be_bytes([ports[2], ports[3]]);
        let sockets = shared.sockets.load();
        destination == self.endpoint.port() && sockets.as_ref().is_some_and(|sockets| sockets.port == source)
    }
}
