//! What happened between two views.

use std::collections::HashMap;
use std::net::SocketAddr;

use linerate_control::endpoint;
use linerate_control::keys::PublicKey;
use linerate_control::uapi::limits::Suspension;
use linerate_tunnel::status::RunBy;
use serde::Serialize;

use crate::{Peer, Time, Tunnel, View};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// When: for handshakes and silence as exactly as it is known, else when it was seen.
    pub time: Time,
    /// The interface.
    pub tunnel: String,
    /// The peer, where one is concerned.
    #[serde(flatten)]
    pub peer: Option<Who>,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Who {
    /// Its name in the tunnel's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub public_key: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum What {
    /// A handshake completed.
    Handshake {
        /// The peer's address.
        #[serde(skip_serializing_if = "Option::is_none")]
        endpoint: Option<String>,
    },
    /// The peer has another address.
    Roam {
        /// The one it had.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The one it has.
        #[serde(skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    /// The peer does not answer.
    Silent {
        /// When it was last heard, if it ever was.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_received: Option<Time>,
    },
    /// A peer that was silent is heard again.
    Back {
        /// For how long it had not answered, in seconds.
        seconds: u64,
    },
    /// The peer's time is over.
    Expired,
    /// The peer's bytes are used up.
    Quota,
    /// The peer was suspended, and is let in again.
    LetIn,
    /// The peer was added.
    Added,
    /// The peer was removed.
    Removed,
    /// The tunnel came up.
    Up,
    /// The tunnel is gone.
    Down,
    /// The daemon has died, and nothing took the tunnel down.
    Died,
    /// Another daemon runs the tunnel.
    Restarted,
    /// The tunnel cannot be read.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// What happened between two views, tunnel by tunnel; nothing if they are the same. A tunnel is there from its first
/// answer on.
pub fn between(before: &View, after: &View) -> Vec<Event> {
    let mut events = Vec::new();
    let is_known = |tunnel: &&Tunnel| !tunnel.is_awaited;
    let gone = before.tunnels.iter().filter(is_known).filter(|tunnel| after.tunnel(&tunnel.interface).is_none());
    events.extend(gone.map(|tunnel| of_tunnel(after.time, tunnel, What::Down)));
    for tunnel in after.tunnels.iter().filter(is_known) {
        match before.tunnel(&tunnel.interface).filter(is_known) {
            Some(before_it) => tunnel_changed(&mut events, before.time, after.time, before_it, tunnel),
            None => {
                let what = if tunnel.is_running() { Some(What::Up) } else { unreadable(tunnel) };
                events.extend(what.map(|what| of_tunnel(after.time, tunnel, what)));
            }
        }
    }
    events
}

fn tunnel_changed(events: &mut Vec<Event>, from: Time, to: Time, before: &Tunnel, after: &Tunnel) {
    let is_other = before.instance != after.instance;
    let what = match (before.implementation, after.implementation) {
        (before, RunBy::Gone) if before != RunBy::Gone => Some(What::Died),
        (before, RunBy::Unknown) if before != RunBy::Unknown => unreadable(after),
        (RunBy::Daemon | RunBy::Kernel | RunBy::Gone, RunBy::Daemon | RunBy::Kernel) if is_other => {
            Some(What::Restarted)
        }
        _ => None,
    };
    events.extend(what.map(|what| of_tunnel(to, after, what)));
    if !after.is_running() || is_other {
        return;
    }
    // Peers stay where they are, mostly.
    let mut old = before.peers.iter();
    let same_place = after.peers.iter().all(|peer| old.next().is_some_and(|old| key(old) == key(peer)));
    if same_place && before.peers.len() == after.peers.len() {
        for (before, after_it) in before.peers.iter().zip(&after.peers) {
            peer_changed(events, from, to, &after.interface, before, after_it);
        }
        return;
    }
    let mut old: HashMap<_, _> = before.peers.iter().map(|peer| (key(peer), peer)).collect();
    for peer in &after.peers {
        match old.remove(&key(peer)) {
            Some(before) => peer_changed(events, from, to, &after.interface, before, peer),
            None => events.push(of_peer(to, &after.interface, peer, What::Added)),
        }
    }
    let removed = before.peers.iter().filter(|peer| old.contains_key(&key(peer)));
    events.extend(removed.map(|peer| of_peer(to, &after.interface, peer, What::Removed)));
}

fn peer_changed(events: &mut Vec<Event>, from: Time, to: Time, tunnel: &str, before: &Peer, after: &Peer) {
    let mut push = |time, what| events.push(of_peer(time, tunnel, after, what));
    if let Some(time) = after.last_handshake.filter(|_| after.last_handshake != before.last_handshake) {
        push(time, What::Handshake { endpoint: address(after.endpoint) });
    }
    // The first address of a peer is that of its handshake.
    if before.endpoint.is_some() && before.endpoint != after.endpoint {
        push(to, What::Roam { from: address(before.endpoint), to: address(after.endpoint) });
    }
    match (silent(before, from), silent(after, to)) {
        (None, Some(_)) => push(to, What::Silent { last_received: after.last_received }),
        // Silence ends with a packet; a peer whose counters began anew was removed and added again.
        (Some(since), None) if after.received > before.received => {
            push(to, What::Back { seconds: since.until(to).as_secs() });
        }
        _ => {}
    }
    if before.suspended != after.suspended {
        push(
            to,
            match after.suspended {
                Some(Suspension::Expired) => What::Expired,
                Some(Suspension::Quota) => What::Quota,
                None => What::LetIn,
            },
        );
    }
}

/// Since when the peer is silent, if it is.
fn silent(peer: &Peer, now: Time) -> Option<Time> {
    peer.unanswered_since.filter(|_| peer.is_silent(now))
}

fn key(peer: &Peer) -> PublicKey {
    peer.settings.public_key
}

fn address(endpoint: Option<SocketAddr>) -> Option<String> {
    endpoint.as_ref().map(endpoint::text)
}

fn unreadable(tunnel: &Tunnel) -> Option<What> {
    tunnel.problem.clone().map(|reason| What::Unreadable { reason })
}

fn of_tunnel(time: Time, tunnel: &Tunnel, what: What) -> Event {
    Event { time, tunnel: tunnel.interface.clone(), peer: None, what }
}

fn of_peer(time: Time, tunnel: &str, peer: &Peer, what: What) -> Event {
    let who = Who { name: peer.settings.name.clone(), public_key: peer.settings.public_key.to_string() };
    Event { time, tunnel: tunnel.to_owned(), peer: Some(who), what }
}
