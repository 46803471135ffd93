//! The datagrams that are sealed and sent together: back to back in one buffer, so that equal-sized neighbours for
//! one peer form a GSO batch without a copy.

use std::sync::Arc;

use linerate_aead::{BATCH_MAX, Slot, TAG_LEN};
use linerate_protocol::DATA_HEADER;
use linerate_protocol::Session;

use crate::tables::Peer;

/// Bytes that a datagram has around its inner packet.
pub const OVERHEAD: usize = DATA_HEADER + TAG_LEN;

/// Room for an almost full batch and one more GSO packet with the overhead of its segments.
const BUFFER: usize = 2 * 65_536 + BATCH_MAX * OVERHEAD;

// A batch and the packet that was read last fit in the second-level cache of a core.
const _: () = assert!(BUFFER <= 160 * 1024);

/// Consecutive datagrams of one session.
pub struct SessionRun {
    pub peer: Arc<Peer>,
    pub session: Arc<Session>,
    /// The end of the run's slots, which begin at the end of the run before.
    pub end: usize,
    /// Whether one of them carries an inner packet; otherwise all are keepalives.
    pub data: bool,
    /// Whether its counters are reserved, so that it may be sealed and sent.
    pub has_counters: bool,
}

/// A batch.
pub struct Batch {
    pub buf: Box<[u8]>,
    pub slots: Vec<Slot>,
    /// The ECN bits of each slot's outer header.
    pub ecn: Vec<u8>,
    pub runs: Vec<SessionRun>,
    used: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            buf: vec![0; BUFFER].into_boxed_slice(),
            slots: Vec::with_capacity(BATCH_MAX),
            ecn: Vec::with_capacity(BATCH_MAX),
            runs: Vec::with_capacity(BATCH_MAX),
            used: 0,
        }
    }
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether a packet of `len` bytes, padding included, fits.
    pub fn has_room(&self, len: usize) -> bool {
        self.slots.len() < BATCH_MAX && self.used + len + OVERHEAD <= self.buf.len()
    }

    /// Whether the last run is of this session.
    pub fn continues(&self, session: &Arc<Session>) -> bool {
        self.runs.last().is_some_and(|run| Arc::ptr_eq(&run.session, session))
    }

    /// Adds a packet of `len` bytes; returns the room for its plaintext.
    pub fn add(&mut self, peer: &Arc<Peer>, session: &Arc<Session>, len: usize, ecn: u8, data: bool) -> &mut [u8] {
        let offset = self.used + DATA_HEADER;
        self.used = offset + len + TAG_LEN;
        self.slots.push(Slot { offset, len, counter: 0 });
        self.ecn.push(ecn);
        match self.runs.last_mut() {
            Some(run) if Arc::ptr_eq(&run.session, session) => {
                run.end = self.slots.len();
                run.data |= data;
            }
            _ => self.runs.push(SessionRun {
                peer: peer.clone(),
                session: session.clone(),
                end: self.slots.len(),
                data,
                has_counters: false,
            }),
        }
        &mut self.buf[offset..offset + len]
    }

    /// Removes everything; the memory is kept.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.ecn.clear();
        self.runs.clear();
        self.used = 0;
    }
}

/// The bytes of a slot's datagram, header and tag included.
pub fn datagram(slot: &Slot) -> std::ops::Range<usize> {
    slot.offset - DATA_HEADER..slot.offset + slot.len + TAG_LEN
}
