//! The Linux host: reads its state and applies steps, over netlink.
//!
//! Except for iptables, which alone can read its rules of the older kind, no program is run. The plan decides what is
//! done, and in which order. Routes, addresses and rules are sent to the kernel in batches (`socket`), firewall tables in
//! one transaction (`firewall`).

#[cfg(test)]
mod corpus;
mod firewall;
mod foreign;
mod gateway;
mod host_watch;
#[cfg(test)]
mod hostile;
mod links;
mod nftables;
mod prefix;
mod routes;
mod rules;
mod socket;
mod state;
mod sysctl;

use std::collections::{BTreeMap, HashMap};
use std::io;

use ipnet::IpNet;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;

use linerate_netlink::{Message, NetlinkError, Request};

pub use self::host_watch::HostWatch;
use self::socket::NetlinkSocket;
use crate::plan::forwarding_guard::ForwardingGuard;
pub use crate::plan::messages::as_commands;
use crate::state::{Foreign, ForeignChain, HeldSysctl, HostState, Link};
use crate::step::{Implementation, Opening, Step};
use crate::transaction::ApplyError;

/// Default routes of tunnels are in tables of their own.
pub const ONE_TABLE: bool = false;

// linux/netlink.h
const NETLINK_ROUTE: isize = 0;
const NETLINK_NETFILTER: isize = 12;

/// The connection to the kernel for links, addresses, routes, rules and the firewall.
pub struct Host {
    routing: NetlinkSocket,
    /// None if the kernel has no netfilter.
    filter: Option<NetlinkSocket>,
}

