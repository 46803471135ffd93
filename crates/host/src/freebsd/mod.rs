//! The FreeBSD host: reads its state and applies steps, by the programs of the system: ifconfig(8), route(8) and
//! netstat(1), as wg-quick does there. Nothing of it was run on FreeBSD; what decides is tested on Linux: which command
//! lines a step takes ([`commands`]), what the programs print ([`read`]), and what a failure means ([`Host::apply`], against
//! programs that are played).

mod commands;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use linerate_netio::link::Monitor;
use rustix::io::Errno;

use crate::program::{self, WaitLimit};
use crate::state::{Foreign, HeldSysctl, HostChanges, HostState, Link};
use crate::step::{Opening, Route, Step};
use crate::transaction::ApplyError;

pub use commands::as_commands;

/// Tunnels with default routes follow those of the host, as there is one table for both.
pub const ONE_TABLE: bool = true;

/// What this host needs of the system.
trait Programs {
    /// Runs a program to its end, and returns what it printed.
    ///
    /// # Errors
    /// In one sentence.
    fn run(&mut self, words: &[String]) -> io::Result<String>;

    /// Lets a little time pass.
    fn pause(&mut self);
}

pub struct Host {
    programs: Box<dyn Programs>,
}

impl Host {
    /// # Errors
    /// None: its programs are looked for when they are run.
    pub fn open() -> io::Result<Self> {
        Ok(Self { programs: Box::new(OfSystem) })
    }

    /// The index of the interface, if it exists.
    pub fn index(&self, interface: &str) -> Option<u32> {
        linerate_netio::link::index_of(interface).ok()
    }

    /// The links.
    ///
    /// # Errors
    /// As [`Host::state`].
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        Ok(self.state()?.links)
    }

    /// Reads the state of this host.
    ///
    /// # Errors
    /// A program fails, or prints something else than expected.
    pub fn state(&mut self) -> io::Result<HostState> {
        let links = read::links(&self.run("ifconfig -a")?);
        let mut routes = read::routes(&self.run("netstat --libxo json -rnW -f inet")?)?;
        // As rc(8) asks for it (libexec/rc/rc.subr, check_kern_features); without, netstat does not know the family.
        let has_ipv6 = self.run("sysctl -in kern.features.inet6")?.trim() == "1";
        if has_ipv6 {
            routes.extend(read::routes(&self.run("netstat --libxo json -rnW -f inet6")?)?);
        }
        Ok(read::host_state(links, routes, has_ipv6))
    }

    /// Does nothing: on FreeBSD a gateway is refused, so no tunnel switches on forwarding.
    ///
    /// # Errors
    /// None.
    pub fn guard_forwarding(&mut self, _: BTreeMap<String, HeldSysctl>, _: Option<&str>) -> io::Result<()> {
        Ok(())
    }

    /// None: there are no marks that a filter would have to consider.
    pub fn strict_interfaces(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    /// None are read: a gateway, which would need it, is refused.
    ///
    /// # Errors
    /// None.
    pub fn foreign(&mut self) -> io::Result<Foreign> {
        Ok(Foreign::default())
    }

    /// Returns no table: FreeBSD has no nf_tables.
    pub fn emptied_tables(&mut self, _: &[Step]) -> Vec<String> {
        Vec::new()
    }

    /// # Errors
    /// Always: there is no nf_tables.
    pub fn change_foreign(&mut self, _: &Opening, _: bool) -> io::Result<()> {
        Err(Errno::PROTONOSUPPORT.into())
    }

    /// Applies steps for links, addresses and routes, one after the other.
    ///
    /// # Errors
    /// The first step that failed, with the errno that Linux has for it, if it is already done or undone: EEXIST if it
    /// exists already; ENODEV (interfaces), ESRCH (routes) or EADDRNOTAVAIL (addresses) if it does not exist.
    pub fn apply(&mut self, steps: &[Step]) -> Result<(), ApplyError> {
        for (index, step) in steps.iter().enumerate() {
            let Err(error) = self.execute(step) else { continue };
            // A program's exit code says nothing more than that it failed.
            let meaning = self.state().ok().and_then(|state| meaning(step, &state));
            let (error, explanation) = match meaning {
                Some(errno) => (errno.into(), Some(error.to_string())),
                None => (error, None),
            };
            return Err(ApplyError { index, error, explanation });
        }
        Ok(())
    }

    fn execute(&mut self, step: &Step) -> io::Result<()> {
        let commands = commands::of(step).map_err(|sentence| io::Error::new(io::ErrorKind::Unsupported, sentence))?;
        commands.iter().try_for_each(|command| self.run(command).map(drop))?;
        match step {
            Step::DeleteLink { interface } => self.wait_for_end(interface),
            _ => Ok(()),
        }
    }

    /// Without its socket the daemon ends, and its interface with it, or that stays: before FreeBSD 15, if the daemon had no
    /// rights any more, or was killed earlier.
    fn wait_for_end(&mut self, interface: &str) -> io::Result<()> {
        let ask = format!("ifconfig {interface}");
        for _ in 0..PAUSES {
            if self.run(&ask).is_err() {
                return Ok(());
            }
            self.programs.pause();
        }
        self.run(&format!("ifconfig {interface} destroy")).map(drop)
    }

    /// Words of a command have no spaces in them.
    fn run(&mut self, command: &str) -> io::Result<String> {
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        self.programs.run(&words)
    }
}

