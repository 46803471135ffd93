//! From the limits in a tunnel's file to the changes of a device.

use std::time::Duration;

use linerate_control::document::Document;
use linerate_control::keys::PublicKey;
use linerate_control::rate::Rate;
use linerate_control::tunnel_file::{AllowedIpRemoval, NoNames, RunningTunnel, TunnelFile, changes, has_expired, save};
use linerate_control::uapi::limits::{LimitState, LimitUpdate, Suspension};
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::uapi::response::{DeviceState, PeerState};

const OLD: PublicKey = PublicKey([7; 32]);
const NEXT: PublicKey = PublicKey([8; 32]);

/// A file with one client that has these lines.
fn file(lines: &[&str]) -> TunnelFile {
    let text = format!(
        "[Interface]\n[Peer]\n#! Created = 2027-01-15T12:00:00Z\nPublicKey = {OLD}\nAllowedIPs = 10.0.0.2/32\n{}\n",
        lines.join("\n")
    );
    let (file, diagnostics) = TunnelFile::read(&Document::parse(text.as_bytes()), &"wg0".parse().unwrap(), &NoNames);
    assert_eq!(diagnostics, []);
    file
}

fn running(peers: &[(PublicKey, LimitState)]) -> DeviceState {
    let peers = peers.iter().map(|&(key, limits)| PeerState {
        limits,
        allowed_ips: if limits.replaces.is_none() { vec![("10.0.0.2".parse().unwrap(), 32)] } else { Vec::new() },
        ..PeerState::new(key)
    });
    DeviceState { peers: peers.collect(), ..DeviceState::default() }
}

fn reload(old: &TunnelFile, new: &TunnelFile, running: &DeviceState) -> DeviceUpdate {
    changes(old, new, running, AllowedIpRemoval::OneByOne).update
}

const EXPIRES: &str = "#! Expires = 2027-01-31T00:00:00Z";
const LIMITED: LimitUpdate =
    LimitUpdate { expires: Some(Duration::from_secs(1_801_353_600)), quota: Some(50_000_000_000), ..LimitUpdate::NONE };

#[test]
fn a_new_device_gets_the_limits_and_one_without_any_gets_no_line_of_them() {
    let peers = file(&[EXPIRES, "#! Quota = 50G"]).initial_changes().update.peers;
    assert_eq!(peers.len(), 1);
    assert_eq!(peers[0].limits, LIMITED);
    let update = file(&[]).initial_changes().update;
    assert!(!update.has_limits());
    let monthly = file(&["#! Quota = 50G", "#! QuotaReset = monthly"]).initial_changes().update.peers;
    // The day of `Created`, in whatever zone this runs.
    assert!((14..=16).contains(&monthly[0].limits.quota_day.unwrap()));
}

#[test]
fn a_reload_sends_limits_that_have_changed_in_the_file_and_no_others() {
    let (none, limited) = (file(&[]), file(&[EXPIRES, "#! Quota = 50G"]));
    let limits = LimitState { quota: Some(1), ..LimitState::default() };
    let state = running(&[(OLD, limits)]);
    assert!(reload(&limited, &limited, &state) == DeviceUpdate::default());
    assert!(reload(&none, &none, &state) == DeviceUpdate::default());
    let update = |limits| PeerUpdate { update_only: true, limits, ..PeerUpdate::new(OLD) };
    assert!(reload(&none, &limited, &state).peers == [update(LIMITED)]);
    assert!(reload(&limited, &none, &state).peers == [update(LimitUpdate::NONE)]);
}

