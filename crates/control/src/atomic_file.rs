//! Makes or replaces a file, whole or not at all: the tunnel file, /etc/resolv.conf, the ledger, the lab's records.
//!
//! A file that is a mount of its own, as in a container, cannot be replaced by another, and one in a folder that is not to
//! be written to has no room beside it. Those are written in place. Where there is room, a copy of the new text is beside
//! the file until that is whole: [`read`] takes it for the file if the writer was killed.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use linerate_netio::files::rename_new;
use zeroize::Zeroizing;

use crate::zeroizing::Buffer;

/// Writes `text` to the file `temporary` in the directory of `path` and renames it to `path`. The new file has the
/// permission bits `mode`, or those that the umask leaves, and the `owner` (user, group), or ours. A file that cannot be
/// replaced so is written in place, and keeps its owner. On failure nothing is left behind.
///
/// # Errors
/// The file cannot be written, or the disk is full: `path` is as it was.
pub fn replace(
    path: &Path,
    temporary: impl AsRef<OsStr>,
    text: &[u8],
    mode: Option<u32>,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let temporary = temporary.as_ref();
    match put(path, temporary, text, mode, owner, |new| fs::rename(new, path)) {
        Err(error) if must_stay(&error) => match open_in_place(path) {
            Ok(file) => write_in_place(path, file, temporary, text, mode),
            Err(_) => Err(error),
        },
        result => result,
    }
}

/// Whether the file may be a mount, or in a folder that cannot be written to. A full disk is not among these: it may not
/// have room for the new text.
fn must_stay(error: &io::Error) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), CrossesDevices | PermissionDenied | ReadOnlyFilesystem | ResourceBusy)
}

fn open_in_place(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(NO_LINK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(ErrorKind::InvalidInput.into()) }
}

const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

fn write_in_place(path: &Path, mut file: File, temporary: &OsStr, text: &[u8], mode: Option<u32>) -> io::Result<()> {
    let mut before = Zeroizing::new(Vec::with_capacity(usize::try_from(file.metadata()?.len()).unwrap_or(0) + 1));
    file.read_to_end(&mut before)?;
    let copy = copy_of(path);
    // Where there is no room for it, the file is written without.
    let _ = put(&copy, temporary, text, Some(0o600), None, |new| fs::rename(new, &copy));
    let written = overwrite(&mut file, text);
    if written.is_err() && overwrite(&mut file, &before).is_err() {
        // An empty file is the copy.
        file.set_len(0)?;
        return written;
    }
    if let Some(mode) = mode {
        // Another's file keeps its mode.
        let _ = file.set_permissions(fs::Permissions::from_mode(mode));
    }
    let _ = fs::remove_file(copy);
    written
}

/// Until it is whole the file has the beginning of `text`.
fn overwrite(file: &mut File, text: &[u8]) -> io::Result<()> {
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(text)?;
    file.sync_all()
}

fn copy_of(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}.whole", path.file_name().unwrap_or_default().display()))
}

/// Reads a file that [`replace`] writes: the copy beside it, if the file has the beginning of that alone.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path) -> io::Result<Buffer> {
    let mut file = File::open(path)?;
    let text = read_whole(&mut file)?;
    let there = file.metadata()?;
    let copy = || {
        let mut copy = OpenOptions::new().read(true).custom_flags(NO_LINK).open(copy_of(path)).ok()?;
        // In a folder of all, anybody could put one there.
        let owner = copy.metadata().ok()?.uid();
        let is_trusted = owner == there.uid() || owner == rustix::process::geteuid().as_raw();
        let copy = is_trusted.then(|| read_whole(&mut copy).ok()).flatten()?;
        (copy.len() > text.len() && copy.starts_with(&text)).then_some(copy)
    };
    Ok(copy().unwrap_or(text))
}

fn read_whole(file: &mut File) -> io::Result<Buffer> {
    let mut text = Vec::with_capacity(usize::try_from(file.metadata()?.len()).unwrap_or(0) + 1);
    file.read_to_end(&mut text)?;
    Ok(Buffer::from(text))
}

/// As [`replace`], but only if there is no `path` yet. The owner is ours.
///
/// # Errors
/// There is such a file (`AlreadyExists`), or as [`replace`].
pub fn create(path: &Path, temporary: impl AsRef<OsStr>, text: &[u8], mode: u32) -> io::Result<()> {
    put(path, temporary.as_ref(), text, Some(mode), None, |new| rename_new(new, path))
}

fn put(
    path: &Path,
    temporary: &OsStr,
    text: &[u8],
    mode: Option<u32>,
    owner: Option<(u32, u32)>,
    rename: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let new = path.with_file_name(temporary);
    let write = || {
        // A leftover may be readable by others, or a link to somewhere else.
        let _ = fs::remove_file(&new);
        let initial = if mode.is_some() { 0o600 } else { 0o666 };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(initial).open(&new)?;
        // Before the owner: changing the mode of another user's file requires CAP_FOWNER.
        if let Some(mode) = mode {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        if let Some((user, group)) = owner {
            fchown(&file, Some(user), Some(group))?;
        }
        file.write_all(text)?;
        file.sync_all()?;
        rename(&new)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))?;
    // fsync the directory so that the rename is durable; ignore a failure, the file is replaced anyway.
    if let Ok(directory) = File::open(path.parent().unwrap_or(Path::new("/"))) {
        let _ = directory.sync_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_with_its_mode_whatever_was_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("file"), folder.path().join("elsewhere"));
        fs::write(&elsewhere, "theirs").unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.path().join("file.new")).unwrap();
        replace(&path, "file.new", b"one", Some(0o640), None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read(&elsewhere).unwrap(), b"theirs");
        assert!(!folder.path().join("file.new").exists());
    }

    #[test]
    fn a_file_is_made_only_where_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        create(&path, "file.new", b"one", 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let error = create(&path, "file.new", b"two", 0o600).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_copy_is_the_file_while_that_has_its_beginning_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wg0.conf");
        fs::write(copy_of(&path), "[Interface]\n").unwrap();
        for (there, read_as) in [
            ("", "[Interface]\n"),
            ("[Inter", "[Interface]\n"),
            ("[Interface]\n", "[Interface]\n"),
            ("[Interface]\nMTU = 1\n", "[Interface]\nMTU = 1\n"),
            ("[Peer]\n", "[Peer]\n"),
        ] {
            fs::write(&path, there).unwrap();
            assert_eq!(&*read(&path).unwrap(), read_as.as_bytes());
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(read(&path).err().unwrap().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_link_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("wg0.conf"), folder.path().join("elsewhere"));
        fs::write(&elsewhere, "theirs").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(open_in_place(&path).is_err() && open_in_place(&elsewhere).is_ok());
    }

    #[test]
    fn what_is_written_in_place_is_whole_and_has_no_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wg0.conf");
        fs::write(&path, "a longer text than the next").unwrap();
        let file = open_in_place(&path).unwrap();
        write_in_place(&path, file, "wg0.conf.tmp".as_ref(), b"short", Some(0o600)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        fs::create_dir(&path).unwrap();
        replace(&path, "file.new", b"one", Some(0o600), None).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
