//! The decisions of a gateway, without I/O and without a clock: it is told what comes and what time it is, and says what is
//! to be done.
//!
//! A gateway initiates to a peer of another only if (1) that one's heartbeats are lost, (2) data for it comes to a living
//! gateway, so the routes have moved, or the other gives the peer away, (3) it sees the store or most members, its clock is
//! right and it is not draining, (4) it is the one that all agree on, and (5) the budgets allow it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use linerate_control::uapi::fleet::Initiate;

use super::budget::Budget;
use super::members::{HEARTBEAT_EVERY, Members, Now, Reason, SETTLED_AFTER};
use super::message::{Forwarded, HINTS_MAX, Heartbeat, Message, NUMBERS, PeerHint, Stamp};
use super::peers::{AHEAD_MAX, Change, Known, Peers};
use super::{GATEWAYS_MAX, GatewayStatus, Seen};

/// Between two calls of [`Machine::tick`].
pub const TICK: Duration = Duration::from_millis(50);
/// Between two attempts to initiate to a peer, by whichever gateway; its daemon repeats an urgent one soon by itself.
pub const PEER_EVERY: Duration = Duration::from_secs(5);
/// A call that is later than this was delayed by more than a timer: this process did not run.
const STOPPED_AFTER: Duration = Duration::from_millis(150);
/// Once the store has been seen for so long, our view has caught up: who is added after that is new to all.
const LIVE_AFTER: Duration = Duration::from_secs(3);
/// How long a single initiation, to where the peer may not be, may be answered; the daemon begins no other meanwhile.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);
/// How long the daemon tries by itself, once told to initiate.
const DAEMON_TRIES: Duration = Duration::from_secs(90);
/// After this a peer that was given away and is still here is given away again.
const GIVE_EVERY: Duration = Duration::from_millis(5500);
/// Until a table that was sent is sent again, if the receiver still asks for it.
const TABLE_EVERY: Duration = Duration::from_secs(1);

// What a tick does at most: no burst is longer than the others' receive buffers, and 5,000 peers are taken in a second.
const INITIATIONS_PER_TICK: usize = 250;
const MESSAGES_PER_TICK: usize = 20;
const TOLD_PER_TICK: usize = 1000;
const SCANNED_PER_TICK: usize = 20_000;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message to a gateway.
    Send {
        /// The receiver.
        to: u8,
        /// The message.
        bytes: Vec<u8>,
    },
    /// Tell the daemon of peers.
    Tell(Vec<Order>),
    /// Let the daemon receive a datagram as if it had come from its source.
    Inject {
        /// Where it came from.
        source: SocketAddr,
        /// As it came.
        datagram: Vec<u8>,
    },
}

/// What the daemon is told of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The peer.
    pub number: u32,
    /// Where it is.
    pub endpoint: Option<SocketAddr>,
    /// The floor of timestamps to it.
    pub sent: Option<Stamp>,
    /// The greatest timestamp accepted from it. If that is too far ahead of the clock, the daemon treats the peer as
    /// one without a floor.
    pub received: Option<Stamp>,
    /// Whether a handshake begins: urgently where the peer was authentically last heard, by a single initiation elsewhere.
    pub initiate: Initiate,
}

/// What happened, for `linerate fleet status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams passed on to their gateway.
    pub forwarded: u64,
    /// Datagrams of others passed to our daemon.
    pub injected: u64,
    /// Peers that the daemon was told to initiate to.
    pub initiated: u64,
    /// Initiations that a budget did not allow.
    pub refused_by_budget: u64,
    /// Initiations to a peer that a gateway has just initiated to.
    pub refused_as_repeated: u64,
    /// Datagrams for a dead gateway that nobody may take over.
    pub refused_without_taker: u64,
    /// Datagrams of sessions that have since moved.
    pub late: u64,
    /// What no gateway or daemon of this fleet sends.
    pub malformed: u64,
    /// Hints with timestamps too far ahead of the clock.
    pub refused_times: u64,
}

