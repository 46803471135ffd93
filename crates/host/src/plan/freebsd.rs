//! FreeBSD: the same tunnels, as commands. Pure, as the plans for Linux are: the commands are data, each with what
//! takes it back.
//!
//! FreeBSD has no rules of policy routing. A full tunnel is two half routes, which win over the default route without
//! taking its place, and what must not go into the tunnel (endpoints, excluded prefixes) has routes of its own by the
//! way that it takes without the tunnel. Routes have no metric, so that of two to the same prefix only one can be.
//! A `Table` with a number is a FIB: the routes go there, for programs that are started with `setfib`; the tunnel's own
//! datagrams stay in FIB 0, so that no `tunnelfib` is set.
//!
//! A state for it is a [`HostState`] whose routes have their FIB as table, and which has no rules. Routes over the
//! interface go with it (rt_flushifroutes in sys/net/route/route_ifaddrs.c), and need no taking back.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::conflicts::{Resolved, Rivals};
use super::{Hooks, Refusal, Warning, addresses, mtu, routes};
use crate::state::HostState;
use crate::step::{Backend, Family, Phase, Route, Step};
use crate::wanted::{Dns, RouteConflict, Table, Wanted};

/// The FIB of whoever says none (setfib(1)).
const DEFAULT_FIB: u32 = 0;

/// Commands in the order in which they are to be run, and what a person should know of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The commands.
    pub commands: Vec<Command>,
    /// What is not as the file has it, and why.
    pub warnings: Vec<Warning>,
}

/// One change of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Command {
    /// Runs a program.
    Run {
        /// Its name and arguments.
        argv: Vec<String>,
        /// What it reads.
        input: Option<String>,
        /// The program that takes it back, if that does not go with the interface.
        undo: Option<Vec<String>>,
    },
    /// Starts the daemon, which makes the interface.
    StartDaemon {
        /// The interface.
        interface: String,
    },
    /// Stops the daemon, with which the interface goes.
    StopDaemon {
        /// The interface.
        interface: String,
    },
    /// Gives the keys, the port and the peers to whatever runs the tunnel.
    Configure {
        /// The interface.
        interface: String,
    },
    /// Runs a command of the file's with the shell.
    Hook {
        /// When.
        phase: Phase,
        /// The command, `%i` replaced.
        command: String,
    },
}

impl Command {
    /// The command as wg-quick(8) echoes it, without its `[#] `.
    pub fn line(&self) -> String {
        match self {
            Self::Run { argv, .. } => argv.join(" "),
            Self::StartDaemon { interface } => format!("linerated {interface}"),
            Self::StopDaemon { interface } => format!("rm -f /var/run/wireguard/{interface}.sock"),
            Self::Configure { interface } => format!("wg setconf {interface} /dev/stdin"),
            Self::Hook { command, .. } => command.clone(),
        }
    }

    fn undo(&self) -> Option<Self> {
        match self {
            Self::Run { undo, .. } => Some(run(undo.clone()?)),
            Self::StartDaemon { interface } => Some(Self::StopDaemon { interface: interface.clone() }),
            _ => None,
        }
    }
}

/// The plan that brings a tunnel up.
///
/// # Errors
/// The interface exists already, or a policy says that it is not to come up like this, or a switch of the file needs
/// what FreeBSD does not have.
pub fn up(wanted: &Wanted, hooks: &Hooks, backend: Backend, state: &HostState) -> Result<Plan, Refusal> {
    let interface = &wanted.interface;
    if state.link(interface).is_some() {
        return Err(Refusal(format!("`{interface}' already exists")));
    }
    if wanted.kill_switch {
        let sentence = "KillSwitch is not for FreeBSD: block what does not leave by the tunnel in pf.conf, and take \
                        KillSwitch out of the file";
        return Err(Refusal(sentence.to_owned()));
    }
    let mtu = mtu::narrowest(wanted, |address| path_mtu(state, address), || default_mtu(state));
    let without = addresses::without(state, mtu);
    let mut noted = super::Plan::default();
    let connected = addresses::plan(wanted, &without, &mut noted);
    let of_addresses: Vec<Command> = noted.steps.iter().filter_map(add_address).collect();
    let of_routes = Ways::of(wanted, state).plan(&connected, &without, &mut noted)?;

    let mut commands = vec![add_link(interface, backend)];
    commands.extend(hooks_of(hooks, Phase::PreUp));
    commands.push(Command::Configure { interface: interface.clone() });
    commands.extend(of_addresses);
    commands.push(run(words(["ifconfig", interface, "mtu", &mtu.to_string()])));
    commands.push(run(words(["ifconfig", interface, "up"])));
    commands.extend(set_dns(interface, &wanted.dns));
    commands.extend(of_routes);
    commands.extend(hooks_of(hooks, Phase::PostUp));
    Ok(Plan { commands, warnings: noted.warnings })
}

