//! A part of the connections, by the hash of their two ends, and all that is known of them.
//!
//! Nothing is looked for: a packet that arrives is for the connection of its addresses and ports, and smoltcp is given
//! that one socket alone; connections with something to send stand in a queue; those that wait for a time are sorted by
//! it. So what a packet costs does not depend on how many connections there are.
//!
//! Packets to be sent are made when the engine reads them, straight into its buffer: what is not read stays in the send
//! buffers, and no queue has to be bounded. Only replies, such as a reset, and datagrams are queued.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Waker};

use linerate_netio::tun::HEADER;
use smoltcp::iface::{Config, Interface, SocketSet, SocketStorage};
use smoltcp::socket::tcp::State;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::HardwareAddress;

use crate::common::Common;
use crate::counters::DropReason;
use crate::flow::{Flow, Owner};
use crate::wire::{self, ACK, HEADERS_V4, Key, PACKET_MAX, RST, SYN, Segment, Wire};

/// The most packets that wait in the queue of replies and datagrams.
pub(crate) const PACKETS_MAX: usize = 256;
/// The most that datagrams leave waiting there: acknowledgements of connections are among the replies.
const DATAGRAMS_MAX: usize = PACKETS_MAX / 4 * 3;

/// smoltcp said that there is something to send, and gave nothing: it is asked again after this time, not at once.
const RETRY: Duration = Duration::from_millis(1);

/// The part of an acknowledgement that is for a segment: what fits the smallest MTU of IPv6.
const SHARE: usize = 1220;

/// A connection that was closed in order, and of which a last acknowledgement may have been lost.
struct Closed {
    acknowledgement: Box<[u8]>,
    until: Instant,
}

/// A part of the connections.
pub(crate) struct Shard {
    common: Arc<Common>,
    interface: Interface,
    flows: HashMap<Key, Flow>,
    closed: HashMap<Key, Closed>,
    /// Those with something to send, in turn.
    ready: VecDeque<Key>,
    /// Those that wait for a time; each at most once.
    timers: BTreeSet<(Instant, Key)>,
    /// Replies and datagrams, each behind its virtio header.
    packets: VecDeque<Box<[u8]>>,
    /// Who waits for room among them.
    packet_waiters: Vec<Waker>,
    /// Whose turn it is.
    packets_first: bool,
    serial: u64,
    /// Room for a reply.
    room: Box<[u8]>,
    /// Those to be woken once the lock is released.
    pub(crate) wakers: Vec<Waker>,
    /// The engine is being told that there is something to read.
    pub(crate) signalled: bool,
}

impl Shard {
    pub(crate) fn new(common: Arc<Common>, now: Instant) -> Self {
        Self {
            interface: interface(&common, now),
            room: vec![0; PACKET_MAX].into(),
            common,
            flows: HashMap::new(),
            closed: HashMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            packets: VecDeque::new(),
            packet_waiters: Vec::new(),
            packets_first: false,
            serial: 0,
            wakers: Vec::new(),
            signalled: false,
        }
    }

    /// Whether there may be a packet to read.
    pub(crate) fn is_readable(&self) -> bool {
        !self.packets.is_empty() || !self.ready.is_empty()
    }

    /// When a connection has to be looked at next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The connection of this serial number.
    pub(crate) fn flow(&mut self, key: Key, serial: u64) -> Option<&mut Flow> {
        self.flows.get_mut(&key).filter(|flow| flow.serial == serial)
    }

    pub(crate) fn is_free(&self, key: Key) -> bool {
        !self.flows.contains_key(&key) && !self.closed.contains_key(&key)
    }

    // What arrives.

    /// A segment has arrived.
    pub(crate) fn arrive(&mut self, now: Instant, packet: &[u8], segment: &Segment) {
        let (key, flags) = (segment.key, segment.flags);
        if flags & SYN != 0 && flags & (ACK | RST) == 0 {
            self.forget_closed(key);
            if !self.flows.contains_key(&key) {
                return self.arrive_first(now, packet, key);
            }
        }
        if self.flows.contains_key(&key) {
            self.arrive_next(now, packet, segment);
            return self.settle(now, key);
        }
        match self.closed.get(&key) {
            Some(_) if flags & RST != 0 => self.forget_closed(key),
            Some(closed) => {
                let again = closed.acknowledgement.clone();
                self.queue_reply(again);
            }
            None => self.arrive_other(now, packet),
        }
    }

