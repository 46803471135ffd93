//! Plans: the steps from the state of the host ([`HostState`]) to a [`HostSpec`]. Pure: nothing here reads the host.
//!
//! The order of a plan is that of wg-quick(8): the interface, `PreUp`, keys and peers, addresses, MTU, the
//! table of a gateway, name servers, then routes with the rules and the firewall that they need, forwarding, `PostUp`.
//! Each subject has a file; [`messages`] describes steps, as commands and to people, and [`model`] applies them to a
//! host in memory.

mod addresses;
mod bypass;
mod conflicts;
mod dns;
mod down;
mod firewall;
pub mod foreign;
pub mod forwarding_guard;
pub mod gateway;
mod gateway_commands;
mod isolated;
mod leaks;
mod lost;
pub mod messages;
pub mod model;
mod mtu;
pub(crate) mod one_table;
pub mod opening;
mod policy_routing;
mod reload;
mod routes;

use serde::{Deserialize, Serialize};

use crate::spec::{Compat, HostSpec, RouteConflict};
use crate::state::HostState;
use crate::step::{AddressFamily, Implementation, Phase, Route, Step};

pub use bypass::{Bypass, bypasses};
pub use down::{cancel_inverses, down, possibly_applied, undo};
pub use gateway_commands::nft_commands;
pub use isolated::isolated;
pub use lost::lost;
pub use mtu::of as mtu;
pub use reload::{ResumedReload, Rollback, reload, resume, roll_back};

/// Steps in order, and warnings about them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// Where the plan differs from the file, and why.
    pub warnings: Vec<Warning>,
}

/// A difference from the file that does not stop the tunnel from working.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "warning")]
pub enum Warning {
    /// A route exists already.
    RouteExists {
        /// The route that was wanted.
        wanted: Route,
        /// The route that exists.
        existing: Route,
        /// What happens, in a sentence for the user.
        outcome: String,
    },
    /// `Gateway = auto` ignores a default route, because only a router advertisement announces it.
    Advertisement {
        /// The link that the advertisement came in on.
        device: String,
        /// The address of its sender, if it is known.
        router: String,
    },
    /// Anything else.
    Other { sentence: String },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RouteExists { outcome, .. } => f.write_str(outcome),
            Self::Advertisement { device, router } => write!(
                f,
                "Gateway = auto: nothing is forwarded to {device}, because its default route comes only from a router \
                 advertisement of {router}, which any host there can send. If it is an uplink, name all uplinks: \
                 `Gateway = {device}, ...`"
            ),
            Self::Other { sentence } => f.write_str(sentence),
        }
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(pub String);

/// The commands of the file, `%i` replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hooks {
    /// In the order of the file, with their phase.
    pub commands: Vec<(Phase, String)>,
}

impl Hooks {
    /// The commands that undo those of `done`, for a tunnel that did not come up: `PostDown` if a `PreUp` or `PostUp`
    /// was run, `PreDown` if a `PostUp` was. A command that failed belongs in `done`, as it may have done half of its
    /// work.
    pub fn undoing(&self, done: &[Step]) -> Self {
        let was_run = |wanted| done.iter().any(|step| matches!(step, Step::Hook { phase, .. } if *phase == wanted));
        let belongs = |phase: &Phase| match phase {
            Phase::PreUp | Phase::PostUp => false,
            Phase::PreDown => was_run(Phase::PostUp),
            Phase::PostDown => was_run(Phase::PreUp) || was_run(Phase::PostUp),
        };
        Self { commands: self.commands.iter().filter(|(phase, _)| belongs(phase)).cloned().collect() }
    }

    fn of(&self, phase: Phase) -> impl Iterator<Item = Step> + '_ {
        let commands = self.commands.iter().filter(move |(when, _)| *when == phase);
        commands.map(|(phase, command)| Step::Hook { phase: *phase, command: command.clone() })
    }
}

/// The plan that brings a tunnel up.
///
/// # Errors
/// The interface exists already, or a policy of the file forbids it.
pub fn up(
    spec: &HostSpec,
    hooks: &Hooks,
    implementation: Implementation,
    state: &HostState,
    compat: Compat,
) -> Result<Plan, PlanError> {
    let interface = &spec.interface;
    if state.link(interface).is_some() {
        return Err(PlanError(format!("`{interface}' already exists")));
    }
    let ids = policy_routing::RoutingIds::free(spec, state, compat);
    let Plan { steps, warnings } = effects(spec, state, compat, &ids)?;

    let mut all = vec![Step::AddLink { interface: interface.clone(), implementation }];
    all.extend(hooks.of(Phase::PreUp));
    all.push(Step::Configure { interface: interface.clone() });
    all.extend(steps);
    all.extend(hooks.of(Phase::PostUp));
    Ok(Plan { steps: all, warnings })
}

/// All steps of [`up`] from the addresses to the firewall. [`reload()`] derives from them what belongs to the tunnel.
fn effects(
    spec: &HostSpec,
    state: &HostState,
    compat: Compat,
    ids: &policy_routing::RoutingIds,
) -> Result<Plan, PlanError> {
    let mut plan = Plan::default();
    let mtu = mtu::of(spec, state);
    let disabled = addresses::disabled_families(state, mtu);
    let connected = addresses::plan(spec, &disabled, &mut plan);
    mtu::plan(spec, state, mtu, &mut plan);
    gateway::table(spec, state, mtu, &disabled, &mut plan)?;
    plan.steps.push(Step::LinkUp { interface: spec.interface.clone() });
    dns::plan(spec, state, compat, &mut plan);
    let placed = routes::PlannedRoute::all(spec, state, &disabled, &connected, ids, &mut plan)?;
    routes::plan(spec, state, compat, ids, placed, &mut plan)?;
    warn_of_bypasses(state, &mut plan);
    gateway::forwarding(spec, state, &disabled, &mut plan);
    Ok(plan)
}

fn warn_of_bypasses(state: &HostState, plan: &mut Plan) {
    for bypass in bypasses(&plan.steps, state) {
        plan.warn(format!(
            "{bypass}. Delete the rule, give it a priority above {}, or exclude what it is for",
            policy_routing::LAST_PRIORITY
        ));
    }
}

/// The [`effects`] of a tunnel that is up: the policy did not refuse it when it came up.
fn effects_of_up(
    spec: &HostSpec,
    state: &HostState,
    compat: Compat,
    ids: &policy_routing::RoutingIds,
) -> Result<Plan, PlanError> {
    let fails = spec.route_conflict == RouteConflict::Fail;
    let route_conflict = if fails { RouteConflict::Skip } else { spec.route_conflict };
    effects(&HostSpec { route_conflict, ..spec.clone() }, state, compat, ids)
}

impl Plan {
    fn warn(&mut self, sentence: String) {
        self.warnings.push(Warning::Other { sentence });
    }
}

/// The name of a family, for people.
fn family_name(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::V4 => "IPv4",
        AddressFamily::V6 => "IPv6",
    }
}
