//! The daemon's UAPI, on a thread of its own, as its client blocks: what has changed is asked for ten times a second, and
//! orders are carried out in between.

use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use linerate_control::interface::InterfaceName;
use linerate_control::uapi::client::{ClientError, DaemonClient};
use linerate_control::uapi::fleet::FleetPeer;
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::uapi::socket::DIRECTORY;
use tokio::sync::mpsc::Sender;

const POLL: Duration = Duration::from_millis(100);
const AT_REST: Duration = Duration::from_secs(1);

/// What the daemon is to be told.
pub(super) enum Request {
    /// There is another daemon (a number for each), or none.
    Daemon(Option<u64>),
    /// Of peers.
    Set(Vec<PeerUpdate>),
    /// Whether what the fleet knows of peers is too old.
    Stale(bool),
}

/// What it tells.
pub(super) enum Reply {
    /// Peers that have changed at the daemon with this number.
    Changes(u64, Vec<FleetPeer>),
    /// A [`Request::Set`] was carried out, or failed.
    Done,
}

/// The thread's work, until there are no more requests.
pub(super) fn run(
    interface: &InterfaceName,
    forward: SocketAddrV4,
    requests: &Receiver<Request>,
    replies: &Sender<Reply>,
) {
    let mut daemon = Daemon { interface, forward, number: None, connection: None, is_stale: false };
    let mut due = Instant::now();
    loop {
        let wait = if daemon.number.is_some() { due.saturating_duration_since(Instant::now()) } else { AT_REST };
        let reply = match requests.recv_timeout(wait) {
            Ok(Request::Daemon(number)) => {
                (daemon.number, daemon.connection) = (number, None);
                None
            }
            Ok(Request::Set(peers)) => {
                daemon.set(DeviceUpdate { peers, ..DeviceUpdate::default() });
                Some(Reply::Done)
            }
            Ok(Request::Stale(is_stale)) => {
                daemon.is_stale = is_stale;
                daemon.set(DeviceUpdate { fleet_stale: Some(is_stale), ..DeviceUpdate::default() });
                None
            }
            Err(RecvTimeoutError::Timeout) => {
                due = Instant::now() + POLL;
                daemon.poll()
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if reply.is_some_and(|reply| replies.blocking_send(reply).is_err()) {
            break;
        }
    }
    daemon.set(DeviceUpdate { fleet_forward: Some(None), ..DeviceUpdate::default() });
}

struct Daemon<'a> {
    interface: &'a InterfaceName,
    forward: SocketAddrV4,
    number: Option<u64>,
    /// A client, and the number of its last reply.
    connection: Option<(DaemonClient, u64)>,
    is_stale: bool,
}

impl Daemon<'_> {
    /// What fails here is tried again: the daemon may be starting, and the service finds out if it is gone.
    fn set(&mut self, update: DeviceUpdate) {
        if let Some((client, _)) = &mut self.connection
            && let Err(error) = client.set(&update)
        {
            eprintln!("linerate-fleet: {}: the daemon refused what other gateways tell: {error}", self.interface);
            self.connection = None;
        }
    }

    fn poll(&mut self) -> Option<Reply> {
        let number = self.number?;
        match self.changes() {
            Ok(peers) => Some(Reply::Changes(number, peers)),
            Err(_) => {
                self.connection = None;
                None
            }
        }
    }

    fn changes(&mut self) -> Result<Vec<FleetPeer>, ClientError> {
        if self.connection.is_none() {
            let mut client = DaemonClient::connect(Path::new(DIRECTORY), self.interface)?;
            let (forward, stale) = (Some(Some(self.forward)), Some(self.is_stale));
            client.set(&DeviceUpdate { fleet_forward: forward, fleet_stale: stale, ..DeviceUpdate::default() })?;
            self.connection = Some((client, 0));
        }
        let Some((client, since)) = &mut self.connection else { return Ok(Vec::new()) };
        let changes = client.fleet_changes(*since)?;
        *since = changes.now;
        Ok(changes.peers)
    }
}
