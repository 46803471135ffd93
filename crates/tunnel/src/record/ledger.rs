//! What was done for a tunnel, kept until it is undone: `down` undoes that, whatever has become of the file.
//!
//! One folder, readable by root alone, on a file system that a boot empties. For each interface it has a lock, another
//! for its keeper, the ledger as JSON, and the text of the file as it was, which `reload` compares with. That text holds
//! keys; the ledger holds none. While a reload is under way there is the text of the file that it applies, too.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use linerate_control::interface::InterfaceName;
use linerate_control::zeroizing::Buffer;
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use linerate_host::file;
use linerate_host::plan::{Hooks, possibly_applied};
use linerate_host::step::{Backend, Step};
use linerate_host::wanted::{Compat, Wanted};

/// Where ledgers are, ordinarily.
pub const DIRECTORY: &str = "/run/linerate";

/// What was done for a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// The form of this record; another one is not read.
    pub version: u32,
    /// When the tunnel was brought up, in nanoseconds since 1970: tells one from the next of the same name.
    pub since: u128,
    /// The index of the interface, once it is there: another one of its name is not this tunnel's.
    pub index: Option<u32>,
    /// Something else looks after the tunnel ([`Step::AddLink`]'s daemon is started again when it dies).
    pub supervised: bool,
    /// Who brought the tunnel up.
    #[serde(rename = "manner")]
    pub compat: Compat,
    /// What runs it.
    pub backend: Backend,
    /// The program, where it is a daemon's.
    pub daemon: Option<PathBuf>,
    /// The user that the daemon becomes, where one is named.
    #[serde(default)]
    pub user: Option<String>,
    /// The file it was brought up from, with all links followed.
    pub file: PathBuf,
    /// The same as it was called: a link may lead elsewhere by now.
    #[serde(default)]
    pub called: Option<PathBuf>,
    /// What was wanted of the host.
    pub wanted: Wanted,
    /// The commands of the file.
    pub hooks: Hooks,
    /// The steps that were done, or were going to be when [`Ledger::complete`] is false: the host or the program may
    /// have stopped anywhere between.
    pub steps: Vec<Step>,
    /// Whether all of them were done, and none is [under way](Ledger::pending).
    pub complete: bool,
    /// The steps of a reload between the first and the last of them: which were done is not known. [`Ledger::wanted`] and
    /// the text of the file are those from before it.
    #[serde(default, rename = "under_way")]
    pub pending: Vec<Step>,
    /// A hook failed, and the tunnel stayed because the file says so.
    #[serde(default)]
    pub hook_failed: bool,
}

impl Ledger {
    /// All steps that may have been done ([`possibly_applied`]).
    pub fn possibly_applied(&self) -> Vec<Step> {
        possibly_applied(&self.steps, &self.pending)
    }

    /// The ledger with only those steps that `left`, which was to undo them, did not undo. Commands are not run again.
    pub fn with_remaining(&self, left: &[Step]) -> Self {
        let is_left = |step: &&Step| {
            let undo = match step {
                // Its undoing does not tell what was set.
                Step::SetDns { interface, manager, .. } => {
                    Some(Step::UnsetDns { interface: interface.clone(), manager: manager.clone() })
                }
                step => step.undo(),
            };
            undo.is_some_and(|undo| left.contains(&undo))
        };
        let steps = self.possibly_applied().iter().filter(is_left).cloned().collect();
        Self { steps, pending: Vec::new(), hooks: Hooks::default(), complete: false, ..self.clone() }
    }
}

/// The form of ledgers that this version writes.
pub const VERSION: u32 = 1;

/// The ledger of one interface, locked: two commands for one interface come one after the other.
pub struct Entry {
    directory: PathBuf,
    interface: InterfaceName,
    _lock: Option<File>,
}

/// Why there is no ledger to read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The folder or a file in it cannot be used.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is none of this version's.
    #[error("cannot read ledger {}: {why}. If you remove it, `linerate down` uses the tunnel's file",
            path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another command for this interface is at work.
    #[error("another command is using {interface}")]
    Busy {
        /// The interface.
        interface: InterfaceName,
    },
}

impl Entry {
    /// The ledger of an interface that the command which runs us has locked: we are a hook of the tunnel's file.
    pub fn inherited(directory: &Path, interface: &InterfaceName) -> Self {
        Self { directory: directory.to_owned(), interface: interface.clone(), _lock: None }
    }

    /// Locks the ledger of `interface`, if no other command has.
    ///
    /// # Errors
    /// The folder cannot be made, or another command is at work on the interface.
    pub fn open(directory: &Path, interface: &InterfaceName) -> Result<Self, LedgerError> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(at(directory))?;
        let path = directory.join(format!("{interface}.lock"));
        let mut options = OpenOptions::new();
        let lock = options.create(true).write(true).truncate(false).mode(0o600).open(&path).map_err(at(&path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                sign(&lock);
                let entry = Self { directory: directory.to_owned(), interface: interface.clone(), _lock: Some(lock) };
                // What a command was writing when it was killed.
                entry.forget("new")?;
                Ok(entry)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(LedgerError::Busy { interface: interface.clone() }),
            Err(errno) => Err(at(&path)(errno.into())),
        }
    }

