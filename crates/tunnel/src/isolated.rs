//! A tunnel without privileges, in a network of its own.
//!
//! The daemon runs in the host's network, where its UDP sockets are; its interface is in a new one, with addresses and routes
//! and nothing else. It has files of its own in the place of /run, so that its socket is where it always is, is seen by
//! nobody else, and leaves nothing behind. It ends with the process that called [`up`]; with it goes the interface, and
//! with the last process in the network the network. No ledger, no undoing: the kernel does that.
//!
//! [`Isolated::enter`] moves this process in, to become the command that the tunnel is for.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use linerate_control::interface::InterfaceName;
use linerate_control::tunnel_file::{ExcludeLan, Gateway, Peer, TunnelFile};
use linerate_control::uapi::client::DaemonClient;
use linerate_control::uapi::socket;
use linerate_host::plan;
use linerate_host::spec::HostSpec;
use linerate_host::state::HostState;
use linerate_host::step::Step;
use linerate_isolation::{NetworkNamespace, UserNamespace};
use rustix::process::{PidfdFlags, child_subreaper, getpid, pidfd_open, set_child_subreaper};

use crate::context::Reporter;
use crate::daemon::{self, StartOptions};
use crate::error::Error;
use crate::execute::step_executor::check_port;
use crate::program::how_it_ended;
use crate::read::{ConfigFile, DefaultRoutes};
use crate::resolve::Resolved;
use crate::snapshot;

/// How long names of endpoints are looked up: without an answer there is no tunnel.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the file of `operand`: a path, or a name, for which the user's own folder comes before root's. `NAME.conf` is a file
/// in this folder.
///
/// # Errors
/// As [`ConfigFile::open`].
pub fn find(operand: &str) -> Result<ConfigFile, Error> {
    if operand.ends_with(".conf") && !operand.contains('/') {
        return ConfigFile::open(&format!("./{operand}"));
    }
    let own = operand.parse::<InterfaceName>().ok().and_then(|name| own_file(&name));
    match &own {
        Some(path) if path.exists() => ConfigFile::open(&path.to_string_lossy()),
        _ => ConfigFile::open(operand).map_err(|error| with_own(error, own.as_deref())),
    }
}

/// Why there is no file, and where the user's `own` would be.
fn with_own(error: Error, own: Option<&Path>) -> Error {
    let Some(own) = own.map(Path::display) else { return error };
    match error {
        Error::Inaccessible { path, error } => {
            Error::State(format!("`{own}' does not exist, and `{}' cannot be read: {error}", path.display()))
        }
        Error::NoFile { path, hint } => Error::NoFile { path, hint: format!("{hint}; `{own}' does not, either") },
        error => error,
    }
}

/// Where a user's own file of that name is.
fn own_file(name: &InterfaceName) -> Option<PathBuf> {
    let set = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("linerate").join(format!("{name}.conf")))
}

/// A tunnel that is up in a network of its own.
pub struct Isolated {
    pub network: NetworkNamespace,
    servers: Vec<String>,
    search: Vec<String>,
}

/// Brings the tunnel of `file` up.
///
/// # Errors
/// A name has no address, or a step failed: nothing is left but the daemon, until this process ends.
pub fn up(file: &ConfigFile, user: &UserNamespace, reporter: &dyn Reporter) -> Result<Isolated, Error> {
    let warn = |warning: &str| reporter.message(&format!("Warning: {warning}"));
    let ignored = ignored(&file.contents);
    if !ignored.is_empty() {
        warn(&format!("without meaning in a network of its own, and ignored: {}", ignored.join(", ")));
    }
    let resolved = Resolved::within(TIMEOUT, file)?;
    if !file.contents.has_private_key() {
        let (path, remedy) = (file.called.display(), file.contents.missing_key());
        return Err(Error::State(format!("{path}: there is no PrivateKey in [Interface]: {remedy}")));
    }
    lacking(&file.contents).for_each(warn);
    if let Some(named) = resolved.names.unanswered().next() {
        return Err(Error::State(format!("{named}: no address; is this host connected, and the name right?")));
    }
    let mut device = resolved.device;
    // A mark is for the host's routes, and takes privileges there.
    device.fwmark = None;
    check_port(device.listen_port.unwrap_or(0)).map_err(Error::system("opening the port"))?;
    let spec = file.host_spec(&device, DefaultRoutes::Always);
    let network = user.new_network()?;
    let mut daemon = start(file, user, &network)?;
    daemon.set(&device).map_err(|error| Error::State(format!("linerated: {}", error.reason_of_set())))?;
    set_up(&spec, &network)?.iter().for_each(|warning| warn(&warning.to_string()));
    if spec.dns.servers.is_empty() {
        warn("the file has no DNS, so no names can be looked up; add `DNS = ADDRESS` of a server in the tunnel");
    }
    let servers = spec.dns.servers.iter().map(ToString::to_string).collect();
    let search = spec.dns.search.into_iter().filter(|domain| !domain.starts_with('~')).collect();
    Ok(Isolated { network, servers, search })
}

