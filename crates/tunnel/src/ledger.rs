//! The undo log of a tunnel: what `up` did to the host, so that `down` can undo it whatever has become of the file.
//!
//! All ledgers are in one directory, readable by root alone, on a file system that a boot empties. The files
//! of an interface:
//!
//! | file | content |
//! |---|---|
//! | IFACE.json | the ledger, without keys |
//! | IFACE.conf | the tunnel's file as it was last applied, which `reload` compares with; it may hold keys |
//! | IFACE.next | the file that a reload or an edit is applying |
//! | IFACE.released | the sysctls that a command has let go of whose ledger still has them |
//! | IFACE.new | any of the first three while it is written |
//! | IFACE.lock | the lock of the command at work, signed by it |
//! | IFACE.supervisor | the lock of the supervisor, and in it what it cannot do at present, a line each |

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use linerate_control::atomic_file;
use linerate_control::interface::InterfaceName;
use linerate_control::zeroizing::Buffer;
use linerate_netio::clock::boottime;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use linerate_host::plan::cancel_inverses;
use linerate_host::plan::gateway::bare_table;
use linerate_host::plan::{Hooks, possibly_applied};
use linerate_host::spec::{Compat, Forwarding, HostSpec};
use linerate_host::state::HeldSysctl;
use linerate_host::step::{GatewayTable, Implementation, Step};

use crate::identity::Identity;
use crate::places;
use crate::read::has_text;

/// Where ledgers are.
pub const DIRECTORY: &str = places::RUN;

/// [`DIRECTORY`], as a path.
pub(crate) fn directory() -> &'static Path {
    Path::new(DIRECTORY)
}

/// Tells a linerate that a hook starts who holds the lock of the tunnel's ledger: its [`signature`].
pub(crate) const LOCKED: &str = "LINERATE_LOCKED";

/// What was done for a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Format version; other versions are rejected.
    pub version: u32,
    /// When the tunnel was brought up, in nanoseconds since 1970: distinguishes tunnels of the same name.
    pub since: u128,
    /// The index of the interface, once it exists: an interface of the same name with another index belongs to another
    /// tunnel.
    pub index: Option<u32>,
    /// Distinguishes the tunnel from others of its name, with [`Self::index`].
    #[serde(default)]
    pub identity: Identity,
    /// A service supervises the tunnel and restarts its daemon.
    pub supervised: bool,
    /// Whose conventions the tunnel follows.
    pub compat: Compat,
    /// What runs it.
    pub implementation: Implementation,
    /// The daemon's program, unless the kernel runs the tunnel.
    pub daemon: Option<PathBuf>,
    /// The user that the daemon becomes, where one is named.
    #[serde(default)]
    pub user: Option<String>,
    /// For how many microseconds the daemon looks for packets before it sleeps, where that is set.
    #[serde(default)]
    pub spin: Option<String>,
    /// Where the daemon keeps what peers have used of their quotas, if it does.
    #[serde(default)]
    pub usage: Option<PathBuf>,
    /// The file it was brought up from, with all links followed.
    pub file: PathBuf,
    /// Its path as the user gave it: symbolic links may change later.
    #[serde(default)]
    pub called: Option<PathBuf>,
    /// What the file asks of the host.
    pub spec: HostSpec,
    /// The commands of the file.
    pub hooks: Hooks,
    /// The steps that were done, or were going to be when [`Ledger::complete`] is false: the host or the program may
    /// have stopped anywhere between.
    pub steps: Vec<Step>,
    /// Whether all of them were done, and none is [pending](Ledger::pending).
    pub complete: bool,
    /// The steps of a reload that has not finished: which of them were done is not known. [`Ledger::spec`] and
    /// the text of the file are those from before it.
    #[serde(default)]
    pub pending: Vec<Step>,
    /// The sysctls that the command at work has let go of ([`LockedLedger::release`]).
    #[serde(skip)]
    pub released: BTreeSet<String>,
    /// A hook failed, and the tunnel stayed because the file says so.
    #[serde(default)]
    pub hook_failed: bool,
}

