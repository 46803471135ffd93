//! A watcher beside a simulated host: what it learns by and by is what another one reads at once, and every change is
//! an event.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::Duration;

use linerate_control::keys::PublicKey;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::limits::Suspension;
use linerate_control::uapi::response::{Activity, DeviceState, PeerState, ReplyError};
use linerate_tunnel::status::Whereabouts;
use linerate_watch::events::{self, What};
use linerate_watch::host::{Connection, Found, Host, Now, Stamp};
use linerate_watch::{Ask, Daemon, Time, View, Watcher};
use proptest::prelude::*;

const NAMES: [&str; 2] = ["wg0", "wg1"];
const ALL: Ask = Ask { counters: true, processes: true };
const START: Duration = Duration::from_secs(1_700_000_000);

proptest! {
    #[test]
    fn a_watcher_that_applied_changes_has_what_one_reads_at_once(
        acts in prop::collection::vec(act(), 1..60),
        is_linerated in any::<bool>(),
    ) {
        let host = Simulation::new(is_linerated);
        let mut watcher = Watcher::of(host.clone(), None);
        for act in acts {
            if let Act::Poll = act {
                watcher.poll(ALL).unwrap();
            } else {
                host.0.borrow_mut().act(&act);
            }
        }
        let learnt = watcher.poll(ALL).unwrap();
        let read = Watcher::of(host.clone(), None).poll(ALL).unwrap();
        prop_assert_eq!(comparable(learnt, is_linerated), comparable(read, is_linerated));
    }

    #[test]
    fn every_change_between_two_polls_is_told(acts in prop::collection::vec(act(), 0..8)) {
        let host = Simulation::new(true);
        host.0.borrow_mut().act(&Act::Add(0, 0));
        let mut watcher = Watcher::of(host.clone(), None);
        let before = watcher.poll(ALL).unwrap();
        acts.iter().for_each(|act| host.0.borrow_mut().act(act));
        let after = watcher.poll(ALL).unwrap();
        let events = events::between(&before, &after);
        prop_assert!(events::between(&after, &after).is_empty());
        let told = |interface: &str, is: fn(&What) -> bool| {
            events.iter().any(|event| event.tunnel == interface && is(&event.what))
        };
        for name in NAMES {
            let (Some(old), Some(new)) = (before.tunnel(name), after.tunnel(name)) else {
                let has_changed = before.tunnel(name).is_some() != after.tunnel(name).is_some();
                prop_assert_eq!(told(name, |what| matches!(what, What::Up | What::Down)), has_changed);
                continue;
            };
            if old.instance != new.instance {
                prop_assert!(told(name, |what| *what == What::Restarted));
                continue;
            }
            for peer in &new.peers {
                let is_new = !old.peers.iter().any(|old| old.settings.public_key == peer.settings.public_key);
                let key = peer.settings.public_key.to_string();
                let is_of = |event: &&events::Event| {
                    event.tunnel == name && event.peer.as_ref().is_some_and(|peer| peer.public_key == key)
                };
                let is_added = events.iter().filter(is_of).any(|event| event.what == What::Added);
                prop_assert_eq!(is_added, is_new);
            }
        }
    }
}

#[test]
fn a_poll_at_rest_reads_no_peer() {
    let host = Simulation::new(true);
    (0..9).for_each(|key| host.0.borrow_mut().act(&Act::Add(0, key)));
    let mut watcher = Watcher::of(host.clone(), None);
    watcher.poll(Ask::default()).unwrap();
    assert_eq!(host.peers_read(), 18, "all of them, twice: their traffic and their settings");
    host.0.borrow_mut().act(&Act::Pass(3));
    watcher.poll(Ask::default()).unwrap();
    assert_eq!(host.peers_read(), 18);
    host.0.borrow_mut().act(&Act::Receive(0, 4, 100));
    let view = watcher.poll(Ask::default()).unwrap();
    assert_eq!(host.peers_read(), 19);
    assert_eq!(view.tunnels[0].peers[4].received, 100);
}

#[test]
fn rates_are_those_since_the_last_poll_and_end_with_the_traffic() {
    let host = Simulation::new(true);
    host.0.borrow_mut().act(&Act::Add(0, 0));
    let mut watcher = Watcher::of(host.clone(), None);
    let rates = |view: &View| view.tunnels[0].peers[0].rates.map(|rates| (rates.received, rates.sent));
    assert_eq!(rates(&watcher.poll(ALL).unwrap()), None);
    for (seconds, bytes, expected) in [(2, 300, 150.0), (3, 0, 0.0), (1, 7, 7.0)] {
        host.0.borrow_mut().act(&Act::Pass(seconds));
        host.0.borrow_mut().act(&Act::Receive(0, 0, bytes));
        let view = watcher.poll(ALL).unwrap();
        assert_eq!(rates(&view), Some((expected, 0.0)));
        assert_eq!(view.tunnels[0].daemon.unwrap().cpu, Some(0.5));
    }
}