    /// A segment of a connection that is known has arrived.
    fn arrive_next(&mut self, now: Instant, packet: &[u8], segment: &Segment) {
        let Some(flow) = self.flows.get_mut(&segment.key) else { return };
        if !flow.expect(segment, &self.common.memory) {
            self.common.counters.count(DropReason::OutOfMemory);
            return flow.fail(io::ErrorKind::QuotaExceeded);
        }
        if flow.misses_end(segment) {
            return flow.heard(segment);
        }
        let (state, queued) = (flow.state(), flow.socket().send_queue());
        let count = flow.count(segment, self.common.mtu - HEADERS_V4);
        let mut give = |flow: &mut Flow, packet: &[u8]| {
            let mut wire = Wire::new(self.common.mtu, Some(packet), &mut self.room);
            self.interface.poll_ingress_single(now, &mut wire, &mut flow.sockets);
            wire.emitted()
        };
        let mut refused = None;
        if segment.is_acknowledgement() {
            let mut share = Vec::new();
            for number in shares(flow.unacknowledged, segment.acknowledgement, queued) {
                share.clear();
                share.extend_from_slice(packet);
                segment.acknowledge(&mut share, number);
                let before = flow.socket().send_queue();
                let emitted = give(flow, &share);
                if flow.socket().send_queue() == before {
                    // So are the others, and what there is to say to that was said.
                    refused = Some(emitted);
                    break;
                }
            }
        }
        let emitted = refused.unwrap_or_else(|| give(flow, packet));
        if emitted.is_none() && refused.is_none() {
            for _ in 1..count {
                give(flow, packet);
            }
        }
        flow.arrived(state, queued, segment);
        if let Some(emitted) = &emitted {
            flow.sends(&mut self.room[..emitted.len], now);
        }
        if let Some(reply) = reply(&mut self.room, emitted) {
            if flow.state() == State::TimeWait {
                flow.last = Some(reply.clone());
            }
            self.queue_reply(reply);
        }
    }

