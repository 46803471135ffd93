//! Writes packets to the TUN device: one call for each group, from where its pieces lie.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linerate_netio::tun::Tun;
use linerate_packet::gro::{Caps, Group};
use linerate_packet::virtio::Gso;
use linerate_packet::{gso, virtio};
use linerate_protocol::Boottime;

use super::merge::Delivery;
use crate::backend::Backend;
use crate::counters::EngineDiscard;
use crate::shared::Shared;

/// A group's virtio header, its first packet and the payloads of the others.
const PIECES_MAX: usize = 1 + linerate_aead::BATCH_MAX;

/// Nanoseconds for which merged packets of a kind that was refused are written apart.
const APART_FOR: u64 = 60_000_000_000;

/// The kinds of merged packets that the device refused though it had offered to take them, and until when
/// each is written apart.
#[derive(Default)]
pub struct RejectedMerges {
    tcp4: Rejection,
    tcp6: Rejection,
    udp: Rejection,
}

#[derive(Default)]
struct Rejection {
    until: AtomicU64,
    told: AtomicBool,
}

impl RejectedMerges {
    /// Of a merged packet's kind; none for a packet that was not merged.
    fn of(&self, kind: Gso) -> Option<&Rejection> {
        match kind {
            Gso::None => None,
            Gso::TcpV4 => Some(&self.tcp4),
            Gso::TcpV6 => Some(&self.tcp6),
            Gso::UdpL4 => Some(&self.udp),
        }
    }
}

impl Rejection {
    fn is_over(&self, now: Boottime) -> bool {
        self.until.load(Ordering::Relaxed) <= now.0
    }
}

/// What the device takes as one packet.
pub fn takes<B: Backend>(shared: &Shared<B>, now: Boottime) -> Caps {
    let offloads = shared.backend.tun().offloads();
    let refused = &shared.merged_refused;
    Caps {
        tcp4: offloads.tso && refused.tcp4.is_over(now),
        tcp6: offloads.tso && refused.tcp6.is_over(now),
        udp: offloads.uso && refused.udp.is_over(now),
    }
}

/// Writes every group to a queue.
pub fn write<B: Backend>(shared: &Shared<B>, queue: usize, buf: &[u8], delivery: &Delivery, now: Boottime) {
    for group in delivery.groups() {
        match write_group(shared, queue, buf, &group) {
            Ok(()) => {}
            Err(error) if group.packets > 1 && error.raw_os_error() == Some(EINVAL) => {
                let header = virtio::Header::decode(&group.header).expect("the merger writes types that it knows");
                refuse_merged(shared, header.gso, &error, now);
                write_apart(shared, queue, buf, &group, &header);
            }
            Err(_) => shared.counters.discard_many(EngineDiscard::TunRefused, group.packets as u64),
        }
    }
}

/// What kernels answer that do not take the merged packets which they offered to take
/// (Linux 6.6.0 to 6.6.43 and their contemporaries).
const EINVAL: i32 = 22;

fn write_group<B: Backend>(shared: &Shared<B>, queue: usize, buf: &[u8], group: &Group<'_>) -> io::Result<()> {
    let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
    let ranges = std::iter::once(group.first.clone()).chain(group.payloads());
    let mut count = 1;
    pieces[0] = IoSlice::new(&group.header);
    for range in ranges {
        pieces[count] = IoSlice::new(&buf[range]);
        count += 1;
    }
    shared.backend.tun().write(queue, &pieces[..count]).map(drop)
}

fn refuse_merged<B: Backend>(shared: &Shared<B>, kind: Gso, error: &io::Error, now: Boottime) {
    let Some(refusal) = shared.merged_refused.of(kind) else { return };
    refusal.until.store(now.0 + APART_FOR, Ordering::Relaxed);
    if !refusal.told.swap(true, Ordering::Relaxed) {
        tracing::info!(
            "the TUN device does not take merged {kind:?} packets ({error}); they are written one by one and tried again every minute"
        );
    }
}

/// Writes the packets of a group that was refused, each for itself. Happens about once a minute for each kind.
fn write_apart<B: Backend>(shared: &Shared<B>, queue: usize, buf: &[u8], group: &Group<'_>, header: &virtio::Header) {
    let ranges = std::iter::once(group.first.clone()).chain(group.payloads());
    let merged: Vec<u8> = ranges.flat_map(|range| &buf[range]).copied().collect();
    let split = gso::Split::new(header, &merged).expect("what the merger merges can be split");
    let plain = virtio::Header::default().encode();
    for segment in 0..split.count() {
        let mut packet = vec![0; split.len(segment)];
        split.write(segment, &mut packet);
        if shared.backend.tun().write(queue, &[IoSlice::new(&plain), IoSlice::new(&packet)]).is_err() {
            shared.counters.discard(EngineDiscard::TunRefused);
        }
    }
}
