//! The firewall tables of tunnels: which chains and rules they have.
//!
//! One transaction creates or deletes any number of tables, all or none.

use std::net::IpAddr;

use ipnet::IpNet;
use linerate_netlink::{NLM_F_EXCL, NetlinkError, Request};
use rustix::io::Errno;

use super::gateway;
use super::nftables::{
    self, ACCEPT, DROP, FORWARD, LOCAL_OUT, META_IIFNAME, META_MARK, META_OIFNAME, NFPROTO_IPV4, NFPROTO_IPV6,
    POST_ROUTING, PRE_ROUTING, Rule, Table, padded,
};
use super::socket::NetlinkSocket;
use crate::plan::forwarding_guard::ForwardingGuard;
use crate::step::{Firewall, Step};

/// Creates and deletes the tables of `steps` ([`Step::is_firewall`]), all or none.
///
/// # Errors
/// ENOENT for a table to delete that does not exist. A new table replaces one of the same name.
pub(super) fn change(socket: &mut NetlinkSocket, steps: &[Step]) -> Result<(), NetlinkError> {
    let mut changes = Vec::new();
    for step in steps {
        match step {
            Step::AddFirewall(firewall) => changes.extend(additions(firewall)?),
            Step::DeleteFirewall(firewall) => changes.push(Table::of(firewall)?.deleted()),
            Step::AddGateway(table) => changes.extend(gateway::additions(table)?),
            Step::DeleteGateway(table) => changes.push(Table::inet(&table.name()).deleted()),
            _ => return Err(Errno::INVAL.into()),
        }
    }
    nftables::transact(socket, changes)
}

/// Replaces the table of the [`ForwardingGuard`], or deletes it if there is no guard.
pub(super) fn guard(socket: &mut NetlinkSocket, guard: Option<&ForwardingGuard>) -> Result<(), NetlinkError> {
    let changes = match guard {
        Some(guard) => gateway::guard_additions(guard)?,
        None => gateway::guard_deletions(),
    };
    nftables::transact(socket, changes)
}

/// All that makes the table of a tunnel. As `wg-quick` has it, in the order in which it has it; then the kill switch.
fn additions(firewall: &Firewall) -> Result<Vec<Request>, NetlinkError> {
    let table = Table::of(firewall)?;
    let interface = &padded(&firewall.interface)?;
    // A table of this name was left by a tunnel that was interrupted. Deleting fails if there is none, so it is created
    // first.
    let mut made = vec![table.created(0), table.deleted(), table.created(NLM_F_EXCL)];

    made.push(table.chain("preraw", PRE_ROUTING, RAW, ACCEPT));
    if firewall.fwmark.is_some() {
        made.push(table.chain("premangle", PRE_ROUTING, MANGLE, ACCEPT));
        made.push(table.chain("postmangle", POST_ROUTING, MANGLE, ACCEPT));
    }
    // Nobody reaches the tunnel's addresses from another network (CVE-2019-14899).
    for address in firewall.addresses.iter().filter(|address| table.holds(address)) {
        let rule = Rule::default().name_is_not(META_IIFNAME, interface);
        let rule = table.destination(rule, &IpNet::from(*address)).source_is_not_local().verdict(DROP);
        made.push(table.rule("preraw", rule));
    }
    // Replies to the tunnel's packets get its mark, so that the reverse path filter looks up the same route.
    if let Some(mark) = firewall.fwmark {
        let rule = Rule::default().protocol(UDP).mark(mark).meta(META_MARK).set_ct_mark();
        made.push(table.rule("postmangle", rule));
        let rule = Rule::default().protocol(UDP).ct_mark().set_mark();
        made.push(table.rule("premangle", rule));
    }

    if let Some(excluded) = &firewall.kill_switch {
        made.extend(kill_switch(&table, firewall, excluded)?);
    }
    Ok(made)
}