impl Host {
    /// Opens the sockets that it needs.
    ///
    /// # Errors
    /// They cannot be opened.
    pub fn open() -> io::Result<Self> {
        let filter = match NetlinkSocket::open(NETLINK_NETFILTER) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT) => None,
            opened => Some(opened?),
        };
        Ok(Self { routing: NetlinkSocket::open(NETLINK_ROUTE)?, filter })
    }

    /// The index of the interface, if it exists.
    pub fn index(&self, interface: &str) -> Option<u32> {
        name_to_index(&self.routing, interface).ok()
    }

    /// The links, without their addresses.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        self.routing.list(links::list(), links::read).map_err(NetlinkError::into_io_error)
    }

    /// Reads the state of this host's network namespace.
    ///
    /// # Errors
    /// The kernel refuses a request.
    pub fn state(&mut self) -> io::Result<HostState> {
        state::read(&mut self.routing, self.filter.as_mut())
    }

    /// The firewalls of others that may drop what a gateway forwards. Those in nf_tables cannot be read without
    /// privileges, and then there are none.
    ///
    /// # Errors
    /// The kernel refuses a request.
    pub fn foreign(&mut self) -> io::Result<Foreign> {
        let names = self.links()?.into_iter().map(|link| (link.index, link.name)).collect();
        foreign::read(self.filter.as_mut(), &names).map_err(NetlinkError::into_io_error)
    }

    /// Reads all base chains of the firewall, including those of tunnels; the chains of a hook in the order of their priority.
    /// `None` without the privilege to read them.
    ///
    /// # Errors
    /// The kernel refuses a request.
    pub fn firewall(&mut self) -> io::Result<Option<Vec<ForeignChain>>> {
        let names = self.links()?.into_iter().map(|link| (link.index, link.name)).collect();
        foreign::read_all(self.filter.as_mut(), &names).map_err(NetlinkError::into_io_error)
    }

    /// Returns the firewall tables of `steps` that have lost rules. Tables that cannot be read count as complete.
    pub fn emptied_tables(&mut self, steps: &[Step]) -> Vec<String> {
        self.filter.as_mut().and_then(|filter| firewall::emptied(filter, steps).ok()).unwrap_or_default()
    }

    /// Opens a way in a foreign chain of nf_tables, or closes it again.
    ///
    /// # Errors
    /// The kernel refuses it: ENOENT if there is no such chain to open a way in.
    pub fn change_foreign(&mut self, opening: &Opening, opens: bool) -> io::Result<()> {
        let filter = self.filter.as_mut().ok_or_else(|| io::Error::from(Errno::PROTONOSUPPORT))?;
        let change = if opens { foreign::open } else { foreign::close };
        change(filter, opening).map_err(NetlinkError::into_io_error)
    }

    /// Updates the [`ForwardingGuard`] for the `held` sysctls that are in force, and for the one `about_to` be set.
    /// Deletes it if no sysctl needs it.
    ///
    /// # Errors
    /// The kernel refuses the change; the guard stays as it was.
    pub fn guard_forwarding(
        &mut self,
        mut held: BTreeMap<String, HeldSysctl>,
        about_to: Option<&str>,
    ) -> io::Result<()> {
        let is_on = |name: &str| sysctl::get(name).is_ok_and(|value| value == "1");
        held.retain(|name, _| about_to == Some(name) || is_on(name));
        let guard = ForwardingGuard::of(&held);
        match (&mut self.filter, &guard) {
            (Some(filter), guard) => firewall::guard(filter, guard.as_ref()).map_err(NetlinkError::into_io_error),
            (None, Some(_)) => Err(Errno::PROTONOSUPPORT.into()),
            (None, None) => Ok(()),
        }
    }

    /// Applies steps for links, addresses, routes, rules, sysctls and the firewall, in batches. Other steps
    /// ([`Step::Hook`], [`Step::Configure`], [`Step::SetFwmark`], [`Step::SetDns`], [`Step::UnsetDns`], and
    /// [`Step::AddLink`] for a daemon) are not kernel steps, and an error.
    ///
    /// # Errors
    /// The first step that was refused, with the kernel's errno: EEXIST if it exists already; ENODEV (interfaces),
    /// ESRCH (routes), EADDRNOTAVAIL (addresses) or ENOENT (rules and tables) if it does not exist; EOPNOTSUPP for a
    /// link whose module the kernel does not have.
    pub fn apply(&mut self, steps: &[Step]) -> Result<(), ApplyError> {
        let mut done = 0;
        while done < steps.len() {
            let rest = &steps[done..];
            let batch_len = batch_len(rest, self.routing.batch());
            self.execute(&rest[..batch_len]).map_err(|(index, NetlinkError { error, explanation })| ApplyError {
                index: done + index,
                error,
                explanation,
            })?;
            done += batch_len;
        }
        Ok(())
    }

    /// The interfaces other than `interface` on which the reverse path filter of IPv4 is strict, so that it drops answers to
    /// the tunnel's packets unless it considers their marks.
    pub fn strict_interfaces(&self, interface: &str) -> Vec<String> {
        sysctl::strict_interfaces(interface)
    }

    /// Applies steps that are sent at once ([`batch_len`]).
    fn execute(&mut self, steps: &[Step]) -> Result<(), (usize, NetlinkError)> {
        match &steps[0] {
            Step::SetSysctl { name, value, .. } => sysctl::set(name, value).map_err(|error| (0, error.into())),
            Step::HoldSysctl { name, value, .. } => sysctl::set(name, value).map_err(|error| (0, error.into())),
            Step::ReleaseSysctl { name, value, before, .. } => {
                sysctl::set_back(name, value, before).map_err(|error| (0, error.into()))
            }
            step if step.is_firewall() => match &mut self.filter {
                Some(filter) => firewall::change(filter, steps).map_err(|refused| (0, refused)),
                None => Err((0, Errno::PROTONOSUPPORT.into())),
            },
            step @ Step::DeleteAddress { interface, .. } => self.delete_address(interface, step),
            _ => self.send(steps),
        }
    }

    /// Sends steps for links, addresses, routes and rules at once. The kernel continues after a refusal; what it does
    /// after that is rolled back.
    fn send(&mut self, steps: &[Step]) -> Result<(), (usize, NetlinkError)> {
        let mut indices = HashMap::new();
        let mut requests = Vec::with_capacity(steps.len());
        let mut impossible = None;
        for step in steps {
            match self.request(step, &mut indices) {
                Ok(request) => requests.push(request),
                Err(refused) => {
                    impossible = Some((requests.len(), refused));
                    break;
                }
            }
        }
        let mut refusal = None;
        let mut later = Vec::new();
        let answers = self.submit(&mut requests).map_err(|refused| (0, refused))?;
        for (index, (step, answer)) in steps.iter().zip(answers).enumerate() {
            match (answer, &refusal) {
                (Err(refused), None) => refusal = Some((index, refused)),
                (Ok(()), Some(_)) => later.push(step),
                _ => {}
            }
        }
        let Some((index, mut refused)) = refusal else { return impossible.map_or(Ok(()), Err) };
        let not_rolled_back = self.roll_back(&later, &mut indices);
        if not_rolled_back > 0 {
            let note = format!("{not_rolled_back} later steps were applied and could not be rolled back");
            refused.explanation =
                Some(refused.explanation.map_or_else(|| note.clone(), |said| format!("{said}; {note}")));
        }
        Err((index, refused))
    }

    /// Rolls steps back, last first, as far as possible; returns how many remain.
    fn roll_back(&mut self, steps: &[&Step], indices: &mut HashMap<String, u32>) -> usize {
        let undo = steps.iter().rev().filter_map(|step| step.undo());
        let requests: Result<Vec<_>, _> = undo.map(|step| self.request(&step, indices)).collect();
        let answers = requests.and_then(|mut requests| self.submit(&mut requests));
        answers.map_or(steps.len(), |answers| answers.iter().filter(|answer| answer.is_err()).count())
    }

    /// Deletes an address. With the first IPv4 address of a network the kernel deletes the others of that network
    /// (net/ipv4/devinet.c, `__inet_del_ifa`, unless `promote_secondaries` is set): those are added again.
    fn delete_address(&mut self, interface: &str, step: &Step) -> Result<(), (usize, NetlinkError)> {
        let before = self.addresses(interface).map_err(|refused| (0, refused))?;
        self.send(std::slice::from_ref(step))?;
        let after = self.addresses(interface).map_err(|refused| (0, refused))?;
        let add = |address| Step::AddAddress { interface: interface.to_owned(), address };
        let lost = before.into_iter().filter(|address| !after.contains(address)).map(add);
        let lost: Vec<Step> = lost.filter(|add| add.undo().as_ref() != Some(step)).collect();
        self.send(&lost).map_err(|(_, refused)| (0, refused))
    }

    /// The addresses of an interface.
    fn addresses(&mut self, interface: &str) -> Result<Vec<IpNet>, NetlinkError> {
        let own = name_to_index(&self.routing, interface)?;
        let read = |message: &Message<'_>| links::read_address(message).filter(|(index, _)| *index == own);
        let addresses = self.routing.list(links::list_addresses(), read)?;
        Ok(addresses.into_iter().map(|(_, address)| address).collect())
    }

    /// Sends requests and returns the result of each.
    fn submit(&mut self, requests: &mut [Request]) -> Result<Vec<Result<(), NetlinkError>>, NetlinkError> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        // Replies are lost only if the kernel is out of memory. A step whose result is unknown is not rolled back: the
        // object may be someone else's.
        let lost = || {
            let said = "the kernel's reply was lost: this step and some after it may have been applied";
            Err(NetlinkError { error: Errno::NOBUFS.into(), explanation: Some(said.to_owned()) })
        };
        Ok(self.routing.submit(requests)?.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect())
    }

    /// The request for a step.
    fn request(&self, step: &Step, indices: &mut HashMap<String, u32>) -> Result<Request, NetlinkError> {
        let mut index = |interface: &str| -> Result<u32, NetlinkError> {
            if let Some(index) = indices.get(interface) {
                return Ok(*index);
            }
            let index = name_to_index(&self.routing, interface)?;
            indices.insert(interface.to_owned(), index);
            Ok(index)
        };
        Ok(match step {
            Step::AddLink { interface, implementation: Implementation::Kernel } => links::add(interface)?,
            Step::DeleteLink { interface } => links::delete(index(interface)?),
            Step::SetMtu { interface, mtu, .. } => links::set_mtu(index(interface)?, *mtu),
            Step::LinkUp { interface } => links::set_up(index(interface)?),
            Step::AddAddress { interface, address } => links::add_address(index(interface)?, address),
            Step::DeleteAddress { interface, address } => links::delete_address(index(interface)?, address),
            Step::AddRoute(route) => routes::add(route, route.device.as_deref().map(index).transpose()?),
            Step::DeleteRoute(route) => routes::delete(route, route.device.as_deref().map(index).transpose()?),
            Step::AddRule(rule) => rules::add(rule),
            Step::DeleteRule(rule) => rules::delete(rule),
            _ => {
                let error = io::Error::new(io::ErrorKind::Unsupported, "this is not a kernel step");
                return Err(error.into());
            }
        })
    }
}

/// How many steps, from the first, are sent to the kernel at once: those of one firewall transaction, or up to `batch`
/// steps that can each be rolled back completely.
fn batch_len(steps: &[Step], batch: usize) -> usize {
    let run = |goes: fn(&Step) -> bool| steps.iter().take_while(|step| goes(step)).count();
    match run(Step::is_firewall) {
        // Deleting an address also deletes routes and other addresses: adding it again does not restore those.
        0 => run(|step| {
            matches!(step, Step::AddAddress { .. } | Step::AddRoute(_) | Step::DeleteRoute(_))
                || matches!(step, Step::AddRule(_) | Step::DeleteRule(_))
        })
        .clamp(1, batch),
        transaction => transaction,
    }
}
