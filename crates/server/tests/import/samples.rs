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
    Context { public_key: &public_key, input_is_closed: false, forward_is_closed: false, uplinks: &[], networks: &[] }
}

impl Sample {
    pub fn all() -> Vec<Self> {
        let entries = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap());
        let folders = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name());
        let mut names: Vec<String> = folders.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names.iter().map(|name| Self::of(name)).collect()
    }

    /// Reads the sample of a folder, whose name is a kind or begins with one.
    pub fn of(name: &str) -> Self {
        let folder = root().join(name);
        let kinds = Kind::ALL.into_iter().map(Kind::as_str);
        let is_its = |kind: &&str| name.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        let kind = kinds.filter(is_its).max_by_key(|kind| kind.len()).unwrap();
        let mut input = Input::default();
        for (path, bytes) in files(&folder, &folder) {
            let is_expected = path.starts_with("expected.") || path.starts_with("host/") || path == "README.md";
            let is_unneeded = path.starts_with("clients/")
                && ["wg-easy-14", "wg-easy-15", "wireguard-ui", "wgdashboard"].contains(&kind);
            if path.ends_with("/.keep") {
                continue; // git keeps no empty folders
            }
            if let Some(table) = path.strip_prefix("tables/") {
                let name = table.strip_suffix(".json").unwrap().to_owned();
                input.tables.push(InputTable { database: "sample.db".to_owned(), name, rows: buffer(&bytes) });
            } else if !is_expected && !is_unneeded && !bytes.starts_with(SQLITE_MAGIC) && !path.ends_with("-wal") {
                input.files.push(InputFile { path: format!("{name}/{path}"), bytes: buffer(&bytes) });
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
        let is_clients = |path: &str| {
            ["clients/", "configs/", "peer_"].iter().any(|start| path.starts_with(start)) && path.ends_with(".conf")
        };
        files(&self.folder, &self.folder).into_iter().filter(|(path, _)| is_clients(path)).collect()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/import")
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
