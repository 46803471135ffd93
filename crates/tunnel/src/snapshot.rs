//! The third step: reads the state of this host for the planner.

use std::fs::File;

use linerate_control::interface::InterfaceName;
use linerate_host::dns;
use linerate_host::plan::{self, Warning};
use linerate_host::spec::{Gateway, HostSpec};
use linerate_host::state::HostState;
use linerate_host::step::{MAIN, Step};
use linerate_host::system::Host;

use crate::error::Error;
use crate::ledger;

/// The state of this host, and the sockets by which it is read and changed.
pub struct Snapshot {
    pub(crate) host: Host,
    pub(crate) state: HostState,
    /// Keeps other tunnels from choosing the same routing tables and marks until the ledger records ours.
    pub(crate) allocation: Option<File>,
}

impl Snapshot {
    /// Reads the state for the tunnel `own`.
    ///
    /// # Errors
    /// The kernel or a ledger cannot be read.
    pub(crate) fn take(own: &InterfaceName) -> Result<Self, Error> {
        let mut host = open()?;
        let state = read(&mut host, own)?;
        Ok(Self { host, state, allocation: None })
    }

    /// Reads what `spec` needs besides, if it is that of a gateway, and replaces `Gateway = auto` in it. `before`
    /// is that of the tunnel as it is up. Returns warnings.
    ///
    /// # Errors
    /// The kernel cannot be read.
    pub(crate) fn resolve_gateway(
        &mut self,
        spec: &mut HostSpec,
        before: Option<&HostSpec>,
    ) -> Result<Vec<Warning>, Error> {
        let is_gateway = |spec: &HostSpec| spec.forwarding.gateway != Gateway::Off;
        if !is_gateway(spec) && !before.is_some_and(is_gateway) {
            return Ok(Vec::new());
        }
        let foreign = self.host.foreign().map_err(Error::Snapshot)?;
        (self.state.foreign_chains, self.state.openings) = (foreign.chains, foreign.openings);
        Ok(plan::gateway::resolve(spec, &self.state, before.map(|before| &before.forwarding.gateway)))
    }

    /// As [`Snapshot::take`], for a plan that will be recorded.
    ///
    /// # Errors
    /// As [`Snapshot::take`].
    pub(crate) fn for_allocation(own: &InterfaceName) -> Result<Self, Error> {
        let allocation = Some(ledger::lock_allocation(ledger::directory())?);
        Ok(Self { allocation, ..Self::take(own)? })
    }
}

/// Opens the kernel's netlink sockets.
pub(crate) fn open() -> Result<Host, Error> {
    Host::open().map_err(Error::Netlink)
}

/// The state of this host for the tunnel `own`, including what other tunnels are about to add.
pub(crate) fn read(host: &mut Host, own: &InterfaceName) -> Result<HostState, Error> {
    // Ledgers first: the steps of a complete ledger are on the host by then.
    let (mut upcoming, mut in_force) = (Vec::new(), Vec::new());
    let held = ledger::held_sysctls(ledger::directory()).map_err(Error::of_ledger)?;
    for interface in ledger::interfaces(ledger::directory()).map_err(Error::of_ledger)? {
        // An unreadable ledger is reported by the commands of its own tunnel.
        let Ok(Some(ledger)) = ledger::read(ledger::directory(), &interface) else { continue };
        if interface == *own {
            in_force = ledger.in_force();
        } else if !ledger.complete && !ledger.identity.is_of_other_network() {
            upcoming.extend(ledger.possibly_applied());
        }
    }
    let mut state = host.state().map_err(Error::Snapshot)?;
    state.dns = dns::detect();
    state.interfaces_with_dns = dns::interfaces_with_dns(&state.dns, &state.links);
    state.held_sysctls = held;
    state.emptied_tables = host.emptied_tables(&in_force);
    for step in upcoming {
        match step {
            Step::AddRule(rule) if !state.rules.contains(&rule) => state.rules.push(rule),
            Step::AddRoute(route) if route.table != MAIN && !state.routes.contains(&route) => state.routes.push(route),
            _ => {}
        }
    }
    Ok(state)
}
