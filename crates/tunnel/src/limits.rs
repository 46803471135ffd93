//! Sends expiry times, quotas, rates and next keys of peers to a daemon that knows them, and writes their outcomes back into
//! the tunnel's file.

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use linerate_control::client::TunnelClient;
use linerate_control::document::Document;
use linerate_control::tunnel_file::{Peer, TunnelFile, has_expired, has_replaced, settings};
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::{GROUP_MOVES, PEERS_SUSPENDED, RATE_MARKED, socket};

use crate::context::Context;
use crate::error::Error;
use crate::read::ConfigFile;

/// What an implementation does not know of a change that it was sent.
#[derive(Clone, Copy, Default)]
#[must_use]
pub(crate) struct Lost {
    limits: bool,
    rates: bool,
    groups: bool,
}

/// Sends a change; leaves out limits, rates and groups that the implementation does not know, and returns which these were.
///
/// # Errors
/// See [`TunnelClient::set`].
pub(crate) fn set(interface: &str, update: &DeviceUpdate) -> Result<Lost, ClientError> {
    let open = || TunnelClient::open(socket::DIRECTORY.as_ref(), interface);
    // boringtun closes the connection after each reply, and others after a question that they do not know.
    let mut lost = Lost::default();
    if update.has_limits() {
        lost.limits = !knows(PEERS_SUSPENDED, open()?.stats())?;
    }
    if update.has_rates() {
        lost.rates = !knows(RATE_MARKED, open()?.stats())?;
    }
    if update.has_groups() {
        lost.groups = !knows(GROUP_MOVES, open()?.stats())?;
    }
    let mut update = Cow::Borrowed(update);
    if lost.limits {
        update = Cow::Owned(update.without_limits(now()));
    }
    if lost.rates {
        update = Cow::Owned(update.without_rates());
    }
    if lost.groups {
        update = Cow::Owned(update.without_groups());
    }
    open()?.set(&update)?;
    Ok(lost)
}

