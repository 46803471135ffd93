//! Edits a tunnel's file, then applies the edit to the running tunnel. Whatever happens meanwhile (a kill, a full disk,
//! another administrator), the file has all of the edit or nothing of it, and the next `up` or `reload` applies the file.
//!
//! | step | |
//! |---|---|
//! | lock | commands for one tunnel run one after the other; the lock is no file that is replaced |
//! | read again | what another command wrote meanwhile is kept |
//! | change | in memory; a file with a mistake, before or after, is not touched |
//! | commit | the peers of a fleet are changed in its store (`fleet`); what was changed there meanwhile comes first |
//! | replace | a new file is written to disk, checked against an edit by other means, and renamed |
//! | apply | only the changed peers go to the daemon, and their destinations to a gateway's table; whatever else concerns the host is a whole reload |
//! | apply to another program's | a tunnel that another program brought up gets the file's peers; the caller is told of those that it did not get (`foreign`) |
//! | put back | if the daemon refuses, and nobody else has changed the file since |
//!
//! Until the daemon has an edit, the ledger has it as the next file: the next edit or `reload` begins there.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use linerate_control::document::Document;
use linerate_control::tunnel_file::{Peer, TunnelFile, changes, differing};
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_host::spec::{Compat, HostSpec, Restriction};

use crate::context::Context;
use crate::error::Error;
use crate::identity::{self, Place};
use crate::ledger::{Ledger, LedgerHead, LockedLedger};
use crate::read::{ConfigFile, DefaultRoutes, restrictions_of};
use crate::reload::{self, PendingReload, Reloaded, reload_locked};
use crate::status::is_absence;
use crate::{Options, background, fleet, foreign, limits, lock, save};

/// What became of an edit.
pub struct Edited<T> {
    /// What the change returned.
    pub value: T,
    /// How the running tunnel got it.
    pub applied: Applied,
    /// Settings of the file that the running tunnel does not follow; each a sentence that names a remedy.
    pub unmet: Vec<String>,
}

/// How a running tunnel got an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Applied {
    /// Nothing runs or responds, or nothing has changed for what runs: the next `up` or `reload` reads the file.
    #[default]
    NotRunning,
    /// The number of peers changed, added or removed. On the host only their destinations were changed, if at all.
    Peers(usize),
    /// By a whole reload.
    Reloaded,
}

/// The effect of an edit on the running tunnel.
#[derive(Default)]
struct Outcome {
    applied: Applied,
    needs_supervisor: bool,
    /// See [`Edited::unmet`].
    unmet: Vec<String>,
}

/// Replaces the file of a tunnel by what `change` makes of it, and applies that to the tunnel if it runs. In a fleet its
/// peers are changed in the store first; if somebody else was faster, `change` is asked again once the file has followed.
///
/// # Errors
/// The file has errors, was edited by other means meanwhile, cannot be written, or the running tunnel refuses it: the
/// file is as it was. Or `change` fails, or the fleet's store does not take the peers.
pub fn edit<T>(
    file: &ConfigFile,
    options: &Options,
    context: Context<'_>,
    mut change: impl FnMut(&ConfigFile) -> Result<(Document, T), Error>,
) -> Result<Edited<T>, Error> {
    let until = Instant::now() + fleet::CATCH_UP_TIME;
    loop {
        match edit_if(file, options, context, &mut change, fleet::commit) {
            Err(Error::Outdated(_)) if Instant::now() < until && !context.interruption.came() => {
                // The lock is free meanwhile, for whoever has the file follow.
                context.interruption.pause(&[], Some(fleet::PAUSE)).map_err(Error::system("cannot wait"))?;
            }
            outcome => return outcome,
        }
    }
}

/// As [`edit`], where the file follows the store of its fleet.
///
/// # Errors
/// As [`edit`].
pub fn follow<T>(
    file: &ConfigFile,
    options: &Options,
    context: Context<'_>,
    change: impl FnOnce(&ConfigFile) -> Result<(Document, T), Error>,
) -> Result<Edited<T>, Error> {
    edit_if(file, options, context, change, |_, _| Ok(()))
}

