//! A host in memory: what the Linux kernel does with a step. Pure; reloads are planned on it, and the tests of plans
//! use it.
//!
//! It models links, addresses with the routes that the kernel adds for them, routes, rules, sysctls with who holds them,
//! and the names of firewall tables. It does not model marks, keys, hooks and name servers: such steps do nothing here.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::addresses::connected;
use super::forwarding_guard::ForwardingGuard;
use super::gateway;
use crate::state::{HeldSysctl, HostState, Link};
use crate::step::{AddressFamily, Implementation, MAIN, Route, Rule, Step};

/// The kernel's error for a step, as it words it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StepRefused(pub &'static str);

const EXISTS: StepRefused = StepRefused("File exists");
const NO_DEVICE: StepRefused = StepRefused("Cannot find device");
const NO_ADDRESS: StepRefused = StepRefused("Cannot assign requested address");
const NO_ROUTE: StepRefused = StepRefused("No such process");
const NO_ENTRY: StepRefused = StepRefused("No such file or directory");
const NOT_SUPPORTED: StepRefused = StepRefused("Operation not supported");
const NO_SOURCE: StepRefused = StepRefused("Invalid argument");
const DOWN: StepRefused = StepRefused("Network is down");

/// Routes that the kernel adds (rtnetlink.h, `RTPROT_KERNEL`) have scope link for IPv4 (`RT_SCOPE_LINK`), and
/// have the metric of addrconf for IPv6 (include/net/ip6_route.h, `IP6_RT_PRIO_ADDRCONF`).
pub(super) const PROTOCOL_KERNEL: u8 = 2;
const SCOPE_LINK: u8 = 253;
const ADDRCONF_METRIC: u32 = 256;

impl HostState {
    /// Applies a step.
    ///
    /// # Errors
    /// The kernel would refuse it; nothing has changed.
    pub fn apply(&mut self, step: &Step) -> Result<(), StepRefused> {
        match step {
            Step::AddLink { interface, implementation } => self.add_link(interface, *implementation),
            Step::DeleteLink { interface } => {
                self.link(interface).is_some().then(|| forget_link(self, interface)).ok_or(NO_DEVICE)
            }
            Step::AddAddress { interface, address } => self.add_address(interface, address),
            Step::DeleteAddress { interface, address } => self.delete_address(interface, address),
            Step::SetMtu { interface, mtu, .. } => self.link_mut(interface).map(|link| link.mtu = *mtu),
            Step::LinkUp { interface } => self.set_up(interface),
            Step::AddRoute(route) => self.add_route(route),
            Step::DeleteRoute(route) => remove(&mut self.routes, |other| other == route, NO_ROUTE),
            Step::AddRule(rule) => self.add_rule(rule),
            // A rule without a protocol matches any (`rule_find` in net/core/fib_rules.c).
            Step::DeleteRule(rule) => {
                let is_it = |other: &Rule| {
                    other == rule || (rule.protocol == 0 && Rule { protocol: 0, ..other.clone() } == *rule)
                };
                remove(&mut self.rules, is_it, NO_ENTRY)
            }
            Step::SetSysctl { name, value, .. } => {
                self.sysctls.get_mut(name).map(|set| set.clone_from(value)).ok_or(NO_ENTRY)
            }
            Step::HoldSysctl { interface, name, value, before } => self.hold(interface, name, value, before),
            Step::ReleaseSysctl { interface, name, value, .. } => self.release(interface, name, value),
            Step::AddFirewall(_) | Step::AddGateway(_) if !self.nftables => Err(NOT_SUPPORTED),
            Step::AddFirewall(firewall) => self.add_table(firewall.nft_name()),
            Step::AddGateway(table) => self.add_table(table.nft_name()),
            Step::Open(opening) => {
                self.openings.insert(opening.id());
                Ok(())
            }
            // Closing what is not open is harmless, and it need not be known whether it is.
            Step::Close(opening) => {
                self.openings.remove(&opening.id());
                Ok(())
            }
            Step::DeleteFirewall(firewall) => self.delete_table(&firewall.nft_name()),
            Step::DeleteGateway(table) => self.delete_table(&table.nft_name()),
            Step::Configure { interface } | Step::SetFwmark { interface, .. } => self.link_mut(interface).map(|_| ()),
            Step::Hook { .. } | Step::SetDns { .. } | Step::UnsetDns { .. } => Ok(()),
        }
    }

