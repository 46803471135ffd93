use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::*;
use crate::uapi::request::{self, AllowedIp, Request};
use crate::uapi::response::{DeviceState, PeerState};

const KEY: &str = "aYdQoJuTQzd0bwlzRIFn82TK4TLi+LMnrkkT5bVEUCk=";

#[test]
fn an_invalid_line_is_reported_with_its_number_and_a_hint() {
    let hints = [
        ("[Interface]\nAdress=1\n", 2, None),
        (
            "[Interface]\nADDRESS=1\n",
            2,
            Some("Address is a setting of wg-quick: `wg-quick strip` prints the file without those"),
        ),
        ("[Peer]\n\nAllowedIp=10.0.0.0/8\n", 3, Some("did you mean AllowedIPs?")),
        ("[Peer]\nEndpoimt=x:1\n", 2, Some("did you mean Endpoint?")),
        ("[Peer]\nEnpdoint=x:1\n", 2, Some("did you mean Endpoint?")),
        ("[Peer]\nEnpoimt=x:1\n", 2, None),
        ("[Peer]\nListenPort=1\n", 2, Some("ListenPort does not belong in this section")),
        ("[Peer]\nEndpoint=\n", 2, Some("Endpoint needs a value")),
        ("hello\n", 1, None),
    ];
    for (text, line, hint) in hints {
        let bad = parse(text.as_bytes(), Mode::Append, &mut Numeric::default()).err().unwrap();
        assert_eq!((bad.line(), bad.hint().as_deref()), (Some(line), hint), "{text}");
    }
}

#[test]
fn values_up_to_their_limits_are_accepted() {
    let marks = ["0", "0x0", "4294967295", "0xffffffff", "OFF"];
    assert!(marks.iter().all(|mark| values::fwmark(mark).is_ok()));
    let none = ["", "0x", "0X1", "-1", "+1", " 1", "4294967296", "0x100000000", "1 "];
    assert!(none.iter().all(|mark| values::fwmark(mark).is_err()));
    assert!(["0", "65535", "off", "Off"].iter().all(|seconds| values::persistent_keepalive(seconds).is_ok()));
    assert!(["", "65536", "-1", "0x1"].iter().all(|seconds| values::persistent_keepalive(seconds).is_err()));
    assert!(values::key_file(b"").is_ok_and(|key| key.is_zero()));
    assert!(values::key_file(format!("{KEY} \r\n\t\x0b\x0c").as_bytes()).is_ok());
    for content in [" ", &KEY[..43], &format!("{KEY}\n="), &format!(" {KEY}")] {
        assert!(values::key_file(content.as_bytes()).is_err(), "{content}");
    }
}

#[test]
fn a_sign_turns_a_list_into_changes_and_the_last_list_decides() {
    let replaces = |lists: &[&str]| {
        let mut peer = PeerUpdate::new(PublicKey([1; 32]));
        for list in lists {
            assert!(values::allowed_ips(list, &mut peer, &mut Numeric::default()).is_ok());
        }
        let adds: Vec<bool> = peer.allowed_ips.iter().map(|ip| ip.add).collect();
        (peer.replace_allowed_ips, adds)
    };
    assert_eq!(replaces(&["10.0.0.1,10.0.0.2"]), (true, vec![true, true]));
    assert_eq!(replaces(&["10.0.0.1,-10.0.0.2,+10.0.0.3"]), (false, vec![true, false, true]));
    assert_eq!(replaces(&["+10.0.0.1", "10.0.0.2"]), (true, vec![true, true]));
    assert_eq!(replaces(&["10.0.0.1", "-10.0.0.2"]), (false, vec![true, false]));
    assert_eq!(replaces(&["+10.0.0.1", ""]), (true, vec![true]));
}

#[test]
fn a_prefix_with_host_bits_is_sent_unchanged_with_a_warning() {
    let mut resolver = Numeric::default();
    let mut peer = PeerUpdate::new(PublicKey([1; 32]));
    let list = "10.0.0.1/24,10.0.0.1,fd00::1/0,fd00::/8,::/0,0.0.0.0/0";
    assert!(values::allowed_ips(list, &mut peer, &mut resolver).is_ok());
    let warned = ["10.0.0.1/24", "fd00::1/0"].map(|of| format!("Warning: AllowedIP has nonzero host part: {of}"));
    assert_eq!(resolver.warnings, warned);
    assert_eq!(peer.allowed_ips[0], AllowedIp { add: true, addr: IpAddr::from([10, 0, 0, 1]), cidr: 24 });
}

