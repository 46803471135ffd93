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

use linerate_host::plan::opening::{firewalld_names, iptables, to_close, to_open, ufw_tuples};
use linerate_host::program::{self, WaitLimit};
use linerate_host::step::{ForeignFirewall, Opening, Way};
use linerate_host::system::Host;
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
            let firewalld = tool.firewalld()?;
            tool.delete_firewalld(opening, "firewall-cmd --permanent", &firewalld.objects())?;
            if !firewalld.is_permanent {
                return Err(io::Error::other(
                    "firewalld has settings that are not permanent, and what is opened needs \
                     `firewall-cmd --reload`, which loses them; `firewall-cmd --runtime-to-permanent` keeps them",
                ));
            }
            let opened = tool.open_firewalld(opening, zone.is_none(), &firewalld);
            if opened.is_err() {
                let there = tool.firewalld_objects("firewall-cmd --permanent");
                let _ = there.and_then(|there| tool.delete_firewalld(opening, "firewall-cmd --permanent", &there));
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

    fn open_firewalld(&self, opening: &Opening, has_own_zone: bool, before: &Firewalld) -> io::Result<()> {
        let mut commands = to_open(opening);
        let reload = commands.pop();
        self.run_all(&commands)?;
        if has_own_zone && matches!(opening.way, Way::Tunnel { .. }) {
            self.copy_services(&firewalld_names(&opening.interface).zone, before)?;
        }
        reload.iter().try_for_each(|command| self.run(command).map(drop))
    }

    /// Lets the tunnel's zone reach what the default zone does, in which the tunnel was until then.
    fn copy_services(&self, zone: &str, before: &Firewalld) -> io::Result<()> {
        let default = self.run(&words("firewall-cmd --get-default-zone"))?;
        for (name, option) in [("services", "--add-service"), ("ports", "--add-port")] {
            let listed = before.of_zone(default.trim(), name);
            let mut command = words(&format!("firewall-cmd --permanent --zone={zone}"));
            command.extend(listed.iter().map(|word| format!("{option}={word}")));
            if !listed.is_empty() {
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
            let there = self.firewalld_objects("firewall-offline-cmd")?;
            return self.delete_firewalld(opening, "firewall-offline-cmd", &there).map(|()| None);
        }
        let there = self.firewalld_objects("firewall-cmd --permanent")?;
        self.delete_firewalld(opening, "firewall-cmd --permanent", &there)?;
        if self.firewalld_objects("firewall-cmd")?.is_disjoint(&objects(opening)) {
            return Ok(None);
        }
        if !self.firewalld()?.is_permanent {
            let names: Vec<String> = objects(opening).into_iter().collect();
            return Ok(Some(format!(
                "firewalld has settings that are not permanent, and `firewall-cmd --reload` would lose them: {} stay until it is run",
                names.join(", ")
            )));
        }
        self.run(&words("firewall-cmd --reload")).map(|_| None)
    }

    /// Deletes what is `there` of it, without loading that.
    fn delete_firewalld(&self, opening: &Opening, program: &str, there: &BTreeSet<String>) -> io::Result<()> {
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

    /// What firewalld has on disk, and whether it has loaded just that, but for what is ours. NetworkManager puts its
    /// interfaces into their zones again after a reload.
    fn firewalld(&self) -> io::Result<Firewalld> {
        let has_manager = fs::exists("/run/NetworkManager")?;
        let mut firewalld = Firewalld { zones: String::new(), policies: String::new(), is_permanent: true };
        for what in ["--list-all-zones", "--list-all-policies", "--direct --get-all-rules"] {
            let loaded = self.run(&words(&format!("firewall-cmd {what}")))?;
            let on_disk = self.run(&words(&format!("firewall-cmd --permanent {what}")))?;
            firewalld.is_permanent &= settings(&loaded, !has_manager) == settings(&on_disk, !has_manager);
            match what {
                "--list-all-zones" => firewalld.zones = on_disk,
                "--list-all-policies" => firewalld.policies = on_disk,
                _ => {}
            }
        }
        Ok(firewalld)
    }
}

/// What firewalld has on disk. Each of its programs takes up to a second to start, so this is asked for once.
struct Firewalld {
    zones: String,
    policies: String,
    /// Whether it has loaded just that.
    is_permanent: bool,
}

impl Firewalld {
    /// The names of all zones and policies.
    fn objects(&self) -> BTreeSet<String> {
        let lines = self.zones.lines().chain(self.policies.lines());
        lines.filter(|line| !line.starts_with(char::is_whitespace)).filter_map(first_word).map(str::to_owned).collect()
    }

    /// What a zone has under a name, such as `services`.
    fn of_zone(&self, zone: &str, name: &str) -> Vec<String> {
        let is_detail = |line: &&str| line.starts_with(char::is_whitespace);
        let lines = self.zones.lines().skip_while(|line| is_detail(line) || first_word(line) != Some(zone));
        let mut details = lines.skip(1).take_while(is_detail);
        let value = details.find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
        words(value.unwrap_or_default())
    }
}

fn first_word(line: &str) -> Option<&str> {
    line.split_whitespace().next()
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
    fn zones_are_read_as_firewalld_lists_them() {
        let zones = "block\n  target: %%REJECT%%\n  services: \n  ports: \n\n\
            public (active)\n  target: default\n  services: dhcpv6-client ssh\n  ports: 80/tcp 443/udp\n  \
            rich rules: \n\trule family=\"ipv4\" accept\n\n";
        let policies = "allow-host-ipv6 (active)\n  priority: -15000\n  services: http\n";
        let firewalld = Firewalld { zones: zones.into(), policies: policies.into(), is_permanent: true };
        assert_eq!(firewalld.objects().into_iter().collect::<Vec<_>>(), ["allow-host-ipv6", "block", "public"]);
        assert_eq!(firewalld.of_zone("public", "services"), ["dhcpv6-client", "ssh"]);
        assert_eq!(firewalld.of_zone("public", "ports"), ["80/tcp", "443/udp"]);
        assert!(firewalld.of_zone("block", "services").is_empty() && firewalld.of_zone("http", "ports").is_empty());
    }

    #[test]
    fn what_is_ours_makes_no_difference_in_firewalld() {
        let loaded = "public (active)\n  target: default\n  interfaces: eth0\n\nlr-wg0 (active)\n  target: default\n";
        let on_disk = "public\n  target: default\n  interfaces: \n\n";
        assert_eq!(settings(loaded, false), settings(on_disk, false));
        assert_ne!(settings(loaded, true), settings(on_disk, true));
        assert_ne!(settings(&on_disk.replace("default", "DROP"), false), settings(on_disk, false));
    }
}