#[test]
fn a_peer_that_does_not_answer_is_silent_and_one_that_only_gets_keepalives_is_not() {
    let host = Simulation::new(true);
    let act = |act| host.0.borrow_mut().act(&act);
    act(Act::Add(0, 0));
    act(Act::Add(0, 1));
    act(Act::Keepalive(0, 1, 25));
    let mut watcher = Watcher::of(host.clone(), None);
    let mut before = watcher.poll(ALL).unwrap();
    let mut told = Vec::new();
    for second in 0..200 {
        act(Act::Pass(1));
        // The one gets data for a while, and answers at the end; the other one a keepalive every 25 seconds.
        match second {
            5..60 => act(Act::Send(0, 0, 148)),
            100 => act(Act::Receive(0, 0, 92)),
            _ => {}
        }
        if second % 25 == 0 {
            act(Act::Send(0, 1, 32));
        }
        let after = watcher.poll(ALL).unwrap();
        told.extend(events::between(&before, &after).into_iter().map(|event| (second, event.what)));
        before = after;
    }
    let [(silent, What::Silent { last_received: None }), (100, What::Back { seconds: 95 })] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(*silent, 25);
}

#[test]
fn a_daemon_that_dies_and_comes_back_is_told_by_what_is_recorded() {
    let host = Simulation::new(true);
    host.0.borrow_mut().act(&Act::Add(0, 0));
    let mut watcher = Watcher::of(host.clone(), None);
    let mut views = vec![watcher.poll(ALL).unwrap()];
    host.0.borrow_mut().recorded = true;
    for act in [Act::Stop(0), Act::Start(0), Act::Restart(0), Act::Pass(1)] {
        host.0.borrow_mut().act(&act);
        views.push(watcher.poll(ALL).unwrap());
    }
    let told: Vec<_> = views.windows(2).flat_map(|pair| events::between(&pair[0], &pair[1])).collect();
    let told: Vec<_> = told.into_iter().map(|event| event.what).collect();
    assert_eq!(told, [What::Died, What::Restarted, What::Restarted]);
    host.0.borrow_mut().recorded = false;
    host.0.borrow_mut().act(&Act::Stop(0));
    let last = watcher.poll(ALL).unwrap();
    assert_eq!(events::between(&views[4], &last)[0].what, What::Down);
}

#[test]
fn limits_are_told_and_what_is_used_grows_with_the_traffic() {
    let host = Simulation::new(true);
    let act = |act| host.0.borrow_mut().act(&act);
    act(Act::Add(0, 0));
    act(Act::Limit(0, 0, 1000));
    let mut watcher = Watcher::of(host.clone(), None);
    let first = watcher.poll(ALL).unwrap();
    act(Act::Receive(0, 0, 300));
    let second = watcher.poll(ALL).unwrap();
    assert_eq!(second.tunnels[0].peers[0].quota_used, 300);
    act(Act::Receive(0, 0, 700));
    let third = watcher.poll(ALL).unwrap();
    act(Act::Limit(0, 0, 9000));
    let fourth = watcher.poll(ALL).unwrap();
    let what = |before, after| events::between(before, after).into_iter().map(|event| event.what).collect::<Vec<_>>();
    assert_eq!(what(&first, &second), []);
    assert_eq!(what(&second, &third), [What::Quota]);
    assert_eq!(what(&third, &fourth), [What::LetIn]);
}

#[test]
fn a_peer_has_the_name_that_its_file_gives_it_now() {
    let host = Simulation::new(true);
    host.0.borrow_mut().act(&Act::Add(0, 0));
    let mut watcher = Watcher::of(host.clone(), Some("wg0"));
    assert_eq!(watcher.poll(ALL).unwrap().tunnels[0].peers[0].settings.name, None);
    host.0.borrow_mut().act(&Act::Name(0, 0, 7));
    assert_eq!(watcher.poll(ALL).unwrap().tunnels[0].peers[0].label(), "name 7");
}

