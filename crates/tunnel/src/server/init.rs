//! Makes a server: record, file, service or tunnel, in this order. A failure or a signal undoes what was done; what a
//! kill leaves behind is undone by the next `server init` or `server remove`, by the record.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linerate_control::atomic_file;
use linerate_control::document::{Document, SectionKind};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_host::plan::Plan;
use linerate_server::init::NewServer;

use super::PublicKeyOf;
use super::record::{self, Record, State};
use super::remove::undo;
use super::service::{self, Found};
use crate::context::Context;
use crate::error::Error;
use crate::read::{self, ConfigFile};
use crate::{Options, ledger, running, snapshot, up};

/// What was made.
pub struct Made {
    pub file: PathBuf,
    /// What runs the tunnel, if it was started.
    pub runs: Runs,
}

/// What runs a new server's tunnel.
pub enum Runs {
    Service(service::Service),
    /// A daemon of its own, which nothing starts at boot. The service that is missing, if there is a service manager.
    Daemon(Option<String>),
    /// Nothing yet, as the user wished.
    Nothing,
}

/// Checks that there is nothing of that name.
///
/// # Errors
/// There is a file, a tunnel or another link.
pub fn check_absent(interface: &InterfaceName) -> Result<(), Error> {
    let path = read::named(interface.as_str());
    let is_there = path.symlink_metadata().is_ok();
    let is_server = || ConfigFile::open(interface.as_str()).is_ok_and(|file| file.contents.public_endpoint.is_some());
    if is_there && is_server() {
        return Err(Error::State(format!(
            "{interface} is a server already: `linerate server show {interface}' shows it, `linerate server set' changes \
             it, and `linerate server init NAME' makes another one"
        )));
    }
    if is_there {
        return Err(Error::State(format!(
            "{} exists already and stays as it is. `linerate server import {0}' makes a server of it; `linerate server \
             init NAME' makes one with another name",
            path.display()
        )));
    }
    let is_link = snapshot::open()?.index(interface.as_str()).is_some();
    let has_ledger = ledger::read(ledger::directory(), interface).is_ok_and(|ledger| ledger.is_some());
    if is_link || has_ledger {
        return Err(Error::State(format!(
            "{interface} exists already, without a file {}: take it down, or choose another name: `linerate server init \
             NAME'",
            path.display()
        )));
    }
    Ok(())
}

/// Undoes what a `server init` or `server remove` left behind that was killed; says whether there was anything. A server
/// that has clients is not touched, be they disabled or not.
///
/// # Errors
/// It cannot be undone, or clients would be lost that only `server remove` may remove.
pub fn clean_up(
    interface: &InterfaceName,
    public_key: PublicKeyOf,
    options: &Options,
    context: Context<'_>,
) -> Result<bool, Error> {
    let _lock = lock(context)?;
    let Some(record) = Record::read(interface)? else { return Ok(false) };
    if record.state == State::Made {
        return Ok(false);
    }
    if record.file.exists() && has_peers(&ConfigFile::open(interface.as_str())?.document) {
        return match record.state {
            State::Removing => Err(Error::State(format!(
                "{interface} was being removed, and its file with its clients is still there: finish with `linerate \
                 server remove {interface}'"
            ))),
            _ => Ok(false),
        };
    }
    undo(&record, public_key, options, context)?;
    Ok(true)
}

/// Whether there are peers, those that are disabled included.
fn has_peers(document: &Document) -> bool {
    document.sections().iter().any(|section| matches!(section.kind(), SectionKind::Peer | SectionKind::DisabledPeer))
}

/// What bringing up `server` with the file `document` would do on this host.
///
/// # Errors
/// The host cannot be read, or the tunnel cannot be brought up.
pub fn plan(server: &NewServer, document: &Document, options: &Options) -> Result<Plan, Error> {
    let file = ConfigFile::of(read::named(server.interface.as_str()), server.interface.clone(), document.to_bytes());
    file.check()?;
    crate::plan(&file, options)
}

