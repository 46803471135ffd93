//! Gateways with one key and one address, and a client that knows of one: laws of the take-over.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_protocol::constants::{REKEY_TIMEOUT, URGENT_REPEATS};
use linerate_protocol::fleet::{FLOOR_AHEAD_MAX, Hint, IndexKey, IndexOwner};
use linerate_protocol::{DropReason, MessageKind, Now};
use proptest::prelude::*;

use crate::simulation::{Link, Net, WALL, public, secret};

const CLIENT: usize = 0;
const A: usize = 1;
const B: usize = 2;
const NUMBER: u32 = 0xa_bcde;

/// A client and two gateways with A's key; the client's datagrams come to A.
fn fleet(seed: u64) -> Net {
    let mut net = Net::new(seed, 3);
    net.introduce(CLIENT, A);
    for gateway in [A, B] {
        let peer = net.add_peer(gateway, public(CLIENT as u64));
        net.call(gateway, |node, now, rng| {
            node.device.set_private_key(now, rng, Some(secret(A as u64)), &mut node.host);
            assert!(node.device.join_fleet(gateway as u8, IndexKey::new(&[9; 32])));
            assert!(node.device.set_fleet_number(peer, NUMBER));
        });
    }
    hint(&mut net, A, Hint { received: Some([0; 12]), ..Hint::default() });
    net
}

fn connected(seed: u64) -> Net {
    let mut net = fleet(seed);
    net.send(CLIENT, b"first");
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.nodes[A].data_received(), [b"first"]);
    net
}

fn hint(net: &mut Net, gateway: usize, hint: Hint) -> bool {
    let peer = net.nodes[gateway].peer();
    net.call(gateway, |node, now, _| node.device.set_hint(now.wall, peer, &hint))
}

/// From now on the client's datagrams come to B, and A is gone.
fn move_address(net: &mut Net) {
    net.call(A, |node, _, _| node.device.down(&mut node.host));
    net.nodes[B].addr = net.nodes[A].addr;
    net.nodes[A].addr = SocketAddr::from(([10, 0, 0, 99], 51820));
}

/// Where an attacker is.
fn elsewhere() -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 66], 666))
}

/// The time in an initiation is sealed; what A would tell of those it sent and accepted.
fn stamp(wall: Duration) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&((1 << 62) + 10 + wall.as_secs()).to_be_bytes());
    bytes[8..].copy_from_slice(&wall.subsec_nanos().to_be_bytes());
    bytes
}

fn initiations(net: &Net, node: usize) -> Vec<Vec<u8>> {
    let sent = net.nodes[node].host.sent.iter().filter(|sent| sent.kind == MessageKind::Initiation);
    sent.map(|sent| sent.bytes.clone()).collect()
}

#[test]
fn indices_tell_the_fleet_whose_sessions_they_are_and_nobody_else() {
    let net = connected(1);
    let index = *net.nodes[A].host.sessions.keys().next().expect("A has a session");
    for gateway in [A, B] {
        let reader = net.nodes[gateway].device.index_reader().expect("it belongs to the fleet");
        assert_eq!(reader.owner(index), IndexOwner { gateway: A as u8, number: NUMBER });
        assert_eq!(net.nodes[gateway].device.fleet_peer(NUMBER), Some(net.nodes[gateway].peer()));
    }
    assert!(net.nodes[CLIENT].device.index_reader().is_none(), "a device without a fleet has no key");
}

#[test]
fn a_number_belongs_to_one_peer_and_goes_with_it() {
    let mut net = fleet(2);
    let other = net.add_peer(A, public(77));
    let device = &mut net.nodes[A].device;
    assert!(device.set_fleet_number(other, NUMBER));
    assert_eq!(device.fleet_peer(NUMBER), Some(other));
    assert!(device.set_fleet_number(other, 5) && device.fleet_peer(NUMBER).is_none());
    assert!(!device.set_fleet_number(other, 1 << 20) && !device.join_fleet(64, IndexKey::new(&[1; 32])));
    let node = &mut net.nodes[A];
    node.device.remove_peer(other, &mut node.host);
    assert_eq!(node.device.fleet_peer(5), None);
}