#[test]
fn a_view_as_json_has_no_secret_and_the_documented_names() {
    let host = Simulation::new(true);
    host.0.borrow_mut().act(&Act::Add(0, 0));
    let view = Watcher::of(host, None).poll(ALL).unwrap();
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!(json["time"], "2023-11-14T22:13:20.000Z");
    let peer = &json["tunnels"][0]["peers"][0];
    assert_eq!(peer["publicKey"], PublicKey([1; 32]).to_string());
    assert_eq!((&peer["received"], &peer["quotaUsed"]), (&0.into(), &0.into()));
    assert_eq!(json["tunnels"][0]["implementation"], "daemon");
}

/// What two watchers must agree on: neither what depends on when they looked, nor on what one saw before.
fn comparable(mut view: View, is_linerated: bool) -> View {
    for tunnel in &mut view.tunnels {
        tunnel.instance = 0;
        tunnel.counters.iter_mut().for_each(|counter| counter.per_second = None);
        tunnel.daemon.iter_mut().for_each(|daemon| daemon.cpu = None);
        tunnel.peers = std::mem::take(&mut tunnel.peers).into_iter().map(|peer| peer.without_history()).collect();
        if !is_linerated {
            tunnel.peers.iter_mut().for_each(|peer| peer.last_received = None);
        }
    }
    view
}

#[derive(Clone, Debug)]
enum Act {
    Poll,
    Pass(u64),
    Start(usize),
    Stop(usize),
    Restart(usize),
    Add(usize, u8),
    Remove(usize, u8),
    /// Removed and added at once.
    Replace(usize, u8),
    Receive(usize, u8, u64),
    Send(usize, u8, u64),
    Handshake(usize, u8),
    Roam(usize, u8, u16),
    Keepalive(usize, u8, u16),
    Limit(usize, u8, u64),
    Name(usize, u8, u64),
}

fn act() -> impl Strategy<Value = Act> {
    let (tunnel, key) = (0..NAMES.len(), 0..5u8);
    let peer = (tunnel.clone(), key);
    prop_oneof![
        4 => Just(Act::Poll),
        4 => (0..5u64).prop_map(Act::Pass),
        1 => tunnel.clone().prop_map(Act::Start),
        1 => tunnel.clone().prop_map(Act::Stop),
        1 => tunnel.prop_map(Act::Restart),
        4 => peer.clone().prop_map(|(tunnel, key)| Act::Add(tunnel, key)),
        1 => peer.clone().prop_map(|(tunnel, key)| Act::Remove(tunnel, key)),
        1 => peer.clone().prop_map(|(tunnel, key)| Act::Replace(tunnel, key)),
        4 => (peer.clone(), 0..2000u64).prop_map(|((tunnel, key), bytes)| Act::Receive(tunnel, key, bytes)),
        4 => (peer.clone(), 0..2000u64).prop_map(|((tunnel, key), bytes)| Act::Send(tunnel, key, bytes)),
        1 => peer.clone().prop_map(|(tunnel, key)| Act::Handshake(tunnel, key)),
        1 => (peer.clone(), 1..9u16).prop_map(|((tunnel, key), port)| Act::Roam(tunnel, key, port)),
        1 => (peer.clone(), 0..9u16).prop_map(|((tunnel, key), seconds)| Act::Keepalive(tunnel, key, seconds)),
        1 => (peer.clone(), 0..3000u64).prop_map(|((tunnel, key), quota)| Act::Limit(tunnel, key, quota)),
        1 => (peer, 0..3u64).prop_map(|((tunnel, key), name)| Act::Name(tunnel, key, name)),
    ]
}

/// A host on which daemons run.
#[derive(Clone)]
struct Simulation(Rc<RefCell<World>>);

struct World {
    /// Seconds since the start.
    time: u64,
    is_linerated: bool,
    recorded: bool,
    started: u32,
    daemons: BTreeMap<usize, Rc<RefCell<Process>>>,
    names: BTreeMap<(usize, u8), u64>,
    /// How often the files have changed.
    changes: i128,
    peers_read: usize,
}

struct Process {
    pid: u32,
    configured: u64,
    peers: Vec<SimulatedPeer>,
}

struct SimulatedPeer {
    key: u8,
    state: PeerState,
    /// When anything was sent or received, in nanoseconds.
    last: u64,
}

type Shared<T> = Rc<RefCell<T>>;

struct Client {
    world: Weak<RefCell<World>>,
    process: Weak<RefCell<Process>>,
    pid: u32,
    closed: bool,
}

