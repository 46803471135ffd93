//! A network of one's own, without privileges: user, network and mount namespaces of an ordinary user (namespaces(7)).
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use linerate_isolation::UserNamespace;
//! use linerate_netio::tun::{TunDevice, TunOffloads};
//!
//! let user = UserNamespace::enter()?; // first of all: the process has one thread
//! let network = user.new_network()?; // empty: not even a route
//! let tun = TunDevice::create_in(&network, "wg0", 1, TunOffloads::ALL)?;
//! // An engine over `tun` runs on threads of this process, and its UDP sockets are the host's.
//! let inner = network.inside(|| std::net::TcpListener::bind("10.0.0.2:80")); // a socket in there, used from here
//! # Ok(()) }
//! ```
//!
//! The process stays in the host's network, and so do its threads and what it opens. Others go in: for a moment
//! ([`NetworkNamespace::inside`]) or for good ([`NetworkNamespace::enter`]), a thread or a process that becomes another
//! program. There is no way back, and no other interface in there: what the tunnel does not carry goes nowhere. When the
//! last process, thread and descriptor in a namespace is gone, the kernel removes it, with all that is in it.
//!
//! In the user namespace this process has all capabilities over the namespaces that it makes, and none over the host's.
//! It keeps its user and its group, and no others exist in there. Executing another program gives the capabilities up
//! (root's does with [`UserNamespace::give_up_capabilities`]), but for what [`UserNamespace::pass_on_capabilities`] passes on to a daemon.
//!
//! Neighbours: `linerate_tunnel::isolated` brings a tunnel up in such a network, and `linerated` makes its interface in
//! one that it is handed (LINERATE_NETWORK_FD).

#![forbid(unsafe_code)]

mod mounts;
mod name_servers;
mod refusal;

use std::fs;
use std::io;
use std::thread;

pub use linerate_netio::namespace::NetworkNamespace;
use nix::sched::{CloneFlags, unshare};
use rustix::process::{DumpableBehavior, dumpable_behavior, getegid, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

pub use mounts::Mounts;
use refusal::Attempt;
pub use refusal::Refusal;

/// The user namespace of this process, which it has [entered](UserNamespace::enter).
#[derive(Debug)]
pub struct UserNamespace(());

impl UserNamespace {
    /// Makes a user namespace, in which this user and this group are the only ones, and moves this process there. To be
    /// called before there is another thread.
    ///
    /// # Errors
    /// The system does not allow it, or /dev/net/tun cannot be opened, without which there is no use for it.
    pub fn enter() -> Result<Self, Refusal> {
        refusal::settings();
        let opened = fs::File::options().read(true).write(true).open(refusal::TUN);
        opened.map_err(Refusal::of(Attempt::Tun))?;
        let (user, group) = (geteuid(), getegid());
        unshare(CloneFlags::CLONE_NEWUSER).map_err(Refusal::of(Attempt::User))?;
        let mapped = with_own_proc_files(|| Self::map(user.as_raw(), group.as_raw()));
        mapped.map_err(Refusal::of(Attempt::Map))?;
        Ok(Self(()))
    }

    /// Maps a user and a group to themselves in the new namespace.
    fn map(user: u32, group: u32) -> io::Result<()> {
        let only = |id: u32| format!("{id} {id} 1\n");
        // An unprivileged user may map a group only after giving up setgroups(2) in the namespace (user_namespaces(7)).
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", only(user))?;
        fs::write("/proc/self/gid_map", only(group))
    }

    /// A network with nothing in it but `lo`, which is down.
    ///
    /// # Errors
    /// The system does not allow it, or has no memory or threads left.
    pub fn new_network(&self) -> Result<NetworkNamespace, Refusal> {
        let made = on_a_thread(|| -> io::Result<_> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            prepare_network(getegid().as_raw());
            NetworkNamespace::current()
        });
        made.flatten().map_err(Refusal::of(Attempt::Network))
    }

    /// Gives this thread a copy of all mounts, whose changes nobody else sees.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn new_mounts(&self) -> Result<Mounts, Refusal> {
        // Mounts of the host still appear here, and none of ours there: a copy for another user namespace is a slave
        // (mount_namespaces(7)).
        unshare(CloneFlags::CLONE_NEWNS).map_err(Refusal::of(Attempt::Mounts))?;
        Ok(Mounts(()))
    }

    /// Runs `work` on a thread with [mounts of its own](Self::new_mounts): to start a program that sees other files than
    /// this process does.
    ///
    /// # Errors
    /// Those of [`UserNamespace::new_mounts`].
    pub fn with_mounts<T: Send>(&self, work: impl FnOnce(&Mounts) -> T + Send) -> Result<T, Refusal> {
        let done = on_a_thread(|| Ok(work(&self.new_mounts()?)));
        done.map_err(Refusal::of(Attempt::Mounts))?
    }

    /// Lets programs that this thread starts look after an interface in another network than their own, and then give
    /// that right up: they get the capabilities for it, over the namespaces in here. So this belongs on a thread that ends
    /// soon.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn pass_on_capabilities(&self) -> io::Result<()> {
        let own = capabilities(None)?;
        // Only what is inheritable can be ambient.
        set_capabilities(None, CapabilitySets { inheritable: DAEMON, ..own })?;
        for capability in DAEMON.iter() {
            configure_capability_in_ambient_set(capability, true)?;
        }
        Ok(())
    }

    /// Gives all capabilities up for good. Executing a program does so, too, unless the user is root, whose programs would have
    /// them again, and could take mounts away.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn give_up_capabilities(&self) -> io::Result<()> {
        if geteuid().is_root() {
            // Files with capabilities give none; the bounding set stays, without which they could not be executed.
            set_no_new_privs(true)?;
            set_capabilities_secure_bits(CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED)?;
        }
        let none = CapabilitySet::empty();
        Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
    }
}

