//! Hosts on this machine: network namespaces, joined by cables, which are veth pairs.
//!
//! A host is entered by a thread, not by a process: sockets that the thread opens and commands that it
//! starts are the host's. All hosts see the same files, so two daemons must not use one interface name
//! ([`Host::interface`] gives each host its own).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use linerate_control::interface::{InterfaceName, InvalidInterfaceName};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::Doing;
use crate::sandbox::Sandbox;
use crate::{Error, Result};

/// A host: a network namespace with a name. Dropping it removes the namespace's name; the kernel removes
/// the rest when nothing runs in it any more.
#[derive(Debug)]
pub struct Host {
    name: String,
    interface: InterfaceName,
    namespace: Arc<File>,
}

impl Host {
    /// Makes a host with a loopback interface and nothing else.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] without iproute2, or for a name that makes no interface name; otherwise what `ip`
    /// said.
    pub fn create(_inside: &Sandbox, name: &str) -> Result<Self> {
        ip(&["netns", "add", name])?;
        let path = format!("/run/netns/{name}");
        let namespace = File::open(&path).doing(|| format!("opening {path}"))?;
        let interface =
            format!("wg-{name}").parse().map_err(|error: InvalidInterfaceName| Error::Refused(error.to_string()))?;
        let host = Self { name: name.into(), interface, namespace: Arc::new(namespace) };
        host.inside(quieten_ipv6)?;
        host.ip("link set lo up")?;
        Ok(host)
    }

    /// The host's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the tunnel interface on this host, its own among all hosts.
    #[must_use]
    pub fn interface(&self) -> &InterfaceName {
        &self.interface
    }

    /// Runs `task` on a thread of its own inside this host and waits for it.
    ///
    /// # Errors
    ///
    /// What the task answers, or why its thread could not enter the host.
    pub fn inside<T: Send>(&self, task: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let entered = scope.spawn(|| enter(&self.namespace).and_then(|()| task()));
            entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts `task` on a thread of its own inside this host.
    pub fn start<T: Send + 'static>(&self, task: impl FnOnce() -> Result<T> + Send + 'static) -> JoinHandle<Result<T>> {
        let namespace = Arc::clone(&self.namespace);
        thread::spawn(move || enter(&namespace).and_then(|()| task()))
    }