    fn add_link(&mut self, interface: &str, implementation: Implementation) -> Result<(), StepRefused> {
        if self.link(interface).is_some() {
            return Err(EXISTS);
        }
        let index = self.links.iter().map(|link| link.index).max().unwrap_or(0) + 1;
        let wireguard = implementation == Implementation::Kernel;
        self.links.push(Link {
            name: interface.to_owned(),
            index,
            mtu: 1420,
            up: false,
            wireguard,
            tun: !wireguard,
            addresses: Vec::new(),
        });
        // A new link takes over the defaults (`devinet_conf` and `ipv6_devconf_dflt`).
        let of_link = |(name, value): (&String, &String)| {
            let (family, variable) = name.strip_prefix("net.")?.split_once(".conf.default.")?;
            Some((gateway::sysctl_name(family, interface, variable), value.clone()))
        };
        let inherited: Vec<_> = self.sysctls.iter().filter_map(of_link).collect();
        self.sysctls.extend(inherited);
        Ok(())
    }

    /// It replaces a table of the same name.
    fn add_table(&mut self, name: String) -> Result<(), StepRefused> {
        self.firewall_tables.retain(|table| *table != name);
        self.firewall_tables.push(name);
        Ok(())
    }

    fn delete_table(&mut self, name: &str) -> Result<(), StepRefused> {
        remove(&mut self.firewall_tables, |table| table == name, NO_ENTRY)
    }

    fn hold(&mut self, interface: &str, name: &str, value: &str, before: &str) -> Result<(), StepRefused> {
        self.sysctls.get_mut(name).ok_or(NO_ENTRY)?.replace_range(.., value);
        let held = HeldSysctl { before: before.to_owned(), holders: BTreeSet::new() };
        self.held_sysctls.entry(name.to_owned()).or_insert(held).holders.insert(interface.to_owned());
        self.guard_forwarding();
        Ok(())
    }

    fn guard_forwarding(&mut self) {
        self.firewall_tables.retain(|table| table != ForwardingGuard::NFT_NAME);
        let guard = ForwardingGuard::of(&self.held_sysctls).map(|_| ForwardingGuard::NFT_NAME.to_owned());
        self.firewall_tables.extend(guard);
    }

    fn release(&mut self, interface: &str, name: &str, value: &str) -> Result<(), StepRefused> {
        let held = self.held_sysctls.get_mut(name).ok_or(NO_ENTRY)?;
        if !held.holders.remove(interface) {
            return Err(NO_ENTRY);
        }
        if held.holders.is_empty() {
            let before = self.held_sysctls.remove(name).map(|held| held.before);
            let current = self.sysctls.get_mut(name).filter(|current| *current == value);
            current.zip(before).into_iter().for_each(|(current, before)| *current = before);
        }
        self.guard_forwarding();
        Ok(())
    }

    fn set_up(&mut self, interface: &str) -> Result<(), StepRefused> {
        let link = self.link_mut(interface)?;
        if !std::mem::replace(&mut link.up, true) {
            for address in link.addresses.clone() {
                self.add_connected(interface, &address);
            }
        }
        Ok(())
    }

    /// An IPv4 address may exist once with each mask (`__inet_insert_ifa` in net/ipv4/devinet.c), IPv6 once
    /// (`ipv6_add_addr` in net/ipv6/addrconf.c).
    fn add_address(&mut self, interface: &str, address: &IpNet) -> Result<(), StepRefused> {
        let family = AddressFamily::of_net(address);
        if self.disabled_families.contains(&family) {
            return Err(StepRefused("Permission denied"));
        }
        let link = self.link_mut(interface)?;
        let is_same = |other: &IpNet| match family {
            AddressFamily::V4 => other == address,
            AddressFamily::V6 => other.addr() == address.addr(),
        };
        if link.addresses.iter().any(is_same) {
            return Err(EXISTS);
        }
        link.addresses.push(*address);
        if link.up {
            self.add_connected(interface, address);
        }
        Ok(())
    }

    /// Deleting the first IPv4 address of a network deletes the others of that network; deleting the last one, all IPv4
    /// routes of the link (`__inet_del_ifa`, and `fib_inetaddr_event` in net/ipv4/fib_frontend.c).
    fn delete_address(&mut self, interface: &str, address: &IpNet) -> Result<(), StepRefused> {
        let link = self.link_mut(interface)?;
        let position = link.addresses.iter().position(|other| other == address).ok_or(NO_ADDRESS)?;
        let is_first = !link.addresses[..position].iter().any(|other| other.trunc() == address.trunc());
        link.addresses.remove(position);
        let is_v4 = AddressFamily::of_net(address) == AddressFamily::V4;
        let is_elsewhere = link.addresses.iter().any(|other| other.addr() == address.addr());
        if is_v4 && is_first {
            link.addresses.retain(|other| other.trunc() != address.trunc());
        }
        let is_left = link.addresses.iter().any(|other| other.trunc() == address.trunc());
        let no_v4_left = !link.addresses.iter().any(|other| AddressFamily::of_net(other) == AddressFamily::V4);
        let is_gone = |route: &Route| {
            let is_connected = route.protocol == PROTOCOL_KERNEL && Some(route.to) == connected(address);
            let is_flushed = is_v4 && no_v4_left && AddressFamily::of_net(&route.to) == AddressFamily::V4;
            let is_from_it = is_v4 && !is_elsewhere && route.source == Some(address.addr());
            route.device.as_deref() == Some(interface) && ((is_connected && !is_left) || is_flushed || is_from_it)
        };
        self.routes.retain(|route| !is_gone(route));
        Ok(())
    }

