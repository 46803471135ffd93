//! Tables of SQLite databases, printed as JSON by the program `sqlite3`: no C code that parses other people's files is
//! in this process. It works on a private copy, without root's rights.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use linerate_control::zeroizing::Buffer;
use linerate_netio::random;
use linerate_server::import::{Input, InputTable, SQLITE_MAGIC, is_wanted_table};
use rustix::process::geteuid;
use serde::Deserialize;
use zeroize::Zeroizing;

/// The user and group of nobody on Linux (the kernel's overflow IDs).
const NOBODY: u32 = 65534;
/// How long a query may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most that it may print.
const OUTPUT_MAX: u64 = 128 << 20;

/// The tables of all databases that are among the files.
pub(super) fn tables(input: &Input) -> Result<Vec<InputTable>, String> {
    let mut tables = Vec::new();
    for file in input.files.iter().filter(|file| file.bytes.starts_with(SQLITE_MAGIC)) {
        let wal = format!("{}-wal", file.path);
        let wal = input.files.iter().find(|other| other.path == wal);
        let copy = PrivateCopy::new(&file.bytes, wal.map(|wal| &*wal.bytes))
            .map_err(|error| format!("cannot copy {} to read it: {error}", file.path))?;
        for name in names(&copy, &file.path)?.iter().filter(|name| is_wanted_table(name)) {
            let query = format!("SELECT * FROM \"{}\"", name.replace('"', "\"\""));
            let rows = run(&copy, &query, &file.path)?;
            tables.push(InputTable { database: file.path.clone(), name: name.clone(), rows });
        }
    }
    Ok(tables)
}

fn names(copy: &PrivateCopy, path: &str) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    struct Row {
        name: String,
    }
    let printed = run(copy, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name", path)?;
    if printed.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Row> = serde_json::from_slice(&printed).map_err(|_| format!("{path}: sqlite3 printed no JSON"))?;
    Ok(rows.into_iter().map(|row| row.name).collect())
}

/// Runs a query and returns what it prints.
fn run(copy: &PrivateCopy, query: &str, path: &str) -> Result<Buffer, String> {
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
    let (printed, said) = output(child).map_err(|what| format!("{path}: sqlite3 {what}"))?;
    if !said.is_empty() {
        return Err(format!("{path} cannot be read: sqlite3 says: {}", said.trim()));
    }
    Ok(printed)
}

/// What it prints and says, within the limits; else what went wrong.
fn output(mut child: Child) -> Result<(Buffer, String), &'static str> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else { return Err("has no output") };
    let (done, both) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut printed = Buffer::new();
        let mut part = Zeroizing::new([0; 1 << 16]);
        let mut stdout = stdout.take(OUTPUT_MAX + 1);
        while let Ok(count @ 1..) = stdout.read(&mut *part) {
            printed.extend(&part[..count]);
        }
        let mut said = String::new();
        let _ = stderr.take(1 << 12).read_to_string(&mut said);
        let _ = done.send((printed, said));
    });
    let read = both.recv_timeout(PATIENCE);
    // It has closed its output, or is not waited for any longer.
    if read.is_err() {
        let _ = child.kill();
    }
    let ended = child.wait();
    let _ = reader.join();
    let (printed, mut said) = read.map_err(|_| "took too long")?;
    if printed.len() as u64 > OUTPUT_MAX {
        return Err("printed too much");
    }
    if said.is_empty() && !ended.is_ok_and(|status| status.success()) {
        said.push_str("nothing, but it failed");
    }
    Ok((printed, said))
}

/// A database and its log of changes (`-wal`) in a folder that nobody else can look into; removed when dropped.
struct PrivateCopy(PathBuf);

impl PrivateCopy {
    fn new(database: &[u8], wal: Option<&[u8]>) -> io::Result<Self> {
        let mut number = [0; 8];
        random::fill(&mut number);
        // Root's own temporary folder may be closed to nobody (libpam-tmpdir).
        let temporary = if geteuid().is_root() { PathBuf::from("/tmp") } else { std::env::temp_dir() };
        let folder = temporary.join(format!("linerate-import-{:016x}", u64::from_ne_bytes(number)));
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let copy = Self(folder);
        copy.add("copy.db", database)?;
        if let Some(wal) = wal {
            copy.add("copy.db-wal", wal)?;
        }
        if geteuid().is_root() {
            chown(&copy.0, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(copy)
    }

    fn add(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.0.join(name);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(content)?;
        if geteuid().is_root() {
            chown(&path, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(())
    }

    fn database(&self) -> PathBuf {
        self.0.join("copy.db")
    }
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_private_copy_is_gone_afterwards_and_closed_before() {
        use std::os::unix::fs::PermissionsExt;
        let copy = PrivateCopy::new(b"database", Some(b"log")).unwrap();
        let folder = copy.0.clone();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read(folder.join("copy.db-wal")).unwrap(), b"log");
        drop(copy);
        assert!(!folder.exists());
    }
}
