//! The samples as inputs.

use std::fs;
use std::path::{Path, PathBuf};

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::zeroizing::Buffer;
use linerate_protocol::PrivateKey;
use linerate_server::import::{Context, Input, InputFile, InputTable, Kind, SQLITE_MAGIC};

/// A folder of `tests/data/import`.
pub struct Sample {
    pub kind: Kind,
    pub folder: PathBuf,
    /// Its files; those of clients only where the tool leaves them on the host and they are of use.
    pub input: Input,
}

pub fn buffer(bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::with_capacity(bytes.len());
    buffer.extend(bytes);
    buffer
}

pub fn public_key(secret: &SecretKey) -> PublicKey {
    let mut bytes = *secret.as_bytes();
    bytes[31] |= 64;
    PublicKey(PrivateKey::new(&bytes).unwrap().public_key().0)
}

pub fn context() -> Context<'static> {
    Context { public_key: &public_key, input_is_closed: false }
}

impl Sample {
    pub fn all() -> Vec<Self> {
        Kind::ALL.map(|kind| Self::of(kind.as_str())).into()
    }

    pub fn of(kind: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import").join(kind);
        let mut input = Input::default();
        for (path, bytes) in files(&folder, &folder) {
            let is_expected = path.starts_with("expected.") || path.starts_with("host/") || path == "README.md";
            let is_unneeded = path.starts_with("clients/")
                && ["wg-easy-14", "wg-easy-15", "wireguard-ui", "wgdashboard"].contains(&kind);
            if let Some(name) = path.strip_prefix("tables/") {
                let name = name.strip_suffix(".json").unwrap().to_owned();
                input.tables.push(InputTable { database: "sample.db".to_owned(), name, rows: buffer(&bytes) });
            } else if !is_expected && !is_unneeded && !bytes.starts_with(SQLITE_MAGIC) && !path.ends_with("-wal") {
                input.files.push(InputFile { path: format!("{kind}/{path}"), bytes: buffer(&bytes) });
            }
        }
        Self { kind: kind.parse().unwrap(), folder, input }
    }

    /// The files that remain of the tool on the host.
    pub fn host(&self) -> Vec<(String, Vec<u8>)> {
        let root = self.folder.join("host");
        files(&root, &root).into_iter().map(|(path, bytes)| (format!("/{path}"), bytes)).collect()
    }

    /// The clients' own files.
    pub fn clients(&self) -> Vec<(String, Vec<u8>)> {
        let name = if self.kind == Kind::Pivpn { "configs" } else { "clients" };
        let root = self.folder.join(name);
        files(&root, &root).into_iter().filter(|(path, _)| path.ends_with(".conf")).collect()
    }
}

/// All files below `folder` in the order of their names, with their paths from `root`.
fn files(folder: &Path, root: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        if path.is_dir() {
            all.extend(files(&path, root));
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            all.push((name, fs::read(&path).unwrap()));
        }
    }
    all
}
