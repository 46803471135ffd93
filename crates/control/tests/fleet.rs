//! A fleet's lines of `set`.
#![cfg(feature = "fleet")]

use linerate_control::uapi::request::{DeviceUpdate, Request, parse};

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
        format!("set=1\nfleet_gateway=31\nfleet_index_key={key}\npublic_key={key}\nfleet_number=1048575\n\n"),
        "set=1\nfleet_gateway=none\n\n".into(),
        format!("set=1\npublic_key={key}\nfleet_hint=192.0.2.1:7,{stamp},none\ninitiate=true\n\n"),
        format!("set=1\npublic_key={key}\nfleet_hint=none,none,{}\n\n", "0".repeat(24)),
    ] {
        let update = update(&text).expect("valid");
        assert_eq!(std::str::from_utf8(&update.render()), Ok(&*text));
    }
}

#[test]
fn half_a_gateway_and_damaged_hints_are_refused() {
    let key = "0f".repeat(32);
    for line in ["fleet_gateway=1", "fleet_gateway=32", &format!("fleet_index_key={key}"), "fleet_other=1"] {
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
