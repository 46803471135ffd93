//! Mounts that only this thread sees, and what it starts.

use std::ffi::CStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::name_servers::{nsswitch_conf, resolv_conf};
use crate::refusal::{Attempt, Refusal};

/// The mounts of this thread ([`UserNamespace::new_mounts`](crate::UserNamespace::new_mounts)).
#[derive(Debug)]
pub struct Mounts(pub(crate) ());

/// Where files are written before they are mounted elsewhere: a folder that is there wherever there is a TUN driver, and
/// that nobody needs meanwhile.
const STAGING: &str = "/dev/net";

/// Where services that look names up in the host's network have their sockets: a cache that the C library asks before all
/// else, systemd-resolved, Avahi.
const RESOLVERS: [&str; 3] = ["/var/run/nscd", "/run/systemd/resolve", "/run/avahi-daemon"];

/// Folders whose services replace the resolv.conf in there at any time; /etc/resolv.conf leads there.
const REPLACED: [&str; 5] =
    ["/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf", "/run/connman", "/run/netconfig"];

/// Folders of files that ssh(1) includes in its settings; those of Fedora lead on to the second.
const SSH_SETTINGS: [&str; 2] = ["/etc/ssh/ssh_config.d", "/etc/crypto-policies/back-ends"];

impl Mounts {
    /// Puts an empty folder over `folder`, for this user to write to. Of what is below it, the file `kept` alone stays where
    /// it is.
    ///
    /// # Errors
    /// `folder` does not exist, or the system does not allow it.
    pub fn cover_but(&self, folder: &Path, kept: &Path) -> Result<(), Refusal> {
        let covered = || -> io::Result<()> {
            let is_there = kept.starts_with(folder) && kept.is_file();
            let file = is_there.then(|| open(kept, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())).transpose()?;
            cover(folder)?;
            if let (Some(file), Some(parent)) = (file, kept.parent()) {
                fs::create_dir_all(parent)?;
                fs::write(kept, "")?;
                mount_bind(format!("/proc/self/fd/{}", file.as_raw_fd()), kept)?;
            }
            Ok(())
        };
        covered().map_err(Refusal::of(Attempt::Mount(folder.to_owned())))
    }

    /// Has programs ask these name servers for names of hosts, with these search domains, and nobody else: without
    /// servers there are no names. What is in /etc/hosts stays.
    ///
    /// Not only /etc/resolv.conf leads to name servers: the C library would also ask services of the host, over sockets
    /// that are files. So it is told to ask none (nsswitch.conf(5)), and their sockets are hidden.
    ///
    /// # Errors
    /// There is no /etc/resolv.conf, or the system does not allow it.
    pub fn set_name_servers(&self, servers: &[String], search: &[String]) -> Result<(), Refusal> {
        let staging = Path::new(STAGING);
        self.cover(staging)?;
        let resolv_conf = self.replace("/etc/resolv.conf", &resolv_conf(servers, search))?;
        if let Ok(text) = fs::read_to_string("/etc/nsswitch.conf") {
            self.replace("/etc/nsswitch.conf", &nsswitch_conf(&text))?;
        }
        for folder in RESOLVERS.iter().flat_map(fs::canonicalize) {
            // Else it was covered to put that file there.
            if folder.is_dir() && !resolv_conf.starts_with(&folder) {
                self.cover(&folder)?;
            }
        }
        // What was mounted from there stays.
        unmount(staging, UnmountFlags::DETACH).map_err(Refusal::of(Attempt::Mount(staging.to_owned())))
    }

    /// Gives this user copies of the files that ssh(1) reads for all users, as far as it insists that they are root's or this
    /// user's: root's belong to nobody in here.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn own_ssh_settings(&self) -> Result<(), Refusal> {
        for folder in SSH_SETTINGS.iter().flat_map(fs::canonicalize) {
            let files = fs::read_dir(&folder).into_iter().flatten().flatten();
            let copies: Vec<_> = files.filter_map(|file| Some((file.file_name(), read_small(&file.path())?))).collect();
            if !copies.is_empty() {
                self.cover(&folder)?;
            }
            for (name, text) in copies {
                write(&folder.join(name), &text).map_err(Refusal::of(Attempt::Mount(folder.clone())))?;
            }
        }
        Ok(())
    }

    fn cover(&self, folder: &Path) -> Result<(), Refusal> {
        cover(folder).map_err(Refusal::of(Attempt::Mount(folder.to_owned())))
    }

    /// Puts a file with `text` in the place of `path`, and returns where that is, links followed.
    fn replace(&self, path: &str, text: &str) -> Result<PathBuf, Refusal> {
        let place = fs::canonicalize(path).map_err(Refusal::of(Attempt::File(path.into())))?;
        let replaced = match folder_to_cover(&place) {
            Some(folder) => cover(folder).and_then(|()| write(&place, text)),
            None => {
                let staged = Path::new(STAGING).join(place.file_name().unwrap_or_default());
                write(&staged, text).and_then(|()| Ok(mount_bind(&staged, &place)?))
            }
        };
        replaced.map_err(Refusal::of(Attempt::Mount(place.clone())))?;
        Ok(place)
    }
}

/// The folder to cover so that `place` stays what is put there, although its service replaces it: a mount on a file goes
/// when the file is replaced, wherever that happens. Other folders may have what programs need: Toolbx's /run/host/etc.
fn folder_to_cover(place: &Path) -> Option<&Path> {
    place.parent().filter(|folder| REPLACED.iter().any(|replaced| *folder == Path::new(replaced)))
}

/// What is in a file that may be read, of a size that settings have.
fn read_small(path: &Path) -> Option<Vec<u8>> {
    const MOST: u64 = 1 << 20;
    let file = fs::File::open(path).ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()))?;
    let mut content = Vec::new();
    file.take(MOST).read_to_end(&mut content).ok()?;
    Some(content)
}

fn cover(folder: &Path) -> io::Result<()> {
    const MODE: &CStr = c"mode=0755";
    Ok(mount("tmpfs", folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, MODE)?)
}

/// Whatever the umask, as others read it.
fn write(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_known_service_is_covered_and_no_other() {
        for folder in REPLACED.map(Path::new) {
            assert_eq!(folder_to_cover(&folder.join("resolv.conf")), Some(folder));
        }
        for place in ["/run/resolv.conf", "/run/host/etc/resolv.conf", "/etc/resolv.conf", "/mnt/wsl/resolv.conf"] {
            assert_eq!(folder_to_cover(Path::new(place)), None);
        }
    }
}