    /// A packet has arrived that is for nobody; it may have to be answered.
    pub(crate) fn arrive_other(&mut self, now: Instant, packet: &[u8]) {
        let mut wire = Wire::new(self.common.mtu, Some(packet), &mut self.room);
        self.interface.poll_ingress_single(now, &mut wire, &mut SocketSet::new(Vec::<SocketStorage<'static>>::new()));
        let emitted = wire.emitted();
        if let Some(reply) = reply(&mut self.room, emitted) {
            self.queue_reply(reply);
        }
    }

    /// The first segment of a connection has arrived.
    fn arrive_first(&mut self, now: Instant, packet: &[u8], key: Key) {
        let Some(backlog) = self.common.backlog(key.local) else { return self.arrive_other(now, packet) };
        if !self.common.take_connection() {
            return self.common.counters.count(DropReason::TooManyConnections);
        }
        if !backlog.reserve(key) {
            self.common.give_connection();
            return self.common.counters.count(DropReason::BacklogFull);
        }
        let serial = self.next_serial();
        let mut flow = Flow::new(self.common.capacity(), serial, Owner::Listener(backlog));
        flow.socket_mut().listen(key.local).expect("a new socket can listen, and no listener has port 0");
        // Of its own, because the sequence number is made there.
        let mut newborn = interface(&self.common, now);
        let mut wire = Wire::new(self.common.mtu, Some(packet), &mut self.room);
        newborn.poll_ingress_single(now, &mut wire, &mut flow.sockets);
        self.flows.insert(key, flow);
        self.settle(now, key);
    }

    /// An ICMP error says that a segment of a connection did not arrive.
    pub(crate) fn undelivered(&mut self, now: Instant, key: Key, sequence: u32, why: io::ErrorKind) {
        // Only while it is being made (RFC 5927 section 6: later ones are no reason to end it), and only by those who
        // saw what was sent.
        let made =
            |flow: &Flow| flow.state() == State::SynSent && flow.unacknowledged == Some(sequence.wrapping_add(1));
        if let Some(flow) = self.flows.get_mut(&key).filter(|flow| made(flow)) {
            flow.fail(why);
            self.settle(now, key);
        }
    }

    // What leaves.

    /// Writes the next packet to `buf`, behind its virtio header; the length of both.
    pub(crate) fn emit(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        self.expire(now);
        self.packets_first = !self.packets_first;
        if self.packets_first
            && let Some(len) = self.emit_packet(buf)
        {
            return Some(len);
        }
        self.emit_segment(now, buf).or_else(|| self.emit_packet(buf))
    }

    fn emit_packet(&mut self, buf: &mut [u8]) -> Option<usize> {
        let packet = self.packets.pop_front()?;
        if self.packets.len() < PACKETS_MAX / 2 {
            self.wakers.append(&mut self.packet_waiters);
        }
        let len = packet.len().min(buf.len());
        buf[..len].copy_from_slice(&packet[..len]);
        Some(len)
    }

    fn emit_segment(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        let (header, room) = buf.split_at_mut(HEADER);
        while let Some(key) = self.ready.pop_front() {
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            flow.queued = false;
            let state = flow.state();
            // smoltcp would forget what was received together with the connection. The reader comes back to it.
            if state == State::TimeWait && flow.last.is_some() && flow.is_unread() {
                continue;
            }
            let mut wire = Wire::new(self.common.mtu, None, room);
            self.interface.poll_egress(now, &mut wire, &mut flow.sockets);
            let emitted = wire.emitted();
            let Some(emitted) = emitted else {
                self.settle_idle(now, key);
                continue;
            };
            let packet = &mut room[..emitted.len];
            flow.sends(packet, now);
            header.copy_from_slice(&wire::complete(packet, emitted).encode());
            if flow.state() == State::TimeWait {
                flow.last = Some([&*header, &*packet].concat().into());
            }
            self.settle(now, key);
            return Some(HEADER + emitted.len);
        }
        None
    }

    /// Those whose time has come have something to send, or to forget.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(&(at, key)) = self.timers.first()
            && at <= now
        {
            self.timers.remove(&(at, key));
            if self.closed.get(&key).is_some_and(|closed| closed.until <= now) {
                self.closed.remove(&key);
            }
            if let Some(flow) = self.flows.get_mut(&key) {
                flow.timer = None;
                ready(&mut self.ready, flow, key);
            }
        }
    }

    /// Queues a datagram behind its virtio header; false if there is no room.
    pub(crate) fn queue(&mut self, packet: Box<[u8]>) -> bool {
        let room = self.packets.len() < DATAGRAMS_MAX;
        if room {
            self.packets.push_back(packet);
        }
        room
    }

    /// Wakes who waits for room in the queue.
    pub(crate) fn wait_for_room(&mut self, context: &Context<'_>) {
        if !self.packet_waiters.iter().any(|waiter| waiter.will_wake(context.waker())) {
            self.packet_waiters.push(context.waker().clone());
        }
    }

    fn queue_reply(&mut self, packet: Box<[u8]>) {
        if self.packets.len() < PACKETS_MAX {
            self.packets.push_back(packet);
        } else {
            self.common.counters.count(DropReason::ReplyQueueFull);
        }
    }

    // Connections.

    /// Begins a connection; its serial number.
    pub(crate) fn connect(&mut self, now: Instant, key: Key) -> io::Result<u64> {
        let serial = self.next_serial();
        let mut flow = Flow::new(self.common.capacity(), serial, Owner::User);
        // Of its own, because the sequence number is made there.
        let mut newborn = interface(&self.common, now);
        flow.socket_mut()
            .connect(newborn.context(), key.remote, key.local)
            .map_err(|_| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        self.flows.insert(key, flow);
        self.settle(now, key);
        Ok(serial)
    }

    /// Nobody has the connection any more: it closes in order if both halves have ended, else it is reset.
    pub(crate) fn release(&mut self, now: Instant, key: Key, serial: u64) {
        let Some(flow) = self.flow(key, serial) else { return };
        flow.owner = Owner::Nobody;
        if !flow.has_ended() {
            flow.fail(io::ErrorKind::ConnectionAborted);
        }
        self.settle(now, key);
    }

    /// Something has happened to a connection: who can get on, and when does it have to be looked at?
    pub(crate) fn settle(&mut self, now: Instant, key: Key) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let gives_up_at = flow.gives_up_at(now);
        if gives_up_at.is_some_and(|at| at <= now) {
            flow.fail(io::ErrorKind::TimedOut);
        }
        flow.follow(&mut self.wakers);
        follow_backlog(flow, key, &mut self.wakers);
        let at = [self.interface.poll_at(now, &flow.sockets), gives_up_at].into_iter().flatten().min();
        let state = flow.state();
        // A listening socket was reset before it was connected.
        let over = at.is_none() && state == State::Closed || state == State::Listen;
        if over && !matches!(flow.owner, Owner::User) {
            return self.remove(key);
        }
        match at {
            Some(at) if at <= now => ready(&mut self.ready, flow, key),
            Some(at) if state == State::TimeWait && matches!(flow.owner, Owner::Nobody) => self.close(now, key, at),
            Some(at) => set_timer(&mut self.timers, flow, key, at),
            None => {}
        }
    }

    /// The same, where there was nothing to send.
    fn settle_idle(&mut self, now: Instant, key: Key) {
        self.settle(now, key);
        if let Some(flow) = self.flows.get_mut(&key).filter(|flow| flow.queued) {
            // It is the last: it was queued this moment.
            flow.queued = false;
            self.ready.pop_back();
            set_timer(&mut self.timers, flow, key, now + RETRY);
        }
    }

    /// Of a connection that was closed in order, and that nobody has, the last segment is enough to remember.
    fn close(&mut self, now: Instant, key: Key, until: Instant) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let Some(acknowledgement) = flow.last.take() else {
            return set_timer(&mut self.timers, flow, key, until);
        };
        self.remove(key);
        if self.closed.len() < self.common.connections_max && until > now {
            self.closed.insert(key, Closed { acknowledgement, until });
            self.timers.insert((until, key));
        }
    }