/// A gateway.
pub struct Machine {
    me: u8,
    skew_max: Duration,
    started: Option<u64>,
    sequence: u64,
    members: Members,
    peers: Peers,
    budget: Budget,
    sees_store: bool,
    seen_since: Option<Duration>,
    is_stale: bool,
    serves: bool,
    hears: bool,
    drains: bool,
    ran: Option<Duration>,
    beat: Option<Duration>,
    evidence: u64,
    daemon_has_replied: bool,
    to_others: BTreeSet<u32>,
    to_daemon: BTreeSet<u32>,
    moved: BTreeSet<u32>,
    refreshed_to: u32,
    drained_to: u32,
    /// Peers that were looked for where they may not be, and when: in the order of time, and as few as the budget allows.
    suspected: VecDeque<(Duration, u32)>,
    queue: VecDeque<u32>,
    queued_for: Option<QueuedFor>,
    /// What happened.
    pub counters: Counters,
}

/// What the queue of peers to take over depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct QueuedFor {
    takers: (u64, u64),
    moved: u64,
    recovers: bool,
    /// Hints may have come since: half a second is soon enough.
    half_second: u128,
}

impl Machine {
    /// The gateway `me`, which leaves if its clock is further than `skew_max` from the majority's.
    pub fn new(me: u8, skew_max: Duration) -> Self {
        Self {
            me,
            skew_max,
            started: None,
            sequence: 0,
            members: Members::new(me),
            peers: Peers::default(),
            budget: Budget::default(),
            sees_store: false,
            seen_since: None,
            is_stale: false,
            serves: false,
            hears: true,
            drains: false,
            ran: None,
            beat: None,
            evidence: 0,
            daemon_has_replied: false,
            to_others: BTreeSet::new(),
            to_daemon: BTreeSet::new(),
            moved: BTreeSet::new(),
            refreshed_to: 0,
            drained_to: 0,
            suspected: VecDeque::new(),
            queue: VecDeque::new(),
            queued_for: None,
            counters: Counters::default(),
        }
    }

    /// Who may be a gateway, this one included, and how much each takes.
    pub fn set_members(&mut self, members: &BTreeMap<u8, u32>) {
        self.members.set(members);
    }

    /// The numbers of the peers in force, in order.
    pub fn set_peers(&mut self, numbers: impl Iterator<Item = u32>) {
        let seen_for = self.ran.zip(self.seen_since).map(|(ran, since)| ran.saturating_sub(since));
        let is_live = self.sees_store && seen_for.is_some_and(|time| time >= LIVE_AFTER);
        let added = self.peers.set(numbers.filter(|number| *number < NUMBERS), is_live);
        self.to_others.extend(&added);
        self.to_daemon.extend(added);
        self.to_others.retain(|number| self.peers.all.contains_key(number));
        self.moved.retain(|number| self.peers.all.contains_key(number));
        self.to_daemon.retain(|number| self.peers.all.contains_key(number));
        self.queued_for = None;
    }

    /// What is seen of the store.
    pub fn set_store(&mut self, is_seen: bool, is_stale: bool) {
        (self.sees_store, self.is_stale) = (is_seen, is_stale);
    }

    /// Whether this gateway gives its clients away.
    pub fn set_drains(&mut self, drains: bool) {
        self.drains = drains;
    }

    /// Whether the daemon answers. While it does not, there are no heartbeats, so others take over.
    pub fn set_serves(&mut self, serves: bool) {
        self.serves = serves;
    }

    /// Sets whether the mesh is up and its socket open. While it is not, missing heartbeats do not mean that others are
    /// dead.
    pub fn set_hears(&mut self, hears: bool) {
        self.hears = hears;
    }

    /// There is another daemon: it knows nothing yet, and has no session.
    pub fn daemon_started(&mut self) {
        self.daemon_has_replied = false;
        self.peers.all.values_mut().for_each(|known| known.seen_here = 0);
        self.to_daemon = self.peers.all.keys().copied().collect();
        self.moved.clone_from(&self.to_daemon);
    }

    /// What the daemon says has changed. Its first reply has all peers.
    pub fn changes(&mut self, now: Now, changes: &[Change]) {
        self.wake(now);
        let is_first = !std::mem::replace(&mut self.daemon_has_replied, true);
        for change in changes {
            let Some(known) = self.peers.get_mut(change.number) else { continue };
            if known.change(now.wall, self.me, change, is_first) {
                self.to_others.insert(change.number);
                self.moved.insert(change.number);
            }
        }
    }

