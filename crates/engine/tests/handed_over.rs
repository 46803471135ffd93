//! An engine over a TUN device that an app made and handed over.

use std::fs;

use linerate_engine::config::DeviceChange;
use linerate_engine::{Engine, Options};
use linerate_netio::tun::{TunDevice, TunOffloads};
use linerate_protocol::PrivateKey;

#[path = "../../../tests/in_namespaces.rs"]
mod in_namespaces;
use in_namespaces::in_namespaces;

const NO_OFFLOADS: TunOffloads = TunOffloads { vnet_hdr: false, tso: false, uso: false };

#[test]
fn a_device_handed_over_is_up_and_nothing_is_asked_by_netlink() {
    in_namespaces(|| {
        let made = TunDevice::create("app0", 1, NO_OFFLOADS).unwrap();
        let handed = TunDevice::handed_over(made.queue_fd(0).try_clone_to_owned().unwrap()).unwrap();
        drop(made);
        let engine = Engine::prepare(handed, &Options::default()).unwrap().start().unwrap();
        engine.handle().set(with_a_key()).unwrap();
        assert_ne!(engine.handle().get().unwrap().listen_port, 0, "its sockets are open");
        assert_eq!(netlink_sockets(), 0);
        engine.stop();

        let ours = TunDevice::create("ours0", 1, NO_OFFLOADS).unwrap();
        let engine = Engine::prepare(ours, &Options::default()).unwrap().start().unwrap();
        // Its monitor has one, and its first question may still have another.
        assert_ne!(netlink_sockets(), 0, "a device of our own is monitored");
        engine.stop();
    });
}

fn with_a_key() -> DeviceChange {
    let key = PrivateKey::new(&[7; 32]).unwrap();
    DeviceChange { private_key: Some(Some(key)), ..DeviceChange::default() }
}

/// Those of this network namespace that are not the kernel's, whose port is 0.
fn netlink_sockets() -> usize {
    let list = fs::read_to_string("/proc/net/netlink").unwrap();
    list.lines().skip(1).filter(|line| line.split_whitespace().nth(2) != Some("0")).count()
}
