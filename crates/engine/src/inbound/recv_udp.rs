//! Receives a few messages in one call; each is a datagram, or a GRO batch of equal-sized ones.

use std::io;

use linerate_netio::udp::{Received, Socket};

use crate::rx_queue::PollOutcome;

/// The largest message that a socket hands over.
const MESSAGE_MAX: usize = 65_536;

/// GRO batches received in one call: as many as one delivery holds, so that workers that share a socket open and merge
/// in parallel. Up to eight made no difference to a single worker.
const GRO_BATCHES: usize = 2;

/// Messages received in one call while they are small and many.
const SINGLES: usize = 32;

/// Messages below this mean size count as small.
const SMALL: usize = 4_096;

// Address space; memory is used only where the kernel has written.
const _: () = assert!(SINGLES * MESSAGE_MAX <= 2 << 20);

/// Where one datagram lies in the receive buffer.
pub struct Datagram {
    /// The message that brought it.
    pub message: usize,
    /// Its first byte.
    pub offset: usize,
    /// Its length.
    pub len: usize,
}

/// The messages that one call received.
pub struct ReceiveBuffer {
    buf: Box<[u8]>,
    meta: [Received; SINGLES],
    /// The most messages of the next call.
    wanted: usize,
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        Self {
            buf: vec![0; SINGLES * MESSAGE_MAX].into_boxed_slice(),
            meta: [Received::default(); SINGLES],
            wanted: GRO_BATCHES,
        }
    }
}

impl ReceiveBuffer {
    /// Receives what is ready; returns the number of messages and whether there may be more.
    pub fn receive(&mut self, socket: &impl Socket) -> io::Result<(usize, PollOutcome)> {
        let wanted = self.wanted;
        let room = &mut self.buf[..wanted * MESSAGE_MAX];
        let messages = match socket.recv(room, &mut self.meta[..wanted]) {
            Ok(messages) => messages,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((0, PollOutcome::Idle)),
            Err(error) => return Err(error),
        };
        let bytes: usize = self.meta[..messages].iter().map(|meta| meta.len).sum();
        self.wanted = match bytes < messages * SMALL {
            true if messages == wanted => SINGLES,
            // As many again leave room, so the next call shows whether there are more.
            true => (2 * messages).clamp(GRO_BATCHES, SINGLES),
            false => GRO_BATCHES,
        };
        Ok((messages, if messages < wanted { PollOutcome::Drained } else { PollOutcome::Progress }))
    }

    /// The datagrams of a message. An empty message has one, empty, so that it is counted.
    pub fn datagrams(&self, message: usize) -> impl Iterator<Item = Datagram> + use<> {
        let Received { len, segment, .. } = self.meta[message];
        let base = message * MESSAGE_MAX;
        (0..len.max(1)).step_by(segment.max(1)).map(move |start| Datagram {
            message,
            offset: base + start,
            len: segment.max(1).min(len - start),
        })
    }

    /// Where a message came from, and its ECN bits.
    pub fn meta(&self, message: usize) -> &Received {
        &self.meta[message]
    }

    /// The datagram's bytes.
    pub fn bytes(&self, datagram: &Datagram) -> &[u8] {
        &self.buf[datagram.offset..][..datagram.len]
    }

    /// The whole buffer, to open messages in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buf
    }
}
