//! The Linux host: its state read and its steps carried out, over netlink.
//!
//! No program is run and nothing is decided here: what is to be done, and in which order, is the plan's. Routes,
//! addresses and rules go to the kernel many in one send (`socket`), firewall tables in one transaction
//! (`firewall`).

#[cfg(test)]
mod corpus;
pub mod dns;
mod firewall;
mod links;
mod message;
mod routes;
mod rules;
mod socket;
mod state;
mod sysctl;

use std::collections::HashMap;
use std::io;

use ipnet::IpNet;
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;

use self::message::{Frame, Message};
use self::socket::{Refused, Socket};
use crate::state::HostState;
use crate::step::{Backend, Step};

// linux/netlink.h
const NETLINK_ROUTE: isize = 0;
const NETLINK_NETFILTER: isize = 12;

/// An open conversation with the kernel about links, addresses, routes, rules and the firewall.
pub struct Host {
    routing: Socket,
    /// None where the kernel has no netfilter.
    filter: Option<Socket>,
}

/// A step that was refused: the ones before it are done, those after it are not.
///
/// Consecutive steps of the firewall are one: none of them is done then, and the index is that of the first.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}", said.as_deref().map(|said| format!(": {said}")).unwrap_or_default())]
pub struct ApplyError {
    /// Which of the steps, from 0.
    pub index: usize,
    /// Why; with the errno ([`io::Error::raw_os_error`]) where it was the kernel that refused it.
    pub error: io::Error,
    /// What the kernel said besides (`NETLINK_EXT_ACK`), and which later steps could not be taken back.
    pub said: Option<String>,
}

