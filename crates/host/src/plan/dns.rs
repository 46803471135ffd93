//! Name servers and search domains.

use super::Plan;
use crate::state::HostState;
use crate::step::Step;
use crate::wanted::{Compat, Dns, Wanted};

/// Sets them, if the file names any. Domains alone are set too; wg-quick drops them without a word.
pub(super) fn plan(wanted: &Wanted, state: &HostState, compat: Compat, plan: &mut Plan) {
    if !wanted.dns.is_empty() {
        plan.steps.push(set(wanted, state, compat));
    }
}

/// What sets them.
pub(super) fn set(wanted: &Wanted, state: &HostState, compat: Compat) -> Step {
    Step::SetDns {
        interface: wanted.interface.clone(),
        dns: wanted.dns.clone(),
        manager: state.dns.clone(),
        exclusive: is_exclusive(wanted, compat),
    }
}

/// What takes them back, if there is anything to take back.
pub(super) fn unset(interface: &str, dns: &Dns, state: &HostState) -> Option<Step> {
    let manager = state.dns.clone();
    (!dns.is_empty()).then(|| Step::UnsetDns { interface: interface.to_owned(), manager })
}

/// wg-quick has every question go to the servers (`resolvconf -x`). `linerate` does so where there are no domains to
/// tell questions apart by, or where all traffic is the tunnel's, so that none of it is told to others; else only
/// questions for the domains go there.
fn is_exclusive(wanted: &Wanted, compat: Compat) -> bool {
    let takes_all = wanted.allowed_ips.iter().any(|net| net.prefix_len() == 0) || wanted.dns.search.is_empty();
    !wanted.dns.servers.is_empty() && (compat == Compat::WgQuick || takes_all)
}
