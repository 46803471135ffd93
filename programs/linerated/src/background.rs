//! Going to the background, without fork: the program starts itself again and waits for its word.
//!
//! Until the second process is ready it keeps our standard error, so that whatever stops it is said
//! where the user looks, and we exit as it does. Once ready it says so on a pipe; we exit with 0, and the
//! tunnel answers by then.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use linerate_control::interface::InterfaceName;
use linerate_netio::process::take_inherited;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

use linerate_program::Complaint;

/// Tells the second process which descriptor the pipe is.
const VARIABLE: &str = "LINERATED_READY_FD";

/// Starts this program again for `interface`, as `user` if one is named, and waits until it is ready or has failed.
pub(super) fn start(interface: &InterfaceName, user: Option<&str>) -> Result<ExitCode, Complaint> {
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
    // With ours closed, the pipe ends when the second process does.
    drop(writer);
    let mut word = Vec::new();
    File::from(reader).read_to_end(&mut word).map_err(failed)?;
    if word == READY {
        return Ok(ExitCode::SUCCESS);
    }
    // It has said why.
    second.wait().map_err(failed)?;
    Ok(ExitCode::FAILURE)
}

const READY: &[u8] = b"ready";

/// In the second process: the way to tell the first one.
pub(super) struct Ready {
    pipe: File,
    /// Where standard error goes; none leaves it as it is.
    nowhere: Option<File>,
}

impl Ready {
    /// `None` in a process that was not started by [`start`]. Without `keep_log`, standard error will go nowhere.
    pub(super) fn inherited(keep_log: bool) -> Result<Option<Self>, Complaint> {
        let Some(number) = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()) else {
            return Ok(None);
        };
        let pipe = take_inherited(number).map_err(|error| format!("{VARIABLE}={number}: {error}"))?;
        // Before the right to open files is given up.
        let open = || File::options().write(true).open("/dev/null");
        let nowhere = (!keep_log).then(open).transpose();
        let nowhere = nowhere.map_err(|error| format!("cannot open /dev/null: {error}"))?;
        Ok(Some(Self { pipe: pipe.into(), nowhere }))
    }

    /// Leaves the terminal and says that the tunnel answers.
    ///
    /// # Errors
    /// Nobody is waiting any more: the user has interrupted the start.
    pub(super) fn tell(mut self) -> Result<(), Complaint> {
        // Fails only for the leader of a group, who has left already.
        let _ = rustix::process::setsid();
        if let Some(nowhere) = self.nowhere {
            rustix::stdio::dup2_stderr(&nowhere).map_err(|error| format!("cannot leave the terminal: {error}"))?;
        }
        self.pipe.write_all(READY).map_err(|_| "interrupted".to_owned())
    }
}