impl Isolated {
    /// Moves this process in, which has one thread. What it starts, or becomes, has this network alone, and asks the file's
    /// name servers.
    ///
    /// # Errors
    /// The system does not allow it; the process is good for nothing then.
    pub fn enter(&self, user: &UserNamespace) -> Result<(), Error> {
        let mounts = user.new_mounts()?;
        mounts.set_name_servers(&self.servers, &self.search)?;
        mounts.own_ssh_settings()?;
        self.network.enter().map_err(Error::system("entering the network"))?;
        user.give_up_capabilities().map_err(Error::system("giving capabilities up"))
    }
}

/// Starts the daemon, and connects to it.
fn start(file: &ConfigFile, user: &UserNamespace, network: &NetworkNamespace) -> Result<DaemonClient, Error> {
    let program = daemon::find()?;
    // Its path may lead through /run, as on NixOS, or end there, as on a removable disk.
    let program = fs::canonicalize(&program).unwrap_or(program);
    let options = StartOptions { spin: daemon::spin(file.contents.spin), ..StartOptions::default() };
    let started = |network| start_daemon(&program, &options, &file.interface, network);
    user.with_mounts(|mounts| {
        let directory = Path::new(socket::DIRECTORY);
        let run = directory.parent().unwrap_or(directory);
        mounts.cover_but(&fs::canonicalize(run).map_err(Error::inaccessible(run))?, &program)?;
        user.pass_on_capabilities().map_err(Error::system("passing capabilities on"))?;
        started(network.as_fd()).map_err(Error::system("starting the tunnel"))?;
        DaemonClient::connect(directory, &file.interface).map_err(Error::system("connecting to linerated"))
    })?
}

/// Starts the daemon `program` for `interface` in the background, for as long as this process lives, whatever program it becomes. The
/// interface is made in `network`. Returns when it answers.
///
/// # Errors
/// It cannot be started, or it failed and wrote the reason to standard error.
fn start_daemon(
    program: &Path,
    options: &StartOptions,
    interface: &InterfaceName,
    network: BorrowedFd<'_>,
) -> io::Result<()> {
    let handed_over = [network.try_clone_to_owned()?, pidfd_open(getpid(), PidfdFlags::empty())?];
    let numbers = handed_over.each_ref().map(|fd| fd.as_raw_fd().to_string());
    let mut command = daemon::command(program, options, interface.as_str(), handed_over.into());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.envs(["LINERATE_NETWORK_FD", "LINERATE_END_FD"].into_iter().zip(numbers));
    // LOG_LEVEL is the command's, which may know other words. Why the daemon fails it says all the same.
    let level = std::env::var_os(LOG_LEVEL).filter(|level| !level.is_empty());
    command.env("LOG_LEVEL", level.unwrap_or_else(|| "silent".into()));
    // The user's environment is for the command.
    for variable in ["WG_PROCESS_FOREGROUND", "WG_TUN_FD", "WG_TUN_NAME_FILE", "WG_UAPI_FD"] {
        command.env_remove(variable);
    }
    let failed =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display()));
    match as_nobodys_child(|| command.status())?.map_err(failed)? {
        status if status.success() => Ok(()),
        status => Err(io::Error::other(format!("{} {}", program.display(), how_it_ended(status)))),
    }
}

/// Has the daemon that `start` starts fall to another process than this one, which becomes a program that may wait for
/// all of its children. If this is process 1, it is the one that orphans fall to.
fn as_nobodys_child<T>(start: impl FnOnce() -> T) -> io::Result<T> {
    let reaper = child_subreaper()?;
    set_child_subreaper(None)?;
    let started = start();
    set_child_subreaper(reaper)?;
    Ok(started)
}

/// The variable that says what such a daemon logs.
const LOG_LEVEL: &str = "LINERATE_LOG_LEVEL";

/// Gives the interface of `spec` in `network` addresses, MTU and routes, and sets it up. Returns warnings.
///
/// # Errors
/// The state of a network cannot be read, or a step failed.
pub fn set_up(spec: &HostSpec, network: &NetworkNamespace) -> Result<Vec<plan::Warning>, Error> {
    let outside = state()?;
    network.inside(|| Ok(set_up_inside(spec, &outside))).map_err(Error::system("entering the network"))?
}

/// The MTU of a tunnel without an interface: the file's, or that of the paths to its endpoints.
///
/// # Errors
/// The state of the host's network cannot be read.
pub fn mtu(spec: &HostSpec) -> Result<u32, Error> {
    Ok(plan::mtu(spec, &state()?))
}

