//! Peers with an end, a quota or a successor, between whole engines.

mod hosts;

use std::time::Duration;

use hosts::{Clock, Host, pair, settle, udp};
use linerate_engine::config::{DeviceChange, LimitChange, PeerChange, PeerReport, Replacement, Suspension};
use linerate_netio::memory::MemoryNet;
use linerate_protocol::{Boottime, Prefix, PublicKey};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

/// What the largest batch of the longest packets adds to a quota before the slow path sees it.
const OVERSHOOT_MAX: u64 = 256 * 1500;

fn limit(host: &mut Host, peer: PublicKey, limits: LimitChange) {
    host.set_peer(PeerChange { limits: Some(limits), ..PeerChange::new(peer) });
}

fn expires(at: Duration) -> LimitChange {
    LimitChange { expires: Some(Some(at)), ..LimitChange::default() }
}

fn quota(bytes: u64) -> LimitChange {
    LimitChange { quota: Some(Some(bytes)), ..LimitChange::default() }
}

fn peer(host: &mut Host, key: PublicKey) -> Option<PeerReport> {
    host.slow_path.get().peers.into_iter().find(|peer| peer.public_key == key)
}

fn suspended(host: &mut Host, key: PublicKey) -> Option<Suspension> {
    peer(host, key).unwrap().limits.suspended
}

/// Sends a packet each way; which of them arrived.
fn exchange(server: &mut Host, client: &mut Host) -> (bool, bool) {
    server.send(&udp(server.inner, client.inner, b"down"));
    client.send(&udp(client.inner, server.inner, b"up"));
    settle(&mut [&mut *server, &mut *client]);
    let arrived = |host: &Host| std::iter::from_fn(|| host.receive()).any(|(_, packet)| packet[9] == 17);
    (arrived(client), arrived(server))
}

#[test]
fn a_peer_is_cut_off_when_it_expires_and_not_before() {
    let clock = Clock::new();
    let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
    let end = clock.wall() + 100 * SECOND;
    limit(&mut server, client.public_key, expires(end));
    assert_eq!(exchange(&mut server, &mut client), (true, true));
    clock.advance(100 * SECOND - Duration::from_nanos(1));
    assert_eq!(exchange(&mut server, &mut client), (true, true));
    assert!(server.slow_path.deadline().unwrap() <= clock.boot().after(Duration::from_nanos(1)));
    clock.advance(Duration::from_nanos(1));
    let configured = server.shared.activity(Boottime(0)).configured;
    assert!(server.slow_path.process());
    assert_eq!(suspended(&mut server, client.public_key), Some(Suspension::Expired));
    assert_ne!(server.shared.activity(Boottime(0)).configured, configured, "whoever watches reads it again");
    let before = server.drops("suspended");
    assert_eq!(exchange(&mut server, &mut client), (false, false));
    assert_eq!(server.drops("suspended"), before + 1);
    // At once, not after the client has noticed.
    assert!(server.shared.counters.list().iter().any(|(name, count)| name == "drop_unknown_index" && *count > 0));
}

#[test]
fn the_handshakes_of_an_expired_peer_are_refused_and_nothing_is_sent_to_it() {
    let clock = Clock::new();
    let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
    let keepalive = PeerChange { persistent_keepalive: Some(5), ..PeerChange::new(client.public_key) };
    server.set_peer(keepalive);
    limit(&mut server, client.public_key, expires(clock.wall()));
    for _ in 0..30 {
        assert_eq!(exchange(&mut server, &mut client), (false, false));
        clock.advance(SECOND);
    }
    assert!(server.drops("suspended_initiation") >= 4);
    let report = peer(&mut server, client.public_key).unwrap();
    assert_eq!((report.rx_bytes, report.tx_bytes), (0, 0));
    assert_eq!(server.slow_path.deadline(), None, "no timer runs for it");
}

