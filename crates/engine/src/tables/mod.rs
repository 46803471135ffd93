//! What is looked up per batch: peers, the allowed IPs that lead to them, and the sessions by receiver index.
//!
//! The slow path writes; the data path reads once per batch and never waits for it: a request may make 100,000
//! changes, and the thread that makes them may be preempted at any of them. So there are two copies of the routes
//! ([`left_right`]), both changed in place: copying them for each change would cost a walk over all peers.

mod endpoint;
mod left_right;
mod peer;
mod receivers;

use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, RwLockReadGuard};

use linerate_protocol::{AllowedIps, PeerId, ReplayWindow, Session};

pub use endpoint::Endpoint;
use left_right::LeftRight;
pub use peer::{NO_LIMIT, Peer};
use receivers::Receivers;

const UNPOISONED: &str = "no thread panics while it holds the tables";

/// The tables of one device.
#[derive(Default)]
pub struct Tables {
    routes: LeftRight<Routes>,
    receivers: Receivers<Arc<Receiver>>,
}

impl Tables {
    /// The routes, for look-ups.
    pub fn routes(&self) -> RwLockReadGuard<'_, Routes> {
        self.routes.read()
    }

    /// Changes the routes. Calls `change` twice, once for each copy.
    pub fn change<R>(&self, change: impl FnMut(&mut Routes) -> R) -> R {
        self.routes.write(change)
    }

    /// The session with this receiver index.
    pub fn receiver(&self, index: u32) -> Option<Arc<Receiver>> {
        self.receivers.get(index)
    }

    /// Accepts packets of the session from here on.
    pub fn add_receiver(&self, session: &Arc<Session>, peer: Arc<Peer>) {
        let receiver = Receiver { session: session.clone(), peer, window: Mutex::default() };
        self.receivers.insert(session.local, Arc::new(receiver));
    }

    /// Drops packets of the session from here on.
    pub fn remove_receiver(&self, session: &Session) {
        self.receivers.remove(session.local);
    }
}

/// What a receiver index leads to.
pub struct Receiver {
    /// The keys.
    pub session: Arc<Session>,
    /// The peer that has the other end of the session.
    pub peer: Arc<Peer>,
    /// The counters received. Locked once per batch by each worker that opens packets of this session.
    pub window: Mutex<ReplayWindow>,
}

/// Allowed IPs and peers.
#[derive(Default)]
pub struct Routes {
    /// The allowed IPs of all peers.
    pub allowed: AllowedIps,
    peers: Vec<Option<Arc<Peer>>>,
}

impl Routes {
    /// The peer that packets to `addr` go to, and the only one they may come from.
    pub fn peer_for(&self, addr: IpAddr) -> Option<&Arc<Peer>> {
        self.peer(self.allowed.lookup(addr)?)
    }

    /// A peer by its index.
    pub fn peer(&self, id: PeerId) -> Option<&Arc<Peer>> {
        self.peers.get(id.0 as usize)?.as_ref()
    }

    /// The peers with indices in `ids`; `None` if all indices are below.
    pub fn peers(&self, ids: Range<usize>) -> Option<impl Iterator<Item = &Arc<Peer>>> {
        let ids = ids.start..ids.end.min(self.peers.len());
        (!ids.is_empty()).then(|| self.peers[ids].iter().flatten())
    }

    /// Adds a peer under its index.
    pub fn add(&mut self, peer: Arc<Peer>) {
        let index = peer.id.0 as usize;
        if index >= self.peers.len() {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(peer);
    }

    /// Removes a peer, whose allowed IPs were removed before.
    pub fn remove(&mut self, id: PeerId) -> Option<Arc<Peer>> {
        self.peers.get_mut(id.0 as usize)?.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_protocol::Prefix;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_look_up_does_not_wait_for_a_change() {
        let tables = Tables::default();
        let prefix = |n: u8| Prefix::new([10, 0, 0, n].into(), 32).unwrap();
        let known = |n: u8| tables.routes().allowed.lookup([10, 0, 0, n].into());
        tables.change(|routes| routes.allowed.insert(prefix(1), PeerId(1)));
        let mut copies = 0;
        tables.change(|routes| {
            routes.allowed.insert(prefix(2), PeerId(2));
            // The writer is in the middle of the change, on this very thread: waiting would never end.
            assert_eq!(known(1), Some(PeerId(1)));
            // A reader sees all of a change or nothing.
            assert_eq!(known(2), (copies > 0).then_some(PeerId(2)));
            copies += 1;
        });
        assert_eq!((copies, known(1), known(2)), (2, Some(PeerId(1)), Some(PeerId(2))));
    }

    #[test]
    fn both_copies_of_the_routes_have_every_change() {
        let tables = Tables::default();
        let prefix = |n: u32| Prefix::new(n.to_be_bytes().into(), 24).unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        for n in 0..10_000u32 {
            let (net, peer) = (rng.u32(..) & 0xff00, PeerId(n % 7));
            tables.change(|routes| match n % 3 {
                0 => routes.allowed.remove(prefix(net), peer),
                _ => routes.allowed.insert(prefix(net), peer).is_some(),
            });
        }
        let prefixes = || {
            let routes = tables.routes();
            (0..7).map(|peer| routes.allowed.prefixes(PeerId(peer)).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let first = prefixes();
        // Changes nothing, but readers use the other copy from here on.
        tables.change(|_| ());
        assert_eq!(first, prefixes());
    }

    /// Sets the flag when it is dropped, so that threads that wait for it end when the test panics, too.
    struct SetOnDrop<'a>(&'a AtomicBool);

    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn readers_see_every_change_in_order_beside_a_writer() {
        let tables = Tables::default();
        let prefix = Prefix::new([10, 0, 0, 0].into(), 8).unwrap();
        let (addr, over) = (IpAddr::from([10, 1, 1, 1]), AtomicBool::new(false));
        tables.change(|routes| routes.allowed.insert(prefix, PeerId(0)));
        std::thread::scope(|scope| {
            let _over = SetOnDrop(&over);
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !over.load(Ordering::Relaxed) {
                        let PeerId(seen) = tables.routes().allowed.lookup(addr).expect("it always has an owner");
                        assert!(seen >= last, "a change is never undone");
                        last = seen;
                    }
                });
            }
            for n in 1..20_000 {
                tables.change(|routes| routes.allowed.insert(prefix, PeerId(n)));
                assert_eq!(tables.routes().allowed.lookup(addr), Some(PeerId(n)));
            }
        });
    }
}
