//! The text of the UAPI: recorded messages of the real `wg` (1.0.20210914) and wireguard-go (0.0.20220316), in
//! `recorded/`, and properties of all messages.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::rate::Rate;
use linerate_control::uapi::limits::{LimitState, LimitUpdate, Suspension};
use linerate_control::uapi::request::{
    AllowedIp, DeviceUpdate, Frame, LINE_MAX, PeerUpdate, REQUEST_MAX, Request, frame, parse,
};
use linerate_control::uapi::response::{self, Activity, DeviceState, PeerState, ReplyError};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

const PEER: &str = "c53201039adba14be71f886da1d8dbe9eebded08cb111b75340078999aa9f038";
const PRIVATE: &str = "c809f3e5317e9575c9b5ed78b638b7ce530dabe85ddab614220241801ddf0669";
const PRESHARED: &str = "1690b2870b3d731c16a15e3110bb5f26f8c937ecd05513c84a59515a07a8a551";

#[test]
fn wg_set_is_read_field_by_field() {
    let update = set(include_bytes!("recorded/set.request"));
    assert!(update.private_key == SecretKey::from_hex(PRIVATE.as_bytes()));
    assert_eq!((update.listen_port, update.fwmark), (Some(51820), Some(0x1234)));
    assert!(!update.replace_peers);
    let [peer] = &update.peers[..] else { panic!("one peer") };
    assert_eq!(peer.public_key.to_hex(), PEER);
    assert!(peer.preshared_key == SecretKey::from_hex(PRESHARED.as_bytes()));
    assert_eq!(peer.endpoint, Some("192.0.2.1:51820".parse().unwrap()));
    assert_eq!(peer.persistent_keepalive, Some(25));
    assert!(peer.replace_allowed_ips && !peer.remove && !peer.update_only);
    assert_eq!(peer.allowed_ips, [allowed("10.0.0.1", 24), allowed("fd00::", 64)]);
}

#[test]
fn our_requests_equal_those_of_wg() {
    let requests: [&[u8]; 5] = [
        include_bytes!("recorded/setconf.request"),
        include_bytes!("recorded/syncconf.request"),
        include_bytes!("recorded/clear.request"),
        include_bytes!("recorded/remove.request"),
        include_bytes!("recorded/set.request"),
    ];
    for request in requests {
        assert_eq!(text(&set(request).render()), text(request));
    }
}

#[test]
fn our_replies_equal_those_of_wireguard_go() {
    let replies: [&[u8]; 2] = [include_bytes!("recorded/full.reply"), include_bytes!("recorded/bare.reply")];
    for reply in replies {
        let state = response::parse(reply).unwrap();
        assert_eq!(text(&state.render()), text(reply));
    }
}

#[test]
fn a_zero_key_in_a_request_removes_the_key() {
    let update = set(include_bytes!("recorded/clear.request"));
    assert!(update.private_key.unwrap().is_zero());
}

