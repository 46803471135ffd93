//! `save`: writes the running state of a tunnel to its file. Keeps comments, names, order and everything else that only
//! the file has. Refuses a file that the tunnel was not brought up from: it would lose what the tunnel never had.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use linerate_control::atomic_file;
use linerate_control::client::TunnelClient;
use linerate_control::document::Document;
use linerate_control::tunnel_file::{self, RunningTunnel};
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;
use linerate_host::state::Link;
use linerate_host::step::{AddressFamily, Step};
use linerate_host::system::Host;

use crate::context::Context;
use crate::error::Error;
use crate::identity::{self, Place, Purpose};
use crate::ledger::{Ledger, LockedLedger};
use crate::lock::lock_unless_hook;
use crate::read::ConfigFile;
use crate::resolve::NamedEndpoints;
use crate::{ledger, snapshot};

/// Saves the state of the tunnel in its file.
///
/// # Errors
/// There is no such tunnel, it was not brought up from the file, or the file has errors or cannot be written.
pub fn save(file: &ConfigFile, context: Context<'_>) -> Result<(), Error> {
    // A hook may save while the command that runs it holds the lock.
    let locked = lock_unless_hook(&file.interface, context)?;
    let locked = locked.unwrap_or_else(|| LockedLedger::inherited(ledger::directory(), &file.interface));
    save_locked(file, &mut snapshot::open()?, &locked, context)
}

/// As [`save`], by a command that holds the lock.
pub(crate) fn save_locked(
    file: &ConfigFile,
    host: &mut Host,
    locked: &LockedLedger,
    context: Context<'_>,
) -> Result<(), Error> {
    let path = file.path.display();
    // A line that cannot be parsed would be lost if its setting changed.
    let with_errors = |errors: Error| Error::File(format!("{errors}\n{path}: not saved: fix these errors first"));
    file.check().map_err(with_errors)?;
    let changed = file.changed().map_err(with_errors)?;
    let file = changed.as_ref().unwrap_or(file);
    let interface = file.interface.as_str();
    let ledger = locked.read()?;
    let place = ledger.as_ref().map_or(Ok(Place::Here), identity::of)?;
    if let Some(ledger) = ledger.as_ref().filter(|_| place != Place::Replaced)
        && let Some(refusal) = place.refusal(ledger, Purpose::Change("save"))
    {
        return Err(refusal);
    }
    let gone = || Error::NoTunnel(file.interface.clone());
    let mut tunnel = TunnelClient::open(socket::DIRECTORY.as_ref(), interface).map_err(|_| gone())?;
    let device = tunnel.get().map_err(|_| gone())?;
    // A client whose key was replaced keeps its section.
    let replaced = file.with_replacements(&device)?;
    let file = replaced.as_ref().unwrap_or(file);
    let state = host.state().map_err(Error::Snapshot)?;
    let link = state.link(interface).ok_or_else(gone)?;
    let not_saved = |why: String| Error::State(format!("{path}: not saved: {interface} {why}"));
    if let Some(ledger) = &ledger {
        check_same_tunnel(ledger, file, &place).map_err(not_saved)?;
    }
    // The ledger has the index once the tunnel is up.
    let was_set_up = ledger.as_ref().is_some_and(|ledger| ledger.index.is_some());
    check_no_loss(file, &device, link, was_set_up).map_err(not_saved)?;
    context.reporter.step(&format!("wg showconf {interface}"));
    let previous = locked.read_file()?;
    let previous = previous.map(|text| ConfigFile::of(file.path.clone(), file.interface.clone(), text));
    let previous = previous.map(|previous| with_replacements(previous, &device)).transpose()?;
    let previous = previous.as_ref().map(ConfigFile::loaded).transpose()?;
    let names = NamedEndpoints::resolve(file);
    let steps = || ledger.as_ref().map_or(&[][..], |ledger| &ledger.steps);
    let runtime = RunningTunnel {
        interface: &file.interface,
        device: &device,
        addresses: &link.addresses,
        has_ipv6: !state.disabled_families.contains(&AddressFamily::V6),
        mtu: link.mtu,
        dns_servers: last(steps(), |step| match step {
            Step::SetDns { dns, .. } => Some(Some(&*dns.servers)),
            Step::UnsetDns { .. } => Some(None),
            _ => None,
        }),
        chosen_port: None,
        chosen_fwmark: last(steps(), |step| match step {
            Step::SetFwmark { fwmark, .. } => Some(Some(*fwmark)),
            _ => None,
        }),
        previous: previous.as_deref(),
        is_resolved_address: &|peer, endpoint| names.has(peer, endpoint),
    };
    let mut document: Document = file.document.clone();
    tunnel_file::save(&mut document, &runtime).map_err(|error| Error::File(format!("{path}: {error}")))?;
    let text = document.to_bytes();
    replace(&file.path, &text).map_err(Error::system("Could not write configuration file"))?;
    // The next reload compares with this file.
    if previous.is_some() {
        locked.write_file(&text)?;
    }
    Ok(())
}

fn with_replacements(file: ConfigFile, device: &DeviceState) -> Result<ConfigFile, Error> {
    Ok(file.with_replacements(device)?.unwrap_or(file))
}

/// Checks that the running tunnel is the ledger's, which is at `place`, and was brought up from this file.
///
/// # Errors
/// How it differs, as the end of a sentence.
fn check_same_tunnel(ledger: &Ledger, file: &ConfigFile, place: &Place) -> Result<(), String> {
    let name = &file.interface;
    if *place == Place::Replaced {
        return Err(format!(
            "is not the interface that `up` made: the daemon of that one died, and this interface may have other settings than \
            the file. Take it down, then `linerate up {name}` brings up the file's tunnel"
        ));
    }
    if !file.is_file_of(ledger) {
        let path = ledger.file.display();
        return Err(format!("was brought up from {path}: `linerate save {path}` saves it there"));
    }
    Ok(())
}

/// Checks that the file would lose no private key, and no peers or addresses unless the tunnel once had them
/// (`was_set_up`).
///
/// # Errors
/// What would be lost, as the end of a sentence.
fn check_no_loss(file: &ConfigFile, device: &DeviceState, link: &Link, was_set_up: bool) -> Result<(), String> {
    let file = &file.contents;
    let is_link_local = |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    let lost = if file.private_key.is_some() && device.private_key.is_none() {
        "private key"
    } else if !was_set_up && !file.peers.is_empty() && device.peers.is_empty() {
        "peers"
    } else if !was_set_up && !file.addresses.is_empty() && link.addresses.iter().all(|net| is_link_local(&net.addr())) {
        "address"
    } else {
        return Ok(());
    };
    Err(format!("has no {lost}, so saving would remove it from the file: set the tunnel up first, or edit the file"))
}

/// The last value that a step has according to `value`: a reload's steps come after those of `up`.
fn last<'a, T>(steps: &'a [Step], value: impl Fn(&'a Step) -> Option<Option<T>>) -> Option<T> {
    steps.iter().rev().find_map(value).flatten()
}

/// Replaces the file atomically. Keeps its owner, and makes it readable by the owner only: it holds keys.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let before = std::fs::metadata(path)?;
    let mut temporary = path.file_name().unwrap_or_default().to_owned();
    temporary.push(".tmp");
    atomic_file::replace(path, temporary, text, Some(0o600), Some((before.uid(), before.gid())))
}
