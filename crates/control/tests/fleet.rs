//! A fleet's lines of `set`.
#![cfg(feature = "fleet")]

use linerate_control::keys::PublicKey;
use linerate_control::uapi::fleet::{FleetChanges, FleetPeer, Hint, parse_changes};
use linerate_control::uapi::request::{DeviceUpdate, Frame, Request, frame, parse};

fn update(text: &str) -> Option<DeviceUpdate> {
    match parse(text.as_bytes()) {
        Ok(Request::Set(update)) => Some(update),
        _ => None,
    }
}

#[test]
fn what_is_read_is_written_again() {
    let key = "0f".repeat(32);
    let stamp = "400000006553f10a12000000";
    for text in [
        format!("set=1\nfleet_gateway=63\nfleet_index_key={key}\npublic_key={key}\nfleet_number=1048575\n\n"),
        "set=1\nfleet_gateway=none\n\n".into(),
        "set=1\nfleet_forward=127.0.0.1:51822\nfleet_stale=true\n\n".into(),
        "set=1\nfleet_forward=none\nfleet_stale=false\n\n".into(),
        "set=1\nfleet_address=192.0.2.100\n\n".into(),
        "set=1\nfleet_address=2001:db8::100\nfleet_forward=127.0.0.1:51822\n\n".into(),
        "set=1\nfleet_address=none\n\n".into(),
        format!("set=1\npublic_key={key}\nfleet_hint=192.0.2.1:7,{stamp},none\ninitiate=true\n\n"),
        format!("set=1\npublic_key={key}\nfleet_hint=none,none,{}\ninitiate=once\n\n", "0".repeat(24)),
    ] {
        let update = update(&text).expect("valid");
        assert_eq!(std::str::from_utf8(&update.render()), Ok(&*text));
    }
}

#[test]
fn half_a_gateway_and_damaged_hints_are_refused() {
    let key = "0f".repeat(32);
    for line in ["fleet_gateway=1", "fleet_gateway=64", &format!("fleet_index_key={key}"), "fleet_other=1"]
        .into_iter()
        // What strangers send is shown to this host alone.
        .chain(["fleet_forward=192.0.2.1:1", "fleet_forward=[::1]:1", "fleet_forward=127.0.0.1", "fleet_stale=1"])
        .chain([
            "fleet_address=",
            "fleet_address=192.0.2.1:1",
            "fleet_address=[::1]",
            "fleet_address=::",
            "fleet_address=fe80::1%lo",
        ])
    {
        assert!(update(&format!("set=1\n{line}\n\n")).is_none(), "{line}");
    }
    let short = "4".repeat(23);
    for line in [
        "fleet_number=1048576",
        "fleet_hint=none,none",
        "fleet_hint=none,none,none,none",
        "fleet_hint=host:1,none,none",
        &format!("fleet_hint=none,{short},none"),
        &format!("fleet_hint=none,+{short},none"),
        "initiate=false",
        "fleet_gateway=1",
    ] {
        assert!(update(&format!("set=1\npublic_key={key}\n{line}\n\n")).is_none(), "{line}");
    }
}

#[test]
fn changes_are_asked_for_and_told() {
    let question = format!("fleet_changes={}\n\n", u64::MAX);
    assert_eq!(frame(question.as_bytes(), &mut 0), Frame::Whole(question.len()));
    assert!(matches!(parse(question.as_bytes()), Ok(Request::FleetChanges(u64::MAX))));
    let stamp = Some(*b"\x40\0\0\0\x65\x53\xf1\x0a\x12\0\0\0");
    let peers = vec![
        FleetPeer {
            public_key: PublicKey([7; 32]),
            hint: Hint { endpoint: Some("[2001:db8::1]:9".parse().unwrap()), sent: stamp, received: None },
            seen: 1_700_000_000,
        },
        FleetPeer {
            public_key: PublicKey([8; 32]),
            hint: Hint { endpoint: None, sent: None, received: stamp },
            seen: 0,
        },
    ];
    let changes = FleetChanges { now: 12, peers };
    let text = changes.render();
    assert!(parse_changes(&text).is_ok_and(|parsed| parsed == changes));
    for (at, _) in text.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        assert!(parse_changes(&text[..at]).is_err(), "cut off after {at} bytes");
    }
    assert!(parse_changes(b"errno=0\n\n").is_err(), "without its number");
}
