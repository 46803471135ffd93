//! The zones of link-local endpoints (RFC 4007): interfaces by which such peers are reached.
//!
//! An endpoint has its zone as the kernel's socket address has it, by the interface's index. An interface that is
//! deleted and made anew, such as a modem's that is plugged in again, comes back under its name and with another index.
//! People mean the name: so this remembers the name of each zone for as long as its interface is away. One that is only
//! renamed keeps its index, and its peers. The kernel is asked, by the slow path alone; neighbour:
//! [`crate::slow_path`].

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::backend::Backend;

/// Zones that are remembered before those whose interfaces are away are forgotten.
const MOST: usize = 256;

/// The names of zones by their index.
#[derive(Default)]
pub(crate) struct Zones(BTreeMap<u32, String>);

/// An interface that came back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) name: String,
    /// The index that it had.
    pub(crate) from: u32,
    /// The index that it has.
    pub(crate) to: u32,
}

impl Zones {
    /// Remembers the zone of an endpoint, if it has one.
    pub(crate) fn learn<B: Backend>(&mut self, backend: &B, endpoint: SocketAddr) {
        let SocketAddr::V6(endpoint) = endpoint else { return };
        let index = endpoint.scope_id();
        if index == 0 || self.0.contains_key(&index) {
            return;
        }
        if self.0.len() >= MOST {
            self.0.retain(|&index, _| backend.interface_name(index).is_some());
        }
        if let Some(name) = backend.interface_name(index) {
            self.0.insert(index, name);
        }
    }

    /// Looks at all zones, when interfaces have changed: which are interfaces that have another index by now.
    pub(crate) fn follow<B: Backend>(&mut self, backend: &B) -> Vec<Moved> {
        let mut moved = Vec::new();
        for (&index, name) in &mut self.0 {
            match backend.interface_name(index) {
                Some(renamed) => *name = renamed,
                None => {
                    let found = backend.interface_index(name).filter(|&found| found != index);
                    moved.extend(found.map(|found| Moved { name: name.clone(), from: index, to: found }));
                }
            }
        }
        for Moved { name, from, to } in &moved {
            self.0.remove(from);
            self.0.insert(*to, name.clone());
        }
        moved
    }
}
