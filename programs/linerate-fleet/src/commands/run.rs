//! `run`: the service. It wires the parts together: what the store says (`feed`) changes the view, the view's peers go to the
//! daemon at once and to the file after that, and the part of the gateway (`gateway`) is told of both.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use linerate_cli::eprint_line;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::FleetName;
use linerate_control::uapi::fleet::Gateway;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_tunnel::ConfigFile;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::feed::{self, Alive, Said};
use crate::file::{self, Wanted};
use crate::gateway::{self, GatewayStatus, Inputs, Members, Store};
use crate::local::{self, Fleet, Saved};
use crate::peers::{self, Difference};
use crate::seal::{MessageKey, Seal, index_key};
use crate::store::layout::{self, Config};
use crate::view::{Peers, View};
use crate::{daemon, daemon::Ask};

/// How often the status is written, if it has changed.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How long the daemon may take for a change before the next step.
const DAEMON_TIME: Duration = Duration::from_secs(10);

/// How long the parts may take to end; the mesh is the slowest.
const END_TIME: Duration = Duration::from_secs(15);

/// What the service says of itself, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ServiceStatus {
    /// Its process.
    pub(super) pid: u32,
    /// The revision that the daemon follows.
    pub(super) applied: i64,
    /// The revision that the file follows.
    pub(super) written: i64,
    /// How many peers are in force.
    pub(super) peers: usize,
    /// Whether the store answers.
    pub(super) store_is_seen: bool,
    /// Whether it has not for longer than is allowed.
    pub(super) store_is_stale: bool,
    /// Whether a daemon runs and was told its part.
    pub(super) daemon_is_told: bool,
    /// Why peers do not follow the store, if so.
    pub(super) hold: Option<String>,
    /// Peers that are refused, and why.
    pub(super) refused: Vec<String>,
    /// What the gateway sees.
    pub(super) gateway: GatewayStatus,
}

/// What is sent to the parts.
struct Service {
    name: FleetName,
    interface: InterfaceName,
    number: u8,
    config: Config,
    view: View,
    /// The peers in force, as the gateway knows them.
    by_number: BTreeMap<u32, Arc<gateway::Peer>>,
    /// What was said of, so that it is said once.
    complained: BTreeSet<String>,
    to_daemon: mpsc::Sender<Ask>,
    in_force: watch::Sender<Arc<Peers>>,
    wanted: watch::Sender<Option<Wanted>>,
    members: watch::Sender<Members>,
    peers: watch::Sender<gateway::Peers>,
    store: watch::Sender<Store>,
    drain: watch::Sender<bool>,
    applied: watch::Sender<i64>,
}

pub(super) async fn run(name: &FleetName) -> Result<ExitCode, String> {
    let mut ending = Ending::catch()?;
    let here = Here::open(name)?;
    let last = last_view(&here)?;
    let config = match &last {
        Some((saved, _)) => saved.config.clone(),
        None => tokio::select! {
            config = config_of_store(&here) => config,
            () = ending.wait() => return Ok(ExitCode::SUCCESS),
        },
    };
    here.check(&config)?;
    let interface = here.tunnel.interface.clone();
    let (mut service, mut parts) = start(here, config, last)?;
    let outcome = tokio::select! {
        outcome = service.serve(&mut parts) => outcome,
        () = ending.wait() => Ok(()),
    };
    drop(service);
    parts.end().await;
    if outcome.is_err() {
        daemon::release(&interface).await;
    }
    let _ = std::fs::remove_file(local::status(name));
    outcome.map(|()| ExitCode::SUCCESS)
}

/// The signals that end the service.
struct Ending {
    interrupt: Signal,
    terminate: Signal,
}

