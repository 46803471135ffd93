//! `save`: what runs goes into the file. Comments, names, order and everything else that only the file has stay.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use linerate_control::document::Document;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel::Tunnel;
use linerate_control::tunnel_file::{self, Runtime};
use linerate_control::uapi::socket;
use linerate_host::ledger::Entry;
use linerate_host::linux::Host;
use linerate_host::step::{Family, Step};

use super::interruption::Interruption;
use super::source::Source;
use super::{Failed, host, is_locked_by_caller, ledgers, lock, names};
use crate::complain;

/// Saves the state of the tunnel in its file; `echo` has that said as wg-quick does.
///
/// # Errors
/// There is no such tunnel, or the file has mistakes or cannot be written.
pub(crate) fn save(source: &Source, echo: bool, interruption: &Interruption) -> Result<(), Failed> {
    // A command of the file's may save: who runs it has the ledger.
    let entry = match is_locked_by_caller(&source.interface) {
        true => Entry::within(ledgers(), &source.interface),
        false => lock(&source.interface, interruption)?,
    };
    let mut host = host()?;
    save_locked(source, &mut host, &entry, echo)
}

/// As [`save`], by a command that has the ledger.
pub(super) fn save_locked(source: &Source, host: &mut Host, entry: &Entry, echo: bool) -> Result<(), Failed> {
    // What cannot be read cannot be kept, when the line that it is in changes.
    source.check().map_err(|mistakes| format!("{mistakes}\n{}: not saved: put that right", source.path.display()))?;
    let interface = source.interface.as_str();
    let gone = || Failed::new(format!("`{interface}' is not a WireGuard interface"));
    let mut tunnel = Tunnel::open(socket::DIRECTORY.as_ref(), interface).map_err(|_| gone())?;
    let device = tunnel.get().map_err(|_| gone())?;
    let state = host.state().map_err(|error| format!("cannot look at this host: {error}"))?;
    let link = state.link(interface).ok_or_else(gone)?;
    if echo {
        complain(&format!("[#] wg showconf {interface}"));
    }
    let ledger = entry.read()?;
    let then = entry.read_file()?;
    let then =
        then.map(|text| Source::of(source.path.clone(), source.interface.clone(), &text).loaded()).transpose()?;
    let names = source.names();
    let resolved = names::at_hand(&names);
    let is_of_name = |peer: &PublicKey, endpoint: SocketAddr| {
        names.iter().zip(&resolved).any(|(named, addresses)| named.peer == *peer && addresses.contains(&endpoint))
    };
    let steps = || ledger.iter().flat_map(|ledger| &ledger.steps);
    let runtime = Runtime {
        interface: &source.interface,
        device: &device,
        addresses: &link.addresses,
        has_ipv6: !state.without.contains(&Family::V6),
        mtu: link.mtu,
        dns_servers: steps().find_map(|step| match step {
            Step::SetDns { dns, .. } => Some(&*dns.servers),
            _ => None,
        }),
        chosen_port: None,
        chosen_fwmark: steps().find_map(|step| match step {
            Step::SetFwmark { fwmark, .. } => Some(*fwmark),
            _ => None,
        }),
        then: then.as_ref(),
        is_of_name: &is_of_name,
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