/// What an edit of the file asks of a ledger: reading all of it takes long if there are many peers.
#[derive(Deserialize)]
pub(crate) struct LedgerHead {
    /// As [`Ledger::index`].
    #[serde(default)]
    pub(crate) index: Option<u32>,
    /// As [`Ledger::implementation`].
    pub(crate) implementation: Implementation,
    /// As [`Ledger::supervised`].
    pub(crate) supervised: bool,
    /// As [`Ledger::file`].
    pub(crate) file: PathBuf,
    /// As [`Ledger::called`].
    #[serde(default)]
    pub(crate) called: Option<PathBuf>,
    /// As [`Ledger::identity`].
    #[serde(default)]
    pub(crate) identity: Identity,
    /// As [`Ledger::complete`].
    pub(crate) complete: bool,
    /// As many as in [`Ledger::pending`].
    #[serde(default)]
    pub(crate) pending: Vec<IgnoredAny>,
    /// As [`Ledger::usage`].
    #[serde(default)]
    pub(crate) usage: Option<PathBuf>,
    /// As [`Ledger::spec`].
    pub(crate) spec: SpecHead,
}

/// What an edit asks of [`HostSpec`].
#[derive(Deserialize)]
pub(crate) struct SpecHead {
    /// As [`HostSpec::forwarding`].
    #[serde(default)]
    pub(crate) forwarding: Forwarding,
}

impl Ledger {
    /// All steps that may have been done ([`possibly_applied`]).
    pub fn possibly_applied(&self) -> Vec<Step> {
        possibly_applied(&self.steps, &self.pending)
    }

    /// The sysctls that the tunnel may hold, with their values before.
    pub fn held_sysctls(&self) -> BTreeMap<String, String> {
        let mut held = BTreeMap::new();
        for step in &self.steps {
            match step {
                Step::HoldSysctl { name, before, .. } => drop(held.insert(name.clone(), before.clone())),
                Step::ReleaseSysctl { name, .. } => drop(held.remove(name)),
                _ => {}
            }
        }
        // Pending steps may have been done, or not: what they release counts as held.
        for step in &self.pending {
            if let Step::HoldSysctl { name, before, .. } = step {
                held.entry(name.clone()).or_insert_with(|| before.clone());
            }
        }
        held.retain(|name, _| !self.released.contains(name));
        held
    }

    /// The steps that the host is to show the effect of, but for ways in firewalls of others: those are read for the
    /// plan of a reload only.
    pub(crate) fn in_force(&self) -> Vec<Step> {
        let mut steps = cancel_inverses(&self.steps);
        steps.retain(|step| !matches!(step, Step::Open(_)));
        steps
    }

    /// Returns the step that set the device's mark, if the device's present mark, `there`, is another.
    pub(crate) fn lost_mark(&self, there: u32) -> Option<Step> {
        let set = self.in_force().into_iter().rfind(|step| matches!(step, Step::SetFwmark { .. }))?;
        matches!(set, Step::SetFwmark { fwmark, .. } if fwmark != there).then_some(set)
    }

    pub(crate) fn gateway_table(&self) -> Option<&GatewayTable> {
        last_gateway_table(&self.steps)
    }

    /// Counts the restrictions of an edit or a reload that was killed as those of the tunnel: the daemon may have its
    /// peers. What is pending has to be rolled back still, to a table with these restrictions.
    pub(crate) fn adopt_restrictions(&mut self) {
        let Some(pending) = last_gateway_table(&self.pending) else { return };
        let restrictions = pending.restrictions.clone();
        let before = self.gateway_table().cloned().unwrap_or_else(|| bare_table(&pending.interface));
        let adopted = GatewayTable { restrictions: restrictions.clone(), ..before };
        if adopted.is_empty() {
            return;
        }
        // The table before would be restored in the place of one that was deleted.
        self.pending.retain(|step| !matches!(step, Step::DeleteGateway(_)));
        self.spec.forwarding.restrictions = restrictions;
        self.steps.push(Step::AddGateway(adopted));
        self.forget_replaced_gateways();
    }

