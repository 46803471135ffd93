//! The firewall tables of tunnels: which chains and rules they have.
//!
//! One transaction creates or deletes any number of tables, all or none.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use linerate_netlink::{Message, NetlinkError, Request};
use rustix::io::Errno;

use super::gateway;
use super::nftables::{
    self, ACCEPT, DROP, FORWARD, LOCAL_OUT, META_IIFNAME, META_MARK, META_OIFNAME, NFPROTO_IPV4, NFPROTO_IPV6,
    POST_ROUTING, PRE_ROUTING, Rule, Table, padded,
};
use super::socket::NetlinkSocket;
use crate::plan::forwarding_guard::ForwardingGuard;
use crate::step::{Firewall, Step};

/// Creates and deletes the tables of `steps` ([`Step::is_firewall`]), all or none. A new table replaces one of the same name.
///
/// # Errors
/// ENOENT for a table to delete that does not exist.
pub(super) fn change(socket: &mut NetlinkSocket, steps: &[Step]) -> Result<(), NetlinkError> {
    let existing = socket.list(nftables::list(), nftables::read)?;
    let mut changes = Changes::default();
    for step in steps {
        match step {
            Step::AddFirewall(firewall) => {
                changes.replace(&existing, &Table::of(firewall)?, |table| additions(firewall, table))?;
            }
            Step::AddGateway(gateway) => {
                changes.replace(&existing, &Table::inet(gateway.name()), |table| gateway::additions(gateway, table))?;
            }
            Step::DeleteFirewall(firewall) => changes.delete(&existing, &Table::of(firewall)?),
            Step::DeleteGateway(gateway) => changes.delete(&existing, &Table::inet(gateway.name())),
            _ => return Err(Errno::INVAL.into()),
        }
    }
    changes.make(socket)
}

/// Returns the tables of `steps` that have fewer rules than at their creation; `nft flush` empties a table and keeps it.
///
/// # Errors
/// The kernel refuses a request.
pub(super) fn emptied(socket: &mut NetlinkSocket, steps: &[Step]) -> Result<Vec<String>, NetlinkError> {
    let mut emptied = Vec::new();
    for step in steps {
        let (table, made) = match step {
            Step::AddFirewall(firewall) => {
                let table = Table::of(firewall)?;
                let made = additions(firewall, &table)?;
                (table, made)
            }
            Step::AddGateway(gateway) => {
                let table = Table::inet(gateway.name());
                let made = gateway::additions(gateway, &table)?;
                (table, made)
            }
            _ => continue,
        };
        let made = made.iter().filter(|request| request.kind() == nftables::NFT_MSG_NEWRULE).count();
        let is_rule = |message: &Message<'_>| (message.kind == nftables::NFT_MSG_NEWRULE).then_some(());
        if socket.list(table.rules(), is_rule)?.len() < made {
            emptied.push(table.nft_name());
        }
    }
    Ok(emptied)
}

/// Replaces the table of the [`ForwardingGuard`], or deletes it if there is no guard.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn guard(socket: &mut NetlinkSocket, guard: Option<&ForwardingGuard>) -> Result<(), NetlinkError> {
    let existing = socket.list(nftables::list(), nftables::read)?;
    let table = Table::inet(ForwardingGuard::TABLE.to_owned());
    let mut changes = Changes::default();
    match guard {
        Some(guard) => changes.replace(&existing, &table, |table| gateway::guard_additions(guard, table))?,
        None if existing.contains(&table.nft_name()) => changes.delete(&existing, &table),
        None => {}
    }
    changes.make(socket)
}

/// Transactions that replace tables, with no moment at which neither the old rules nor the new ones are in force.
///
/// One transaction that deletes a table and creates another of its name has such a moment: the kernel takes the rules from
/// the old chains, and gives the new chains theirs, before the elements of the new sets become visible and before the new
/// policies count (`nf_tables_commit` in net/netfilter/nf_tables_api.c). So a copy of the new table, under another name,
/// is in force until the replacement is complete. If the process is killed meanwhile, the copy stays until the table is
/// changed or deleted the next time.
#[derive(Default)]
struct Changes {
    copies: Vec<Request>,
    changes: Vec<Request>,
    /// The copies to delete.
    obsolete: HashSet<Table>,
}

impl Changes {
    /// Replaces `table`, if it is one of the `existing`, by what `additions` puts into it.
    fn replace(
        &mut self,
        existing: &[String],
        table: &Table,
        additions: impl Fn(&Table) -> Result<Vec<Request>, NetlinkError>,
    ) -> Result<(), NetlinkError> {
        if existing.contains(&table.nft_name()) {
            let copy = table.copy();
            self.copies.extend(copy.replaced());
            self.copies.extend(additions(&copy)?);
            self.obsolete.insert(copy);
        }
        self.changes.extend(table.replaced());
        self.changes.extend(additions(table)?);
        Ok(())
    }

    /// Deletes `table`, and its copy if there is one.
    fn delete(&mut self, existing: &[String], table: &Table) {
        self.changes.push(table.deleted());
        let copy = table.copy();
        if existing.contains(&copy.nft_name()) {
            self.obsolete.insert(copy);
        }
    }

    /// Makes all changes, or none. No copy is left.
    fn make(self, socket: &mut NetlinkSocket) -> Result<(), NetlinkError> {
        nftables::transact(socket, self.copies)?;
        let made = nftables::transact(socket, self.changes);
        let deleted = nftables::transact(socket, self.obsolete.iter().map(Table::deleted).collect());
        made.and(deleted)
    }
}

/// All that makes the table of a tunnel. As `wg-quick` has it, in the order in which it has it; then the kill switch.
fn additions(firewall: &Firewall, table: &Table) -> Result<Vec<Request>, NetlinkError> {
    let interface = &padded(&firewall.interface)?;
    let mut made = Vec::new();

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
        made.extend(kill_switch(table, firewall, excluded)?);
    }
    Ok(made)
}

/// The kill switch: drops everything that the rules do not accept; the last rule counts it.
fn kill_switch(table: &Table, firewall: &Firewall, excluded: &[IpNet]) -> Result<Vec<Request>, NetlinkError> {
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
    // The policy of a chain takes effect a moment after its rules (see `Changes`). Until then this last rule drops.
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