#[test]
fn invalid_lines_have_wireguard_gos_error_numbers() {
    let device = [
        ("nonsense", -71),
        ("unknown=1", -22),
        ("=", -22),
        ("private_key=", -22),
        (&format!("private_key={}", &PRIVATE[1..]), -22),
        ("listen_port=65536", -22),
        ("listen_port=", -22),
        ("listen_port=-1", -22),
        ("listen_port=+1", -22),
        ("listen_port=0x10", -22),
        ("fwmark=0x10", -22),
        ("fwmark=", -22),
        ("fwmark=4294967296", -22),
        ("replace_peers=false", -22),
        ("replace_peers=", -22),
        ("public_key=", -22),
        // A peer's line before any peer.
        ("allowed_ip=10.0.0.0/8", -22),
    ];
    for (line, errno) in device {
        assert_eq!(error_number(&format!("set=1\n{line}\n\n")), errno, "{line}");
    }
    let peer = [
        ("nonsense", -71),
        ("unknown=1", -22),
        // A device's line after a peer.
        ("listen_port=1", -22),
        ("remove=false", -22),
        ("update_only=false", -22),
        ("preshared_key=", -22),
        ("endpoint=example.com:51820", -22),
        ("endpoint=192.0.2.1", -22),
        ("endpoint=192.0.2.1:65536", -22),
        ("endpoint=2001:db8::1:51820", -22),
        ("endpoint=[fe80::1%no-such-link]:1", -22),
        ("persistent_keepalive_interval=65536", -22),
        ("persistent_keepalive_interval=off", -22),
        ("replace_allowed_ips=1", -22),
        ("allowed_ip=10.0.0.0", -22),
        ("allowed_ip=10.0.0.0/33", -22),
        ("allowed_ip=10.0.0.0/08", -22),
        ("allowed_ip=10.0.0.0/-1", -22),
        ("allowed_ip=::/129", -22),
        ("allowed_ip=fe80::1%lo/64", -22),
        ("allowed_ip=--10.0.0.0/8", -22),
        ("allowed_ip=", -22),
        ("protocol_version=2", -22),
        ("protocol_version=", -22),
    ];
    for (line, errno) in peer {
        assert_eq!(error_number(&format!("set=1\npublic_key={PEER}\n{line}\n\n")), errno, "{line}");
    }
    let long = format!("set=1\nfwmark={}\n\n", "0".repeat(LINE_MAX));
    assert_eq!(error_number(&long), -5);
    assert_eq!(error_number("get=1\nX"), -22);
    assert_eq!(error_number("set=1\nlisten_port=1\n"), -71, "no blank line");
}

#[test]
fn everything_that_wireguard_go_accepts_is_accepted() {
    for line in ["listen_port=0", "listen_port=00051820", "fwmark=4294967295", "listen_port=1\r"] {
        set(format!("set=1\n{line}\n\n").as_bytes());
    }
    let peer = PEER.to_uppercase();
    let request = format!("set=1\npublic_key={peer}\nprotocol_version=1\nallowed_ip=-10.1.2.3/0\n\n");
    let [peer] = &set(request.as_bytes()).peers[..] else { panic!("one peer") };
    assert_eq!(peer.public_key.to_hex(), PEER);
    let taken = AllowedIp { add: false, ..allowed("10.1.2.3", 0) };
    assert_eq!(peer.allowed_ips, [taken]);
}

#[test]
fn the_zone_of_an_endpoint_is_a_name_or_an_index() {
    for zone in ["lo", "1"] {
        let request = format!("set=1\npublic_key={PEER}\nendpoint=[fe80::1%{zone}]:51820\n\n");
        let endpoint = set(request.as_bytes()).peers[0].endpoint;
        assert_eq!(endpoint.unwrap().to_string(), "[fe80::1%1]:51820", "lo is 1 in every namespace");
    }
}

#[test]
fn an_ipv4_mapped_endpoint_is_an_ipv4_endpoint() {
    let request = format!("set=1\npublic_key={PEER}\nendpoint=[::ffff:192.0.2.1]:7\n\n");
    let endpoint = set(request.as_bytes()).peers[0].endpoint;
    assert_eq!(endpoint, Some("192.0.2.1:7".parse().unwrap()));
}

#[test]
fn a_late_replace_allowed_ips_also_removes_earlier_ones_of_the_request() {
    let request =
        format!("set=1\npublic_key={PEER}\nallowed_ip=10.0.0.0/8\nreplace_allowed_ips=true\nallowed_ip=::/0\n\n");
    let [peer] = &set(request.as_bytes()).peers[..] else { panic!("one peer") };
    assert!(peer.replace_allowed_ips);
    assert_eq!(peer.allowed_ips, [allowed("::", 0)]);
}

#[test]
fn a_peer_named_twice_is_two_updates_in_order() {
    let request = format!("set=1\npublic_key={PEER}\nremove=true\npublic_key={PEER}\nallowed_ip=::/0\n\n");
    let [first, second] = &set(request.as_bytes()).peers[..] else { panic!("two updates") };
    assert!(first.remove && first.allowed_ips.is_empty());
    assert!(!second.remove && second.allowed_ips.len() == 1);
}

