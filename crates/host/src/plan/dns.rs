//! Name servers and search domains.

use super::Plan;
use crate::state::HostState;
use crate::step::Step;
use crate::wanted::{Compat, Dns, Wanted};

/// Sets them, if the file names any. Domains alone are set too; wg-quick silently drops them.
pub(super) fn plan(wanted: &Wanted, state: &HostState, compat: Compat, plan: &mut Plan) {
    if !wanted.dns.is_empty() {
        plan.steps.push(set(wanted, state, compat));
    }
}

/// The step that sets them.
pub(super) fn set(wanted: &Wanted, state: &HostState, compat: Compat) -> Step {
    Step::SetDns {
        interface: wanted.interface.clone(),
        dns: wanted.dns.clone(),
        manager: state.dns.clone(),
        exclusive: is_exclusive(wanted, compat),
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
fn is_exclusive(wanted: &Wanted, compat: Compat) -> bool {
    let takes_all = wanted.allowed_ips.iter().any(|net| net.prefix_len() == 0) || wanted.dns.search.is_empty();
    !wanted.dns.servers.is_empty() && (compat == Compat::WgQuick || takes_all)
}
