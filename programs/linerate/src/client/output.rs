//! Where the files of clients go.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use linerate_server::Client;
use linerate_tunnel::Error;

/// Where files shall go.
pub(super) enum Files<'a> {
    /// To standard output.
    None,
    /// To this file.
    One(&'a Path),
    /// To this folder, each file under a name made from its client's.
    Folder(&'a Path),
}

/// Files that were written, which are removed again unless they are [kept](Outcome::keep).
pub(super) struct Outcome {
    paths: Vec<(String, PathBuf)>,
    is_kept: std::cell::Cell<bool>,
}

impl<'a> Files<'a> {
    /// Those of so many clients in `path`.
    pub(super) fn check(path: Option<&'a Path>, count: usize, json: bool) -> Result<Self, String> {
        match path {
            Some(path) if path.is_dir() => Ok(Self::Folder(path)),
            Some(path) if count == 1 => Ok(Self::One(path)),
            Some(path) => Err(format!("{} is no folder, and several clients have several files", path.display())),
            None if count == 1 || json => Ok(Self::None),
            None => Err("several clients have several files: give --output FOLDER, or --json".to_owned()),
        }
    }

    /// Writes the files, which are not there yet, for their owner only.
    pub(super) fn write<'b>(&self, texts: impl Iterator<Item = (&'b Client, &'b [u8])>) -> Result<Outcome, Error> {
        let mut outcome = Outcome { paths: Vec::new(), is_kept: false.into() };
        for (client, text) in texts {
            let path = match self {
                Self::None => continue,
                Self::One(path) => path.to_path_buf(),
                Self::Folder(folder) => folder.join(format!("{}.conf", client.file_name)),
            };
            create(&path, text).map_err(Error::State)?;
            outcome.paths.push((client.file_name.clone(), path));
        }
        Ok(outcome)
    }
}

impl Outcome {
    /// Keeps the files.
    pub(super) fn keep(&self) {
        self.is_kept.set(true);
    }

    /// The file of a client, if one was written.
    pub(super) fn path(&self, client: &Client) -> Option<&Path> {
        self.paths.iter().find(|(of, _)| *of == client.file_name).map(|(_, path)| &**path)
    }

    /// Whether no file was written.
    pub(super) fn are_none(&self) -> bool {
        self.paths.is_empty()
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            self.paths.iter().for_each(|(_, path)| drop(fs::remove_file(path)));
        }
    }
}

/// Writes a file that must not be there yet, for its owner only. On failure nothing is left behind.
pub(super) fn create(path: &Path, text: &[u8]) -> Result<(), String> {
    let failed = |error| format!("cannot write {}: {error}", path.display());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    let written = file.write_all(text).and_then(|()| file.sync_all());
    written.map_err(|error| {
        let _ = fs::remove_file(path);
        failed(error)
    })
}
