//! Carries steps out on this host: the kernel's over netlink, and those that are a program's, a daemon's or the
//! resolver's. Says each of them to whoever wants to read it.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::time::Duration;

use crate::execute::transaction::{Executor, StepError};
use linerate_control::client::TunnelClient;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::socket;
use linerate_host::linux::Host;
use linerate_host::linux::dns::{self, WaitLimit};
use linerate_host::plan::messages;
use linerate_host::step::{Backend, Step};

use super::{daemon, hook};
use crate::interruption::Interruption;
use crate::ledgers;
use linerate_program::complain;

/// Everything that steps need.
pub struct Hands<'a> {
    /// The kernel.
    pub host: &'a mut Host,
    /// What hooks see.
    pub surroundings: hook::Surroundings,
    /// The daemon, where a step starts one.
    pub daemon: Option<PathBuf>,
    /// The user that the daemon becomes, where one is named.
    pub user: Option<String>,
    /// What [`Step::Configure`] gives to the tunnel: once.
    pub configuration: Option<DeviceUpdate>,
    /// Whether every step is said as wg-quick says it (`[#] ip link add …`).
    pub echo: bool,
    /// Who may want to stop.
    pub interruption: &'a Interruption,
    /// A hook that fails is told and is no reason to stop (`OnHookError = warn`).
    pub forgive_hooks: bool,
    /// Whether one did.
    pub hook_failed: bool,
    /// What undoes something goes on after a signal: that ends the command that it came to, and no later one.
    pub goes_on: bool,
}

impl<'a> Hands<'a> {
    /// Hands for `interface`, whose file is `file`: without a daemon to start and without anything to configure, silent.
    pub fn new(host: &'a mut Host, interface: &InterfaceName, file: &Path, interruption: &'a Interruption) -> Self {
        Self {
            host,
            surroundings: hook::Surroundings { interface: interface.clone(), file: file.to_owned() },
            daemon: None,
            user: None,
            configuration: None,
            echo: false,
            interruption,
            forgive_hooks: false,
            hook_failed: false,
            goes_on: false,
        }
    }
}

impl Executor for Hands<'_> {
    fn apply(&mut self, steps: &[Step]) -> Result<(), StepError> {
        let [step] = steps else { return self.kernels(steps) };
        match step {
            step if step.is_kernel_step() => self.kernels(steps),
            Step::AddLink { interface, .. } => self.start_daemon(step, interface),
            Step::Hook { command, .. } => self.hook(step, command),
            Step::Configure { interface } => {
                let update = self.configuration.take().unwrap_or_default();
                is_free(update.listen_port.unwrap_or(0)).map_err(|error| stumble(error, 1))?;
                self.change_device(step, interface, &update)
            }
            Step::SetFwmark { interface, fwmark, .. } => {
                let update = DeviceUpdate { fwmark: Some(*fwmark), ..DeviceUpdate::default() };
                self.change_device(step, interface, &update)
            }
            Step::SetDns { interface, dns, manager, exclusive } => {
                self.say(from_ref(step));
                // Names that cannot be set are no reason to be without a tunnel.
                match self.patiently(|patience| dns::set(manager, interface, dns, *exclusive, ledgers(), patience)) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(stumble(error, 130)),
                    Err(error) => complain(&format!("Warning: the name servers are not set: {error}")),
                    Ok(()) => {}
                }
                Ok(())
            }
            Step::UnsetDns { interface, manager } => {
                self.say(from_ref(step));
                let unset = self.patiently(|patience| dns::unset(manager, interface, ledgers(), patience));
                unset.map_err(|error| stumble(error, 1))
            }
            _ => self.kernels(steps),
        }
    }

    fn interrupted(&self) -> bool {
        self.interruption.came()
    }
}

