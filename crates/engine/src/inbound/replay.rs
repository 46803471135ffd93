//! Lets each counter pass once, after its packet proved authentic (paper section 5.4.6).

use linerate_protocol::DropReason;

use super::open::OpenBatch;
use crate::backend::Backend;
use crate::shared::Shared;
use crate::tables::Receiver;

impl OpenBatch {
    /// Drops the packets whose counters came before or are too old to tell. True if one that stays
    /// was sent after all that came before.
    pub fn drop_replayed<B: Backend>(&mut self, shared: &Shared<B>, receiver: &Receiver) -> bool {
        let mut window = receiver.window.lock().expect("no thread panics while it holds a window");
        let mut news = false;
        self.keep(shared, |_, slot| {
            news |= window.is_newest(slot.counter);
            window.admit(slot.counter).then_some(()).ok_or(DropReason::CounterReplayed)
        });
        news
    }
}
