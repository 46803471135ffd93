//! The messages of one system call, and what to do when it refuses one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linerate_netio::udp::{SendError, Socket, Transmit, send_error};
use linerate_protocol::Boottime;

use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::shared::Shared;
use crate::tables::{Endpoint, Peer};

/// The most messages in one system call.
const MESSAGES_MAX: usize = 32;

/// What to do when a socket's buffer is full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnFullBuffer {
    /// Drop, as any full queue does: workers never wait for room.
    Drop,
    /// Wait once, briefly: handshake messages are few and sessions depend on them.
    WaitOnce,
}

/// The messages of one system call, all by one socket, each with its peer.
pub struct SendBatch<'a, B: Backend> {
    shared: &'a Shared<B>,
    now: Boottime,
    socket: Option<&'a B::Socket>,
    on_full_buffer: OnFullBuffer,
    messages: [Transmit<'a>; MESSAGES_MAX],
    peers: [Option<&'a Arc<Peer>>; MESSAGES_MAX],
    len: usize,
}

impl<'a, B: Backend> SendBatch<'a, B> {
    /// An empty batch.
    pub fn new(shared: &'a Shared<B>, on_full_buffer: OnFullBuffer, now: Boottime) -> Self {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let empty = Transmit { to: nowhere, from: None, tos: 0, segment: None, contents: &[] };
        Self {
            shared,
            now,
            socket: None,
            on_full_buffer,
            messages: [empty; MESSAGES_MAX],
            peers: [None; MESSAGES_MAX],
            len: 0,
        }
    }

    /// Adds a message. Sends those before it first if the batch is full or they go by another socket.
    pub fn push(&mut self, socket: &'a B::Socket, peer: &'a Arc<Peer>, message: Transmit<'a>) {
        if self.len == MESSAGES_MAX || self.socket.is_some_and(|other| !std::ptr::eq(other, socket)) {
            self.send();
        }
        self.socket = Some(socket);
        self.messages[self.len] = message;
        self.peers[self.len] = Some(peer);
        self.len += 1;
    }

    /// Sends the messages. A GSO batch that the system refuses is sent as single datagrams.
    pub fn send(&mut self) {
        let Some(socket) = self.socket else { return };
        let mut done = 0;
        while done < self.len {
            let Err((error, kind)) = self.send_some(socket, &mut done) else { continue };
            let (message, peer) = (&self.messages[done], self.peers[done]);
            done += 1;
            match (kind, peer) {
                (SendError::SegmentationRefused, Some(peer)) => {
                    self.refuse_gso(peer, message, &error);
                    self.send_datagrams(socket, peer, message);
                }
                _ => count_failure(self.shared, &error, kind, message),
            }
        }
        self.len = 0;
    }

    /// Makes one system call, and a second one where that can help; adds the number of messages sent to `done` and
    /// counts their bytes. An error is that of the first message.
    fn send_some(&mut self, socket: &B::Socket, done: &mut usize) -> Result<(), (io::Error, SendError)> {
        let messages = &self.messages[*done..self.len];
        let peers = &self.peers[*done..self.len];
        let first = &messages[0];
        let sent = send(socket, messages).or_else(|(error, kind)| match kind {
            // An ICMP error about an earlier datagram; the message was not tried.
            SendError::Unreachable => send(socket, &messages[..1]),
            SendError::Busy if self.on_full_buffer == OnFullBuffer::WaitOnce => {
                self.on_full_buffer = OnFullBuffer::Drop;
                socket.wait_for_room();
                send(socket, messages)
            }
            SendError::SourceGone => {
                let sent = send(socket, &[Transmit { from: None, ..*first }]);
                // If it is the segments that are refused, the source address is not at fault.
                if !matches!(sent, Err((_, SendError::SegmentationRefused))) {
                    peers[0].into_iter().for_each(|peer| with_endpoint(peer, first, Endpoint::forget_source_addr));
                }
                sent
            }
            _ => Err((error, kind)),
        })?;
        let sent = sent.max(1);
        for (message, peer) in messages.iter().zip(peers.iter().flatten()).take(sent) {
            self.shared.count_tx(peer, message.contents.len());
        }
        *done += sent;
        Ok(())
    }

    fn refuse_gso(&self, peer: &Peer, gso_batch: &Transmit<'_>, error: &io::Error) {
        with_endpoint(peer, gso_batch, |endpoint| endpoint.refuse_gso(self.now));
        if self.shared.counters.segmentation_refused.fetch_add(1, Ordering::Relaxed) == 0 {
            let to = gso_batch.to;
            tracing::info!("{to} does not take segmented sends ({error}); sending datagrams one by one");
        }
    }

    /// Sends the datagrams of a GSO batch one by one, several per system call.
    fn send_datagrams(&self, socket: &'a B::Socket, peer: &'a Arc<Peer>, gso_batch: &Transmit<'a>) {
        let mut sends = SendBatch::new(self.shared, self.on_full_buffer, self.now);
        let size = gso_batch.segment.map_or(gso_batch.contents.len(), usize::from);
        for contents in gso_batch.contents.chunks(size) {
            sends.push(socket, peer, Transmit { segment: None, contents, ..*gso_batch });
        }
        sends.send();
    }
}

/// Sends one message that belongs to no peer.
pub fn send_single<B: Backend>(shared: &Shared<B>, socket: &B::Socket, message: &Transmit<'_>) {
    if let Err((error, kind)) = send(socket, &[*message]) {
        count_failure(shared, &error, kind, message);
    }
}

/// Changes the peer's endpoint, unless the peer has moved since the message was made.
fn with_endpoint(peer: &Peer, message: &Transmit<'_>, change: impl FnOnce(&Endpoint)) {
    let endpoint = peer.endpoint();
    if let Some(endpoint) = endpoint.as_deref().filter(|endpoint| endpoint.addr == message.to) {
        change(endpoint);
    }
}

/// Sends messages; returns how many. An error is that of the first message.
fn send<S: Socket>(socket: &S, messages: &[Transmit<'_>]) -> Result<usize, (io::Error, SendError)> {
    socket.send(messages).map_err(|error| {
        let kind = send_error(&error, messages[0].segment.is_some(), messages[0].from.is_some());
        (error, kind)
    })
}

fn count_failure<B: Backend>(shared: &Shared<B>, error: &io::Error, kind: SendError, message: &Transmit<'_>) {
    let datagrams = message.segment.map_or(1, |size| message.contents.len().div_ceil(size.into()));
    let reason = match kind {
        SendError::Busy => EngineDropReason::SendBusy,
        SendError::Denied => EngineDropReason::SendDenied,
        SendError::Unreachable => EngineDropReason::SendUnreachable,
        SendError::TooBig => EngineDropReason::SendTooBig,
        _ => EngineDropReason::SendFailed,
    };
    shared.counters.count_drops(reason, datagrams as u64);
    tracing::debug!("{datagrams} datagrams to {} not sent: {error}", message.to);
}
