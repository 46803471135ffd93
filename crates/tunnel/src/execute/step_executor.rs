//! Executes steps on this host: kernel steps over netlink, a daemon's over its socket, hooks and name servers by
//! running programs.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::time::Duration;

use linerate_control::interface::InterfaceName;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::socket;
use linerate_host::dns;
use linerate_host::plan::opening;
use linerate_host::program::WaitLimit;
use linerate_host::state::Link;
use linerate_host::step::{Implementation, Step};
use linerate_host::system::{Host, as_commands};
use linerate_host::transaction::{ApplyError, Executor, StepError};

use rustix::io::Errno;

use super::{foreign, hook};
use crate::context::Context;
use crate::daemon::{self, StartOptions};
use crate::identity::Identity;
use crate::ledger::{LedgerError, LockedLedger};
use crate::program::{exit_code, how_it_ended};
use crate::{ledger, limits};

/// Executes the steps of one tunnel.
pub(crate) struct StepExecutor<'a> {
    /// The kernel.
    pub(crate) host: &'a mut Host,
    /// The environment of hooks.
    hook_env: hook::HookEnv,
    /// The daemon that [`Step::AddLink`] starts, if not the usual one.
    pub(crate) daemon: Option<PathBuf>,
    /// How the daemon is started.
    pub(crate) start_options: StartOptions,
    /// The index of the interface that [`Step::AddLink`] created.
    pub(crate) index: Option<u32>,
    /// The tunnel's identity; its socket is that of the daemon that [`Step::AddLink`] started.
    pub(crate) identity: Identity,
    /// The configuration for [`Step::Configure`], used once.
    pub(crate) configuration: Option<DeviceUpdate>,
    pub(crate) reports_steps: bool,
    /// Whether a failing hook is only reported (`OnHookError = warn`).
    pub(crate) tolerates_hook_errors: bool,
    pub(crate) hook_failed: bool,
    /// Steps that failed although the tunnel stays up: they are not undone.
    pub(crate) not_done: Vec<Step>,
    /// During rollback a signal ends only the program that is running.
    pub(crate) is_rollback: bool,
    context: Context<'a>,
}

impl<'a> StepExecutor<'a> {
    /// An executor for `interface`, whose file is `file`. Reports no steps and configures nothing.
    pub(crate) fn new(host: &'a mut Host, interface: &InterfaceName, file: &Path, context: Context<'a>) -> Self {
        Self {
            host,
            hook_env: hook::HookEnv { interface: interface.clone(), file: file.to_owned() },
            daemon: None,
            start_options: StartOptions::default(),
            index: None,
            identity: Identity::default(),
            configuration: None,
            reports_steps: false,
            tolerates_hook_errors: false,
            hook_failed: false,
            not_done: Vec::new(),
            is_rollback: false,
            context,
        }
    }
}