    /// Leaves out the tables of the gateway that a later one replaced, or that are deleted: each holds the destinations
    /// of all peers, and a ledger with every one of them would grow with each reload.
    pub(crate) fn forget_replaced_gateways(&mut self) {
        let is_gateway = |step: &Step| matches!(step, Step::AddGateway(_) | Step::DeleteGateway(_));
        let last = self.steps.iter().rposition(is_gateway);
        let mut index = 0;
        self.steps.retain(|step| {
            let is_last = Some(index) == last && matches!(step, Step::AddGateway(_));
            index += 1;
            is_last || !is_gateway(step)
        });
    }

    /// The ledger with only those steps that `left`, which was to undo them, did not undo. Commands are not run again.
    pub fn with_remaining(&self, left: &[Step]) -> Self {
        let is_left = |step: &&Step| {
            let undo = match step {
                // Its inverse does not say what was set.
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

/// The format version that this program writes and reads.
pub const VERSION: u32 = 3;

/// The ledger of one interface, locked: two commands for one interface come one after the other.
pub struct LockedLedger {
    directory: PathBuf,
    interface: InterfaceName,
    _lock: Option<File>,
}

/// Why there is no ledger to read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The directory or a file in it cannot be used.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The ledger has another format version.
    #[error("cannot read ledger {}: {why}. If you remove it, `linerate down` uses the tunnel's file",
            path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another command holds the lock of this interface.
    #[error("another command is using {interface}")]
    Busy { interface: InterfaceName },
}

impl LockedLedger {
    /// The ledger of an interface whose lock the command holds that runs us as a hook.
    pub fn inherited(directory: &Path, interface: &InterfaceName) -> Self {
        Self { directory: directory.to_owned(), interface: interface.clone(), _lock: None }
    }

    /// Locks the ledger of `interface`, if no other command has.
    ///
    /// # Errors
    /// The directory cannot be made, or another command holds the lock.
    pub fn open(directory: &Path, interface: &InterfaceName) -> Result<Self, LedgerError> {
        let lock = try_lock(directory, &format!("{interface}.lock"))?;
        let lock = lock.ok_or_else(|| LedgerError::Busy { interface: interface.clone() })?;
        sign(&lock);
        let locked = Self { directory: directory.to_owned(), interface: interface.clone(), _lock: Some(lock) };
        // What a command was writing when it was killed, or had not removed yet.
        locked.forget("new")?;
        if !locked.path("json").exists() {
            locked.remove()?;
        }
        Ok(locked)
    }

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

    /// The head of the ledger, if the tunnel was brought up with one.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read_head(&self) -> Result<Option<LedgerHead>, LedgerError> {
        read_head(&self.directory, &self.interface)
    }

    /// Puts `ledger` in the place of what is there, whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, ledger: &Ledger) -> Result<(), LedgerError> {
        let text = serde_json::to_vec_pretty(ledger).map_err(io::Error::from).map_err(at(&self.path("json")))?;
        self.replace("json", &text)?;
        self.forget("released")
    }

    /// Notes that the tunnel no longer holds a sysctl, until the ledger is written the next time: a ledger of 10,000 peers
    /// takes longer.
    ///
    /// # Errors
    /// It cannot be noted.
    pub fn release(&self, sysctl: &str) -> Result<(), LedgerError> {
        if !self.path("json").exists() {
            return Ok(());
        }
        let path = self.path("released");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(format!("{sysctl}\n").as_bytes())).map_err(at(&path))
    }

    /// The text of the file as it was when the tunnel was brought up or last reloaded.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_file(&self) -> Result<Option<Buffer>, LedgerError> {
        read_file(&self.directory, &self.interface)
    }

    /// Whether [`LockedLedger::read_file`] would return this text.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub(crate) fn has_file(&self, text: &[u8]) -> Result<bool, LedgerError> {
        let path = self.path("conf");
        match has_text(&path, text) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            done => done.map_err(at(&path)),
        }
    }

    /// Keeps the text of the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_file(&self, text: &[u8]) -> Result<(), LedgerError> {
        self.replace("conf", text)
    }

    /// The text of the file that a reload or an edit was applying when it was killed or not answered, if one was.
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

    /// Forgets the tunnel. Keeps the lock file: waiting processes have it open.
    ///
    /// # Errors
    /// A file is there and cannot be removed.
    pub fn remove(&self) -> Result<(), LedgerError> {
        self.forget("json")?;
        self.forget("released")?;
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
        atomic_file::replace(&path, format!("{}.new", self.interface), text, Some(0o600), None).map_err(at(&path))
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", self.interface))
    }
}