impl Simulation {
    /// With one daemon.
    fn new(is_linerated: bool) -> Self {
        let mut world = World {
            time: 0,
            is_linerated,
            recorded: false,
            started: 0,
            daemons: BTreeMap::new(),
            names: BTreeMap::new(),
            changes: 0,
            peers_read: 0,
        };
        world.act(&Act::Start(0));
        Self(Rc::new(RefCell::new(world)))
    }

    fn peers_read(&self) -> usize {
        self.0.borrow().peers_read
    }
}

impl World {
    fn nanoseconds(&self) -> u64 {
        (self.time + 100) * 1_000_000_000
    }

    fn start(&mut self, tunnel: usize) {
        self.started += 1;
        let process = Process { pid: self.started, configured: 0, peers: Vec::new() };
        self.daemons.insert(tunnel, Rc::new(RefCell::new(process)));
    }

    fn act(&mut self, act: &Act) {
        let now = self.nanoseconds();
        let wall = START + Duration::from_secs(self.time);
        match *act {
            Act::Poll => {}
            Act::Pass(seconds) => self.time += seconds,
            Act::Start(tunnel) if self.daemons.contains_key(&tunnel) => {}
            Act::Start(tunnel) | Act::Restart(tunnel) => self.start(tunnel),
            Act::Stop(tunnel) => drop(self.daemons.remove(&tunnel)),
            Act::Add(tunnel, key) => self.configure(tunnel, |peers| {
                if !peers.iter().any(|peer| peer.key == key) {
                    peers.push(SimulatedPeer::new(key));
                }
            }),
            Act::Remove(tunnel, key) => self.configure(tunnel, |peers| peers.retain(|peer| peer.key != key)),
            Act::Replace(tunnel, key) => self.configure(tunnel, |peers| {
                peers.iter_mut().filter(|peer| peer.key == key).for_each(|peer| *peer = SimulatedPeer::new(key));
            }),
            Act::Keepalive(tunnel, key, seconds) => self.configure(tunnel, |peers| {
                let of_key = peers.iter_mut().filter(|peer| peer.key == key);
                of_key.for_each(|peer| peer.state.persistent_keepalive = seconds);
            }),
            Act::Limit(tunnel, key, quota) => self.configure(tunnel, |peers| {
                for peer in peers.iter_mut().filter(|peer| peer.key == key) {
                    peer.state.limits.quota = Some(quota).filter(|quota| *quota > 0);
                    peer.state.limits.used = 0;
                }
            }),
            Act::Receive(tunnel, key, bytes) => self.traffic(tunnel, key, now, |state| {
                state.rx_bytes += bytes;
                state.last_received = now;
                bytes
            }),
            Act::Send(tunnel, key, bytes) => self.traffic(tunnel, key, now, |state| {
                state.tx_bytes += bytes;
                bytes
            }),
            Act::Handshake(tunnel, key) => self.traffic(tunnel, key, now, |state| {
                state.last_handshake = wall;
                0
            }),
            Act::Roam(tunnel, key, port) => self.traffic(tunnel, key, now, |state| {
                state.endpoint = Some(([192, 0, 2, 1], port).into());
                0
            }),
            Act::Name(tunnel, key, name) => {
                self.names.insert((tunnel, key), name);
                self.changes += 1;
            }
        }
        for process in self.daemons.values() {
            process.borrow_mut().enforce();
        }
    }

    fn configure(&mut self, tunnel: usize, change: impl FnOnce(&mut Vec<SimulatedPeer>)) {
        let Some(process) = self.daemons.get(&tunnel) else { return };
        let mut process = process.borrow_mut();
        process.configured += 1;
        change(&mut process.peers);
    }

    /// Changes a peer by traffic; `change` returns the bytes.
    fn traffic(&mut self, tunnel: usize, key: u8, now: u64, change: impl FnOnce(&mut PeerState) -> u64) {
        let Some(process) = self.daemons.get(&tunnel) else { return };
        let mut process = process.borrow_mut();
        let Some(peer) = process.peers.iter_mut().find(|peer| peer.key == key) else { return };
        let bytes = change(&mut peer.state);
        if peer.state.limits.quota.is_some() {
            peer.state.limits.used += bytes;
        }
        peer.last = now;
    }
}

impl Process {
    fn enforce(&mut self) {
        for peer in &mut self.peers {
            let limits = &mut peer.state.limits;
            let is_over = limits.quota.is_some_and(|quota| quota <= limits.used);
            if is_over != limits.suspended.is_some() {
                limits.suspended = is_over.then_some(Suspension::Quota);
                self.configured += 1;
            }
            if limits.quota.is_none() {
                limits.used = 0;
            }
        }
    }
}

