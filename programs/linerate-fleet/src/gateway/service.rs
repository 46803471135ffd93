//! Carries out what the state machine decides, on one thread: it waits for the other gateways, for the daemon, for what the
//! store says and for the time, and passes it all on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use linerate_control::uapi::fleet::{FleetPeer, FleetUpdate, Hint, Initiate};
use linerate_control::uapi::request::PeerUpdate;
use rustix::net::netdevice::name_to_index;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc as channel, watch};
use tokio::time::MissedTickBehavior;

use super::daemon::{self, Reply, Request};
use super::envelope::Envelopes;
use super::inject::Injector;
use super::machine::{Action, Machine, Order, TICK};
use super::members::Now;
use super::peers::Change;
use super::refusals::Refusals;
use super::routes::{self, Routes};
use super::{Config, GatewayStatus, Inputs, mesh, socket};

/// A daemon that has not answered for so long serves nobody.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
const STATUS_EVERY: Duration = Duration::from_millis(500);
/// How long opening the mesh's socket may fail before it is reported: the interface exists before its address.
const OPENS_WITHIN: Duration = Duration::from_secs(1);
/// Peers of one request to the daemon.
const ORDERS_MAX: usize = 500;
/// Datagrams that are read before anything else is done.
const BURST: usize = 512;

/// Runs until `inputs.shutdown` says so.
///
/// # Errors
/// It cannot go on: a sentence that says what, where, and what to do.
pub async fn run(config: Config, mut inputs: Inputs, status: watch::Sender<GatewayStatus>) -> Result<(), String> {
    let mut service = Service::new(&config, status).map_err(|error| format!("fleet {}: {error}", config.fleet))?;
    let (mesh_ends, ends) = watch::channel(false);
    let (trouble_to, trouble) = watch::channel(None);
    service.mesh_trouble = Some(trouble);
    let mesh = tokio::spawn(mesh::keep(config.clone(), inputs.members.clone(), ends, trouble_to));
    if let Some(table) = config.route_table {
        let _ = tokio::task::spawn_blocking(move || routes::flush(table)).await;
    }
    service.see_members(&mut inputs);
    service.see_store(&mut inputs);
    service.see_peers(&mut inputs);
    service.see_daemon(&mut inputs);
    service.machine.set_drains(*inputs.drain.borrow_and_update());

    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => service.tick(),
            _ = readable(service.mesh.as_ref()) => service.read_mesh(),
            _ = service.from_daemon.readable() => service.read_from_daemon(),
            Some(reply) = service.replies.recv() => service.take_reply(reply),
            Ok(()) = inputs.members.changed() => service.see_members(&mut inputs),
            Ok(()) = inputs.store.changed() => service.see_store(&mut inputs),
            Ok(()) = inputs.peers.changed() => service.see_peers(&mut inputs),
            Ok(()) = inputs.daemon.changed() => service.see_daemon(&mut inputs),
            Ok(()) = inputs.drain.changed() => service.machine.set_drains(*inputs.drain.borrow_and_update()),
            () = mesh::is_true(&mut inputs.shutdown) => break,
        }
    }

    service.end();
    if let Some(table) = config.route_table {
        let _ = tokio::task::spawn_blocking(move || routes::flush(table)).await;
    }
    mesh_ends.send_replace(true);
    let _ = mesh.await;
    Ok(())
}

/// Waits forever while there is no socket.
async fn readable(socket: Option<&UdpSocket>) -> io::Result<()> {
    match socket {
        Some(socket) => socket.readable().await,
        None => std::future::pending().await,
    }
}

struct Service {
    config: Config,
    begun: Instant,
    machine: Machine,
    actions: Vec<Action>,
    buffer: Vec<u8>,

    mesh_interface: InterfaceName,
    mesh: Option<UdpSocket>,
    mesh_index: u32,
    mesh_checked: Option<Instant>,
    /// When opening the socket first failed although the interface exists.
    mesh_fails: Option<Instant>,
    mesh_trouble: Option<watch::Receiver<Option<String>>>,
    trouble: Option<String>,
    envelopes: Envelopes,
    refusals: Refusals,

    from_daemon: UdpSocket,
    requests: mpsc::Sender<Request>,
    replies: channel::Receiver<Reply>,
    daemon: Option<u64>,
    answered: Option<Instant>,
    is_busy: bool,
    /// What the daemon is still to be told, the latest of each peer.
    orders: BTreeMap<u32, Order>,

