//! Writes packets to the TUN device: one call per group, gathered from the receive buffer without a copy.

use std::io::{self, IoSlice};

use linerate_netio::tun::Tun;
use linerate_packet::gro::{Caps, Group};
use linerate_packet::{gso, virtio};
use linerate_protocol::Boottime;

use super::merge::Delivery;
use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::shared::Shared;

/// The most pieces of a group: its virtio header, its first packet and the payloads of the others.
const PIECES_MAX: usize = 1 + linerate_aead::BATCH_MAX;

/// The kinds of GRO packets that the device takes.
pub fn caps<B: Backend>(shared: &Shared<B>, now: Boottime) -> Caps {
    let offloads = shared.backend.tun().offloads();
    let offered = Caps { tcp4: offloads.tso, tcp6: offloads.tso, udp: offloads.uso };
    shared.rejected_gro.limit(offered, now)
}

/// Writes every group to a queue.
pub fn write<B: Backend>(shared: &Shared<B>, queue: usize, buf: &[u8], delivery: &Delivery, now: Boottime) {
    for group in delivery.groups() {
        match write_group(shared, queue, buf, &group) {
            Ok(()) => {}
            Err(error) if group.packets > 1 && error.raw_os_error() == Some(EINVAL) => {
                let header = virtio::Header::decode(&group.header).expect("the merger writes types that it knows");
                shared.rejected_gro.reject(header.gso, &error, now);
                write_separately(shared, queue, buf, &group, &header);
            }
            Err(_) => shared.counters.count_drops(EngineDropReason::TunRefused, group.packets as u64),
        }
    }
}

/// The error of kernels that reject GRO packets although they offered to take them.
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

/// Writes the packets of a rejected group one by one. Happens about once a minute for each kind.
fn write_separately<B: Backend>(
    shared: &Shared<B>,
    queue: usize,
    buf: &[u8],
    group: &Group<'_>,
    header: &virtio::Header,
) {
    let ranges = std::iter::once(group.first.clone()).chain(group.payloads());
    let merged: Vec<u8> = ranges.flat_map(|range| &buf[range]).copied().collect();
    let split = gso::Split::new(header, &merged).expect("what the merger merges can be split");
    let plain = virtio::Header::default().encode();
    for segment in 0..split.count() {
        let mut packet = vec![0; split.len(segment)];
        split.write(segment, &mut packet);
        if shared.backend.tun().write(queue, &[IoSlice::new(&plain), IoSlice::new(&packet)]).is_err() {
            shared.counters.count_drop(EngineDropReason::TunRefused);
        }
    }
}
