//! `save`: writes the state of the tunnel into its file. Comments, names, order and everything else that only the file has
//! stay. Refuses a file that the tunnel was not brought up from, which would lose what the tunnel lacks.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use linerate_control::client::TunnelClient;
use linerate_control::document::Document;
use linerate_control::tunnel_file::{self, RunningTunnel};
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;
use linerate_host::file;
use linerate_host::linux::Host;
use linerate_host::state::Link;
use linerate_host::step::{Family, Step};

use crate::context::Context;
use crate::error::Error;
use crate::read::ConfigFile;
use crate::record::ledger::{Entry, Ledger};
use crate::record::{ledgers, lock_unless_hook};
use crate::resolve::Names;
use crate::snapshot;

/// Saves the state of the tunnel in its file.
///
/// # Errors
/// There is no such tunnel, it was not brought up from the file, or the file has errors or cannot be written.
pub fn save(file: &ConfigFile, context: Context<'_>) -> Result<(), Error> {
    // A hook may save: the command that runs it holds the lock.
    let entry = lock_unless_hook(&file.interface, context)?;
    let entry = entry.unwrap_or_else(|| Entry::inherited(ledgers(), &file.interface));
    save_locked(file, &mut snapshot::open()?, &entry, context)
}

/// As [`save`], by a command that holds the lock.
pub(crate) fn save_locked(
    file: &ConfigFile,
    host: &mut Host,
    entry: &Entry,
    context: Context<'_>,
) -> Result<(), Error> {
    let path = file.path.display();
    // A line with an error would be lost if it changed.
    file.check().map_err(|errors| Error::File(format!("{errors}\n{path}: not saved: fix these errors first")))?;
    let interface = file.interface.as_str();
    let gone = || Error::NoTunnel(file.interface.clone());
    let mut tunnel = TunnelClient::open(socket::DIRECTORY.as_ref(), interface).map_err(|_| gone())?;
    let device = tunnel.get().map_err(|_| gone())?;
    let state = host.state().map_err(Error::Snapshot)?;
    let link = state.link(interface).ok_or_else(gone)?;
    let ledger = entry.read()?;
    let not_saved = |why: String| Error::State(format!("{path}: not saved: {interface} {why}"));
    if let Some(ledger) = &ledger {
        check_same_tunnel(ledger, file, link.index).map_err(not_saved)?;
    }
    // The ledger has the index once the tunnel is up.
    let is_set_up = ledger.as_ref().is_some_and(|ledger| ledger.index.is_some());
    check_no_loss(file, &device, link, is_set_up).map_err(not_saved)?;
    context.reporter.step(&format!("wg showconf {interface}"));
    let then = entry.read_file()?;
    let then =
        then.map(|text| ConfigFile::of(file.path.clone(), file.interface.clone(), &text).loaded()).transpose()?;
    let names = Names::resolve(file);
    let steps = || ledger.as_ref().map_or(&[][..], |ledger| &ledger.steps);
    let runtime = RunningTunnel {
        interface: &file.interface,
        device: &device,
        addresses: &link.addresses,
        has_ipv6: !state.without.contains(&Family::V6),
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
        previous: then.as_ref(),
        is_resolved_address: &|peer, endpoint| names.has(peer, endpoint),
    };
    let mut document: Document = file.document.clone();
    tunnel_file::save(&mut document, &runtime).map_err(|error| Error::File(format!("{path}: {error}")))?;
    let text = document.to_bytes();
    replace(&file.path, &text).map_err(Error::system("Could not write configuration file"))?;
    // The next reload compares with this file.
    if then.is_some() {
        entry.write_file(&text)?;
    }
    Ok(())
}

/// Checks that the tunnel of the ledger is the one with this index, and was brought up from this file.
///
/// # Errors
/// How it differs, as the end of a sentence.
fn check_same_tunnel(ledger: &Ledger, file: &ConfigFile, index: u32) -> Result<(), String> {
    let name = &file.interface;
    if ledger.index.is_some_and(|made| made != index) {
        return Err(format!(
            "is not the interface that `up` made: that one's daemon died, and nothing tells what this one has of the \
             file. Take it down, and `linerate up {name}` brings up what the file says"
        ));
    }
    if !file.is_file_of(ledger) {
        let path = ledger.file.display();
        return Err(format!("was brought up from {path}: `linerate save {path}` saves it there"));
    }
    Ok(())
}

/// Checks that the file would lose nothing that the tunnel may never have had: no key at all, and peers and addresses only
/// if the tunnel is known to have had them (`is_set_up`).
///
/// # Errors
/// What would be lost, as the end of a sentence.
fn check_no_loss(file: &ConfigFile, device: &DeviceState, link: &Link, is_set_up: bool) -> Result<(), String> {
    let file = &file.contents;
    let is_own = |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    let lost = if file.private_key.is_some() && device.private_key.is_none() {
        "private key"
    } else if !is_set_up && !file.peers.is_empty() && device.peers.is_empty() {
        "peers"
    } else if !is_set_up && !file.addresses.is_empty() && link.addresses.iter().all(|net| is_own(&net.addr())) {
        "address"
    } else {
        return Ok(());
    };
    Err(format!("has no {lost}, so saving would remove it from the file: set the tunnel up first, or edit the file"))
}

/// What the last step that says it says: a reload's steps come after those of `up`.
fn last<'a, T>(steps: &'a [Step], says: impl Fn(&'a Step) -> Option<Option<T>>) -> Option<T> {
    steps.iter().rev().find_map(says).flatten()
}

/// Replaces the file, whole or not at all. Its owner stays, and is the only one who can read it: it holds keys.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let before = std::fs::metadata(path)?;
    let mut temporary = path.file_name().unwrap_or_default().to_owned();
    temporary.push(".tmp");
    file::replace(path, temporary, text, 0o600, Some((before.uid(), before.gid())))
}
