//! Tables of SQLite databases, printed as JSON by the program `sqlite3`: no C code that parses other people's files is
//! in this process. It works on a private copy, without root's rights. A signal ends it, and the copy goes; one that a
//! killed import has left is removed by the next.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use linerate_control::zeroizing::Buffer;
use linerate_netio::random;
use linerate_server::import::{Input, InputTable, SQLITE_MAGIC, is_wanted_table};
use linerate_tunnel::Interruption;
use rustix::process::geteuid;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::other_program::ends;

/// The user and group of nobody on Linux (the kernel's overflow IDs).
const NOBODY: u32 = 65534;
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a query's output, in bytes.
const OUTPUT_MAX: u64 = 128 << 20;

/// The tables of all databases that are among the files.
pub(super) fn tables(input: &Input, interruption: &Interruption) -> Result<Vec<InputTable>, String> {
    let mut tables = Vec::new();
    remove_stale_copies(&temporary_folder());
    for file in input.files.iter().filter(|file| file.bytes.starts_with(SQLITE_MAGIC)) {
        let wal = format!("{}-wal", file.path);
        let wal = input.files.iter().find(|other| other.path == wal);
        let copy = PrivateCopy::new(&file.bytes, wal.map(|wal| &*wal.bytes))
            .map_err(|error| format!("cannot copy {} to read it: {error}", file.path))?;
        let names = names(&copy, &file.path, interruption)?;
        if names.is_empty() && !file.path.ends_with("_log.db") {
            return Err(format!("{}: this database has no tables: is it whole?", file.path));
        }
        for name in names.iter().filter(|name| is_wanted_table(name)) {
            let query = format!("SELECT * FROM \"{}\"", name.replace('"', "\"\""));
            let rows = run(&copy, &query, &file.path, interruption)?;
            tables.push(InputTable { database: file.path.clone(), name: name.clone(), rows });
        }
    }
    Ok(tables)
}

fn names(copy: &PrivateCopy, path: &str, interruption: &Interruption) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    struct Row {
        name: String,
    }
    let query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
    let printed = run(copy, query, path, interruption)?;
    if printed.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Row> = serde_json::from_slice(&printed).map_err(|_| format!("{path}: sqlite3 printed no JSON"))?;
    Ok(rows.into_iter().map(|row| row.name).collect())
}

/// Runs a query and returns what it prints.
fn run(copy: &PrivateCopy, query: &str, path: &str, interruption: &Interruption) -> Result<Buffer, String> {
    let mut command = Command::new("sqlite3");
    command
        .args(["-batch", "-bail", "-readonly", "-init", "/dev/null", "-cmd", "PRAGMA trusted_schema = OFF", "-json"])
        .arg(copy.database())
        .arg(query)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if geteuid().is_root() {
        // The supplementary groups go with the user.
        command.uid(NOBODY).gid(NOBODY);
    }
    let child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{path} is an SQLite database, and the program sqlite3 that reads it is not installed: install the package \
             sqlite3 (Debian, Ubuntu) or sqlite (Fedora, Alpine, Arch), then import again"
        ),
        _ => format!("cannot run sqlite3: {error}"),
    })?;
    let output = output(child, interruption);
    if interruption.came() {
        return Err("interrupted; nothing was written".to_owned());
    }
    let (printed, said) = output.map_err(|what| format!("{path}: sqlite3 {what}"))?;
    if !said.is_empty() {
        return Err(format!("{path} cannot be read: sqlite3 says: {}", said.trim()));
    }
    Ok(printed)
}

/// What it prints and says, within the limits and until a signal comes; else what went wrong.
fn output(mut child: Child, interruption: &Interruption) -> Result<(Buffer, String), &'static str> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else { return Err("has no output") };
    let reader = thread::spawn(move || {
        let mut printed = Buffer::new();
        let mut part = Zeroizing::new([0; 1 << 16]);
        let mut stdout = stdout.take(OUTPUT_MAX + 1);
        while let Ok(count @ 1..) = stdout.read(&mut *part) {
            printed.extend(&part[..count]);
        }
        // It cannot write any more, and ends.
        drop(stdout);
        let mut said = String::new();
        let _ = stderr.take(1 << 12).read_to_string(&mut said);
        (printed, said)
    });
    let in_time = ends(&mut child, QUERY_TIMEOUT, interruption);
    if !in_time {
        let _ = child.kill();
    }
    let ended = child.wait();
    let (printed, mut said) = reader.join().map_err(|_| "cannot be read")?;
    if !in_time {
        return Err("took too long");
    }
    if printed.len() as u64 > OUTPUT_MAX {
        return Err("printed too much");
    }
    if said.is_empty() && !ended.is_ok_and(|status| status.success()) {
        said.push_str("nothing, but it failed");
    }
    Ok((printed, said))
}