    injector: Injector,
    failed_injections: u64,
    peers: super::Peers,
    numbers: HashMap<PublicKey, u32>,
    routes: Option<(Routes, mpsc::Sender<String>)>,
    status: watch::Sender<GatewayStatus>,
    told: Option<Instant>,
}

impl Service {
    fn new(config: &Config, status: watch::Sender<GatewayStatus>) -> Result<Self, String> {
        let injector = Injector::new(config.address);
        let injector = injector.map_err(|error| format!("no raw socket (CAP_NET_RAW is needed): {error}"))?;
        let (from_daemon, forward) =
            socket::from_daemon().map_err(|error| format!("no socket on 127.0.0.1: {error}"))?;
        let (requests, taken) = mpsc::channel();
        let (told, replies) = channel::channel(4);
        let interface = config.interface.clone();
        let thread = thread::Builder::new().name("uapi".into());
        thread
            .spawn(move || daemon::run(&interface, forward, &taken, &told))
            .map_err(|error| format!("no thread: {error}"))?;
        let life = random().map_err(|error| format!("the system has no random numbers: {error}"))?;
        let routes = config.route_table.map(|table| follow_routes(&config.interface, table)).transpose()?;
        Ok(Self {
            machine: Machine::new(config.number, config.skew_max),
            config: config.clone(),
            begun: Instant::now(),
            actions: Vec::new(),
            buffer: vec![0; socket::LONGEST],
            mesh_interface: mesh::interface(config)?,
            mesh: None,
            mesh_index: 0,
            mesh_checked: None,
            mesh_fails: None,
            mesh_trouble: None,
            trouble: None,
            envelopes: Envelopes::new(config.number, life, config.message_key.clone()),
            refusals: Refusals::default(),
            from_daemon,
            requests,
            replies,
            daemon: None,
            answered: None,
            is_busy: false,
            orders: BTreeMap::new(),
            injector,
            failed_injections: 0,
            peers: super::Peers::default(),
            numbers: HashMap::new(),
            routes,
            status,
            told: None,
        })
    }

    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { monotonic: self.begun.elapsed(), wall }
    }

    fn see_members(&mut self, inputs: &mut Inputs) {
        let members = inputs.members.borrow_and_update();
        self.machine.set_members(&members.iter().map(|(&gateway, member)| (gateway, member.capacity)).collect());
    }

    fn see_store(&mut self, inputs: &mut Inputs) {
        let store = *inputs.store.borrow_and_update();
        self.machine.set_store(store.is_seen, store.is_stale);
        let _ = self.requests.send(Request::Stale(store.is_stale));
    }

    fn see_peers(&mut self, inputs: &mut Inputs) {
        let old = std::mem::replace(&mut self.peers, inputs.peers.borrow_and_update().clone());
        self.machine.set_peers(self.peers.keys().copied());
        self.numbers = self.peers.iter().map(|(&number, peer)| (peer.public_key, number)).collect();
        self.orders.retain(|number, _| self.peers.contains_key(number));
        if self.routes.is_some() {
            // Those that are gone or have other addresses.
            let changed = |number: &u32| self.peers.get(number) != old.get(number);
            let numbers = old.keys().chain(self.peers.keys()).copied().filter(changed).collect();
            self.update_routes(&numbers);
        }
    }

    fn see_daemon(&mut self, inputs: &mut Inputs) {
        let daemon = *inputs.daemon.borrow_and_update();
        if daemon != self.daemon {
            self.daemon = daemon;
            self.answered = None;
            self.orders.clear();
            self.machine.daemon_started();
            let _ = self.requests.send(Request::Daemon(daemon));
        }
    }

    fn tick(&mut self) {
        self.look_at_mesh();
        // First what others said: nobody is dead because we were late.
        self.read_mesh();
        let answers = self.answered.is_some_and(|answered| answered.elapsed() < ANSWERS_WITHIN);
        self.machine.set_serves(self.daemon.is_some() && answers);
        let now = self.now();
        self.machine.tick(now, &mut self.actions);
        self.carry_out();
        let moved = self.machine.take_moved();
        if !moved.is_empty() && self.routes.is_some() {
            self.update_routes(&moved);
        }
        if self.told.is_none_or(|told| told.elapsed() >= STATUS_EVERY) {
            self.told = Some(Instant::now());
            let mut status = self.machine.status(now);
            status.counters.insert("failed_injections".into(), self.failed_injections);
            status.counters.insert("refused".into(), self.refusals.count);
            status.trouble.clone_from(&self.trouble);
            self.status.send_replace(status);
        }
    }

    /// Opens the socket once the interface is there, and again if it is another.
    fn look_at_mesh(&mut self) {
        const EVERY: Duration = Duration::from_millis(200);
        if self.mesh_checked.is_some_and(|checked| checked.elapsed() < EVERY) {
            return;
        }
        self.mesh_checked = Some(Instant::now());
        let index = name_to_index(&self.from_daemon, &self.mesh_interface.to_string()).unwrap_or(0);
        if index != self.mesh_index || self.mesh.is_none() {
            self.mesh = None;
            self.mesh_index = index;
            let address = self.config.mesh_address(self.config.number);
            let opened = (index != 0).then(|| socket::mesh(&self.mesh_interface, address)).transpose();
            self.mesh = opened.unwrap_or_else(|error| {
                self.mesh_failed(&error);
                None
            });
        }
        if self.mesh.is_some() || index == 0 {
            self.mesh_fails = None;
            self.trouble = self.mesh_trouble.as_ref().filter(|_| index == 0).and_then(|said| said.borrow().clone());
        }
        // While this gateway cannot hear the others, their silence does not mean that they are dead.
        self.machine.set_hears(self.mesh_fails.is_none() && self.trouble.is_none());
    }

    /// Logs once why the socket in the mesh cannot be opened. The service keeps trying.
    fn mesh_failed(&mut self, error: &io::Error) {
        let since = *self.mesh_fails.get_or_insert_with(Instant::now);
        let (fleet, interface, port) = (&self.config.fleet, &self.mesh_interface, socket::PORT);
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => format!(": another program has it; `ss -lunp sport = :{port}` names it"),
            _ => String::new(),
        };
        let trouble = format!(
            "this gateway does not hear the others, because it cannot open UDP port {port} on {interface}: \
             {error}{hint}. It keeps trying"
        );
        if since.elapsed() >= OPENS_WITHIN && self.trouble.as_ref() != Some(&trouble) {
            eprintln!("linerate-fleet: {fleet}: {trouble}");
            self.trouble = Some(trouble);
        }
    }

    fn read_mesh(&mut self) {
        let now = self.now();
        let Self { mesh, machine, envelopes, refusals, actions, buffer, config, .. } = self;
        for _ in 0..BURST {
            let Some(Ok((length, source))) = mesh.as_ref().map(|mesh| mesh.try_recv_from(buffer)) else { break };
            let refused = machine.counters.refused_times;
            let why = match socket::gateway_at(&config.mesh_prefix, source) {
                None => Some("it does not come from the address of a gateway"),
                Some(from) => match envelopes.open(now.monotonic, from, &buffer[..length]) {
                    Ok(None) => None,
                    Ok(Some(message)) => {
                        machine.message(now, from, message, actions);
                        let is_refused = machine.counters.refused_times != refused;
                        is_refused.then_some("its timestamps are more than 10 s ahead of this clock; check all gateways' and clients' clocks")
                    }
                    Err(refusal) => Some(refusal.sentence()),
                },
            };
            if let Some(why) = why {
                refuse(refusals, now, &config.fleet, source, why);
            }
        }
        self.carry_out();
    }

    fn read_from_daemon(&mut self) {
        self.read_mesh();
        let now = self.now();
        let Self { from_daemon, machine, refusals, actions, buffer, config, .. } = self;
        for _ in 0..BURST {
            let Ok((length, source)) = from_daemon.try_recv_from(buffer) else { break };
            // The daemon never shares its port. While it does not run, another user may hold the port. That does no
            // harm: the machine trusts these datagrams no more than those that anybody can send to the daemon.
            if source.port() == config.address.port() {
                machine.forwarded(now, &buffer[..length], actions);
            } else {
                refuse(refusals, now, &config.fleet, source, "it does not come from the daemon's port");
            }
        }
        self.carry_out();
    }

    fn take_reply(&mut self, reply: Reply) {
        match reply {
            Reply::Done => {
                self.is_busy = false;
                self.answered = self.daemon.map(|_| Instant::now());
            }
            Reply::Changes(daemon, peers) if Some(daemon) == self.daemon => {
                self.answered = Some(Instant::now());
                let changes: Vec<Change> = peers.iter().filter_map(|peer| self.change(peer)).collect();
                let now = self.now();
                self.machine.changes(now, &changes);
            }
            Reply::Changes(..) => {}
        }
        self.send_orders();
    }

    fn change(&self, peer: &FleetPeer) -> Option<Change> {
        let number = *self.numbers.get(&peer.public_key)?;
        let Hint { endpoint, sent, received } = peer.hint;
        Some(Change { number, endpoint, sent, received, seen: peer.seen })
    }

    fn carry_out(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Send { to: gateway, bytes } => {
                    let to = SocketAddr::new(self.config.mesh_address(gateway).into(), socket::PORT);
                    let bytes = self.envelopes.seal(gateway, &bytes);
                    // A lost message is like one that the network loses.
                    let _ = self.mesh.as_ref().map(|mesh| mesh.try_send_to(&bytes, to));
                }
                Action::Tell(orders) => orders.iter().for_each(|order| self.add_order(order)),
                Action::Inject { source, datagram } => {
                    self.failed_injections += u64::from(self.injector.inject(source, &datagram).is_err());
                }
            }
        }
        self.send_orders();
    }

    fn add_order(&mut self, order: &Order) {
        let mut order = *order;
        if let Some(waiting) = self.orders.get(&order.number).filter(|waiting| waiting.initiate > order.initiate) {
            // What is urgent is so at its own place alone.
            (order.initiate, order.endpoint) = (waiting.initiate, waiting.endpoint);
        }
        self.orders.insert(order.number, order);
    }

    /// One request at a time: what comes meanwhile is told with the next.
    fn send_orders(&mut self) {
        if self.is_busy || self.daemon.is_none() || self.orders.is_empty() {
            return;
        }
        let urgent = self.orders.values().filter(|order| order.initiate != Initiate::No);
        let others = self.orders.values().filter(|order| order.initiate == Initiate::No);
        let orders: Vec<Order> = urgent.chain(others).take(ORDERS_MAX).copied().collect();
        let updates =
            orders.iter().filter_map(|order| self.peers.get(&order.number).map(|peer| update(peer.public_key, order)));
        let updates = updates.collect();
        for order in &orders {
            self.orders.remove(&order.number);
        }
        self.is_busy = self.requests.send(Request::Set(updates)).is_ok();
    }

    fn update_routes(&mut self, moved: &BTreeSet<u32>) {
        let Some((routes, lines)) = &mut self.routes else { return };
        let machine = &self.machine;
        let text = routes.update(moved, &self.peers, |number| machine.is_here(number));
        if !text.is_empty() {
            let _ = lines.send(text);
        }
    }

    fn end(&mut self) {
        let now = self.now();
        self.machine.end(now, &mut self.actions);
        self.carry_out();
        // Ends the thread, once it has carried out what it has been given.
        self.routes = None;
    }
}

