//! Secrets in files of their own: `PrivateKeyFile` and `PresharedKeyFile`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::keys::SecretKey;
use crate::wg_config::values;

/// The file that contains a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFile {
    /// This file; a relative path starts at the directory of the tunnel file.
    Path(PathBuf),
    /// The systemd credential with this name (systemd.exec(5), `LoadCredential=`).
    Credential(String),
}

/// Where key files are.
#[derive(Clone, Copy, Debug)]
pub struct KeyDirectories<'a> {
    /// The directory of the tunnel file.
    pub configuration: &'a Path,
    /// `$CREDENTIALS_DIRECTORY`, if it is set.
    pub credentials: Option<&'a Path>,
}

/// The prefix of a credential name.
const CREDENTIAL: &str = "credential:";

/// Bytes to read at most: a key and white space, but not an endless device.
const LONGEST: u64 = 4096;

impl KeyFile {
    /// Reads `value`; none if it is a credential whose name is not a file name.
    pub(super) fn parse(value: &str) -> Option<Self> {
        let Some(name) = value.strip_prefix(CREDENTIAL) else { return Some(Self::Path(value.into())) };
        let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        plain.then(|| Self::Credential(name.to_owned()))
    }

    /// The path of the file.
    ///
    /// # Errors
    /// A sentence, if it is a credential and this process has none.
    pub fn path(&self, directories: KeyDirectories<'_>) -> Result<PathBuf, String> {
        match (self, directories.credentials) {
            (Self::Path(path), _) => Ok(directories.configuration.join(path)),
            (Self::Credential(name), Some(directory)) => Ok(directory.join(name)),
            (Self::Credential(name), None) => Err(format!(
                "credential `{name}` is not available because CREDENTIALS_DIRECTORY is not set: add \
                 LoadCredential={name}:PATH to the systemd service"
            )),
        }
    }

    /// The key in the file.
    ///
    /// # Errors
    /// A sentence: the file cannot be read, or does not contain exactly one key.
    pub fn read(&self, directories: KeyDirectories<'_>) -> Result<SecretKey, String> {
        let path = self.path(directories)?;
        let content = content(&path).map_err(|error| format!("cannot read key file {}: {error}", path.display()))?;
        let key = values::key_file(&content).ok().filter(|_| !content.is_empty());
        key.ok_or_else(|| format!("{} does not contain a key: a key is 44 base64 characters", path.display()))
    }
}

fn content(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // Allocated once: a vector that grows leaves copies behind.
    let mut content = Zeroizing::new(vec![0; LONGEST as usize]);
    let mut file = File::open(path)?.take(LONGEST);
    let mut filled = 0;
    while filled < content.len() {
        match file.read(&mut content[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    content.truncate(filled);
    Ok(content)
}