/// How the names of copies begin.
const PREFIX: &str = "linerate-import-";

/// A database and its log of changes (`-wal`) in a folder that nobody else can look into; removed when dropped.
struct PrivateCopy {
    folder: PathBuf,
    /// Locked as long as the copy is in use.
    _lock: File,
}

impl PrivateCopy {
    fn new(database: &[u8], wal: Option<&[u8]>) -> io::Result<Self> {
        let copy = Self::empty(&temporary_folder())?;
        copy.add("copy.db", database)?;
        if let Some(wal) = wal {
            copy.add("copy.db-wal", wal)?;
        }
        if geteuid().is_root() {
            chown(&copy.folder, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(copy)
    }

    fn empty(temporary: &Path) -> io::Result<Self> {
        loop {
            let mut number = [0; 8];
            random::fill(&mut number);
            let folder = temporary.join(format!("{PREFIX}{:016x}", u64::from_ne_bytes(number)));
            fs::DirBuilder::new().mode(0o700).create(&folder)?;
            // Another import may take it for a stale one until it is locked.
            if let Some(lock) = locked(&folder)? {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    fn add(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(content)?;
        if geteuid().is_root() {
            chown(&path, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(())
    }

    fn database(&self) -> PathBuf {
        self.folder.join("copy.db")
    }
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where copies are. Root's own temporary folder may be closed to nobody (libpam-tmpdir).
fn temporary_folder() -> PathBuf {
    if geteuid().is_root() { PathBuf::from("/tmp") } else { std::env::temp_dir() }
}

/// The lock of a folder that is still there; none if it is gone, or another process holds the lock.
fn locked(folder: &Path) -> io::Result<Option<File>> {
    let lock = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        lock => lock?,
    };
    let is_ours = lock.try_lock().is_ok() && folder.exists();
    Ok(is_ours.then_some(lock))
}

/// Removes the copies of imports that were killed: nothing else of ours ends without removing its own.
fn remove_stale_copies(temporary: &Path) {
    let user = geteuid().as_raw();
    let owners = if user == 0 { [user, NOBODY] } else { [user; 2] };
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let is_copy = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // Of the entry itself, and not of what a link leads to.
        let is_folder = entry.metadata().is_ok_and(|there| there.is_dir() && owners.contains(&there.uid()));
        if is_copy && is_folder && locked(&entry.path()).is_ok_and(|lock| lock.is_some()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_private_copy_is_gone_afterwards_and_closed_before() {
        let copy = PrivateCopy::new(b"database", Some(b"log")).unwrap();
        let folder = copy.folder.clone();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read(folder.join("copy.db-wal")).unwrap(), b"log");
        drop(copy);
        assert!(!folder.exists());
    }

    #[test]
    fn only_copies_that_no_import_uses_are_stale() {
        let temporary = std::env::temp_dir().join(format!("linerate-stale-{}", std::process::id()));
        fs::create_dir(&temporary).unwrap();
        let used = PrivateCopy::empty(&temporary).unwrap();
        let theirs = temporary.join("theirs");
        let (stale, link, file) = (
            temporary.join(format!("{PREFIX}1")),
            temporary.join(format!("{PREFIX}2")),
            temporary.join(format!("{PREFIX}3")),
        );
        [&stale, &theirs].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
        fs::write(stale.join("copy.db"), "left").unwrap();
        symlink(&theirs, &link).unwrap();
        fs::write(&file, "").unwrap();
        remove_stale_copies(&temporary);
        assert!(!stale.exists());
        assert!([&used.folder, &theirs, &link, &file].into_iter().all(|path| path.exists()));
        fs::remove_dir_all(&temporary).unwrap();
    }
}
