//! Tunnels come and go in any resolv.conf, and the text is as before.
//!
//! An input is the settings of two tunnels, a byte each, and the text.

use linerate_host::dns::resolv_conf::{add, interfaces, remove};
use linerate_host::spec::Dns;

pub fn check(input: &[u8]) {
    let Some((&[one, two], text)) = input.split_first_chunk() else { return };
    let (one, two) = ((dns(one), one & 128 != 0), (dns(two), two & 128 != 0));

    let there = add(text, "wg0", &one.0, one.1);
    if interfaces(text).is_empty() {
        assert_eq!(remove(&there, "wg0"), text, "removing restores the text");
    }
    assert_eq!(add(&there, "wg0", &one.0, one.1), there, "setting twice equals setting once");
    assert!(remove(text, "wg0").len() <= text.len() || !interfaces(text).is_empty());
    assert!(!interfaces(&remove(&there, "wg0")).contains(&"wg0".to_owned()));

    // Our part may have been moved in the input: from now on it is where we write it.
    let text = remove(&remove(&there, "wg0"), "wg1");
    let only_one = add(&text, "wg0", &one.0, one.1);
    let both = add(&only_one, "wg1", &two.0, two.1);
    assert_eq!(remove(&both, "wg1"), only_one, "the second one is removed first");
    assert_eq!(remove(&both, "wg0"), add(&text, "wg1", &two.0, two.1), "the first one is removed first");
    assert_eq!(remove(&remove(&both, "wg0"), "wg1"), text, "both are removed");

    let servers = both.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"nameserver "));
    let ours: Vec<_> = two.0.servers.iter().map(|server| server.to_string().into_bytes()).collect();
    assert!(servers.take(ours.len()).eq(&ours), "the first servers are those of the tunnel that came last");
}

fn dns(choice: u8) -> Dns {
    const SERVERS: [&str; 3] = ["10.0.0.1", "fd00::53", "192.168.1.1"];
    const DOMAINS: [&str; 4] = ["corp.example", "~corp.example", "lan", "a\nnameserver 6.6.6.6"];
    let chosen = |of: &[&'static str], bits: u8| -> Vec<&'static str> {
        of.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1).map(|(_, text)| *text).collect()
    };
    Dns {
        servers: chosen(&SERVERS, choice).into_iter().map(|text| text.parse().expect("it is an address")).collect(),
        search: chosen(&DOMAINS, choice >> 3).into_iter().map(str::to_owned).collect(),
    }
}
