//! The tunnels of this process by their numbers: what a caller holds is never a pointer into our memory, so that one
//! that is stopped twice, or was never started, is refused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::tunnel::{CallbackGuard, Refusal, Tunnel, unknown};

static TUNNELS: Mutex<Tunnels> = Mutex::new(Tunnels { last: 0, by_number: BTreeMap::new() });

struct Tunnels {
    /// The number that was given last. A number comes again only after all others.
    last: i32,
    by_number: BTreeMap<i32, Arc<Tunnel>>,
}

/// Gives a tunnel its number, at least 1.
pub(crate) fn add(tunnel: Tunnel) -> i32 {
    let mut tunnels = tunnels();
    loop {
        tunnels.last = tunnels.last.checked_add(1).unwrap_or(1);
        let number = tunnels.last;
        if let Entry::Vacant(vacant) = tunnels.by_number.entry(number) {
            vacant.insert(Arc::new(tunnel));
            return number;
        }
    }
}

/// The tunnel of this number, for a call that is not made by a callback.
pub(crate) fn find(number: i32) -> Result<Arc<Tunnel>, Refusal> {
    CallbackGuard::refuse()?;
    tunnels().by_number.get(&number).cloned().ok_or_else(unknown)
}

/// Stops the tunnel of this number.
pub(crate) fn stop(number: i32) -> Result<(), Refusal> {
    let tunnel = find(number)?;
    tunnel.stop();
    // Of two that stop it, both return when it has ended.
    tunnels().by_number.remove(&number).map(drop).ok_or_else(unknown)
}

fn tunnels() -> MutexGuard<'static, Tunnels> {
    TUNNELS.lock().unwrap_or_else(PoisonError::into_inner)
}