/// Counts a refused message, and logs at most one a minute.
fn refuse(refusals: &mut Refusals, now: Now, fleet: &str, source: SocketAddr, why: &str) {
    if refusals.note(now.monotonic) {
        let count = refusals.count;
        eprintln!("linerate-fleet: {fleet}: a message from {source} is refused: {why} ({count} since the start)");
    }
}

fn random() -> Result<u64, getrandom::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map(|()| u64::from_le_bytes(bytes))
}

fn update(key: PublicKey, order: &Order) -> PeerUpdate {
    let hint = Some(Hint { endpoint: order.endpoint, sent: order.sent, received: order.received });
    let fleet = FleetUpdate { number: None, hint, initiate: order.initiate };
    PeerUpdate { update_only: true, fleet, ..PeerUpdate::new(key) }
}

/// Routes, and where to send the lines that change them: a thread of its own runs `ip`.
fn follow_routes(interface: &InterfaceName, table: u32) -> Result<(Routes, mpsc::Sender<String>), String> {
    let (lines, taken) = mpsc::channel::<String>();
    let work = move || {
        while let Ok(mut text) = taken.recv() {
            text.extend(taken.try_iter());
            if let Err(error) = routes::apply(&text) {
                eprintln!("linerate-fleet: routes to peers in table {table}: {error}");
            }
        }
    };
    thread::Builder::new().name("routes".into()).spawn(work).map_err(|error| format!("no thread: {error}"))?;
    Ok((Routes::new(interface, table), lines))
}
