//! Tells senders that their packets have no destination, at a bounded rate, as a router does (kernel: device.c,
//! wg_xmit).

use std::io::IoSlice;

use linerate_netio::tun::Tun;
use linerate_packet::{icmp, virtio};
use linerate_protocol::Boottime;

use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::shared::Shared;
use crate::sync::lock;

/// Room for an ICMP error.
pub struct Unreachable {
    buf: Box<[u8]>,
}

impl Default for Unreachable {
    fn default() -> Self {
        Self { buf: vec![0; icmp::LONGEST].into_boxed_slice() }
    }
}

impl Unreachable {
    /// Tells the sender of `packet`, through the queue that it came from, that the destination is unreachable, if
    /// that is why it was dropped.
    pub fn reply<B: Backend>(
        &mut self,
        shared: &Shared<B>,
        queue: usize,
        reason: EngineDropReason,
        packet: &[u8],
        now: Boottime,
    ) {
        let is_unreachable =
            matches!(reason, EngineDropReason::NoPeer | EngineDropReason::NoEndpoint | EngineDropReason::Suspended);
        if !is_unreachable || !lock(&shared.icmp_errors).take(now) {
            return;
        }
        let Some(len) = icmp::unreachable(packet, &mut self.buf) else { return };
        let header = virtio::Header::default().encode();
        let pieces = [IoSlice::new(&header), IoSlice::new(&self.buf[..len])];
        if shared.backend.tun().write(queue, &pieces).is_err() {
            shared.counters.count_drop(EngineDropReason::TunRefused);
        }
    }
}
