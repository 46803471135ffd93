//! Makes or replaces a file, whole or not at all: the tunnel file, /etc/resolv.conf, the ledger, the lab's records.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use linerate_netio::files::rename_new;

/// Writes `text` to the file `temporary` in the directory of `path` and renames it to `path`. The new file has the
/// permission bits `mode`, or those that the umask leaves, and the `owner` (user, group), or ours. On failure nothing
/// is left behind.
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
    put(path, temporary.as_ref(), text, mode, owner, |new| fs::rename(new, path))
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
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        fs::create_dir(&path).unwrap();
        replace(&path, "file.new", b"one", Some(0o600), None).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