fn set_up_inside(spec: &HostSpec, outside: &HostState) -> Result<Vec<plan::Warning>, Error> {
    let plan = plan::isolated(spec, &state()?, outside);
    let applied = snapshot::open()?.apply(&plan.steps);
    applied.map_err(|refused| Error::Step {
        step: plan.steps.get(refused.index).cloned().map(Box::new),
        error: io::Error::other(refused.to_string()),
        exit_code: 1,
    })?;
    wait_for_addresses(&plan.steps);
    Ok(plan.warnings)
}

/// The kernel takes an IPv6 address into use a moment after it was added, and drops what comes for it before.
fn wait_for_addresses(steps: &[Step]) {
    let limit = Instant::now() + Duration::from_secs(1);
    let is_missing = |error: io::Error| error.kind() == io::ErrorKind::AddrNotAvailable;
    for step in steps {
        let Step::AddAddress { address, .. } = step else { continue };
        while UdpSocket::bind((address.addr(), 0)).is_err_and(is_missing) && Instant::now() < limit {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The state of this thread's network.
fn state() -> Result<HostState, Error> {
    snapshot::open()?.state().map_err(Error::Snapshot)
}

/// What a file does not say, without which nothing gets through.
fn lacking(file: &TunnelFile) -> impl Iterator<Item = &'static str> {
    let none = |lacks: fn(&Peer) -> bool| file.peers.iter().all(|peer| lacks(peer));
    let warnings = [
        ("the file has no Address: the command has none in the tunnel", file.addresses.is_empty()),
        ("the file has no AllowedIPs: nothing goes into the tunnel", none(|peer| peer.allowed_ips.is_empty())),
        (
            "the file has no Endpoint and no ListenPort: no peer is found, and none finds this one",
            file.listen_port.is_none() && none(|peer| peer.endpoint.is_none()),
        ),
    ];
    warnings.into_iter().filter(|(_, lacks)| *lacks).map(|(warning, _)| warning)
}

/// The settings of a file that mean nothing to a tunnel without privileges: they are about the host's routes and firewall,
/// need root, or are a server's.
pub fn ignored(file: &TunnelFile) -> Vec<&'static str> {
    let is_limited = |peer: &Arc<Peer>| peer.client.has_end() || !peer.destinations.is_empty();
    let settings = [
        ("PreUp, PostUp, PreDown, PostDown", !file.hooks.is_empty()),
        ("FwMark", file.fwmark.is_some_and(|mark| mark != 0)),
        ("ExcludedIPs", !file.excluded_ips.is_empty()),
        ("ExcludeLAN", file.exclude_lan != ExcludeLan::Never),
        ("Gateway", file.gateway != Gateway::Off),
        ("User", file.user.is_some()),
        ("SaveConfig", file.save_config),
        ("Destinations, Expires, Quota", file.peers.iter().any(is_limited)),
    ];
    settings.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use linerate_control::document::Document;
    use linerate_control::tunnel_file::NoNames;

    use super::*;

    #[test]
    fn whoever_has_no_file_learns_where_it_would_be() {
        let own = Path::new("/home/a/.config/linerate/work.conf");
        let path = PathBuf::from("/etc/wireguard/work.conf");
        let missing = || Error::NoFile { path: path.clone(), hint: String::new() };
        let denied = || Error::Inaccessible { path: path.clone(), error: io::ErrorKind::PermissionDenied.into() };
        for error in [missing(), denied()] {
            let said = with_own(error, Some(own)).to_string();
            assert!(said.contains("`/home/a/.config/linerate/work.conf' does not"), "{said}");
            assert!(said.contains("`/etc/wireguard/work.conf'"), "{said}");
        }
        assert_eq!(with_own(missing(), None).to_string(), missing().to_string());
        assert_eq!(find("no-such-file.conf").err().unwrap().to_string(), "`./no-such-file.conf' does not exist");
    }

    #[test]
    fn a_file_by_which_nothing_gets_through_is_warned_of() {
        let warned = |text: &str| {
            let (file, _) = TunnelFile::read(&Document::parse(text.as_bytes()), &"wg0".parse().unwrap(), &NoNames);
            lacking(&file).collect::<Vec<_>>().join("; ")
        };
        let peer = "[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n";
        let all = warned(&format!("[Interface]\n{peer}"));
        assert!(["Address", "AllowedIPs", "Endpoint"].iter().all(|word| all.contains(word)), "{all}");
        let whole = format!("[Interface]\nAddress = 10.0.0.2\n{peer}AllowedIPs = ::/0\n");
        assert_eq!(warned(&format!("{whole}Endpoint = 192.0.2.1:51820\n")), "");
        assert_eq!(warned(&whole.replace("\n[Peer]", "\nListenPort = 51820\n[Peer]")), "");
    }
}
