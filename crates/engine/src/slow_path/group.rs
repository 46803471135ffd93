//! Groups: gateways with different keys to the same networks. One of them, the active member, has the group's allowed IPs;
//! when it falls silent, they move to another (docs/fleet.md, "Many identities").
//!
//! A silence begins with the first data after which nothing authentic came ([`TrafficTimestamps::unanswered_since`]); the
//! data path notes that anyway. Half of the member's patience later it is sent an ICMP echo request, so that no traffic in
//! one direction looks like a silence; at its end the allowed IPs and the staged packets move. While the active member is
//! in use, the slow path looks at it once in half of its patience. At rest it does not: the device then has the data path
//! wake it with the first data ([`linerate_protocol::Device::watch`]). So the data path pays nothing for groups, and at
//! rest nothing is sent and nobody woken.
//!
//! [`TrafficTimestamps::unanswered_since`]: linerate_protocol::TrafficTimestamps::unanswered_since

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linerate_packet::icmp;
use linerate_protocol::constants::{REKEY_AFTER_TIME, REKEY_TIMEOUT};
use linerate_protocol::{Boottime, Effects, PeerId};

use super::SlowPath;
use super::effects::BackendRng;
use crate::backend::Backend;
use crate::config::{ConfigError, DeviceChange, GroupChange, PeerChange};
use crate::counters::EngineDropReason;
use crate::sync::lock;
use crate::tables::Peer;

/// The least patience with a silent member: a packet and its repetition may be lost.
const PATIENCE_MIN: Duration = Duration::from_millis(300);
/// The most, whatever the round-trip time.
const PATIENCE_MAX: Duration = Duration::from_secs(3);
/// That with a member whose round-trip time is not known.
const PATIENCE_UNKNOWN: Duration = Duration::from_secs(1);

/// A look that is this late says nothing of the member: its answer may be in a socket that nobody has read either.
const LATE: Duration = Duration::from_millis(100);

/// A member that has carried the traffic for this long is as good as one that never failed.
const PROBATION: Duration = Duration::from_secs(60);

/// The longest time between two attempts to reach a member that has failed; the shortest is [`REKEY_TIMEOUT`].
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Members of all groups of a device: each look at a group visits its members.
const MEMBERS_MAX: usize = 64;

/// While no member answers, each is asked this often.
const HOPELESS_PACE: Duration = Duration::from_secs(1);

const ECHO_MAX: usize = 64;

/// The groups of a device.
#[derive(Default)]
pub struct Groups {
    all: Vec<Group>,
    /// The identifier of our echo requests, once there are any, and the last sequence number.
    echo: Option<(u16, u16)>,
}

struct Group {
    name: String,
    /// In the order in which they joined; never empty.
    members: Vec<Member>,
    /// The index of the active one.
    active: usize,
    /// Since when it has been.
    active_since: Boottime,
    /// When to look at the group next; none at rest.
    look_at: Option<Boottime>,
    /// Since when packets have waited for a session of the active member.
    waiting_since: Option<Boottime>,
    silence: Option<Silence>,
}

/// The active member does not answer.
struct Silence {
    since: Boottime,
    /// The echo request, or the handshake, that it is to answer.
    asked: Option<Question>,
    /// A late look has been made up for.
    made_up: bool,
    /// It was given up, and there was no other.
    hopeless: bool,
}

struct Question {
    at: Boottime,
    /// Bytes received before, and what the answer alone would add.
    received: u64,
    answer: u64,
}

struct Member {
    id: PeerId,
    /// From which of our addresses, and where, echo requests go.
    check: (IpAddr, IpAddr),
    rtt: Option<Duration>,
    /// The time of the last handshake that `rtt` takes account of.
    handshake: Duration,
    /// When it was sent the initiation that it has not answered yet, as the one that would take over.
    asked: Option<Boottime>,
    failure: Option<Failure>,
    /// How often it failed without having carried traffic for [`PROBATION`] in between.
    strikes: u32,
}

struct Failure {
    at: Boottime,
    /// Until when it stays one even if the member is heard: a peer may shake hands and carry nothing.
    until: Boottime,
    retry_at: Boottime,
    retries: u32,
}

impl Member {
    fn new(id: PeerId, check: (IpAddr, IpAddr)) -> Self {
        let (rtt, handshake, asked, failure) = Default::default();
        Self { id, check, rtt, handshake, asked, failure, strikes: 0 }
    }