    /// Whose it is.
    pub fn interface(&self) -> &InterfaceName {
        &self.interface
    }

    /// The ledger, if the tunnel was brought up with one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self) -> Result<Option<Ledger>, LedgerError> {
        read(&self.directory, &self.interface)
    }

    /// Puts `ledger` in the place of what is there, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, ledger: &Ledger) -> Result<(), LedgerError> {
        let text = serde_json::to_vec_pretty(ledger).map_err(io::Error::from).map_err(at(&self.path("json")))?;
        self.replace("json", &text)
    }

    /// The text of the file as it was when the tunnel was brought up or last reloaded.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_file(&self) -> Result<Option<Buffer>, LedgerError> {
        read_file(&self.directory, &self.interface)
    }

    /// Keeps the text of the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_file(&self, text: &[u8]) -> Result<(), LedgerError> {
        self.replace("conf", text)
    }

    /// The text of the file that a reload was about to apply; none when it was, or when that was given up.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_next_file(&self) -> Result<Option<Buffer>, LedgerError> {
        read_text(&self.path("next"))
    }

    /// Keeps the text of a file that is about to be applied.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_next_file(&self, text: &[u8]) -> Result<(), LedgerError> {
        self.replace("next", text)
    }

    /// Has the text that was about to be applied take the place of the one before.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn adopt_next_file(&self) -> Result<(), LedgerError> {
        let (next, path) = (self.path("next"), self.path("conf"));
        fs::rename(&next, &path).map_err(at(&path))
    }

    /// Forgets the text that was about to be applied.
    ///
    /// # Errors
    /// It is there and cannot be removed.
    pub fn forget_next_file(&self) -> Result<(), LedgerError> {
        self.forget("next")
    }

    /// Forgets the tunnel. The lock stays: who waits for it has it open.
    ///
    /// # Errors
    /// A file is there and cannot be removed.
    pub fn remove(&self) -> Result<(), LedgerError> {
        self.forget("json")?;
        self.forget("next")?;
        self.forget("conf")
    }

    fn forget(&self, extension: &str) -> Result<(), LedgerError> {
        let path = self.path(extension);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&path)(error)),
            _ => Ok(()),
        }
    }

    fn replace(&self, extension: &str, text: &[u8]) -> Result<(), LedgerError> {
        let path = self.path(extension);
        file::replace(&path, format!("{}.new", self.interface), text, 0o600, None).map_err(at(&path))
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", self.interface))
    }
}

/// Signs a lock that was just taken: this process, and which of its locks.
fn sign(mut lock: &File) {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    // The time tells it from another process of this number, before or after.
    let now = clock_gettime(ClockId::Boottime);
    let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
    let signature = format!("{}.{taken}.{}.{}", std::process::id(), now.tv_sec, now.tv_nsec);
    // On a full file system there is none, and that serves: hooks are given what can be read.
    let _ = lock.set_len(0).and_then(|()| lock.write_all(signature.as_bytes()));
}

/// The signature of whoever locked the ledger of `interface` last. A command that holds the lock hands it to its hooks:
/// while the lock is taken and has that signature, they run on behalf of its holder.
pub fn signature(directory: &Path, interface: &InterfaceName) -> String {
    fs::read_to_string(directory.join(format!("{interface}.lock"))).unwrap_or_default()
}

/// Locks all ledgers against those who choose numbers that no other tunnel may have, until the lock is dropped: from the
/// look at the host to the ledger that tells of them.
///
/// # Errors
/// The folder cannot be made.
pub fn lock_allocation(directory: &Path) -> Result<File, LedgerError> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(at(directory))?;
    // No interface has a lock of this name: theirs end in `.lock`.
    let path = directory.join("numbers");
    let mut options = OpenOptions::new();
    let lock = options.create(true).write(true).truncate(false).mode(0o600).open(&path).map_err(at(&path))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|errno| at(&path)(errno.into()))?;
    Ok(lock)
}

/// What the keeper of `interface` holds for as long as it works; none while another does.
///
/// # Errors
/// The folder or the file cannot be made, or not be locked.
pub fn lock_supervisor(directory: &Path, interface: &InterfaceName) -> Result<Option<File>, LedgerError> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(at(directory))?;
    let path = directory.join(format!("{interface}.keeper"));
    let mut options = OpenOptions::new();
    let lock = options.create(true).write(true).truncate(false).mode(0o600).open(&path).map_err(at(&path))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(at(&path)(errno.into())),
    }
}

/// The ledger of `interface`, without waiting for a command that is at work.
///
/// # Errors
/// It cannot be read.
pub fn read(directory: &Path, interface: &InterfaceName) -> Result<Option<Ledger>, LedgerError> {
    let path = directory.join(format!("{interface}.json"));
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(&path)(error)),
    };
    let form = |why: String| LedgerError::Format { path: path.clone(), why };
    let ledger: Ledger = serde_json::from_slice(&text).map_err(|error| form(error.to_string()))?;
    if ledger.version != VERSION {
        return Err(form(format!("its version is {}", ledger.version)));
    }
    Ok(Some(ledger))
}

