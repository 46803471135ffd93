//! The daemon of the tunnel follows the peers at once, by UAPI: one revision of the store is one `set`. The file comes after.
//!
//! A daemon forgets its part in the fleet when it ends, so whoever runs next is told all of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use linerate_cli::eprint_line;
use linerate_control::client::TunnelClient;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::{AllowedIpRemoval, TunnelFile, changes};
use linerate_control::uapi::fleet::Gateway;
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::uapi::socket;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use crate::local;
use crate::peers::Difference;
use crate::view::Peers;

/// How long to wait for a daemon that is not there, or refuses.
const PAUSE: Duration = Duration::from_millis(200);

/// So many numbers are told at a time.
const NUMBERS_MAX: usize = 10_000;

/// A change, and who waits for it.
pub type Ask = (DeviceUpdate, oneshot::Sender<()>);

/// What a daemon is told: who it is, and the numbers of its peers.
pub struct Part {
    /// The tunnel.
    pub interface: InterfaceName,
    /// This gateway.
    pub gateway: Gateway,
    /// The address by which clients know the fleet.
    pub address: IpAddr,
    /// The fleet's key, which its tunnel has.
    pub public_key: PublicKey,
    /// The peers in force.
    pub peers: watch::Receiver<Arc<Peers>>,
    /// How often a daemon was told; none if there is none.
    pub told: watch::Sender<Option<u64>>,
}

