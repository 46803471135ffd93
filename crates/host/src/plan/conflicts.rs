//! Routes that exist already, and what becomes of ours: never what destroys a tunnel.

use std::collections::HashMap;

use ipnet::IpNet;

use super::{Plan, PlanError, Warning};
use crate::state::HostState;
use crate::step::Route;
use crate::wanted::{RouteConflict, Wanted};

/// The routes of other devices, by prefix and table, the lowest metric first. Every allowed IP is looked up here, and
/// there may be thousands of both.
pub(super) struct ConflictingRoutes<'a>(HashMap<(IpNet, u32), Vec<&'a Route>>);

/// What a route that exists already leaves of ours.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// ConflictingRoutes that give way first.
    pub replaced: Vec<Route>,
    /// Ours, if there is to be one.
    pub route: Option<Route>,
    /// A rival is used before ours.
    pub is_beaten: bool,
}

impl<'a> ConflictingRoutes<'a> {
    pub(super) fn of(wanted: &Wanted, state: &'a HostState) -> Self {
        let mut rivals: HashMap<_, Vec<&Route>> = HashMap::new();
        for route in state.routes.iter().filter(|route| route.device.as_ref() != Some(&wanted.interface)) {
            rivals.entry((route.to, route.table)).or_default().push(route);
        }
        rivals.values_mut().for_each(|rivals| rivals.sort_by_key(|rival| rival.metric));
        Self(rivals)
    }

    /// Applies the policy. A rival is a route to the same prefix in the same table that is used before ours, or has
    /// the same metric, with which the kernel refuses a second one.
    pub(super) fn resolve(&self, wanted: &Wanted, route: Route, plan: &mut Plan) -> Result<Resolved, PlanError> {
        let same = self.0.get(&(route.to, route.table)).map(Vec::as_slice).unwrap_or_default();
        let rivals = &same[..same.partition_point(|rival| rival.metric <= route.metric)];
        let Some(&rival) = rivals.first() else {
            return Ok(Resolved { route: Some(route), ..Resolved::default() });
        };
        let (to, interface) = (route.to, &wanted.interface);
        let place = match &rival.device {
            Some(device) => format!("on {device}"),
            None => "with a route that refuses".to_owned(),
        };
        let stays = format!("{to} stays {place}: hosts of that network are not reached through the tunnel");
        let is_taken = |metric: u32| same.iter().any(|rival| rival.metric == metric);
        let (outcome, resolved) = match wanted.route_conflict {
            RouteConflict::Fail => {
                return Err(PlanError(format!(
                    "{to} has a route already, {place}, and RouteConflict is fail: take {to} out of AllowedIPs, or \
                     have RouteConflict = skip, metric or replace"
                )));
            }
            RouteConflict::Skip => {
                let route = Some(route.clone()).filter(|route| !is_taken(route.metric));
                (stays, Resolved { route, is_beaten: true, ..Resolved::default() })
            }
            RouteConflict::Metric => {
                let metric = (route.metric..=u32::MAX).find(|metric| !is_taken(*metric));
                let (here, there) = (metric.unwrap_or(u32::MAX), rival.metric);
                let outcome =
                    format!("{stays} while that route is there, as its metric is {there} and {interface}'s {here}");
                let route = metric.map(|metric| Route { metric, ..route.clone() });
                (outcome, Resolved { route, is_beaten: true, ..Resolved::default() })
            }
            RouteConflict::Replace => {
                let outcome = format!("{to} goes to {interface}: the route {place} comes back when the tunnel goes");
                let replaced = rivals.iter().copied().cloned().collect();
                (outcome, Resolved { replaced, route: Some(route.clone()), is_beaten: false })
            }
        };
        plan.warnings.push(Warning::RouteExists { wanted: route, rival: rival.clone(), outcome });
        Ok(resolved)
    }
}