/// What `linerated` needs: its interface (NET_ADMIN) in another network (SYS_ADMIN, for setns), and SETPCAP to give the rest
/// up.
const DAEMON: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN).union(CapabilitySet::SETPCAP);

/// Settings of a new network, as far as /proc/sys can be written: in a container it may be read-only, and all goes on as
/// in any other new network.
fn prepare_network(group: u32) {
    let settings = [
        // ping(8) needs no privileges, nor does a port below 1024: there is nobody to protect from this user.
        ("ipv4/ping_group_range", format!("{group} {group}")),
        ("ipv4/ip_unprivileged_port_start", "0".to_owned()),
        // Links have the addresses that they are given, and look for no routers: nothing is sent that nobody asked for.
        ("ipv6/conf/default/addr_gen_mode", "1".to_owned()),
        ("ipv6/conf/default/router_solicitations", "0".to_owned()),
        ("ipv6/conf/default/accept_ra", "0".to_owned()),
        ("ipv6/conf/default/accept_dad", "0".to_owned()),
    ];
    for (name, value) in settings {
        let _ = fs::write(format!("/proc/sys/net/{name}"), value);
    }
    for name in ["ipv4/tcp_rmem", "ipv4/tcp_wmem"] {
        let path = format!("/proc/sys/net/{name}");
        let _ = fs::read_to_string(&path).map(|sizes| fs::write(&path, with_large_buffers(&sizes)));
    }
}

/// Gives TCP in `network` this congestion control instead of the host's.
///
/// # Errors
/// What stands in the way, and the names that there are.
pub fn set_congestion_control(network: &NetworkNamespace, name: &str) -> Result<(), String> {
    let set = || {
        network.enter()?;
        fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name)
    };
    on_a_thread(set).flatten().map_err(|error| {
        let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
        if available.split_whitespace().any(|other| other == name) {
            return format!("cannot set the congestion control {name}: {error}");
        }
        format!(
            "there is no congestion control {name} here but {}; root loads others (modprobe tcp_{name})",
            available.trim()
        )
    })
}

/// So large a TCP connection's buffers may get.
const LARGEST_BUFFER: u64 = 16 << 20;

/// The minimum, default and maximum of buffers, with a maximum for long ways: the host's may be for a local network.
fn with_large_buffers(sizes: &str) -> String {
    let mut sizes: Vec<u64> = sizes.split_whitespace().filter_map(|size| size.parse().ok()).collect();
    if let [_, _, most] = &mut sizes[..] {
        *most = LARGEST_BUFFER.max(*most);
    }
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// Runs `work` while this process owns its files in /proc. While its memory is protected (PR_SET_DUMPABLE, proc(5))
/// they belong to root, which is not mapped in the namespace.
fn with_own_proc_files(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let before = dumpable_behavior()?;
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let done = work();
    set_dumpable_behavior(before)?;
    done
}

/// Runs `work` on a thread of its own, which ends with it.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("isolate".into()).spawn_scoped(scope, work)?;
        worker.join().map_err(|_| io::Error::other("a thread in a namespace of its own panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_may_get_large_and_never_smaller_than_the_hosts() {
        assert_eq!(with_large_buffers("4096\t16384\t4194304\n"), "4096 16384 16777216");
        assert_eq!(with_large_buffers("4096\t131072\t33554432\n"), "4096 131072 33554432");
        assert_eq!(with_large_buffers(""), "");
    }
}