#[test]
fn a_client_goes_on_one_and_a_half_round_trips_after_another_gateway_initiates() {
    let mut net = connected(3);
    move_address(&mut net);
    let (peer, endpoint) = (net.nodes[B].peer(), net.nodes[CLIENT].addr);
    net.nodes[B].host.endpoints.insert(peer, endpoint);
    let now = net.now.wall;
    assert!(hint(&mut net, B, Hint { endpoint: Some(endpoint), sent: None, received: Some(stamp(now)) }));
    net.call(B, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
    // There, back, and there again with the keepalive.
    net.run_for(Duration::from_millis(61));
    net.send(CLIENT, b"second");
    net.run_for(Duration::from_millis(21));
    assert_eq!(net.nodes[B].data_received(), [b"second"]);
}

/// How long a client that sends every 10 ms is unheard, after B takes it over on a link that loses so much each way.
fn silence(seed: u64, loss: u64) -> Duration {
    let mut net = connected(seed);
    move_address(&mut net);
    let (peer, endpoint) = (net.nodes[B].peer(), net.nodes[CLIENT].addr);
    net.nodes[B].host.endpoints.insert(peer, endpoint);
    let received = Some(stamp(net.now.wall));
    assert!(hint(&mut net, B, Hint { endpoint: Some(endpoint), sent: None, received }));
    net.link = Link { loss, ..Link::GOOD };
    let begun = net.now.boot;
    net.call(B, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
    while net.nodes[B].data_received().is_empty() {
        net.send(CLIENT, b"more");
        net.run_for(Duration::from_millis(10));
    }
    net.now.boot.since(begun)
}

#[test]
fn a_client_goes_on_soon_although_one_datagram_in_five_is_lost() {
    let mut silences: Vec<_> = (0..400).map(|seed| silence(seed, 20)).collect();
    silences.sort();
    let within = |limit| silences.iter().filter(|silence| **silence <= Duration::from_millis(limit)).count();
    let [one, two, five] = [600, 2200, 4900].map(within);
    assert!(
        one >= 280 && two >= 360 && five >= 380,
        "of 400: {one} in 0.6 s, {two} in 2.2 s, {five} in 4.9 s; the longest: {:?}",
        silences.last()
    );
}

#[test]
fn a_gateway_that_has_given_a_client_away_does_not_take_it_back_because_its_last_answer_stays_unanswered() {
    let mut net = connected(20);
    net.run_for(Duration::from_secs(6));
    let (at_a, at_b, endpoint) = (net.nodes[A].peer(), net.nodes[B].peer(), net.nodes[CLIENT].addr);
    net.nodes[B].host.endpoints.insert(at_b, endpoint);
    net.call(B, |node, now, rng| node.device.initiate_now(now, rng, at_b, &mut node.host));
    let sent = Some(stamp(net.now.wall));
    // B may tell of its initiation, and again when that was answered.
    hint(&mut net, A, Hint { sent, ..Hint::default() });
    net.send(A, b"the last answer");
    net.run_for(Duration::from_millis(100));
    assert!(net.nodes[A].host.traffic(at_a).unanswered_since().is_some());
    hint(&mut net, A, Hint { sent, ..Hint::default() });
    net.run_for(Duration::from_secs(30));
    assert_eq!(net.nodes[A].count(MessageKind::Initiation), 0);
}

#[test]
fn a_gateway_whose_clock_is_behind_initiates_above_what_another_has_sent() {
    for told in [false, true] {
        let mut net = connected(4);
        // A initiates, too, so that the client has a floor for the gateways' key.
        net.run_for(Duration::from_secs(6));
        let at_a = net.nodes[A].peer();
        net.call(A, |node, now, rng| node.device.initiate_now(now, rng, at_a, &mut node.host));
        let sent = stamp(net.now.wall);
        net.run_for(Duration::from_millis(100));
        move_address(&mut net);
        let (peer, endpoint) = (net.nodes[B].peer(), net.nodes[CLIENT].addr);
        net.nodes[B].host.endpoints.insert(peer, endpoint);
        let before = net.nodes[CLIENT].host.drops.len();
        net.call(B, |node, now, rng| {
            let late = Now { wall: now.wall - Duration::from_secs(3), ..now };
            let sent = Some(sent).filter(|_| told);
            node.device.set_hint(late.wall, peer, &Hint { endpoint: Some(endpoint), sent, received: None });
            node.device.initiate_now(late, rng, peer, &mut node.host);
        });
        net.run_for(Duration::from_millis(100));
        let refused = net.nodes[CLIENT].host.drops[before..].contains(&DropReason::Replayed);
        assert_eq!((refused, net.nodes[B].host.handshakes.len()), (!told, usize::from(told)));
    }
}

#[test]
fn a_timestamp_of_the_far_future_is_no_floor() {
    let mut net = fleet(5);
    let limit = WALL + FLOOR_AHEAD_MAX;
    assert!(hint(&mut net, B, Hint { sent: Some(stamp(limit)), ..Hint::default() }));
    let future = stamp(limit + Duration::from_secs(1));
    assert!(!hint(&mut net, B, Hint { sent: Some(future), ..Hint::default() }));
}

#[test]
fn never_two_attempts_within_five_seconds_however_often_they_are_asked_for() {
    let mut net = fleet(6);
    let peer = net.nodes[B].peer();
    net.nodes[B].host.endpoints.insert(peer, elsewhere());
    for _ in 0..300 {
        net.call(B, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
        net.run_for(Duration::from_millis(100));
    }
    let times = net.nodes[B].times(MessageKind::Initiation);
    let attempts: Vec<_> = times.chunks(1 + URGENT_REPEATS.len()).collect();
    assert!(attempts.len() >= 5 && attempts.windows(2).all(|pair| pair[1][0].since(pair[0][0]) >= REKEY_TIMEOUT));
    for attempt in attempts {
        let repeats = attempt[1..].iter().map(|at| at.since(attempt[0]));
        assert!(repeats.zip(URGENT_REPEATS).all(|(after, expected)| after == expected), "{attempt:?}");
    }
}

#[test]
fn a_peer_that_may_be_elsewhere_is_sent_one_initiation() {
    for was_asked_before in [false, true] {
        let mut net = fleet(16);
        let peer = net.nodes[B].peer();
        net.nodes[B].host.endpoints.insert(peer, elsewhere());
        if was_asked_before {
            net.call(B, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
            net.run_for(Duration::from_millis(1500));
        }
        let before = net.nodes[B].count(MessageKind::Initiation);
        net.call(B, |node, now, rng| node.device.initiate_on_suspicion(now, rng, peer, &mut node.host));
        net.run_for(Duration::from_secs(200));
        assert_eq!(net.nodes[B].count(MessageKind::Initiation) - before, 1);
    }
}

#[test]
fn a_handshake_that_runs_becomes_urgent_when_asked_for_and_all_of_it_ends() {
    let mut net = fleet(17);
    let peer = net.nodes[B].peer();
    net.nodes[B].host.endpoints.insert(peer, elsewhere());
    net.initiate(B);
    net.run_for(Duration::from_millis(700));
    net.call(B, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
    net.run_for(Duration::from_millis(1500));
    assert_eq!(net.nodes[B].count(MessageKind::Initiation), 3, "at 0, 1 and 2 s");
    net.run_for(Duration::from_secs(300));
    assert_eq!(net.nodes[B].count(MessageKind::Initiation), 20, "as many as of any handshake");
}

#[test]
fn without_loss_nothing_is_repeated_and_an_idle_client_is_sent_few_keepalives() {
    for is_idle in [false, true] {
        let mut net = connected(18);
        move_address(&mut net);
        let (peer, endpoint) = (net.nodes[B].peer(), net.nodes[CLIENT].addr);
        net.nodes[B].host.endpoints.insert(peer, endpoint);
        net.call(B, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
        net.run_for(Duration::from_millis(100));
        if !is_idle {
            net.send(CLIENT, b"more");
        }
        net.run_for(Duration::from_secs(8));
        let repeats = if is_idle { URGENT_REPEATS.len() } else { 0 };
        assert_eq!(net.nodes[B].count(MessageKind::Initiation), 1);
        assert_eq!(net.nodes[B].count(MessageKind::Data), 1 + repeats);
    }
}

#[test]
fn our_attempt_is_not_repeated_soon_once_the_clients_own_initiation_has_come() {
    let mut net = connected(19);
    move_address(&mut net);
    let (peer, at_client) = (net.nodes[B].peer(), net.nodes[CLIENT].peer());
    let received = Some(stamp(net.now.wall));
    hint(&mut net, B, Hint { endpoint: Some(elsewhere()), sent: None, received });
    net.nodes[B].host.endpoints.insert(peer, elsewhere());
    net.run_for(Duration::from_secs(6));
    net.call(B, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
    net.call(CLIENT, |node, now, rng| node.device.initiate_now(now, rng, at_client, &mut node.host));
    net.run_for(Duration::from_millis(30));
    net.link = Link::DEAD;
    net.run_for(Duration::from_secs(4));
    assert_eq!(net.nodes[B].count(MessageKind::Initiation), 1);
}

#[test]
fn without_a_floor_a_stranger_gets_a_cookie_and_a_client_is_let_in_with_it() {
    let mut net = connected(7);
    let old = initiations(&net, CLIENT).remove(0);
    move_address(&mut net);
    let before = net.nodes[B].host.sent.len();
    assert_eq!(net.deliver(B, elsewhere(), &old), Err(DropReason::UnderLoad));
    let sent: Vec<_> = net.nodes[B].host.sent[before..].iter().map(|sent| sent.kind).collect();
    assert_eq!(sent, [MessageKind::Cookie], "64 bytes for 148");
    assert!(net.nodes[B].host.sessions.is_empty() && net.nodes[B].host.endpoints.is_empty());
    // The client's own: its session at A is dead, so it begins anew after 15 s, and again 5 s later with the cookie.
    net.run_with_traffic(Duration::from_secs(25), Duration::from_millis(500), &[CLIENT], b"more");
    let (node, client) = (&net.nodes[B], net.nodes[CLIENT].addr);
    assert_eq!(node.host.endpoints.get(&node.peer()), Some(&client), "a data message told where it is");
    assert!(node.data_received().len() > 2);
    // From then on the floor is B's own: nothing recorded is taken, from wherever it comes.
    assert_eq!(net.deliver(B, elsewhere(), &old), Err(DropReason::Replayed));
}

#[test]
fn with_a_floor_an_initiation_counts_at_once_and_an_old_one_not_at_all() {
    let mut net = connected(8);
    let old = initiations(&net, CLIENT).remove(0);
    move_address(&mut net);
    let now = net.now.wall;
    hint(&mut net, B, Hint { received: Some(stamp(now)), ..Hint::default() });
    assert_eq!(net.deliver(B, elsewhere(), &old), Err(DropReason::Replayed));
    net.run_for(Duration::from_secs(6));
    let peer = net.nodes[CLIENT].peer();
    net.call(CLIENT, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.nodes[B].host.handshakes.len(), 1);
}

#[test]
fn a_floor_in_the_far_future_locks_no_client_out_and_leaves_the_gateway_without_a_floor() {
    let mut net = connected(9);
    let old = initiations(&net, CLIENT).remove(0);
    move_address(&mut net);
    let ahead = stamp(net.now.wall + FLOOR_AHEAD_MAX + Duration::from_secs(1));
    assert!(hint(&mut net, B, Hint { received: Some([0; 12]), ..Hint::default() }));
    for received in [ahead, [0xff; 12]] {
        assert!(!hint(&mut net, B, Hint { received: Some(received), ..Hint::default() }));
    }
    // The gateway treats a recorded initiation as if it had no hint.
    assert!(net.deliver(B, elsewhere(), &old).is_err());
    let peer = net.nodes[CLIENT].peer();
    net.run_for(Duration::from_secs(6));
    net.call(CLIENT, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
    net.run_for(Duration::from_secs(12));
    net.send(CLIENT, b"second");
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.nodes[B].data_received(), [b"second"]);
    assert_eq!(net.nodes[B].host.endpoints.get(&net.nodes[B].peer()), Some(&net.nodes[CLIENT].addr));
    let b = net.nodes[B].peer();
    assert!(!net.nodes[B].device.believes_hints(net.now.boot, b));
    assert!(!hint(&mut net, B, Hint { received: Some([0xff; 12]), ..Hint::default() }));
    assert!(net.nodes[B].device.believes_hints(net.now.boot, b), "another gateway has the peer since");
    assert!(net.deliver(B, elsewhere(), &old).is_err());
}

#[test]
fn hints_count_unless_the_last_handshake_was_ours() {
    let mut net = connected(10);
    let (at_a, at_client, now) = (net.nodes[A].peer(), net.nodes[CLIENT].peer(), net.now);
    let believes = |net: &Net| net.nodes[A].device.believes_hints(net.now.boot, at_a);
    let there = |received| Hint { endpoint: Some(elsewhere()), sent: None, received: Some(received) };
    assert!(!believes(&net));
    hint(&mut net, A, there(stamp(now.wall - Duration::from_secs(1))));
    assert!(!believes(&net), "an old handshake, of before ours");
    hint(&mut net, A, there(stamp(now.wall + Duration::from_secs(1))));
    assert!(believes(&net), "another gateway had a later one, and the session here is still good");
    net.run_for(Duration::from_secs(6));
    net.call(CLIENT, |node, now, rng| node.device.initiate_now(now, rng, at_client, &mut node.host));
    net.run_for(Duration::from_millis(100));
    assert!(!believes(&net), "the client has come back");
    let sent = Some(stamp(net.now.wall));
    hint(&mut net, A, Hint { sent, ..there(stamp(WALL)) });
    assert!(believes(&net));
    net.run_for(Duration::from_secs(6));
    net.call(A, |node, now, rng| node.device.initiate_now(now, rng, at_a, &mut node.host));
    assert!(believes(&net), "it has not answered");
    net.run_for(Duration::from_millis(100));
    assert!(!believes(&net));
}

/// Data and handshakes of a gateway stay unanswered, as its client has gone to another one, or because the network fails.
#[test]
fn a_gateway_whose_client_has_gone_to_another_does_not_begin_with_it_by_itself() {
    for (told, keepalive) in [(false, 0), (true, 0), (false, 20), (true, 20)] {
        let mut net = connected(11);
        let peer = net.nodes[A].peer();
        net.link = Link::DEAD;
        net.send(A, b"unanswered");
        if told {
            let received = Some(stamp(net.now.wall + Duration::from_secs(1)));
            hint(&mut net, A, Hint { received, ..Hint::default() });
        }
        net.call(A, |node, now, rng| node.device.set_persistent_keepalive(now, rng, peer, keepalive, &mut node.host));
        net.run_for(Duration::from_secs(300));
        assert_eq!(net.nodes[A].count(MessageKind::Initiation) == 0, told, "{told} {keepalive}");
        // It does when it is told to, and tries again.
        let before = net.nodes[A].count(MessageKind::Initiation);
        net.call(A, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
        net.run_for(Duration::from_secs(20));
        let begun = net.nodes[A].count(MessageKind::Initiation) - before;
        assert!(begun >= 3, "{begun}");
        // Until another one has the client.
        let received = Some(stamp(net.now.wall));
        hint(&mut net, A, Hint { received, ..Hint::default() });
        net.run_for(Duration::from_secs(10));
        let before = net.nodes[A].count(MessageKind::Initiation);
        net.run_for(Duration::from_secs(60));
        assert_eq!(net.nodes[A].count(MessageKind::Initiation), before);
    }
}

#[test]
fn a_gateway_whose_view_is_too_old_neither_begins_nor_answers_handshakes_and_carries_on() {
    let mut net = connected(9);
    let (at_a, at_client) = (net.nodes[A].peer(), net.nodes[CLIENT].peer());
    net.run_for(Duration::from_secs(6));
    net.nodes[A].device.set_stale(true);
    net.call(CLIENT, |node, now, rng| node.device.initiate_now(now, rng, at_client, &mut node.host));
    net.call(A, |node, now, rng| node.device.initiate_now(now, rng, at_a, &mut node.host));
    net.run_for(Duration::from_millis(100));
    assert_eq!((net.nodes[A].host.handshakes.len(), net.nodes[A].count(MessageKind::Initiation)), (1, 0));
    net.send(CLIENT, b"second");
    net.run_for(Duration::from_millis(100));
    assert_eq!(net.nodes[A].data_received(), [b"first".to_vec(), b"second".to_vec()]);
    net.nodes[A].device.set_stale(false);
    net.run_for(Duration::from_secs(6));
    assert_eq!(net.nodes[A].host.handshakes.len(), 2, "the client asked again");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The worst case: the attacker sends from where a hint, grown old, says that the client is, so that no cookie is
    /// asked for.
    #[test]
    fn no_recorded_message_moves_an_endpoint_or_delays_an_initiation(
        seed: u64,
        replays in proptest::collection::vec((any::<prop::sample::Index>(), 0u64..3000), 1..20),
    ) {
        let mut net = connected(seed);
        for _ in 0..4 {
            net.run_for(Duration::from_secs(6));
            let peer = net.nodes[CLIENT].peer();
            net.call(CLIENT, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
            net.send(CLIENT, b"data");
        }
        net.run_for(Duration::from_millis(100));
        let recorded: Vec<Vec<u8>> = net.nodes[CLIENT].host.sent.iter().map(|sent| sent.bytes.clone()).collect();
        let (peer, client) = (net.nodes[B].peer(), net.nodes[CLIENT].addr);
        net.nodes[B].host.endpoints.insert(peer, client);
        hint(&mut net, B, Hint { endpoint: Some(elsewhere()), ..Hint::default() });
        for (which, wait) in replays {
            let message: &Vec<u8> = which.get(&recorded);
            let _ = net.deliver(B, elsewhere(), message);
            prop_assert_eq!(net.nodes[B].host.endpoints[&peer], client);
            prop_assert!(net.nodes[B].host.sending.is_empty() && net.nodes[B].host.handshakes.is_empty());
            net.run_for(Duration::from_millis(wait));
        }
        move_address(&mut net);
        let before = net.nodes[B].count(MessageKind::Initiation);
        net.call(B, |node, now, rng| node.device.initiate_now(now, rng, peer, &mut node.host));
        prop_assert_eq!(net.nodes[B].count(MessageKind::Initiation), before + 1);
        net.run_for(Duration::from_millis(61));
        net.send(CLIENT, b"again");
        net.run_for(Duration::from_millis(21));
        prop_assert_eq!(net.nodes[B].data_received(), vec![b"again"]);
        prop_assert_eq!(net.nodes[B].host.endpoints[&peer], client);
    }
}
