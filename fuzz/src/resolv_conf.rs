//! Tunnels come and go in any resolv.conf, and the text is as before.
//!
//! An input is the settings of two tunnels, a byte each, and the text.

use linerate_host::linux::dns::resolv_conf::{interfaces, with, without};
use linerate_host::wanted::Dns;

pub fn check(input: &[u8]) {
    let Some((&[one, two], text)) = input.split_first_chunk() else { return };
    let (one, two) = ((dns(one), one & 128 != 0), (dns(two), two & 128 != 0));

    let there = with(text, "wg0", &one.0, one.1);
    if interfaces(text).is_empty() {
        assert_eq!(without(&there, "wg0"), text, "the text is as it was");
    }
    assert_eq!(with(&there, "wg0", &one.0, one.1), there, "setting twice is setting once");
    assert!(without(text, "wg0").len() <= text.len() || !interfaces(text).is_empty());
    assert!(!interfaces(&without(&there, "wg0")).contains(&"wg0".to_owned()));

    // Our part may have been moved in the input: from now on it is where we write it.
    let text = without(&without(&there, "wg0"), "wg1");
    let only_one = with(&text, "wg0", &one.0, one.1);
    let both = with(&only_one, "wg1", &two.0, two.1);
    assert_eq!(without(&both, "wg1"), only_one, "the last one goes first");
    assert_eq!(without(&both, "wg0"), with(&text, "wg1", &two.0, two.1), "the first one goes first");
    assert_eq!(without(&without(&both, "wg0"), "wg1"), text, "both are gone");

    let servers = both.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"nameserver "));
    let ours: Vec<_> = two.0.servers.iter().map(|server| server.to_string().into_bytes()).collect();
    assert!(servers.take(ours.len()).eq(&ours), "the first servers are those of the tunnel that came last");
}

fn dns(choice: u8) -> Dns {
    const SERVERS: [&str; 3] = ["10.0.0.1", "fd00::53", "192.168.1.1"];
    const DOMAINS: [&str; 4] = ["corp.example", "~corp.example", "lan", "a\nnameserver 6.6.6.6"];
    let chosen = |of: &[&'static str], bits: u8| -> Vec<&'static str> {
        of.iter().enumerate().filter(|(place, _)| bits >> place & 1 == 1).map(|(_, text)| *text).collect()
    };
    Dns {
        servers: chosen(&SERVERS, choice).into_iter().map(|text| text.parse().expect("it is an address")).collect(),
        search: chosen(&DOMAINS, choice >> 3).into_iter().map(str::to_owned).collect(),
    }
}