/// Signs a lock that was just taken: this process, and which of its locks.
fn sign(mut lock: &File) {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    // The time distinguishes it from other processes with the same PID.
    let now = boottime();
    let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
    let signature = format!("{}.{taken}.{now}", std::process::id());
    // Without space the signature is empty, and so is what hooks are given: they still match.
    let _ = lock.set_len(0).and_then(|()| lock.write_all(signature.as_bytes()));
}

/// The signature of whoever locked the ledger of `interface` last. A command that holds the lock hands it to its hooks:
/// while the lock is taken and has that signature, they run on behalf of its holder.
pub fn signature(directory: &Path, interface: &InterfaceName) -> String {
    fs::read_to_string(directory.join(format!("{interface}.lock"))).unwrap_or_default()
}

/// Serializes the allocation of routing ids (tables, marks, priorities), from reading the host's state until the ledger
/// records them. Waits for the lock.
///
/// # Errors
/// The directory or the file cannot be made.
pub fn lock_allocation(directory: &Path) -> Result<File, LedgerError> {
    // No interface has a lock of this name: the names of theirs have an extension.
    let (path, lock) = open_lock(directory, "routing-ids")?;
    lock.lock().map_err(at(&path))?;
    Ok(lock)
}

/// The lock that the supervisor of `interface` holds while it runs; `None` if another supervisor holds it.
///
/// # Errors
/// The directory or the file cannot be made, or cannot be locked.
pub fn lock_supervisor(directory: &Path, interface: &InterfaceName) -> Result<Option<File>, LedgerError> {
    try_lock(directory, &supervisor_lock(interface))
}

/// The lock of whoever makes or removes a server; `None` if another process holds it.
///
/// # Errors
/// The directory or the file cannot be made, or cannot be locked.
pub(crate) fn lock_servers(directory: &Path) -> Result<Option<File>, LedgerError> {
    // No interface has a lock of this name: the names of theirs have an extension.
    try_lock(directory, "servers-lock")
}

/// Writes what the supervisor that holds `lock` cannot do at present.
pub(crate) fn write_troubles<'a>(mut lock: &File, troubles: impl Iterator<Item = &'a String>) -> io::Result<()> {
    let text: String = troubles.map(|trouble| trouble.replace('\n', " ") + "\n").collect();
    lock.rewind()?;
    lock.set_len(0)?;
    lock.write_all(text.as_bytes())
}

/// What the supervisor of `interface` cannot do at present; nothing if there is none.
pub(crate) fn troubles(directory: &Path, interface: &InterfaceName) -> Vec<String> {
    let path = directory.join(supervisor_lock(interface));
    let text = fs::read_to_string(&path).unwrap_or_default();
    // One that was killed leaves its text. The lock is not taken where there is none, so that it is free for one that starts;
    // and it is shared, or two that ask at once would take each other for the supervisor.
    let is_held = |lock: File| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock));
    if text.is_empty() || !File::open(path).is_ok_and(is_held) {
        return Vec::new();
    }
    text.lines().map(str::to_owned).collect()
}

/// The table of the gateway that the last of these steps makes.
pub(crate) fn last_gateway_table(steps: &[Step]) -> Option<&GatewayTable> {
    steps.iter().rev().find_map(|step| match step {
        Step::AddGateway(table) => Some(table),
        _ => None,
    })
}

/// The name of the file that [`lock_supervisor`] locks.
pub fn supervisor_lock(interface: &InterfaceName) -> String {
    format!("{interface}.supervisor")
}

/// Locks a file in `directory`; `None` if another process holds the lock.
fn try_lock(directory: &Path, name: &str) -> Result<Option<File>, LedgerError> {
    let (path, lock) = open_lock(directory, name)?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(at(&path)(error)),
    }
}

/// Opens a lock file, and makes it and `directory` if they do not exist.
fn open_lock(directory: &Path, name: &str) -> Result<(PathBuf, File), LedgerError> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(at(directory))?;
    let path = directory.join(name);
    let mut options = OpenOptions::new();
    let lock = options.create(true).write(true).truncate(false).mode(0o600).open(&path).map_err(at(&path))?;
    Ok((path, lock))
}