/// The errno of a failed step if `state`, that of the host after it, shows that it is done, or that there is nothing to do.
fn meaning(step: &Step, state: &HostState) -> Option<Errno> {
    let is_there = |to, table| state.routes.iter().any(|route| route.to == to && route.table == table);
    match step {
        Step::AddRoute(route) => is_there(route.to, route.table).then_some(Errno::EXIST),
        Step::DeleteRoute(route) => (!is_there(route.to, route.table)).then_some(Errno::SRCH),
        Step::AddAddress { interface, .. }
        | Step::DeleteAddress { interface, .. }
        | Step::SetMtu { interface, .. }
        | Step::LinkUp { interface }
        | Step::DeleteLink { interface }
            if state.link(interface).is_none() =>
        {
            Some(Errno::NODEV)
        }
        Step::DeleteAddress { interface, address } => {
            let has = |name| state.link(name).is_some_and(|link| link.addresses.contains(address));
            (!has(interface)).then_some(Errno::ADDRNOTAVAIL)
        }
        _ => None,
    }
}

/// How often, every [`PAUSE`], to see whether an interface is gone.
const PAUSES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// How long a program may run.
const LIMIT: Duration = Duration::from_secs(10);

/// The programs of the system.
struct OfSystem;

impl Programs for OfSystem {
    fn run(&mut self, words: &[String]) -> io::Result<String> {
        let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("`{name}` is not in PATH"));
        let program = program::find(name).ok_or_else(missing)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        program::output(&program, &arguments, File::open("/dev/null")?, &WaitLimit { limit: LIMIT, stop: None })
    }

    fn pause(&mut self) {
        thread::sleep(PAUSE);
    }
}

/// A watch on the default routes. The routing socket tells of all routes, and on some systems of neighbours too; what is a
/// change is seen by comparing. What a tunnel has set is not watched.
pub struct HostWatch {
    monitor: Monitor,
    defaults: Defaults,
}

impl HostWatch {
    /// # Errors
    /// There is no socket, or the routes cannot be read.
    pub fn new() -> io::Result<Self> {
        // The socket first, so that no change is missed.
        Ok(Self { monitor: Monitor::new()?, defaults: Defaults::of(Host::open()?)? })
    }

    /// What has changed, or may have, since the last call.
    pub fn clear(&mut self, _: &str) -> HostChanges {
        let mut any = false;
        while self.monitor.next().is_some() {
            any = true;
        }
        HostChanges { default_routes: any && self.defaults.have_changed(), ..HostChanges::default() }
    }

    /// The descriptors that become readable with a change.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.monitor.as_fd())
    }
}

/// The default routes of a host as they were last seen.
struct Defaults {
    host: Host,
    seen: Vec<Route>,
}

impl Defaults {
    fn of(mut host: Host) -> io::Result<Self> {
        let seen = Self::read(&mut host)?;
        Ok(Self { host, seen })
    }

    fn read(host: &mut Host) -> io::Result<Vec<Route>> {
        let mut routes = host.state()?.routes;
        routes.retain(|route| route.to.prefix_len() == 0);
        Ok(routes)
    }

    /// Whether they have changed since the last call, or cannot be read.
    fn have_changed(&mut self) -> bool {
        Self::read(&mut self.host).map_or(true, |now| std::mem::replace(&mut self.seen, now) != self.seen)
    }
}