/// Makes `server`, whose file has the private key `key`, and starts it if `start`.
///
/// # Errors
/// A step failed, or a signal has come: nothing is left.
pub fn init(
    server: &NewServer,
    key: &SecretKey,
    public_key: PublicKeyOf,
    start: bool,
    options: &Options,
    context: Context<'_>,
) -> Result<Made, Error> {
    let _lock = lock(context)?;
    check_absent(&server.interface)?;
    let path = read::named(server.interface.as_str());
    let found = start.then(|| service::find(&server.interface, context)).transpose()?;
    let service = if let Some(Found::Service(service)) = &found { Some(service.clone()) } else { None };
    let document = server.file(key).map_err(|error| Error::State(error.to_string()))?;
    let mut record = Record::new(&server.interface, &path, service);
    let made = make(server, &document, public_key(key), &mut record, found, options, context);
    // Under the same lock: another `server init` would take what is being undone for its own.
    made.map_err(|error| {
        context.interruption.clear();
        error.and(undo(&record, public_key, options, context).map(drop))
    })
}

fn make(
    server: &NewServer,
    document: &Document,
    public_key: PublicKey,
    record: &mut Record,
    found: Option<Found>,
    options: &Options,
    context: Context<'_>,
) -> Result<Made, Error> {
    let path = record.file.clone();
    // Each folder is in the record before there is anything in it.
    record.make_folder(Path::new(record::DIRECTORY), 0o700)?;
    record.write()?;
    if let Some(prefix) = server.local_prefix {
        record::keep_local_prefix(prefix)?;
    }
    record.make_folder(Path::new(read::DIRECTORY), 0o700)?;
    record.write()?;
    context.reporter.step(&format!("write {}", path.display()));
    // By its key the file is known from one that somebody else was faster to write.
    record.public_key = Some(public_key.to_string());
    record.write()?;
    atomic_file::create(&path, temporary(&server.interface), &document.to_bytes(), 0o600)
        .map_err(Error::inaccessible(&path))?;
    interrupted(context)?;
    let runs = match found {
        None => Runs::Nothing,
        Some(Found::Service(service)) => {
            service.start(context).map_err(|error| service.explained(error))?;
            if running(&server.interface).is_none() {
                return Err(Error::State(format!("the {service} has started, but {} does not run", server.interface)));
            }
            Runs::Service(service)
        }
        Some(Found::Incomplete(missing)) => {
            start_daemon(server, options, context).map(|()| Runs::Daemon(Some(missing)))?
        }
        Some(Found::Nothing) => start_daemon(server, options, context).map(|()| Runs::Daemon(None))?,
    };
    interrupted(context)?;
    record.state = State::Made;
    record.write()?;
    Ok(Made { file: path, runs })
}

fn start_daemon(server: &NewServer, options: &Options, context: Context<'_>) -> Result<(), Error> {
    let file = ConfigFile::open(server.interface.as_str())?;
    file.check()?.iter().for_each(|warning| context.message(warning));
    up(file, options, context)
}

pub(super) fn interrupted(context: Context<'_>) -> Result<(), Error> {
    if context.interruption.came() { Err(Error::Interrupted) } else { Ok(()) }
}

/// The name under which the file of a new server is written before it gets its own.
pub(super) fn temporary(interface: &InterfaceName) -> String {
    format!(".{interface}.conf.new")
}

/// Has servers made and removed one after the other.
pub(super) fn lock(context: Context<'_>) -> Result<File, Error> {
    loop {
        match ledger::lock_servers(ledger::directory())? {
            Some(lock) => return Ok(lock),
            None => context.interruption.pause(&[], Some(PAUSE)).map_err(Error::system("cannot wait"))?,
        }
        interrupted(context)?;
    }
}

const PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disabled_peer_is_a_peer() {
        let key = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=";
        let mut document = Document::parse(format!("[Interface]\n\n[Peer]\nPublicKey = {key}\n").as_bytes());
        assert!(has_peers(&document));
        let peer = document.sections().iter().position(|section| section.kind() == SectionKind::Peer).unwrap();
        document.disable(peer);
        assert!(has_peers(&document));
        assert!(!has_peers(&Document::parse(b"[Interface]\n")));
    }
}
