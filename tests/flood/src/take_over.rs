//! How long a gateway of a fleet takes to win the clients of another that is dead: it initiates to all of them, from what it
//! has been told of where they are, and each goes on with its keepalive (docs/fleet.md).
//!
//! The clients are simulated, each at an address of its own. Which one an initiation is for is told by its index.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use linerate_control::keys::SecretKey;
use linerate_control::uapi::fleet::{FleetUpdate, Gateway, Hint};
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_lab::hosts::Host;
use linerate_lab::subject::KeyPair;
use linerate_lab::tunnel::Tunnel;
use linerate_lab::{Error, Result, peers};
use linerate_protocol::MessageKind;
use linerate_protocol::fleet::{IndexKey, IndexReader};

use super::initiators::{Responder, index_reader};
use super::spoofed_sources::{Answer, Part, SpoofedSources};

/// The key of the fleet's indices.
const INDEX_KEY: [u8; 32] = [7; 32];

/// Clients in one request.
const AT_ONCE: usize = 256;

/// Bytes before the receiver's index of a data message, and before the sender's of an initiation or response.
const INDEX: usize = 4;

/// What came of a take-over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TakeOverReport {
    /// Clients from which the gateway has a response, and which have its keepalive.
    pub clients: usize,
    /// Seconds from the first request to the last keepalive.
    pub seconds: f64,
    /// Processor seconds of the gateway's daemon in that time.
    pub processor_seconds: f64,
}

/// Has the daemon at the end `end` of `tunnel`, a gateway at `to` with the keys `own`, take over `clients` on `near`.
///
/// # Errors
///
/// The daemon belongs to no fleet, or no socket can be opened.
pub fn take_over(
    tunnel: &Tunnel<'_>,
    end: usize,
    [near, far]: [&Host; 2],
    to: std::net::SocketAddr,
    own: &KeyPair,
    clients: &[KeyPair],
) -> Result<TakeOverReport> {
    let index_key = SecretKey::from_bytes(&INDEX_KEY);
    let fleet = Some(Some(Gateway { number: 2, index_key }));
    tunnel.add_peers(end, &DeviceUpdate { fleet, ..peers::update(clients) })?;
    let sources = SpoofedSources::set_up(near, far, to, Part::Handshakes)?;
    let hints = |from: usize, part: &[KeyPair]| DeviceUpdate {
        peers: part.iter().zip(from..).map(|(client, number)| hint(client, number as u32, &sources)).collect(),
        ..DeviceUpdate::default()
    };
    let requests: Vec<_> =
        clients.chunks(AT_ONCE).zip((0..).step_by(AT_ONCE)).map(|(part, from)| hints(from, part)).collect();
    let reader = index_reader(IndexKey::new(&INDEX_KEY));
    let used = || Ok::<_, Error>(tunnel.usage()?.iter().map(|usage| usage.seconds()).sum::<f64>());
    let (before, start, is_over) = (used()?, Instant::now(), AtomicBool::new(false));
    let (met, end_of_last) = thread::scope(|scope| {
        let answering = scope.spawn(|| answer(&sources, &reader, own, clients, &is_over));
        let told = requests.iter().try_for_each(|request| tunnel.add_peers(end, request));
        if told.is_err() {
            is_over.store(true, Ordering::Relaxed);
        }
        let answered = answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        told.and(answered)
    })?;
    let seconds = end_of_last.duration_since(start).as_secs_f64();
    Ok(TakeOverReport { clients: met, seconds, processor_seconds: used()? - before })
}

/// What the gateway is told of a client.
fn hint(client: &KeyPair, number: u32, sources: &SpoofedSources) -> PeerUpdate {
    let hint = Some(Hint { endpoint: Some(sources.endpoint(number)), sent: None, received: Some([0x40; 12]) });
    let fleet = FleetUpdate { number: Some(number), hint, initiate: true };
    PeerUpdate { fleet, ..PeerUpdate::new(client.public) }
}

/// Answers initiations until each client has a keepalive, or nothing has come for five seconds. Returns how many have one,
/// and when the last one came.
fn answer(
    sources: &SpoofedSources,
    reader: &IndexReader,
    gateway: &KeyPair,
    clients: &[KeyPair],
    is_over: &AtomicBool,
) -> Result<(usize, Instant)> {
    let mut responder = Responder::new(gateway.public);
    let mut waiting = HashMap::new();
    let (mut met, mut last) = (0, Instant::now());
    while met < clients.len() && last.elapsed().as_secs() < 5 && !is_over.load(Ordering::Relaxed) {
        let Some(message) = sources.wait()? else { continue };
        last = Instant::now();
        match message.kind {
            MessageKind::Initiation => {
                let number = reader.owner(index(&message)).number;
                let response =
                    clients.get(number as usize).and_then(|client| responder.answer(client, message.bytes()));
                if let Some((own, response)) = response {
                    waiting.insert(own, number);
                    sources.send(&[(number, &response)])?;
                }
            }
            MessageKind::Data => met += usize::from(waiting.remove(&index(&message)).is_some()),
            MessageKind::Response | MessageKind::Cookie => {}
        }
    }
    Ok((met, last))
}

fn index(message: &Answer) -> u32 {
    message.bytes()[INDEX..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