/// Whether this answer to the question for counters is that of an implementation with this one. One that gives none in
/// time may be.
fn knows(counter: &str, counters: Result<Vec<(String, u64)>, ClientError>) -> Result<bool, ClientError> {
    let is_none = |error: &io::Error| {
        matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
    };
    match counters {
        Ok(counters) => Ok(counters.iter().any(|(name, _)| name == counter)),
        Err(ClientError::Reply(_)) => Ok(false),
        Err(error) if error.as_io().is_some_and(is_none) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Lost {
    /// Whether nothing was left out.
    pub(crate) fn is_none(self) -> bool {
        !self.limits && !self.rates && !self.groups
    }

    /// Describes each kind of setting that was left out, in a sentence.
    pub(crate) fn sentences(self, interface: &str) -> Vec<String> {
        let limits = self.limits.then(|| {
            format!(
                "{interface}: only linerated keeps Expires, Quota and NextPublicKey while the tunnel runs; what runs it \
                 now only leaves out clients that have expired"
            )
        });
        let rates = self.rates.then(|| {
            format!(
                "{interface}: only linerated keeps Rate, and what runs the tunnel now does not: its clients are as fast \
                 as they can be. If that is an older linerated, take the tunnel down and up again"
            )
        });
        let groups = self.groups.then(|| {
            format!(
                "{interface}: only linerated knows Group; with what runs it now the last peer of each group has its \
                 AllowedIPs, and no other takes over"
            )
        });
        limits.into_iter().chain(rates).chain(groups).collect()
    }

    /// Warns of each kind of setting that was left out.
    pub(crate) fn warn(self, interface: &str, context: Context<'_>) {
        self.sentences(interface).iter().for_each(|sentence| context.warn(sentence));
    }
}

/// Says that what clients use is not kept, unless it `is_kept`: the tunnel came up without limits, and `new` has the first
/// or, after `old`, the first quota.
pub(crate) fn warn_of_usage(is_kept: bool, old: &TunnelFile, new: &TunnelFile, interface: &str, context: Context<'_>) {
    let has_quota = |file: &TunnelFile| file.peers.iter().any(|peer| peer.client.quota.is_some());
    let is_first = |has: &dyn Fn(&TunnelFile) -> bool| has(new) && !has(old);
    if !is_kept && (is_first(&TunnelFile::may_have_limits) || is_first(&has_quota)) {
        context.warn(format_args!(
            "{interface}: what clients use of their quotas is kept over restarts only from the next `up` on: take it down and up again"
        ));
    }
}

/// The time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What became of a peer while the tunnel ran.
enum Outcome {
    Expired,
    /// This key is its key now.
    Replaced,
}

impl ConfigFile {
    /// Whether a supervisor is to write into the file what becomes of its peers.
    pub(crate) fn has_outcomes(&self) -> bool {
        // The peers of a fleet are what its store says: each gateway would write the same, and none of them there.
        self.contents.fleet.is_none()
            && self
                .contents
                .peers
                .iter()
                .any(|peer| peer.client.expires.is_some() || peer.client.next_public_key.is_some())
    }

    /// The file with what became of its peers, if anything did: those that have expired are comments, and keys that
    /// have taken the place of others are in theirs.
    ///
    /// # Errors
    /// A value cannot be written.
    pub(crate) fn with_outcomes(&self, device: &DeviceState) -> Result<Option<Document>, Error> {
        self.with_those_of(device, |_| true)
    }

    /// The file with the keys that have taken the place of others in theirs, if any have.
    ///
    /// # Errors
    /// A value cannot be written.
    pub(crate) fn with_replacements(&self, device: &DeviceState) -> Result<Option<Self>, Error> {
        let document = self.with_those_of(device, |outcome| matches!(outcome, Outcome::Replaced))?;
        Ok(document.map(|document| self.with(document)))
    }

    fn with_those_of(
        &self,
        device: &DeviceState,
        is_written: impl Fn(&Outcome) -> bool,
    ) -> Result<Option<Document>, Error> {
        let outcome = |peer: &Peer| {
            let state = device.peers.iter().find(|state| state.public_key == peer.public_key);
            match peer.client.next_public_key {
                _ if state.is_some_and(|state| has_expired(peer, state)) => Some(Outcome::Expired),
                Some(next) if has_replaced(device, &peer.public_key, &next) => Some(Outcome::Replaced),
                _ => None,
            }
        };
        let outcomes = self.contents.peers.iter().filter_map(|peer| Some((peer, outcome(peer).filter(&is_written)?)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_control::keys::PublicKey;
    use linerate_control::uapi::limits::Suspension;
    use linerate_control::uapi::response::{PeerState, ReplyError};
    use linerate_control::zeroizing::Buffer;

    #[test]
    fn a_key_that_has_replaced_another_is_in_its_place_and_an_end_is_not_written_with_it() {
        let [old, next, expired] = [7, 8, 9].map(|byte| PublicKey([byte; 32]));
        let end = "#! Expires = 2027-01-31T00:00:00Z";
        let file = |next: &str| {
            let text = format!("[Interface]\n[Peer]\n# Name = a\n{end}\n{next}[Peer]\n{end}\nPublicKey = {expired}\n");
            ConfigFile::of("/wg0.conf".into(), "wg0".parse().unwrap(), Buffer::from(text.into_bytes()))
        };
        let mut over = PeerState::new(expired);
        over.limits.expires = Some(Duration::from_secs(1_801_353_600));
        over.limits.suspended = Some(Suspension::Expired);
        let device = DeviceState { peers: vec![PeerState::new(next), over], ..DeviceState::default() };
        let before = file(&format!("PublicKey = {old}\n#! NextPublicKey = {next}\n"));
        let after = before.with_replacements(&device).unwrap().unwrap();
        assert_eq!(*after.text(), *file(&format!("PublicKey = {next}\n")).text());
        assert!(after.with_replacements(&device).unwrap().is_none());
        let all = before.with_outcomes(&device).unwrap().unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&all).contains(&format!("#~ PublicKey = {expired}")));
    }

    #[test]
    fn limits_are_left_out_only_for_an_answer_that_there_are_none() {
        let counter = |name: &str| Ok(vec![(name.to_owned(), 0)]);
        assert!(knows(PEERS_SUSPENDED, counter(PEERS_SUSPENDED)).unwrap());
        assert!(!knows(PEERS_SUSPENDED, counter("other")).unwrap());
        for error in [ReplyError::Refused(-22), ReplyError::Truncated] {
            assert!(!knows(PEERS_SUSPENDED, Err(error.into())).unwrap());
        }
        for kind in [ErrorKind::Unsupported, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe] {
            assert!(!knows(PEERS_SUSPENDED, Err(io::Error::from(kind).into())).unwrap());
        }
        for kind in [ErrorKind::TimedOut, ErrorKind::PermissionDenied] {
            assert!(knows(PEERS_SUSPENDED, Err(io::Error::from(kind).into())).is_err());
        }
    }
}