#[test]
fn an_error_never_contains_a_key() {
    let damaged = &PRIVATE[..63];
    for line in [
        format!("private_key={damaged}"),
        format!("public_key={PEER}\npreshared_key={damaged}"),
        damaged.to_owned(),
        format!("{damaged}={damaged}"),
        format!("private_ky={damaged}"),
    ] {
        let request = format!("set=1\n{line}\n\n");
        let Err(refusal) = parse(request.as_bytes()) else { panic!("{line} was accepted") };
        assert!(!refusal.message.contains(&damaged[..8]), "{refusal}");
    }
}

#[test]
fn a_hundred_and_thirty_thousand_allowed_ips_fit_in_one_request() {
    let mut update = DeviceUpdate::default();
    let mut peer = PeerUpdate::new(PublicKey([7; 32]));
    peer.allowed_ips = (0..130_000u128)
        .map(|n| AllowedIp { add: true, addr: IpAddr::from((u128::MAX - n).to_be_bytes()), cidr: 128 })
        .collect();
    update.peers.push(peer);
    let request = update.render();
    assert!(request.len() > 1 << 20);
    assert_eq!(frame(&request, &mut 0), Frame::Whole(request.len()));
    assert!(set(&request) == update);
}

#[test]
fn a_line_or_request_that_is_too_long_is_detected_before_its_end() {
    let mut request = b"set=1\n".to_vec();
    request.resize(request.len() + LINE_MAX, b'x');
    assert_eq!(frame(&request, &mut 0), Frame::Partial);
    request.push(b'x');
    assert_eq!(frame(&request, &mut 0), Frame::TooLong);

    let mut request = b"set=1\n".to_vec();
    while request.len() < REQUEST_MAX - 9 {
        request.extend(b"fwmark=1\n");
    }
    assert_eq!(frame(&request, &mut 0), Frame::Partial);
    request.extend(b"fwmark=1\nfwmark=1\n");
    assert_eq!(frame(&request, &mut 0), Frame::TooLong);
}

#[test]
fn only_known_operations_begin_a_request() {
    for text in ["set=1\r\n\n", "set=2\n\n", "get=1 \n\n", "\n", "GET / HTTP/1.1\r\n\r\n"] {
        assert_eq!(frame(text.as_bytes(), &mut 0), Frame::Unknown, "{text:?}");
    }
    assert_eq!(frame(&[b'x'; 47], &mut 0), Frame::Partial);
    assert_eq!(frame(&[b'x'; 48], &mut 0), Frame::Unknown);
    assert_eq!(frame(b"get=1\nX\n", &mut 0), Frame::Whole(7));
    assert_eq!(frame(b"stats=1\n\n", &mut 0), Frame::Whole(9));
    assert_eq!(frame(b"activity=18446744073709551615\n\n", &mut 0), Frame::Whole(31));
    for text in ["activity=18446744073709551616\n\n", "activity=\n\n", "activity=-1\n\n", "activity=x\n\n"] {
        assert_eq!(frame(text.as_bytes(), &mut 0), Frame::Unknown, "{text:?}");
    }
}

#[test]
fn an_incomplete_rejected_or_invalid_reply_is_an_error() {
    let parse = |text: &str| response::parse(text.as_bytes()).map(|_| ());
    assert_eq!(parse(""), Err(ReplyError::Truncated));
    assert_eq!(parse("errno=0\n"), Err(ReplyError::Truncated));
    assert_eq!(parse("\n"), Err(ReplyError::Truncated));
    assert_eq!(parse("errno=13\n\n"), Err(ReplyError::Refused(13)));
    assert_eq!(parse("errno=-5\n\n"), Err(ReplyError::Refused(-5)));
    assert_eq!(parse("what\nerrno=0\n\n"), Err(ReplyError::Line(1)));
    assert_eq!(parse("fwmark=1\nlisten_port=65536\nerrno=0\n\n"), Err(ReplyError::Line(2)));
    assert_eq!(parse("a_key_of_tomorrow=1\nerrno=0\n\n"), Ok(()));
}

