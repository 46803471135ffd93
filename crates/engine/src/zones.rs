//! The zones of link-local endpoints (RFC 4007): the interfaces by which such peers are reached.
//!
//! An endpoint names its zone by the interface's index, as socket addresses do. An interface that is deleted and
//! created again, such as that of a modem that is unplugged and plugged in, comes back with the same name and another
//! index. Users mean the name, so this remembers the name of each zone while its interface does not exist. An interface
//! that is only renamed keeps its index, and its peers. Queries the kernel, on the slow path only. Neighbour:
//! [`crate::slow_path`].

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::backend::Backend;

/// The most zones; beyond, those whose interfaces do not exist are forgotten.
const ZONES_MAX: usize = 256;

/// The names of zones by index.
#[derive(Default)]
pub(crate) struct Zones(BTreeMap<u32, String>);

/// An interface that came back with another index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) name: String,
    /// Its old index.
    pub(crate) from: u32,
    /// Its new index.
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
        if self.0.len() >= ZONES_MAX {
            self.0.retain(|&index, _| backend.interface_name(index).is_some());
        }
        if let Some(name) = backend.interface_name(index) {
            self.0.insert(index, name);
        }
    }

    /// The interfaces that have another index, after interfaces have changed.
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