impl Executor for StepExecutor<'_> {
    fn apply(&mut self, steps: &[Step]) -> Result<(), StepError> {
        let [step] = steps else { return self.apply_in_turn(steps) };
        match step {
            Step::AddLink { interface, .. } => self.add_link(step, interface),
            Step::DeleteLink { interface } => self.delete_link(step, interface),
            step if step.is_kernel_step() => self.kernel_steps(steps),
            Step::Hook { command, .. } => self.hook(step, command),
            Step::Configure { interface } => {
                let update = self.configuration.take().unwrap_or_default();
                check_port(update.listen_port.unwrap_or(0)).map_err(|error| failed(error, 1))?;
                self.change_device(step, interface, &update)
            }
            Step::SetFwmark { interface, fwmark, .. } => {
                let update = DeviceUpdate { fwmark: Some(*fwmark), ..DeviceUpdate::default() };
                self.change_device(step, interface, &update)
            }
            Step::SetSysctl { name, value, .. } => self.consider_marks(step, name, value),
            Step::HoldSysctl { name, value, .. } => self.hold(step, name, value),
            Step::ReleaseSysctl { interface, name, .. } => self.release(step, interface, name),
            Step::SetDns { interface, dns, manager, exclusive } => {
                self.report(from_ref(step));
                // The tunnel works without them.
                match self.with_limit(|limit| dns::set(manager, interface, dns, *exclusive, ledger::directory(), limit))
                {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(failed(error, 130)),
                    Err(error) => {
                        self.context.warn(format_args!("the name servers are not set: {error}"));
                        // It may have set some of them.
                        let unset = WaitLimit { limit: DNS_LIMIT_INTERRUPTED, stop: None };
                        let _ = dns::unset(manager, interface, ledger::directory(), &unset);
                        self.not_done.push(step.clone());
                    }
                    Ok(()) => {}
                }
                Ok(())
            }
            Step::Open(opening) => {
                self.report(from_ref(step));
                // The tunnel works without it as far as the firewall lets it.
                if let Err(error) = foreign::open(self.host, opening) {
                    let by_hand = opening::by_hand(opening).join("` and `");
                    self.context.warn(format_args!(
                        "the way is not opened: {error}; once that is mended, `linerate reload {}` does it, or by hand `{by_hand}`",
                        opening.interface
                    ));
                    self.not_done.push(step.clone());
                }
                Ok(())
            }
            Step::Close(opening) => {
                self.report(from_ref(step));
                match foreign::close(self.host, opening) {
                    Ok(None) => Ok(()),
                    Ok(Some(left)) => {
                        self.context.warn(left);
                        Ok(())
                    }
                    Err(error) => Err(failed(error, 1)),
                }
            }
            Step::UnsetDns { interface, manager } => {
                self.report(from_ref(step));
                let unset = self.with_limit(|limit| dns::unset(manager, interface, ledger::directory(), limit));
                unset.map_err(|error| failed(error, 1))
            }
            _ => self.kernel_steps(steps),
        }
    }

    fn interrupted(&self) -> bool {
        self.context.interruption.came()
    }
}