impl Ending {
    fn catch() -> Result<Self, String> {
        let catch = |kind| signal(kind).map_err(|error| format!("cannot handle signals: {error}"));
        Ok(Self { interrupt: catch(SignalKind::interrupt())?, terminate: catch(SignalKind::terminate())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// What this host has of the fleet and its tunnel.
struct Here {
    fleet: Fleet,
    tunnel: ConfigFile,
    key: SecretKey,
    mesh_key: SecretKey,
    seal: Seal,
}

impl Here {
    fn open(name: &FleetName) -> Result<Self, String> {
        let fleet = Fleet::open(Some(name))?;
        let (tunnel, key) = fleet.tunnel()?;
        if tunnel.contents.fleet.as_ref() != Some(name) {
            return Err(format!(
                "{} does not say `#! Fleet = {name}': `linerate fleet leave', then join again",
                tunnel.path.display()
            ));
        }
        let mesh_key = fleet.mesh_key()?;
        let seal = Seal::new(&key, name);
        Ok(Self { fleet, tunnel, key, mesh_key, seal })
    }

    fn check(&self, config: &Config) -> Result<(), String> {
        if config.public_key()? != local::public_key(&self.key)? {
            return Err(format!(
                "{} has another private key than the fleet {}: copy that of another gateway",
                self.tunnel.path.display(),
                self.fleet.name
            ));
        }
        Ok(())
    }
}

/// What runs beside the service, and what is heard of it.
struct Parts {
    gateway: JoinHandle<Result<(), String>>,
    feed: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
    heard: mpsc::Receiver<Said>,
    seen: watch::Receiver<bool>,
    told: watch::Receiver<Option<u64>>,
    written: watch::Receiver<i64>,
    status: watch::Receiver<GatewayStatus>,
    ends: watch::Sender<bool>,
}

impl Parts {
    /// Has all end, and waits for that for some time.
    async fn end(self) {
        self.ends.send_replace(true);
        self.feed.abort();
        let all = async {
            if !self.gateway.is_finished() {
                let _ = self.gateway.await;
            }
            for part in self.others {
                let _ = part.await;
            }
        };
        let _ = timeout(END_TIME, all).await;
    }
}

/// Starts the parts. The peers of the last view are in force until the store tells.
fn start(here: Here, config: Config, last: Option<(Saved, Peers)>) -> Result<(Service, Parts), String> {
    let Here { fleet, tunnel, key, mesh_key, seal } = here;
    let Fleet { name, keys, local, client } = fleet;
    let (client, number, interface) = (Arc::new(client), local.gateway, tunnel.interface.clone());
    let (members, in_force) = last.map_or_else(Default::default, |(saved, peers)| (saved.members, peers));
    let enabled = in_force.values().filter(|peer| peer.is_enabled);
    let by_number: BTreeMap<_, _> = enabled.map(|peer| (peer.number, for_gateway(peer))).collect();
    let mut view = View::new(keys.clone(), seal.clone(), interface.clone(), in_force.clone());
    view.start_with(members);

    let (ends, ended) = watch::channel(false);
    let (seen_to, seen) = watch::channel(false);
    let (moved_to, moved) = watch::channel(0);
    let (store_to, store) = watch::channel(Store::default());
    let (told_to, told) = watch::channel(None);
    let (status_to, status) = watch::channel(GatewayStatus::default());
    let (written_to, written) = watch::channel(0);
    let (heard_to, heard) = mpsc::channel(16);
    let (to_daemon, asked) = mpsc::channel(16);
    let (applied_to, applied) = watch::channel(0);
    let (wanted_to, wanted) = watch::channel(None);
    let (in_force_to, in_force) = watch::channel(Arc::new(in_force));
    let (peers_to, peers) = watch::channel(Arc::new(by_number.clone()));
    let (members_to, members) = watch::channel(view.members());
    let (drain_to, drain) = watch::channel(members.borrow().get(&number).is_some_and(|own| own.is_draining));

    let index_key = index_key(&key, &name, config.epoch);
    let part = daemon::Part {
        interface: interface.clone(),
        gateway: Gateway { number, index_key: index_key.clone() },
        address: config.address.ip(),
        public_key: config.public_key()?,
        peers: in_force,
        told: told_to,
    };
    let alive = Alive {
        client: Arc::clone(&client),
        keys: keys.clone(),
        seal,
        number,
        gateway: layout::Gateway { version: env!("CARGO_PKG_VERSION").to_owned(), capacity: 1 },
        applied,
        seen: seen_to,
        moved: moved_to,
    };
    let gateway_config = gateway::Config {
        fleet: name.to_string(),
        interface: interface.clone(),
        number,
        index_key,
        message_key: MessageKey::new(&key, &name, config.epoch),
        address: config.address,
        mesh_prefix: config.mesh()?,
        mesh_key,
        mesh_endpoint: local.mesh_endpoint,
        skew_max: config.skew_max(),
        route_table: local.route_table,
    };
    let inputs = Inputs { members, peers, store, drain, daemon: told.clone(), shutdown: ended.clone() };
    let parts = Parts {
        gateway: tokio::spawn(gateway::run(gateway_config, inputs, status_to)),
        feed: tokio::spawn(feed::follow(client, keys, heard_to, moved)),
        others: vec![
            tokio::spawn(part.keep(asked)),
            tokio::spawn(alive.keep(ended)),
            tokio::spawn(file::keep(name.clone(), local.file, wanted, written_to)),
        ],
        heard,
        seen,
        told,
        written,
        status,
        ends,
    };
    eprint_line(&format!("linerate-fleet: gateway {number} of {name}, {interface} with {} peers", view.peers().len()));
    let service = Service {
        name,
        interface,
        number,
        config,
        view,
        by_number,
        complained: BTreeSet::new(),
        to_daemon,
        in_force: in_force_to,
        wanted: wanted_to,
        members: members_to,
        peers: peers_to,
        store: store_to,
        drain: drain_to,
        applied: applied_to,
    };
    Ok((service, parts))
}

/// The last view, and the peers of the file as far as that knows their numbers.
fn last_view(here: &Here) -> Result<Option<(Saved, Peers)>, String> {
    let Here { fleet, tunnel, .. } = here;
    let Some(saved) = fleet.saved()? else { return Ok(None) };
    let sections = peers::sections(&tunnel.document, &tunnel.interface)?;
    let peer = |(key, section): (&PublicKey, &peers::Section)| {
        let peer = peers::peer(key, saved.number(key)?, section.text(), &tunnel.interface).ok()?;
        Some((*key, Arc::new(peer)))
    };
    let peers = sections.iter().filter_map(peer).collect();
    Ok(Some((saved, peers)))
}

/// What is the same for all gateways, once the store tells.
async fn config_of_store(here: &Here) -> Config {
    let Here { fleet, seal, .. } = here;
    let mut complaint = String::new();
    loop {
        let said = match fleet.client.get(&fleet.keys.config()).await {
            Ok((_, Some(kv))) => match layout::read(seal, &kv) {
                Ok(config) => return config,
                Err(why) => format!("the fleet's `config': {why}"),
            },
            Ok((_, None)) => format!("the store has no fleet {}", fleet.name),
            Err(error) => error.to_string(),
        };
        if said != complaint {
            eprint_line(&format!("linerate-fleet: {said}; waiting, as there is no last view on disk"));
            complaint = said;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

fn for_gateway(peer: &peers::Peer) -> Arc<gateway::Peer> {
    let (public_key, allowed_ips) = (peer.contents.public_key, peer.contents.allowed_ips.clone());
    Arc::new(gateway::Peer { public_key, allowed_ips })
}

impl Service {
    /// Follows the store and tells what it sees, until this is no gateway any more or a part has ended.
    async fn serve(&mut self, parts: &mut Parts) -> Result<(), String> {
        let mut ticks = interval(STATUS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last_seen, mut last_status) = (Instant::now(), None);
        loop {
            tokio::select! {
                Some(said) = parts.heard.recv() => self.hear(said).await?,
                _ = parts.seen.changed() => {}
                _ = ticks.tick() => {}
                outcome = &mut parts.gateway => {
                    return outcome.unwrap_or_else(|error| Err(format!("the part of the gateway has ended: {error}")));
                }
            }
            let is_seen = *parts.seen.borrow_and_update();
            if is_seen {
                last_seen = Instant::now();
            }
            let store = Store { is_seen, is_stale: last_seen.elapsed() > self.config.max_stale() };
            self.store.send_if_modified(|known| std::mem::replace(known, store) != store);
            let status = self.status(parts, store);
            if last_status.as_ref() != Some(&status) {
                if let Err(error) = local::write_json(&local::status(&self.name), &status) {
                    self.complain(error);
                }
                last_status = Some(status);
            }
        }
    }

    /// Follows what the store says.
    async fn hear(&mut self, said: Said) -> Result<(), String> {
        let (before, difference) = match said {
            Said::All(revision, all) => self.view.list(revision, all),
            Said::Changed(batch) => self.view.change(batch),
        };
        if !difference.is_empty() {
            self.change(&before, &difference).await;
        }
        self.complain_of_peers();
        let Some(config) = self.view.config().cloned() else {
            self.complain(format!(
                "the store has no fleet {} any more; this gateway goes on with what it has. Restore the store, or `linerate fleet \
                 leave'",
                self.name
            ));
            return Ok(());
        };
        if config.public_key != self.config.public_key || config.epoch != self.config.epoch {
            return Err(format!("the fleet {} has another key or epoch now: start this service again", self.name));
        }
        self.config = config;
        let members = self.view.members();
        let Some(own) = members.get(&self.number) else {
            return Err(format!(
                "gateway {} was removed from the fleet {}: `linerate fleet leave' here removes what is left of it",
                self.number, self.name
            ));
        };
        let is_draining = own.is_draining;
        self.drain.send_if_modified(|known| std::mem::replace(known, is_draining) != is_draining);
        self.members.send_if_modified(|known| {
            let is_new = *known != members;
            *known = members;
            is_new
        });
        if self.view.hold().is_none() {
            self.want();
            self.applied.send_if_modified(|known| {
                let revision = self.view.revision();
                std::mem::replace(known, revision) != revision
            });
        }
        Ok(())
    }

    /// Has the daemon follow, then tells the gateway.
    async fn change(&mut self, before: &Peers, difference: &Difference) {
        let after = self.view.peers();
        let update = daemon::update(&self.interface, before, after, difference);
        // Before the update: a daemon that starts meanwhile is told of these.
        self.in_force.send_replace(Arc::new(after.clone()));
        self.ask_daemon(update).await;
        let gone = difference.gone.iter().chain(&difference.put).filter_map(|key| before.get(key));
        gone.for_each(|peer| drop(self.by_number.remove(&peer.number)));
        let put = difference.put.iter().filter_map(|key| after.get(key)).filter(|peer| peer.is_enabled);
        self.by_number.extend(put.map(|peer| (peer.number, for_gateway(peer))));
        self.peers.send_replace(Arc::new(self.by_number.clone()));
        eprint_line(&format!(
            "linerate-fleet: revision {}: {} peers new or changed, {} gone",
            self.view.revision(),
            difference.put.len(),
            difference.gone.len()
        ));
    }

    async fn ask_daemon(&self, update: DeviceUpdate) {
        if update.peers.is_empty() {
            return;
        }
        let (done, answered) = oneshot::channel();
        if self.to_daemon.send((update, done)).await.is_ok() {
            let _ = timeout(DAEMON_TIME, answered).await;
        }
    }

    /// Has the file follow.
    fn want(&self) {
        let wanted = Wanted {
            revision: self.view.revision(),
            peers: Arc::clone(&self.in_force.borrow()),
            config: self.config.clone(),
            members: self.view.stored_members().clone(),
        };
        self.wanted.send_replace(Some(wanted));
    }

    fn complain_of_peers(&mut self) {
        let refused: Vec<String> =
            self.view.refused().values().map(|why| format!("a peer of the store is refused: {why}")).collect();
        let hold = self.view.hold().map(hold_text);
        self.complained.retain(|said| !said.starts_with("a peer") || refused.contains(said));
        self.complained.retain(|said| !said.starts_with("HOLD") || Some(said) == hold.as_ref());
        refused.into_iter().chain(hold).for_each(|said| self.complain(said));
    }

    /// Says something once.
    fn complain(&mut self, said: String) {
        if !self.complained.contains(&said) {
            eprint_line(&format!("linerate-fleet: {said}"));
            self.complained.insert(said);
        }
    }

    fn status(&self, parts: &Parts, store: Store) -> ServiceStatus {
        ServiceStatus {
            pid: std::process::id(),
            applied: *self.applied.borrow(),
            written: *parts.written.borrow(),
            peers: self.view.peers().len(),
            store_is_seen: store.is_seen,
            store_is_stale: store.is_stale,
            daemon_is_told: parts.told.borrow().is_some(),
            hold: self.view.hold().map(hold_text),
            refused: self.view.refused().values().cloned().collect(),
            gateway: parts.status.borrow().clone(),
        }
    }
}

fn hold_text(hold: &crate::view::Hold) -> String {
    format!(
        "HOLD: {} of {} peers have vanished from the store, and no command of linerate did that, so they stay. Restore the store; \
         or, if they are to go, `linerate fleet accept'",
        hold.gone, hold.peers
    )
}
