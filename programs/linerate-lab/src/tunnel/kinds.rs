//! How each kind of subject is brought up: the cable alone, daemons, the kernel's WireGuard and ESP, commands of a
//! file.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Prefix, Tunnel, Undo, single};
use crate::commands::{self, CommandSet};
use crate::daemon::Daemon;
use crate::error::Doing;
use crate::hosts::Host;
use crate::kernel;
use crate::subject::{EspSuite, KeyPair, LISTEN_PORT, MTU, Subject};
use crate::topology::{AddressFamily, Network, UPLINK, prefix_length};
use crate::{Error, Result};
use linerate_control::uapi::request::DeviceUpdate;

impl Tunnel<'_> {
    /// Adds the client's route to the server where they do not share a cable.
    pub(super) fn use_cable(&mut self) -> Result<()> {
        for &family in self.testbed.families() {
            if let Some(network) = self.testbed.behind() {
                let (address, length) = network.prefix(family);
                self.add_route(0, family, &format!("{address}/{length} via {}", self.testbed.next_hop(0).of(family)))?;
            }
        }
        self.testbed.open_gateway("eth0", Network::NEAR)
    }

    pub(super) fn start_daemons(
        &mut self,
        subject: &Subject,
        keys: &[KeyPair; 2],
        outside: AddressFamily,
    ) -> Result<()> {
        let tool = match self.testbed.translates() {
            Some(_) => subject.tool()?,
            None => None,
        };
        // A gateway of linerate's own comes with its daemon.
        let by_hand = if tool.is_some() { 1 } else { 2 };
        for host in &self.testbed.ends()[..by_hand] {
            let line = subject.command_line(host.interface().as_str()).unwrap_or_default();
            let [program, arguments @ ..] = &line[..] else {
                return Err(Error::Refused(format!("{} has no command", subject.name)));
            };
            let mut command = Command::new(program);
            // Without it Debian's wireguard-go goes to the background.
            command.args(arguments).env("WG_PROCESS_FOREGROUND", "1");
            let mut daemon = Daemon::start(&subject.name, host, &mut command)?;
            let time = daemon.await_socket()?;
            self.start_time = self.start_time.max(Some(time));
            self.daemons.push(daemon);
        }
        for end in 0..by_hand {
            self.daemons[end].set(&self.settings(end, keys, outside))?;
            self.give_addresses(end)?;
        }
        match tool {
            Some(tool) => self.bring_up_gateway(subject, tool, &self.settings(1, keys, outside))?,
            None => self.testbed.open_gateway(self.far_interface(), Network::TUNNEL)?,
        }
        // A daemon opens its UDP port some time after its interface went up. An initiation that comes before is
        // lost, and the next one is sent only after REKEY_TIMEOUT, 5 s.
        for daemon in &mut self.daemons {
            daemon.await_port(LISTEN_PORT)?;
        }
        Ok(())
    }

    /// Has linerate bring up the gateway's end by a file, in which the gateway is a setting.
    fn bring_up_gateway(&mut self, subject: &Subject, tool: PathBuf, settings: &DeviceUpdate) -> Result<()> {
        let host = self.testbed.ends()[1];
        let addresses = self
            .testbed
            .families()
            .iter()
            .map(|&family| format!("{}/{}", Self::INSIDE[1].of(family), prefix_length(family)));
        let addresses = addresses.collect::<Vec<_>>().join(", ");
        let nat = if self.testbed.translates() == Some(true) { "both" } else { "off" };
        let interface =
            format!("[Interface]\nAddress = {addresses}\nMTU = {MTU}\n#! Gateway = {UPLINK}\n#! Masquerade = {nat}\n");
        let configuration = kernel::configuration(settings).replacen("[Interface]\n", &interface, 1);
        let mut command = Command::new(&tool);
        command.env("WG_QUICK_USERSPACE_IMPLEMENTATION", subject.daemon_program().unwrap_or_default());
        command.envs(subject.variables());
        self.daemons.push(Daemon::bring_up(&subject.name, host, tool, &mut command, &configuration)?);
        Ok(())
    }

    /// The tunnel's interface at its far end.
    fn far_interface(&self) -> &str {
        self.testbed.ends()[1].interface().as_str()
    }

    pub(super) fn make_wireguard(&mut self, keys: &[KeyPair; 2], outside: AddressFamily) -> Result<()> {
        for (end, host) in self.testbed.ends().into_iter().enumerate() {
            let interface = host.interface();
            self.apply(host, &format!("link add {interface} type wireguard"), &format!("link del {interface}"))?;
            configure_kernel("setconf", host, &self.settings(end, keys, outside))?;
            self.give_addresses(end)?;
        }
        self.testbed.open_gateway(self.far_interface(), Network::TUNNEL)
    }

    pub(super) fn make_esp(&mut self, suite: EspSuite, outside: AddressFamily) -> Result<()> {
        let ends = [0, 1].map(|end| self.testbed.outside(end).of(outside));
        let keys = [kernel::esp_key()?, kernel::esp_key()?];
        for end in 0..2 {
            let host = self.testbed.ends()[end];
            // Pushed first: what follows may fail half-way.
            self.undo.push(Undo { host, command: "xfrm state flush".into() });
            self.undo.push(Undo { host, command: "xfrm policy flush".into() });
            for from in 0..2 {
                let (spi, key) = (0x1000 + from as u32, &keys[from]);
                host.ip(&kernel::add_state(ends[from], ends[1 - from], spi, suite, key))?;
            }
            self.give_addresses_without_interface(end)?;
            for (own, other) in self.selectors(end) {
                host.ip(&kernel::add_policy("out", [own, other], [ends[end], ends[1 - end]]))?;
                for direction in ["in", "fwd"] {
                    host.ip(&kernel::add_policy(direction, [other, own], [ends[1 - end], ends[end]]))?;
                }
            }
        }
        // Its packets come out of the interface that they came in by.
        self.testbed.open_gateway("eth0", Network::TUNNEL)
    }

    pub(super) fn run_commands(&mut self, commands: &CommandSet, outside: AddressFamily) -> Result<()> {
        let folder = Folder::make()?;
        let common = self.common_values(&folder, outside);
        self.folder = Some(folder);
        if let Some(prepare) = &commands.prepare {
            let done = self.testbed.client().run(&mut shell(prepare, &common));
            done.map_err(|error| match error {
                Error::Command { said, .. } => {
                    let last = said.lines().last().unwrap_or_default();
                    Error::Subject(format!("{}: its preparation failed: {last}", self.subject.name))
                }
                other => other,
            })?;
        }
        // The server first, so that the client finds it.
        for end in [1, 0] {
            let mut values = common.clone();
            values.extend(self.values(end, outside));
            let mut command = shell(&commands.ends[end], &values);
            self.daemons.insert(0, Daemon::start(&self.subject.name, self.testbed.ends()[end], &mut command)?);
        }
        for end in 0..2 {
            let time = self.daemons[end].await_interface()?;
            self.start_time = self.start_time.max(Some(time));
            self.give_addresses(end)?;
        }
        self.testbed.open_gateway(self.far_interface(), Network::TUNNEL)
    }

    /// What a file's commands may ask for at either end.
    fn common_values(&self, folder: &Folder, outside: AddressFamily) -> Vec<(&'static str, String)> {
        let family = if outside == AddressFamily::V4 { "4" } else { "6" };
        vec![
            ("dir", folder.0.display().to_string()),
            ("port", LISTEN_PORT.to_string()),
            ("mtu", MTU.to_string()),
            ("family", family.into()),
        ]
    }

    /// What they may ask for at one end.
    fn values(&self, end: usize, outside: AddressFamily) -> Vec<(&'static str, String)> {
        let [own, peer] = [Self::INSIDE[end], Self::INSIDE[1 - end]];
        vec![
            ("iface", self.testbed.ends()[end].interface().to_string()),
            ("end", ["client", "server"][end].into()),
            ("own_outside", self.testbed.outside(end).of(outside).to_string()),
            ("peer_outside", self.testbed.endpoint(end, outside).ip().to_string()),
            ("own_inside4", own.v4.to_string()),
            ("peer_inside4", peer.v4.to_string()),
            ("own_inside6", own.v6.to_string()),
            ("peer_inside6", peer.v6.to_string()),
        ]
    }

    /// What ESP connects at that end: each prefix on its side with each on the other.
    fn selectors(&self, end: usize) -> Vec<(Prefix, Prefix)> {
        let mut selectors = Vec::new();
        for &family in self.testbed.families() {
            let others = self.reachable(end, family);
            for own in self.reachable(1 - end, family) {
                selectors.extend(others.iter().map(|&other| (own, other)));
            }
        }
        selectors
    }

    /// As [`Tunnel::give_addresses`], for a tunnel without an interface: the
    /// addresses are on the loopback device, routes select them as sources, and the policies match those.
    fn give_addresses_without_interface(&mut self, end: usize) -> Result<()> {
        let host = self.testbed.ends()[end];
        for &family in self.testbed.families() {
            let own = Self::INSIDE[end].of(family);
            let (address, length) = single(own);
            self.apply(
                host,
                &format!("addr add {address}/{length} dev lo"),
                &format!("addr del {own}/{length} dev lo"),
            )?;
            let neighbour = self.testbed.next_hop(end).of(family);
            for (address, length) in self.reachable(end, family) {
                self.add_route(end, family, &format!("{address}/{length} via {neighbour} src {own} mtu {MTU}"))?;
            }
        }
        Ok(())
    }

    /// Without the policies everything would go over the cable, unencrypted, and be answered all the same.
    pub(super) fn check_esp(&self) -> Result<()> {
        for host in self.testbed.ends() {
            let states = host.run(Command::new("ip").args(["-s", "xfrm", "state"]))?;
            if !kernel::has_carried(&states) {
                let (subject, host) = (&self.subject.name, host.name());
                return Err(Error::Subject(format!(
                    "{subject} carried nothing on the {host}: the answer came without it"
                )));
            }
        }
        Ok(())
    }
}

/// A folder that only this user can read. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self> {
        // In the sandbox's own /run, which no other process sees; one tunnel uses it at a time.
        let place = Path::new("/run/lab-subject");
        fs::DirBuilder::new().mode(0o700).create(place).doing(|| format!("making {}", place.display()))?;
        Ok(Self(place.into()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A line for `sh` with the values put in.
fn shell(line: &str, values: &[(&str, String)]) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(commands::fill_in(line, values));
    command
}

/// Has `wg` configure the kernel's interface on `host`.
pub(super) fn configure_kernel(verb: &str, host: &Host, update: &DeviceUpdate) -> Result<()> {
    let interface = host.interface();
    let file = format!("/run/{interface}.conf");
    kernel::write_private(&file, &kernel::configuration(update))?;
    let done = host.run(Command::new("wg").args([verb, interface.as_str(), &file]));
    fs::remove_file(&file).doing(|| format!("removing {file}"))?;
    done.map(drop)
}