impl Part {
    /// Tells each daemon its part when it comes, and passes changes on to it. Ends when nobody can ask any more.
    pub async fn keep(self, mut asked: mpsc::Receiver<Ask>) {
        let mut times = 0;
        let mut complaint = None;
        loop {
            match self.connect().await {
                Ok(connection) => {
                    complaint = None;
                    times += 1;
                    self.told.send_replace(Some(times));
                    if !self.serve(connection, &mut asked).await {
                        return;
                    }
                    self.told.send_replace(None);
                }
                Err(error) => {
                    if let Some(error) = error.filter(|error| complaint.as_ref() != Some(error)) {
                        eprint_line(&format!("linerate-fleet: {error}"));
                        complaint = Some(error);
                    }
                    // Whatever is asked for meanwhile comes by the file.
                    while asked.try_recv().is_ok() {}
                    if asked.is_closed() {
                        return;
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Waits for a daemon and tells it its part. An error without words: there is none.
    async fn connect(&self) -> Result<UnixStream, Option<String>> {
        let path = socket::path(socket::DIRECTORY.as_ref(), &self.interface);
        let connection = UnixStream::connect(&path).await.map_err(|_| None)?;
        let interface = &self.interface;
        // Names are reused, and what has this one is told the fleet's keys.
        match get(interface).await?.private_key {
            Some(key) if local::public_key(&key).ok() == Some(self.public_key) => {}
            // Whoever started it has not configured it yet.
            None => return Err(None),
            Some(_) => {
                return Err(Some(format!(
                    "the tunnel {interface} that runs has another private key than the fleet, so it is another one, and is as \
                     it was: take it down with the program that brought it up, then `linerate up {interface}`"
                )));
            }
        }
        for update in self.all() {
            set(&self.interface, update).await.map_err(|error| {
                Some(format!(
                    "the daemon of {} does not take its part in the fleet: {error}; is it linerated, of this version?",
                    self.interface
                ))
            })?;
        }
        Ok(connection)
    }

    /// Passes changes on while the daemon is there; false if nobody can ask any more.
    async fn serve(&self, connection: UnixStream, asked: &mut mpsc::Receiver<Ask>) -> bool {
        loop {
            tokio::select! {
                // It says nothing unasked: what is readable is its end.
                _ = connection.readable() => return true,
                ask = asked.recv() => {
                    let Some((update, done)) = ask else { return false };
                    if let Err(error) = set(&self.interface, update).await {
                        let interface = &self.interface;
                        eprint_line(&format!("linerate-fleet: {interface}: a change comes by its file alone: {error}"));
                    }
                    let _ = done.send(());
                }
            }
        }
    }

    fn all(&self) -> Vec<DeviceUpdate> {
        let peers = Arc::clone(&self.peers.borrow());
        let numbered = |(key, peer): (&PublicKey, &Arc<crate::peers::Peer>)| {
            let mut update = PeerUpdate { update_only: true, ..PeerUpdate::new(*key) };
            update.fleet.number = Some(peer.number);
            update
        };
        let numbers: Vec<PeerUpdate> = peers.iter().filter(|(_, peer)| peer.is_enabled).map(numbered).collect();
        let fleet = Some(Some(self.gateway.clone()));
        let fleet_address = Some(Some(self.address));
        let mut updates = vec![DeviceUpdate { fleet, fleet_address, ..DeviceUpdate::default() }];
        let part = |peers: &[PeerUpdate]| DeviceUpdate { peers: peers.to_vec(), ..DeviceUpdate::default() };
        updates.extend(numbers.chunks(NUMBERS_MAX).map(part));
        updates
    }
}

/// Tells the daemon that it is of no fleet any more.
pub async fn release(interface: &InterfaceName) {
    let _ = set(interface, DeviceUpdate { fleet: Some(None), ..DeviceUpdate::default() }).await;
}

/// The state of the tunnel. An error without words: it has ended, or does not respond.
async fn get(interface: &InterfaceName) -> Result<DeviceState, Option<String>> {
    let interface = interface.clone();
    let get = move || TunnelClient::open(socket::DIRECTORY.as_ref(), interface.as_str())?.get();
    tokio::task::spawn_blocking(get).await.map_err(|error| Some(error.to_string()))?.map_err(|_| None)
}

async fn set(interface: &InterfaceName, update: DeviceUpdate) -> Result<(), String> {
    let interface = interface.clone();
    let done = tokio::task::spawn_blocking(move || {
        let mut client = TunnelClient::open(socket::DIRECTORY.as_ref(), interface.as_str())?;
        client.set(&update)
    });
    match done.await {
        Ok(outcome) => outcome.map_err(|error| error.reason_of_set()),
        Err(error) => Err(error.to_string()),
    }
}

/// What a daemon that has the peers `before` is asked for to have those of `after`. Endpoints that are names come by the
/// file, which looks them up.
pub fn update(interface: &InterfaceName, before: &Peers, after: &Peers, difference: &Difference) -> DeviceUpdate {
    let file = |peers: &Peers| {
        let mut file = TunnelFile::empty(interface);
        let changed = difference.gone.iter().chain(&difference.put).filter_map(|key| peers.get(key));
        file.peers = changed.filter(|peer| peer.is_enabled).map(|peer| Arc::clone(&peer.contents)).collect();
        file
    };
    let (old, new) = (file(before), file(after));
    let keys = old.peers.iter().flat_map(|peer| [Some(peer.public_key), peer.client.next_public_key]);
    let device = DeviceState { peers: keys.flatten().map(PeerState::new).collect(), ..DeviceState::default() };
    let mut update = changes(&old, &new, &device, AllowedIpRemoval::OneByOne).update;
    for peer in update.peers.iter_mut().filter(|peer| !peer.remove) {
        peer.fleet.number = after.get(&peer.public_key).map(|peer| peer.number);
    }
    update
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::tests::{text, wg0};
    use crate::peers::{self, sections};
    use linerate_control::document::Document;
    use std::collections::BTreeMap;

    fn peers(all: &[(u8, &str, bool)]) -> Peers {
        let peer = |(byte, note, is_enabled): &(u8, &str, bool)| {
            let mut document = Document::parse(text(*byte, note).as_bytes());
            if !is_enabled {
                document.disable(1);
            }
            let (key, section) = sections(&document, &wg0()).unwrap().pop_first().unwrap();
            (key, Arc::new(peers::peer(&key, (*byte).into(), section.text(), &wg0()).unwrap()))
        };
        all.iter().map(peer).collect()
    }

    fn asked(before: &Peers, after: &Peers) -> BTreeMap<u8, (bool, Option<u32>, usize)> {
        let update = update(&wg0(), before, after, &Difference::between(before, after));
        let told = |peer: &PeerUpdate| (peer.public_key.0[0], (peer.remove, peer.fleet.number, peer.allowed_ips.len()));
        update.peers.iter().map(told).collect()
    }

    #[test]
    fn one_update_has_what_changes_with_the_numbers() {
        let before = peers(&[(1, "", true), (2, "", true), (3, "", true), (4, "", false)]);
        let after = peers(&[(1, "", true), (3, "", false), (4, "", true), (5, "", true)]);
        let expected = [(2, (true, None, 0)), (3, (true, None, 0)), (4, (false, Some(4), 1)), (5, (false, Some(5), 1))];
        assert_eq!(asked(&before, &after), expected.into());
        assert_eq!(asked(&after, &after), BTreeMap::new());
    }

    #[test]
    fn a_note_is_nothing_to_a_daemon() {
        let (before, after) = (peers(&[(1, "", true)]), peers(&[(1, "#! Note = x\n", true)]));
        assert!(!Difference::between(&before, &after).is_empty());
        assert_eq!(asked(&before, &after), BTreeMap::new());
    }
}