/// As [`edit`], once, if the new file is `admitted`.
fn edit_if<T>(
    file: &ConfigFile,
    options: &Options,
    context: Context<'_>,
    change: impl FnOnce(&ConfigFile) -> Result<(Document, T), Error>,
    admitted: impl FnOnce(&ConfigFile, &ConfigFile) -> Result<(), Error>,
) -> Result<Edited<T>, Error> {
    let locked = lock::lock(&file.interface, context)?;
    // What was read before another command had the lock is read again.
    let reopened = if file.is_as_read().unwrap_or(false) { None } else { Some(file.reopen()?) };
    let file = reopened.as_ref().unwrap_or(file);
    if let Some(ledger) = locked.read_head()? {
        identity::check_editable(&file.interface, &ledger.identity)?;
    }
    file.check()?;
    let running = state_with_successors(file, &locked)?;
    // A key that has taken the place of another is in its place for the change, too.
    let outcomes = running.as_ref().map(|running| file.with_outcomes(running)).transpose()?.flatten();
    let current = outcomes.map(|document| file.with(document));
    let (document, value) = change(current.as_ref().unwrap_or(file))?;
    let new = file.with(document);
    let Outcome { applied, needs_supervisor, unmet } = if file.text() == new.text() {
        // That there is nothing to change may be true of a file that does not follow yet.
        admitted(file, &new)?;
        catch_up(file, &locked, options, context)?
    } else {
        new.check()?;
        check_unchanged(file)?;
        admitted(file, &new)?;
        replace(&file.path, new.text())?;
        match apply(file, &new, running, &locked, options, context) {
            Ok(outcome) => outcome,
            Err(error) => return Err(error.and(put_back(&new, file.text()))),
        }
    };
    drop(locked);
    if needs_supervisor {
        background::start(&new, context);
    }
    Ok(Edited { value, applied, unmet })
}

/// The state of the tunnel that runs from `file`, if that has keys which may have taken the place of others by now.
fn state_with_successors(file: &ConfigFile, locked: &LockedLedger) -> Result<Option<DeviceState>, Error> {
    let has_successors = file.contents.peers.iter().any(|peer| peer.client.next_public_key.is_some());
    let is_of_other = || Ok::<_, Error>(locked.read_head()?.is_some_and(|ledger| !file.is_file_of_head(&ledger)));
    if !has_successors || is_of_other()? {
        return Ok(None);
    }
    Ok(reload::open(&file.interface).and_then(|mut tunnel| tunnel.get()).ok())
}

/// Has the tunnel of `file` follow it if it does not: the edit that is asked for again may have been killed before.
fn catch_up(
    file: &ConfigFile,
    locked: &LockedLedger,
    options: &Options,
    context: Context<'_>,
) -> Result<Outcome, Error> {
    if own_ledger(file, locked)?.is_none() {
        return apply_to_foreign(file, file, locked, context);
    }
    if follows(file, locked)? {
        return Ok(Outcome::default());
    }
    reloaded(reload_locked(file, options, context, locked)?)
}

fn reloaded(done: Reloaded) -> Result<Outcome, Error> {
    Ok(Outcome { applied: Applied::Reloaded, needs_supervisor: done.needs_supervisor, unmet: Vec::new() })
}

/// The ledger of the tunnel that was brought up from `file`, and its place; `None` if another program has its name.
fn own_ledger(file: &ConfigFile, locked: &LockedLedger) -> Result<Option<(LedgerHead, Place)>, Error> {
    let Some(ledger) = locked.read_head()?.filter(|ledger| file.is_file_of_head(ledger)) else { return Ok(None) };
    let place = identity::of_head(&file.interface, &ledger)?;
    Ok((place != Place::Replaced).then_some((ledger, place)))
}

/// Applies an edit from `old` to `new` to a running tunnel that was not brought up from this file, if there is one.
fn apply_to_foreign(
    old: &ConfigFile,
    new: &ConfigFile,
    locked: &LockedLedger,
    context: Context<'_>,
) -> Result<Outcome, Error> {
    let of_other_file = locked.read_head()?.filter(|ledger| !new.is_file_of_head(ledger));
    let (applied, unmet) = foreign::apply(old, new, of_other_file.as_ref(), context)?;
    Ok(Outcome { applied, needs_supervisor: false, unmet })
}

