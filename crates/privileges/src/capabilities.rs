//! Which capabilities the daemon keeps (capabilities(7)), and that it gains no other.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

/// To be in other network namespaces (setns), where the interface may have been moved: the kernel asks for
/// CAP_SYS_ADMIN. Everything else that it opens is closed by the filter.
const VISIT: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// The interface's MTU and queue, its namespace, the sockets' mark and their buffers beyond the limit; ports below
/// 1024; locked memory that is allocated later; other namespaces.
const NEEDED: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_BIND_SERVICE).union(CapabilitySet::IPC_LOCK).union(VISIT);

/// To remove the socket from a directory of somebody else's.
const REMOVE: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// What is kept only behind the filter of system calls: Landlock alone leaves CAP_DAC_OVERRIDE others' unix sockets.
pub(super) const FILTERED: CapabilitySet = VISIT.union(REMOVE);

/// The most that a daemon keeps.
pub const MOST: CapabilitySet = NEEDED.union(REMOVE);

/// What the keeper of a tunnel needs: to ask the kernel's module, to change routes, rules and the firewall, and to go on
/// locking the memory that it allocates. Everything else that it opens is root's.
pub const KEEPER: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::IPC_LOCK);

/// What is needed: with `removing`, to remove the socket from a directory that is not the daemon's own, too.
pub(super) fn needed(removing: bool) -> CapabilitySet {
    if removing { MOST } else { NEEDED }
}

/// Has nothing that this thread or its children execute gain a capability beyond `kept`: the others are taken out of
/// the bounding set, user 0 has none by itself, and no_new_privs is set.
pub(super) fn bound(kept: CapabilitySet) -> Result<(), String> {
    set_no_new_privs(true).map_err(|error| format!("PR_SET_NO_NEW_PRIVS: {error}"))?;
    clear_ambient_capability_set().map_err(|error| format!("PR_CAP_AMBIENT: {error}"))?;
    let lacking = |error| match error {
        Errno::PERM => "grant CAP_SETPCAP for it".to_owned(),
        error => format!("PR_CAPBSET_DROP: {error}"),
    };
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(one) {
            continue;
        }
        match remove_capability_from_bounding_set(one) {
            // Beyond the last capability that this kernel knows.
            Err(Errno::INVAL) => break,
            removed => removed.map_err(lacking)?,
        }
    }
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(locked).map_err(lacking)
}

/// Gives up all capabilities but those of `kept` that this thread has.
pub(super) fn keep(kept: CapabilitySet) -> Result<(), String> {
    let set = || {
        let kept = capabilities(None)?.permitted.intersection(kept);
        set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })
    };
    set().map_err(|error| format!("capset: {error}"))
}