/// The ledger of `interface`, without a lock.
///
/// # Errors
/// It cannot be read.
pub fn read(directory: &Path, interface: &InterfaceName) -> Result<Option<Ledger>, LedgerError> {
    let Some(ledger) = read_as::<Ledger>(directory, interface)? else { return Ok(None) };
    let released = fs::read_to_string(directory.join(format!("{interface}.released"))).unwrap_or_default();
    Ok(Some(Ledger { released: released.lines().map(str::to_owned).collect(), ..ledger }))
}

/// The head of the ledger of `interface`; see [`read`].
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_head(directory: &Path, interface: &InterfaceName) -> Result<Option<LedgerHead>, LedgerError> {
    read_as(directory, interface)
}

fn read_as<T: DeserializeOwned>(directory: &Path, interface: &InterfaceName) -> Result<Option<T>, LedgerError> {
    let path = directory.join(format!("{interface}.json"));
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(&path)(error)),
    };
    let format = |why: String| LedgerError::Format { path: path.clone(), why };
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    // First, because another version has other fields.
    let Versioned { version } = serde_json::from_slice(&text).map_err(|error| format(error.to_string()))?;
    if version != VERSION {
        return Err(format(format!("its version is {version}")));
    }
    serde_json::from_slice(&text).map(Some).map_err(|error| format(error.to_string()))
}

/// The text of the file of `interface`, as [`LockedLedger::read_file`], without waiting for a command that is at work.
///
/// # Errors
/// It cannot be read.
pub fn read_file(directory: &Path, interface: &InterfaceName) -> Result<Option<Buffer>, LedgerError> {
    read_text(&directory.join(format!("{interface}.conf")))
}

fn read_text(path: &Path) -> Result<Option<Buffer>, LedgerError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(Buffer::from(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error)),
    }
}

/// The interfaces that have a ledger, sorted.
///
/// # Errors
/// The directory cannot be listed.
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

/// Reads which sysctls tunnels may hold, by dotted name. Skips unreadable ledgers: the commands of their own tunnels
/// report them.
///
/// # Errors
/// The directory cannot be listed.
pub(crate) fn held_sysctls(directory: &Path) -> Result<BTreeMap<String, HeldSysctl>, LedgerError> {
    let mut held: BTreeMap<String, HeldSysctl> = BTreeMap::new();
    for interface in interfaces(directory)? {
        let Ok(Some(ledger)) = read(directory, &interface) else { continue };
        // Another network namespace has sysctls of its own.
        if ledger.identity.is_of_other_network() {
            continue;
        }
        for (name, before) in ledger.held_sysctls() {
            let held = held.entry(name).or_insert(HeldSysctl { before, holders: BTreeSet::new() });
            held.holders.insert(interface.to_string());
        }
    }
    Ok(held)
}