#[test]
fn a_clock_that_is_set_back_revives_nobody_and_one_that_is_set_forward_expires_at_once() {
    let clock = Clock::new();
    let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
    let start = clock.wall();
    limit(&mut server, client.public_key, expires(start + 3600 * SECOND));
    assert_eq!(exchange(&mut server, &mut client), (true, true));
    clock.set_wall(start + 3600 * SECOND);
    assert!(server.slow_path.deadline().unwrap() <= clock.boot(), "it is due now");
    settle(&mut [&mut server, &mut client]);
    assert_eq!(suspended(&mut server, client.public_key), Some(Suspension::Expired));
    clock.set_wall(start);
    clock.advance(10 * SECOND);
    assert_eq!(exchange(&mut server, &mut client), (false, false));
    // The same again is no renewal.
    limit(&mut server, client.public_key, expires(start + 3600 * SECOND));
    assert_eq!(suspended(&mut server, client.public_key), Some(Suspension::Expired));
    limit(&mut server, client.public_key, expires(start + 2 * 3600 * SECOND));
    clock.advance(10 * SECOND);
    // The client still has keys that the server has not.
    assert_eq!(exchange(&mut server, &mut client), (true, false));
    assert_eq!(exchange(&mut server, &mut client), (true, true));
}

#[test]
fn time_goes_on_where_a_clock_was_set_back() {
    let clock = Clock::new();
    let (mut server, client) = pair(&MemoryNet::new(1000), &clock);
    let start = clock.wall();
    limit(&mut server, client.public_key, expires(start + 100 * SECOND));
    clock.advance(50 * SECOND);
    server.slow_path.process();
    clock.set_wall(start);
    assert_eq!(server.slow_path.deadline(), Some(clock.boot().after(50 * SECOND)));
    clock.advance(50 * SECOND);
    server.slow_path.process();
    assert_eq!(suspended(&mut server, client.public_key), Some(Suspension::Expired));
}

#[test]
fn a_clock_behind_the_earliest_time_counts_as_that() {
    let clock = Clock::new();
    let (mut server, client) = pair(&MemoryNet::new(1000), &clock);
    let saved = clock.wall() + 3600 * SECOND;
    server.slow_path.set(DeviceChange { earliest_time: Some(saved), ..DeviceChange::default() }).unwrap();
    limit(&mut server, client.public_key, expires(saved));
    assert_eq!(suspended(&mut server, client.public_key), Some(Suspension::Expired));
    limit(&mut server, client.public_key, expires(saved + SECOND));
    assert_eq!(suspended(&mut server, client.public_key), None);
    assert!(server.slow_path.usage().time >= saved);
}

#[test]
fn usage_is_reported_within_a_minute_of_traffic_and_at_rest_there_is_no_timer() {
    let clock = Clock::new();
    let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
    limit(&mut server, client.public_key, quota(1 << 40));
    server.shared.usage_changed.drain();
    let mut reported = 0;
    for _ in 0..300 {
        assert_eq!(exchange(&mut server, &mut client), (true, true));
        clock.advance(SECOND);
        reported += u32::from(server.shared.usage_changed.drain());
    }
    assert!((5..=7).contains(&reported), "{reported} reports in five minutes");
    for _ in 0..1000 {
        clock.advance(SECOND);
        settle(&mut [&mut server, &mut client]);
    }
    assert!(server.shared.usage_changed.drain(), "the last traffic, too");
    assert_eq!(server.slow_path.deadline(), None);
    let state = peer(&mut server, client.public_key).unwrap();
    assert_eq!(server.slow_path.usage().peers[0].used, state.rx_bytes + state.tx_bytes);
}

#[test]
fn a_quota_that_is_raised_lets_the_peer_in_again() {
    let clock = Clock::new();
    let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
    limit(&mut server, client.public_key, LimitChange { used: Some(900), ..quota(1000) });
    settle(&mut [&mut server, &mut client]);
    exchange(&mut server, &mut client);
    assert_eq!(suspended(&mut server, client.public_key), Some(Suspension::QuotaReached));
    let used = peer(&mut server, client.public_key).unwrap().limits.used;
    limit(&mut server, client.public_key, quota(used + 100_000));
    clock.advance(10 * SECOND);
    assert_eq!(exchange(&mut server, &mut client), (true, true));
    // A new period begins.
    limit(&mut server, client.public_key, LimitChange { used: Some(0), ..LimitChange::default() });
    assert_eq!(peer(&mut server, client.public_key).unwrap().limits.used, 0);
    // No limits: nothing is kept.
    let none = LimitChange { expires: Some(None), quota: Some(None), ..LimitChange::default() };
    limit(&mut server, client.public_key, none);
    assert_eq!(exchange(&mut server, &mut client), (true, true));
    assert!(server.slow_path.usage().peers.is_empty());
}

