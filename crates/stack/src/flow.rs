//! A connection: smoltcp's socket, who waits for it, and what has become of it.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use smoltcp::iface::{SocketHandle, SocketSet, SocketStorage};
use smoltcp::socket::tcp::{self, RecvError, State};
use smoltcp::time::{Duration, Instant};

use crate::memory::{Capacity, Memory, Touched};
use crate::tcp::Backlog;
use crate::wire::{ACK, Numbers, RST, Segment, is_before};

/// For how long a lone segment waits for data that its acknowledgement can travel with.
const ACK_DELAY: Duration = Duration::from_millis(10);
/// A peer that acknowledges nothing for so long is gone.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The same, for a connection that nobody but this stack remembers, or that has not come about.
const TIMEOUT_SHORT: Duration = Duration::from_secs(60);
/// How often a peer that says nothing, and of which nothing is wanted, is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The most segments that an acknowledgement which repeats itself counts for: a train of 64 KB has 47.
const COUNT_MAX: usize = 64;

/// Who has the connection.
pub(crate) enum Owner {
    /// A stream, or whoever waits for one.
    User,
    /// A listener, until it is accepted.
    Listener(Arc<Backlog>),
    /// Nobody: it closes in the background.
    Nobody,
}

/// A connection.
pub(crate) struct Flow {
    /// A set of its own, so that smoltcp looks at this socket and no other.
    pub(crate) sockets: SocketSet<'static>,
    handle: SocketHandle,
    /// Tells it from a later one between the same ends.
    pub(crate) serial: u64,
    pub(crate) owner: Owner,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    /// It stands in the queue of those that have something to send.
    pub(crate) queued: bool,
    /// When it has to be looked at.
    pub(crate) timer: Option<Instant>,
    /// Since when we wait for an answer, or since the peer was heard while we do.
    silent_since: Option<Instant>,
    /// Why it has ended, if not in order.
    pub(crate) failure: Option<io::ErrorKind>,
    /// The sequence number of the first byte that was not acknowledged, once our SYN was sent.
    pub(crate) unacknowledged: Option<u32>,
    /// The sequence number behind all that was sent.
    sent: Option<u32>,
    /// The most bytes that have arrived behind the first one that has not, by what the peer said.
    sacked: usize,
    /// A loss was found, and smoltcp has not repeated what was lost.
    found: bool,
    /// The sequence number behind all that had been sent when it did, until that is acknowledged.
    recovers: Option<u32>,
    /// The peer takes nothing, by the last segment of it.
    closed: bool,
    /// The last segment, once nothing but that may have to be repeated.
    pub(crate) last: Option<Box<[u8]>>,
    /// The peer has finished.
    heard_end: bool,
    /// The reader was told so.
    read_end: bool,
    /// We have finished.
    finished: bool,
    /// Bytes that were given to the receive buffer.
    received: usize,
    /// Bytes written since the send buffer was empty: smoltcp begins at its start then.
    written: usize,
    /// There was no memory for what was to be written: there is once all that was written is acknowledged.
    starved: bool,
    touched_receive: Touched,
    touched_send: Touched,
}

impl Flow {
    /// A connection that is neither listening nor connecting yet, with buffers of this capacity.
    pub(crate) fn new(capacity: Capacity, serial: u64, owner: Owner) -> Self {
        let buffer = |bytes| tcp::SocketBuffer::new(vec![0u8; bytes]);
        let mut socket = tcp::Socket::new(buffer(capacity.receive), buffer(capacity.send));
        socket.set_nagle_enabled(false);
        // Before there is a connection: later it would ask at once.
        socket.set_keep_alive(Some(KEEP_ALIVE));
        let mut sockets = SocketSet::new(vec![SocketStorage::EMPTY]);
        let handle = sockets.add(socket);
        Self {
            sockets,
            handle,
            serial,
            owner,
            reader: None,
            writer: None,
            queued: false,
            timer: None,
            silent_since: None,
            failure: None,
            unacknowledged: None,
            sent: None,
            sacked: 0,
            found: false,
            recovers: None,
            closed: false,
            last: None,
            heard_end: false,
            read_end: false,
            finished: false,
            received: 0,
            written: 0,
            starved: false,
            touched_receive: Touched::default(),
            touched_send: Touched::default(),
        }
    }