impl Hands<'_> {
    fn say(&self, steps: &[Step]) {
        if self.echo {
            messages::as_commands(steps).iter().for_each(|line| complain(&format!("[#] {line}")));
        }
    }

    fn kernels(&mut self, steps: &[Step]) -> Result<(), StepError> {
        let outcome = self.host.apply(steps);
        let reached = outcome.as_ref().map_or_else(|refused| refused.index + 1, |()| steps.len());
        self.say(&steps[..reached.min(steps.len())]);
        // `ip` ends with 2 when the kernel refuses.
        outcome.map_err(|refused| StepError { index: refused.index, error: refused.error, exit_code: 2 })
    }

    fn start_daemon(&mut self, step: &Step, interface: &str) -> Result<(), StepError> {
        let daemon = match self.daemon.clone() {
            Some(daemon) => daemon,
            None => daemon::daemon().map_err(|complaint| stumble(io::Error::other(complaint), 127))?,
        };
        if self.echo {
            let name = daemon.file_name().unwrap_or(OsStr::new("linerated"));
            complain(&format!("[#] {} {interface}", name.display()));
        }
        debug_assert!(matches!(step, Step::AddLink { backend: Backend::Daemon, .. }));
        daemon::start(&daemon, self.user.as_deref(), interface, self.interruption).map_err(|error| {
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            stumble(error, if interrupted { 130 } else { 1 })
        })
    }

    fn hook(&mut self, step: &Step, command: &str) -> Result<(), StepError> {
        self.say(from_ref(step));
        let status = hook::run(command, &self.surroundings, self.interruption).map_err(|error| stumble(error, 127))?;
        if self.goes_on {
            self.interruption.clear();
        }
        if status.success() {
            return Ok(());
        }
        let sentence = format!("the command `{command}` {}", daemon::how_it_ended(status));
        if self.forgive_hooks {
            complain(&format!("Warning: {sentence}; the tunnel stays (OnHookError = warn)"));
            self.hook_failed = true;
            return Ok(());
        }
        Err(stumble(io::Error::other(sentence), daemon::exit_code(status)))
    }

    /// Has a program set name servers; one that hangs ends with a signal, or when somebody has waited long enough.
    fn patiently(&self, run: impl FnOnce(&WaitLimit<'_>) -> io::Result<()>) -> io::Result<()> {
        if self.goes_on {
            // One that came to something else.
            self.interruption.clear();
        }
        let limit = if self.interruption.is_waited_for() { DNS_LIMIT_INTERRUPTED } else { DNS_LIMIT };
        let done = run(&WaitLimit { limit, stop: Some(self.interruption.as_fd()) });
        if self.goes_on {
            self.interruption.clear();
        }
        done
    }

    fn change_device(&mut self, step: &Step, interface: &str, update: &DeviceUpdate) -> Result<(), StepError> {
        self.say(from_ref(step));
        let tunnel = TunnelClient::open(socket::DIRECTORY.as_ref(), interface);
        let changed = tunnel.map_err(ClientError::Io).and_then(|mut tunnel| tunnel.set(update));
        changed.map_err(|error| {
            let reason = error.reason_of_set();
            stumble(io::Error::other(format!("Unable to modify interface: {reason}")), 1)
        })
    }
}

const DNS_LIMIT: Duration = Duration::from_secs(10);

/// Of what is undone after a signal.
const DNS_LIMIT_INTERRUPTED: Duration = Duration::from_secs(1);

/// Whether nobody has the port: the daemon opens it when the interface is up, and whom should it tell then?
pub(crate) fn is_free(port: u16) -> io::Result<()> {
    let any = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    for address in any.into_iter().filter(|_| port != 0) {
        match UdpSocket::bind((address, port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let sentence = format!("UDP port {port} is already in use; choose another ListenPort");
                return Err(io::Error::new(error.kind(), sentence));
            }
            // A host without IPv6, say.
            _ => {}
        }
    }
    Ok(())
}

fn stumble(error: io::Error, exit_code: u8) -> StepError {
    StepError { index: 0, error, exit_code }
}
