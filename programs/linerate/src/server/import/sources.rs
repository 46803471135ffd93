//! Reads the files to be imported, within limits, and never through a link that leads out of the folder that was named:
//! a folder may belong to somebody else than root.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use linerate_control::characters::decoded;
use linerate_control::zeroizing::Buffer;
use linerate_server::import::{Input, InputFile, SQLITE_MAGIC, is_wanted_file};
use linerate_tunnel::Interruption;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat, openat2};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::sqlite;

/// The most files of one import: ten thousand clients of PiVPN have four each.
const FILES_MAX: usize = 50_000;
/// The largest file, and the most bytes of all together.
const FILE_BYTES_MAX: u64 = 32 << 20;
const BYTES_MAX: u64 = 128 << 20;
/// Maximum size of a file with a key.
const KEY_BYTES_MAX: u64 = 4096;
/// How deep a folder is searched.
const DEPTH_MAX: usize = 4;

/// Reads what is named, and the tables of the databases among it.
pub(super) fn read(paths: &[PathBuf], interruption: &Interruption) -> Result<Input, String> {
    let mut input = Input::default();
    let mut bytes = 0;
    for path in paths {
        let metadata = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
        if metadata.is_dir() {
            let root = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|error| format!("{}: {error}", path.display()))?;
            folder(&root, path, Path::new(""), 1, &mut input, &mut bytes)?;
        } else {
            let file = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
            let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
            add(path, file, &mut input, &mut bytes)?;
            let wal = PathBuf::from(format!("{}-wal", path.display()));
            if is_database(&input) && wal.exists() {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = open(&wal, flags, Mode::empty());
                add(&wal, file.map_err(|error| format!("{}: {error}", wal.display()))?, &mut input, &mut bytes)?;
            }
        }
    }
    input.tables = sqlite::tables(&input, interruption)?;
    // They are of no use beside their tables.
    input.files.retain(|file| !file.bytes.starts_with(SQLITE_MAGIC) && !file.path.ends_with("-wal"));
    Ok(input)
}

/// Adds the key files that the tunnels' commands name, if they can be read. Root runs those commands, so it trusts the
/// paths.
pub(super) fn add_key_files(input: &mut Input) {
    for path in input.missing_key_files() {
        let path = PathBuf::from(path);
        let file = open(&path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
        if let Ok(file) = file.map(File::from)
            && path.is_absolute()
            && file.metadata().is_ok_and(|file| file.is_file() && file.len() <= KEY_BYTES_MAX)
        {
            // A file that cannot be read matters only if its key is needed, and is reported there.
            let _ = add(&path, OwnedFd::from(file), input, &mut 0);
        }
    }
}

/// A file's whole content.
pub(super) fn contents(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    whole(file, path)
}

fn is_database(input: &Input) -> bool {
    input.files.last().is_some_and(|file| file.bytes.starts_with(SQLITE_MAGIC))
}

fn folder(
    root: &OwnedFd,
    path: &Path,
    below: &Path,
    depth: usize,
    input: &mut Input,
    bytes: &mut u64,
) -> Result<(), String> {
    let here = path.join(below);
    let failed = |error: std::io::Error| format!("{}: {error}", here.display());
    let mut entries = fs::read_dir(&here).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if entries.len() > 4 * FILES_MAX {
        return Err(format!("{} has too many files: name only what belongs to the tunnel", here.display()));
    }
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let relative = below.join(&name);
        // Of links only those to files are of interest, and the kernel decides where they may lead.
        let is_folder = entry.file_type().map_err(failed)?.is_dir();
        let Some(name) = name.to_str().filter(|name| *name == ".env" || !name.starts_with('.')) else { continue };
        // wireguard-ui 0.5 makes a folder of this name, older versions a file with passwords; the import needs neither.
        if name == "users.json" {
            continue;
        }
        let is_files_name = [".json", ".db", ".conf", ".env", ".ini"].iter().any(|end| name.ends_with(end));
        if is_folder && is_files_name {
            let folder = path.join(&relative);
            return Err(format!(
                "{} is a folder, and a file is expected there (Docker makes a folder where a file to mount is missing)",
                folder.display()
            ));
        }
        if is_folder && depth < DEPTH_MAX {
            folder(root, path, &relative, depth + 1, input, bytes)?;
        } else if !is_folder && is_wanted_file(name) {
            let whole = path.join(&relative);
            let file = beneath(root, &relative).map_err(|errno| match errno {
                Errno::XDEV => format!("{} is a link out of {}: name the file itself", whole.display(), path.display()),
                _ => format!("{}: {errno}", whole.display()),
            })?;
            add(&whole, file, input, bytes)?;
        }
    }
    Ok(())
}

/// Opens a file that is really inside the folder.
fn beneath(root: &OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(root, relative, flags, Mode::empty(), resolve) {
        // Before Linux 5.6: no links at all.
        Err(Errno::NOSYS) => openat(root, relative, flags | OFlags::NOFOLLOW, Mode::empty()),
        opened => opened,
    }
}

fn add(path: &Path, file: OwnedFd, input: &mut Input, bytes: &mut u64) -> Result<(), String> {
    let content = whole(File::from(file), path)?;
    *bytes += content.len() as u64;
    if input.files.len() >= FILES_MAX || *bytes > BYTES_MAX {
        return Err(format!("there are too many files at {}: name only what belongs to the tunnel", path.display()));
    }
    let mut buffer = Buffer::with_capacity(content.len());
    buffer.extend(&content);
    let path = path.to_str().ok_or_else(|| format!("{}: this path is not UTF-8", path.display()))?;
    input.files.push(InputFile { path: path.to_owned(), bytes: decoded(buffer) });
    Ok(())
}

fn whole(file: File, path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(format!("{} is not a file of at most {} MiB", path.display(), FILE_BYTES_MAX >> 20));
    }
    // With room for all of it, so that it does not grow and leave a copy behind.
    let mut content = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 1));
    file.take(metadata.len()).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}
