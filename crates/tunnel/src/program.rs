//! Programs that we start: where they are, and how they ended.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use rustix::fs::{Access, access};

/// The program of that name, where a shell would find it.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&path).map(|folder| folder.join(name));
    candidates.into_iter().find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
}

/// How a program ended, as the end of a sentence.
pub(crate) fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The exit code that a shell would report for a program.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
