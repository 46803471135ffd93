//! Reads what is ready in a queue of the TUN device, about one batch.
//!
//! Nothing is done with the packets here: while a worker reads, no other one can read from the queue.

use std::io;
use std::ops::Range;

use linerate_aead::BATCH_MAX;
use linerate_netio::tun::Tun;
use linerate_netio::udp::GSO_BATCH_MAX;
use linerate_packet::virtio::{self, Gso};

use super::batch::OVERHEAD;
use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::forecast::Forecast;
use crate::rx_queue::PollOutcome;
use crate::shared::Shared;

const ENOMEM: i32 = 12;
const EFAULT: i32 = 14;
const EINVAL: i32 = 22;

/// The largest IP packet.
const PACKET_MAX: usize = 65_535;

/// Packets that will take this many bytes in the batch are sent before more are read: about one full GSO batch.
const FULL: usize = GSO_BATCH_MAX - 8_192;

/// Room for an almost full batch and one more GSO packet.
const BUFFER: usize = FULL + virtio::LEN + PACKET_MAX;

/// The packets and GSO packets of one turn at a queue, in the order in which they were read.
pub struct TunPackets {
    buf: Box<[u8]>,
    packets: Vec<(virtio::Header, Range<usize>)>,
}

impl Default for TunPackets {
    fn default() -> Self {
        Self { buf: vec![0; BUFFER].into_boxed_slice(), packets: Vec::with_capacity(BATCH_MAX) }
    }
}

impl TunPackets {
    /// Reads the packets that are ready in a queue, at most about one batch, in place of those before. `followers` is
    /// the forecast of whether a packet that does not fill the batch is followed by another; without it, the queue is
    /// asked.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn read<B: Backend>(
        &mut self,
        shared: &Shared<B>,
        queue: usize,
        mut followers: Option<&mut Forecast>,
    ) -> io::Result<PollOutcome> {
        self.packets.clear();
        let (mut start, mut segments) = (0, 0);
        // Reads are limited, too: a packet that is dropped does not fill the batch.
        for reads in 0..BATCH_MAX {
            let mut followers = followers.as_deref_mut().filter(|_| reads == 1);
            if followers.as_mut().is_some_and(|followers| !followers.is_worth_a_read()) {
                return Ok(PollOutcome::Drained);
            }
            let buf = &mut self.buf[start..];
            let len = read_one(shared, queue, buf)?;
            if let Some(followers) = followers {
                followers.record(len.is_some());
            }
            let Some(len) = len else {
                return Ok(if reads == 0 { PollOutcome::Idle } else { PollOutcome::Drained });
            };
            let header = buf[..len].first_chunk().and_then(|header| virtio::Header::decode(header).ok());
            // The kernel could not describe the packet, or it is of a type that we did not offer.
            let Some(header) = header else {
                shared.counters.count_drop(EngineDropReason::GsoMalformed);
                continue;
            };
            self.packets.push((header, start + virtio::LEN..start + len));
            // What it will take in the batch, but for padding and the headers of further segments.
            start += len + OVERHEAD;
            segments += if header.gso == Gso::None { 1 } else { len.div_ceil(header.gso_size.max(1).into()) };
            if start >= FULL || segments >= BATCH_MAX {
                break;
            }
        }
        Ok(PollOutcome::Progress)
    }

    /// The number of packets and GSO packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// A packet or GSO packet and its virtio header.
    pub fn get(&self, index: usize) -> (&virtio::Header, &[u8]) {
        let (header, range) = &self.packets[index];
        (header, &self.buf[range.clone()])
    }
}

/// Reads the next packet of a queue; `None` if there is none, 0 if the kernel could not describe or copy it: it is gone
/// from the queue.
fn read_one<B: Backend>(shared: &Shared<B>, queue: usize, buf: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match shared.backend.tun().read(queue, buf) {
            Ok(len) => return Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.raw_os_error(), Some(EINVAL | EFAULT | ENOMEM)) => return Ok(Some(0)),
            Err(error) => return Err(error),
        }
    }
}
