//! Opens and closes ways in firewalls of others, by the program that keeps each. Opening what is open and closing what
//! is closed changes nothing, so that both can be done again after a kill.
//!
//! A program goes on when linerate is killed. It has a lock file as its standard input, which is released by its end:
//! the next change waits for it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use linerate_host::linux::Host;
use linerate_host::linux::program::{self, WaitLimit};
use linerate_host::plan::opening::{firewalld_names, iptables, to_close, to_open, ufw_tuples};
use linerate_host::step::{ForeignFirewall, Opening, Way};
use rustix::fs::{FlockOperation, flock};

use crate::ledger;

/// How long a program may run: firewalld loads thousands of rules on a slow machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Opens a way.
///
/// # Errors
/// In one sentence; nothing of it is left.
pub(super) fn open(host: &mut Host, opening: &Opening) -> io::Result<()> {
    let tool = Tool::lock()?;
    match &opening.firewall {
        ForeignFirewall::Nftables { .. } => host.change_foreign(opening, true),
        ForeignFirewall::Iptables { program, chain } => {
            let mark = opening.mark();
            match tool.run(&iptables(program, "-C", chain, &opening.way, Some(&mark))) {
                Ok(_) => Ok(()),
                Err(_) => tool.run_all(&to_open(opening)),
            }
        }
        ForeignFirewall::Ufw => match ufw_rules(&opening.way, None) {
            // Somebody else's, which is not ours to delete later.
            true => Ok(()),
            false => tool.run_all(&to_open(opening)),
        },
        ForeignFirewall::Firewalld { zone } => {
            tool.run(&words("firewall-cmd --state"))?;
            tool.delete_firewalld(opening, "firewall-cmd --permanent")?;
            if !tool.firewalld_is_permanent()? {
                return Err(io::Error::other(
                    "firewalld has settings that are not permanent, and what is opened needs \
                     `firewall-cmd --reload`, which loses them; `firewall-cmd --runtime-to-permanent` keeps them",
                ));
            }
            let opened = tool.open_firewalld(opening, zone.is_none());
            if opened.is_err() {
                let _ = tool.delete_firewalld(opening, "firewall-cmd --permanent");
            }
            opened
        }
    }
}

/// Closes a way. Returns what is left of it until somebody else has done something.
///
/// # Errors
/// In one sentence.
pub(super) fn close(host: &mut Host, opening: &Opening) -> io::Result<Option<String>> {
    let tool = Tool::lock()?;
    match &opening.firewall {
        ForeignFirewall::Nftables { .. } => host.change_foreign(opening, false)?,
        ForeignFirewall::Iptables { program, chain } => {
            if program::find(program).is_none() {
                return Ok(None);
            }
            let mark = opening.mark();
            // A rule may be there twice only if somebody has restored a copy of the rules.
            for _ in 0..MOST_COPIES {
                if tool.run(&iptables(program, "-C", chain, &opening.way, Some(&mark))).is_err() {
                    break;
                }
                tool.run_all(&to_close(opening))?;
            }
        }
        ForeignFirewall::Ufw => {
            if ufw_rules(&opening.way, Some(&opening.mark())) {
                tool.run_all(&to_close(opening))?;
            }
        }
        ForeignFirewall::Firewalld { .. } => return tool.close_firewalld(opening),
    }
    Ok(None)
}

const MOST_COPIES: usize = 16;

/// Whether ufw's files have a rule for this way: with this comment, or with any other or none.
fn ufw_rules(way: &Way, comment: Option<&str>) -> bool {
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let ours = |rest: &str| match rest.strip_prefix(" comment=") {
        Some(found) => comment.map_or_else(|| !found.starts_with(&hex("linerate ")), |mark| found == hex(mark)),
        None => rest.is_empty() && comment.is_none(),
    };
    let files = ["/etc/ufw/user.rules", "/etc/ufw/user6.rules"];
    files.into_iter().zip(ufw_tuples(way)).any(|(path, tuple)| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| line.strip_prefix(&tuple)).any(|rest| ours(rest.trim_end()))
    })
}

/// The programs of firewalls, one at a time.
struct Tool {
    lock: File,
}

impl Tool {
    /// Waits until what a killed command has started is done.
    fn lock() -> io::Result<Self> {
        let path = ledger::directory().join("firewall-lock");
        File::options().create(true).append(true).open(&path)?;
        // Read only: a program that is asked something on its standard input finds its end.
        let lock = File::open(&path)?;
        flock(lock.as_fd(), FlockOperation::LockExclusive)?;
        Ok(Self { lock })
    }

    fn run(&self, command: &[String]) -> io::Result<String> {
        let [name, arguments @ ..] = command else { return Ok(String::new()) };
        let found = program::find(name).ok_or_else(|| io::Error::other(format!("there is no program {name}")))?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // Not stopped by a signal: half of a change is worse than waiting for it.
        program::output(&found, &arguments, self.lock.try_clone()?, &WaitLimit { limit: LIMIT, stop: None })
    }

    fn run_all(&self, commands: &[Vec<String>]) -> io::Result<()> {
        commands.iter().try_for_each(|command| self.run(command).map(drop))
    }

