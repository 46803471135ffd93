//! A running daemon: one end of a tunnel in user space. Dropping it kills it.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_control::interface::InterfaceName;
use linerate_control::uapi::client::{ClientError, DaemonClient};
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;
use linerate_probe::sockets;
use linerate_probe::usage::Usage;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};

use crate::error::Doing;
use crate::hosts::Host;
use crate::{Error, Result, kernel};

/// How long a daemon may take to start, to open its port, to end.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Between two polls of something that should happen soon.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// A running daemon and the host it runs on.
#[derive(Debug)]
pub(crate) struct Daemon<'a> {
    /// The subject's name.
    name: String,
    host: &'a Host,
    process: Process,
    log: PathBuf,
    started: Instant,
}

/// How it was started, and what ends it.
#[derive(Debug)]
enum Process {
    /// The lab started it, and ends it by SIGTERM.
    Child(Child),
    /// `linerate up` started it with its tunnel, and `linerate down` ends both.
    Tunnel {
        pid: Pid,
        tool: PathBuf,
        /// The tunnel's file. It is there as long as the tunnel is.
        file: PathBuf,
    },
}

impl<'a> Daemon<'a> {
    /// Starts `command` on `host`. Its output is kept for error messages.
    pub(crate) fn start(name: &str, host: &'a Host, command: &mut Command) -> Result<Self> {
        let log = PathBuf::from(format!("/run/{}.log", host.interface()));
        let output = || File::options().create(true).append(true).open(&log).map(Stdio::from);
        let opening = || format!("opening {}", log.display());
        command.stdout(output().doing(opening)?).stderr(output().doing(opening)?);
        // Its own group: what it starts ends with it.
        command.process_group(0);
        let started = Instant::now();
        let process = Process::Child(host.spawn(command)?);
        Ok(Self { name: name.into(), host, process, log, started })
    }

    /// Has `tool` bring up the tunnel of a file on `host`, as a user of linerate does. `up` is the command for that but
    /// for its arguments.
    pub(crate) fn bring_up(
        name: &str,
        host: &'a Host,
        tool: PathBuf,
        up: &mut Command,
        configuration: &str,
    ) -> Result<Self> {
        let file = PathBuf::from(format!("/run/{}.conf", host.interface()));
        kernel::write_private(&file.to_string_lossy(), configuration)?;
        let log = file.with_extension("log");
        let started = Instant::now();
        let is_up = host.run(up.arg("up").arg(&file)).and_then(|_| process_of(host.interface()));
        let pid = is_up.inspect_err(|_| {
            take_down(host, &tool, &file);
        })?;
        Ok(Self { name: name.into(), host, process: Process::Tunnel { pid, tool, file }, log, started })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        match &self.process {
            Process::Child(child) => child.id(),
            Process::Tunnel { pid, .. } => pid.as_raw_pid().cast_unsigned(),
        }
    }

