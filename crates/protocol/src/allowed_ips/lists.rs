//! The prefixes of each peer, in the order in which they were added.

use super::arena::Arena;
use super::{NONE, Prefix};
use crate::PeerId;

/// A list per peer, doubly linked, in one arena of entries.
pub struct Lists {
    entries: Arena<Entry>,
    /// The first free entry; `after` links the others.
    vacant: u32,
    /// Indexed by peer id.
    ends: Arena<Ends>,
    /// The last marked entry; its list begins with the marked ones.
    marked: u32,
}

/// A prefix in its peer's list.
struct Entry {
    prefix: Prefix,
    peer: PeerId,
    before: u32,
    after: u32,
}

#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

impl Default for Lists {
    fn default() -> Self {
        Self { entries: Arena::default(), vacant: NONE, ends: Arena::default(), marked: NONE }
    }
}

impl Lists {
    /// The first prefix of a peer.
    pub fn first(&self, peer: PeerId) -> Option<Prefix> {
        self.of(peer).next()
    }

    /// All prefixes of a peer.
    pub fn of(&self, peer: PeerId) -> impl Iterator<Item = Prefix> + '_ {
        self.from(self.ends.get(peer.0).map_or(NONE, |ends| ends.first))
    }

    /// The prefixes after an entry in its list.
    pub fn after(&self, at: u32) -> impl Iterator<Item = Prefix> + '_ {
        self.from(self.entries[at].after)
    }

    fn from(&self, at: u32) -> impl Iterator<Item = Prefix> + '_ {
        core::iter::successors(self.entries.get(at), |entry| self.entries.get(entry.after)).map(|entry| entry.prefix)
    }

    /// Marks the prefixes of this peer only. An entry that is moved or removed loses its mark.
    pub fn mark(&mut self, peer: PeerId) {
        self.marked = self.ends.get(peer.0).map_or(NONE, |ends| ends.last);
    }

    /// Whether the first prefix of a peer is marked.
    pub fn is_marked(&self, peer: PeerId) -> bool {
        self.entries.get(self.marked).is_some_and(|entry| entry.peer == peer)
    }

    /// Adds a prefix at the end of a peer's list and returns the entry's number.
    pub fn push(&mut self, prefix: Prefix, peer: PeerId) -> u32 {
        let entry = Entry { prefix, peer, before: NONE, after: NONE };
        let at = match self.vacant {
            NONE => self.entries.push(entry),
            at => {
                self.vacant = core::mem::replace(&mut self.entries[at], entry).after;
                at
            }
        };
        self.link(at);
        at
    }

    /// Moves an entry to the end of a peer's list, which may be its own.
    pub fn reassign(&mut self, at: u32, peer: PeerId) {
        self.unlink(at);
        self.entries[at].peer = peer;
        self.link(at);
    }

    /// Removes an entry from its list. Its number may be reused.
    pub fn remove(&mut self, at: u32) {
        self.unlink(at);
        self.entries[at].after = core::mem::replace(&mut self.vacant, at);
    }

    fn link(&mut self, at: u32) {
        let peer = self.entries[at].peer;
        while self.ends.len() <= peer.0 as usize {
            self.ends.push(Ends { first: NONE, last: NONE });
        }
        let last = core::mem::replace(&mut self.ends[peer.0].last, at);
        match last {
            NONE => self.ends[peer.0].first = at,
            last => self.entries[last].after = at,
        }
        let entry = &mut self.entries[at];
        (entry.before, entry.after) = (last, NONE);
    }

    fn unlink(&mut self, at: u32) {
        let Entry { peer, before, after, .. } = self.entries[at];
        if self.marked == at {
            self.marked = before;
        }
        match before {
            NONE => self.ends[peer.0].first = after,
            before => self.entries[before].after = after,
        }
        match after {
            NONE => self.ends[peer.0].last = before,
            after => self.entries[after].before = before,
        }
    }
}

#[cfg(test)]
impl Lists {
    /// Number of entries, and of free ones among them.
    pub fn entries(&self) -> (usize, usize) {
        let vacant = core::iter::successors(self.entries.get(self.vacant), |entry| self.entries.get(entry.after));
        (self.entries.len(), vacant.count())
    }
}
