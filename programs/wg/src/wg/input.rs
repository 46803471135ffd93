//! Reads files with secrets into memory that is wiped.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};

use linerate_control::zeroizing::Buffer;
use rustix::fs::{SeekFrom, seek};
use zeroize::Zeroizing;

/// The content of a file.
pub(super) struct Input {
    /// All of it, up to the limit.
    pub(super) text: Buffer,
    /// Whether the file is seekable; a pipe is not.
    pub(super) seekable: bool,
}

/// Reads at most `limit` bytes of the file at `path`.
pub(super) fn read(path: &OsStr, limit: usize) -> Result<Input, String> {
    let mut file = File::open(path).map_err(|error| format!("fopen: {error}"))?;
    let seekable = seek(&file, SeekFrom::Current(0)).is_ok();
    let mut text = Buffer::new();
    let mut piece = Zeroizing::new(vec![0; 16 << 10]);
    while text.len() < limit {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => text.extend(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("fread: {error}")),
        }
    }
    Ok(Input { text, seekable })
}
