//! Ends, quotas and successors of peers: to a daemon that knows them, and from what runs back into the tunnel's file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use linerate_control::client::TunnelClient;
use linerate_control::document::Document;
use linerate_control::tunnel_file::{Peer, has_expired, has_replaced, settings};
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::{PEERS_SUSPENDED, socket};

use crate::context::Context;
use crate::error::Error;
use crate::read::ConfigFile;

/// Sends a change, without limits to an implementation that knows none: true if it had some.
///
/// # Errors
/// See [`TunnelClient::set`].
pub(crate) fn set(interface: &str, update: &DeviceUpdate) -> Result<bool, ClientError> {
    let open = || TunnelClient::open(socket::DIRECTORY.as_ref(), interface);
    // boringtun closes the connection after each reply, and others after a question that they do not know.
    if !update.has_limits()
        || open()?.stats().is_ok_and(|counters| counters.iter().any(|(name, _)| name == PEERS_SUSPENDED))
    {
        return open()?.set(update).map(|()| false);
    }
    open()?.set(&update.without_limits(now()))?;
    Ok(true)
}

/// Says that limits are not kept.
pub(crate) fn warn_of_loss(interface: &str, context: Context<'_>) {
    context.warn(format_args!(
        "{interface}: only linerated keeps Expires, Quota and NextPublicKey while the tunnel runs; what runs it now only \
         leaves out clients that have expired"
    ));
}

/// The time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What became of a peer while the tunnel ran.
enum Outcome {
    /// It has expired.
    Expired,
    /// This key is its key now.
    Replaced,
}

impl ConfigFile {
    /// Whether a supervisor is to write into the file what becomes of its peers.
    pub(crate) fn has_outcomes(&self) -> bool {
        self.contents.peers.iter().any(|peer| peer.client.expires.is_some() || peer.client.next_public_key.is_some())
    }

    /// The file with what became of its peers, if anything did: those that have expired are comments, and keys that
    /// have taken the place of others are in theirs.
    ///
    /// # Errors
    /// A value cannot be written.
    pub(crate) fn with_outcomes(&self, device: &DeviceState) -> Result<Option<Document>, Error> {
        let outcome = |peer: &Peer| {
            let state = device.peers.iter().find(|state| state.public_key == peer.public_key);
            match peer.client.next_public_key {
                _ if state.is_some_and(|state| has_expired(peer, state)) => Some(Outcome::Expired),
                Some(next) if has_replaced(device, &peer.public_key, &next) => Some(Outcome::Replaced),
                _ => None,
            }
        };
        let outcomes = self.contents.peers.iter().filter_map(|peer| Some((peer, outcome(peer)?)));
        let mut document = self.document.clone();
        let mut any = false;
        let expired = Timestamp::from_second(now().as_secs().cast_signed()).unwrap_or(Timestamp::MAX).to_string();
        for (peer, outcome) in outcomes {
            any = true;
            let section = peer.section;
            let written = match outcome {
                Outcome::Expired => {
                    let written = document.insert_first(section, &settings::EXPIRED, &expired);
                    document.disable(section);
                    written
                }
                Outcome::Replaced => {
                    let next = peer.client.next_public_key.unwrap_or(peer.public_key).to_string();
                    document.unset(section, &settings::NEXT_PUBLIC_KEY);
                    document.set(section, &settings::PUBLIC_KEY, &next)
                }
            };
            written.map_err(|error| Error::File(format!("{}: {error}", self.path.display())))?;
        }
        Ok(any.then_some(document))
    }
}
