//! Accepts each counter once, after its packet proved authentic (paper section 5.4.6).

use linerate_protocol::DropReason;

use super::open::OpenBatch;
use crate::backend::Backend;
use crate::shared::Shared;
use crate::sync::lock;
use crate::tables::Receiver;

impl OpenBatch {
    /// Drops the packets whose counters were received before or are too old to tell. True if one that stays has a
    /// higher counter than all before.
    pub fn drop_replayed<B: Backend>(&mut self, shared: &Shared<B>, receiver: &Receiver) -> bool {
        let mut window = lock(&receiver.window);
        let mut is_newest = false;
        self.keep(shared, |_, slot| {
            is_newest |= window.is_newest(slot.counter);
            window.accept(slot.counter).then_some(()).ok_or(DropReason::CounterReplayed)
        });
        is_newest
    }
}
