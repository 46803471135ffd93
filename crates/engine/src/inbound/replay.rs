//! Lets each counter pass once, after its packet proved authentic (paper section 5.4.6).

use linerate_protocol::Discard;

use super::open::Run;
use crate::backend::Backend;
use crate::shared::Shared;
use crate::tables::Receiver;

impl Run {
    /// Drops the packets whose counters came before or are too old to tell.
    pub fn drop_replayed<B: Backend>(&mut self, shared: &Shared<B>, receiver: &Receiver) {
        let mut window = receiver.window.lock().expect("no thread panics while it holds a window");
        self.keep(shared, |_, slot| window.admit(slot.counter).then_some(()).ok_or(Discard::CounterReplayed));
    }
}