    /// A datagram that the daemon handed over.
    pub fn forwarded(&mut self, now: Now, bytes: &[u8], actions: &mut Vec<Action>) {
        self.wake(now);
        match Forwarded::decode(bytes) {
            Some(forwarded) => self.route(now, &forwarded, true, actions),
            None => self.counters.malformed += 1,
        }
    }

    /// Handles a message of the gateway that its envelope names.
    pub fn message(&mut self, now: Now, from: u8, bytes: &[u8], actions: &mut Vec<Action>) {
        self.wake(now);
        let is_member = self.members.others.contains_key(&from);
        match Message::decode(bytes).filter(|_| is_member) {
            Some(Message::Heartbeat(heartbeat)) if heartbeat.gateway == from => self.heartbeat(now, heartbeat),
            Some(Message::Hints { gateway, hints }) if gateway == from => {
                hints.iter().for_each(|hint| self.hint(now, from, hint));
            }
            Some(Message::Take { gateway, hints }) if gateway == from => {
                let given = hints.iter().filter(|hint| hint.owner == from);
                let orders: Vec<_> = given.filter_map(|hint| self.take(now, from, hint)).collect();
                tell(orders, actions);
            }
            Some(Message::TableEnd { gateway }) if gateway == from => {
                if let Some(other) = self.members.others.get_mut(&from) {
                    other.table_is_here = true;
                }
            }
            Some(Message::Forward(forwarded)) => self.route(now, &forwarded, false, actions),
            _ => self.counters.malformed += 1,
        }
    }

    /// What is due. To be called every [`TICK`].
    pub fn tick(&mut self, now: Now, actions: &mut Vec<Action>) {
        self.wake(now);
        self.seen_since = self.sees_store.then(|| self.seen_since.unwrap_or(now.monotonic));
        self.look_at_others(now);
        self.members.look_at_clock(now, self.skew_max);
        self.members.set_takes(now, self.reason(now).is_none());
        if self.serves && self.beat.is_none_or(|beat| now.monotonic >= beat + HEARTBEAT_EVERY) {
            // An interval from the last one that was due, so that delays do not add up.
            let due = self.beat.map(|beat| beat + HEARTBEAT_EVERY).filter(|due| now.monotonic < *due + HEARTBEAT_EVERY);
            self.beat = Some(due.unwrap_or(now.monotonic));
            self.beat(now, false, actions);
        }
        self.take_over(now, actions);
        self.give_away(now, actions);
        self.end_suspicions(now);
        self.tell_daemon(actions);
        self.tell_others(actions);
        self.refresh(actions);
        self.send_tables(now, actions);
    }

    /// The last heartbeat: the service ends.
    pub fn end(&mut self, now: Now, actions: &mut Vec<Action>) {
        if self.serves {
            self.beat(now, true, actions);
        }
    }

    /// Why this gateway does not initiate for others, if so.
    pub fn reason(&self, now: Now) -> Option<Reason> {
        if !self.serves {
            return Some(Reason::Daemon);
        }
        if !self.hears {
            return Some(Reason::Deaf);
        }
        let refuses = self.members.refuses(now, self.sees_store, self.skew_max);
        let stale = self.is_stale.then_some(Reason::Stale);
        refuses.or(stale).or(self.drains.then_some(Reason::Draining))
    }

