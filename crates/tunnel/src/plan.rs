//! The fourth step: plans the changes of this host, with `linerate_host::plan`. Changes nothing.

use linerate_host::plan::{self, Hooks, Plan};
use linerate_host::spec::{Compat, HostSpec};
use linerate_host::step::{Implementation, Step};

use crate::Options;
use crate::error::Error;
use crate::read::DefaultRoutes;
use crate::resolve::Resolved;
use crate::snapshot::Snapshot;

/// The plan of `up` for this host.
pub struct Planned<'a> {
    /// The steps, and warnings.
    pub plan: Plan,
    pub(crate) resolved: Resolved<'a>,
    pub(crate) snapshot: Snapshot,
    pub(crate) spec: HostSpec,
    pub(crate) hooks: Hooks,
    pub(crate) implementation: Implementation,
    pub(crate) compat: Compat,
}

impl<'a> Planned<'a> {
    /// Plans to bring up what was `resolved`.
    ///
    /// # Errors
    /// The planner refuses to bring the tunnel up.
    pub(crate) fn new(mut resolved: Resolved<'a>, mut snapshot: Snapshot, options: &Options) -> Result<Self, Error> {
        let file = resolved.file;
        let Options { implementation, compat, .. } = *options;
        let hooks = if options.hooks { file.hooks() } else { Hooks::default() };
        let mut spec = file.host_spec(&resolved.device, DefaultRoutes::OnceResolved);
        spec.forwarding.fixes_firewall |= options.fix_firewall;
        let warnings = snapshot.resolve_gateway(&mut spec, None)?;
        let mut plan = plan::up(&spec, &hooks, implementation, &snapshot.state, compat)?;
        plan.warnings.extend(warnings);
        if file.contents.kill_switch || compat == Compat::Native {
            // Set the mark first: a handshake before SetFwmark would be dropped by a leftover kill switch. In wg-quick
            // mode without a kill switch the order is visible in the output, so it stays.
            let mark = |step: &Step| if let Step::SetFwmark { fwmark, .. } = step { Some(*fwmark) } else { None };
            resolved.device.fwmark = resolved.device.fwmark.or_else(|| plan.steps.iter().find_map(mark));
        }
        Ok(Self { plan, resolved, snapshot, spec, hooks, implementation, compat })
    }
}