impl Host {
    /// Opens the sockets that it needs.
    ///
    /// # Errors
    /// The kernel gives none.
    pub fn open() -> io::Result<Self> {
        let filter = match Socket::open(NETLINK_NETFILTER) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT) => None,
            opened => Some(opened?),
        };
        Ok(Self { routing: Socket::open(NETLINK_ROUTE)?, filter })
    }

    /// The index of the interface, if there is one of that name.
    pub fn index(&self, interface: &str) -> Option<u32> {
        name_to_index(&self.routing, interface).ok()
    }

    /// Reads the state of this host's network namespace.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn state(&mut self) -> io::Result<HostState> {
        state::read(&mut self.routing, self.filter.as_mut())
    }

    /// Carries out steps of links, addresses, routes, rules, sysctls and the firewall, many in one batch. Others
    /// ([`Step::Hook`], [`Step::Configure`], [`Step::SetFwmark`], [`Step::SetDns`], [`Step::UnsetDns`], and
    /// [`Step::AddLink`] for a daemon) are not the kernel's to do, and an error.
    ///
    /// # Errors
    /// The first step that was refused. The errno is that of the kernel: EEXIST for what is there already; ENODEV,
    /// ESRCH, EADDRNOTAVAIL or ENOENT for what is not (interfaces, routes, addresses, rules and tables in this order);
    /// EOPNOTSUPP for a link of a module that the kernel does not have.
    pub fn apply(&mut self, steps: &[Step]) -> Result<(), ApplyError> {
        let mut done = 0;
        while done < steps.len() {
            let rest = &steps[done..];
            let together = together(rest, self.routing.batch());
            self.execute(&rest[..together]).map_err(|(index, Refused { error, said })| ApplyError {
                index: done + index,
                error,
                said,
            })?;
            done += together;
        }
        Ok(())
    }

    /// Carries out steps that go [`together`].
    fn execute(&mut self, steps: &[Step]) -> Result<(), (usize, Refused)> {
        match &steps[0] {
            Step::SetSysctl { name, value, .. } => sysctl::set(name, value).map_err(|error| (0, error.into())),
            Step::AddFirewall(_) | Step::DeleteFirewall(_) => match &mut self.filter {
                Some(filter) => firewall::change(filter, steps).map_err(|refused| (0, refused)),
                None => Err((0, Errno::PROTONOSUPPORT.into())),
            },
            step @ Step::DeleteAddress { interface, .. } => self.delete_address(interface, step),
            _ => self.send(steps),
        }
    }

    /// Sends steps of links, addresses, routes and rules in one go. The kernel goes on after it has refused one, so
    /// that what it has done since is taken back.
    fn send(&mut self, steps: &[Step]) -> Result<(), (usize, Refused)> {
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
        let answers = self.ask(&mut requests).map_err(|refused| (0, refused))?;
        for (index, (step, answer)) in steps.iter().zip(answers).enumerate() {
            match (answer, &refusal) {
                (Err(refused), None) => refusal = Some((index, refused)),
                (Ok(()), Some(_)) => later.push(step),
                _ => {}
            }
        }
        let Some((index, mut refused)) = refusal else { return impossible.map_or(Ok(()), Err) };
        let stuck = self.roll_back(&later, &mut indices);
        if stuck > 0 {
            let words = format!("{stuck} later steps are done all the same and could not be taken back");
            refused.said = Some(refused.said.map_or_else(|| words.clone(), |said| format!("{said}; {words}")));
        }
        Err((index, refused))
    }

    /// Takes steps back, the last one first, as far as it goes; answers how many stay.
    fn roll_back(&mut self, steps: &[&Step], indices: &mut HashMap<String, u32>) -> usize {
        let undo = steps.iter().rev().filter_map(|step| step.undo());
        let requests: Result<Vec<_>, _> = undo.map(|step| self.request(&step, indices)).collect();
        let answers = requests.and_then(|mut requests| self.ask(&mut requests));
        answers.map_or(steps.len(), |answers| answers.iter().filter(|answer| answer.is_err()).count())
    }

    /// Deletes an address. With the first IPv4 address of a network the kernel takes the others of that network, too
    /// (net/ipv4/devinet.c, `__inet_del_ifa`, unless `promote_secondaries` is set): those are given back.
    fn delete_address(&mut self, interface: &str, step: &Step) -> Result<(), (usize, Refused)> {
        let before = self.addresses(interface).map_err(|refused| (0, refused))?;
        self.send(std::slice::from_ref(step))?;
        let after = self.addresses(interface).map_err(|refused| (0, refused))?;
        let add = |address| Step::AddAddress { interface: interface.to_owned(), address };
        let lost = before.into_iter().filter(|address| !after.contains(address)).map(add);
        let lost: Vec<Step> = lost.filter(|add| add.undo().as_ref() != Some(step)).collect();
        self.send(&lost).map_err(|(_, refused)| (0, refused))
    }

    /// The addresses of an interface.
    fn addresses(&mut self, interface: &str) -> Result<Vec<IpNet>, Refused> {
        let own = name_to_index(&self.routing, interface)?;
        let read = |frame: &Frame<'_>| links::read_address(frame).filter(|(index, _)| *index == own);
        let addresses = self.routing.list(links::list_addresses(), read)?;
        Ok(addresses.into_iter().map(|(_, address)| address).collect())
    }

    /// Sends requests, and gives the answer to each.
    fn ask(&mut self, requests: &mut [Message]) -> Result<Vec<Result<(), Refused>>, Refused> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        // Only a kernel without memory loses answers. What is not known to be done is not taken back: it may be
        // somebody else's.
        let lost = || {
            let said = "the kernel's answer was lost, so that this step and some after it may be done";
            Err(Refused { error: Errno::NOBUFS.into(), said: Some(said.to_owned()) })
        };
        Ok(self.routing.ask(requests)?.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect())
    }

    /// The request that carries a step out.
    fn request(&self, step: &Step, indices: &mut HashMap<String, u32>) -> Result<Message, Refused> {
        let mut index = |interface: &str| -> Result<u32, Refused> {
            if let Some(index) = indices.get(interface) {
                return Ok(*index);
            }
            let index = name_to_index(&self.routing, interface)?;
            indices.insert(interface.to_owned(), index);
            Ok(index)
        };
        Ok(match step {
            Step::AddLink { interface, backend: Backend::Kernel } => links::add(interface)?,
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
                let error = io::Error::new(io::ErrorKind::Unsupported, "this step is not the kernel's to carry out");
                return Err(error.into());
            }
        })
    }
}

/// How many steps, from the first, go to the kernel at once: those of one firewall transaction, or up to `batch` of
/// which each can be taken back without a trace.
fn together(steps: &[Step], batch: usize) -> usize {
    let run = |goes: fn(&Step) -> bool| steps.iter().take_while(|step| goes(step)).count();
    match run(|step| matches!(step, Step::AddFirewall(_) | Step::DeleteFirewall(_))) {
        // With an address, routes and other addresses go, too: deleting one is not taken back by adding it.
        0 => run(|step| {
            matches!(step, Step::AddAddress { .. } | Step::AddRoute(_) | Step::DeleteRoute(_))
                || matches!(step, Step::AddRule(_) | Step::DeleteRule(_))
        })
        .clamp(1, batch),
        transaction => transaction,
    }
}