fn at(path: &Path) -> impl Fn(io::Error) -> LedgerError {
    move |error| LedgerError::Io { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use linerate_host::spec::Restriction;

    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn ledger() -> Ledger {
        Ledger {
            version: VERSION,
            since: 1 << 70,
            index: Some(7),
            identity: Identity::default(),
            supervised: false,
            compat: Compat::Native,
            implementation: Implementation::Daemon,
            daemon: Some("/usr/bin/linerated".into()),
            file: "/etc/wireguard/wg0.conf".into(),
            called: None,
            spec: HostSpec { interface: "wg0".into(), ..HostSpec::default() },
            hooks: Hooks::default(),
            steps: vec![Step::LinkUp { interface: "wg0".into() }],
            complete: true,
            pending: Vec::new(),
            user: Some("nobody".into()),
            spin: Some("200".into()),
            usage: Some("/var/lib/linerate".into()),
            released: BTreeSet::new(),
            hook_failed: false,
        }
    }

    #[test]
    fn what_a_supervisor_cannot_do_is_told_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, interface) = (folder.path(), "wg0".parse().unwrap());
        assert!(troubles(directory, &interface).is_empty());
        let lock = lock_supervisor(directory, &interface).unwrap().unwrap();
        write_troubles(&lock, ["one\nof two".to_owned(), "two".to_owned()].iter()).unwrap();
        assert_eq!(troubles(directory, &interface), ["one of two", "two"]);
        write_troubles(&lock, ["none".to_owned()].iter()).unwrap();
        assert_eq!(troubles(directory, &interface), ["none"]);
        drop(lock);
        let asks = File::open(directory.join(supervisor_lock(&interface))).unwrap();
        asks.lock_shared().unwrap();
        assert!(troubles(directory, &interface).is_empty(), "a text that was left behind, while another asks");
    }

    #[test]
    fn a_ledger_is_read_as_written_and_is_gone_after_removal() {
        let folder = tempfile::tempdir().unwrap();
        let name: InterfaceName = "wg0".parse().unwrap();
        let locked = LockedLedger::open(&folder.path().join("linerate"), &name).unwrap();
        assert_eq!(locked.read().unwrap(), None);
        locked.write(&ledger()).unwrap();
        locked.write_file(b"[Interface]\n").unwrap();
        assert_eq!(locked.read().unwrap(), Some(ledger()));
        assert_eq!(&locked.read_file().unwrap().unwrap()[..], b"[Interface]\n");
        assert!(locked.read_next_file().unwrap().is_none());
        locked.write_next_file(b"[Peer]\n").unwrap();
        assert_eq!(&locked.read_next_file().unwrap().unwrap()[..], b"[Peer]\n");
        assert_eq!(&locked.read_file().unwrap().unwrap()[..], b"[Interface]\n");
        locked.adopt_next_file().unwrap();
        assert!(locked.read_next_file().unwrap().is_none());
        assert_eq!(&locked.read_file().unwrap().unwrap()[..], b"[Peer]\n");
        locked.write_next_file(b"[Peer]\n").unwrap();
        assert_eq!(interfaces(&folder.path().join("linerate")).unwrap(), [name]);
        for file in ["wg0.json", "wg0.conf", "wg0.next", "wg0.lock"] {
            let mode = fs::metadata(folder.path().join("linerate").join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{file}");
        }
        locked.remove().unwrap();
        assert_eq!(locked.read().unwrap(), None);
        assert!(locked.read_file().unwrap().is_none());
        assert!(locked.read_next_file().unwrap().is_none());
    }

    #[test]
    fn what_a_command_left_that_was_killed_while_it_removed_a_ledger_goes_with_the_next_lock() {
        let folder = tempfile::tempdir().unwrap();
        let open = || LockedLedger::open(folder.path(), &"wg0".parse().unwrap()).unwrap();
        let locked = open();
        locked.write(&ledger()).unwrap();
        locked.write_file(b"[Interface]\n").unwrap();
        locked.write_next_file(b"[Peer]\n").unwrap();
        locked.release("a").unwrap();
        drop(locked);
        let files = || {
            let entries = fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let all = ["wg0.conf", "wg0.json", "wg0.lock", "wg0.next", "wg0.released"];
        drop(open());
        assert_eq!(files(), all);
        fs::remove_file(folder.path().join("wg0.json")).unwrap();
        drop(open());
        assert_eq!(files(), ["wg0.lock"]);
    }

    #[test]
    fn what_a_tunnel_lets_go_of_it_does_not_hold_until_its_ledger_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let locked = LockedLedger::open(folder.path(), &"wg0".parse().unwrap()).unwrap();
        let held = || locked.read().unwrap().unwrap().held_sysctls().into_keys().collect::<Vec<_>>();
        let hold = |name: &str| Step::HoldSysctl {
            interface: "wg0".into(),
            name: name.into(),
            value: "1".into(),
            before: "0".into(),
        };
        let holding = Ledger { steps: vec![hold("a"), hold("b")], pending: vec![hold("c")], ..ledger() };
        locked.release("a").unwrap();
        locked.write(&holding).unwrap();
        assert_eq!(held(), ["a", "b", "c"], "without a ledger there is nothing to let go of");
        locked.release("a").unwrap();
        locked.release("c").unwrap();
        assert_eq!(held(), ["b"]);
        locked.write(&holding).unwrap();
        assert_eq!(held(), ["a", "b", "c"]);
        locked.release("b").unwrap();
        locked.remove().unwrap();
        locked.write(&holding).unwrap();
        assert_eq!(held(), ["a", "b", "c"]);
    }

    #[test]
    fn an_interface_is_locked_once_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| LockedLedger::open(folder.path(), &name.parse().unwrap());
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
        let first = LockedLedger::open(folder.path(), &interface).unwrap();
        let signed = signature();
        assert_ne!(signed, "");
        assert!(matches!(LockedLedger::open(folder.path(), &interface), Err(LedgerError::Busy { .. })));
        assert_eq!(signature(), signed, "a failed attempt does not sign");
        drop(first);
        let _second = LockedLedger::open(folder.path(), &interface).unwrap();
        assert_ne!(signature(), signed);
    }

    #[test]
    fn only_the_last_table_of_a_gateway_is_kept() {
        let table =
            |isolated| GatewayTable { interface: "wg0".into(), gateway: None, isolated, restrictions: Vec::new() };
        let (one, other) = (Step::AddGateway(table(false)), Step::AddGateway(table(true)));
        let up = Step::LinkUp { interface: "wg0".into() };
        let kept = |steps: &[&Step]| {
            let mut ledger = Ledger { steps: steps.iter().map(|step| (*step).clone()).collect(), ..ledger() };
            ledger.forget_replaced_gateways();
            ledger.steps
        };
        let deleted = one.undo().unwrap();
        assert_eq!(kept(&[&one, &up, &deleted, &other]), [up.clone(), other.clone()]);
        assert_eq!(kept(&[&one, &up, &deleted]), std::slice::from_ref(&up));
        assert_eq!(kept(&[&up]), [up]);
    }

    #[test]
    fn what_was_killed_is_rolled_back_to_its_restrictions() {
        let table = |restrictions, isolated| {
            Step::AddGateway(GatewayTable { interface: "wg0".into(), gateway: None, isolated, restrictions })
        };
        let restrictions = vec![Restriction { sources: vec![], destinations: vec!["10.0.0.0/8".parse().unwrap()] }];
        let [old, new] = [vec![], restrictions.clone()].map(|restrictions| table(restrictions, true));
        let adopted = |steps: &[&Step], pending: &[&Step]| {
            let [steps, pending] = [steps, pending].map(|all| all.iter().map(|step| (*step).clone()).collect());
            let mut ledger = Ledger { steps, pending, complete: false, ..ledger() };
            ledger.adopt_restrictions();
            (ledger.spec.forwarding.restrictions, ledger.steps, ledger.pending)
        };
        let expected = |pending: &[&Step]| {
            (restrictions.clone(), vec![new.clone()], pending.iter().map(|step| (*step).clone()).collect())
        };
        assert_eq!(adopted(&[&old], &[&new]), expected(&[&new]));
        // Of a whole reload, which changed the table in other ways, too.
        let (deleted, up) = (old.undo().unwrap(), Step::LinkUp { interface: "wg0".into() });
        let other = table(restrictions.clone(), false);
        assert_eq!(adopted(&[&old], &[&up, &deleted, &other]), expected(&[&up, &other]));
        assert_eq!(adopted(&[], &[&new]), (restrictions, vec![other], vec![new]));
        assert_eq!(adopted(&[&old], &[&deleted]), (vec![], vec![old.clone()], vec![deleted]));
        assert_eq!(adopted(&[], &[&old]), (vec![], vec![], vec![old]));
    }

    #[test]
    fn a_ledger_of_another_format_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let name: InterfaceName = "wg0".parse().unwrap();
        let mut other = ledger();
        other.version = VERSION + 1;
        LockedLedger::open(folder.path(), &name).unwrap().write(&other).unwrap();
        assert!(matches!(read(folder.path(), &name), Err(LedgerError::Format { .. })));
        // Its fields may be others, too.
        for (text, why) in [("{", ""), ("{\"version\": 1, \"manner\": \"native\"}", "its version is 1")] {
            fs::write(folder.path().join("wg0.json"), text).unwrap();
            let error = read(folder.path(), &name).unwrap_err();
            assert!(matches!(error, LedgerError::Format { .. }) && error.to_string().contains(why), "{error}");
        }
    }
}
