//! Reads one packet or GSO packet from the TUN device.

use std::io;

use linerate_netio::tun::Tun;
use linerate_packet::virtio;

use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::shared::Shared;

const ENOMEM: i32 = 12;
const EFAULT: i32 = 14;
const EINVAL: i32 = 22;

/// The largest IP packet.
const PACKET_MAX: usize = 65_535;

/// One packet or GSO packet behind its virtio header.
pub struct TunPacket {
    buf: Box<[u8]>,
    len: usize,
}

impl Default for TunPacket {
    fn default() -> Self {
        Self { buf: vec![0; virtio::LEN + PACKET_MAX].into_boxed_slice(), len: 0 }
    }
}

impl TunPacket {
    /// Reads the next packet of a queue; false if there is none.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn read<B: Backend>(&mut self, shared: &Shared<B>, queue: usize) -> io::Result<bool> {
        loop {
            match shared.backend.tun().read(queue, &mut self.buf) {
                Ok(len) => {
                    self.len = len;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel could not describe or copy this packet; it is gone from the queue.
                Err(error) if matches!(error.raw_os_error(), Some(EINVAL | EFAULT | ENOMEM)) => {
                    shared.counters.count_drop(EngineDropReason::GsoMalformed);
                    self.len = 0;
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes read, the virtio header included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the packet.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The virtio header and the packet; `None` if the header has a type that we did not offer.
    pub fn parts(&self) -> Option<(virtio::Header, &[u8])> {
        let (header, packet) = self.buf[..self.len].split_first_chunk()?;
        Some((virtio::Header::decode(header).ok()?, packet))
    }
}
