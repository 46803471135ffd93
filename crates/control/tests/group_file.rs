//! `Group` and `Check` in a tunnel's file.

use std::collections::BTreeMap;

use linerate_control::document::Document;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::{AllowedIpRemoval, NoNames, RunningTunnel, Severity, TunnelFile, changes, save};
use linerate_control::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::{DeviceState, PeerState};

const GROUP: &str = "#! Group = berlin\n#! Check = 10.9.0.1\n";

fn key(n: u8) -> PublicKey {
    PublicKey([n; 32])
}

fn peer(n: u8, allowed_ips: &str, group: &str) -> String {
    format!("[Peer]\nPublicKey = {}\nAllowedIPs = {allowed_ips}\n{group}", key(n))
}

fn text(peers: &[String]) -> String {
    format!("[Interface]\nAddress = 10.9.0.2/24\n{}", peers.concat())
}

fn read(text: &str) -> (TunnelFile, Vec<String>) {
    let (file, diagnostics) = TunnelFile::read(&Document::parse(text.as_bytes()), &"wg0".parse().unwrap(), &NoNames);
    let errors = diagnostics.iter().inspect(|found| assert!(found.severity == Severity::Error, "{found}"));
    (file, errors.map(ToString::to_string).collect())
}

fn three(allowed_ips: &str) -> String {
    text(&[1, 2, 3].map(|n| peer(n, allowed_ips, GROUP)))
}

/// What linerated does: the allowed IPs of members are those of the active one.
#[derive(Clone, Default)]
struct Daemon {
    lists: BTreeMap<PublicKey, Vec<String>>,
    /// The members of each group, the active one first.
    groups: BTreeMap<String, Vec<PublicKey>>,
}

impl Daemon {
    fn group_of(&mut self, key: PublicKey) -> Option<&mut Vec<PublicKey>> {
        self.groups.values_mut().find(|members| members.contains(&key))
    }

    fn move_to(&mut self, active: PublicKey) {
        let Some(members) = self.group_of(active) else { return };
        let old = members[0];
        members.retain(|member| *member != active);
        members.insert(0, active);
        let list = std::mem::take(self.lists.get_mut(&old).unwrap());
        *self.lists.get_mut(&active).unwrap() = list;
    }

    fn leave(&mut self, key: PublicKey) {
        let Some(members) = self.group_of(key) else { return };
        if members[0] == key && members.len() > 1 {
            let next = members[1];
            self.move_to(next);
        }
        self.groups.values_mut().for_each(|members| members.retain(|member| *member != key));
        self.groups.retain(|_, members| !members.is_empty());
    }

    fn join(&mut self, key: PublicKey, name: &str) {
        let members = self.groups.entry(name.to_owned()).or_default();
        members.push(key);
        let active = members[0];
        let own = self.lists.insert(key, Vec::new()).unwrap();
        self.lists.get_mut(&active).unwrap().extend(own);
    }

    fn apply(&mut self, update: &DeviceUpdate) {
        for change in &update.peers {
            let key = change.public_key;
            if change.remove {
                self.leave(key);
                self.lists.remove(&key);
                continue;
            }
            if change.update_only && !self.lists.contains_key(&key) {
                continue;
            }
            self.lists.entry(key).or_default();
            if let Some(name) = &change.group.name
                && self.groups.get(name).is_none_or(|members| !members.contains(&key))
            {
                self.leave(key);
                if !name.is_empty() {
                    self.join(key, name);
                }
            }
            let active = self.group_of(key).map(|members| members[0]);
            if change.allowed_ips.is_empty() && active.is_some_and(|active| active != key) {
                continue;
            }
            let owner = active.unwrap_or(key);
            if change.replace_allowed_ips {
                self.lists.get_mut(&owner).unwrap().clear();
            }
            for ip in &change.allowed_ips {
                let net = format!("{}/{}", ip.addr, ip.cidr);
                let is_taken = |key: &PublicKey| ip.add || *key == owner;
                self.lists
                    .iter_mut()
                    .filter(|(key, _)| is_taken(key))
                    .for_each(|(_, list)| list.retain(|own| *own != net));
                if ip.add {
                    self.lists.get_mut(&owner).unwrap().push(net);
                }
            }
        }
    }