/// The commands that take back what was done, in reverse order. `hooks` are those to run, as for [`super::undo`].
pub fn undo(done: &[Command], hooks: &Hooks) -> Vec<Command> {
    let is_link = |command: &Command| matches!(command, Command::StopDaemon { .. }) || is_destroy(command);
    let (link, rest): (Vec<Command>, Vec<Command>) = done.iter().rev().filter_map(Command::undo).partition(is_link);
    let (comes_back, goes): (Vec<Command>, Vec<Command>) = rest.into_iter().partition(is_route_that_comes_back);
    let mut commands: Vec<Command> = hooks_of(hooks, Phase::PreDown).collect();
    // A route that was replaced comes back when ours has gone with the interface.
    commands.extend(goes.into_iter().chain(link).chain(comes_back));
    commands.extend(hooks_of(hooks, Phase::PostDown));
    commands
}

/// What routes are made of.
struct Ways<'a> {
    wanted: &'a Wanted,
    state: &'a HostState,
    /// What stays outside of the tunnel.
    excluded: Vec<IpNet>,
}

impl<'a> Ways<'a> {
    fn of(wanted: &'a Wanted, state: &'a HostState) -> Self {
        let is_of_link = |route: &&Route| {
            let is_network = route.to.prefix_len() > 0 && route.to.prefix_len() < route.to.max_prefix_len();
            let is_elsewhere = route.device.as_deref().is_some_and(|device| !device.starts_with("lo"));
            wanted.exclude_lan && route.table == DEFAULT_FIB && route.via.is_none() && is_network && is_elsewhere
        };
        let of_links = state.routes.iter().filter(is_of_link).map(|route| route.to);
        Self { wanted, state, excluded: wanted.excluded.iter().map(IpNet::trunc).chain(of_links).collect() }
    }

    /// Adds the routes by which endpoints and what is excluded stay outside, then those into the tunnel.
    fn plan(
        &self,
        connected: &[IpNet],
        without: &[(Family, String)],
        noted: &mut super::Plan,
    ) -> Result<Vec<Command>, Refusal> {
        let mut prefixes = routes::sorted(self.wanted);
        prefixes.retain(|net| !addresses::is_without(without, net));
        let fib = match self.wanted.table {
            Table::Off => return Ok(Vec::new()),
            Table::Auto => DEFAULT_FIB,
            Table::Number(fib) => fib,
        };
        if self.wanted.table == Table::Auto {
            let (out, rest): (Vec<IpNet>, Vec<IpNet>) =
                prefixes.into_iter().partition(|to| self.excluded.iter().any(|net| net.contains(to)));
            for to in out {
                noted.warn(format!("there is no route to {to}: it is excluded from the tunnel"));
            }
            prefixes =
                rest.into_iter().filter(|to| !connected.iter().any(|net| net.contains(to))).flat_map(halves).collect();
        }
        let rivals = Rivals::of(self.wanted, self.state);
        let policy = self.policy(noted);
        let (mut replaced, mut routes) = (Vec::new(), Vec::new());
        for to in prefixes {
            let Resolved { replaced: rivals, route, .. } = rivals.resolve(&policy, self.route(to, fib), noted)?;
            replaced.extend(rivals);
            routes.extend(route);
        }
        let taken: Vec<IpNet> = routes.iter().map(|route| route.to).collect();
        let outside = if self.wanted.table == Table::Auto { self.stay_outside(&taken) } else { Vec::new() };
        let replaced = replaced.iter().map(replace);
        Ok(outside.into_iter().chain(replaced).chain(routes.iter().map(add_route)).collect())
    }

    /// Routes have no metric here, so that a rival can only stay or go.
    fn policy(&self, noted: &mut super::Plan) -> Wanted {
        let mut policy = self.wanted.clone();
        if policy.route_conflict == RouteConflict::Metric {
            policy.route_conflict = RouteConflict::Skip;
            noted.warn("RouteConflict = metric is skip here: routes of FreeBSD have no metric".to_owned());
        }
        policy
    }

    fn route(&self, to: IpNet, fib: u32) -> Route {
        Route {
            to,
            device: Some(self.wanted.interface.clone()),
            via: None,
            table: fib,
            metric: 0,
            protocol: 0,
            scope: 0,
            source: None,
            mtu: 0,
            onlink: false,
        }
    }

    /// The routes for what `taken` would take into the tunnel although it must not go there: by the way that it has
    /// without the tunnel, or into nothing if it has none, so that the tunnel never carries itself.
    fn stay_outside(&self, taken: &[IpNet]) -> Vec<Command> {
        let endpoints = self.wanted.endpoints.iter().map(|endpoint| IpNet::from(endpoint.ip()));
        let mut outside: Vec<IpNet> = Vec::new();
        for net in endpoints.chain(self.wanted.excluded.iter().map(IpNet::trunc)) {
            if !outside.contains(&net) {
                outside.push(net);
            }
        }
        outside.into_iter().filter_map(|net| self.stays_outside(&net, taken)).collect()
    }