/// Whether the tunnel has what `file` says, as far as linerate knows.
fn follows(file: &ConfigFile, locked: &LockedLedger) -> Result<bool, Error> {
    Ok(locked.has_file(file.text())? && locked.read_next_file()?.is_none())
}

/// Puts the text `before` back in the place of `new`, unless that was replaced by other means.
fn put_back(new: &ConfigFile, before: &[u8]) -> Result<(), Error> {
    check_unchanged(new)?;
    replace(&new.path, before)
}

/// Replaces the file.
fn replace(path: &Path, text: &[u8]) -> Result<(), Error> {
    save::replace(path, text)
        .map_err(|error| Error::System(format!("{} was left as it was: cannot write it", path.display()), error))
}

/// Checks that an editor, which takes no lock, has not saved the file since it was read.
pub(crate) fn check_unchanged(file: &ConfigFile) -> Result<(), Error> {
    match file.is_as_read().map_err(Error::inaccessible(&file.path))? {
        true => Ok(()),
        false => {
            let path = file.path.display();
            Err(Error::State(format!("{path} was changed by another program meanwhile, and was left alone: try again")))
        }
    }
}

/// Applies an edit from `old` to `new` to the tunnel if it runs.
fn apply(
    old: &ConfigFile,
    new: &ConfigFile,
    running: Option<DeviceState>,
    locked: &LockedLedger,
    options: &Options,
    context: Context<'_>,
) -> Result<Outcome, Error> {
    let Some((ledger, place)) = own_ledger(new, locked)? else { return apply_to_foreign(old, new, locked, context) };
    let reload = || reloaded(reload_locked(new, options, context, locked)?);
    // What the tunnel has is the copy: an edit by hand that was not reloaded yet is none of ours, unless it has to be.
    if !ledger.complete || !ledger.pending.is_empty() || !follows(old, locked)? {
        return reload();
    }
    let restricted = match host_change(old, new, &ledger) {
        HostChange::None => None,
        HostChange::Restrictions(restrictions) if !matches!(place, Place::Renamed(_) | Place::Moved) => {
            match locked.read()?.filter(|ledger| ledger.gateway_table().is_some()) {
                Some(ledger) => Some((ledger, restrictions)),
                // The table has to be made.
                None => return reload(),
            }
        }
        _ => return reload(),
    };
    let (applied, unmet) = apply_to_peers(old, new, running, restricted, &ledger, locked, context)?;
    // Where a default route needs one, `up` or a reload has started it.
    let needs_supervisor = matches!(applied, Applied::Peers(_))
        && new.needs_supervisor(Compat::WgQuick)
        && !ledger.supervised
        && background::is_missing(&new.interface);
    Ok(Outcome { applied, needs_supervisor, unmet })
}