    fn state(&self) -> DeviceState {
        let state = |(key, list): (&PublicKey, &Vec<String>)| {
            let nets = list.iter().map(|net| net.split_once('/').unwrap());
            let allowed_ips = nets.map(|(addr, len)| (addr.parse().unwrap(), len.parse().unwrap())).collect();
            PeerState { allowed_ips, ..PeerState::new(*key) }
        };
        DeviceState { peers: self.lists.iter().map(state).collect(), ..DeviceState::default() }
    }

    /// Who has what, whoever of a group it is.
    fn owners(&self) -> Vec<(String, Vec<String>)> {
        let owner = |(key, list): (&PublicKey, &Vec<String>)| {
            let group = self.groups.iter().find(|(_, members)| members.contains(key));
            let mut list = list.clone();
            list.sort();
            (group.map_or_else(|| format!("{key}"), |(name, _)| format!("one of {name}")), list)
        };
        let mut all: Vec<_> = self.lists.iter().map(owner).collect();
        all.sort();
        all
    }
}

#[test]
fn all_peers_of_a_group_have_its_allowed_ips_and_are_asked_from_the_interfaces_address() {
    let (file, errors) = read(&three("10.9.0.0/16, 10.10.0.0/16"));
    assert!(errors.is_empty(), "{errors:?}");
    let update = file.initial_changes().update;
    for (peer, change) in file.peers.iter().zip(&update.peers) {
        assert_eq!((peer.allowed_ips.len(), peer.group_name()), (2, Some("berlin")));
        assert_eq!(change.allowed_ips.len(), 2);
        assert_eq!(change.group.name.as_deref(), Some("berlin"));
        assert_eq!(change.group.check, Some(("10.9.0.2".parse().unwrap(), "10.9.0.1".parse().unwrap())));
    }
}

#[test]
fn what_no_group_can_be_is_an_error_that_says_what_to_do() {
    let both = "10.9.0.0/16";
    let cases = [
        (text(&[peer(1, both, GROUP), peer(2, "10.9.0.0/17", GROUP)]), "not all the same AllowedIPs"),
        (text(&[peer(1, both, GROUP), peer(2, both, "#! Group = berlin\n")]), "has no Check"),
        (text(&[peer(1, both, "#! Check = 10.9.0.1\n")]), "Check is for the peers of a group"),
        (text(&[peer(1, "fd09::/16", "#! Group = a\n#! Check = fd09::1\n")]), "has no IPv6 address"),
        (text(&[peer(1, both, "#! Group = a\n#! Check = 10.8.0.1\n")]), "not in the AllowedIPs"),
        (text(&[peer(1, both, "#! Group = a b\n#! Check = 10.9.0.1\n")]), "is not the name of a group"),
        (text(&[peer(1, both, "#! Group = a\n#! Check = 10.9.0.1/32\n")]), "must be an IP address"),
    ];
    for (text, message) in cases {
        let (_, errors) = read(&text);
        assert!(errors.iter().any(|error| error.contains(message)), "{message}: {errors:?}");
    }
}

#[test]
fn a_reload_leads_to_what_a_new_tunnel_has_whoever_is_active() {
    let paris = "#! Group = paris\n#! Check = 10.10.0.1\n";
    let files = [
        three("10.9.0.0/16"),
        three("10.9.0.0/16, 10.10.0.0/16"),
        three("10.9.0.0/24, 10.10.0.0/16"),
        text(&[2, 3].map(|n| peer(n, "10.9.0.0/16", GROUP))),
        // The group ends, or goes on with other networks and without one that takes its networks along.
        text(&[peer(1, "10.9.0.0/16", ""), peer(2, "10.10.0.0/16", ""), peer(3, "10.11.0.0/16", "")]),
        text(&[peer(1, "10.11.0.0/16", ""), peer(2, "10.9.0.0/16", ""), peer(3, "10.10.0.0/16", "")]),
        text(&[peer(1, "10.9.0.0/16", ""), peer(2, "10.10.0.0/16", paris), peer(3, "10.10.0.0/16", paris)]),
        text(&[peer(1, "10.10.0.0/16", paris), peer(2, "10.10.0.0/16", paris), peer(3, "10.9.0.0/16", GROUP)]),
        text(&[1, 2, 3].map(|n| peer(n, "10.10.0.0/16", paris))),
    ];
    for (from, to) in files.iter().flat_map(|from| files.iter().map(move |to| (from, to))) {
        for (active, removal) in [1, 2, 3]
            .into_iter()
            .flat_map(|active| [AllowedIpRemoval::OneByOne, AllowedIpRemoval::Replace].map(|removal| (active, removal)))
        {
            let ((before, errors), (after, _)) = (read(from), read(to));
            assert!(errors.is_empty(), "{from}: {errors:?}");
            let (mut daemon, mut new) = (Daemon::default(), Daemon::default());
            daemon.apply(&before.initial_changes().update);
            daemon.move_to(key(active));
            daemon.apply(&changes(&before, &after, &daemon.state(), removal).update);
            new.apply(&after.initial_changes().update);
            assert_eq!(daemon.owners(), new.owners(), "from:\n{from}\nto:\n{to}\n{active} is active, {removal:?}");
            assert!(changes(&after, &after, &daemon.state(), removal).update == DeviceUpdate::default());
        }
    }
}

