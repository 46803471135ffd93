//! Removes a server: exactly what its record says was made, in reverse.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use linerate_control::atomic_file;
use linerate_control::interface::InterfaceName;
use linerate_control::usage;
use zeroize::Zeroizing;

use super::PublicKeyOf;
use super::find as find_server;
use super::init::{lock, temporary};
use super::record::{self, Origin, Record, State, There, remove_file};
use super::service::{self, Found};
use crate::context::Context;
use crate::error::Error;
use crate::{Options, down, find, ledger};

/// What a removal has left.
pub struct Removed {
    /// The file that is there again, because an import had replaced it.
    pub restored: Option<PathBuf>,
}

/// Removes the server of `interface`, its file included.
///
/// # Errors
/// There is no server of that name, or a step failed: the record lists the remaining steps, and the next call continues.
pub fn remove(
    interface: &InterfaceName,
    public_key: PublicKeyOf,
    options: &Options,
    context: Context<'_>,
) -> Result<Removed, Error> {
    let _lock = lock(context)?;
    let mut record = Record::read(interface)?.map_or_else(|| adopted(interface, public_key, context), Ok)?;
    if record.state != State::Removing {
        if record.there(public_key)? == There::Foreign {
            let verb = if record.origin == Origin::Import { "import" } else { "init" };
            return Err(Error::State(format!(
                "{} is not the file that `linerate server {verb}' wrote, so it stays: if you do not need it, take its \
                 tunnel down and remove it yourself; then `linerate server remove {interface}' removes the rest",
                record.file.display()
            )));
        }
        // From here on, one that is missing is back in its place.
        record.replaced.take_if(|kept| !kept.exists());
        record.state = State::Removing;
        record.write()?;
    }
    undo(&record, public_key, options, context)
}

/// Makes the record of a server whose file was copied here or written by hand: the file, and its service if there is one.
fn adopted(interface: &InterfaceName, public_key: PublicKeyOf, context: Context<'_>) -> Result<Record, Error> {
    let file = find_server(Some(interface.as_str()))?;
    let key = file.loaded()?.private_key.as_ref().map(|key| public_key(key).to_string());
    let service = match service::find(interface, context)? {
        Found::Service(service) => Some(service),
        Found::Incomplete(_) | Found::Nothing => None,
    };
    let mut record = Record::new(interface, &file.path, service);
    record.public_key = Some(
        key.ok_or_else(|| Error::State(format!("{} has no PrivateKey: remove it yourself", file.path.display())))?,
    );
    record.state = State::Made;
    record.make_folder(Path::new(record::DIRECTORY), 0o700)?;
    Ok(record)
}

/// Undoes what the record says.
pub(super) fn undo(
    record: &Record,
    public_key: PublicKeyOf,
    options: &Options,
    context: Context<'_>,
) -> Result<Removed, Error> {
    let interface: InterfaceName = record.interface.parse().map_err(|error| Error::State(format!("{error}")))?;
    remove_file(&record.file.with_file_name(temporary(&interface)))?;
    let restored = record.replaced.as_ref().map(|_| record.file.clone());
    if record.public_key.is_none() || record.there(public_key)? == There::Foreign {
        // Whatever is there has come meanwhile, from somebody else, or is back.
        record.forget()?;
        return Ok(Removed { restored });
    }
    if let Some(service) = &record.service {
        service.stop(context)?;
    }
    let has_ledger = ledger::read(ledger::directory(), &interface).is_ok_and(|ledger| ledger.is_some());
    if has_ledger || record.file.exists() {
        let (interface, file) = find(interface.as_str())?;
        match down(&interface, file.as_ref(), options, context) {
            // It may have been up before the last boot, of which firewalls keep what was opened in them.
            Err(Error::NoTunnel(_)) => {}
            outcome => outcome?,
        }
    }
    record.copies.iter().try_for_each(|copy| remove_file(copy))?;
    // What its clients have used, which nobody else has.
    for name in usage::file_names(interface.as_str()) {
        remove_file(&Path::new(usage::DIRECTORY).join(name))?;
    }
    match record.replaced.as_ref().filter(|kept| kept.exists()) {
        Some(kept) => put_back(kept, &record.file, context)?,
        None if restored.is_some() => {}
        None => {
            context.reporter.step(&format!("rm {}", record.file.display()));
            remove_file(&record.file)?;
        }
    }
    record.forget()?;
    Ok(Removed { restored })
}

/// Puts the file that was kept in its place.
fn put_back(kept: &Path, file: &Path, context: Context<'_>) -> Result<(), Error> {
    context.reporter.step(&format!("mv {} {}", kept.display(), file.display()));
    let put = || {
        let there = fs::metadata(kept)?;
        let text = Zeroizing::new(fs::read(kept)?);
        let owner = Some((there.uid(), there.gid()));
        let temporary = format!(".{}.new", file.file_name().unwrap_or_default().display());
        atomic_file::replace(file, temporary, &text, Some(there.permissions().mode() & 0o7777), owner)
    };
    put().map_err(Error::inaccessible(file))?;
    remove_file(kept)
}