    /// Starts a command inside this host. Its standard input is empty: ours is the sandbox's lifeline.
    ///
    /// # Errors
    ///
    /// Why it could not be started.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        command.stdin(Stdio::null());
        let program = command.get_program().to_string_lossy().into_owned();
        self.inside(|| command.spawn().doing(|| format!("starting `{program}`")))
    }

    /// Runs a command inside this host and returns what it wrote to its standard output.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] with what it wrote to its standard error when it fails.
    pub fn run(&self, command: &mut Command) -> Result<String> {
        command.stdin(Stdio::null());
        self.inside(|| finish(command))
    }

    /// Runs `ip` inside this host with the words of `line` as arguments.
    ///
    /// # Errors
    ///
    /// As [`Host::run`].
    pub fn ip(&self, line: &str) -> Result<()> {
        let words = ["-n", &self.name].into_iter().chain(line.split_whitespace());
        ip(&words.collect::<Vec<_>>())
    }

    /// Joins this host's `device` to the other host's by a cable; both come up. They must not be there yet.
    ///
    /// # Errors
    ///
    /// As [`Host::run`].
    pub fn join(&self, device: &str, other: &Self, others_device: &str) -> Result<()> {
        self.ip(&format!("link add {device} type veth peer name {others_device} netns {}", other.name))?;
        self.ip(&format!("link set {device} up"))?;
        other.ip(&format!("link set {others_device} up"))
    }

    /// Lets TCP on this host use this congestion control.
    ///
    /// # Errors
    ///
    /// When the kernel does not take it.
    pub fn use_congestion_control(&self, name: &str) -> Result<()> {
        self.inside(|| set(CONGESTION_CONTROL, name))
    }

    /// Turns forwarding on, for both families.
    ///
    /// # Errors
    ///
    /// When the kernel does not take the setting.
    pub fn forward(&self) -> Result<()> {
        self.inside(|| {
            set("/proc/sys/net/ipv4/ip_forward", "1")?;
            set("/proc/sys/net/ipv6/conf/all/forwarding", "1")
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Otherwise the sandbox removes the name when it ends.
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// The congestion control of new sockets, on the calling thread's host.
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The congestion control that hosts begin with: that of the machine.
#[must_use]
pub fn congestion_control() -> Option<String> {
    let name = fs::read_to_string(CONGESTION_CONTROL).ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Checks that hosts can use a congestion control: other namespaces than the machine's may use those only that are
/// allowed to all users (net/ipv4/tcp_cong.c, tcp_set_default_congestion_control).
///
/// # Errors
///
/// [`Error::Refused`] that says how to allow it.
pub fn check_congestion_control(name: &str) -> Result<()> {
    let read = |what: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{what}_congestion_control"));
    let (available, allowed) = (read("available").unwrap_or_default(), read("allowed").unwrap_or_default());
    let has = |list: &str| list.split_whitespace().any(|other| other == name);
    if has(&allowed) {
        return Ok(());
    }
    let allowed = allowed.trim();
    Err(Error::Refused(if has(&available) {
        format!(
            "`{name}` is allowed to root only; allow it with `sysctl -w \
             net.ipv4.tcp_allowed_congestion_control='{allowed} {name}'`"
        )
    } else {
        format!("no congestion control is called `{name}` here; there are {}", available.trim().replace(' ', ", "))
    }))
}

/// Checks that a tunnel interface can be made here.
///
/// # Errors
///
/// [`Error::Refused`] that says how to get `/dev/net/tun`.
pub fn check_tun() -> Result<()> {
    let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun") else {
        return Ok(());
    };
    Err(Error::Refused(match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "/dev/net/tun may not be opened by this user; run this as root, or `chmod 0666 /dev/net/tun` as most \
             distributions do"
                .into()
        }
        _ => format!(
            "/dev/net/tun cannot be opened ({error}); load the module with `modprobe tun`, or give the container the \
             device with `--device /dev/net/tun`"
        ),
    }))
}

fn enter(namespace: &File) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .doing(|| "entering a host's network namespace".into())
}

/// Stops the kernel from sending packets of its own accord: router solicitations go into a tunnel too,
/// and would wake a daemon that is measured at rest.
fn quieten_ipv6() -> Result<()> {
    for place in ["all", "default"] {
        for setting in ["accept_ra", "router_solicitations", "accept_dad"] {
            set(&format!("/proc/sys/net/ipv6/conf/{place}/{setting}"), "0")?;
        }
    }
    Ok(())
}

/// Changes a setting of the calling thread's host. One that this kernel does not have is left alone: without
/// IPv6 there is nothing to set.
fn set(path: &str, value: &str) -> Result<()> {
    match fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(value.as_bytes())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::system(format!("writing {path}"), error)),
        _ => Ok(()),
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    finish(Command::new("ip").args(arguments).stdin(Stdio::null())).map(drop)
}

/// Runs a command to its end and returns what it wrote to its standard output.
pub(crate) fn finish(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let package = package(&program);
            return Err(Error::Refused(format!("`{program}` is not installed: apt-get install {package}")));
        }
        Err(error) => return Err(Error::system(format!("starting `{program}`"), error)),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = std::iter::once(program).chain(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Command {
        command: words.collect::<Vec<_>>().join(" "),
        said: if said.is_empty() { output.status.to_string() } else { said },
    })
}

/// The package that has `program`, on Debian and its derivatives.
fn package(program: &str) -> &str {
    match program {
        "ip" | "tc" => "iproute2",
        "nft" => "nftables",
        "unshare" => "util-linux",
        "wg" => "wireguard-tools",
        other => other,
    }
}
