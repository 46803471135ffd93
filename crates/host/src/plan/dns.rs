//! Name servers and search domains.

use super::Plan;
use crate::spec::{Compat, Dns, HostSpec};
use crate::state::HostState;
use crate::step::Step;

/// Sets them, if the file names any. Domains alone are set too; wg-quick silently drops them.
pub(super) fn plan(spec: &HostSpec, state: &HostState, compat: Compat, plan: &mut Plan) {
    if !spec.dns.is_empty() {
        plan.steps.push(set(spec, state, compat));
    }
}

/// The step that sets them.
pub(super) fn set(spec: &HostSpec, state: &HostState, compat: Compat) -> Step {
    Step::SetDns {
        interface: spec.interface.clone(),
        dns: spec.dns.clone(),
        manager: state.dns.clone(),
        exclusive: is_exclusive(spec, compat),
    }
}

/// The step that removes them, if there are any.
pub(super) fn unset(interface: &str, dns: &Dns, state: &HostState) -> Option<Step> {
    let manager = state.dns.clone();
    (!dns.is_empty()).then(|| Step::UnsetDns { interface: interface.to_owned(), manager })
}

/// wg-quick sends every query to the servers (`resolvconf -x`). `linerate` does so if there are no domains to select
/// queries by, or if the tunnel takes all traffic, so that no other server sees a query; otherwise only queries in the
/// domains go there.
fn is_exclusive(spec: &HostSpec, compat: Compat) -> bool {
    let takes_all = spec.allowed_ips.iter().any(|net| net.prefix_len() == 0) || spec.dns.search.is_empty();
    !spec.dns.servers.is_empty() && (compat == Compat::WgQuick || takes_all)
}