    /// How long it may be silent.
    fn patience(&self) -> Duration {
        self.rtt.map_or(PATIENCE_UNKNOWN, |rtt| (4 * rtt).clamp(PATIENCE_MIN, PATIENCE_MAX))
    }

    fn note_rtt(&mut self, sample: Duration) {
        // Quick to grow and slow to shrink: patience is cheaper than a move for nothing.
        let average = self.rtt.map_or(sample, |rtt| (rtt * 7 + sample) / 8);
        self.rtt = Some(sample.max(average));
    }

    fn fail(&mut self, now: Boottime) {
        self.asked = None;
        self.strikes = self.strikes.saturating_add(1);
        // It may have been started again, and have lost its sessions: it is asked at once, unless it keeps failing.
        let until = if self.strikes == 1 { now } else { now.after(backoff(self.strikes - 2)) };
        self.failure = Some(Failure { at: now, until, retry_at: until, retries: 0 });
    }
}

fn backoff(times: u32) -> Duration {
    (REKEY_TIMEOUT * 2u32.saturating_pow(times.min(8))).min(RETRY_MAX)
}

impl Groups {
    fn index_of(&self, id: PeerId) -> Option<usize> {
        self.all.iter().position(|group| group.members.iter().any(|member| member.id == id))
    }

    pub(super) fn deadline(&self) -> Option<Boottime> {
        self.all.iter().filter_map(|group| group.look_at).min()
    }
}

impl Group {
    fn active(&self) -> &Member {
        &self.members[self.active]
    }

    /// Half of the patience with the active member: how long until the next look at the latest.
    fn pace(&self) -> Duration {
        self.active().patience() / 2
    }

