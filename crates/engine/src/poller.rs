//! One worker's round of the receive queues: which of them it polls in a pass.
//!
//! Each poll is a system call, and on a single small packet most of what we pay is system calls. A queue is known to be
//! empty without asking when a receive call returned less than it had room for, or a read of the batch found nothing
//! more. The worker that waits next waits for all queues, and the wait ends at once if one has packets, so nothing is
//! left behind. A helper parks without such a wait: it asks first ([`Poller::ask_again`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use linerate_netio::tun::{QUEUES_MAX, Tun};

use crate::backend::Backend;
use crate::counters::Wakeups;
use crate::forecast::Forecast;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::rx_queue::{PollOutcome, RxQueue, RxQueueState};
use crate::sequencer::Sequencer;
use crate::shared::Shared;

/// The pause after a socket reported an error instead of a datagram.
const RECEIVE_FAILED_PAUSE: Duration = Duration::from_millis(1);

/// A worker's memory and its view of the receive queues.
pub struct Poller<B: Backend> {
    shared: Arc<Shared<B>>,
    outbound: Outbound<B>,
    inbound: Inbound<B>,
    rx_queues: Vec<RxQueue>,
    /// Receive queues of each kind.
    queues: usize,
    /// One for each receive queue, in their order.
    states: Vec<RxQueueState>,
    /// For each queue of the TUN device, whether what is delivered to it is answered at once.
    replies: [Forecast; QUEUES_MAX],
    /// Batches since the last wait; a pass that found none counts as one.
    batches: usize,
}

/// What one pass found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassOutcome {
    /// Packets were processed.
    Progress,
    /// No receive queue is known to have packets.
    Idle,
    /// The only receive queues that may have packets are being read by other workers; the index of one of them.
    Locked(usize),
}

impl<B: Backend> Poller<B> {
    /// Allocates all memory that the worker will ever use.
    pub fn new(shared: Arc<Shared<B>>, rx_queues: Vec<RxQueue>) -> Self {
        Self {
            outbound: Outbound::new(shared.clone()),
            inbound: Inbound::new(shared.clone()),
            shared,
            states: vec![RxQueueState::default(); rx_queues.len()],
            queues: rx_queues.iter().map(|rx_queue| rx_queue.number() + 1).max().unwrap_or(1),
            rx_queues,
            replies: Default::default(),
            batches: 0,
        }
    }

    /// A wait has ended because of the receive queues with a bit in `ready`: the first pass polls only those. It may
    /// have ended `at_once`, so that nothing was gained by waiting.
    pub fn woken_by(&mut self, ready: u64, at_once: bool) {
        for (index, state) in self.states.iter_mut().enumerate() {
            let woke = ready & 1 << index != 0;
            if let RxQueue::Tun(queue) = self.rx_queues[index]
                && woke
                && at_once
                && state.unasked
            {
                self.replies[queue].record(true);
                self.outbound.expect_followers();
            }
            *state = RxQueueState { misses: u8::from(!woke), woke, ..RxQueueState::default() };
        }
        self.batches = 0;
    }

    /// Every receive queue may have packets.
    pub fn expect_packets(&mut self) {
        self.states.fill(RxQueueState::default());
    }

    /// The next pass polls the receive queues that were not asked whether they are empty; false if there are none.
    pub fn ask_again(&mut self) -> bool {
        let unasked = self.states.iter_mut().filter(|state| state.unasked);
        unasked.map(|state| *state = RxQueueState::default()).count() > 0
    }

    /// Polls each receive queue that is due, once.
    ///
    /// # Errors
    /// When the TUN device is gone.
    pub fn pass(&mut self, sequencers: &[Sequencer]) -> io::Result<PassOutcome> {
        let mut batches = 0;
        let mut result = PassOutcome::Idle;
        for (index, sequencer) in sequencers.iter().enumerate() {
            let (rx_queue, state) = (self.rx_queues[index], self.states[index]);
            if !rx_queue.is_due(self.queues, state.polled..self.batches, state.misses) {
                continue;
            }
            self.states[index].polled = self.batches;
            let outcome = self.poll(rx_queue, sequencer, state.woke || state.reply)?;
            if outcome == PollOutcome::Locked {
                if result == PassOutcome::Idle {
                    result = PassOutcome::Locked(index);
                }
                continue;
            }
            if state.woke {
                self.wakeups(rx_queue).count(outcome.is_progress());
            }
            if state.reply {
                self.replies[rx_queue.number()].record(outcome.is_progress());
            }
            self.states[index] = self.states[index].after(outcome);
            if outcome.is_progress() {
                result = PassOutcome::Progress;
                batches += 1;
                if !matches!(rx_queue, RxQueue::Tun(_)) {
                    self.expect_reply(rx_queue);
                }
            }
        }
        self.batches += batches.max(1);
        Ok(result)
    }

    /// Something was delivered: the reply to it may be there already, so that no wake-up is needed for it.
    fn expect_reply(&mut self, socket: RxQueue) {
        let queue = self.tun_queue_for(socket);
        let state = &mut self.states[queue];
        if state.misses > 0 {
            let reply = self.replies[queue].is_worth_a_read();
            *state = RxQueueState { misses: if reply { 0 } else { state.misses }, unasked: true, reply, ..*state };
        }
    }

    /// The TUN queue that `rx_queue` is, or that packets from this socket are written to. It is always the same for one
    /// session, so that its packets stay in order, and the kernel sends the answers to them back through it.
    fn tun_queue_for(&self, rx_queue: RxQueue) -> usize {
        rx_queue.number() % self.shared.backend.tun().queues()
    }

    fn poll(&mut self, rx_queue: RxQueue, sequencer: &Sequencer, at_rest: bool) -> io::Result<PollOutcome> {
        let queue = self.tun_queue_for(rx_queue);
        if matches!(rx_queue, RxQueue::Tun(_)) {
            return self.outbound.poll(queue, sequencer, at_rest);
        }
        let sockets = self.shared.sockets.load_full();
        let Some(socket) = rx_queue.socket(sockets.as_deref()) else { return Ok(PollOutcome::Idle) };
        let outcome = self.inbound.poll(socket, queue, sequencer).unwrap_or_else(|error| {
            // An ICMP error about one of our datagrams; receiving it has cleared it. The pause keeps an error that
            // persists from taking a whole core.
            tracing::debug!("receive: {error}");
            self.shared.backend.sleep(RECEIVE_FAILED_PAUSE);
            PollOutcome::Idle
        });
        Ok(outcome)
    }

    fn wakeups(&self, rx_queue: RxQueue) -> &Wakeups {
        match rx_queue {
            RxQueue::Tun(_) => &self.shared.counters.outbound,
            RxQueue::V4(_) | RxQueue::V6(_) => &self.shared.counters.inbound,
        }
    }
}