    fn add_connected(&mut self, interface: &str, address: &IpNet) {
        let Some(to) = connected(address) else { return };
        let is_v4 = AddressFamily::of_net(address) == AddressFamily::V4;
        let route = Route {
            to,
            device: Some(interface.to_owned()),
            via: None,
            table: MAIN,
            metric: if is_v4 { 0 } else { ADDRCONF_METRIC },
            protocol: PROTOCOL_KERNEL,
            scope: if is_v4 { SCOPE_LINK } else { 0 },
            source: is_v4.then(|| address.addr()),
            mtu: 0,
            onlink: false,
        };
        let is_same = |other: &Route| Route { source: other.source, ..route.clone() } == *other;
        if !self.routes.iter().any(is_same) {
            self.routes.push(route);
        }
    }

    fn add_route(&mut self, route: &Route) -> Result<(), StepRefused> {
        if self.disabled_families.contains(&AddressFamily::of_net(&route.to)) {
            return Err(NOT_SUPPORTED);
        }
        if let Some(device) = &route.device {
            let link = self.link(device).ok_or(NO_DEVICE)?;
            if !link.up {
                return Err(DOWN);
            }
        }
        // A preferred source must be an address of the host.
        let is_ours =
            |source: IpAddr| self.links.iter().flat_map(|link| &link.addresses).any(|address| address.addr() == source);
        if route.source.is_some_and(|source| !is_ours(source)) {
            return Err(NO_SOURCE);
        }
        let is_same =
            |other: &Route| other.to == route.to && other.table == route.table && other.metric == route.metric;
        if self.routes.iter().any(is_same) {
            return Err(EXISTS);
        }
        self.routes.push(route.clone());
        Ok(())
    }

    fn add_rule(&mut self, rule: &Rule) -> Result<(), StepRefused> {
        if self.disabled_families.contains(&rule.family) {
            return Err(NOT_SUPPORTED);
        }
        let is_same = |other: &Rule| Rule { protocol: other.protocol, ..rule.clone() } == *other;
        if self.rules.iter().any(is_same) {
            return Err(EXISTS);
        }
        self.rules.push(rule.clone());
        Ok(())
    }

    fn link_mut(&mut self, name: &str) -> Result<&mut Link, StepRefused> {
        self.links.iter_mut().find(|link| link.name == name).ok_or(NO_DEVICE)
    }
}

/// Removes a link with its addresses and routes.
pub(super) fn forget_link(state: &mut HostState, interface: &str) {
    state.links.retain(|link| link.name != interface);
    state.sysctls.retain(|name, _| !gateway::is_sysctl_of(name, interface));
    state.held_sysctls.retain(|name, _| !gateway::is_sysctl_of(name, interface));
    state.routes.retain(|route| route.device.as_deref() != Some(interface));
}

fn remove<T>(from: &mut Vec<T>, is_it: impl Fn(&T) -> bool, refused: StepRefused) -> Result<(), StepRefused> {
    let position = from.iter().position(is_it).ok_or(refused)?;
    // The order does not matter, and there may be thousands of routes.
    from.swap_remove(position);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_prefers_only_a_source_address_that_the_host_has() {
        let (address, net) = ("192.0.2.7/24".parse().unwrap(), "10.0.0.0/8".parse().unwrap());
        let link =
            Link { name: "e0".into(), index: 2, mtu: 1500, up: true, addresses: vec![address], ..Link::default() };
        let mut host = HostState { links: vec![link], ..HostState::default() };
        let from = |source: &str| Route {
            to: net,
            device: Some("e0".into()),
            via: None,
            table: MAIN,
            metric: 0,
            protocol: 4,
            scope: 253,
            source: Some(source.parse().unwrap()),
            mtu: 0,
            onlink: false,
        };
        assert_eq!(host.add_route(&from("192.0.2.8")), Err(NO_SOURCE));
        assert_eq!(host.add_route(&from("192.0.2.7")), Ok(()));
    }
}