#[test]
fn activity_survives_its_text() {
    let peer = |last_received| PeerState { tx_bytes: 1, last_received, ..PeerState::new(PublicKey([7; 32])) };
    let activity = Activity { now: 9, configured: 3, peers: vec![peer(0), peer(u64::MAX)] };
    let reply = activity.render();
    assert_eq!(text(&reply).matches("last_received=").count(), 1);
    assert!(response::parse_activity(&reply) == Ok(activity));
    let lying = text(&reply).replace("last_received=1", "last_received=-1");
    assert!(response::parse_activity(lying.as_bytes()) == Err(ReplyError::Line(13)));
}

#[test]
fn counters_survive_their_text() {
    let counters = vec![("unknown_index".to_owned(), u64::MAX), ("wakeups".to_owned(), 0)];
    let reply = response::render_stats(&counters);
    assert_eq!(text(&reply), "unknown_index=18446744073709551615\nwakeups=0\nerrno=0\n\n");
    assert_eq!(response::parse_stats(&reply), Ok(counters));
}

proptest! {
    #[test]
    fn a_request_survives_its_text(parts in update_parts()) {
        let update = update(parts);
        prop_assert!(parse(&update.render()) == Ok(Request::Set(update)));
    }

    #[test]
    fn a_state_survives_its_text(parts in state_parts()) {
        let state = state(parts);
        prop_assert!(response::parse(&state.render()) == Ok(state));
    }

    #[test]
    fn a_request_is_complete_only_at_its_last_byte(parts in update_parts(), extra: Vec<u8>) {
        let mut bytes = update(parts).render().to_vec();
        let length = bytes.len();
        bytes.extend(extra);
        let mut seen = 0;
        for end in 0..length {
            prop_assert_eq!(frame(&bytes[..end], &mut seen), Frame::Partial);
        }
        prop_assert_eq!(frame(&bytes, &mut seen), Frame::Whole(length));
        prop_assert_eq!(frame(&bytes, &mut 0), Frame::Whole(length));
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic(bytes: Vec<u8>) {
        let _ = frame(&bytes, &mut 0);
        let _ = parse(&bytes);
        let _ = response::parse(&bytes);
        let _ = response::parse_stats(&bytes);
        let behind = |first: &[u8]| [first, &bytes[..]].concat();
        let _ = parse(&behind(b"set=1\n"));
        let _ = parse(&behind(format!("set=1\npublic_key={PEER}\n").as_bytes()));
    }

    #[test]
    fn a_damaged_request_is_parsed_without_a_panic(
        parts in update_parts(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)
    ) {
        let mut bytes = update(parts).render().to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Frame::Whole(length) = frame(&bytes, &mut 0)
            && let Err(refusal) = parse(&bytes[..length])
        {
            prop_assert!(refusal.errno < 0);
        }
    }
}

type DeviceParts<P> = (Option<[u8; 32]>, Option<u16>, Option<u32>, bool, Vec<P>);
type PeerParts = (
    [u8; 32],
    (bool, bool, bool),
    Option<[u8; 32]>,
    Option<SocketAddr>,
    Option<u16>,
    Vec<(bool, IpAddr, u8)>,
    Option<LimitParts>,
);

fn update_parts() -> impl Strategy<Value = DeviceParts<PeerParts>> {
    let peer = (
        any::<[u8; 32]>(),
        any::<(bool, bool, bool)>(),
        any::<Option<[u8; 32]>>(),
        of(endpoint()),
        any::<Option<u16>>(),
        vec((any::<bool>(), any::<IpAddr>(), 0u8..=128), 0..6),
        of(limit_parts()),
    );
    (any::<Option<[u8; 32]>>(), any::<Option<u16>>(), any::<Option<u32>>(), any::<bool>(), vec(peer, 0..5))
}

fn update((key, listen_port, fwmark, replace_peers, peers): DeviceParts<PeerParts>) -> DeviceUpdate {
    let peers =
        peers.into_iter().map(|(key, (remove, update_only, replace), psk, endpoint, keepalive, ips, limits)| {
            PeerUpdate {
                remove,
                update_only,
                preshared_key: psk.map(|key| SecretKey::from_bytes(&key)),
                endpoint,
                persistent_keepalive: keepalive,
                replace_allowed_ips: replace,
                allowed_ips: ips
                    .into_iter()
                    .map(|(add, addr, cidr)| AllowedIp { add, addr, cidr: fitting(addr, cidr) })
                    .collect(),
                rate: limits.as_ref().map(rate),
                limits: limits.map(limit_update).unwrap_or_default(),
                ..PeerUpdate::new(PublicKey(key))
            }
        });
    let private_key = key.map(|key| SecretKey::from_bytes(&key));
    DeviceUpdate { private_key, listen_port, fwmark, replace_peers, peers: peers.collect(), ..DeviceUpdate::default() }
}

type PeerStateParts = (
    [u8; 32],
    Option<[u8; 32]>,
    Option<SocketAddr>,
    (u64, u32),
    (u64, u64),
    u16,
    Vec<(IpAddr, u8)>,
    Option<LimitParts>,
);

fn state_parts() -> impl Strategy<Value = (Option<[u8; 32]>, u16, u32, Vec<PeerStateParts>)> {
    let peer = (
        any::<[u8; 32]>(),
        any::<Option<[u8; 32]>>(),
        of(endpoint()),
        (0..=i64::MAX as u64, 0..1_000_000_000u32),
        any::<(u64, u64)>(),
        any::<u16>(),
        vec((any::<IpAddr>(), 0u8..=128), 0..6),
        of(limit_parts()),
    );
    (any::<Option<[u8; 32]>>(), any::<u16>(), any::<u32>(), vec(peer, 0..5))
}

fn state((key, listen_port, fwmark, peers): (Option<[u8; 32]>, u16, u32, Vec<PeerStateParts>)) -> DeviceState {
    // In a state, the all-zero key means no key.
    let secret = |key: Option<[u8; 32]>| key.filter(|key| key != &[0; 32]).map(|key| SecretKey::from_bytes(&key));
    let peers =
        peers.into_iter().map(|(key, psk, endpoint, (sec, nsec), (tx_bytes, rx_bytes), keepalive, ips, limits)| {
            PeerState {
                public_key: PublicKey(key),
                preshared_key: secret(psk),
                endpoint,
                last_handshake: Duration::new(sec, nsec),
                handshake_time: Duration::ZERO,
                tx_bytes,
                rx_bytes,
                persistent_keepalive: keepalive,
                allowed_ips: ips.into_iter().map(|(addr, cidr)| (addr, fitting(addr, cidr))).collect(),
                rate: limits.as_ref().map(rate).unwrap_or_default(),
                limits: limits.map(limit_state).unwrap_or_default(),
                last_received: 0,
            }
        });
    DeviceState { private_key: secret(key), listen_port, fwmark, peers: peers.collect() }
}

type LimitParts = (u64, u64, u8, u64, u8, [u8; 32]);

fn limit_parts() -> impl Strategy<Value = LimitParts> {
    (0..253_402_300_800u64, any::<u64>(), 0..32u8, any::<u64>(), 0..3u8, any::<[u8; 32]>())
}

/// One that follows from the limits, so that no strategy has more parts than it can.
fn rate(&(expires, quota, _, _, which, _): &LimitParts) -> Rate {
    let bits = |number: u64| Rate::MIN + number % (Rate::MAX - Rate::MIN + 1);
    Rate { down: bits(quota), up: if which > 0 { bits(expires) } else { 0 } }
}

fn limit_update((expires, quota, day, _, which, key): LimitParts) -> LimitUpdate {
    LimitUpdate {
        expires: Some(Duration::from_secs(expires)),
        quota: Some(quota),
        quota_day: Some(day).filter(|_| which > 0),
        replaces: Some(PublicKey(key)).filter(|_| which > 1),
    }
}

/// In a state, zero means none.
fn limit_state((expires, quota, day, used, which, key): LimitParts) -> LimitState {
    LimitState {
        expires: Some(Duration::from_secs(expires)).filter(|expires| !expires.is_zero()),
        quota: Some(quota).filter(|quota| *quota > 0),
        quota_day: Some(day).filter(|day| *day > 0),
        used,
        suspended: [None, Some(Suspension::Expired), Some(Suspension::Quota)][usize::from(which)],
        replaces: Some(PublicKey(key)).filter(|key| key.0 != [0; 32]),
    }
}

/// As sockets return them: never IPv4-mapped, no flow label.
fn endpoint() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>(), any::<u32>()).prop_map(|(addr, port, scope)| {
        let mut endpoint = SocketAddr::new(addr.to_canonical(), port);
        if let SocketAddr::V6(endpoint) = &mut endpoint {
            endpoint.set_scope_id(scope);
        }
        endpoint
    })
}