    /// The peers that may have come here or left since the last call.
    pub fn take_moved(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.moved)
    }

    /// Whether a peer has its session here.
    pub fn is_here(&self, number: u32) -> bool {
        let known = self.peers.all.get(&number);
        known.is_some_and(|known| known.owner() == Some(self.me) && known.seen_here != 0)
    }

    /// The peers that have their sessions here.
    pub fn owned(&self) -> impl Iterator<Item = u32> {
        let here = self.peers.all.iter().filter(|(_, known)| known.owner() == Some(self.me) && known.seen_here != 0);
        here.map(|(&number, _)| number)
    }

    /// What people may want to know.
    pub fn status(&self, now: Now) -> GatewayStatus {
        let mut peers = [0u32; GATEWAYS_MAX as usize];
        let walls: Vec<Duration> = (0..GATEWAYS_MAX).map(|gateway| self.members.wall_of(now, gateway)).collect();
        for known in self.peers.all.values() {
            let Some(owner) = known.owner().map(usize::from) else { continue };
            if walls.get(owner).is_some_and(|wall| known.is_active(*wall))
                && let Some(count) = peers.get_mut(owner)
            {
                *count += 1;
            }
        }
        let count = |gateway: u8| peers.get(usize::from(gateway)).copied().unwrap_or(0);
        let others = self.members.others.iter().map(|(&gateway, other)| {
            let is_alive = other.is_alive(now);
            let skew_ms = other.skew().filter(|_| is_alive).map(|skew| (skew as f64 / 1e6).round() as i64);
            let is_draining = other.last().is_draining;
            (gateway, Seen { is_alive, skew_ms, peers: count(gateway), is_draining })
        });
        let mut gateways: BTreeMap<u8, Seen> = others.collect();
        let me = Seen { is_alive: self.serves, skew_ms: Some(0), peers: count(self.me), is_draining: self.drains };
        gateways.insert(self.me, me);
        let reason = self.reason(now);
        let Counters {
            forwarded,
            injected,
            initiated,
            refused_by_budget,
            refused_as_repeated,
            refused_without_taker,
            late,
            malformed,
            refused_times,
        } = self.counters;
        let counters = [
            ("forwarded", forwarded),
            ("injected", injected),
            ("initiated", initiated),
            ("refused_by_budget", refused_by_budget),
            ("refused_as_repeated", refused_as_repeated),
            ("refused_without_taker", refused_without_taker),
            ("late", late),
            ("malformed", malformed),
            ("refused_times", refused_times),
        ];
        GatewayStatus {
            initiates: reason.is_none(),
            reason: reason.map(|reason| reason.sentence().into()),
            trouble: None,
            is_drained: self.drains && !self.has_peers_to_give(now),
            gateways,
            counters: counters.map(|(name, value)| (name.into(), value)).into(),
        }
    }

    /// What it knows of a peer.
    pub fn hint_of(&self, number: u32) -> Option<PeerHint> {
        self.peers.all.get(&number).map(|known| known.hint(number))
    }

    /// How much it remembers: of peers and members, and of what is still to be told.
    pub fn remembered(&self) -> [usize; 5] {
        let Self { peers, members, to_others, to_daemon, queue, .. } = self;
        [peers.all.len(), members.others.len(), to_others.len(), to_daemon.len(), queue.len()]
    }

    /// Finds out whether this process did not run, before anything is judged by the time.
    fn wake(&mut self, now: Now) {
        let gap = self.ran.map_or(Duration::ZERO, |ran| now.monotonic.saturating_sub(ran));
        self.ran = Some(now.monotonic);
        let wall = || u64::try_from(now.wall.as_nanos()).unwrap_or(u64::MAX);
        self.started.get_or_insert_with(wall);
        if gap > STOPPED_AFTER {
            self.members.was_stopped_for(gap);
            // Who was stopped may have missed what others told.
            self.members.others.values_mut().for_each(|other| other.table_is_here = false);
        }
    }

    fn look_at_others(&mut self, now: Now) {
        for (gateway, other) in &mut self.members.others {
            let is_alive = other.is_alive(now);
            if is_alive {
                other.has_moved = false;
                self.evidence &= !(1 << gateway);
            } else if other.was_alive {
                other.table_at = None;
            }
            other.was_alive = is_alive;
        }
    }

    fn beat(&mut self, now: Now, ends: bool, actions: &mut Vec<Action>) {
        self.sequence += 1;
        let takes = self.reason(now).is_none();
        for (&to, other) in &self.members.others {
            let heartbeat = Heartbeat {
                gateway: self.me,
                takes: takes && !ends,
                sees_store: self.sees_store,
                is_draining: self.drains,
                wants_table: !other.table_is_here,
                ends,
                sequence: self.sequence,
                started: self.started.unwrap_or(0),
                wall: u64::try_from(now.wall.as_nanos()).unwrap_or(u64::MAX),
                evidence: self.evidence,
            };
            actions.push(Action::Send { to, bytes: Message::Heartbeat(heartbeat).encode() });
        }
    }

    fn heartbeat(&mut self, now: Now, heartbeat: Heartbeat) {
        if !self.members.heard(now, heartbeat) {
            return;
        }
        if let Some(other) = self.members.others.get_mut(&heartbeat.gateway) {
            let was_sent = other.table_sent.is_some_and(|sent| now.monotonic < sent + TABLE_EVERY);
            if heartbeat.wants_table && other.table_at.is_none() && !was_sent {
                other.table_at = Some(0);
            }
        }
        for (gateway, other) in &mut self.members.others {
            if heartbeat.evidence & 1 << gateway != 0 && !other.is_alive(now) {
                other.has_moved = true;
            }
        }
    }

    fn hint(&mut self, now: Now, teller: u8, hint: &PeerHint) {
        // The owner of a claim takes its times from its own clock, which may be wrong.
        let latest = self.members.wall_of(now, hint.owner).max(now.wall).saturating_add(AHEAD_MAX);
        let is_refused = u128::from(hint.claim) > latest.as_millis() || u64::from(hint.seen) > latest.as_secs();
        self.counters.refused_times += u64::from(is_refused || Known::is_ahead(now.wall, hint.sent));
        let Some(known) = self.peers.get_mut(hint.number).filter(|_| !is_refused) else { return };
        // Hints about a client whose clock is ahead repeat; each timestamp is counted once.
        let is_known = hint.received <= known.floor();
        self.counters.refused_times += u64::from(!is_known && Known::is_ahead(now.wall, hint.received));
        if known.merge(now.wall, teller, hint) {
            self.to_daemon.insert(hint.number);
            self.moved.insert(hint.number);
        }
    }

    /// Another gateway gives a peer to us.
    fn take(&mut self, now: Now, from: u8, hint: &PeerHint) -> Option<Order> {
        self.hint(now, from, hint);
        // Who was stopped may find orders of long ago, which others have carried out since.
        if self.reason(now).is_some() || !self.is_settled(now) {
            self.counters.refused_without_taker += 1;
            return None;
        }
        let gives = self.peers.all.get(&hint.number).is_some_and(|known| known.owner() == Some(from));
        gives.then(|| self.initiate_there(now, hint.number)).flatten()
    }

    /// A datagram for another gateway's session; `is_here`: it came to our own daemon, and was not passed on to us.
    fn route(&mut self, now: Now, forwarded: &Forwarded<'_>, is_here: bool, actions: &mut Vec<Action>) {
        let Forwarded { gateway, number, source, datagram } = *forwarded;
        if !self.peers.all.contains_key(&number) {
            self.counters.malformed += 1;
        } else if gateway == self.me && !is_here {
            self.counters.injected += 1;
            actions.push(Action::Inject { source, datagram: datagram.into() });
        } else if gateway != self.me && self.members.is_alive(now, gateway) {
            // What was passed on to us is passed on no further: the sender sees other gateways than we do.
            if is_here {
                self.pass_on(gateway, forwarded, actions);
            }
        } else {
            self.of_a_lost_session(now, forwarded, is_here, actions);
        }
    }

    fn pass_on(&mut self, to: u8, forwarded: &Forwarded<'_>, actions: &mut Vec<Action>) {
        self.counters.forwarded += 1;
        actions.push(Action::Send { to, bytes: Message::Forward(*forwarded).encode() });
    }

    /// Of a session that a dead gateway had, or that our own daemon has lost.
    fn of_a_lost_session(&mut self, now: Now, forwarded: &Forwarded<'_>, is_here: bool, actions: &mut Vec<Action>) {
        let &Forwarded { gateway, number, source, datagram } = forwarded;
        let Some(known) = self.peers.all.get(&number) else { return };
        let has_moved = match known.owner() {
            Some(owner) if owner == self.me => known.seen_here != 0,
            Some(owner) => self.members.is_alive(now, owner),
            None => false,
        };
        if has_moved {
            self.counters.late += 1;
            return;
        }
        // What we have lost and nobody else has taken is ours to make anew.
        let is_own = gateway == self.me && known.owner().is_none_or(|owner| owner == self.me);
        if known.endpoint == Some(source) && gateway != self.me {
            self.note_evidence(now, gateway, actions);
        }
        let taker = if is_own { Some(self.me) } else { self.members.responsible(now, number) };
        match taker {
            Some(taker) if taker != self.me => {
                if is_here {
                    self.pass_on(taker, forwarded, actions);
                }
            }
            Some(_)
                if self.reason(now).is_none()
                    && if is_own { self.may_recover(now) } else { self.members.is_ours(now, number) } =>
            {
                self.budget.received(now.monotonic, source.ip(), datagram.len());
                let order = self.initiate_for(now, number, source);
                tell(order.into_iter().collect(), actions);
            }
            _ => self.counters.refused_without_taker += 1,
        }
    }

    /// Data for a dead gateway comes here, from where its peer is known to be: the routes have moved. The others are told at
    /// once.
    fn note_evidence(&mut self, now: Now, gateway: u8, actions: &mut Vec<Action>) {
        let Some(other) = self.members.others.get_mut(&gateway) else { return };
        other.has_moved = true;
        let before = self.evidence;
        self.evidence |= 1 << gateway;
        if self.evidence != before && self.serves {
            self.beat(now, false, actions);
        }
    }

    /// Initiates because of data for a dead gateway. The source may be made up, so the peer is first looked for where it is
    /// known to be.
    fn initiate_for(&mut self, now: Now, number: u32, source: SocketAddr) -> Option<Order> {
        let known = self.peers.all.get(&number)?;
        // Of whom nothing is known nobody can say where else to look afterwards: its own handshake brings it in.
        let Some(endpoint) = known.endpoint else {
            self.counters.refused_without_taker += 1;
            return None;
        };
        let there = known.initiated_there;
        if endpoint == source {
            return self.initiate_there(now, number);
        }
        if self.was_initiated(now, number) {
            self.counters.refused_as_repeated += 1;
            return None;
        }
        let was_tried = there.is_some_and(|there| now.monotonic < there + 2 * PEER_EVERY);
        let there = (!was_tried).then_some(endpoint);
        let may = match there {
            Some(_) => self.budget.spend_because_of(now.monotonic, source.ip()),
            None => self.budget.spend_toward(now.monotonic, source.ip()),
        };
        if !may {
            self.counters.refused_by_budget += 1;
            return None;
        }
        self.initiate(now, number, there.unwrap_or(source), there.is_some())
    }

    /// Initiates to where the peer is known to be.
    fn initiate_there(&mut self, now: Now, number: u32) -> Option<Order> {
        let endpoint = self.peers.all.get(&number)?.endpoint?;
        if self.was_initiated(now, number) {
            self.counters.refused_as_repeated += 1;
            return None;
        }
        self.initiate(now, number, endpoint, true)
    }

    fn initiate(&mut self, now: Now, number: u32, endpoint: SocketAddr, is_there: bool) -> Option<Order> {
        let known = self.peers.get_mut(number)?;
        known.initiated = Some(now.monotonic);
        match is_there {
            true => known.initiated_there = Some(now.monotonic),
            false => self.suspected.push_back((now.monotonic, number)),
        }
        self.counters.initiated += 1;
        self.to_daemon.remove(&number);
        let initiate = if is_there { Initiate::Now } else { Initiate::Once };
        Some(Order { number, endpoint: Some(endpoint), sent: known.sent, received: known.floor(), initiate })
    }

    /// Has the daemon look for a peer where it is known to be again, unless it has answered elsewhere: whoever made up the
    /// address is not sent the handshakes that data for the peer begins. It is soon asked for there: what the daemon tried
    /// has ended with the single initiation.
    fn end_suspicions(&mut self, now: Now) {
        while let Some((_, number)) = self.suspected.pop_front_if(|(at, _)| now.monotonic >= *at + ANSWERED_WITHIN) {
            if let Some(known) = self.peers.get_mut(number) {
                known.initiated_there = None;
                self.to_daemon.insert(number);
            }
        }
    }

    /// Whether a gateway has initiated to the peer just now.
    fn was_initiated(&self, now: Now, number: u32) -> bool {
        let Some(known) = self.peers.all.get(&number) else { return false };
        let by_us = known.initiated.is_some_and(|initiated| now.monotonic < initiated + PEER_EVERY);
        let by_another = known.sent_by != self.me
            && self.members.is_alive(now, known.sent_by)
            && known.sent_before(self.members.wall_of(now, known.sent_by)).is_some_and(|before| before < PEER_EVERY);
        by_us || by_another
    }

    /// Initiates to the active peers that have lost their gateway, most recently seen first.
    fn take_over(&mut self, now: Now, actions: &mut Vec<Action>) {
        let moved = self.members.others.iter().filter(|(_, other)| other.has_moved && !other.is_alive(now));
        let half_second = now.monotonic.as_millis() / 500;
        let moved = moved.fold(0, |all, (gateway, _)| all | 1 << gateway);
        let recovers = self.may_recover(now);
        let takers = self.members.takers_seen(now);
        let queued_for = QueuedFor { takers, moved, recovers, half_second };
        if self.reason(now).is_some() || (moved == 0 && !recovers) {
            self.queue.clear();
            self.queued_for = None;
            return;
        }
        if self.queued_for != Some(queued_for) {
            self.queued_for = Some(queued_for);
            let numbers = self.peers.all.keys().copied().filter(|number| self.is_lost(now, *number, moved, recovers));
            let mut lost: Vec<u32> = numbers.collect();
            lost.sort_by_key(|number| std::cmp::Reverse(self.peers.all.get(number).map_or(0, |known| known.seen)));
            self.queue = lost.into();
        }
        let mut orders = Vec::new();
        while orders.len() < INITIATIONS_PER_TICK
            && let Some(number) = self.queue.pop_front()
        {
            if self.is_lost(now, number, moved, recovers) {
                orders.extend(self.initiate_there(now, number));
            }
        }
        tell(orders, actions);
    }

    /// Whether sessions that our daemon lost when it ended are to be made anew: once all is known that others have taken over.
    fn may_recover(&self, now: Now) -> bool {
        let tables_are_here = self.members.others.values().all(|other| other.table_is_here || !other.is_alive(now));
        self.daemon_has_replied && tables_are_here && self.is_settled(now)
    }

    /// Whether it has been taking for long enough for the others to know.
    fn is_settled(&self, now: Now) -> bool {
        self.members.takers_seen(now).1 & 1 << self.me != 0
    }

    fn is_lost(&self, now: Now, number: u32, moved: u64, recovers: bool) -> bool {
        let Some(known) = self.peers.all.get(&number) else { return false };
        let was_tried = known.initiated_there.is_some_and(|there| now.monotonic < there + DAEMON_TRIES);
        let is_lost = match known.owner() {
            Some(owner) if owner == self.me => recovers && known.seen_here == 0,
            Some(owner) => moved & 1 << owner != 0 && self.members.is_ours(now, number),
            None => false,
        };
        is_lost && !was_tried && known.endpoint.is_some() && self.is_active(now, known)
    }

    /// Whether a peer may have a session, by the clock of who says when it was seen.
    fn is_active(&self, now: Now, known: &Known) -> bool {
        known.owner().is_some_and(|owner| known.is_active(self.members.wall_of(now, owner)))
    }

    /// Gives peers that are here to others, if this gateway drains. It goes on serving each until it has moved.
    fn give_away(&mut self, now: Now, actions: &mut Vec<Action>) {
        if !self.drains || !self.serves {
            return;
        }
        let mut given: BTreeMap<u8, Vec<PeerHint>> = BTreeMap::new();
        let (mut scanned, mut count) = (0, 0);
        let from = self.drained_to;
        self.drained_to = 0;
        for (&number, known) in self.peers.all.range_mut(from..) {
            if scanned == SCANNED_PER_TICK || count == INITIATIONS_PER_TICK {
                self.drained_to = number;
                break;
            }
            scanned += 1;
            let is_here = known.owner() == Some(self.me) && known.seen_here != 0 && known.is_active(now.wall);
            let was_given = known.given.is_some_and(|given| now.monotonic < given + GIVE_EVERY);
            let taker = self.members.responsible(now, number).filter(|taker| *taker != self.me);
            if let Some(taker) = taker.filter(|_| is_here && !was_given) {
                known.given = Some(now.monotonic);
                given.entry(taker).or_default().push(known.hint(number));
                count += 1;
            }
        }
        for (to, hints) in given {
            for hints in hints.chunks(HINTS_MAX) {
                let message = Message::Take { gateway: self.me, hints: hints.to_vec() };
                actions.push(Action::Send { to, bytes: message.encode() });
            }
        }
    }

    fn has_peers_to_give(&self, now: Now) -> bool {
        let mut owned = self.owned().filter_map(|number| self.peers.all.get(&number));
        owned.any(|known| known.is_active(now.wall))
    }

    fn tell_daemon(&mut self, actions: &mut Vec<Action>) {
        let mut orders = Vec::new();
        while self.serves
            && orders.len() < TOLD_PER_TICK
            && let Some(number) = self.to_daemon.pop_first()
        {
            if let Some(known) = self.peers.all.get(&number) {
                let (endpoint, sent, received) = (known.endpoint, known.sent, known.floor());
                if endpoint.is_some() || sent.is_some() || received.is_some() {
                    orders.push(Order { number, endpoint, sent, received, initiate: Initiate::No });
                }
            }
        }
        tell(orders, actions);
    }

    fn tell_others(&mut self, actions: &mut Vec<Action>) {
        for _ in 0..MESSAGES_PER_TICK {
            let mut hints = Vec::new();
            while hints.len() < HINTS_MAX
                && let Some(number) = self.to_others.pop_first()
            {
                hints.extend(self.peers.all.get(&number).map(|known| known.hint(number)));
            }
            if hints.is_empty() {
                return;
            }
            self.send_to_all(hints, actions);
        }
    }

    /// Repeats, slowly and in turn, what this gateway has told: some of it was lost.
    fn refresh(&mut self, actions: &mut Vec<Action>) {
        let (mut hints, mut scanned) = (Vec::new(), 0);
        let from = self.refreshed_to;
        self.refreshed_to = 0;
        for (&number, known) in self.peers.all.range(from..) {
            if hints.len() == HINTS_MAX || scanned == SCANNED_PER_TICK / 10 {
                self.refreshed_to = number;
                break;
            }
            scanned += 1;
            if known.owner() == Some(self.me) {
                hints.push(known.hint(number));
            }
        }
        if !hints.is_empty() {
            self.send_to_all(hints, actions);
        }
    }

    fn send_to_all(&self, hints: Vec<PeerHint>, actions: &mut Vec<Action>) {
        let bytes = Message::Hints { gateway: self.me, hints }.encode();
        actions.extend(self.members.others.keys().map(|&to| Action::Send { to, bytes: bytes.clone() }));
    }

    /// Sends all that this gateway knows to those who asked for it.
    fn send_tables(&mut self, now: Now, actions: &mut Vec<Action>) {
        for (&to, other) in &mut self.members.others {
            let Some(mut at) = other.table_at else { continue };
            for _ in 0..MESSAGES_PER_TICK {
                let known =
                    self.peers.all.range(at..).filter(|(_, known)| {
                        known.owner().is_some() || known.sent.is_some() || known.received.is_some()
                    });
                let hints: Vec<_> = known.take(HINTS_MAX).map(|(&number, known)| known.hint(number)).collect();
                let Some(last) = hints.last() else {
                    actions.push(Action::Send { to, bytes: Message::TableEnd { gateway: self.me }.encode() });
                    (other.table_at, other.table_sent) = (None, Some(now.monotonic));
                    break;
                };
                at = last.number + 1;
                other.table_at = Some(at);
                actions.push(Action::Send { to, bytes: Message::Hints { gateway: self.me, hints }.encode() });
            }
        }
    }
}

fn tell(orders: Vec<Order>, actions: &mut Vec<Action>) {
    if !orders.is_empty() {
        actions.push(Action::Tell(orders));
    }
}

const _: () = assert!(SETTLED_AFTER.as_millis() > HEARTBEAT_EVERY.as_millis() * 2);
