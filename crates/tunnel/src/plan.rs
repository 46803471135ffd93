//! The fourth step: what to do on this host. `linerate_host::plan` decides; nothing is changed.

use linerate_host::plan::{self, Hooks, Plan};
use linerate_host::step::{Backend, Step};
use linerate_host::wanted::{Compat, Wanted};

use crate::Options;
use crate::error::Error;
use crate::read::DefaultRoutes;
use crate::resolve::Resolved;
use crate::snapshot::Snapshot;

/// What `up` does on this host.
pub struct Planned<'a> {
    /// The steps, and warnings.
    pub plan: Plan,
    pub(crate) resolved: Resolved<'a>,
    pub(crate) snapshot: Snapshot,
    pub(crate) wanted: Wanted,
    pub(crate) hooks: Hooks,
    pub(crate) backend: Backend,
    pub(crate) compat: Compat,
}

impl<'a> Planned<'a> {
    /// Plans to bring up what was `resolved`.
    ///
    /// # Errors
    /// The tunnel must not come up like this.
    pub(crate) fn new(mut resolved: Resolved<'a>, snapshot: Snapshot, options: &Options) -> Result<Self, Error> {
        let file = resolved.file;
        let Options { backend, compat, .. } = *options;
        let hooks = if options.hooks { file.hooks() } else { Hooks::default() };
        let wanted = file.wanted(&resolved.device, DefaultRoutes::OnceResolved);
        let plan = plan::up(&wanted, &hooks, backend, &snapshot.state, compat)?;
        if file.contents.kill_switch || compat == Compat::Native {
            // The first handshake may begin before SetFwmark, and a kill switch left by a dead tunnel would drop it. In
            // wg-quick's order the daemon gets its mark later, as its users may see.
            let mark = |step: &Step| if let Step::SetFwmark { fwmark, .. } = step { Some(*fwmark) } else { None };
            resolved.device.fwmark = resolved.device.fwmark.or_else(|| plan.steps.iter().find_map(mark));
        }
        Ok(Self { plan, resolved, snapshot, wanted, hooks, backend, compat })
    }
}