proptest! {
    #[test]
    fn any_text_is_parsed_without_a_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&text, Mode::Replace, &mut Numeric::default());
    }

    #[test]
    fn plausible_lines_are_parsed_without_a_panic(
        lines in prop::collection::vec("(\\[Interface\\]|\\[Peer\\]|(AllowedIPs|Endpoint|FwMark|ListenPort) ?= ?[-+0-9a-f.:/,\\[\\]%x]{0,20})", 0..8)
    ) {
        let _ = parse(lines.join("\n").as_bytes(), Mode::Replace, &mut Numeric::default());
    }

    #[test]
    fn comments_case_and_white_space_are_ignored(upper: bool, spaces in "[ \t\r]{0,3}", comment in "(#[ -~]*)?") {
        let plain = ["[Interface]", "FwMark=5", "[Peer]", &format!("PublicKey={KEY}"), "AllowedIPs=10.0.0.0/8,-fd00::/8"];
        let adorned = plain.map(|line| {
            let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key, value));
            let key = if upper { key.to_uppercase() } else { key.to_lowercase() };
            let equals = if value.is_empty() { "" } else { "=" };
            format!("{spaces}{key}{spaces}{equals}{spaces}{value}{spaces}{comment}")
        });
        let read = |lines: &[String]| parse(lines.join("\n").as_bytes(), Mode::Append, &mut Numeric::default()).ok().unwrap();
        prop_assert!(read(&plain.map(str::to_owned)) == read(&adorned));
    }

    #[test]
    fn a_synchronized_device_matches_the_file(file in peers(), running in peers()) {
        let mut update = DeviceUpdate { peers: made(&file), ..start(Mode::Replace) };
        let (mut wanted, mut state) = (DeviceState::default(), running_with(&running));
        apply(&update, &mut wanted);
        synchronize(&mut update, &state);
        apply(&update, &mut state);
        state.peers.sort_by_key(|peer| peer.public_key);
        wanted.peers.sort_by_key(|peer| peer.public_key);
        prop_assert!(state == wanted);
    }

    #[test]
    fn a_synchronizing_update_survives_its_text(file in peers(), running in peers()) {
        let mut update = DeviceUpdate { peers: made(&file), ..start(Mode::Replace) };
        synchronize(&mut update, &running_with(&running));
        let text = update.render();
        prop_assert!(request::parse(&text).unwrap() == Request::Set(update));
    }
}

#[test]
fn a_synchronized_device_keeps_the_successors_of_peers_that_stay() {
    let [old, next, other] = [1, 2, 3].map(|byte| PublicKey([byte; 32]));
    let mut waits = PeerState::new(next);
    waits.limits.replaces = Some(old);
    let state = DeviceState { peers: vec![PeerState::new(old), waits], ..DeviceState::default() };
    let removed = |stays: PublicKey| {
        let mut update = DeviceUpdate { peers: vec![PeerUpdate::new(stays)], ..start(Mode::Replace) };
        synchronize(&mut update, &state);
        update.peers.iter().filter(|peer| peer.remove).map(|peer| peer.public_key).collect::<Vec<_>>()
    };
    assert_eq!(removed(old), []);
    assert_eq!(removed(other), [next, old]);
}

/// A public key, whether it has a preshared one, and a keepalive: `PeerUpdate` has no `Debug`.
type Plain = (u8, bool, Option<u16>);

/// Few keys, so that the file and the device share some.
fn peers() -> impl Strategy<Value = Vec<Plain>> {
    prop::collection::vec((0u8..6, any::<bool>(), prop::option::of(0u16..3)), 0..6)
}

/// The peers of a file, without duplicates.
fn made(peers: &[Plain]) -> Vec<PeerUpdate> {
    let mut made: Vec<PeerUpdate> = Vec::new();
    for &(key, preshared, persistent_keepalive) in peers {
        let mut peer = PeerUpdate::new(PublicKey([key; 32]));
        peer.preshared_key = preshared.then(|| SecretKey::from_bytes(&[7; 32]));
        peer.persistent_keepalive = persistent_keepalive;
        peer.replace_allowed_ips = true;
        if made.iter().all(|other| other.public_key != peer.public_key) {
            made.push(peer);
        }
    }
    made
}

fn running_with(peers: &[Plain]) -> DeviceState {
    let mut state = DeviceState::default();
    apply(&DeviceUpdate { peers: made(peers), ..DeviceUpdate::default() }, &mut state);
    state
}

/// Applies an update as a daemon does, as far as these tests need it.
fn apply(update: &DeviceUpdate, state: &mut DeviceState) {
    if update.replace_peers {
        state.peers.clear();
    }
    for update in &update.peers {
        if update.remove {
            state.peers.retain(|peer| peer.public_key != update.public_key);
            continue;
        }
        let at = state.peers.iter().position(|peer| peer.public_key == update.public_key).unwrap_or_else(|| {
            state.peers.push(PeerState::new(update.public_key));
            state.peers.len() - 1
        });
        let peer = &mut state.peers[at];
        if let Some(key) = &update.preshared_key {
            peer.preshared_key = Some(key.clone()).filter(|key| !key.is_zero());
        }
        peer.persistent_keepalive = update.persistent_keepalive.unwrap_or(peer.persistent_keepalive);
    }
}

/// Resolver that knows numbers only.
#[derive(Default)]
struct Numeric {
    warnings: Vec<String>,
}

impl Resolver for Numeric {
    fn resolve(&mut self, text: &str, host: &str, service: &str) -> Result<SocketAddr, ValueError> {
        let address = host.parse().map_err(|_| ValueError::Value(text.to_owned()))?;
        Ok(SocketAddr::new(address, self.port(service)?))
    }

    fn port(&mut self, service: &str) -> Result<u16, ValueError> {
        service.parse().map_err(|_| ValueError::Value(service.to_owned()))
    }

    fn warn(&mut self, warning: &str) {
        self.warnings.push(warning.to_owned());
    }
}