    pub(crate) fn socket(&self) -> &tcp::Socket<'static> {
        self.sockets.get(self.handle)
    }

    pub(crate) fn socket_mut(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    pub(crate) fn state(&self) -> State {
        self.socket().state()
    }

    /// A segment is about to be given to smoltcp; false if there is no memory for it.
    pub(crate) fn expect(&mut self, segment: &Segment, memory: &Memory) -> bool {
        let capacity = self.socket().recv_capacity();
        // Each byte of the buffer that is touched was a byte of a segment, be it a repeated one.
        self.received = (self.received + segment.payload).min(capacity);
        let fits = self.touched_receive.grow(self.received, memory);
        // Who sends many segments at once waits for their acknowledgement.
        let delay = if segment.merged { Duration::ZERO } else { ACK_DELAY };
        self.socket_mut().set_ack_delay(Some(delay));
        fits
    }

    /// smoltcp has made a segment at `now`, which is changed where it must be.
    ///
    /// Once smoltcp repeats what it has sent, it numbers segments without data as if it had sent no more than it has
    /// repeated. The peer that has more finds them outside of its window, and does not look at what they acknowledge
    /// (RFC 9293 section 3.10.7.4): two ends that both missed an acknowledgement would repeat the same to each other
    /// for ever, and a reset would not be one. Their number is the one behind all that was sent.
    pub(crate) fn sends(&mut self, packet: &mut [u8], now: Instant) {
        let Some(numbers) = Numbers::of(packet) else { return };
        if self.is_idle() && numbers.first != numbers.end {
            // There is nothing to be sent: it asks whether the peer is there.
            self.silent_since.get_or_insert(now);
        }
        if matches!(self.state(), State::SynSent | State::SynReceived) {
            self.unacknowledged = Some(numbers.first.wrapping_add(1));
        }
        let sent = self.sent.filter(|sent| is_before(numbers.end, *sent)).unwrap_or(numbers.end);
        // smoltcp may not have taken what told it of the loss. If it did, it repeats the first segment.
        if self.found && numbers.first != numbers.end && self.unacknowledged == Some(numbers.first) {
            self.found = false;
            self.recovers = Some(sent);
        }
        self.sent = Some(sent);
        if numbers.first == numbers.end && numbers.acknowledges {
            // Whoever has closed its window did not take the byte that asked for it.
            let next = if self.closed { self.unacknowledged.unwrap_or(sent) } else { sent };
            numbers.renumber(packet, next);
        }
    }

    /// Whether a segment says nothing but that our end has not arrived.
    ///
    /// smoltcp would count it: of three it takes that a segment was lost, finds no data that it could repeat, and has
    /// stopped the timer by which it would repeat the end.
    pub(crate) fn misses_end(&self, segment: &Segment) -> bool {
        let ended = matches!(self.state(), State::FinWait1 | State::Closing | State::LastAck);
        let empty = ended && self.socket().send_queue() == 0;
        empty && segment.is_acknowledgement() && self.unacknowledged == Some(segment.acknowledgement)
    }

    /// How often smoltcp is to be told of this segment.
    ///
    /// It ignores SACK and takes the third acknowledgement that repeats itself for the sign of a loss; where segments
    /// arrive in trains there is one for each train, and most losses would cost a time-out. So an acknowledgement
    /// counts as one for each segment of length `mss` that has arrived behind the gap, and as enough of them where
    /// more than two have (RFC 6675 section 4), or where it leaves a further gap of the same loss.
    pub(crate) fn count(&mut self, segment: &Segment, mss: usize) -> usize {
        let (Some(first), Some(sent)) = (self.unacknowledged, self.sent) else { return 1 };
        let number = segment.acknowledgement;
        if !segment.is_acknowledgement() || is_before(number, first) || is_before(sent, number) {
            return 1;
        }
        self.recovers = self.recovers.filter(|end| is_before(number, *end));
        let before = if number == first { self.sacked } else { 0 };
        // No more than there is, whatever it says.
        let sacked = segment.sacked.min(sent.wrapping_sub(number) as usize);
        self.sacked = sacked.max(before);
        let found = self.recovers.is_none() && self.sacked > 2 * mss;
        let further = self.recovers.is_some() && number != first && sacked > 0;
        self.found |= found;
        let enough = if found || further { 4 } else { 1 };
        (self.sacked.saturating_sub(before) / mss).clamp(enough, COUNT_MAX)
    }

    /// This segment was given to smoltcp, which was in `state` with `queued` bytes to be acknowledged.
    pub(crate) fn arrived(&mut self, state: State, queued: usize, segment: &Segment) {
        self.heard(segment);
        let acknowledged = queued - self.socket().send_queue();
        self.unacknowledged = self.unacknowledged.map(|first| first.wrapping_add(acknowledged as u32));
        if self.state() != State::Closed || state == State::Closed || segment.flags & RST == 0 {
            return;
        }
        let refused = state == State::SynSent && segment.flags & ACK != 0;
        let kind = if refused { io::ErrorKind::ConnectionRefused } else { io::ErrorKind::ConnectionReset };
        self.failure.get_or_insert(kind);
    }

    /// The peer is there.
    pub(crate) fn heard(&mut self, segment: &Segment) {
        self.silent_since = None;
        self.closed = segment.closed;
    }

    /// When to give the peer up, if nothing is heard of it until then.
    ///
    /// Not by smoltcp's own timeout: that counts from the last packet of the peer also when it is we who were silent,
    /// and would reset an old connection instead of closing it.
    pub(crate) fn gives_up_at(&mut self, now: Instant) -> Option<Instant> {
        let remembered = matches!(self.owner, Owner::User);
        let time = if remembered { TIMEOUT } else { TIMEOUT_SHORT };
        if self.is_idle() {
            // From the first question without an answer on, however long ago it was heard: after a suspend it is asked first.
            return self.silent_since.map(|since| since + time);
        }
        if matches!(self.state(), State::Closed | State::Listen | State::SynSent | State::TimeWait) {
            self.silent_since = None;
            return None;
        }
        Some(*self.silent_since.get_or_insert(now) + time)
    }

    /// Whether nothing is wanted of the peer.
    fn is_idle(&self) -> bool {
        matches!(self.state(), State::Established | State::CloseWait) && self.socket().send_queue() == 0
    }

    /// Follows what smoltcp knows; returns those who can get on.
    pub(crate) fn follow(&mut self, wakers: &mut Vec<Waker>) {
        let state = self.state();
        if matches!(state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait) {
            self.heard_end = true;
        }
        self.end();
        let starved = self.starved;
        let socket = self.socket_mut();
        let connecting = matches!(state, State::SynSent | State::SynReceived);
        let readable = socket.can_recv() || !(connecting || socket.may_recv());
        // Not at every acknowledgement: a quarter of the buffer is worth waking for.
        let room = socket.send_capacity() - socket.send_queue();
        let enough = room >= socket.send_capacity() / 4 && !starved;
        let writable = if socket.may_send() { enough || socket.send_queue() == 0 } else { !connecting };
        if readable {
            wakers.extend(self.reader.take());
        }
        if writable {
            wakers.extend(self.writer.take());
        }
    }

    /// Whether both halves have ended.
    pub(crate) fn has_ended(&self) -> bool {
        let read = self.read_end || self.heard_end && !self.socket().can_recv();
        self.finished && read && self.failure.is_none()
    }

    /// Whether what has been received would be lost if the connection were forgotten.
    pub(crate) fn is_unread(&self) -> bool {
        !matches!(self.owner, Owner::Nobody) && self.socket().can_recv()
    }

    /// Reads what has come; `None` if that is nothing yet.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        match self.socket_mut().recv_slice(into) {
            Ok(0) if self.heard_end && !self.socket().can_recv() => {}
            Ok(0) => return None,
            Ok(len) => return Some(Ok(len)),
            Err(RecvError::Finished) => self.heard_end = true,
            Err(RecvError::InvalidState) => {}
        }
        if self.heard_end {
            self.read_end = true;
            return Some(Ok(0));
        }
        Some(Err(self.error()))
    }

    /// Writes what there is room for; `None` if that is nothing yet.
    pub(crate) fn write(&mut self, from: &[u8], memory: &Memory) -> Option<io::Result<usize>> {
        if self.finished || !self.socket().may_send() {
            return Some(Err(self.error()));
        }
        let queued = self.socket().send_queue();
        if queued == 0 {
            self.written = 0;
        }
        let capacity = self.socket().send_capacity();
        let wanted = from.len().min(capacity - queued);
        let touches = |written: usize, len: usize| (written + len).min(capacity);
        let len = if self.touched_send.grow(touches(self.written, wanted), memory) {
            wanted
        } else {
            // What is touched already must do, from its beginning on once all of it was sent.
            wanted.min(self.touched_send.room().saturating_sub(self.written))
        };
        let len = self.socket_mut().send_slice(&from[..len]).expect("the connection is open, as was looked at");
        self.written = touches(self.written, len);
        self.starved = len == 0 && wanted > 0;
        (len > 0).then_some(Ok(len))
    }

    /// Ends our half.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Some(kind) = self.failure {
            return Err(kind.into());
        }
        self.finished = true;
        self.end();
        Ok(())
    }

    /// Tells smoltcp of our end, once it may know.
    ///
    /// The second of two to finish is in LAST-ACK as soon as smoltcp knows. There it ignores each acknowledgement of
    /// nothing new, also if that opens the window or repeats itself for a loss: what is queued might never be sent. So
    /// all of it is acknowledged first.
    fn end(&mut self) {
        let early = self.state() == State::CloseWait && self.socket().send_queue() > 0;
        if self.finished && !early {
            self.socket_mut().close();
        }
    }

    /// Ends both halves at once, because of `kind`.
    pub(crate) fn fail(&mut self, kind: io::ErrorKind) {
        self.failure.get_or_insert(kind);
        self.socket_mut().abort();
    }

    fn error(&self) -> io::Error {
        self.failure.unwrap_or(io::ErrorKind::BrokenPipe).into()
    }

    /// Gives its memory back.
    pub(crate) fn release(&mut self, memory: &Memory) {
        self.touched_receive.release(memory);
        self.touched_send.release(memory);
    }
}