/// The kill switch: drops everything that the rules do not accept; the last rule counts it.
fn kill_switch(table: &Table<'_>, firewall: &Firewall, excluded: &[IpNet]) -> Result<Vec<Request>, NetlinkError> {
    let interface = &padded(&firewall.interface)?;
    let mut made = vec![table.chain("output", LOCAL_OUT, FILTER, DROP), table.chain("forward", FORWARD, FILTER, DROP)];
    let mut rule = |chain, rule: Rule, verdict| made.push(table.rule(chain, rule.verdict(verdict)));

    rule("output", Rule::default().name_is(META_OIFNAME, &padded("lo")?), ACCEPT);
    rule("output", Rule::default().name_is(META_OIFNAME, interface), ACCEPT);
    if let Some(mark) = firewall.fwmark {
        rule("output", Rule::default().mark(mark), ACCEPT);
    }
    // Packets from the tunnel may be forwarded.
    rule("forward", Rule::default().name_is(META_IIFNAME, interface), ACCEPT);
    rule("forward", Rule::default().name_is(META_OIFNAME, interface), ACCEPT);
    let held = |nets: &[IpNet]| nets.iter().filter(|net| table.holds(&net.addr())).copied().collect::<Vec<_>>();
    let excluded = held(excluded);
    for chain in ["output", "forward"] {
        for net in held(&firewall.kept_inside) {
            rule(chain, table.destination(Rule::default(), &net).counter(), DROP);
        }
        if !excluded.is_empty() {
            for (protocol, port) in NAME_SERVICES {
                for server in firewall.name_servers.iter().filter(|server| table.holds(server)) {
                    let to_server = table.destination(Rule::default(), &IpNet::from(*server));
                    rule(chain, to_server.protocol(protocol).destination_port(port), ACCEPT);
                }
                rule(chain, Rule::default().protocol(protocol).destination_port(port).counter(), DROP);
            }
        }
        for net in &excluded {
            rule(chain, table.destination(Rule::default(), net), ACCEPT);
        }
    }
    let mut accept = |chain, accepted: Rule| rule(chain, accepted, ACCEPT);
    if table.holds(&IpAddr::from([0; 4])) {
        accept("output", table.only(Rule::default(), NFPROTO_IPV4).protocol(UDP).ports(DHCP));
    }
    if table.holds(&IpAddr::from([0; 16])) {
        accept("output", table.only(Rule::default(), NFPROTO_IPV6).protocol(UDP).ports(DHCPV6));
        for kind in NEIGHBOUR_DISCOVERY {
            accept("output", table.only(Rule::default(), NFPROTO_IPV6).protocol(ICMPV6).icmp_type(kind));
        }
    }
    // The kernel deletes the old table before the new chain's policy takes effect (nf_tables_commit in
    // net/netfilter/nf_tables_api.c). Until then this last rule drops.
    for chain in ["output", "forward"] {
        made.push(table.rule(chain, Rule::default().counter().verdict(DROP)));
    }
    Ok(made)
}

// linux/netfilter_ipv4.h, `NF_IP_PRI_*`: what `nft` calls raw, mangle and filter.
pub(super) const RAW: i32 = -300;
pub(super) const MANGLE: i32 = -150;
pub(super) const FILTER: i32 = 0;

// RFC 790, RFC 2131 section 4.1, RFC 8415 section 7.2, RFC 4861 section 4.
const UDP: u8 = 17;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;
/// Protocols and ports of name servers: DNS, and DNS over TLS and QUIC (RFC 1035, 7858, 9250).
const NAME_SERVICES: [(u8, u16); 4] = [(UDP, 53), (TCP, 53), (TCP, 853), (UDP, 853)];
/// From the client's port to the server's.
const DHCP: [u16; 2] = [68, 67];
const DHCPV6: [u16; 2] = [546, 547];
/// Router solicitation, neighbour solicitation and advertisement.
const NEIGHBOUR_DISCOVERY: [u8; 3] = [133, 135, 136];