#[test]
fn a_new_device_goes_on_with_the_active_peer() {
    let file = read(&three("10.9.0.0/16, 10.10.0.0/16")).0;
    for active in [1, 2, 3] {
        let (mut daemon, mut new) = (Daemon::default(), Daemon::default());
        daemon.apply(&file.initial_changes().update);
        daemon.move_to(key(active));
        let peer = |state: &PeerState| PeerUpdate {
            replace_allowed_ips: true,
            allowed_ips: state.allowed_ips.iter().map(|&(addr, cidr)| AllowedIp { add: true, addr, cidr }).collect(),
            ..PeerUpdate::new(state.public_key)
        };
        let peers = daemon.state().peers.iter().map(peer).collect();
        let mut update = DeviceUpdate { peers, ..DeviceUpdate::default() };
        file.set_groups(&mut update);
        new.apply(&update);
        assert_eq!((new.owners(), new.lists[&key(active)].len()), (daemon.owners(), 2), "{active} was active");
    }
}

#[test]
fn a_group_that_ends_is_told_and_one_that_loses_a_member_keeps_its_networks() {
    let (before, running) = (read(&three("10.9.0.0/16")).0, [1, 2, 3].map(|n| PeerState::new(key(n))));
    let running = DeviceState { peers: running.into(), ..DeviceState::default() };
    let alone = read(&text(&[peer(1, "10.8.0.0/16", ""), peer(2, "10.9.0.0/16", "")])).0;
    let update = changes(&before, &alone, &running, AllowedIpRemoval::OneByOne).update;
    let names: Vec<_> = update.peers.iter().filter_map(|peer| peer.group.name.clone()).collect();
    assert_eq!(names, ["", ""]);
    let two = read(&text(&[peer(1, "10.9.0.0/16", GROUP), peer(2, "10.9.0.0/16", GROUP)])).0;
    let update = changes(&before, &two, &running, AllowedIpRemoval::OneByOne).update;
    assert!(update.peers.iter().any(|peer| peer.public_key == key(2) && peer.allowed_ips.len() == 1));
}

#[test]
fn save_changes_nothing_when_another_peer_is_active_and_all_peers_when_the_networks_are_others() {
    for active in [1, 2, 3] {
        for (nets, changed) in [(vec!["10.9.0.0"], false), (vec!["10.9.0.0", "10.10.0.0"], true)] {
            let text = three("10.9.0.0/16");
            let state = |n| PeerState {
                allowed_ips: if n == active {
                    nets.iter().map(|net| (net.parse().unwrap(), 16)).collect()
                } else {
                    Vec::new()
                },
                ..PeerState::new(key(n))
            };
            let device = DeviceState { peers: [1, 2, 3].map(state).into(), ..DeviceState::default() };
            let runtime = RunningTunnel {
                interface: &"wg0".parse().unwrap(),
                device: &device,
                addresses: &["10.9.0.2/24".parse().unwrap()],
                has_ipv6: true,
                mtu: 1420,
                dns_servers: None,
                chosen_port: None,
                chosen_fwmark: None,
                previous: None,
                is_resolved_address: &|_, _| false,
            };
            let mut document = Document::parse(text.as_bytes());
            save(&mut document, &runtime).unwrap();
            let saved = String::from_utf8(document.to_bytes().to_vec()).unwrap();
            assert_eq!(saved != text, changed, "{saved}");
            let (file, errors) = read(&saved);
            assert!(errors.is_empty(), "{errors:?}");
            assert!(file.peers.iter().all(|peer| peer.allowed_ips.len() == nets.len()), "{saved}");
        }
    }
}
