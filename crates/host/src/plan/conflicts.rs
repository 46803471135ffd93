//! Routes that exist already: which of them stay, and what happens to ours. Never breaks a tunnel.

use std::collections::HashMap;

use ipnet::IpNet;

use super::{Plan, PlanError, Warning};
use crate::spec::{HostSpec, RouteConflict};
use crate::state::HostState;
use crate::step::Route;

/// The routes of other devices by prefix and table, lowest metric first. Every allowed IP is looked up here; there
/// may be thousands of both.
pub(super) struct ConflictingRoutes<'a>(HashMap<(IpNet, u32), Vec<&'a Route>>);

/// The result for one of our routes.
#[derive(Debug, Default)]
pub(super) struct ConflictOutcome {
    /// Existing routes that are removed first.
    pub replaced: Vec<Route>,
    /// Our route, if it is added.
    pub route: Option<Route>,
    /// An existing route is preferred to ours.
    pub is_shadowed: bool,
}

impl<'a> ConflictingRoutes<'a> {
    pub(super) fn of(spec: &HostSpec, state: &'a HostState) -> Self {
        let mut conflicts: HashMap<_, Vec<&Route>> = HashMap::new();
        for route in state.routes.iter().filter(|route| route.device.as_ref() != Some(&spec.interface)) {
            conflicts.entry((route.to, route.table)).or_default().push(route);
        }
        conflicts.values_mut().for_each(|conflicts| conflicts.sort_by_key(|existing| existing.metric));
        Self(conflicts)
    }

    /// Applies the policy. A route conflicts if it goes to the same prefix in the same table and has a lower metric, so
    /// that it is preferred, or the same one, so that the kernel refuses ours.
    pub(super) fn resolve(&self, spec: &HostSpec, route: Route, plan: &mut Plan) -> Result<ConflictOutcome, PlanError> {
        let same = self.0.get(&(route.to, route.table)).map(Vec::as_slice).unwrap_or_default();
        let conflicts = &same[..same.partition_point(|existing| existing.metric <= route.metric)];
        let Some(&existing) = conflicts.first() else {
            return Ok(ConflictOutcome { route: Some(route), ..ConflictOutcome::default() });
        };
        let (to, interface) = (route.to, &spec.interface);
        let place = match &existing.device {
            Some(device) => format!("on {device}"),
            None => "unreachable".to_owned(),
        };
        let stays = format!("{to} stays {place}: hosts in that network are not reachable through the tunnel");
        let is_taken = |metric: u32| same.iter().any(|existing| existing.metric == metric);
        let (message, outcome) = match spec.route_conflict {
            RouteConflict::Fail => {
                return Err(PlanError(format!(
                    "{to} already has a route ({place}), and RouteConflict is fail: remove {to} from AllowedIPs, or set \
                     RouteConflict to skip, metric or replace"
                )));
            }
            RouteConflict::Skip => {
                let route = Some(route.clone()).filter(|route| !is_taken(route.metric));
                (stays, ConflictOutcome { route, is_shadowed: true, ..ConflictOutcome::default() })
            }
            RouteConflict::Metric => {
                let metric = (route.metric..=u32::MAX).find(|metric| !is_taken(*metric));
                let (here, there) = (metric.unwrap_or(u32::MAX), existing.metric);
                let message =
                    format!("{stays} while that route exists (its metric is {there}, that of {interface} is {here})");
                let route = metric.map(|metric| Route { metric, ..route.clone() });
                (message, ConflictOutcome { route, is_shadowed: true, ..ConflictOutcome::default() })
            }
            RouteConflict::Replace => {
                let message = format!(
                    "{to} now goes to {interface}; the existing route ({place}) is restored when the tunnel goes down"
                );
                let replaced = conflicts.iter().copied().cloned().collect();
                (message, ConflictOutcome { replaced, route: Some(route.clone()), is_shadowed: false })
            }
        };
        plan.warnings.push(Warning::RouteExists { wanted: route, existing: existing.clone(), outcome: message });
        Ok(outcome)
    }
}