#[test]
fn a_successor_comes_with_the_limits_of_its_peer_and_without_allowed_ips() {
    let next = format!("#! NextPublicKey = {NEXT}");
    let (before, after) = (file(&[EXPIRES]), file(&[EXPIRES, &next]));
    let limits = LimitUpdate { quota: Some(0), replaces: Some(OLD), ..LIMITED };
    let successor = PeerUpdate { limits, ..PeerUpdate::new(NEXT) };
    assert!(after.initial_changes().update.peers[1] == successor);
    let state = running(&[(OLD, LimitState::default())]);
    assert!(reload(&before, &after, &state).peers == [successor]);
    let pending = LimitState { replaces: Some(OLD), ..LimitState::default() };
    let state = running(&[(OLD, LimitState::default()), (NEXT, pending)]);
    assert!(reload(&after, &after, &state) == DeviceUpdate::default());
    // Limits that the file has dropped.
    let unlimited = file(&[&next]);
    let none = PeerUpdate { update_only: true, limits: LimitUpdate::NONE, ..PeerUpdate::new(OLD) };
    let limits = LimitUpdate { replaces: Some(OLD), ..LimitUpdate::NONE };
    assert!(reload(&after, &unlimited, &state).peers == [none, PeerUpdate { limits, ..PeerUpdate::new(NEXT) }]);
    // Taken back.
    assert!(reload(&after, &before, &state).peers == [PeerUpdate { remove: true, ..PeerUpdate::new(NEXT) }]);
}

#[test]
fn a_key_that_has_been_replaced_does_not_come_back_by_a_reload() {
    let next = format!("#! NextPublicKey = {NEXT}");
    let (before, after) = (file(&[&next]), file(&["PersistentKeepalive = 25", &next]));
    let state = running(&[(NEXT, LimitState::default())]);
    assert!(reload(&before, &before, &state) == DeviceUpdate::default());
    let update = PeerUpdate { update_only: true, persistent_keepalive: Some(25), ..PeerUpdate::new(NEXT) };
    assert!(reload(&before, &after, &state).peers == [update]);
}

#[test]
fn a_client_that_has_another_key_at_once_takes_over_what_it_has_used() {
    let client = |key: PublicKey, name: &str, line: &str| {
        let text = format!(
            "[Interface]\n[Peer]\n# Name = {name}\n#! Created = 2027-01-15T12:00:00Z\nPublicKey = {key}\n{line}\n"
        );
        TunnelFile::read(&Document::parse(text.as_bytes()), &"wg0".parse().unwrap(), &NoNames).0
    };
    let change = |name: &str, line: &str| {
        let state = running(&[(OLD, LimitState::default())]);
        let update = reload(&client(OLD, "laptop", line), &client(NEXT, name, line), &state);
        assert_eq!(update.without_limits(Duration::ZERO).peers.len(), 2, "others get both, too");
        let [removed, added] = &update.peers[..] else { panic!("{} peers", update.peers.len()) };
        assert!(removed.remove && removed.public_key == OLD && added.public_key == NEXT);
        added.limits
    };
    assert_eq!(change("laptop", "#! Quota = 50G").replaces, Some(OLD));
    assert_eq!(change("laptop", ""), LimitUpdate::default(), "others know no such line");
    assert_eq!(change("phone", "#! Quota = 50G").replaces, Some(PublicKey([0; 32])));
}

#[test]
fn only_a_peer_that_has_reached_the_end_in_the_file_has_expired() {
    let end = LimitState { expires: Some(Duration::from_secs(1_801_353_600)), ..LimitState::default() };
    let over = LimitState { suspended: Some(Suspension::Expired), ..end };
    let renewed = file(&["#! Expires = 2027-02-28T00:00:00Z"]);
    for (file, limits, expected) in [
        (file(&[EXPIRES]), over, true),
        (file(&["#! Expires = 2027-01-31T00:00:00.5Z"]), over, true),
        (file(&[EXPIRES]), end, false),
        (renewed, over, false),
        (file(&[]), over, false),
    ] {
        let state = PeerState { limits, ..PeerState::new(OLD) };
        assert_eq!(has_expired(&file.peers[0], &state), expected, "{:?}", file.peers[0].client.expires);
    }
}

#[test]
fn a_file_that_has_the_new_key_in_place_of_the_old_changes_nothing_that_runs() {
    let before = file(&[&format!("#! NextPublicKey = {NEXT}")]);
    let mut after = file(&[]);
    std::sync::Arc::make_mut(&mut after.peers[0]).public_key = NEXT;
    let state = running(&[(NEXT, LimitState::default())]);
    assert!(reload(&before, &after, &state) == DeviceUpdate::default());
}