/// The text of the file of `interface`, as [`Entry::read_file`], without waiting for a command that is at work.
///
/// # Errors
/// It cannot be read.
pub fn read_file(directory: &Path, interface: &InterfaceName) -> Result<Option<Buffer>, LedgerError> {
    read_text(&directory.join(format!("{interface}.conf")))
}

fn read_text(path: &Path) -> Result<Option<Buffer>, LedgerError> {
    match fs::read(path) {
        Ok(bytes) => {
            let bytes = zeroize::Zeroizing::new(bytes);
            let mut text = Buffer::with_capacity(bytes.len());
            text.extend(&bytes);
            Ok(Some(text))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error)),
    }
}

/// The interfaces that have a ledger, sorted.
///
/// # Errors
/// The folder cannot be listed.
pub fn interfaces(directory: &Path) -> Result<Vec<InterfaceName>, LedgerError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(directory)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(at(directory))?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".json")?.parse().ok()));
    }
    names.sort();
    Ok(names)
}

fn at(path: &Path) -> impl Fn(io::Error) -> LedgerError {
    move |error| LedgerError::Io { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn ledger() -> Ledger {
        Ledger {
            version: VERSION,
            since: 1 << 70,
            index: Some(7),
            supervised: false,
            compat: Compat::Native,
            backend: Backend::Daemon,
            daemon: Some("/usr/bin/linerated".into()),
            file: "/etc/wireguard/wg0.conf".into(),
            called: None,
            wanted: Wanted { interface: "wg0".into(), ..Wanted::default() },
            hooks: Hooks::default(),
            steps: vec![Step::LinkUp { interface: "wg0".into() }],
            complete: true,
            pending: Vec::new(),
            user: Some("nobody".into()),
            hook_failed: false,
        }
    }

    #[test]
    fn a_ledger_is_read_as_it_was_written_and_gone_when_removed() {
        let folder = tempfile::tempdir().unwrap();
        let name: InterfaceName = "wg0".parse().unwrap();
        let entry = Entry::open(&folder.path().join("linerate"), &name).unwrap();
        assert_eq!(entry.read().unwrap(), None);
        entry.write(&ledger()).unwrap();
        entry.write_file(b"[Interface]\n").unwrap();
        assert_eq!(entry.read().unwrap(), Some(ledger()));
        assert_eq!(&entry.read_file().unwrap().unwrap()[..], b"[Interface]\n");
        assert!(entry.read_next_file().unwrap().is_none());
        entry.write_next_file(b"[Peer]\n").unwrap();
        assert_eq!(&entry.read_next_file().unwrap().unwrap()[..], b"[Peer]\n");
        assert_eq!(&entry.read_file().unwrap().unwrap()[..], b"[Interface]\n");
        entry.adopt_next_file().unwrap();
        assert!(entry.read_next_file().unwrap().is_none());
        assert_eq!(&entry.read_file().unwrap().unwrap()[..], b"[Peer]\n");
        entry.write_next_file(b"[Peer]\n").unwrap();
        assert_eq!(interfaces(&folder.path().join("linerate")).unwrap(), [name]);
        for file in ["wg0.json", "wg0.conf", "wg0.next", "wg0.lock"] {
            let mode = fs::metadata(folder.path().join("linerate").join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{file}");
        }
        entry.remove().unwrap();
        assert_eq!(entry.read().unwrap(), None);
        assert!(entry.read_file().unwrap().is_none());
        assert!(entry.read_next_file().unwrap().is_none());
    }

    #[test]
    fn an_interface_is_locked_once_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| Entry::open(folder.path(), &name.parse().unwrap());
        let held = open("wg0").unwrap();
        assert!(matches!(open("wg0"), Err(LedgerError::Busy { .. })));
        open("wg1").unwrap();
        drop(held);
        open("wg0").unwrap();
    }

    #[test]
    fn each_holder_of_a_lock_signs_it_with_a_name_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let interface = "wg0".parse().unwrap();
        let signature = || signature(folder.path(), &interface);
        assert_eq!(signature(), "");
        let first = Entry::open(folder.path(), &interface).unwrap();
        let signed = signature();
        assert_ne!(signed, "");
        assert!(matches!(Entry::open(folder.path(), &interface), Err(LedgerError::Busy { .. })));
        assert_eq!(signature(), signed, "who was refused has not signed");
        drop(first);
        let _second = Entry::open(folder.path(), &interface).unwrap();
        assert_ne!(signature(), signed);
    }

    #[test]
    fn a_ledger_of_another_form_is_an_error_and_not_none() {
        let folder = tempfile::tempdir().unwrap();
        let name: InterfaceName = "wg0".parse().unwrap();
        let mut other = ledger();
        other.version = 2;
        Entry::open(folder.path(), &name).unwrap().write(&other).unwrap();
        assert!(matches!(read(folder.path(), &name), Err(LedgerError::Format { .. })));
        fs::write(folder.path().join("wg0.json"), b"{").unwrap();
        assert!(matches!(read(folder.path(), &name), Err(LedgerError::Format { .. })));
    }
}
