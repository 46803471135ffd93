//! Groups of peers, as text.
#![cfg(feature = "fleet")]

use linerate_control::keys::PublicKey;
use linerate_control::uapi::group::GroupUpdate;
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate, Request, parse};

fn request(lines: &str) -> Option<GroupUpdate> {
    let text = format!("set=1\npublic_key={}\n{lines}\n\n", PublicKey([7; 32]).to_hex());
    match parse(text.as_bytes()).ok()? {
        Request::Set(update) => Some(update.peers.into_iter().next()?.group),
        _ => None,
    }
}

#[test]
fn what_is_written_is_read_again() {
    let checks = [None, Some(("10.9.0.2", "10.9.0.1")), Some(("fd09::2", "fd09::1"))];
    for name in [None, Some(""), Some("berlin"), Some("b-1_2.3")] {
        for check in checks {
            let check = check.map(|(source, target)| (source.parse().unwrap(), target.parse().unwrap()));
            let group = GroupUpdate { name: name.map(str::to_owned), check };
            let peers = vec![PeerUpdate { group: group.clone(), ..PeerUpdate::new(PublicKey([7; 32])) }];
            let update = DeviceUpdate { peers, ..DeviceUpdate::default() };
            assert_eq!(update.has_groups(), group != GroupUpdate::default());
            assert!(!update.without_groups().has_groups());
            let Ok(Request::Set(read)) = parse(&update.render()) else { panic!("it is refused") };
            assert!(read == update);
        }
    }
    let group = request("group=berlin\ngroup_check=10.9.0.2,10.9.0.1").unwrap();
    assert_eq!((group.name.as_deref(), group.check.is_some()), (Some("berlin"), true));
}

#[test]
fn what_is_no_group_is_refused() {
    let long = format!("group={}", "a".repeat(24));
    for line in [
        "group=a b",
        "group=a,b",
        "group=\u{e4}",
        &long,
        "group_check=",
        "group_check=10.9.0.1",
        "group_check=10.9.0.1,",
        "group_check=10.9.0.1,fd09::1",
        "group_check=10.9.0.1,10.9.0.2,10.9.0.3",
        "group_check=10.9.0.1/32,10.9.0.2",
        "group_check=none,10.9.0.2",
    ] {
        assert!(request(line).is_none(), "{line}");
    }
}
