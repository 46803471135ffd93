//! The kill switches of a tunnel whose daemon has died. They hold until the next tunnel of that name is up.

use std::collections::HashSet;

use linerate_control::interface::InterfaceName;
use linerate_host::plan::{self, Hooks};
use linerate_host::step::{Phase, Step};
use linerate_host::transaction::execute_best_effort;

use crate::context::Context;
use crate::error::Error;
use crate::execute::step_executor::StepExecutor;
use crate::identity;
use crate::ledger::{Ledger, LedgerError, LockedLedger};
use crate::snapshot::Snapshot;

/// The kill switches of a dead tunnel.
#[derive(Default)]
pub(crate) struct StaleKillSwitches(Option<Ledger>);

impl StaleKillSwitches {
    /// Removes the leftovers of a dead tunnel of this name except its kill switches. Does not run its hooks: their
    /// remaining effects are unknown.
    ///
    /// # Errors
    /// The tunnel runs in another network namespace or under another name, or a ledger or the host cannot be read. Nothing has
    /// changed.
    pub(crate) fn clean_up(
        locked: &LockedLedger,
        interface: &InterfaceName,
        context: Context<'_>,
    ) -> Result<Self, Error> {
        let ledger = locked.read()?;
        let mut snapshot = Snapshot::take(interface)?;
        let place = identity::check_up(interface, ledger.as_ref(), &snapshot.state.links)?;
        let Some(ledger) = ledger else { return Ok(Self::default()) };
        if snapshot.state.link(interface.as_str()).is_some() {
            return Ok(Self::default());
        }
        let is_switch = |step: &Step| matches!(step, Step::DeleteFirewall(firewall) if firewall.kill_switch.is_some());
        let (mut switches, rest): (Vec<Step>, Vec<Step>) =
            plan::undo(&ledger.possibly_applied(), &Hooks::default()).into_iter().partition(is_switch);
        let rest: Vec<Step> = rest.into_iter().filter(|step| place.has(step)).collect();
        let mut executor = StepExecutor::new(&mut snapshot.host, interface, &ledger.file, context);
        execute_best_effort(&rest, &mut executor, &mut |step, failure| context.step_failed(step, failure));
        // A killed `up` may have recorded two tables of one name; the later one wins.
        let mut seen = HashSet::new();
        let mut is_last = |table: String| snapshot.state.firewall_tables.contains(&table) && seen.insert(table);
        switches.retain(|step| table(step).is_some_and(&mut is_last));
        let stale = Self((!switches.is_empty()).then(|| ledger.with_remaining(&switches)));
        stale.record(locked)?;
        Ok(stale)
    }

    /// The steps that created the kill switches.
    pub(crate) fn kill_switches(&self) -> &[Step] {
        self.0.as_ref().map_or(&[], |ledger| &ledger.steps)
    }

    /// Writes a ledger that has only these kill switches.
    pub(crate) fn record(&self, locked: &LockedLedger) -> Result<(), LedgerError> {
        match &self.0 {
            Some(ledger) => locked.write(ledger),
            None => locked.remove(),
        }
    }

    /// `steps`, and those that delete the kill switches that none of `steps` replaces: as late as possible, but before
    /// the PostUp hooks, which expect the tunnel to be up.
    pub(crate) fn replaced_by(&self, steps: &[Step]) -> Vec<Step> {
        let is_replaced = |switch: &&Step| steps.iter().any(|step| table(step) == table(switch));
        let gone = self.kill_switches().iter().filter(|switch| !is_replaced(switch)).filter_map(Step::undo);
        let is_post_up = |step: &Step| matches!(step, Step::Hook { phase: Phase::PostUp, .. });
        let (before, after) = steps.split_at(steps.iter().position(is_post_up).unwrap_or(steps.len()));
        before.iter().cloned().chain(gone).chain(after.iter().cloned()).collect()
    }

    /// Changes the steps that roll an `up` back so that the kill switches hold again.
    pub(crate) fn restored_by(&self, mut undo: Vec<Step>) -> Vec<Step> {
        let switches = self.kill_switches();
        // Creating a table replaces one of the same name.
        let is_held = |step: &Step| table(step).is_some() && switches.iter().any(|switch| table(switch) == table(step));
        undo.retain(|step| !is_held(step));
        undo.extend_from_slice(switches);
        undo
    }
}

/// The firewall table that a step creates or deletes.
fn table(step: &Step) -> Option<String> {
    match step {
        Step::AddFirewall(firewall) | Step::DeleteFirewall(firewall) => Some(firewall.nft_name()),
        _ => None,
    }
}