    fn forget_closed(&mut self, key: Key) {
        if let Some(closed) = self.closed.remove(&key) {
            self.timers.remove(&(closed.until, key));
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(mut flow) = self.flows.remove(&key) else { return };
        if let Some(at) = flow.timer {
            self.timers.remove(&(at, key));
        }
        if let Owner::Listener(backlog) = mem::replace(&mut flow.owner, Owner::Nobody) {
            backlog.forget(key);
        }
        flow.release(&self.common.memory);
        self.common.give_connection();
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

/// smoltcp's half of a shard. Its random numbers are not those of a secret (a permuted congruential generator), so that
/// whoever makes a connection takes one whose seed is the system's, for the first sequence number.
fn interface(common: &Common, now: Instant) -> Interface {
    let mut config = Config::new(HardwareAddress::Ip);
    config.random_seed = common.random();
    let mut interface = Interface::new(config, &mut Wire::new(common.mtu, None, &mut []), now);
    // What is not ours is dropped before; so the number of addresses is not bounded by smoltcp's.
    interface.set_any_ip(true);
    interface
}

/// The reply in `room`, complete and behind its virtio header.
fn reply(room: &mut [u8], emitted: Option<wire::Emitted>) -> Option<Box<[u8]>> {
    let emitted = emitted?;
    let packet = &mut room[..emitted.len];
    let header = wire::complete(packet, emitted).encode();
    Some([&header[..], &*packet].concat().into())
}

/// smoltcp's congestion window grows by a segment for each acknowledgement, however much that is for: one that is for a
/// train of segments, as they mostly are here, would count as one for a single segment, and a connection would take
/// seconds to reach its speed. So it is given such an acknowledgement in shares. These are the numbers of all but the
/// last one; there are none if it is not for what was sent.
fn shares(unacknowledged: Option<u32>, acknowledgement: u32, queued: usize) -> impl Iterator<Item = u32> {
    let first = unacknowledged.unwrap_or(acknowledgement);
    let bytes = acknowledgement.wrapping_sub(first) as usize;
    let count = if bytes <= queued { bytes.div_ceil(SHARE) } else { 0 };
    (1..count).map(move |share| first.wrapping_add((share * SHARE) as u32))
}

fn ready(queue: &mut VecDeque<Key>, flow: &mut Flow, key: Key) {
    if !flow.queued {
        flow.queued = true;
        queue.push_back(key);
    }
}

/// A timer that is early costs one look; one that is late would be a fault. So it is only ever moved forward.
fn set_timer(timers: &mut BTreeSet<(Instant, Key)>, flow: &mut Flow, key: Key, at: Instant) {
    if flow.timer.is_some_and(|timer| timer <= at) {
        return;
    }
    if let Some(timer) = flow.timer.replace(at) {
        timers.remove(&(timer, key));
    }
    timers.insert((at, key));
}

/// A connection that has come about is the listener's to give away.
fn follow_backlog(flow: &mut Flow, key: Key, wakers: &mut Vec<Waker>) {
    if let Owner::Listener(backlog) = &flow.owner
        && !matches!(flow.state(), State::Listen | State::SynReceived | State::Closed)
    {
        let backlog = backlog.clone();
        flow.owner = Owner::User;
        if !backlog.ready(key, flow.serial, wakers) {
            flow.owner = Owner::Nobody;
            flow.fail(io::ErrorKind::ConnectionAborted);
        }
    }
}
