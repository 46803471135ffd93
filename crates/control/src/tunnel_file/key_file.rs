//! Keys that stand in files of their own: `PrivateKeyFile` and `PresharedKeyFile`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::keys::SecretKey;
use crate::wg_config::values;

/// Where a key stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFile {
    /// In this file; a relative path counts from the folder of the tunnel's file.
    Path(PathBuf),
    /// In the credential of that name, which systemd gives to a service (systemd.exec(5), `LoadCredential=`).
    Credential(String),
}

/// Where key files are looked for.
#[derive(Clone, Copy, Debug)]
pub struct KeyDirectories<'a> {
    /// The folder of the tunnel's file.
    pub configuration: &'a Path,
    /// `$CREDENTIALS_DIRECTORY`, if it is set.
    pub credentials: Option<&'a Path>,
}

/// What begins the value that names a credential.
const CREDENTIAL: &str = "credential:";

/// The most that is read of a file: a key and white space, never all of a device without an end.
const LONGEST: u64 = 4096;

impl KeyFile {
    /// What `value` names; none if it is a credential whose name is not one of a file.
    pub(super) fn parse(value: &str) -> Option<Self> {
        let Some(name) = value.strip_prefix(CREDENTIAL) else { return Some(Self::Path(value.into())) };
        let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        plain.then(|| Self::Credential(name.to_owned()))
    }

    /// Where the file is.
    ///
    /// # Errors
    /// A sentence: it is a credential, and this process was given none.
    pub fn path(&self, folders: KeyDirectories<'_>) -> Result<PathBuf, String> {
        match (self, folders.credentials) {
            (Self::Path(path), _) => Ok(folders.configuration.join(path)),
            (Self::Credential(name), Some(folder)) => Ok(folder.join(name)),
            (Self::Credential(name), None) => Err(format!(
                "there is no credential `{name}`, because CREDENTIALS_DIRECTORY is not set: systemd sets it for a \
                 service with LoadCredential={name}:PATH"
            )),
        }
    }

    /// The key in the file.
    ///
    /// # Errors
    /// A sentence: the file cannot be read, or does not hold exactly one key.
    pub fn read(&self, folders: KeyDirectories<'_>) -> Result<SecretKey, String> {
        let path = self.path(folders)?;
        let content =
            content(&path).map_err(|error| format!("the key file {} cannot be read: {error}", path.display()))?;
        let key = values::key_file(&content).ok().filter(|_| !content.is_empty());
        key.ok_or_else(|| format!("the file {} does not hold a key: 44 characters of base64 are one", path.display()))
    }
}

fn content(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // Of its full size from the start: a vector that grows leaves copies behind.
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
