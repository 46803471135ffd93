//! Writes the file of a server that is imported. It takes the place of the old tool's file, if that is the one that was
//! imported, which is kept; the record says so, and `server remove` puts it back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use linerate_control::atomic_file;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use zeroize::Zeroizing;

use super::PublicKeyOf;
use super::init::{interrupted, lock, temporary};
use super::record::{self, Origin, Record, State, There, remove_file};
use super::service::{self, Found};
use crate::context::Context;
use crate::error::Error;
use crate::read;

/// Writes `text`, with the key `own_key`, as the file of `interface`, in place of one with the text `replaces` or where
/// there is none. Returns where that was kept.
///
/// # Errors
/// The file cannot be written, or is not what it was: nothing has changed.
pub fn import(
    interface: &InterfaceName,
    text: &[u8],
    own_key: &PublicKey,
    replaces: Option<&[u8]>,
    public_key: PublicKeyOf,
    context: Context<'_>,
) -> Result<Option<PathBuf>, Error> {
    let _lock = lock(context)?;
    let file = read::named(interface.as_str());
    let old = Record::read(interface)?;
    if old.as_ref().is_some_and(|record| record.state == State::Removing) {
        return Err(Error::State(format!(
            "{interface} was being removed: finish with `linerate server remove {interface}', then import again"
        )));
    }
    let service = match service::find(interface, context)? {
        Found::Service(service) => Some(service),
        Found::Incomplete(_) | Found::Nothing => None,
    };
    interrupted(context)?;
    let is_own = old.as_ref().map_or(Ok(false), |old| Ok::<_, Error>(old.there(public_key)? == There::Own))?;
    let mut record = old.clone().filter(|_| is_own).unwrap_or_else(|| Record::new(interface, &file, service));
    let mut written = || {
        record.make_folder(Path::new(record::DIRECTORY), 0o700)?;
        record.make_folder(Path::new(read::DIRECTORY), 0o700)?;
        let kept = replaces.map(|content| keep(&file, content)).transpose()?;
        match &kept {
            Some(kept) if is_own => record.copies.push(kept.clone()),
            kept => record.replaced.clone_from(kept),
        }
        record.origin = if is_own { record.origin } else { Origin::Import };
        (record.state, record.public_key) = (State::Made, Some(own_key.to_string()));
        let put = || {
            // Before the file: until that is there, the record tells it from the one that is.
            record.write()?;
            let new = temporary(interface);
            let put = match replaces {
                Some(_) => atomic_file::replace(&file, new, text, Some(0o600), None),
                None => atomic_file::create(&file, new, text, 0o600),
            };
            put.map_err(Error::inaccessible(&file))
        };
        match put() {
            Ok(()) => Ok(kept),
            Err(error) => Err(error.and(kept.as_deref().map_or(Ok(()), remove_file))),
        }
    };
    written().map_err(|error| {
        let undone = old.map_or_else(|| record.forget(), |old| old.write());
        error.and(undone)
    })
}

/// Copies the file beside itself under a name that nobody has.
fn keep(file: &Path, content: &[u8]) -> Result<PathBuf, Error> {
    let there = fs::read(file).map(Zeroizing::new).map_err(Error::inaccessible(file))?;
    if **there != *content {
        return Err(Error::State(format!("{} was changed meanwhile; import again", file.display())));
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 1..1000 {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = file.with_file_name(format!("{name}.before-import{suffix}"));
        match atomic_file::create(&path, format!(".{name}.new"), content, 0o600) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::inaccessible(&path)(error)),
        }
    }
    Err(Error::State(format!("there are too many copies of {}; remove some", file.display())))
}
