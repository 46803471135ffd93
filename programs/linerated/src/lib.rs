//! `linerated`, the daemon: one tunnel, from the command line to its clean end.
//!
//! The main thread waits for UAPI clients, signals and the end of the engine; the engine has threads
//! of its own. Follows wireguard-go's conventions, so that whatever starts that can start this.

#![forbid(unsafe_code)]

mod background;
mod environment;
mod handler;
mod last_data;
mod usage;

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use linerate_aead::choose;
use linerate_cli::documents;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::server::{Server, StopReason};
use linerate_control::uapi::socket::{self, Listener};
use linerate_engine::{Engine, Options};
use linerate_netio::clock::{ClockChange, Timer};
use linerate_netio::namespace::NetworkNamespace;
use linerate_netio::process::{Signals, take_inherited};
use linerate_netio::tun::{self, Tun};
use linerate_privileges::filter::Filter;
use linerate_privileges::user::User;
use linerate_privileges::{Confinement, InForce};
use rustix::process::{Resource, Rlimit, setrlimit};

use background::Ready;
use environment::{END, Environment, NETWORK, TUN, UAPI};
use handler::EngineHandler;
use jiff::tz::TimeZone;
use last_data::LastData;
use usage::{UsageFiles, UsageKeeper};

/// The arguments of `linerated`.
#[derive(Parser)]
#[command(
    name = "linerated",
    version,
    about = "Run one WireGuard tunnel in user space.",
    long_about = "Run one WireGuard tunnel in user space.\n\n\
        Creates the TUN interface IFACE and the socket /var/run/wireguard/IFACE.sock, through which `wg`, `wg-quick` and \
        `linerate show` control it, and goes to the background once the socket is ready. It exits when the interface or \
        the socket is deleted, or on SIGTERM or SIGINT, and removes both.\n\n\
        Needs root or CAP_NET_ADMIN, and /dev/net/tun. After setup it drops what it does not need: capabilities, access to \
        files, executing programs, most system calls. `linerate doctor --security` shows the result.",
    after_long_help = "EXAMPLES\n\
        \x20 With wg-quick, if the kernel has no WireGuard module:\n\
        \x20   sudo WG_QUICK_USERSPACE_IMPLEMENTATION=linerated wg-quick up wg0\n\n\
        \x20 By hand:\n\
        \x20   sudo linerated wg0\n\
        \x20   sudo wg setconf wg0 wg0.conf\n\
        \x20   sudo ip address add 10.0.0.1/24 dev wg0\n\
        \x20   sudo ip link set wg0 up\n\
        \x20   sudo ip link delete wg0          stops it\n\n\
        \x20 With priority over other programs on a busy machine:\n\
        \x20   sudo nice -n -10 linerated wg0\n\n\
        \x20 Under a service manager, with the log on standard error:\n\
        \x20   LOG_LEVEL=debug linerated -f wg0\n\n\
        \x20 As an unprivileged user after setup:\n\
        \x20   sudo linerated --user nobody wg0\n\n\
        ENVIRONMENT\n\
        \x20 LOG_LEVEL               silent, error, info (the default) or debug. In the background\n\
        \x20                         there is no log unless this is set, and standard error is a file,\n\
        \x20                         a terminal or the journal: a pipe ends with the command\n\
        \x20 LINERATE_AEAD           cipher implementation: avx512, avx512f, avx2, library or\n\
        \x20                         portable (default: the fastest that this CPU supports)\n\
        \x20 LINERATE_END_FD         the number of an inherited descriptor: it ends when that is readable,\n\
        \x20                         as that of a process (pidfd_open(2)) or of a pipe is when it ends\n\
        \x20 LINERATE_HELPERS        on-demand (the default) starts more workers under load, while there are cores;\n\
        \x20                         always starts them for every batch, as if on four cores, for tests\n\
        \x20 LINERATE_NETWORK_FD     the number of an inherited descriptor of a network namespace: the interface\n\
        \x20                         is created there, and the sockets stay in its own\n\
        \x20 LINERATE_OFFLOADS       comma-separated kernel offloads to disable, for measuring and debugging:\n\
        \x20                         -vnet_hdr, -tso, -uso (the interface's), -udp_gro, -udp_gso (the\n\
        \x20                         sockets')\n\
        \x20 LINERATE_SECCOMP        action for a system call that linerated does not need: refuse (the\n\
        \x20                         default) fails and counts it (`linerate show IFACE --stats`), kill\n\
        \x20                         ends the daemon; log (to the kernel's log) and off allow it, for\n\
        \x20                         debugging only\n\
        \x20 LINERATE_SPIN           for how many microseconds at most, up to 1000, it looks for packets\n\
        \x20                         before it sleeps, while packets come within that time and a core is\n\
        \x20                         idle: faster answers for processor time (default: 0, never)\n\
        \x20 LINERATE_USAGE          a directory: what peers with limits have used is kept there when\n\
        \x20                         linerated ends, and counts on when it starts again (default: none;\n\
        \x20                         `linerate up` sets /var/lib/linerate for a file with limits)\n\
        \x20 WG_PROCESS_FOREGROUND   1 is the same as -f\n\
        \x20 WG_TUN_FD               the number of an inherited descriptor of a TUN interface to use\n\
        \x20 WG_TUN_NAME_FILE        the file to write the interface's name to if IFACE is utun, for which\n\
        \x20                         macOS chooses a number\n\
        \x20 WG_UAPI_FD              the number of an inherited descriptor of the listening socket\n\n\
        FILES\n\
        \x20 /dev/net/tun                              to create the interface\n\
        \x20 /var/run/wireguard/IFACE.sock             control socket; deleting it stops the daemon\n\
        \x20 /var/lib/linerate/IFACE.usage-a, -b       what peers with limits have used\n\
        \x20 /usr/share/doc/linerate/privileges.md.gz  privileges of the daemon after setup\n\
        \x20 /usr/share/doc/linerate/faults.md.gz      behaviour under faults\n\n\
        SEE ALSO\n\
        linerate(1), linerate.conf(5), wg(8), wg-quick(8)"
)]
pub struct Arguments {
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,