    fn stays_outside(&self, net: &IpNet, taken: &[IpNet]) -> Option<Command> {
        let ours = taken.iter().filter(|to| to.contains(net)).map(IpNet::prefix_len).max()?;
        let path = mtu::longest(self.state, DEFAULT_FIB, &net.addr());
        if path.is_some_and(|path| path.to.prefix_len() > ours || path.to == *net) {
            return None;
        }
        let way = match path {
            Some(Route { via: Some(gateway), .. }) => words(["-gateway", &gateway.to_string()]),
            Some(Route { device: Some(device), .. }) => words(["-interface", device]),
            _ if net.addr().is_ipv4() => words(["127.0.0.1", "-blackhole"]),
            _ => words(["::1", "-blackhole"]),
        };
        Some(Command::Run {
            argv: route_command("add", net, DEFAULT_FIB, &way),
            input: None,
            undo: Some(route_command("delete", net, DEFAULT_FIB, &[])),
        })
    }
}

/// A default route is two halves, so that the one that is there stays, and is not used.
fn halves(to: IpNet) -> Vec<IpNet> {
    if to.prefix_len() > 0 {
        return vec![to];
    }
    to.subnets(1).map(Iterator::collect).unwrap_or_default()
}

fn add_link(interface: &str, backend: Backend) -> Command {
    match backend {
        Backend::Daemon => Command::StartDaemon { interface: interface.to_owned() },
        Backend::Kernel => Command::Run {
            argv: words(["ifconfig", "wg", "create", "name", interface]),
            input: None,
            undo: Some(words(["ifconfig", interface, "destroy"])),
        },
    }
}

fn add_address(step: &Step) -> Option<Command> {
    let Step::AddAddress { interface, address } = step else { return None };
    Some(run(words(["ifconfig", interface, inet(Family::of_net(address)), &address.to_string(), "alias"])))
}

fn set_dns(interface: &str, dns: &Dns) -> Option<Command> {
    if dns.is_empty() {
        return None;
    }
    let servers: String = dns.servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    let search = if dns.search.is_empty() { String::new() } else { format!("search {}\n", dns.search.join(" ")) };
    let mut argv = words(["resolvconf", "-a", interface]);
    if !dns.servers.is_empty() {
        argv.push("-x".to_owned());
    }
    Some(Command::Run { argv, input: Some(servers + &search), undo: Some(words(["resolvconf", "-d", interface])) })
}

fn add_route(route: &Route) -> Command {
    run(route_command("add", &route.to, route.table, &way_of(route)))
}

fn replace(rival: &Route) -> Command {
    Command::Run {
        argv: route_command("delete", &rival.to, rival.table, &[]),
        input: None,
        undo: Some(route_command("add", &rival.to, rival.table, &way_of(rival))),
    }
}

fn way_of(route: &Route) -> Vec<String> {
    match (&route.device, route.via) {
        (_, Some(gateway)) => words(["-gateway", &gateway.to_string()]),
        (Some(device), None) => words(["-interface", device]),
        (None, None) => words(["127.0.0.1", "-blackhole"]),
    }
}

/// `route -q -n add -inet 10.0.0.0/24 -interface wg0`; a host is named without its length.
fn route_command(verb: &str, to: &IpNet, fib: u32, way: &[String]) -> Vec<String> {
    let family = format!("-{}", inet(Family::of_net(to)));
    let mut argv = words(["route", "-q", "-n", verb, &family]);
    if fib != DEFAULT_FIB {
        argv.extend(words(["-fib", &fib.to_string()]));
    }
    argv.push(if to.prefix_len() == to.max_prefix_len() { to.addr().to_string() } else { to.to_string() });
    argv.extend(way.iter().cloned());
    argv
}

fn is_destroy(command: &Command) -> bool {
    matches!(command, Command::Run { argv, .. } if argv.last().is_some_and(|word| word == "destroy"))
}

fn is_route_that_comes_back(command: &Command) -> bool {
    matches!(command, Command::Run { argv, .. } if argv.starts_with(&words(["route", "-q", "-n", "add"])))
}

fn path_mtu(state: &HostState, address: &IpAddr) -> Option<u32> {
    mtu::route_mtu(state, mtu::longest(state, DEFAULT_FIB, address)?)
}

fn default_mtu(state: &HostState) -> Option<u32> {
    let mut routes = state.routes.iter().filter(|route| route.table == DEFAULT_FIB && route.to.prefix_len() == 0);
    mtu::route_mtu(state, routes.next()?)
}

fn hooks_of(hooks: &Hooks, phase: Phase) -> impl Iterator<Item = Command> + '_ {
    let of_phase = hooks.commands.iter().filter(move |(when, _)| *when == phase);
    of_phase.map(|(phase, command)| Command::Hook { phase: *phase, command: command.clone() })
}

fn run(argv: Vec<String>) -> Command {
    Command::Run { argv, input: None, undo: None }
}

fn inet(family: Family) -> &'static str {
    match family {
        Family::V4 => "inet",
        Family::V6 => "inet6",
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}