impl StepExecutor<'_> {
    fn report(&self, steps: &[Step]) {
        if self.reports_steps {
            as_commands(steps).iter().for_each(|command| self.context.reporter.step(command));
        }
    }

    fn kernel_steps(&mut self, steps: &[Step]) -> Result<(), StepError> {
        let outcome = self.host.apply(steps);
        let reached = outcome.as_ref().map_or_else(|refused| refused.index + 1, |()| steps.len());
        self.report(&steps[..reached.min(steps.len())]);
        // `ip` ends with 2 when the kernel refuses.
        outcome.map_err(|ApplyError { index, error, explanation }| StepError {
            index,
            error,
            explanation,
            exit_code: 2,
        })
    }

    /// Makes the reverse path filter of IPv4 consider marks. Otherwise a strict filter drops answers to the tunnel's packets. A
    /// container may not be allowed to set the sysctl; the warning tells its owner how.
    fn consider_marks(&mut self, step: &Step, name: &str, value: &str) -> Result<(), StepError> {
        let refused = match self.kernel_steps(from_ref(step)) {
            Err(refused) if is_forbidden(&refused.error) => refused.error,
            done => return done,
        };
        let strict = self.host.strict_interfaces(self.hook_env.interface.as_str());
        let remedy = format!("set it on the host or, for a container, with `--sysctl {name}={value}`");
        if !strict.is_empty() {
            let strict = strict.join(", ");
            let message = format!(
                "{refused}; the reverse path filter is strict on {strict} (rp_filter = 1), and drops answers to the tunnel's \
                 packets unless {name} is {value}: {remedy}"
            );
            return Err(failed(io::Error::new(refused.kind(), message), 1));
        }
        self.context.warn(format_args!(
            "{name} cannot be set to {value} ({refused}); that matters once a reverse path filter is strict (rp_filter = 1): {remedy}"
        ));
        self.not_done.push(step.clone());
        Ok(())
    }

    /// Sets a sysctl, after putting the forwarding guard for it in place. In a container that may not set it, warns
    /// that its owner has to.
    fn hold(&mut self, step: &Step, name: &str, value: &str) -> Result<(), StepError> {
        let _allocation = ledger::lock_allocation(ledger::directory()).map_err(of_ledger)?;
        self.guard_forwarding(Some(name))?;
        let refused = match self.kernel_steps(from_ref(step)) {
            Err(refused) if is_forbidden(&refused.error) => refused.error,
            done => return done,
        };
        self.guard_forwarding(None)?;
        self.context.warn(format_args!(
            "{name} cannot be set to {value} ({refused}), and packets are not forwarded without it; set it on the host or, for a container, with `--sysctl {}`",
            for_container(name, value)
        ));
        self.not_done.push(step.clone());
        Ok(())
    }

    /// Restores a sysctl unless another tunnel needs it, then reduces the forwarding guard accordingly.
    fn release(&mut self, step: &Step, interface: &str, name: &str) -> Result<(), StepError> {
        // While it is held, no tunnel plans with the value, and of two that let go of it one is the last.
        let _allocation = ledger::lock_allocation(ledger::directory()).map_err(of_ledger)?;
        LockedLedger::inherited(ledger::directory(), &self.hook_env.interface).release(name).map_err(of_ledger)?;
        let held = ledger::held_sysctls(ledger::directory()).map_err(of_ledger)?;
        let is_held_by_others =
            held.get(name).is_some_and(|held| held.holders.iter().any(|holder| holder != interface));
        if !is_held_by_others {
            match self.kernel_steps(from_ref(step)) {
                // The container may have lost the permission since `up`.
                Err(refused) if is_forbidden(&refused.error) => {}
                done => done?,
            }
        }
        self.guard_forwarding(None)
    }

    /// Updates the forwarding guard for the sysctls that tunnels hold, and for one that is `about_to` be set.
    fn guard_forwarding(&mut self, about_to: Option<&str>) -> Result<(), StepError> {
        let held = ledger::held_sysctls(ledger::directory()).map_err(of_ledger)?;
        self.host.guard_forwarding(held, about_to).map_err(|error| failed(error, 1))
    }

    /// Applies several kernel steps; a step that adds or deletes the link is applied separately.
    fn apply_in_turn(&mut self, steps: &[Step]) -> Result<(), StepError> {
        let is_link = |step: &Step| matches!(step, Step::AddLink { .. } | Step::DeleteLink { .. });
        let Some(at) = steps.iter().position(is_link) else { return self.kernel_steps(steps) };
        let parts = [(0, &steps[..at]), (at, &steps[at..=at]), (at + 1, &steps[at + 1..])];
        for (begin, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
            self.apply(part).map_err(|refused| StepError { index: begin + refused.index, ..refused })?;
        }
        Ok(())
    }

    fn add_link(&mut self, step: &Step, interface: &str) -> Result<(), StepError> {
        match step.is_kernel_step() {
            true => self.kernel_steps(from_ref(step))?,
            false => self.start_daemon(step, interface)?,
        }
        self.index = self.host.index(interface);
        self.identity = self.identity.with_daemon(&self.hook_env.interface);
        Ok(())
    }

    /// Deletes the tunnel's interface, also if it was renamed. If it was moved to another network namespace, ends the daemon
    /// by removing its socket, and the interface goes with the daemon. Never deletes another tunnel's interface of this name.
    fn delete_link(&mut self, step: &Step, interface: &str) -> Result<(), StepError> {
        let there = self.host.index(interface);
        let Some(own) = self.index.filter(|own| there != Some(*own)) else {
            return self.kernel_steps(from_ref(step));
        };
        let links = self.host.links().map_err(|error| failed(error, 2))?;
        let renamed = links.into_iter().find(|link| link.index == own && (link.tun || link.wireguard));
        if let Some(Link { name: interface, .. }) = renamed {
            return self.kernel_steps(from_ref(&Step::DeleteLink { interface }));
        }
        let path = socket::path(socket::DIRECTORY.as_ref(), &self.hook_env.interface);
        if self.reports_steps && self.identity.has_socket(&self.hook_env.interface) {
            self.context.reporter.step(&format!("rm {}", path.display()));
        }
        daemon::end(&self.identity, &self.hook_env.interface, self.context).map_err(|error| failed(error, 1))
    }

    fn start_daemon(&mut self, step: &Step, interface: &str) -> Result<(), StepError> {
        let daemon = match self.daemon.clone() {
            Some(daemon) => daemon,
            None => daemon::find().map_err(|error| failed(io::Error::other(error), 127))?,
        };
        if self.reports_steps {
            let name = daemon.file_name().unwrap_or(OsStr::new("linerated"));
            self.context.reporter.step(&format!("{} {interface}", name.display()));
        }
        debug_assert!(matches!(step, Step::AddLink { implementation: Implementation::Daemon, .. }));
        daemon::start(&daemon, &self.start_options, interface, self.context.interruption).map_err(|error| {
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            failed(error, if interrupted { 130 } else { 1 })
        })
    }

    fn hook(&mut self, step: &Step, command: &str) -> Result<(), StepError> {
        self.report(from_ref(step));
        let status =
            hook::run(command, &self.hook_env, self.context.interruption).map_err(|error| failed(error, 127))?;
        if self.is_rollback {
            self.context.interruption.clear();
        }
        if status.success() {
            return Ok(());
        }
        let message = format!("the command `{command}` {}", how_it_ended(status));
        if self.tolerates_hook_errors {
            self.context.warn(format_args!("{message}; the tunnel stays (OnHookError = warn)"));
            self.hook_failed = true;
            return Ok(());
        }
        Err(failed(io::Error::other(message), exit_code(status)))
    }

    /// Runs a program that sets name servers, which a signal or a time limit stops if it hangs.
    fn with_limit(&self, run: impl FnOnce(&WaitLimit<'_>) -> io::Result<()>) -> io::Result<()> {
        if self.is_rollback {
            // An earlier signal was for another program.
            self.context.interruption.clear();
        }
        let limit = if self.context.interruption.user_is_waiting() { DNS_LIMIT_INTERRUPTED } else { DNS_LIMIT };
        let done = run(&WaitLimit { limit, stop: Some(self.context.interruption.as_fd()) });
        if self.is_rollback {
            self.context.interruption.clear();
        }
        done
    }

    fn change_device(&mut self, step: &Step, interface: &str, update: &DeviceUpdate) -> Result<(), StepError> {
        self.report(from_ref(step));
        let lost = limits::set(interface, update).map_err(|error| {
            let reason = error.reason_of_set();
            failed(io::Error::other(format!("Unable to modify interface: {reason}")), 1)
        })?;
        lost.warn(interface, self.context);
        Ok(())
    }
}

