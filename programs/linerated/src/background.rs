//! Goes to the background without fork: the program starts itself again and waits until that process is ready.
//!
//! Until then the second process keeps our standard error, so that the user sees why it fails, and we exit with an
//! error, too. When it is ready it writes to a pipe, and we exit with 0: the tunnel then answers.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use linerate_control::interface::InterfaceName;
use linerate_netio::process::take_inherited;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

/// Tells the second process which descriptor the pipe is.
const VARIABLE: &str = "LINERATED_READY_FD";

/// Starts this program again for `interface`, with `--user` if there is one, and waits until it is ready or has failed.
pub(super) fn start(interface: &InterfaceName, user: Option<&str>) -> Result<ExitCode, String> {
    let failed =
        |error: io::Error| format!("cannot start in the background: {error}. With -f it stays in the foreground.");
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    fcntl_setfd(&writer, FdFlags::empty()).map_err(|error| failed(error.into()))?;
    let program = std::env::current_exe().map_err(failed)?;
    let mut second = Command::new(program)
        .arg0("linerated")
        .args(user.map(|user| format!("--user={user}")))
        .arg(interface.as_str())
        .env(VARIABLE, writer.as_raw_fd().to_string())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    // Close our end, so that the pipe ends when the second process does.
    drop(writer);
    let mut message = Vec::new();
    File::from(reader).read_to_end(&mut message).map_err(failed)?;
    if message == READY {
        return Ok(ExitCode::SUCCESS);
    }
    // It has printed why.
    second.wait().map_err(failed)?;
    Ok(ExitCode::FAILURE)
}

const READY: &[u8] = b"ready";

/// In the second process: notifies the first one.
pub(super) struct Ready {
    pipe: File,
    /// /dev/null, if standard error is to be redirected there.
    null: Option<File>,
}

impl Ready {
    /// `None` in a process that was not started by [`start`]. Without `keep_log`, standard error will go to /dev/null.
    pub(super) fn inherited(keep_log: bool) -> Result<Option<Self>, String> {
        let Some(number) = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()) else {
            return Ok(None);
        };
        let pipe = take_inherited(number).map_err(|error| format!("{VARIABLE}={number}: {error}"))?;
        // Opened now: a confined process cannot open files.
        let open = || File::options().write(true).open("/dev/null");
        let null = (!keep_log).then(open).transpose();
        let null = null.map_err(|error| format!("cannot open /dev/null: {error}"))?;
        Ok(Some(Self { pipe: pipe.into(), null }))
    }

    /// Leaves the terminal and notifies the first process that the tunnel answers.
    ///
    /// # Errors
    /// The first process has ended: the user interrupted the start.
    pub(super) fn notify(mut self) -> Result<(), String> {
        // Fails only for a process group leader, which has left the terminal already.
        let _ = rustix::process::setsid();
        if let Some(null) = self.null {
            rustix::stdio::dup2_stderr(&null).map_err(|error| format!("cannot leave the terminal: {error}"))?;
        }
        self.pipe.write_all(READY).map_err(|_| "interrupted".to_owned())
    }
}