/// A server, a client with its old key, and the same client with its new one.
fn with_successor(clock: &Clock) -> (Host, Host, Host) {
    let net = MemoryNet::new(1000);
    let (mut server, old) = pair(&net, clock);
    let mut new = Host::new(&net, clock, 3);
    new.add_peer(&server);
    new.inner = old.inner;
    let limits = Some(LimitChange { replaces: Some(Some(old.public_key)), ..quota(1 << 30) });
    server.set_peer(PeerChange { limits, ..PeerChange::new(new.public_key) });
    limit(&mut server, old.public_key, quota(1 << 30));
    (server, old, new)
}

#[test]
fn an_old_key_is_good_until_the_first_handshake_of_its_successor_and_not_after() {
    let clock = Clock::new();
    let (mut server, mut old, mut new) = with_successor(&clock);
    for _ in 0..200 {
        assert_eq!(exchange(&mut server, &mut old), (true, true));
        clock.advance(SECOND);
    }
    let used = peer(&mut server, old.public_key).unwrap().limits.used;
    server.slow_path.usage();
    new.send(&udp(new.inner, server.inner, b"hello"));
    settle(&mut [&mut server, &mut old, &mut new]);
    assert_eq!(exchange(&mut server, &mut new), (true, true));
    assert!(peer(&mut server, old.public_key).is_none());
    let report = peer(&mut server, new.public_key).unwrap();
    assert_eq!(report.allowed_ips, [Prefix::new(new.inner, 32).unwrap()]);
    assert_eq!(report.limits.replaces, None);
    assert_eq!(report.limits.used, used + report.rx_bytes + report.tx_bytes, "it is the same client");
    let replaced = server.slow_path.usage().replaced;
    assert_eq!(replaced, [Replacement { old: old.public_key, new: new.public_key }]);
    clock.advance(10 * SECOND);
    assert_eq!(exchange(&mut server, &mut old), (false, false));
    assert_eq!(exchange(&mut server, &mut new), (true, true));
}

#[test]
fn a_successor_inherits_what_was_used_up() {
    let clock = Clock::new();
    let (mut server, old, mut new) = with_successor(&clock);
    limit(&mut server, old.public_key, LimitChange { used: Some(1 << 30), ..LimitChange::default() });
    assert_eq!(suspended(&mut server, old.public_key), Some(Suspension::QuotaReached));
    new.send(&udp(new.inner, server.inner, b"hello"));
    settle(&mut [&mut server, &mut new]);
    assert!(peer(&mut server, old.public_key).is_none());
    assert_eq!(suspended(&mut server, new.public_key), Some(Suspension::QuotaReached));
}

#[test]
fn a_successor_that_is_taken_back_replaces_nobody() {
    let clock = Clock::new();
    let (mut server, mut old, mut new) = with_successor(&clock);
    server.set_peer(PeerChange { remove: true, ..PeerChange::new(new.public_key) });
    new.send(&udp(new.inner, server.inner, b"hello"));
    settle(&mut [&mut server, &mut new]);
    assert_eq!(exchange(&mut server, &mut old), (true, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is sent which way: the quota is used up, and hardly more, and from then on nothing passes.
    #[test]
    fn a_quota_is_kept_to_within_a_batch(
        bytes in 1u64..200_000,
        used in 0u64..100_000,
        packets in proptest::collection::vec((any::<bool>(), 1usize..100, 0usize..1300), 1..60),
    ) {
        let clock = Clock::new();
        let (mut server, mut client) = pair(&MemoryNet::new(1000), &clock);
        limit(&mut server, client.public_key, LimitChange { used: Some(used), ..quota(used + bytes) });
        for (up, count, len) in packets {
            let before = peer(&mut server, client.public_key).unwrap();
            let (from, to) = if up { (&client, &server) } else { (&server, &client) };
            (0..count).for_each(|_| from.send(&udp(from.inner, to.inner, &vec![7; len])));
            settle(&mut [&mut server, &mut client]);
            while server.receive().is_some() || client.receive().is_some() {}
            let after = peer(&mut server, client.public_key).unwrap();
            let sum = after.rx_bytes + after.tx_bytes;
            prop_assert_eq!(after.limits.used, used + sum);
            prop_assert_eq!(after.limits.suspended, (sum >= bytes).then_some(Suspension::QuotaReached));
            prop_assert!(sum < bytes + OVERSHOOT_MAX);
            if before.limits.suspended.is_some() {
                prop_assert_eq!(sum, before.rx_bytes + before.tx_bytes);
            }
            clock.advance(SECOND);
        }
    }
}