    fn look_by(&mut self, at: Boottime) {
        self.look_at = Some(self.look_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// Who is in which group.
impl<B: Backend> SlowPath<B> {
    /// Refuses more members than a look can visit, and a member that nothing could be asked of.
    pub(super) fn check_groups(&self, change: &DeviceChange) -> Result<(), ConfigError> {
        let joins = |peer: &&PeerChange| !peer.remove && peer.group.name.as_ref().is_some_and(|name| !name.is_empty());
        let is_member = |peer: &PeerChange| self.device.peer(&peer.public_key).and_then(|id| self.groups.index_of(id));
        let present: usize = self.groups.all.iter().map(|group| group.members.len()).sum();
        let present = if change.replace_peers { 0 } else { present };
        let more = change.peers.iter().filter(joins).filter(|peer| change.replace_peers || is_member(peer).is_none());
        if present + more.count() > MEMBERS_MAX {
            return Err(ConfigError::TooManyMembers);
        }
        let is_unchecked = |peer: &PeerChange| peer.group.check.is_none() && is_member(peer).is_none();
        match change.peers.iter().filter(joins).any(is_unchecked) {
            true => Err(ConfigError::NoCheck),
            false => Ok(()),
        }
    }

    /// Changes a peer's group.
    pub(super) fn set_group(&mut self, id: PeerId, change: &GroupChange) {
        if let Some(name) = &change.name {
            let group = self.groups.index_of(id).map(|index| &self.groups.all[index]);
            let known = group.and_then(|group| group.members.iter().find(|member| member.id == id));
            let check = change.check.or(known.map(|member| member.check));
            if group.is_none_or(|group| group.name != *name) {
                self.leave_group(id);
                if let Some(check) = check.filter(|_| !name.is_empty()) {
                    self.join_group(Member::new(id, check), name);
                }
            }
        }
        let Some(group) = self.groups.index_of(id).map(|index| &mut self.groups.all[index]) else { return };
        for member in group.members.iter_mut().filter(|member| member.id == id) {
            member.check = change.check.unwrap_or(member.check);
        }
        // Its endpoint may have changed as well.
        group.look_by(Boottime(0));
    }

    fn join_group(&mut self, member: Member, name: &str) {
        let now = self.shared.backend.boottime();
        if let Some(group) = self.groups.all.iter_mut().find(|group| group.name == name) {
            let id = member.id;
            group.members.push(member);
            let active = group.active().id;
            // What it has is the group's.
            let own: Vec<_> = self.allowed_ips(id).into_iter().map(|prefix| (true, prefix)).collect();
            return self.set_allowed_ips(active, false, &own);
        }
        self.groups.all.push(Group {
            name: name.to_owned(),
            members: vec![member],
            active: 0,
            active_since: now,
            look_at: None,
            waiting_since: None,
            silence: None,
        });
    }

    /// Takes a peer out of its group. If it is the active member, another takes its place first.
    pub(super) fn leave_group(&mut self, id: PeerId) {
        let Some(index) = self.groups.index_of(id) else { return };
        if self.groups.all[index].active().id == id
            && let Some(next) = self.successor(index, false)
        {
            self.move_to(index, next, "it is not in the group any more");
        }
        self.watch(id, false);
        let group = &mut self.groups.all[index];
        let active = group.active().id;
        group.members.retain(|member| member.id != id);
        match group.members.iter().position(|member| member.id == active) {
            Some(place) => group.active = place,
            None => drop(self.groups.all.remove(index)),
        }
    }

    /// Whose allowed IPs a change of a peer's changes: those of a member are the group's. None if the change has no prefix
    /// and says only that a member that is not active has none.
    pub(super) fn owner_of_allowed_ips(&self, id: PeerId, has_prefixes: bool) -> Option<PeerId> {
        let Some(group) = self.groups.index_of(id) else { return Some(id) };
        let active = self.groups.all[group].active().id;
        (active == id || has_prefixes).then_some(active)
    }
}

/// What happens while a group is in use.
impl<B: Backend> SlowPath<B> {
    /// The data path has woken the slow path for a peer.
    pub(super) fn group_woken(&mut self, peer: &Arc<Peer>) {
        let Some(index) = self.groups.index_of(peer.id) else { return };
        let group = &mut self.groups.all[index];
        let active = group.active().id;
        if active == peer.id {
            return group.look_by(Boottime(0));
        }
        // A worker had looked the route up before the group moved.
        let late = peer.traffic.unanswered_since().is_some();
        if self.move_staged(peer.id, active) | late {
            self.give_up(peer.id);
        }
    }

    /// Looks at the groups that are due; true if there was any.
    pub(super) fn process_groups(&mut self) -> bool {
        let mut found = false;
        for index in 0..self.groups.all.len() {
            let now = self.shared.backend.boottime();
            let Some(due) = self.groups.all[index].look_at.filter(|at| *at <= now) else { continue };
            found = true;
            self.groups.all[index].look_at = None;
            self.look(index, now, due);
        }
        found
    }

    fn look(&mut self, index: usize, now: Boottime, due: Boottime) {
        let active = self.groups.all[index].active().id;
        let Some(peer) = self.shared.tables.routes().peer(active).cloned() else { return };
        self.watch(active, false);
        self.hear_members(index, now);
        let has_endpoint = self.effects.has_endpoint(active);
        if !has_endpoint && let Some(next) = self.successor(index, true) {
            self.move_to(index, next, "it has no endpoint");
            return;
        }
        let since = if self.device.is_up() { self.silent_since(index, &peer, now) } else { None };
        let moved = match since {
            Some(since) => self.bear(index, &peer, since, now, due),
            None => self.silence_ends(index, &peer),
        };
        if moved {
            return;
        }
        let pace = self.groups.all[index].pace();
        if since.is_none() && now.since(peer.traffic.last_sent()) >= pace {
            return self.rest(index, &peer, now);
        }
        self.keep_another_ready(index, now);
        self.retry_failed(index, now);
        self.groups.all[index].look_by(now.after(pace));
    }

    /// The active member is not in use: nothing happens until it is.
    fn rest(&mut self, index: usize, peer: &Peer, now: Boottime) {
        self.watch(peer.id, true);
        // Whoever comes second sees the other: the data path notes what it sends before it asks whether to wake us.
        if self.silent_since(index, peer, now).is_some() {
            let pace = self.groups.all[index].pace();
            self.groups.all[index].look_by(now.after(pace));
        }
    }

    /// Since when the active member owes an answer: to data, or to the handshake that packets wait for.
    fn silent_since(&mut self, index: usize, peer: &Peer, now: Boottime) -> Option<Boottime> {
        let is_waiting = !self.device.has_session(now, peer.id) && !lock(&peer.staged).is_empty();
        let waiting = &mut self.groups.all[index].waiting_since;
        if is_waiting {
            return Some(*waiting.get_or_insert(now));
        }
        *waiting = None;
        peer.traffic.unanswered_since()
    }

    /// Whom was heard of since the last look, and how fast they answer.
    fn hear_members(&mut self, index: usize, now: Boottime) {
        let routes = self.shared.tables.routes();
        for member in &mut self.groups.all[index].members {
            let Some(peer) = routes.peer(member.id) else { continue };
            let heard = peer.traffic.last_received();
            if member.failure.as_ref().is_some_and(|failure| failure.at <= heard && failure.until <= now) {
                member.failure = None;
            }
            match member.asked {
                Some(asked) if asked <= heard => member.asked = None,
                Some(asked) if now.since(asked) >= member.patience().max(PATIENCE_UNKNOWN) => {
                    tracing::debug!("peer {:?} of a group does not answer", peer.key);
                    member.fail(now);
                }
                _ => {}
            }
            let handshake = peer.last_handshake();
            if handshake != member.handshake {
                member.handshake = handshake;
                let time = peer.handshake_time();
                if !time.is_zero() {
                    member.note_rtt(time);
                }
            }
        }
    }

    /// Asks a silent member, and gives it up at the end of the patience with it; true if the group has moved.
    fn bear(&mut self, index: usize, peer: &Arc<Peer>, since: Boottime, now: Boottime, due: Boottime) -> bool {
        let group = &mut self.groups.all[index];
        let (patience, pace) = (group.active().patience(), group.pace());
        if group.silence.as_ref().is_none_or(|silence| silence.since != since) {
            group.silence = Some(Silence { since, asked: None, made_up: false, hopeless: false });
        }
        let Some(silence) = &mut group.silence else { return false };
        if silence.hopeless {
            if silence.asked.as_ref().is_none_or(|asked| now.since(asked.at) >= HOPELESS_PACE) {
                silence.asked = Some(Question { at: now, received: 0, answer: 0 });
                self.ask_all(index);
            }
            return self.give_way(index, since, now);
        }
        let is_late = now.since(due) > LATE && due.0 != 0;
        let ask_at = since.after(pace);
        match &silence.asked {
            None if now < ask_at => {
                group.look_by(ask_at);
                return false;
            }
            Some(asked) if now < asked.at.after(pace).max(since.after(patience)) => {
                let end = asked.at.after(pace).max(since.after(patience));
                group.look_by(end);
                return false;
            }
            Some(_) if !is_late || silence.made_up => return self.give_way(index, since, now),
            Some(_) => silence.made_up = true,
            None => {}
        }
        let place = group.active;
        let answer = self.send_echo(index, place);
        let (received, _) = peer.transfer();
        let group = &mut self.groups.all[index];
        if let Some(silence) = &mut group.silence {
            silence.asked = Some(Question { at: now, received, answer });
        }
        group.look_by(now.after(pace).max(since.after(patience)));
        false
    }

    /// Sends an echo request to every member that has a session.
    fn ask_all(&mut self, index: usize) {
        for place in 0..self.groups.all[index].members.len() {
            let sent = self.send_echo(index, place) > 0;
            let group = &self.groups.all[index];
            if sent && place != group.active {
                // Only the active member owes an answer: to others no handshake follows.
                self.give_up(group.members[place].id);
            }
        }
    }

    /// The active member has answered, or owes nothing.
    fn silence_ends(&mut self, index: usize, peer: &Peer) -> bool {
        let group = &mut self.groups.all[index];
        let (received, _) = peer.transfer();
        let asked = group.silence.take().and_then(|silence| silence.asked);
        // If nothing else has come, the answer came when something last did.
        if let Some(asked) = asked.filter(|asked| asked.answer > 0 && received - asked.received == asked.answer) {
            let rtt = peer.traffic.last_received().since(asked.at);
            let active = group.active;
            group.members[active].note_rtt(rtt);
        }
        false
    }

    /// Sends an echo request through a member's session, and nothing if it has none. Returns how many bytes its answer
    /// counts. The kernel gets the answer and ignores it, as nobody there has asked.
    fn send_echo(&mut self, index: usize, place: usize) -> u64 {
        let Member { id, check: (source, target), .. } = self.groups.all[index].members[place];
        let Some(peer) = self.shared.tables.routes().peer(id).cloned() else { return 0 };
        let (identifier, sequence) = self.groups.echo.map_or_else(
            || {
                let mut identifier = [0; 2];
                self.shared.backend.fill(&mut identifier);
                (u16::from_ne_bytes(identifier), 0)
            },
            |(identifier, sequence)| (identifier, sequence.wrapping_add(1)),
        );
        self.groups.echo = Some((identifier, sequence));
        let mut echo = [0; ECHO_MAX];
        let now = self.shared.backend.boottime();
        let len = icmp::echo_request(source, target, identifier, sequence, &mut echo);
        let Some(len) = len.filter(|_| self.device.has_session(now, peer.id)) else { return 0 };
        let dropped = lock(&peer.staged).push(len, &self.shared.staged, |packet| packet.copy_from_slice(&echo[..len]));
        self.shared.counters.count_drops(EngineDropReason::StagedOverflow, dropped as u64);
        self.shared.counters.group_echoes.fetch_add(1, Ordering::Relaxed);
        self.effects.send_staged(peer.id);
        (len + crate::outbound::OVERHEAD) as u64
    }

    /// The patience with the active member is over: moves to another, if one is there. True if it did.
    fn give_way(&mut self, index: usize, since: Boottime, now: Boottime) -> bool {
        let group = &mut self.groups.all[index];
        let place = group.active;
        let member = &mut group.members[place];
        if member.failure.is_none() {
            if now.since(group.active_since) >= PROBATION {
                member.strikes = 0;
            }
            member.fail(now);
        }
        if let Some(next) = self.successor(index, true) {
            self.move_to(index, next, "it does not answer");
            return true;
        }
        let group = &mut self.groups.all[index];
        if let Some(silence) = group.silence.as_mut().filter(|silence| !silence.hopeless) {
            silence.hopeless = true;
            let silent = now.since(since).as_millis();
            tracing::info!("group {}: no peer answers; the one in use has not for {silent} ms", group.name);
            group
                .members
                .iter_mut()
                .filter_map(|member| member.failure.as_mut())
                .for_each(|failure| failure.retry_at = now);
        }
        false
    }

    /// Who takes over from the active member: of those with a session the one that was heard last, else the next. Only of
    /// those that have not failed, if there `has_to_be_good`.
    fn successor(&self, index: usize, has_to_be_good: bool) -> Option<usize> {
        let group = &self.groups.all[index];
        let now = self.shared.backend.boottime();
        let routes = self.shared.tables.routes();
        let count = group.members.len();
        // From the last to the next: `max_by_key` takes the last of equals.
        let others = (1..count).rev().map(|step| (group.active + step) % count);
        let rank = |place: &usize| {
            let member = &group.members[*place];
            let heard = routes.peer(member.id).map_or(Boottime(0), |peer| peer.traffic.last_received());
            let session = self.device.has_session(now, member.id);
            (member.failure.is_none(), session, if session { heard } else { Boottime(0) })
        };
        let is_possible = |place: &usize| {
            let member = &group.members[*place];
            let is_let_in = routes.peer(member.id).is_some_and(|peer| !peer.is_suspended());
            let is_good = member.failure.is_none() && is_let_in && self.effects.has_endpoint(member.id);
            is_good || !has_to_be_good
        };
        others.filter(is_possible).max_by_key(rank)
    }

    /// Gives the allowed IPs, and what is staged, to another member.
    fn move_to(&mut self, index: usize, to: usize, why: &str) {
        let now = self.shared.backend.boottime();
        let group = &mut self.groups.all[index];
        let (old, new) = (group.active().id, group.members[to].id);
        (group.active, group.active_since) = (to, now);
        (group.waiting_since, group.silence) = (None, None);
        group.members[to].asked = None;
        group.look_at = Some(now);
        let prefixes: Vec<_> = self.allowed_ips(old).into_iter().map(|prefix| (true, prefix)).collect();
        self.set_allowed_ips(new, false, &prefixes);
        self.shared.configured.fetch_add(1, Ordering::SeqCst);
        self.shared.counters.group_moves.fetch_add(1, Ordering::Relaxed);
        let key = |id| self.shared.tables.routes().peer(id).map(|peer| peer.key);
        if let (Some(old), Some(new)) = (key(old), key(new)) {
            let name = &self.groups.all[index].name;
            tracing::info!("group {name}: peer {new:?} takes over from {old:?}: {why}");
        }
        self.watch(old, false);
        self.move_staged(old, new);
        self.give_up(old);
    }

    /// Moves what is staged for one peer to another, and has that one send it; true if there was anything.
    fn move_staged(&mut self, from: PeerId, to: PeerId) -> bool {
        let routes = self.shared.tables.routes();
        let (Some(old), Some(new)) = (routes.peer(from).cloned(), routes.peer(to).cloned()) else { return false };
        drop(routes);
        let mut moved = false;
        loop {
            let packet = lock(&old.staged).pop(&self.shared.staged);
            let Some(packet) = packet else { break };
            moved = true;
            let write = |copy: &mut [u8]| copy.copy_from_slice(&packet);
            let dropped = lock(&new.staged).push(packet.len(), &self.shared.staged, write);
            self.shared.counters.count_drops(EngineDropReason::StagedOverflow, dropped as u64);
        }
        if moved {
            let now = self.shared.backend.now();
            if self.device.has_session(now.boot, to) {
                self.effects.send_staged(to);
            } else {
                // The wake-up is this one.
                let _ = new.traffic.request_handshake();
                self.device.woken(now, &mut BackendRng(&self.shared.backend), to, &mut self.effects);
            }
        }
        moved
    }

    /// While the group is in use, one more member has a session, from which the traffic can go on at once.
    fn keep_another_ready(&mut self, index: usize, now: Boottime) {
        let Some(place) = self.successor(index, true) else { return };
        let member = &self.groups.all[index].members[place];
        let is_fresh = self.device.session_age(now, member.id).is_some_and(|age| age < REKEY_AFTER_TIME);
        if !is_fresh && member.asked.is_none() && self.initiate_once(member.id) {
            self.groups.all[index].members[place].asked = Some(now);
        }
    }

    /// Asks members that have failed whether they are back, ever more seldom unless there is no other.
    fn retry_failed(&mut self, index: usize, now: Boottime) {
        let is_hopeless = self.groups.all[index].silence.as_ref().is_some_and(|silence| silence.hopeless);
        for place in 0..self.groups.all[index].members.len() {
            let member = &self.groups.all[index].members[place];
            let Some(failure) = &member.failure else { continue };
            if failure.retry_at > now {
                continue;
            }
            let sent = self.initiate_once(member.id);
            let member = &mut self.groups.all[index].members[place];
            let strikes = member.strikes.saturating_sub(1);
            if let Some(failure) = &mut member.failure {
                let pause = match sent {
                    // As a peer alone is asked.
                    true if is_hopeless => REKEY_TIMEOUT,
                    true => backoff(failure.retries.saturating_add(strikes)),
                    // The last initiation left less than 5 s ago.
                    false => PATIENCE_UNKNOWN,
                };
                failure.retries = failure.retries.saturating_add(u32::from(sent));
                failure.retry_at = now.after(pause);
            }
        }
    }

    fn watch(&mut self, id: PeerId, watched: bool) {
        let now = self.shared.backend.now();
        self.device.watch(now, &mut BackendRng(&self.shared.backend), id, watched, &mut self.effects);
    }

    fn give_up(&mut self, id: PeerId) {
        let now = self.shared.backend.now();
        self.device.give_up(now, &mut BackendRng(&self.shared.backend), id, &mut self.effects);
    }

    fn initiate_once(&mut self, id: PeerId) -> bool {
        let now = self.shared.backend.now();
        self.device.initiate_once(now, &mut BackendRng(&self.shared.backend), id, &mut self.effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Member {
        Member::new(PeerId(0), ([10, 9, 0, 2].into(), [10, 9, 0, 1].into()))
    }

    fn with_rtt(millis: u64) -> Member {
        let mut member = member();
        member.note_rtt(Duration::from_millis(millis));
        member
    }

    #[test]
    fn patience_is_four_round_trips_within_bounds() {
        let patience = |millis| with_rtt(millis).patience().as_millis();
        assert_eq!([0, 10, 75, 100, 500, 5000].map(patience), [300, 300, 300, 400, 2000, 3000]);
        assert_eq!(member().patience(), PATIENCE_UNKNOWN);
    }

    #[test]
    fn one_slow_answer_counts_at_once_and_is_forgotten_slowly() {
        let mut member = with_rtt(20);
        member.note_rtt(Duration::from_millis(200));
        assert_eq!(member.rtt, Some(Duration::from_millis(200)));
        member.note_rtt(Duration::from_millis(20));
        assert_eq!(member.rtt, Some(Duration::from_micros(177_500)));
        (0..40).for_each(|_| member.note_rtt(Duration::from_millis(20)));
        assert!(member.rtt.unwrap() < Duration::from_millis(22));
    }

    #[test]
    fn a_member_that_keeps_failing_is_kept_out_for_ever_longer_up_to_a_minute() {
        let (mut member, now) = (member(), Boottime::from_secs(1000));
        let out = (0..10).map(|_| {
            member.fail(now);
            member.failure.as_ref().unwrap().until.since(now).as_secs()
        });
        assert_eq!(out.collect::<Vec<_>>(), [0, 5, 10, 20, 40, 60, 60, 60, 60, 60]);
    }
}
