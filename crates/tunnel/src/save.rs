//! `save`: what runs goes into the file. Comments, names, order and everything else that only the file has stay. Never
//! into a file that the running tunnel is not of: what it lacks, the file would lose.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::record::ledger::{Entry, Ledger};
use linerate_control::client::TunnelClient;
use linerate_control::document::Document;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::{self, RunningTunnel};
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;
use linerate_host::linux::Host;
use linerate_host::state::Link;
use linerate_host::step::{Family, Step};

use crate::interruption::Interruption;
use crate::read::Source;
use crate::resolve as names;
use crate::{Failed, host, ledgers, lock_unless_hook};
use linerate_program::complain;

/// Saves the state of the tunnel in its file; `echo` has that said as wg-quick does.
///
/// # Errors
/// There is no such tunnel, it is not the file's, or the file has errors or cannot be written.
pub fn save(source: &Source, echo: bool, interruption: &Interruption) -> Result<(), Failed> {
    // A hook may save: the command that runs it has the ledger.
    let entry = lock_unless_hook(&source.interface, interruption)?;
    let entry = entry.unwrap_or_else(|| Entry::inherited(ledgers(), &source.interface));
    let mut host = host()?;
    save_locked(source, &mut host, &entry, echo)
}

/// As [`save`], by a command that has the ledger.
pub(crate) fn save_locked(source: &Source, host: &mut Host, entry: &Entry, echo: bool) -> Result<(), Failed> {
    // What cannot be read cannot be kept, when the line that it is in changes.
    source
        .check()
        .map_err(|errors| format!("{errors}\n{}: not saved: fix these errors first", source.path.display()))?;
    let interface = source.interface.as_str();
    let gone = || Failed::new(format!("`{interface}' is not a WireGuard interface"));
    let mut tunnel = TunnelClient::open(socket::DIRECTORY.as_ref(), interface).map_err(|_| gone())?;
    let device = tunnel.get().map_err(|_| gone())?;
    let state = host.state().map_err(|error| format!("cannot read the state of this host: {error}"))?;
    let link = state.link(interface).ok_or_else(gone)?;
    let ledger = entry.read()?;
    let not_saved = |why: String| Failed::new(format!("{}: not saved: {interface} {why}", source.path.display()));
    if let Some(ledger) = &ledger {
        is_of(ledger, source, link.index).map_err(not_saved)?;
    }
    // A ledger tells the index when the tunnel is up.
    let is_set_up = ledger.as_ref().is_some_and(|ledger| ledger.index.is_some());
    is_no_loss(source, &device, link, is_set_up).map_err(not_saved)?;
    if echo {
        complain(&format!("[#] wg showconf {interface}"));
    }
    let then = entry.read_file()?;
    let then =
        then.map(|text| Source::of(source.path.clone(), source.interface.clone(), &text).loaded()).transpose()?;
    let names = source.names();
    let resolved = names::at_hand(&names);
    let is_resolved_address = |peer: &PublicKey, endpoint: SocketAddr| {
        names.iter().zip(&resolved).any(|(named, addresses)| named.peer == *peer && addresses.contains(&endpoint))
    };
    let steps = || ledger.as_ref().map_or(&[][..], |ledger| &ledger.steps);
    let runtime = RunningTunnel {
        interface: &source.interface,
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
        is_resolved_address: &is_resolved_address,
    };
    let mut document: Document = source.document.clone();
    tunnel_file::save(&mut document, &runtime).map_err(|error| format!("{}: {error}", source.path.display()))?;
    let text = document.to_bytes();
    replace(&source.path, &text).map_err(|error| format!("Could not write configuration file: {error}"))?;
    // What runs is what the file says: the next reload starts from there.
    if then.is_some() {
        entry.write_file(&text)?;
    }
    Ok(())
}

/// Whether the tunnel that the ledger tells of is the one with this index and came from this file.
///
/// # Errors
/// In what it differs, as the end of a sentence.
fn is_of(ledger: &Ledger, source: &Source, index: u32) -> Result<(), String> {
    let name = &source.interface;
    if ledger.index.is_some_and(|made| made != index) {
        return Err(format!(
            "is not the interface that `up` made: that one's daemon died, and nothing tells what this one has of the \
             file. Take it down, and `linerate up {name}` brings up what the file says"
        ));
    }
    if !source.is_file_of(ledger) {
        let file = ledger.file.display();
        return Err(format!("was brought up from {file}: `linerate save {file}` saves it there"));
    }
    Ok(())
}

/// Whether the file would lose nothing that the tunnel may never have had. A key has no reason to go from a file because
/// a daemon has none; peers and addresses only from that of a tunnel that is known to have had them (`is_set_up`).
///
/// # Errors
/// What it would lose, as the end of a sentence.
fn is_no_loss(source: &Source, device: &DeviceState, link: &Link, is_set_up: bool) -> Result<(), String> {
    let file = &source.file;
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

/// What the last of the steps that say something of it made it: a reload's stand behind those of `up`.
fn last<'a, T>(steps: &'a [Step], says: impl Fn(&'a Step) -> Option<Option<T>>) -> Option<T> {
    steps.iter().rev().find_map(says).flatten()
}

/// Writes the file anew, whole or not at all, with the owner it had, who alone can read it: it holds keys.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let before = std::fs::metadata(path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let new = path.with_file_name(name);
    let write = || {
        // One that was left there may be readable for others.
        let _ = std::fs::remove_file(&new);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        file.write_all(text)?;
        std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()))?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&new)))
}
