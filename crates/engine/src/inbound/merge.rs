//! Merges consecutive segments of a flow, so that the host's stack sees few large packets. Only segments with a correct
//! checksum are merged; a packet that was damaged before it entered the tunnel is delivered unchanged, for its receiver
//! to drop.

use linerate_packet::gro::{Caps, Group, Merger, PacketRange};

/// The most packets in one delivery.
const PACKETS_MAX: usize = linerate_aead::BATCH_MAX;

/// Packets on their way to the TUN device.
pub struct Delivery {
    packets: Vec<PacketRange>,
    merger: Box<Merger>,
}

impl Default for Delivery {
    fn default() -> Self {
        Self { packets: Vec::with_capacity(PACKETS_MAX), merger: Box::default() }
    }
}

impl Delivery {
    /// Whether there is nothing to deliver.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// How many more packets fit before it has to be written.
    pub fn room(&self) -> usize {
        PACKETS_MAX - self.packets.len()
    }

    /// Adds a packet, by its offset in the receive buffer.
    pub fn push(&mut self, offset: usize, len: usize) {
        self.packets.push(PacketRange { offset, len });
    }

    /// Plans which packets are merged.
    pub fn merge(&mut self, buf: &mut [u8], caps: Caps) {
        self.merger.plan(buf, &self.packets, caps);
    }

    /// The groups to write, each in one call, in order.
    pub fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        self.merger.groups()
    }

    /// Removes everything; the memory is kept.
    pub fn clear(&mut self) {
        self.packets.clear();
    }
}
