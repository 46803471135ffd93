//! Goes to the background without fork: the program starts itself again and waits until that process is ready.
//!
//! Until then the second process keeps our standard error, so that the user sees why it fails, and we exit with an
//! error, too. When it is ready it writes to a pipe, and we exit with 0: the tunnel then answers. A signal meanwhile ends
//! both, us last: whoever cleans up after us finds nobody at work.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use linerate_control::interface::{InterfaceName, operands};
use linerate_netio::process::{Signals, Terminal, background_environment, detach, outlasts_a_command, take_inherited};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// Tells the second process which descriptor the pipe is.
const VARIABLE: &str = "LINERATED_READY_FD";

/// Starts this program again for `interface`, with `--user` if there is one and the descriptors `handed_over`, and waits
/// until it is ready or has failed.
pub(super) fn start(
    interface: &InterfaceName,
    user: Option<&str>,
    handed_over: Vec<OwnedFd>,
) -> Result<ExitCode, String> {
    let failed =
        |error: io::Error| format!("cannot start in the background: {error}. With -f it stays in the foreground.");
    let (mut reader, writer) = io::pipe().map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let signals = Signals::new().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg0("linerated").args(user.map(|user| format!("--user={user}"))).args(operands(interface.as_str()));
    command.env_clear().envs(background_environment()).env(VARIABLE, writer.as_raw_fd().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // Until it is ready Ctrl-C ends it, too.
    let kept = handed_over.into_iter().chain([writer.into()]).collect();
    detach(&mut command, kept, Terminal::Shared);
    let mut second = command.spawn().map_err(failed)?;
    // Close our end, so that the pipe ends when the second process does.
    drop(command);
    let interrupted = is_interrupted(&reader, &signals).map_err(failed)?;
    if interrupted {
        end(&second);
    }
    let mut message = Vec::new();
    reader.read_to_end(&mut message).map_err(failed)?;
    if message == READY && !interrupted {
        return Ok(ExitCode::SUCCESS);
    }
    // It has printed why, unless we have ended it.
    second.wait().map_err(failed)?;
    Ok(ExitCode::FAILURE)
}

/// Waits until the second process has written to the pipe or ended (`false`), or a signal has come (`true`).
fn is_interrupted(reader: &PipeReader, signals: &Signals) -> io::Result<bool> {
    let mut ready = [reader.as_fd(), signals.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    while let Err(errno) = poll(&mut ready, None) {
        if errno != Errno::INTR {
            return Err(errno.into());
        }
    }
    Ok(ready[0].revents().is_empty())
}

/// Has the second process end in its usual way. A terminal has sent the signal to it, too; other senders have not.
fn end(second: &Child) {
    // Fails only if it has ended.
    let _ = kill_process(Pid::from_child(second), Signal::TERM);
}

const READY: &[u8] = b"ready";

/// In the second process: notifies the first one.
pub(super) struct Ready {
    pipe: File,
    /// /dev/null, if standard error is to be redirected there.
    null: Option<File>,
}

impl Ready {
    /// `None` in a process that was not started by [`start`]. Standard error will go to /dev/null without `keep_log`, and if
    /// somebody waits for its end: a pipe of the command that has started us is to end with that.
    pub(super) fn inherited(keep_log: bool) -> Result<Option<Self>, String> {
        let Some(number) = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()) else {
            return Ok(None);
        };
        let pipe = take_inherited(number).map_err(|error| format!("{VARIABLE}={number}: {error}"))?;
        // Opened now: a confined process cannot open files.
        let open = || File::options().write(true).open("/dev/null");
        let keep_log = keep_log && outlasts_a_command(io::stderr().as_fd());
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