    /// Run as this user once the tunnel is set up (default: root)
    ///
    /// The daemon keeps its network privileges; root still owns the socket.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Write the manual page into this directory, and do nothing else
    #[arg(long, value_name = "DIRECTORY", exclusive = true, hide = true)]
    man: Option<PathBuf>,

    /// Print the completions for this shell, and do nothing else
    #[arg(long, value_name = "SHELL", exclusive = true, hide = true)]
    completions: Option<Shell>,

    /// Interface to create
    #[arg(value_name = "IFACE", required = true)]
    interface: Option<InterfaceName>,
}

/// Runs the daemon on this process's arguments and environment.
pub fn main() -> ExitCode {
    linerate_cli::begin();
    match Arguments::try_parse() {
        Ok(arguments) => linerate_cli::exit("linerated", run(&arguments)),
        Err(error) => linerate_cli::refuse_arguments(&error),
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let interface = match arguments {
        Arguments { man: Some(directory), .. } => {
            return documents::write_pages(Arguments::command(), "8", directory).map(|()| ExitCode::SUCCESS);
        }
        Arguments { completions: Some(shell), .. } => {
            return documents::print_completions(Arguments::command(), *shell);
        }
        Arguments { interface, .. } => interface.as_ref().expect("clap requires it"),
    };
    let environment = Environment::read()?;
    let user = arguments.user.as_deref().map(User::find).transpose()?;
    let ready = Ready::inherited(environment.logs_in_background())?;
    if !arguments.foreground && !environment.foreground && ready.is_none() {
        let handed_over = environment.handed_over().map(|(variable, number)| inherited(variable, number));
        return background::start(interface, arguments.user.as_deref(), handed_over.collect::<Result<_, _>>()?);
    }
    serve(interface, user.as_ref(), &environment, ready)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the tunnel until something stops it.
fn serve(
    interface: &InterfaceName,
    user: Option<&User>,
    environment: &Environment,
    ready: Option<Ready>,
) -> Result<(), String> {
    // A core file would hold the keys.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(|error| format!("cannot turn core dumps off: {error}"))?;
    // Before there is any thread that a signal could end.
    let signals = Signals::new().map_err(|error| format!("cannot handle signals: {error}"))?;
    environment.start_log();
    let aead = choose::from_environment().map_err(|error| error.to_string())?;
    tracing::debug!("{interface}: packets are sealed by {}", aead.name());
    if let Some(warning) = aead.warning() {
        // Not to the log, which may be silent.
        let _ = writeln!(io::stderr(), "linerated: {interface}: {warning}");
    }

    let options = Options {
        helpers: environment.helpers,
        udp_offloads: environment.offloads.udp,
        spin: environment.spin,
        ..Options::default()
    };
    let end = environment.end.map(|number| inherited(END, number)).transpose()?;
    let network = environment.network.map(open_network).transpose()?;
    let tun = open_tun(interface, environment, network.as_ref(), options.queues())?;
    let last_data = network.as_ref().map(LastData::of).transpose();
    let last_data = last_data.map_err(|error| format!("cannot make a timer: {error}"))?;
    tracing::debug!("{interface}: the interface has {:?}", tun.offloads());
    let name = tun.name().map_err(|error| format!("cannot read the name of the interface: {error}"))?;
    if interface.as_str() == ANY_UTUN {
        tell_name(&name, environment.name_file.as_deref())?;
    }
    // An inherited device may have another name, and `utun` on macOS always has.
    let interface: InterfaceName = name.parse().map_err(|error| format!("{error}"))?;
    let listener = open_listener(&interface, environment)?;
    let failed = |failure| format!("{interface}: {failure}");
    let engine = Engine::prepare(tun, &options).map_err(failed)?;
    // A `wg` that found a dead daemon's socket may delete ours a moment later, taking it for stale (wg's
    // ipc-uapi-unix.h). Before we report that we are ready nobody can mean to stop us, so recreate it.
    let is_kept = listener.is_in_place() || environment.uapi.is_some();
    let listener = if is_kept { listener } else { open_listener(&interface, environment)? };
    let mut server = Server::new(listener);
    if !server.watches_its_file() {
        tracing::info!(
            "{interface}: deleting the socket will not end this daemon: no watch is left (inotify, or kqueue)"
        );
    }
    let files = open_usage(&interface, environment);
    let zone = TimeZone::system();
    let timer = Rc::new(Timer::new().map_err(|error| format!("cannot make a timer: {error}"))?);
    let clock_change = ClockChange::new().ok();
    let in_force = confine(&interface, user, environment)?;
    let engine = engine.start().map_err(failed)?;
    if let Some(ready) = ready {
        ready.notify()?;
    }
    tracing::info!("{interface} is ready");

    let handle = engine.handle();
    let usage = UsageKeeper::new(handle.clone(), files, zone, timer.clone());
    let mut handler = EngineHandler::new(engine.handle(), in_force, usage);
    let end = end.as_ref().map_or(signals.as_fd(), AsFd::as_fd);
    let mut stop = vec![signals.as_fd(), engine.ended(), end, handle.usage_changed(), timer.as_fd()];
    stop.extend(clock_change.as_ref().map(AsFd::as_fd));
    let ended = loop {
        match server.run(&mut handler, &stop) {
            Ok(StopReason::Requested(3..)) => {
                clock_change.iter().for_each(ClockChange::drain);
                handler.usage.refresh();
            }
            ended => break ended,
        }
    };
    handler.usage.refresh();
    match &ended {
        Ok(StopReason::Requested(0)) => tracing::info!("{interface}: ended by {}", signal_name(&signals)),
        Ok(StopReason::Requested(2)) => {
            tracing::info!("{interface}: ended by {END}");
            let kept = last_data.map(|data| data.wait(&handle, &[signals.as_fd(), engine.ended()]));
            kept.and_then(Result::err).iter().for_each(|error| tracing::error!("{interface}: {error}"));
        }
        Ok(StopReason::Requested(_)) => tracing::info!("{interface}: the interface was deleted"),
        Ok(StopReason::SocketGone) => tracing::info!("{interface}: the socket was deleted"),
        Err(error) => tracing::error!("{interface}: cannot wait for clients: {error}"),
    }
    engine.stop();
    drop(handler);
    // Close connections last: a client that waits for that may kill this process, which has wiped its keys by then.
    drop(server);
    ended.map(drop).map_err(|error| format!("{interface}: cannot wait for clients: {error}"))
}

/// The network of the descriptor that is handed over.
fn open_network(number: RawFd) -> Result<NetworkNamespace, String> {
    NetworkNamespace::from_fd(inherited(NETWORK, number)?).map_err(|error| format!("{NETWORK}={number}: {error}"))
}

fn open_tun(
    interface: &InterfaceName,
    environment: &Environment,
    network: Option<&NetworkNamespace>,
    queues: usize,
) -> Result<tun::TunDevice, String> {
    let (name, offloads) = (interface.as_str(), environment.offloads.tun);
    match (environment.tun, network) {
        (Some(_), Some(_)) => {
            Err(format!("WG_TUN_FD and {NETWORK} exclude each other: an interface is where it was made"))
        }
        (None, None) => tun::TunDevice::create(name, queues, offloads).map_err(|error| error.to_string()),
        (None, Some(network)) => tun::TunDevice::create_in(network, name, queues, offloads)
            .map_err(|error| format!("the network of {NETWORK}: {error}")),
        (Some(number), None) => {
            let fd = inherited(TUN, number)?;
            tun::TunDevice::from_fd(fd, offloads).map_err(|error| format!("WG_TUN_FD={number}: {error}"))
        }
    }
}

fn open_listener(interface: &InterfaceName, environment: &Environment) -> Result<Listener, String> {
    let directory = Path::new(socket::DIRECTORY);
    match environment.uapi {
        None => Listener::open(directory, interface).map_err(|error| error.to_string()),
        Some(number) => {
            let fd = inherited(UAPI, number)?;
            Listener::inherit(fd, directory, interface).map_err(|error| format!("WG_UAPI_FD={number}: {error}"))
        }
    }
}

/// The interface that macOS chooses a number for.
const ANY_UTUN: &str = "utun";

/// Tells `wg-quick` for macOS which interface it is (`WG_TUN_NAME_FILE`).
fn tell_name(name: &str, file: Option<&Path>) -> Result<(), String> {
    let Some(path) = file else { return Ok(()) };
    let failed = |error| format!("WG_TUN_NAME_FILE: cannot write {}: {error}", path.display());
    fs::write(path, format!("{name}\n")).map_err(failed)
}

/// Opens the files for what peers have used of their quotas, if it is to be kept.
fn open_usage(interface: &InterfaceName, environment: &Environment) -> Option<UsageFiles> {
    let directory = environment.usage.as_deref()?;
    let failed = |error: &io::Error| {
        let directory = directory.display();
        tracing::warn!("{interface}: what peers use of their quotas is not kept: cannot open {directory}: {error}");
    };
    UsageFiles::open(directory, interface).inspect_err(failed).ok()
}

/// Drops the privileges that are not needed from here on, and logs what could not be dropped.
fn confine(interface: &InterfaceName, user: Option<&User>, environment: &Environment) -> Result<InForce, String> {
    let (filter, enters_network) = (environment.filter, environment.network.is_some());
    if matches!(filter, Filter::Log | Filter::Off) {
        tracing::info!("{interface}: LINERATE_SECCOMP: no system call is refused; for debugging only");
    }
    let requested = Confinement { user, filter, socket_directory: Path::new(socket::DIRECTORY), enters_network };
    let in_force = linerate_privileges::confine_daemon(&requested).map_err(|error| format!("{interface}: {error}"))?;
    if !in_force.missing.is_empty() {
        tracing::info!("{interface}: this system does not offer all protection: {}", in_force.missing.join("; "));
    }
    tracing::debug!("{interface}: {in_force}");
    Ok(in_force)
}

/// The descriptor that a variable names, once.
fn inherited(variable: &str, number: RawFd) -> Result<OwnedFd, String> {
    take_inherited(number)
        .map_err(|error| format!("{variable}={number} is not an inherited descriptor of this process: {error}"))
}

fn signal_name(signals: &Signals) -> &'static str {
    use linerate_netio::process::Signal;
    match signals.take() {
        Some(Signal::Interrupt) => "SIGINT",
        Some(Signal::Terminate) => "SIGTERM",
        None => "a signal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_has_its_help() {
        documents::assert_documented(Arguments::command());
    }
}