/// Applies a change of peers, and what is `restricted` on the host, to a tunnel that has what `old` says. Returns how,
/// and what the tunnel does not do.
fn apply_to_peers(
    old: &ConfigFile,
    new: &ConfigFile,
    running: Option<DeviceState>,
    restricted: Option<(Ledger, Vec<Restriction>)>,
    ledger: &LedgerHead,
    locked: &LockedLedger,
    context: Context<'_>,
) -> Result<(Applied, Vec<String>), Error> {
    let name = &new.interface;
    let is_usage_kept = ledger.usage.is_some();
    limits::warn_of_usage(is_usage_kept, &old.contents, &new.contents, name.as_str(), context);
    let update = changed_peers(&*old.loaded()?, &*new.loaded()?, running, name);
    locked.write_next_file(new.text())?;
    let give_up = |error: Error| {
        // A leftover file is harmless: reverting it is a no-op.
        let _ = locked.forget_next_file();
        error
    };
    let is_asked = !update.peers.is_empty();
    // Before a new peer is there: it never reaches more than the file says.
    let restrict = |(ledger, wanted)| PendingReload::restrict(locked, ledger, wanted, is_asked, context);
    let restricted = restricted.map(restrict).transpose().map_err(give_up)?;
    let answer = if is_asked { limits::set(name.as_str(), &update) } else { Ok(limits::Lost::default()) };
    if let Err(ClientError::Reply(_)) = answer {
        let error = give_up(Error::State("the running tunnel refuses the change".to_owned()));
        return Err(match restricted {
            Some(restricted) => restricted.roll_back(error),
            None => error,
        });
    }
    match answer {
        Ok(lost) => {
            // Before the table is that of the file: what is killed in between puts no peer back.
            locked.adopt_next_file()?;
            restricted.map(PendingReload::finish).transpose()?;
            Ok((Applied::Peers(update.peers.len()), lost.sentences(name.as_str())))
        }
        // Its daemon is dead: whoever starts it again reads the copy, or `up` the file.
        Err(error) if is_absence(&error) => {
            context.warn(format_args!("{name} does not respond: {error}"));
            locked.adopt_next_file()?;
            restricted.map(PendingReload::finish).transpose()?;
            Ok((Applied::NotRunning, Vec::new()))
        }
        // Its daemon may have the change, get it later, or never.
        Err(error) => {
            restricted.map(PendingReload::finish_unanswered).transpose()?;
            let unmet = format!(
                "{name} does not respond: {error}; the change is in the file, and `linerate reload {name}` applies it"
            );
            Ok((Applied::NotRunning, vec![unmet]))
        }
    }
}

/// What an edit asks of the host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HostChange {
    /// Nothing: at most peers differ that need no look-up of a name.
    None,
    /// Other restrictions of such peers, and nothing else.
    Restrictions(Vec<Restriction>),
    /// Something else.
    Other,
}

/// What the change from one file to another asks of the host, which has what the ledger of the tunnel says.
pub(crate) fn host_change(old: &ConfigFile, new: &ConfigFile, ledger: &LedgerHead) -> HostChange {
    let (from, to) = (&old.contents, &new.contents);
    // Apart from its restrictions, what a peer asks of the host does not depend on the others.
    let (old_peers, new_peers) = differing(&from.peers, &to.peers);
    let spec = |file: &ConfigFile, peers: &[Arc<Peer>]| {
        let mut spec = host_spec(file, peers);
        spec.forwarding.restrictions.clear();
        spec
    };
    let device = |file: &TunnelFile| (file.listen_port, file.fwmark, file.user.clone(), file.spin);
    let endpoints = |peers: &[Arc<Peer>]| {
        let with = peers.iter().filter(|peer| peer.endpoint.is_some());
        with.map(|peer| (peer.public_key, peer.endpoint.clone())).collect::<Vec<_>>()
    };
    let asks_the_same = device(from) == device(to)
        && from.private_key == to.private_key
        && from.private_key_file == to.private_key_file
        && endpoints(old_peers) == endpoints(new_peers)
        && old.hooks() == new.hooks()
        && spec(old, old_peers) == spec(new, new_peers);
    if !asks_the_same {
        return HostChange::Other;
    }
    let restrictions = restrictions_of(&to.peers);
    match restrictions == ledger.spec.forwarding.restrictions {
        true => HostChange::None,
        false => HostChange::Restrictions(restrictions),
    }
}

/// What the file would ask of the host with these peers, whatever the addresses of its endpoints.
pub(crate) fn host_spec(file: &ConfigFile, peers: &[Arc<Peer>]) -> HostSpec {
    let mut spec = file.host_spec_of(peers, &DeviceUpdate::default(), DefaultRoutes::Always);
    forget_own_networks(&mut spec);
    spec
}

/// Drops the allowed IPs that need no route, because the interface's own network leads there.
fn forget_own_networks(spec: &mut HostSpec) {
    let networks: Vec<IpNet> = spec.addresses.iter().map(IpNet::trunc).collect();
    let is_own = |net: &IpNet| networks.iter().any(|own| own.contains(net) && own != net);
    spec.allowed_ips.retain(|net| !is_own(net));
}

