//! Gives each packet of a batch its counter and header, and seals the batch, one run at a time.

use linerate_aead::Slot;
use linerate_protocol::Boottime;
use linerate_protocol::DataHeader;

use super::batch::{Batch, SessionRun, datagram};
use crate::backend::Backend;
use crate::counters::EngineDropReason;
use crate::shared::Shared;
use crate::sync::lock;

/// Reserves the counters of every run.
pub fn reserve_counters<B: Backend>(shared: &Shared<B>, batch: &mut Batch) {
    let Batch { buf, slots, runs, .. } = batch;
    let mut start = 0;
    for run in runs {
        let slots = &mut slots[start..run.end];
        start = run.end;
        let Some(first) = run.session.reserve(slots.len() as u64) else {
            stage_again(shared, run, buf, slots);
            shared.wake(&run.peer, run.peer.traffic.request_handshake());
            continue;
        };
        slots.iter_mut().zip(first..).for_each(|(slot, counter)| slot.counter = counter);
        run.has_counters = true;
    }
}

/// Writes the headers, seals every run that has its counters, and records its traffic.
pub fn seal<B: Backend>(shared: &Shared<B>, batch: &mut Batch, now: Boottime) {
    let Batch { buf, slots, runs, .. } = batch;
    let mut start = 0;
    for run in runs {
        let slots = &slots[start..run.end];
        start = run.end;
        if !run.has_counters {
            continue;
        }
        for slot in slots {
            let header = DataHeader { receiver: run.session.remote, counter: slot.counter };
            header.encode(&mut buf[datagram(slot)]);
        }
        run.session.sealing.seal(buf, slots);
        record_traffic(shared, run, now);
    }
}

/// The session has no counters left, or the private key changed: its packets wait for the next session (kernel:
/// send.c, wg_packet_send_staged_packets).
fn stage_again<B: Backend>(shared: &Shared<B>, run: &SessionRun, buf: &[u8], slots: &[Slot]) {
    let mut staged = lock(&run.peer.staged);
    for slot in slots.iter().filter(|slot| slot.len > 0) {
        let packet = &buf[slot.offset..][..slot.len];
        let dropped = staged.push(packet.len(), &shared.staged, |copy| copy.copy_from_slice(packet));
        shared.counters.count_drops(EngineDropReason::StagedOverflow, dropped as u64);
    }
}

fn record_traffic<B: Backend>(shared: &Shared<B>, run: &SessionRun, now: Boottime) {
    let traffic = &run.peer.traffic;
    shared.wake(&run.peer, traffic.sent(now, run.data));
    if run.session.needs_rekey_on_send(now) {
        shared.wake(&run.peer, traffic.request_handshake());
    }
}