    fn open_firewalld(&self, opening: &Opening, has_own_zone: bool) -> io::Result<()> {
        let mut commands = to_open(opening);
        let reload = commands.pop();
        self.run_all(&commands)?;
        if has_own_zone && matches!(opening.way, Way::Tunnel { .. }) {
            self.copy_services(&firewalld_names(&opening.interface).zone)?;
        }
        reload.iter().try_for_each(|command| self.run(command).map(drop))
    }

    /// Lets the tunnel's zone reach what the default zone does, in which the tunnel was until then.
    fn copy_services(&self, zone: &str) -> io::Result<()> {
        let default = self.run(&words("firewall-cmd --get-default-zone"))?;
        for (list, option) in [("--list-services", "--add-service"), ("--list-ports", "--add-port")] {
            let listed = self.run(&words(&format!("firewall-cmd --permanent --zone={} {list}", default.trim())))?;
            let mut command = words(&format!("firewall-cmd --permanent --zone={zone}"));
            command.extend(listed.split_whitespace().map(|word| format!("{option}={word}")));
            if !listed.trim().is_empty() {
                self.run(&command)?;
            }
        }
        Ok(())
    }

    fn close_firewalld(&self, opening: &Opening) -> io::Result<Option<String>> {
        if program::find("firewall-cmd").is_none() {
            return Ok(None);
        }
        if self.run(&words("firewall-cmd --state")).is_err() {
            return self.delete_firewalld(opening, "firewall-offline-cmd").map(|()| None);
        }
        self.delete_firewalld(opening, "firewall-cmd --permanent")?;
        if self.firewalld_objects("firewall-cmd")?.is_disjoint(&objects(opening)) {
            return Ok(None);
        }
        if !self.firewalld_is_permanent()? {
            let names: Vec<String> = objects(opening).into_iter().collect();
            return Ok(Some(format!(
                "firewalld has settings that are not permanent, and `firewall-cmd --reload` would lose them: {} stay until it is run",
                names.join(", ")
            )));
        }
        self.run(&words("firewall-cmd --reload")).map(|_| None)
    }

    /// Deletes what there is of it, without loading that.
    fn delete_firewalld(&self, opening: &Opening, program: &str) -> io::Result<()> {
        let there = self.firewalld_objects(program)?;
        for command in to_close(opening).iter().flatten() {
            let name = command.split_once('=').filter(|(option, _)| option.starts_with("--delete-"));
            if name.is_some_and(|(_, name)| there.contains(name)) {
                self.run(&words(&format!("{program} {command}")))?;
            }
        }
        Ok(())
    }

    /// The names of all zones and policies.
    fn firewalld_objects(&self, program: &str) -> io::Result<BTreeSet<String>> {
        let listed = |option: &str| self.run(&words(&format!("{program} {option}")));
        let all = listed("--get-zones")? + " " + &listed("--get-policies")?;
        Ok(all.split_whitespace().map(str::to_owned).collect())
    }

    /// Whether what firewalld has loaded is what it has on disk, but for what is ours. NetworkManager puts its
    /// interfaces into their zones again after a reload.
    fn firewalld_is_permanent(&self) -> io::Result<bool> {
        let has_manager = fs::exists("/run/NetworkManager")?;
        for what in ["--list-all-zones", "--list-all-policies", "--direct --get-all-rules"] {
            let loaded = self.run(&words(&format!("firewall-cmd {what}")))?;
            let on_disk = self.run(&words(&format!("firewall-cmd --permanent {what}")))?;
            if settings(&loaded, !has_manager) != settings(&on_disk, !has_manager) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The names of what a way is in firewalld.
fn objects(opening: &Opening) -> BTreeSet<String> {
    let names = firewalld_names(&opening.interface);
    match opening.way {
        Way::Port { .. } => [names.port].into(),
        _ => [names.zone, names.from_tunnel, names.into_tunnel].into(),
    }
}

/// What firewalld lists, without what is ours.
fn settings(listed: &str, with_interfaces: bool) -> Vec<String> {
    let blocks = listed.split("\n\n").map(|block| {
        let lines = block.lines().filter(|line| with_interfaces || !line.trim_start().starts_with("interfaces:"));
        let lines: Vec<&str> = lines.map(|line| line.strip_suffix(" (active)").unwrap_or(line)).collect();
        lines.join("\n").trim().to_owned()
    });
    let mut blocks: Vec<String> = blocks.filter(|block| !block.is_empty() && !block.starts_with("lr-")).collect();
    blocks.sort();
    blocks
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_makes_no_difference_in_firewalld() {
        let loaded = "public (active)\n  target: default\n  interfaces: eth0\n\nlr-wg0 (active)\n  target: default\n";
        let on_disk = "public\n  target: default\n  interfaces: \n\n";
        assert_eq!(settings(loaded, false), settings(on_disk, false));
        assert_ne!(settings(loaded, true), settings(on_disk, true));
        assert_ne!(settings(&on_disk.replace("default", "DROP"), false), settings(on_disk, false));
    }
}
