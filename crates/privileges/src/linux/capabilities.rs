//! Which capabilities a process keeps (capabilities(7)), and that it cannot gain others.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs,
};

/// To enter the network namespace (setns) that the interface was moved to: the kernel requires CAP_SYS_ADMIN. The
/// filter blocks everything else that it permits. A privileged helper in its place would have to be found, watched and
/// ended, and rtnetlink has no dump of another namespace's routes.
pub(super) const NETNS: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// NET_ADMIN: the interface's MTU, queues and namespace; the mark of the sockets and buffers beyond the limit.
/// NET_BIND_SERVICE: ports below 1024. IPC_LOCK: locking memory that is allocated later.
const NEEDED: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_BIND_SERVICE).union(CapabilitySet::IPC_LOCK).union(NETNS);

/// To remove the socket from a directory of another user.
const REMOVE_SOCKET: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// Kept only if the filter of system calls is in force. Landlock alone does not stop CAP_DAC_OVERRIDE from connecting
/// to other users' Unix sockets.
pub(super) const REQUIRES_FILTER: CapabilitySet = NETNS.union(REMOVE_SOCKET);

/// The capabilities that a daemon keeps at most.
pub const DAEMON_MAX: CapabilitySet = NEEDED.union(REMOVE_SOCKET);

/// The capabilities that a confined supervisor keeps: to query the kernel module, to change routes, rules and the
/// firewall, and to lock memory that is allocated later. The files and sockets that it opens belong to root, as it
/// does.
pub const SUPERVISOR_MAX: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::IPC_LOCK);

/// What the programs of firewalls need, and get from a supervisor that runs them: the iptables of the older kind uses a
/// raw socket.
pub(super) const FIREWALL_PROGRAMS: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// The capabilities that a confined supervisor keeps if it opens ways in firewalls of others.
pub const FIREWALL_SUPERVISOR_MAX: CapabilitySet = SUPERVISOR_MAX.union(FIREWALL_PROGRAMS);

/// The capabilities that a daemon needs; with `removes_socket`, also to remove it from a directory of another user.
pub(super) fn of_daemon(removes_socket: bool) -> CapabilitySet {
    if removes_socket { DAEMON_MAX } else { NEEDED }
}

/// Limits the capabilities that executed programs have to `passed_on`, and that they can gain to `kept`: clears the rest
/// of the bounding set, and sets SECBIT_NOROOT and no_new_privs.
pub(super) fn limit_bounding_set(kept: CapabilitySet, passed_on: CapabilitySet) -> Result<(), String> {
    set_no_new_privs(true).map_err(|error| format!("PR_SET_NO_NEW_PRIVS: {error}"))?;
    clear_ambient_capability_set().map_err(|error| format!("PR_CAP_AMBIENT: {error}"))?;
    pass_on(passed_on).map_err(|error| format!("PR_CAP_AMBIENT: {error}"))?;
    let explain = |error| match error {
        Errno::PERM => "grant CAP_SETPCAP for it".to_owned(),
        error => format!("PR_CAPBSET_DROP: {error}"),
    };
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            // Beyond the last capability that this kernel knows.
            Err(Errno::INVAL) => break,
            removed => removed.map_err(explain)?,
        }
    }
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(locked).map_err(explain)
}

/// Has executed programs start with these capabilities, as far as this process has them.
fn pass_on(capabilities_of_programs: CapabilitySet) -> Result<(), Errno> {
    let own = capabilities(None)?;
    let passed_on = own.permitted.intersection(capabilities_of_programs);
    // Only what is inheritable can be ambient.
    set_capabilities(None, CapabilitySets { inheritable: passed_on, ..own })?;
    passed_on.iter().try_for_each(|capability| configure_capability_in_ambient_set(capability, true))
}

/// Drops all capabilities that are not in `kept`; executed programs have `passed_on`.
pub(super) fn retain(kept: CapabilitySet, passed_on: CapabilitySet) -> Result<(), String> {
    let set = || {
        let kept = capabilities(None)?.permitted.intersection(kept);
        let inheritable = kept.intersection(passed_on);
        set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })
    };
    set().map_err(|error| format!("capset: {error}"))
}