/// The changes of peers between two files, for a device that has what the first one says if its state is not known.
fn changed_peers(
    old: &TunnelFile,
    new: &TunnelFile,
    running: Option<DeviceState>,
    interface: &linerate_control::interface::InterfaceName,
) -> DeviceUpdate {
    let running = running.unwrap_or_else(|| {
        let with_successor = old.peers.iter().filter(|peer| peer.client.next_public_key.is_some());
        let peers = differing(&old.peers, &new.peers).0.iter().chain(with_successor);
        let keys = peers.flat_map(|peer| [Some(peer.public_key), peer.client.next_public_key]);
        DeviceState { peers: keys.flatten().map(PeerState::new).collect(), ..DeviceState::default() }
    });
    changes(old, new, &running, reload::removal(interface)).update
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use linerate_control::keys::PublicKey;
    use linerate_control::zeroizing::Buffer;
    use proptest::collection::btree_map;
    use proptest::prelude::*;

    use super::*;

    /// Peers by their keys: where each is, and whether it has an endpoint, keepalives and destinations.
    type Peers = BTreeMap<u8, (usize, [bool; 3])>;

    fn peers() -> impl Strategy<Value = Peers> {
        btree_map(1u8..5, (0..3usize, any::<[bool; 3]>()), 0..4)
    }

    fn section(key: u8, (at, [has_endpoint, is_kept_alive, has_destinations]): (usize, [bool; 3])) -> String {
        // An address has one owner.
        let nets =
            [format!("10.9.0.{key}/32"), format!("10.1{key}.0.0/24"), format!("fd09:{key}::/64, 10.2{key}.0.0/16")];
        let nets = &nets[at];
        let lines = [
            (true, format!("[Peer]\nPublicKey = {}\nAllowedIPs = {nets}\n", PublicKey([key; 32]))),
            (has_endpoint, "Endpoint = 192.0.2.1:1\n".to_owned()),
            (is_kept_alive, "PersistentKeepalive = 5\n".to_owned()),
            (has_destinations, "#! Destinations = 192.168.1.0/24\n".to_owned()),
        ];
        lines.into_iter().filter(|(is_there, _)| *is_there).map(|(_, line)| line).collect()
    }

    fn file(sections: impl IntoIterator<Item = String>) -> ConfigFile {
        let interface = "[Interface]\nAddress = 10.9.0.1/24\nListenPort = 51820\n".to_owned();
        let text: String = [interface].into_iter().chain(sections).collect();
        ConfigFile::of(PathBuf::new(), "wg0".parse().unwrap(), Buffer::from(text.into_bytes()))
    }

    /// What the edit asks of a host that has the restrictions of the first file.
    fn change_between(old: &ConfigFile, new: &ConfigFile) -> HostChange {
        let head = r#"{"implementation":"daemon","supervised":false,"file":"","complete":true,"spec":{}}"#;
        let mut ledger: LedgerHead = serde_json::from_str(head).unwrap();
        ledger.spec.forwarding.restrictions = restrictions_of(&old.contents.peers);
        host_change(old, new, &ledger)
    }

    proptest! {
        #[test]
        fn peers_that_stay_at_both_ends_do_not_matter(then in peers(), other in peers(), stays in any::<[bool; 5]>()) {
            let mut now = other;
            now.extend(then.iter().filter(|(key, _)| stays[usize::from(**key)]).map(|(key, peer)| (*key, *peer)));
            let sections = |peers: &Peers| peers.iter().map(|(key, peer)| section(*key, *peer)).collect::<Vec<_>>();
            // Between peers that change in what is nothing to the host, all are compared.
            let between = |peers: &Peers, is_kept_alive| {
                let [first, last] = [8, 9].map(|key| section(key, (0, [false, is_kept_alive, false])));
                file([first].into_iter().chain(sections(peers)).chain([last]))
            };
            let plain = change_between(&file(sections(&then)), &file(sections(&now)));
            prop_assert_eq!(plain, change_between(&between(&then, false), &between(&now, true)));
        }
    }
}