impl SimulatedPeer {
    fn new(key: u8) -> Self {
        Self { key, state: PeerState::new(PublicKey([key + 1; 32])), last: 0 }
    }
}

fn copy(state: &PeerState) -> PeerState {
    PeerState {
        endpoint: state.endpoint,
        last_handshake: state.last_handshake,
        tx_bytes: state.tx_bytes,
        rx_bytes: state.rx_bytes,
        ..PeerState::new(state.public_key)
    }
}

impl Host for Simulation {
    type Connection = Client;

    fn now(&mut self) -> Now {
        let passed = Duration::from_secs(self.0.borrow().time);
        Now { wall: Time(START + passed), monotonic: passed }
    }

    fn tunnels(&mut self) -> Result<Vec<Found>, ClientError> {
        let world = self.0.borrow();
        let found = |(index, name): (usize, &&str)| {
            let exists = world.daemons.contains_key(&index) || (world.recorded && index == 0);
            exists.then(|| Found { interface: (*name).to_owned(), recorded: world.recorded })
        };
        Ok(NAMES.iter().enumerate().filter_map(found).collect())
    }

    fn connect(&mut self, tunnel: &str) -> Result<Client, ClientError> {
        let index = NAMES.iter().position(|name| *name == tunnel).unwrap();
        let world = self.0.borrow();
        let Some(process) = world.daemons.get(&index) else {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        };
        let pid = process.borrow().pid;
        Ok(Client { world: Rc::downgrade(&self.0), process: Rc::downgrade(process), pid, closed: false })
    }

    fn file(&mut self, tunnel: &str) -> PathBuf {
        tunnel.into()
    }

    fn place(&mut self, _: &str, _: &mut Whereabouts) -> Option<String> {
        None
    }

    fn stamp(&mut self, _: &Path) -> Option<Stamp> {
        Some(Stamp([self.0.borrow().changes, 0, 0, 0]))
    }

    fn names(&mut self, tunnel: &str, _: &Path) -> HashMap<PublicKey, String> {
        let world = self.0.borrow();
        let of_tunnel = world.names.iter().filter(|((index, _), _)| NAMES[*index] == tunnel);
        of_tunnel.map(|((_, key), name)| (PublicKey([key + 1; 32]), format!("name {name}"))).collect()
    }

    fn process(&mut self, pid: u32) -> Option<Daemon> {
        let used = Duration::from_millis(self.0.borrow().time * 500);
        Some(Daemon { pid, started: pid.into(), cpu_time: used, cpu: None })
    }
}

impl Client {
    /// The world and the daemon, or the end of the connection.
    fn open(&self) -> Result<(Shared<World>, Shared<Process>), ClientError> {
        let process = self.process.upgrade().filter(|_| !self.closed).ok_or(ReplyError::Truncated)?;
        Ok((self.world.upgrade().unwrap(), process))
    }
}

impl Connection for Client {
    fn is_kernel(&self) -> bool {
        false
    }

    fn pid(&self) -> Option<u32> {
        Some(self.pid)
    }

    fn get(&mut self) -> Result<DeviceState, ClientError> {
        let (world, process) = self.open()?;
        let process = process.borrow();
        world.borrow_mut().peers_read += process.peers.len();
        let peer = |peer: &SimulatedPeer| PeerState {
            limits: peer.state.limits,
            persistent_keepalive: peer.state.persistent_keepalive,
            ..copy(&peer.state)
        };
        Ok(DeviceState { peers: process.peers.iter().map(peer).collect(), ..DeviceState::default() })
    }

    fn activity(&mut self, since: u64) -> Result<Activity, ClientError> {
        let (world, process) = self.open()?;
        let mut world = world.borrow_mut();
        if !world.is_linerated {
            self.closed = true;
            return Err(ReplyError::Truncated.into());
        }
        let process = process.borrow();
        let active = process.peers.iter().filter(|peer| peer.last >= since);
        let activity =
            |peer: &SimulatedPeer| PeerState { last_received: peer.state.last_received, ..copy(&peer.state) };
        let peers: Vec<_> = active.map(activity).collect();
        world.peers_read += peers.len();
        Ok(Activity { now: world.nanoseconds(), configured: process.configured, peers })
    }

    fn stats(&mut self) -> Result<Vec<(String, u64)>, ClientError> {
        let (_, process) = self.open()?;
        let received = process.borrow().peers.iter().map(|peer| peer.state.rx_bytes).sum();
        Ok(vec![("drop_no_peer".to_owned(), received)])
    }
}