/// What a container is started with to have this sysctl: its own interfaces do not exist by then.
fn for_container(name: &str, value: &str) -> String {
    match name {
        name if name.ends_with(".accept_ra") => format!("{name}={value}"),
        name if name.starts_with("net.ipv4.") => "net.ipv4.ip_forward=1".to_owned(),
        _ => "net.ipv6.conf.all.forwarding=1".to_owned(),
    }
}

/// Whether an error says that /proc/sys is not ours to change.
fn is_forbidden(error: &io::Error) -> bool {
    let forbidden = [Errno::ROFS, Errno::ACCESS, Errno::PERM, Errno::NOENT];
    Errno::from_io_error(error).is_some_and(|errno| forbidden.contains(&errno))
}

const DNS_LIMIT: Duration = Duration::from_secs(10);

/// During the rollback after a signal.
const DNS_LIMIT_INTERRUPTED: Duration = Duration::from_secs(1);

/// Checks that the port is free. The daemon opens it later, and could report an error only in the log.
pub(crate) fn check_port(port: u16) -> io::Result<()> {
    let any = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    for address in any.into_iter().filter(|_| port != 0) {
        match UdpSocket::bind((address, port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let message = format!("UDP port {port} is already in use; choose another ListenPort");
                return Err(io::Error::new(error.kind(), message));
            }
            // Other errors: the host may have no IPv6.
            _ => {}
        }
    }
    Ok(())
}

fn of_ledger(error: LedgerError) -> StepError {
    failed(io::Error::other(error.to_string()), 1)
}

fn failed(error: io::Error, exit_code: u8) -> StepError {
    StepError { index: 0, error, explanation: None, exit_code }
}