#[test]
fn an_implementation_without_limits_gets_no_peer_that_has_expired_or_waits() {
    let update = file(&[EXPIRES, &format!("#! NextPublicKey = {NEXT}")]).initial_changes().update;
    let end = Duration::from_secs(1_801_353_600);
    assert!(update.without_limits(end).peers.is_empty());
    let before = update.without_limits(end - Duration::from_secs(1));
    assert_eq!(before.peers.iter().map(|peer| peer.public_key).collect::<Vec<_>>(), [OLD]);
    assert!(!before.has_limits());
}

#[test]
fn a_successor_that_waits_is_not_saved_as_a_peer() {
    let text = format!("[Interface]\n[Peer]\nPublicKey = {OLD}\n#! NextPublicKey = {NEXT}\nAllowedIPs = 10.0.0.2/32\n");
    let mut document = Document::parse(text.as_bytes());
    let pending = LimitState { replaces: Some(OLD), ..LimitState::default() };
    let device = running(&[(OLD, LimitState::default()), (NEXT, pending)]);
    let runtime = RunningTunnel {
        interface: &"wg0".parse().unwrap(),
        device: &device,
        addresses: &[],
        has_ipv6: true,
        mtu: 1420,
        dns_servers: None,
        chosen_port: None,
        chosen_fwmark: None,
        previous: None,
        is_resolved_address: &|_, _| false,
    };
    save(&mut document, &runtime).unwrap();
    assert_eq!(String::from_utf8_lossy(&document.to_bytes()), text);
}

#[test]
fn a_rate_reaches_the_device_with_the_peer_and_when_it_changes() {
    let rate = Rate { down: 20_000_000, up: 5_000_000 };
    let (none, rated) = (file(&[]), file(&["#! Rate = 20M/5M"]));
    assert_eq!(rated.peers[0].client.rate, Some(rate));
    let sent = |update: DeviceUpdate| update.peers.iter().map(|peer| peer.rate).collect::<Vec<_>>();
    assert_eq!(sent(rated.initial_changes().update), [Some(rate)]);
    assert_eq!(sent(none.initial_changes().update), [None]);
    let mut state = running(&[(OLD, LimitState::default())]);
    state.peers[0].rate = rate;
    assert!(reload(&rated, &rated, &state) == DeviceUpdate::default());
    assert_eq!(sent(reload(&none, &rated, &state)), [Some(rate)]);
    assert_eq!(sent(reload(&rated, &none, &state)), [Some(Rate::NONE)]);
    assert!(!reload(&rated, &none, &state).has_limits(), "and no limits with it");
    let next = format!("#! Rate = 20M/5M\n#! NextPublicKey = {NEXT}");
    assert_eq!(sent(reload(&rated, &file(&[&next]), &state)), [Some(rate)], "its next key has the same");
    // A key that a program gave the device by itself, with a rate, and that the file takes over without one.
    let other = TunnelFile::clone(&file(&[]));
    let before = TunnelFile { peers: Vec::new(), ..other };
    assert_eq!(sent(reload(&before, &none, &state)), [Some(Rate::NONE)]);
}

#[test]
fn a_rate_that_is_none_is_refused_with_what_to_write() {
    for (value, message, hint) in [
        ("0", "is not a rate that can be kept", "64k to 100G"),
        ("1T", "is not a rate that can be kept", "64k to 100G"),
        ("20Mbit", "is not a rate", "20M/5M"),
        ("none", "limits neither direction", "remove the line"),
    ] {
        let text = format!("[Interface]\n[Peer]\nPublicKey = {OLD}\n#! Rate = {value}\n");
        let (_, found) = TunnelFile::read(&Document::parse(text.as_bytes()), &"wg0".parse().unwrap(), &NoNames);
        assert_eq!(found.len(), 1, "{value}");
        let said = found[0].to_string();
        assert!(said.contains(message) && said.contains(hint), "{said}");
        assert_eq!(found[0].line, 4);
    }
}
