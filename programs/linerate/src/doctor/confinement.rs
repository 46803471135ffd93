//! Checks how far daemons and supervisors are confined. `--security` shows all of it, and whether the protection of the
//! tunnels' hosts is in force; without it, missing confinement is a finding.
//!
//! Reads /proc, and linerated's counters for what /proc does not show.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use linerate_control::client::{self, TunnelClient};
use linerate_control::interface::InterfaceName;
use linerate_control::printable::printable;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::socket;
use linerate_netio::process::peer;
use rustix::thread::CapabilitySet;
use serde::Serialize;

use linerate_cli::{eprint_line, print};
use linerate_doctor::{Finding, Severity};
use linerate_privileges::{
    CALLS_FILTERED, CALLS_REFUSED, DAEMON_MAX, LANDLOCK_VERSION, LAST_CALL_REFUSED, MEMORY_CLOSED,
};
use linerate_tunnel::status::{Status, status};
use linerate_wg::show;

use super::process::Process;
use super::{gather, render, supervisor};

/// Prints how far the daemons and supervisors are confined, and whether the protection of their hosts is in force.
/// Exits with 1 if anything is missing or cannot be checked; notes do not count.
pub(super) fn main(interface: Option<&InterfaceName>, json: bool) -> Result<ExitCode, String> {
    let directory = Path::new(socket::DIRECTORY);
    let names = match interface {
        Some(interface) => vec![interface.to_string()],
        None => client::names(directory).map_err(|error| format!("cannot list the tunnels: {error}"))?,
    };
    let (mut examined, mut failed) = (Vec::new(), false);
    for name in &names {
        let all = examine_all(name).and_then(|mut all| {
            let (findings, is_judged) = in_force(name)?;
            failed |= !is_judged;
            all[0].findings = findings;
            Ok(all)
        });
        match all {
            Ok(all) => examined.extend(all),
            Err(error) if interface.is_some() => return Err(error),
            Err(error) => {
                failed = true;
                eprint_line(&format!("linerate: {error}"));
            }
        }
    }
    if json {
        let mut text = serde_json::to_vec_pretty(&examined).map_err(|error| format!("cannot write JSON: {error}"))?;
        text.push(b'\n');
        print(&text)?;
    } else {
        if names.is_empty() {
            eprint_line("there are no tunnels; `linerate up NAME` brings one up");
        }
        let texts: Vec<String> = examined.iter().map(Examined::render).collect();
        print(texts.join("\n").as_bytes())?;
    }
    let passed = |one: &Examined| {
        let mut findings = one.findings.iter();
        one.items.iter().all(|item| item.good) && findings.all(|finding| finding.severity == Severity::Note)
    };
    let all_passed = !failed && examined.iter().all(passed);
    Ok(if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Finds missing protection of the tunnel and its host. Returns false if the firewall's rules could not be read.
fn in_force(name: &str) -> Result<(Vec<Finding>, bool), String> {
    let all = status(Some(name)).map_err(|error| error.to_string())?;
    let Some(status) = all.first() else { return Ok((Vec::new(), true)) };
    let (findings, has_rules) = gather::in_force(status)?;
    if !has_rules {
        eprint_line(&format!(
            "linerate: {name}: cannot read the firewall's rules, so they are not checked: run this as root"
        ));
    }
    Ok((findings, has_rules))
}

/// What is missing, as findings. Other daemons do not confine themselves, and what cannot be read is not known to be
/// missing: `--security` tells of both.
pub(super) fn findings(name: &str, status: &Status) -> Vec<Finding> {
    if !status.is_running() {
        return Vec::new();
    }
    let all = examine_all(name).unwrap_or_default();
    let is_ours = |one: &Examined| one.role.is_some() || one.has_counters;
    let weak = |one: Examined| {
        let role = one.role.unwrap_or("daemon");
        let finding = move |item: Item| {
            let what = format!("the {role} is less confined than it could be");
            let why = format!("{}: {}", item.name, item.state);
            Finding::new("confinement-weak", name, what, why, item.advice.unwrap_or_default())
        };
        one.items.into_iter().filter(|item| !item.good).map(finding)
    };
    all.into_iter().filter(is_ours).flat_map(weak).collect()
}

/// The daemon of a tunnel, and its supervisor.
fn examine_all(name: &str) -> Result<Vec<Examined>, String> {
    let mut daemon = examine(Path::new(socket::DIRECTORY), name)?;
    daemon.items.extend(supervisor::copy(name));
    Ok([daemon].into_iter().chain(supervisor::examine(name)).collect())
}

/// The results for one tunnel or its supervisor.
#[derive(Serialize)]
pub(super) struct Examined {
    pub(super) interface: String,
    /// `background supervisor` or `service supervisor`, if this is about that process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    /// The daemon's process and program; none for the kernel's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) process: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) program: Option<String>,
    pub(super) items: Vec<Item>,
    /// Missing protection of the tunnel and its host; only in the daemon's entry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) findings: Vec<Finding>,
    /// It is a daemon that tells how far it is confined.
    #[serde(skip)]
    pub(super) has_counters: bool,
}

/// One check.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Item {
    pub(super) name: &'static str,
    /// The state that was found.
    pub(super) state: String,
    /// Whether the check passed.
    pub(super) good: bool,
    /// The fix, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<Cow<'static, str>>,
}

/// Checks the daemon of the tunnel `name`.
fn examine(directory: &Path, name: &str) -> Result<Examined, String> {
    let inaccessible = |error: ClientError| show::inaccessible(name, &error);
    let mut tunnel = TunnelClient::open(directory, name).map_err(inaccessible)?;
    let Some(socket) = tunnel.closed() else {
        tunnel.get().map_err(inaccessible)?;
        return Ok(Examined::without_process(name));
    };
    let pid = peer(socket).map_err(|error| inaccessible(error.into()))?;
    let pid = pid.ok_or_else(|| format!("{name}: its daemon is in another PID namespace; run this command there"))?;
    let process = Process::read(pid).map_err(|error| {
        format!(
            "{name}: cannot examine process {pid}, which created its socket: {error}; it may have passed the socket on"
        )
    })?;
    let counters = match tunnel.stats() {
        Err(ClientError::Io(error)) if error.kind() == ErrorKind::TimedOut => return Err(inaccessible(error.into())),
        // Other daemons close the connection.
        counters => counters.unwrap_or_default(),
    };
    Ok(Examined {
        interface: name.to_owned(),
        role: None,
        process: Some(pid),
        items: items(&process, &counters),
        findings: Vec::new(),
        has_counters: !counters.is_empty(),
        program: Some(process.program),
    })
}

type Counters = [(String, u64)];

fn items(process: &Process, counters: &Counters) -> Vec<Item> {
    let own_memory = ["closed to others", "open to the same user"];
    vec![
        user(process, counters),
        capabilities("capabilities", process.capabilities, counters),
        capabilities("bounding set", process.bounding, counters),
        item("new privileges", process.no_new_privs, PRIVILEGES, of(counters, NO_NEW_PRIVS)),
        system_calls(process, counters),
        files(counters),
        from_counter("own memory", MEMORY_CLOSED, own_memory, of(counters, OWN_MEMORY), counters),
        item("core files", !process.core_files, ["none", "enabled; they would contain keys"], of(counters, CORE_FILES)),
        item("swap", process.locked > 0, ["memory is locked", "keys can be swapped out"], of(counters, SWAP)),
    ]
}

pub(super) const PRIVILEGES: [&str; 2] = ["none can be gained", "can be gained"];

/// The fix, for linerated and for another daemon.
type Advice = [&'static str; 2];

const USER: Advice = ["set `#! User = NAME` in the tunnel's file", "set User= in its unit, if it can run without root"];
const CAPABILITIES: Advice =
    ["grant CAP_SETPCAP", "set CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_BIND_SERVICE in its unit"];
const NO_NEW_PRIVS: Advice = ["needs Linux 3.5", "set NoNewPrivileges=yes in its unit"];
const CALLS: Advice =
    ["needs seccomp filters, and LINERATE_SECCOMP neither log nor off", "set SystemCallFilter= in its unit"];
const FILES: Advice =
    ["add landlock to the kernel's parameter lsm= (Linux 5.13)", "set ProtectSystem=strict in its unit"];
const OWN_MEMORY: Advice = ["run nothing else as its user"; 2];
const CORE_FILES: Advice = ["set LimitCORE=0 in its unit"; 2];
const SWAP: Advice = ["grant CAP_IPC_LOCK, set LimitMEMLOCK=infinity, or encrypt the swap", "encrypt the swap"];

/// The fix for this daemon: only linerated has counters.
fn of(counters: &Counters, [ours, other]: Advice) -> &'static str {
    if counters.is_empty() { other } else { ours }
}

pub(super) fn item(name: &'static str, good: bool, [yes, no]: [&str; 2], advice: &'static str) -> Item {
    let state = if good { yes } else { no }.to_owned();
    Item { name, state, good, advice: (!good).then_some(advice.into()) }
}

/// As [`item`], from a counter that only linerated has.
fn from_counter(
    name: &'static str,
    counter: &str,
    words: [&str; 2],
    advice: &'static str,
    counters: &Counters,
) -> Item {
    match count(counters, counter) {
        Some(value) => item(name, value > 0, words, advice),
        None => Item { name, state: "unknown".into(), good: false, advice: Some(advice.into()) },
    }
}

/// Without capabilities, root can only open root's own files, which Landlock denies.
fn user(process: &Process, counters: &Counters) -> Item {
    let name = if process.uid == 0 { "root".to_owned() } else { format!("user {}", process.uid) };
    let good = process.uid != 0 || count(counters, LANDLOCK_VERSION) > Some(0);
    item("user", good, [&name, &name], of(counters, USER))
}

fn capabilities(name: &'static str, set: CapabilitySet, counters: &Counters) -> Item {
    let state = capability_names(set);
    item(name, DAEMON_MAX.contains(set), [&state, &state], of(counters, CAPABILITIES))
}

pub(super) fn capability_names(set: CapabilitySet) -> String {
    let names: Vec<String> = set.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    match names.len() {
        0 => "none".to_owned(),
        1..=MAX_NAMED_CAPABILITIES => names.join(" "),
        many => format!("{many} of them"),
    }
}

/// Number of capabilities up to which they are listed by name.
const MAX_NAMED_CAPABILITIES: usize = 6;

fn system_calls(process: &Process, counters: &Counters) -> Item {
    let logged_only = count(counters, CALLS_FILTERED) == Some(0);
    let mut filtered = "filtered".to_owned();
    match (count(counters, CALLS_REFUSED), count(counters, LAST_CALL_REFUSED)) {
        (Some(refused), Some(last)) => {
            let _ = write!(filtered, "; {refused} refused, number {last} last");
        }
        (Some(_), None) => filtered.push_str("; none refused"),
        _ => {}
    }
    item("system calls", process.filtered && !logged_only, [&filtered, "all allowed"], of(counters, CALLS))
}

fn files(counters: &Counters) -> Item {
    let confined =
        count(counters, LANDLOCK_VERSION).map_or(String::new(), |version| format!("closed (Landlock {version})"));
    from_counter("files", LANDLOCK_VERSION, [&confined, "open"], of(counters, FILES), counters)
}

fn count(counters: &Counters, name: &str) -> Option<u64> {
    counters.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
}

impl Examined {
    /// A tunnel that the kernel runs.
    fn without_process(interface: &str) -> Self {
        let (interface, items) = (interface.to_owned(), Vec::new());
        Self { interface, role: None, process: None, program: None, items, findings: Vec::new(), has_counters: false }
    }

    /// An aligned table below a headline.
    fn render(&self) -> String {
        let mut text = match (self.process, &self.program) {
            (Some(process), Some(program)) => {
                let role = self.role.map_or(String::new(), |role| format!(", its {role}"));
                format!("{}{role}: {}, process {process}\n", self.interface, printable(program))
            }
            _ => format!("{}: run by the kernel: there is no process to confine\n", self.interface),
        };
        let width = |cell: fn(&Item) -> &str| self.items.iter().map(|item| cell(item).len()).max().unwrap_or(0);
        let (names, states) = (width(|item| item.name), width(|item| &item.state));
        for Item { name, state, advice, .. } in &self.items {
            let verdict = advice.as_ref().map_or("ok".to_owned(), |advice| format!("fix: {advice}"));
            let _ = writeln!(text, "  {name:names$}  {state:states$}  {verdict}");
        }
        self.findings.iter().for_each(|finding| render::write(&mut text, finding));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confined() -> Process {
        Process {
            program: "linerated".into(),
            uid: 0,
            capabilities: CapabilitySet::NET_ADMIN,
            bounding: CapabilitySet::NET_ADMIN,
            no_new_privs: true,
            filtered: true,
            locked: 4096,
            core_files: false,
        }
    }

    fn linerateds_counters() -> Vec<(String, u64)> {
        [(LANDLOCK_VERSION, 7), (MEMORY_CLOSED, 1), (CALLS_FILTERED, 1), (CALLS_REFUSED, 0)]
            .map(|(name, count)| (name.to_owned(), count))
            .into()
    }

    fn weak(items: &[Item]) -> Vec<&str> {
        items.iter().filter(|item| !item.good).map(|item| item.name).collect()
    }

    #[test]
    fn a_confined_daemon_passes_without_advice() {
        let items = items(&confined(), &linerateds_counters());
        assert_eq!(weak(&items), Vec::<&str>::new());
        assert!(items.iter().all(|item| item.advice.is_none()));
    }

    #[test]
    fn each_missing_protection_is_reported_with_advice() {
        let all = CapabilitySet::all();
        let lacking = [
            (Process { capabilities: all, ..confined() }, "capabilities"),
            (Process { bounding: all, ..confined() }, "bounding set"),
            (Process { no_new_privs: false, ..confined() }, "new privileges"),
            (Process { filtered: false, ..confined() }, "system calls"),
            (Process { core_files: true, ..confined() }, "core files"),
            (Process { locked: 0, ..confined() }, "swap"),
        ];
        for (process, name) in lacking {
            let items = items(&process, &linerateds_counters());
            assert_eq!(weak(&items), [name]);
            assert!(items.iter().all(|item| item.advice.is_some() != item.good));
        }
        for (counter, names) in [
            (LANDLOCK_VERSION, &["user", "files"][..]),
            (MEMORY_CLOSED, &["own memory"]),
            (CALLS_FILTERED, &["system calls"]),
        ] {
            let mut counters = linerateds_counters();
            counters.iter_mut().filter(|(name, _)| name == counter).for_each(|(_, count)| *count = 0);
            assert_eq!(weak(&items(&confined(), &counters)), names);
        }
    }

    #[test]
    fn a_refused_system_call_is_reported_with_its_number() {
        let mut counters = linerateds_counters();
        counters.retain(|(name, _)| name != CALLS_REFUSED);
        counters.extend([(CALLS_REFUSED.to_owned(), 3), (LAST_CALL_REFUSED.to_owned(), 59)]);
        assert_eq!(system_calls(&confined(), &counters).state, "filtered; 3 refused, number 59 last");
    }

    #[test]
    fn a_protection_that_another_daemon_does_not_report_is_unknown() {
        assert_eq!(weak(&items(&confined(), &[])), ["user", "files", "own memory"]);
    }

    #[test]
    fn a_tunnel_of_the_kernel_has_nothing_to_confine() {
        let kernels = Examined::without_process("wg0");
        assert_eq!(kernels.render(), "wg0: run by the kernel: there is no process to confine\n");
    }

    #[test]
    fn the_table_is_aligned() {
        let items = items(&Process { locked: 0, ..confined() }, &linerateds_counters());
        let examined = Examined {
            interface: "wg0".into(),
            role: None,
            process: Some(7),
            program: Some("linerated".into()),
            items,
            findings: Vec::new(),
            has_counters: true,
        };
        let text = examined.render();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "wg0: linerated, process 7");
        let at = lines[1].find("ok").unwrap();
        assert!(lines[1..9].iter().all(|line| line.find("ok") == Some(at)), "{text}");
        assert_eq!(lines[9].find("fix: "), Some(at), "{text}");
    }
}
