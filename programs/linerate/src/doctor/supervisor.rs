//! `doctor`: checks the supervisor of a tunnel, and the copy of its file.

use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use linerate_control::interface::InterfaceName;
use linerate_tunnel::ledger;
use rustix::fs::{major, minor};

use super::confinement::{Examined, Item, PRIVILEGES, capability_names, item};
use super::process::Process;
use linerate_privileges::{FIREWALL_SUPERVISOR_MAX, SUPERVISOR_MAX};
use linerate_tunnel::{copy_has_keys, supervisor_opens_firewalls};
use rustix::thread::CapabilitySet;

/// A background supervisor needs few capabilities once all routes of its tunnel exist.
const WAITS: &str = "wait: it drops the rest once the endpoint's name resolves";
const CHILDREN: &str = "update the kernel, or grant CAP_SETPCAP to `linerate up`";
const SWAP: &str = "grant CAP_IPC_LOCK, set LimitMEMLOCK=infinity, or encrypt the swap";
const COPY: &str = "encrypt the swap, or move the keys to files of their own (PrivateKeyFile)";

/// The supervisor of a tunnel, if it has one.
pub(super) fn examine(interface: &str) -> Option<Examined> {
    let name: InterfaceName = interface.parse().ok()?;
    let lock = fs::metadata(Path::new(ledger::DIRECTORY).join(ledger::supervisor_lock(&name))).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = holder(&locks, lock.st_dev(), lock.st_ino())?;
    let process = Process::read(pid).ok()?;
    let ledger = ledger::read(Path::new(ledger::DIRECTORY), &name).ok().flatten()?;
    let is_service = ledger.supervised;
    let opens_firewalls = supervisor_opens_firewalls(&name, &ledger);
    Some(Examined {
        interface: interface.to_owned(),
        role: Some(if is_service { "service supervisor" } else { "background supervisor" }),
        process: Some(pid),
        items: items(&process, is_service, opens_firewalls),
        findings: Vec::new(),
        has_counters: false,
        program: Some(process.program),
    })
}

/// The process that holds the flock(2) lock on a file, from /proc/locks.
fn holder(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, _, pid, id, ..] if id == file => pid.parse().ok().filter(|pid| *pid > 0),
        _ => None,
    })
}

fn items(process: &Process, is_service: bool, opens_firewalls: bool) -> Vec<Item> {
    let swap = item("swap", process.locked > 0, ["memory is locked", "keys can be swapped out"], SWAP);
    if is_service {
        let state = format!("{}: it starts the daemon and runs the hooks", capability_names(process.capabilities));
        return vec![item("capabilities", true, [&state, &state], ""), swap];
    }
    let capabilities = |name, set, most: CapabilitySet| {
        let state = capability_names(set);
        item(name, most.contains(set), [&state, &state], WAITS)
    };
    vec![
        capabilities(
            "capabilities",
            process.capabilities,
            if opens_firewalls { FIREWALL_SUPERVISOR_MAX } else { SUPERVISOR_MAX },
        ),
        // One that has opened firewalls before a reload cannot make its bounding set any smaller.
        capabilities("bounding set", process.bounding, FIREWALL_SUPERVISOR_MAX),
        item("new privileges", process.no_new_privs, PRIVILEGES, CHILDREN),
        swap,
    ]
}

/// Whether keys in the copy of the file, which is in swappable memory, can reach a disk.
pub(super) fn copy(interface: &str) -> Option<Item> {
    let name: InterfaceName = interface.parse().ok()?;
    let swap = copy_has_keys(&name)?.then(unencrypted_swap);
    let (state, good) = match swap {
        None => ("has no keys".to_owned(), true),
        Some(None) => ("no unencrypted swap".to_owned(), true),
        Some(Some(swap)) => (format!("its keys can reach {}", swap.display()), false),
    };
    Some(item("copy of the file", good, [&state, &state], COPY))
}

/// A swap in use that stores its contents on a disk unencrypted.
fn unencrypted_swap() -> Option<PathBuf> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swap_names(&swaps).into_iter().find(|name| {
        let Ok(file) = fs::metadata(name) else { return true };
        let device = if file.st_rdev() == 0 { file.st_dev() } else { file.st_rdev() };
        let device = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        !is_in_memory(Path::new(&device)) && !is_encrypted(Path::new(&device))
    })
}

fn swap_names(swaps: &str) -> Vec<PathBuf> {
    let name = |line: &str| Some(line.split_whitespace().next()?.replace("\\040", " ").into());
    swaps.lines().skip(1).filter_map(name).collect()
}

/// A zram device without a backing device.
fn is_in_memory(device: &Path) -> bool {
    let backing = fs::read_to_string(device.join("backing_dev"));
    let is_zram = device.join("comp_algorithm").exists();
    is_zram && backing.map_or(true, |backing| backing.trim() == "none")
}

/// A dm-crypt device, or one built only from such devices.
fn is_encrypted(device: &Path) -> bool {
    if fs::read_to_string(device.join("dm/uuid")).is_ok_and(|uuid| uuid.starts_with("CRYPT-")) {
        return true;
    }
    let below: Vec<PathBuf> =
        fs::read_dir(device.join("slaves")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    !below.is_empty() && below.iter().all(|device| is_encrypted(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;

    #[test]
    fn the_holder_of_a_lock_is_found_not_a_waiter() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:1a:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 00:1a:78 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 13 00:1a:77 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 14 00:1a:77 0 EOF\n";
        assert_eq!(holder(locks, makedev(0, 0x1a), 77), Some(13));
        assert_eq!(holder(locks, makedev(0, 0x1a), 79), None);
        assert_eq!(
            holder("3: FLOCK  ADVISORY  WRITE 0 00:1a:77 0 EOF\n", makedev(0, 0x1a), 77),
            None,
            "another namespace's"
        );
        assert_eq!(holder("", 0, 0), None);
    }

    #[test]
    fn swap_names_follow_the_header() {
        let swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/sda2 partition 1 0 -2\n/swap\\040file file 1 0 -3\n";
        assert_eq!(swap_names(swaps), [Path::new("/dev/sda2"), Path::new("/swap file")]);
        assert_eq!(swap_names(""), Vec::<PathBuf>::new());
    }

    #[test]
    fn only_a_background_supervisor_fails_with_more_capabilities_than_it_needs() {
        let process = Process {
            program: "linerate".into(),
            uid: 0,
            capabilities: SUPERVISOR_MAX,
            bounding: FIREWALL_SUPERVISOR_MAX,
            no_new_privs: true,
            filtered: false,
            locked: 4096,
            core_files: true,
        };
        let weak = |process: &Process, is_service| -> Vec<&str> {
            items(process, is_service, false).iter().filter(|item| !item.good).map(|item| item.name).collect()
        };
        assert_eq!(weak(&process, false), Vec::<&str>::new());
        let firewalls = Process { capabilities: FIREWALL_SUPERVISOR_MAX, ..process.clone() };
        assert_eq!(weak(&firewalls, false), ["capabilities"], "its tunnel does not ask for them");
        assert!(items(&firewalls, false, true).iter().all(|item| item.good));
        let whole = Process { capabilities: CapabilitySet::all(), bounding: CapabilitySet::all(), ..process.clone() };
        assert_eq!(weak(&whole, false), ["capabilities", "bounding set"]);
        assert_eq!(weak(&whole, true), Vec::<&str>::new());
        assert_eq!(weak(&Process { locked: 0, no_new_privs: false, ..whole }, true), ["swap"]);
    }
}