fn fitting(addr: IpAddr, cidr: u8) -> u8 {
    cidr.min(if addr.is_ipv4() { 32 } else { 128 })
}

fn allowed(addr: &str, cidr: u8) -> AllowedIp {
    AllowedIp { add: true, addr: addr.parse().unwrap(), cidr }
}

fn set(request: &[u8]) -> DeviceUpdate {
    match parse(request) {
        Ok(Request::Set(update)) => update,
        Ok(_) => panic!("{} is no set", text(request)),
        Err(refusal) => panic!("{refusal}"),
    }
}

fn error_number(request: &str) -> i32 {
    match parse(request.as_bytes()) {
        Ok(_) => panic!("{request} was accepted"),
        Err(refusal) => refusal.errno,
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn limits_are_lines_of_their_own() {
    let key = "07".repeat(32);
    let lines = format!("expires=1800000000\nquota=50000000000\nquota_day=31\nreplaces={key}\n");
    let request = format!("set=1\npublic_key={key}\n{lines}\n");
    let limits = LimitUpdate {
        expires: Some(Duration::from_secs(1_800_000_000)),
        quota: Some(50_000_000_000),
        quota_day: Some(31),
        replaces: Some(PublicKey([7; 32])),
    };
    let update = set(request.as_bytes());
    assert_eq!(update.peers[0].limits, limits);
    assert_eq!(text(&update.render()), request);
    let none = set(format!("set=1\npublic_key={key}\n{}", text(&render_limits(LimitUpdate::NONE))).as_bytes());
    assert_eq!(none.peers[0].limits, LimitUpdate::NONE);
}

#[test]
fn a_rate_is_a_line_of_its_own_and_within_bounds() {
    let key = "07".repeat(32);
    let request = format!("set=1\npublic_key={key}\nrate=20000000/5000000\n\n");
    let update = set(request.as_bytes());
    assert_eq!(update.peers[0].rate, Some(Rate { down: 20_000_000, up: 5_000_000 }));
    assert_eq!(text(&update.render()), request);
    assert!(update.has_rates() && !update.without_rates().has_rates());
    let none = set(format!("set=1\npublic_key={key}\nrate=0/0\n\n").as_bytes());
    assert_eq!(none.peers[0].rate, Some(Rate::NONE));
    for value in ["", "0", "20M", "1/0", "0/63999", "100000000001/0", "-64000/0", "64000/64000/0"] {
        assert_eq!(error_number(&format!("set=1\npublic_key={key}\nrate={value}\n\n")), -22, "{value}");
    }
}

fn render_limits(limits: LimitUpdate) -> Vec<u8> {
    let peer = PeerUpdate { limits, ..PeerUpdate::new(PublicKey([7; 32])) };
    let request = DeviceUpdate { peers: vec![peer], ..DeviceUpdate::default() }.render();
    let start = text(&request).find("expires").unwrap();
    request[start..].to_vec()
}

#[test]
fn limits_out_of_range_are_refused() {
    let key = "07".repeat(32);
    let bad = [
        "expires=253402300800",
        "expires=-1",
        "expires=",
        "quota=18446744073709551616",
        "quota=1G",
        "quota_day=32",
        "quota_day=1.5",
        "replaces=07",
        "quota_used=1",
        "suspended=quota",
    ];
    for line in bad {
        let refused = parse(format!("set=1\npublic_key={key}\n{line}\n\n").as_bytes()).err().unwrap();
        assert_eq!(refused.errno, -linerate_control::uapi::errno::EINVAL, "{line}");
    }
}
