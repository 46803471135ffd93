//! Gives every packet of a batch its counter and its header, and seals them, a run at a time.

use linerate_protocol::Boottime;
use linerate_protocol::DataHeader;
use linerate_protocol::Discard;

use super::batch::{Batch, Run, datagram};
use crate::backend::Backend;
use crate::shared::Shared;

/// Seals every run, counts it and stamps its peer.
pub fn seal<B: Backend>(shared: &Shared<B>, batch: &mut Batch, now: Boottime) {
    let Batch { buf, slots, runs, .. } = batch;
    let mut start = 0;
    for run in runs {
        let slots = &mut slots[start..run.end];
        start = run.end;
        let Some(first) = run.session.reserve(slots.len() as u64) else {
            // 2^64 packets: the key is used up (paper section 6.2).
            slots.iter().for_each(|_| shared.counters.discard_protocol(Discard::CounterExpired));
            shared.wake(&run.peer, run.peer.activity.want_handshake(now));
            continue;
        };
        let mut bytes = 0;
        for (slot, counter) in slots.iter_mut().zip(first..) {
            slot.counter = counter;
            let datagram = &mut buf[datagram(slot)];
            DataHeader { receiver: run.session.remote, counter }.encode(datagram);
            bytes += datagram.len();
        }
        run.session.sealing.seal(buf, slots);
        run.sealed = true;
        run.peer.count_tx(bytes);
        stamp(shared, run, now);
    }
}

fn stamp<B: Backend>(shared: &Shared<B>, run: &Run, now: Boottime) {
    let activity = &run.peer.activity;
    shared.wake(&run.peer, activity.sent(now, run.data));
    if run.session.needs_rekey_on_send(now) {
        shared.wake(&run.peer, activity.want_handshake(now));
    }
}
