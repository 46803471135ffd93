//! A private part of the machine: namespaces for processes, mounts and network that disappear with the
//! process that made them.
//!
//! The program runs itself again under `unshare`. The child is process 1 of its own process namespace, so when it
//! ends, for whatever reason, the kernel ends every daemon in it and takes down its interfaces, namespaces and files:
//! nothing has to be cleaned up by hand and nothing can be left behind. Its standard input is the lifeline, a pipe held
//! by the parent: when that is interrupted, terminated or killed, the pipe closes and the child ends.
//!
//! Nothing outside is touched: the child has no interface of the real network.

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use linerate_control::uapi::socket;
use rustix::mount::{MountFlags, mount};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::Doing;
use crate::{Error, Result};

/// Tells the child that it is one; believed only by a process 1.
const MARK: &str = "LINERATE_LAB_SANDBOX";

/// What an interrupted command exits with, by the shells' convention (128 + SIGINT).
const INTERRUPTED: i32 = 130;

/// Proof that this process runs inside a private part of the machine. Only [`enter`] makes one.
#[derive(Debug)]
pub struct Sandbox(());

/// What the child prints when it is interrupted.
static INTERRUPT_MESSAGE: Mutex<String> = Mutex::new(String::new());

fn interrupt_message() -> MutexGuard<'static, String> {
    // A message that a panic interrupted is still a message.
    INTERRUPT_MESSAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sandbox {
    /// Sets what is printed if this run is interrupted.
    pub fn set_interrupt_message(&self, message: String) {
        *interrupt_message() = message;
    }
}

/// Which of the two processes this is.
#[derive(Debug)]
pub enum Process {
    /// The one inside the sandbox: go on and do the work.
    Child(Sandbox),
    /// The one that started it, after it has ended and everything is gone: exit with this code.
    Parent(u8),
}

/// Runs this same command line again inside private namespaces and waits for it, or, when this already
/// is the child, prepares the place.
///
/// Call it before any thread is started and before anything is printed. As root it needs no more; any
/// other user gets a user namespace in which it is root.
///
/// # Errors
///
/// [`Error::Refused`] when the machine has no `unshare` or forbids namespaces to this user, with what to
/// do about it.
pub fn enter() -> Result<Process> {
    if std::env::var_os(MARK).is_some() && std::process::id() == 1 {
        return prepare().map(Process::Child);
    }
    check_namespaces()?;
    run_again().map(Process::Parent)
}

/// `unshare` with the namespaces that this user needs. `--kill-child` ends the child with it.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
}

fn check_namespaces() -> Result<()> {
    let tried = match unshare().arg("true").stdin(Stdio::null()).output() {
        Ok(tried) => tried,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Refused("`unshare` is not installed; install util-linux".into()));
        }
        Err(error) => return Err(Error::system("starting `unshare`", error)),
    };
    if tried.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
    Err(Error::Refused(if rustix::process::geteuid().is_root() {
        format!("cannot create namespaces, even as root ({said}); start a container with --privileged")
    } else {
        format!(
            "ordinary users cannot create namespaces here ({said}); run this as root, or allow them with \
             `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu) or \
             `sysctl -w kernel.unprivileged_userns_clone=1` (older Debian)"
        )
    }))
}

fn run_again() -> Result<u8> {
    let program = std::env::current_exe().doing(|| "finding this program's own file".into())?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).doing(|| "preparing to be interrupted".into())?;
    let mut child = unshare()
        .arg("--")
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .stdin(Stdio::piped())
        // Its own process group: Ctrl-C reaches the parent only, which then closes the lifeline. Otherwise the
        // daemons inside would die first, each with an error message of its own.
        .process_group(0)
        .spawn()
        .doing(|| "starting `unshare`".into())?;
    let lifeline = child.stdin.take();
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    thread::spawn(move || {
        signals.forever().next();
        flag.store(true, Ordering::SeqCst);
        drop(lifeline);
    });
    let status = child.wait().doing(|| "waiting for the sandboxed run".into())?;
    if interrupted.load(Ordering::SeqCst) {
        print_line("Stopped; no process and no interface is left behind.");
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| code.try_into().ok()).unwrap_or(1))
}

fn prepare() -> Result<Sandbox> {
    thread::Builder::new()
        .name("lifeline".into())
        .spawn(|| {
            let mut rest = [0; 64];
            while matches!(io::stdin().read(&mut rest), Ok(1..)) {}
            let message = interrupt_message();
            if !message.is_empty() {
                print_line(&message);
            }
            std::process::exit(INTERRUPTED);
        })
        .doing(|| "starting a thread".into())?;

    // `ip netns` keeps its names under /run, WireGuard its sockets under /var/run, usually the same
    // place. An ordinary user cannot write to either, and root must not leave anything there.
    let run = Path::new("/run");
    cover(run)?;
    let var_run = Path::new("/var/run");
    if fs::canonicalize(var_run).is_ok_and(|place| place != run) {
        cover(var_run)?;
    }
    fs::create_dir_all(socket::DIRECTORY).doing(|| format!("making {}", socket::DIRECTORY))?;
    Ok(Sandbox(()))
}

/// Writes a line to standard error, over the progress line if there is one.
fn print_line(text: &str) {
    let line = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(io::stderr(), "{line}{text}");
}

/// Puts an empty file system over `place`, visible to the sandbox only.
fn cover(place: &Path) -> Result<()> {
    mount("tmpfs", place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755")
        .doing(|| format!("mounting an empty {}", place.display()))
}
