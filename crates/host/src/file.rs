//! Replaces a file, whole or not at all. It is here because everything that keeps files about tunnels depends on this
//! crate: the ledger, `save`, and /etc/resolv.conf.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

/// Writes `text` to the file `temporary` in the directory of `path` and renames it to `path`. The new file has the
/// permission bits `mode` and the `owner` (user, group), or ours without one. On failure nothing is left behind.
///
/// # Errors
/// The file cannot be written, or the disk is full: `path` is as it was.
pub fn replace(
    path: &Path,
    temporary: impl AsRef<OsStr>,
    text: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let new = path.with_file_name(temporary);
    let write = || {
        // A leftover may be readable by others, or a link to somewhere else.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        // While the file is ours: to change the mode of another user's takes CAP_FOWNER.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        if let Some((user, group)) = owner {
            fchown(&file, Some(user), Some(group))?;
        }
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))?;
    // The rename is on the disk only when its directory is. Where that cannot be forced, the file is replaced all the same.
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
        replace(&path, "file.new", b"one", 0o640, None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read(&elsewhere).unwrap(), b"theirs");
        assert!(!folder.path().join("file.new").exists());
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        fs::create_dir(&path).unwrap();
        replace(&path, "file.new", b"one", 0o600, None).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
