//! Writes packets to the TUN device: one call for each group, from where its pieces lie.

use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;

use linerate_netio::tun::Tun;
use linerate_packet::gro::{Caps, Group};
use linerate_packet::{gso, virtio};

use super::merge::Delivery;
use crate::backend::Backend;
use crate::counters::Discard;
use crate::shared::Shared;

/// A group's virtio header, its first packet and the payloads of the others.
const PIECES_MAX: usize = 1 + linerate_aead::BATCH_MAX;

/// What the device takes as one packet.
pub fn takes<B: Backend>(shared: &Shared<B>) -> Caps {
    let offloads = shared.backend.tun().offloads();
    let refused = shared.merged_refused.load(Ordering::Relaxed);
    Caps { tcp4: offloads.tso && !refused, tcp6: offloads.tso && !refused, udp: offloads.uso && !refused }
}

/// Writes every group to a queue.
pub fn write<B: Backend>(shared: &Shared<B>, queue: usize, buf: &[u8], delivery: &Delivery) {
    for group in delivery.groups() {
        match write_group(shared, queue, buf, &group) {
            Ok(()) => {}
            Err(error) if group.packets > 1 && error.raw_os_error() == Some(EINVAL) => {
                refuse_merged(shared, &error);
                write_apart(shared, queue, buf, &group);
            }
            Err(_) => shared.counters.discard_many(Discard::TunRefused, group.packets as u64),
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

fn refuse_merged<B: Backend>(shared: &Shared<B>, error: &io::Error) {
    if !shared.merged_refused.swap(true, Ordering::Relaxed) {
        tracing::info!("the TUN device does not take merged packets ({error}); writing packets one by one");
    }
}

/// Writes the packets of a group that was refused, each for itself. Happens once a device.
fn write_apart<B: Backend>(shared: &Shared<B>, queue: usize, buf: &[u8], group: &Group<'_>) {
    let ranges = std::iter::once(group.first.clone()).chain(group.payloads());
    let merged: Vec<u8> = ranges.flat_map(|range| &buf[range]).copied().collect();
    let header = virtio::Header::decode(&group.header).expect("the merger writes types that it knows");
    let split = gso::Split::new(&header, &merged).expect("what the merger merges can be split");
    let plain = virtio::Header::default().encode();
    for segment in 0..split.count() {
        let mut packet = vec![0; split.len(segment)];
        split.write(segment, &mut packet);
        if shared.backend.tun().write(queue, &[IoSlice::new(&plain), IoSlice::new(&packet)]).is_err() {
            shared.counters.discard(Discard::TunRefused);
        }
    }
}
