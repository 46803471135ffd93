//! Removes a server: exactly what its record says was made, in reverse.

use std::path::Path;

use linerate_control::interface::InterfaceName;
use linerate_control::usage;

use super::init::{lock, temporary};
use super::record::{Record, State, remove_file};
use crate::context::Context;
use crate::error::Error;
use crate::{Options, down, find, ledger, running};

/// Removes the server of `interface`, its file included.
///
/// # Errors
/// `server init` did not make it, or a step failed: the record says what is left, and the next call goes on.
pub fn remove(interface: &InterfaceName, options: &Options, context: Context<'_>) -> Result<(), Error> {
    let _lock = lock(context)?;
    let Some(mut record) = Record::read(interface)? else {
        return Err(Error::State(format!(
            "{interface} was not made by `linerate server init', so there is no record of what to remove: take it down \
             with `linerate down {interface}', then remove its file yourself"
        )));
    };
    record.state = State::Removing;
    record.write()?;
    undo(&record, options, context)
}

/// Undoes what the record says.
pub(super) fn undo(record: &Record, options: &Options, context: Context<'_>) -> Result<(), Error> {
    let interface: InterfaceName = record.interface.parse().map_err(|error| Error::State(format!("{error}")))?;
    remove_file(&record.file.with_file_name(temporary(&interface)))?;
    if !record.has_file {
        // Whatever is there has come meanwhile, from somebody else.
        return record.forget();
    }
    if let Some(service) = &record.service {
        service.stop(context)?;
    }
    let has_ledger = ledger::read(ledger::directory(), &interface).is_ok_and(|ledger| ledger.is_some());
    if has_ledger || (running(&interface).is_some() && record.file.exists()) {
        let (interface, file) = find(interface.as_str())?;
        down(&interface, file.as_ref(), options, context)?;
    }
    context.reporter.step(&format!("rm {}", record.file.display()));
    remove_file(&record.file)?;
    // What its clients have used, which nobody else has.
    for name in usage::file_names(interface.as_str()) {
        remove_file(&Path::new(usage::DIRECTORY).join(name))?;
    }
    record.forget()
}