    /// Its interface, which has the name that its host gives.
    pub(crate) fn interface(&self) -> &'a InterfaceName {
        self.host.interface()
    }

    /// What it has used so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid()).map_err(|_| {
            let (name, interface, words) = (&self.name, self.interface(), self.last_stderr_line());
            Error::Subject(format!("{name} died on {interface}{words}"))
        })
    }

    /// Waits until it answers on its configuration socket. Returns the time since its start.
    pub(crate) fn await_socket(&mut self) -> Result<Duration> {
        self.until("opened no socket", |daemon| Ok(daemon.connect().is_ok()))
    }

    /// Waits until its interface is there. Returns the time since its start.
    pub(crate) fn await_interface(&mut self) -> Result<Duration> {
        self.until("made no interface", |daemon| Ok(daemon.has_interface()))
    }

    /// Waits until a socket on its host is bound to the UDP `port`.
    pub(crate) fn await_port(&mut self, port: u16) -> Result<Duration> {
        self.until(&format!("does not listen on UDP port {port}"), |daemon| {
            daemon.host.inside(|| Ok(has_udp_port(port)))
        })
    }

    /// What it reports about its interface.
    pub(crate) fn device(&self) -> Result<DeviceState> {
        let state = self.connect().map_err(ClientError::from).and_then(|mut client| client.get());
        state.map_err(|error| self.said_wrong("tells nothing", &error))
    }

    /// Its own counters; nothing from daemons other than linerated.
    pub(crate) fn counters(&self) -> Option<Vec<(String, u64)>> {
        self.connect().ok()?.stats().ok()
    }

    /// Gives it settings.
    pub(crate) fn set(&self, update: &DeviceUpdate) -> Result<()> {
        let done = self.connect().map_err(ClientError::from).and_then(|mut client| client.set(update));
        done.map_err(|error| self.said_wrong("takes no settings", &error))
    }

    /// Fails when it has ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        let Some(status) = self.ended()? else { return Ok(()) };
        let (name, interface, words) = (&self.name, self.interface(), self.last_stderr_line());
        Err(Error::Subject(format!("{name} ended by itself on {interface} ({status}){words}")))
    }

    /// Ends it and checks that it and its interface are gone.
    pub(crate) fn stop(mut self) -> Result<()> {
        let interface = self.interface();
        match &self.process {
            Process::Child(child) => {
                if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
                    kill_process_group(group, Signal::TERM).doing(|| format!("ending {} on {interface}", self.name))?;
                }
            }
            Process::Tunnel { tool, file, .. } => {
                self.host.run(Command::new(tool).arg("down").arg(file))?;
                fs::remove_file(file).doing(|| format!("removing {}", file.display()))?;
            }
        }
        let end = Instant::now() + TIMEOUT;
        while self.ended()?.is_none() {
            if Instant::now() > end {
                let (name, words) = (&self.name, self.last_stderr_line());
                return Err(Error::Subject(format!("{name} did not end within {TIMEOUT:?} of SIGTERM{words}")));
            }
            thread::sleep(POLL_INTERVAL);
        }
        // A parent may be gone before its children are.
        while self.has_interface() {
            if Instant::now() > end {
                return Err(Error::Subject(format!("{} ended and left {interface} behind", self.name)));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The last line that it wrote, as the end of a sentence.
    pub(crate) fn last_stderr_line(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().map(str::trim).rfind(|line| !line.is_empty());
        last.map(|line| format!("; the last line of its log: {line}")).unwrap_or_default()
    }

    /// Polls until `is_done`, for at most [`TIMEOUT`]. Returns the time since the start.
    fn until(&mut self, otherwise: &str, is_done: impl Fn(&Self) -> Result<bool>) -> Result<Duration> {
        let end = Instant::now() + TIMEOUT;
        while !is_done(self)? {
            self.check_alive()?;
            if Instant::now() > end {
                let (name, words) = (&self.name, self.last_stderr_line());
                return Err(Error::Subject(format!("{name} {otherwise} within {TIMEOUT:?}{words}")));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(self.started.elapsed())
    }

    fn connect(&self) -> io::Result<DaemonClient> {
        DaemonClient::connect(Path::new(socket::DIRECTORY), self.interface())
    }

    fn has_interface(&self) -> bool {
        self.host.ip(&format!("link show dev {}", self.interface())).is_ok()
    }

    fn said_wrong(&self, what: &str, error: &ClientError) -> Error {
        let (name, interface, words) = (&self.name, self.interface(), self.last_stderr_line());
        Error::Subject(format!("{name} {what} on {interface}: {error}{words}"))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let interface = self.interface();
        let ended = match &mut self.process {
            Process::Child(child) => child.try_wait(),
            // Ours to reap: what loses its parent becomes a child of process 1, which the lab is.
            Process::Tunnel { pid, .. } => match waitpid(Some(*pid), WaitOptions::NOHANG) {
                Ok(ended) => Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw()))),
                Err(error) => Err(error.into()),
            },
        };
        ended.doing(|| format!("looking after the daemon of {interface}"))
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        match &mut self.process {
            Process::Child(child) => {
                if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
            }
            Process::Tunnel { tool, file, .. } => take_down(self.host, tool, file),
        }
        // A killed daemon leaves its socket; the log belongs to one daemon only.
        let _ = fs::remove_file(socket::path(Path::new(socket::DIRECTORY), self.interface()));
        let _ = fs::remove_file(&self.log);
    }
}

/// The process that answers on an interface's configuration socket.
fn process_of(interface: &InterfaceName) -> Result<Pid> {
    let path = socket::path(Path::new(socket::DIRECTORY), interface);
    let doing = || format!("asking who answers on {}", path.display());
    let stream = UnixStream::connect(&path).doing(doing)?;
    Ok(socket_peercred(&stream).map_err(io::Error::from).doing(doing)?.pid)
}

/// Takes a tunnel down if it is still up, after something else has failed.
fn take_down(host: &Host, tool: &Path, file: &Path) {
    if file.exists() {
        let _ = host.run(Command::new(tool).arg("down").arg(file));
        let _ = fs::remove_file(file);
    }
}

/// Whether a UDP socket of the calling thread's host is bound to `port`.
fn has_udp_port(port: u16) -> bool {
    sockets::udp().iter().any(|socket| socket.port == port)
}
