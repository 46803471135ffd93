//! The tunnel file: reading, diagnostics, and properties of saving and reloading.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use ipnet::IpNet;
use linerate_control::document::Document;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::{
    AllowedIpRemoval, ByteCount, Diagnostic, Endpoint, ExcludeLan, Gateway, Inbound, KeyDirectories, KeyFile,
    Masquerade, NameServer, Names, NoNames, OnHookError, Phase, QuotaReset, Released, RouteConflict, RunningTunnel,
    Severity, Table, TunnelFile, changes, save, settings, strip,
};
use linerate_control::uapi::request::{AllowedIp, DeviceUpdate};
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::wg_config::{self, Mode, Resolver, ValueError};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const KEY: &str = "aYdQoJuTQzd0bwlzRIFn82TK4TLi+LMnrkkT5bVEUCk=";
const OTHER: &str = "xTIBA5rboUvnH4htodjbn02ewAjIoXpTEVxQj5qQnDg=";

/// Files, each with the output of `wg-quick strip` 1.0.20210914; none where it failed.
const FILES: [(&[u8], Option<&[u8]>); 15] = [
    (include_bytes!("files/backslashes.conf"), Some(include_bytes!("files/backslashes.stripped"))),
    (include_bytes!("files/bool-case.conf"), Some(include_bytes!("files/bool-case.stripped"))),
    (include_bytes!("files/byte-order-mark.conf"), Some(include_bytes!("files/byte-order-mark.stripped"))),
    (include_bytes!("files/crlf-no-end.conf"), Some(include_bytes!("files/crlf-no-end.stripped"))),
    (include_bytes!("files/echo-option.conf"), Some(include_bytes!("files/echo-option.stripped"))),
    (include_bytes!("files/empty.conf"), Some(include_bytes!("files/empty.stripped"))),
    (include_bytes!("files/marks.conf"), Some(include_bytes!("files/marks.stripped"))),
    (include_bytes!("files/not-a-bool.conf"), None),
    (include_bytes!("files/nul-and-bytes.conf"), Some(include_bytes!("files/nul-and-bytes.stripped"))),
    (include_bytes!("files/nyr.conf"), Some(include_bytes!("files/nyr.stripped"))),
    (include_bytes!("files/odd-spacing.conf"), Some(include_bytes!("files/odd-spacing.stripped"))),
    (include_bytes!("files/one-line-end.conf"), Some(include_bytes!("files/one-line-end.stripped"))),
    (include_bytes!("files/ours.conf"), Some(include_bytes!("files/ours.stripped"))),
    (include_bytes!("files/white-space.conf"), Some(include_bytes!("files/white-space.stripped"))),
    (include_bytes!("files/wireguard-install.conf"), Some(include_bytes!("files/wireguard-install.stripped"))),
];

#[test]
fn the_manual_page_has_every_setting_with_its_default() {
    let page = include_str!("../../../docs/man/linerate.conf.5.pod");
    for setting in settings::all() {
        let name = format!("B<{}{}>", if setting.marked { "#! " } else { "" }, setting.name);
        let item = page.split("=item ").find(|item| item.lines().next().is_some_and(|title| title.contains(&name)));
        let item = item.unwrap_or_else(|| panic!("{name} is missing"));
        let item = item.split("=back").next().unwrap_or_default();
        assert!(item.contains("Default: ") || item.contains("Required."), "{name} has no default");
    }
}

#[test]
fn every_setting_is_read() {
    let (file, diagnostics) = read(include_bytes!("files/ours.conf"));
    assert_eq!(diagnostics, []);
    assert_eq!(file.addresses, nets(&["10.0.0.1/24", "fd00::1/64"]));
    assert_eq!(file.dns_servers, ["192.0.2.53".parse::<NameServer>().unwrap()]);
    assert_eq!(file.search_domains, ["corp.example"]);
    assert_eq!((file.mtu, file.table, file.listen_port, file.fwmark), (Some(1400), Table::Auto, Some(51820), None));
    assert!(file.private_key.is_some() && !file.save_config && file.kill_switch);
    assert!(file.hooks(Phase::PostUp).eq(["echo up wg0 # and more"]));
    assert_eq!(file.route_conflict, RouteConflict::Metric);
    assert_eq!(file.excluded_ips, nets(&["192.168.0.0/16", "10.9.0.0/16"]));
    assert_eq!((file.exclude_lan, file.on_hook_error), (ExcludeLan::Auto, Some(OnHookError::Warn)));
    assert_eq!(file.spin, Some(200));
    assert_eq!(file.public_endpoint.as_ref().unwrap().with_port(51820), "vpn.example.com:443");
    assert_eq!(file.gateway, Gateway::Interfaces(vec!["eth0".parse().unwrap(), "eth1.7".parse().unwrap()]));
    assert_eq!((file.masquerade, file.inbound), (Masquerade { ipv4: true, ipv6: false }, Inbound::All));
    assert!(file.client_isolation);
    assert_eq!(file.fleet.as_ref().unwrap().as_str(), "berlin");
    assert_eq!(file.clients.pool, nets(&["10.0.0.0/24", "fd00::/64"]));
    assert_eq!(file.clients.dns, ["192.0.2.53", "corp.example"]);
    assert_eq!(file.clients.allowed_ips, nets(&["10.0.0.0/8"]));
    assert_eq!((file.clients.mtu, file.clients.keepalive), (Some(1280), Some(0)));
    let released: Vec<String> = file.clients.released.iter().map(Released::to_string).collect();
    assert_eq!(released, ["2030-01-02T03:04:05Z 10.0.0.9, fd00::9"]);
    let [peer] = &file.peers[..] else { panic!("one peer") };
    assert_eq!(peer.name.as_deref(), Some("Router"));
    assert_eq!(peer.preshared_key_file, Some(KeyFile::Credential("router.psk".into())));
    assert_eq!(peer.endpoint, Some(Endpoint::Address("192.0.2.1:51820".parse().unwrap())));
    assert_eq!((peer.allowed_ips.len(), peer.persistent_keepalive), (2, Some(25)));
    assert_eq!(peer.destinations, nets(&["10.1.0.0/16", "fd01::/32", "192.0.2.7/32"]));
    let group = peer.group.as_ref().unwrap();
    assert_eq!((peer.group_name(), group.check), (Some("office"), "10.0.0.2".parse().ok()));
    assert_eq!(group.source, "10.0.0.1".parse().ok());
    assert!(file.is_full_tunnel());
}

const CLIENT: &str = "[Peer]
# Name = laptop
PublicKey = aYdQoJuTQzd0bwlzRIFn82TK4TLi+LMnrkkT5bVEUCk=
AllowedIPs = 10.0.0.2/32, fd00::2/128
#! Created = 2029-12-31T08:00:00Z
#! Expires = 2030-01-31T22:59:59Z
#! Expired = 2030-01-31T23:00:00Z
#! Disabled = 2030-01-02T03:04:05Z
#! Quota = 50Gi
#! QuotaReset = monthly
#! NextPublicKey = HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=
#! ClientPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIkIUGAHfBmk=
#! ClientAllowedIPs = 10.0.0.0/8
#! Note = the one # in the kitchen
";

#[test]
fn every_setting_of_a_client_is_read() {
    let (file, diagnostics) = read(CLIENT.as_bytes());
    assert_eq!(diagnostics, []);
    let [peer] = &file.peers[..] else { panic!("one peer") };
    let client = &peer.client;
    let times = [client.created, client.expires, client.expired, client.disabled].map(|time| time.unwrap().to_string());
    let expected = ["2029-12-31T08:00:00Z", "2030-01-31T22:59:59Z", "2030-01-31T23:00:00Z", "2030-01-02T03:04:05Z"];
    assert_eq!(times, expected);
    assert_eq!((client.quota, client.quota_reset), (ByteCount::new(50 << 30), QuotaReset::Monthly));
    assert!(client.next_public_key.is_some() && client.private_key.is_some());
    assert_eq!(client.allowed_ips, nets(&["10.0.0.0/8"]));
    assert_eq!(client.note.as_deref(), Some("the one # in the kitchen"));
}

#[test]
fn a_disabled_peer_is_read_only_by_who_asks_for_it() {
    let disabled: String = CLIENT.lines().map(|line| format!("#~ {line}\n")).collect();
    let document = Document::parse(disabled.as_bytes());
    let name = "wg0".parse().unwrap();
    let (file, diagnostics) = TunnelFile::read(&document, &name, &NoNames);
    assert_eq!((file.peers.len(), diagnostics), (0, vec![]));
    let (file, diagnostics) = TunnelFile::read_with_disabled(&document, &name, &NoNames);
    assert_eq!(diagnostics, []);
    assert_eq!((file.peers[0].name.as_deref(), file.peers[0].section), (Some("laptop"), 1));
    // What wg would read as a part of the section above.
    let (_, diagnostics) = read(format!("{disabled}AllowedIPs = 10.0.0.3/32\n").as_bytes());
    assert!(diagnostics[0].message.contains("below a disabled peer"), "{}", diagnostics[0].message);
}

#[test]
fn a_client_has_one_section() {
    let key = "xTIBA5rboUvnH4htodjbn02ewAjIoXpTEVxQj5qQnDg=";
    let plain = format!("[Peer]\nPublicKey = {key}\n");
    let client = format!("{plain}#! Created = 2030-01-01T00:00:00Z\n#! Quota = 1G\n");
    let disabled: String = client.lines().map(|line| format!("#~ {line}\n")).collect();
    for (text, line) in [
        (format!("{client}{plain}"), 5),
        (format!("{plain}{client}"), 3),
        (format!("{disabled}{client}"), 5),
        (format!("{client}{disabled}"), 5),
    ] {
        let (_, diagnostics) =
            TunnelFile::read_with_disabled(&Document::parse(text.as_bytes()), &"wg0".parse().unwrap(), &NoNames);
        let [error] = &diagnostics[..] else { panic!("{text}{diagnostics:?}") };
        assert_eq!((error.severity, error.line), (Severity::Error, line), "{text}");
        assert!(error.message.contains("is listed twice"), "{}", error.message);
    }
}

#[test]
fn a_gateway_is_auto_or_a_list_of_other_interfaces() {
    let list = |names: &[&str]| Gateway::Interfaces(names.iter().map(|name| name.parse().unwrap()).collect());
    for (value, expected) in [
        ("AUTO", Gateway::Auto),
        ("off", Gateway::Off),
        ("eth0", list(&["eth0"])),
        ("eth0,br-lan, eth0", list(&["eth0", "br-lan"])),
    ] {
        let (file, diagnostics) = read(format!("[Interface]\n#! Gateway = {value}\n").as_bytes());
        assert_eq!((diagnostics, file.gateway), (vec![], expected), "{value}");
    }
    for (value, said) in [
        ("auto, eth0", "2:14: auto stands alone (use auto, off, or interfaces such as eth0, separated by commas)"),
        ("eth0, wg0", "2:14: wg0 cannot be its own gateway"),
        ("lo", "2:14: lo cannot be its own gateway"),
        ("eth0/1", "2:14: `eth0/1` is not an interface"),
        (",", "2:14: this list has no interface"),
    ] {
        let (file, diagnostics) = read(format!("[Interface]\n#! Gateway = {value}\n").as_bytes());
        assert!(file.gateway == Gateway::Off && diagnostics.len() == 1, "{value}");
        assert!(diagnostics[0].to_string().starts_with(said), "{value}: {}", diagnostics[0]);
    }
}

#[test]
fn masquerade_is_a_list_of_families() {
    for (value, families) in [
        ("ipv4", Some((true, false))),
        ("IPv6", Some((false, true))),
        ("ipv4, ipv6", Some((true, true))),
        ("both", Some((true, true))),
        ("off", Some((false, false))),
        ("off, ipv4", None),
        ("yes", None),
    ] {
        let (file, diagnostics) = read(format!("[Interface]\n#! Masquerade = {value}\n").as_bytes());
        assert_eq!(diagnostics.is_empty(), families.is_some(), "{value}");
        let (ipv4, ipv6) = families.unwrap_or_default();
        assert_eq!(file.masquerade, Masquerade { ipv4, ipv6 }, "{value}");
    }
}

#[test]
fn all_diagnostics_of_a_file_are_reported_with_line_and_column() {
    let file = format!(
        "PrivateKey = x\n[Interface]\nAdress = 10.0.0.1\n  Address = 10.0.0.1/33, fd00::1/64\nPublicKey = {KEY}\nMTU =\n\
         ListenPort =\nListenPort = 70000\nFwMark = 0X1\nMTU = big\nTable = vpn\nSaveConfig = yes\nKillSwitch = true\n\
         #! RouteConflict = ask\n#! MTU = 1400\n#! KilSwitch = true\nPrivateKey = abc\nDNS = 1.2.3\nhello\n\
         [Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.0.0.0/8,, 10.0.0.1/24, x\nEndpoint = example.com\n\
         Endpoint = 192.0.2.1:70000\nPersistentKeepalive = -1\n\
         [Peer]\nAllowedIPs = 10.0.0.0/8\n\
         [Peer]\nPublicKey = {OTHER}\nAllowedIPs = 10.0.0.0/8, 10.0.0.0/255.0.0.0\n\
         [Peer]\nPublicKey = {OTHER}\nPresharedKey = {KEY}\n#! PresharedKeyFile = credential:a/b\n\
         #! PresharedKeyFile = /k\n[Pear]\nPublicKey = x\n"
    );
    let expected = "\
1:1: PrivateKey is outside of any section (put it below [Interface])
3:1: unknown setting Adress (did you mean Address?)
4:13: `/33` is not a prefix length (IPv4 takes 0 to 32)
5:1: PublicKey does not belong in [Interface] (move it to [Peer])
6:1: warning: MTU has no value (add one or remove the line)
7:1: ListenPort has no value (add one or remove the line)
8:1: warning: ListenPort is set twice (the last one counts)
8:14: `70000` is not a port (use 0 to 65535; with 0 the system chooses one)
9:10: `0X1` is not a mark (use off, a number up to 4294967295, or 0x and hexadecimal digits)
10:1: warning: MTU is set twice (the last one counts)
10:7: `big` is not an MTU (use 68 to 65535 bytes; 1420 fits Ethernet)
11:9: `vpn` is not a routing table (use auto, off, a number, or a name from /etc/iproute2/rt_tables)
12:14: `yes' is neither true nor false (use true or false)
13:1: KillSwitch is unknown to wg and wg-quick (write it as `#! KillSwitch = …`)
14:20: `ask` is not a value of RouteConflict (use skip, metric, replace or fail)
15:4: warning: MTU after `#!` is only a comment (remove `#!` to set it)
16:4: unknown setting KilSwitch (did you mean KillSwitch?)
17:14: the value of PrivateKey is not a key: it has 3 characters (a key is 44 base64 characters and ends in `=`)
18:7: warning: `1.2.3` is not the address of a name server and is ignored (for example 192.0.2.53 or 2001:db8::53)
19:1: this line is neither a comment nor a setting (write NAME = VALUE)
22:25: this list has an empty entry (remove the comma)
22:27: warning: 10.0.0.1/24 has host bits set (it is read as 10.0.0.0/24)
22:40: `x` is not an IP address (for example 10.0.0.1/24 or fd00::1/64)
23:12: `example.com` is not an endpoint: it needs a host and a port (for example 192.0.2.1:51820, [2001:db8::1]:51820 or vpn.example.com:51820)
24:1: warning: Endpoint is set twice (the last one counts)
24:12: 70000 is not a port (use 1 to 65535)
25:23: `-1` is not an interval (use off, or 1 to 65535 seconds)
26:1: this peer has no PublicKey (add `PublicKey = …`)
30:14: warning: 10.0.0.0/8 is in the AllowedIPs of two peers: aYdQoJuTQzd0bwlzRIFn82TK4TLi+LMnrkkT5bVEUCk= (line 20) and xTIBA5rboUvnH4htodjbn02ewAjIoXpTEVxQj5qQnDg= (only the last one gets it)
30:26: `10.0.0.0/255.0.0.0` has a netmask instead of a prefix length (write 10.0.0.0/8)
31:1: warning: peer xTIBA5rboUvnH4htodjbn02ewAjIoXpTEVxQj5qQnDg= is listed twice, first in line 28 (merge the sections: only the last AllowedIPs count)
34:23: this is not a credential name (write credential:NAME, without slashes)
35:4: warning: PresharedKeyFile is set twice (the last one counts)
35:4: PresharedKey and PresharedKeyFile are both set (keep one of them)
36:1: unknown section (use [Interface] or [Peer])
";
    let (_, diagnostics) = read(file.as_bytes());
    let said: String = diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect();
    assert_eq!(said, expected);
    let first = diagnostics[0].in_file(Path::new("/etc/wireguard/wg0.conf")).to_string();
    assert!(first.starts_with("/etc/wireguard/wg0.conf:1:1: PrivateKey is outside"));
}

#[test]
fn no_diagnostic_contains_a_key() {
    let secret = &KEY[..43];
    for line in [
        format!("PrivateKey = {secret}"),
        secret.to_owned(),
        format!("[{secret}"),
        format!("{secret} = x"),
        format!("PrivateKey {secret}="),
        format!("SaveConfig PrivateKey\n{KEY}"),
    ] {
        let (_, diagnostics) = read(format!("[Interface]\n{line}\n[Peer]\nPresharedKey = {secret}\n").as_bytes());
        assert!(diagnostics.len() >= 2);
        assert!(diagnostics.iter().all(|diagnostic| !diagnostic.to_string().contains(secret)), "{line}");
    }
}

#[test]
fn no_diagnostic_contains_a_key_that_is_misplaced() {
    let (secret, hex) = (&KEY[..40], "c8".repeat(32));
    let of_interface = ["Address", "ListenPort", "FwMark", "MTU", "Table", "SaveConfig", "DNS"];
    let ours = [
        "RouteConflict",
        "KillSwitch",
        "ExcludedIPs",
        "ExcludeLAN",
        "OnHookError",
        "PrivateKeyFile",
        "User",
        "Spin",
        "Gateway",
        "Masquerade",
        "ClientIsolation",
        "Inbound",
        "FixFirewall",
        "Fleet",
    ];
    let of_peer = ["Endpoint", "AllowedIPs", "PersistentKeepalive", "#! Destinations", "#! Group", "#! Check"];
    let lines = of_interface.map(|key| format!("[Interface]\n{key} = ")).into_iter();
    let lines = lines.chain(ours.map(|key| format!("[Interface]\n#! {key} = ")));
    let lines = lines.chain(of_peer.map(|key| format!("[Peer]\nPublicKey = {OTHER}\n{key} = ")));
    for line in lines {
        for value in [KEY, &hex, &format!("{KEY}:51820"), &format!("10.0.0.1/{KEY}")] {
            // What is no value of a key at all: the name of a file may be anything but a key.
            if line.ends_with("PrivateKeyFile = ") && value != KEY {
                continue;
            }
            let (_, diagnostics) = read(format!("{line}{value}\n").as_bytes());
            let said: String = diagnostics.iter().map(ToString::to_string).collect();
            assert!(!said.is_empty() && !said.contains(secret) && !said.contains(&hex[..40]), "{line}{value}: {said}");
        }
    }
}

#[test]
fn an_invalid_search_domain_is_ignored_with_a_warning() {
    let long = "a.".repeat(127);
    let good =
        ["example", "corp.example", "corp.example.", "_x.y-z", "~corp.example", "~.", "bücher.example", &long[..253]];
    let (file, diagnostics) = read(format!("[Interface]\nDNS = {}\n", good.join(",")).as_bytes());
    assert_eq!((file.search_domains, diagnostics), (good.map(str::to_owned).to_vec(), Vec::new()));
    let longer = format!("{long}a");
    for bad in ["--help", "-x.example", "a..b", ".a", "~", "~~a", "a/b", "a=b", "a\u{7f}", "$a", &longer] {
        let (file, diagnostics) = read(format!("[Interface]\nDNS = good.example {bad}\n").as_bytes());
        assert_eq!(file.search_domains, ["good.example"], "{bad}");
        let said: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
        assert!(said.len() == 1 && said[0].starts_with("2:20: warning: "), "{bad}: {said:?}");
        assert!(
            said[0].ends_with(" is not a search domain and is ignored (for example corp.example or ~corp.example)")
        );
    }
}

#[test]
fn values_are_read_as_the_original_reads_them() {
    let file = |lines: &str| {
        let (file, diagnostics) = read(format!("[interface]\n{lines}\n").as_bytes());
        assert!(
            diagnostics.iter().all(|diagnostic| diagnostic.severity == Severity::Warning),
            "{lines}: {diagnostics:?}"
        );
        file
    };
    assert_eq!(
        file("address=10.0.0.1,fd00::1\nAddress = 10.0.0.2/255.255.0.0").addresses,
        nets(&["10.0.0.1/32", "fd00::1/128", "10.0.0.2/16"])
    );
    assert_eq!(file("listen port = 5 1 8").listen_port, Some(518));
    assert_eq!(file("FwMark = 0xfF").fwmark, Some(255));
    assert_eq!(file("FwMark = OFF").fwmark, Some(0));
    assert_eq!(file("Table = off").table, Table::Off);
    assert_eq!(file("Table = main").table, Table::Number(254));
    assert_eq!(file("Table = 0x64").table, Table::Number(100));
    assert!(file("saveconfig = TRUE # yes").save_config);
    assert!(file("PostUp = a %%i '#' # b").hooks(Phase::PostUp).eq(["a %wg0 '#' # b"]));
    let linked: Vec<NameServer> = vec!["fe80::1%eth0".parse().unwrap()];
    assert_eq!(file("DNS = fe80::1%eth0, 1.2.3, 192.0.2.53:53").dns_servers, linked);
    let dns = file("DNS = 1.1.1.1 a.example,~b.example\nDNS=2606::1");
    assert_eq!((dns.dns_servers.len(), dns.search_domains), (2, vec!["a.example".into(), "~b.example".into()]));
}

#[test]
fn names_of_tables_and_services_are_looked_up() {
    struct Some1;
    impl Names for Some1 {
        fn table(&self, name: &str) -> Option<u32> {
            (name == "vpn").then_some(200)
        }
        fn port(&self, service: &str) -> Option<u16> {
            (service == "domain").then_some(53)
        }
    }
    let document = Document::parse(b"[Interface]\nTable = vpn\nListenPort = domain\n");
    let (file, diagnostics) = TunnelFile::read(&document, &wg0(), &Some1);
    assert_eq!((file.table, file.listen_port, diagnostics.len()), (Table::Number(200), Some(53), 0));
}

#[test]
fn endpoints_are_addresses_or_names() {
    let endpoint = |text: &str| {
        let (file, diagnostics) = read(format!("[Peer]\nPublicKey = {KEY}\nEndpoint = {text}\n").as_bytes());
        assert_eq!(diagnostics, [], "{text}");
        file.peers[0].endpoint.clone().unwrap()
    };
    for address in ["192.0.2.1:0", "[2001:db8::1]:65535", "[::1%lo]:1"] {
        assert!(matches!(endpoint(address), Endpoint::Address(_)), "{address}");
    }
    assert_eq!(endpoint("::1:51820"), Endpoint::Address("[::1]:51820".parse().unwrap()));
    for (text, host, service) in [("a.example:53", "a.example", "53"), ("127.1:domain", "127.1", "domain")] {
        assert_eq!(endpoint(text), Endpoint::Name { host: host.into(), service: service.into() });
        assert_eq!(endpoint(text).to_string(), text);
    }
}

#[test]
fn repeated_prefixes_and_peers_end_up_as_on_the_device() {
    let (file, _) = read(
        format!(
            "[Peer]\nPublicKey = {KEY}\nAllowedIPs = 10.0.0.0/8, 10.1.0.0/16, +fd00::/64\nAllowedIPs = -10.1.0.0/16\n\
             Endpoint = 192.0.2.1:1\n[Peer]\nPublicKey = {OTHER}\nAllowedIPs = 10.9.9.9/8\n\
             [Peer]\nPublicKey = {KEY}\nPersistentKeepalive = 5\nAllowedIPs = +10.2.0.0/16, +10.2.3.4/16\n"
        )
        .as_bytes(),
    );
    let [first, second] = &file.peers[..] else { panic!("two peers") };
    assert_eq!(first.allowed_ips, nets(&["fd00::/64", "10.2.0.0/16"]));
    assert!(first.endpoint.is_some() && first.persistent_keepalive == Some(5));
    assert_eq!(second.allowed_ips, nets(&["10.0.0.0/8"]));
}

#[test]
fn a_key_and_its_file_together_are_an_error() {
    let (_, diagnostics) = read(format!("[Interface]\n#! PrivateKeyFile = /k\nPrivateKey = {KEY}\n").as_bytes());
    assert_eq!(diagnostics.len(), 1);
    assert_eq!(diagnostics[0].to_string(), "2:4: PrivateKey and PrivateKeyFile are both set (keep one of them)");
}

#[test]
fn keys_are_loaded_from_files_and_credentials() {
    let folder = std::env::temp_dir().join(format!("linerate-key-files-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("credentials")).unwrap();
    std::fs::write(folder.join("private"), format!("{KEY}\n")).unwrap();
    std::fs::write(folder.join("credentials/psk"), OTHER).unwrap();
    std::fs::write(folder.join("empty"), "").unwrap();
    let read = |private: &str, preshared: &str| {
        let text = format!("[Interface]\n#! PrivateKeyFile = {private}\n[Peer]\nPublicKey = {KEY}\n");
        read(format!("{text}#! PresharedKeyFile = {preshared}\n").as_bytes()).0
    };
    let credentials = folder.join("credentials");
    let folders = KeyDirectories { configuration: &folder, credentials: Some(&credentials) };

    let mut good = read("private", "credential:psk");
    assert_eq!(good.load_keys(folders), Ok(()));
    assert!(good.private_key == SecretKey::from_base64(KEY.as_bytes()));
    assert!(good.peers[0].preshared_key == SecretKey::from_base64(OTHER.as_bytes()));

    let mut bad = read("empty", "credential:none");
    let wrong = bad.load_keys(folders).unwrap_err();
    assert!(wrong[0].contains("empty does not contain a key") && wrong[1].contains("/none: "), "{wrong:?}");
    let none = KeyDirectories { credentials: None, ..folders };
    assert!(good.load_keys(none).unwrap_err()[0].contains("LoadCredential=psk:PATH"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn strip_prints_what_the_original_prints() {
    for (file, stripped) in FILES {
        match (strip(&Document::parse(file)), stripped) {
            (Ok(ours), Some(original)) => {
                assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(original));
            }
            (Err(refused), None) => assert_eq!(refused.to_string(), "`yes' is neither true nor false"),
            (ours, _) => panic!("{:?} of {}", ours.err(), String::from_utf8_lossy(file)),
        }
    }
}

#[test]
fn wg_accepts_a_stripped_file_with_all_our_settings() {
    let stripped = strip(&Document::parse(include_bytes!("files/ours.conf"))).unwrap();
    let update = wg_config::parse(&stripped, Mode::Replace, &mut Numeric).ok().unwrap();
    assert_eq!((update.listen_port, update.peers.len()), (Some(51820), 1));
}

#[test]
fn a_save_keeps_every_line_that_need_not_change() {
    let before = format!(
        "# Mine\n[Interface]\nPrivateKey={KEY}   # secret\nAddress=10.0.0.1/24\nDNS = 192.0.2.53,corp.example\n\
         PostUp = a # b\n\n# Name = gone\n[Peer]\nPublicKey = {}\n\nAllowedIPs = 10.0.0.3\n\n# All of the office\n\n\
         ### Client c\n[Peer]\n  PublicKey={OTHER}\n  AllowedIPs=10.0.0.0/25,10.0.0.2/32#two\n  Endpoint=c.example:1\n",
        PublicKey([7; 32])
    );
    let after = format!(
        "# Mine\n[Interface]\nPrivateKey={KEY}   # secret\nAddress=10.0.0.1/24\nAddress = fd00::1/64\n\
         DNS = corp.example\nDNS = 192.0.2.54\nPostUp = a # b\n\n# All of the office\n\n\
         ### Client c\n[Peer]\n  PublicKey={OTHER}\n  AllowedIPs=10.0.0.2/32, 10.0.0.9/32#two\n  Endpoint=c.example:1\n  \
         PersistentKeepalive=25\n\n[Peer]\n  PublicKey={}\n  AllowedIPs=10.0.0.4/32\n  Endpoint=[2001:db8::4]:4\n",
        PublicKey([8; 32])
    );
    let mut staying = PeerState::new(PublicKey::from_base64(OTHER.as_bytes()).unwrap());
    staying.allowed_ips = vec![("10.0.0.2".parse().unwrap(), 32), ("10.0.0.9".parse().unwrap(), 32)];
    staying.endpoint = Some("192.0.2.3:1".parse().unwrap());
    staying.persistent_keepalive = 25;
    let mut new = PeerState::new(PublicKey([8; 32]));
    new.allowed_ips = vec![("10.0.0.4".parse().unwrap(), 32)];
    new.endpoint = Some("[2001:db8::4]:4".parse().unwrap());
    let device = DeviceState {
        private_key: SecretKey::from_base64(KEY.as_bytes()),
        listen_port: 40000,
        fwmark: 51820,
        peers: vec![staying, new],
    };
    let interface = wg0();
    let runtime = RunningTunnel {
        interface: &interface,
        device: &device,
        addresses: &nets(&["10.0.0.1/24", "fe80::1/64", "fd00::1/64"]),
        has_ipv6: true,
        mtu: 1420,
        dns_servers: Some(&["192.0.2.54".parse().unwrap()]),
        chosen_port: Some(40000),
        chosen_fwmark: Some(51820),
        previous: None,
        is_resolved_address: &|_, address| address == "192.0.2.3:1".parse().unwrap(),
    };
    let mut document = Document::parse(before.as_bytes());
    save(&mut document, &runtime).unwrap();
    assert_eq!(String::from_utf8_lossy(&document.to_bytes()), after);
}

#[test]
fn a_saved_address_gets_its_own_line_unless_the_file_lists_several_in_one() {
    let interface = wg0();
    let saved = |before: &str, addresses: &[&str]| {
        let runtime = RunningTunnel {
            interface: &interface,
            device: &DeviceState::default(),
            addresses: &nets(addresses),
            has_ipv6: true,
            mtu: 1420,
            dns_servers: Some(&["192.0.2.53".parse().unwrap(), "fe80::1%eth0".parse().unwrap()]),
            chosen_port: None,
            chosen_fwmark: None,
            previous: None,
            is_resolved_address: &|_, _| false,
        };
        let mut document = Document::parse(format!("[Interface]\n{before}").as_bytes());
        save(&mut document, &runtime).unwrap();
        String::from_utf8(document.to_bytes().to_vec()).unwrap().split_once('\n').unwrap().1.to_owned()
    };
    let dns = "DNS = 192.0.2.53\nDNS = fe80::1%eth0\n";
    let lines = "Address = 10.0.0.1/24\nAddress = fd00::1/64\n";
    let grown = format!("{lines}Address = 10.0.0.2/24\n{dns}");
    assert_eq!(saved(&format!("{lines}DNS = 192.0.2.53\n"), &["10.0.0.1/24", "fd00::1/64", "10.0.0.2/24"]), grown);
    assert_eq!(saved(dns, &["10.0.0.1/24", "fd00::1/64"]), format!("{dns}{lines}"));
    let listed = format!("Address = 10.0.0.1/24, fd00::1/64, 10.0.0.2/24\n{dns}");
    assert_eq!(
        saved(&format!("Address = 10.0.0.1/24, fd00::1/64\n{dns}"), &["10.0.0.1/24", "fd00::1/64", "10.0.0.2/24"]),
        listed
    );
}

#[test]
fn a_save_writes_only_what_changed_at_run_time() {
    let interface = wg0();
    let text = |listen_port: u16, allowed: &str| {
        format!("[Interface]\nListenPort = {listen_port}\n[Peer]\nPublicKey = {KEY}\nAllowedIPs = {allowed}\n")
    };
    let gone = format!("[Peer]\nPublicKey = {}\n", PublicKey([7; 32]));
    let (then, _) = read(format!("{}{gone}", text(1, "10.0.0.1/32")).as_bytes());
    let added = format!("[Peer]\nPublicKey = {OTHER}\nAllowedIPs = 10.0.0.3/32\n");
    let edited = format!("{}{added}", text(2, "10.0.0.2/32"));
    let mut device = DeviceState { listen_port: 1, ..DeviceState::default() };
    apply(&then.initial_changes().update, &mut device);
    let mut runtime = RunningTunnel {
        interface: &interface,
        device: &device,
        addresses: &[],
        has_ipv6: true,
        mtu: 1420,
        dns_servers: None,
        chosen_port: None,
        chosen_fwmark: None,
        previous: Some(&then),
        is_resolved_address: &|_, _| false,
    };
    let mut document = Document::parse(edited.as_bytes());
    save(&mut document, &runtime).unwrap();
    assert_eq!(String::from_utf8_lossy(&document.to_bytes()), edited, "edits of the file stay");
    runtime.previous = None;
    save(&mut document, &runtime).unwrap();
    let running = format!("{}\n{gone}", text(1, "10.0.0.1/32"));
    assert_eq!(String::from_utf8_lossy(&document.to_bytes()), running, "the running tunnel wins");
}

#[test]
fn a_missing_key_that_a_command_sets_is_named_as_a_key_file() {
    let remedy = |hook: &str| read(format!("[Interface]\n{hook}\n").as_bytes()).0.missing_key();
    for (hook, path) in [
        ("PostUp = wg set %i private-key /etc/wireguard/%i.key", "/etc/wireguard/wg0.key"),
        ("PreUp = /usr/bin/wg set wg0 listen-port 1 private-key '/k' fwmark 1; true", "/k"),
    ] {
        let remedy = remedy(hook);
        assert!(remedy.contains(&format!("add `#! PrivateKeyFile = {path}`")), "{remedy}");
    }
    for hook in [
        "PostUp = wg set %i private-key <(pass WireGuard/%i)",
        "PostUp = wg set %i private-key /dev/stdin",
        "MTU = 1420",
    ] {
        let remedy = remedy(hook);
        assert!(remedy.contains("`#! PrivateKeyFile = PATH`"), "{remedy}");
    }
}

#[test]
fn a_save_writes_no_address_of_a_client() {
    let text = |endpoint: &str| {
        format!(
            "[Interface]\n[Peer]\n# Name = a\n#! Created = 2026-01-31T00:00:00Z\nPublicKey = {KEY}\nAllowedIPs = 10.0.0.2/32\n\
             {endpoint}\n[Peer]\nPublicKey = {OTHER}\n"
        )
    };
    for text in [text(""), text("Endpoint = 192.0.2.1:1\n")] {
        let (file, _) = read(text.as_bytes());
        let mut device = DeviceState::default();
        apply(&file.initial_changes().update, &mut device);
        device.peers.iter_mut().for_each(|peer| peer.endpoint = Some("192.0.2.52:63190".parse().unwrap()));
        let mut document = Document::parse(text.as_bytes());
        save_state(&mut document, &device, &[]);
        let expected = format!("{text}Endpoint = 192.0.2.52:63190\n");
        assert_eq!(String::from_utf8_lossy(&document.to_bytes()), expected);
    }
}

#[test]
fn a_save_does_not_return_a_prefix_to_the_first_of_two_peers_that_list_it() {
    let peer = |key: &str, allowed: &str| format!("\n[Peer]\nPublicKey = {key}\nAllowedIPs = {allowed}\n");
    let twice = [peer(KEY, "10.0.0.1/32"), peer(OTHER, "10.0.0.1/32"), peer(OTHER, "10.0.0.2/32")];
    let text = format!("[Interface]\n{}", twice.concat());
    let (file, _) = read(text.as_bytes());
    let mut device = DeviceState::default();
    apply(&file.initial_changes().update, &mut device);
    // Something that is to be saved: its sections become one.
    device.peers.last_mut().unwrap().persistent_keepalive = 25;
    let mut document = Document::parse(text.as_bytes());
    save_state(&mut document, &device, &[]);
    let saved = document.to_bytes();
    assert!(!String::from_utf8_lossy(&saved).contains("10.0.0.1"), "{}", String::from_utf8_lossy(&saved));
}

#[test]
fn a_save_keeps_what_the_host_lacks_and_what_comes_from_elsewhere() {
    let file = b"[Interface]\n#! PrivateKeyFile = k\nAddress = 10.0.0.1/24, fd00::1/64\n";
    let interface = wg0();
    let device = DeviceState { private_key: SecretKey::from_base64(KEY.as_bytes()), ..DeviceState::default() };
    let runtime = RunningTunnel {
        interface: &interface,
        device: &device,
        addresses: &nets(&["10.0.0.1/24"]),
        has_ipv6: false,
        mtu: 1420,
        dns_servers: None,
        chosen_port: None,
        chosen_fwmark: None,
        previous: None,
        is_resolved_address: &|_, _| false,
    };
    for file in [&file[..], b"[Interface]\nAddress=10.0.0.1/24\nPreUp=wg set %i private-key /k\n"] {
        let mut document = Document::parse(file);
        save(&mut document, &runtime).unwrap();
        assert_eq!(document.to_bytes()[..], file[..]);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in odd_bytes()) {
        let mut document = Document::parse(&bytes);
        let (file, diagnostics) = TunnelFile::read(&document, &wg0(), &NoNames);
        let lines = bytes.split(|&byte| byte == b'\n').count();
        prop_assert!(diagnostics.iter().all(|diagnostic| (1..=lines).contains(&diagnostic.line) && diagnostic.column > 0));
        let places = |diagnostic: &Diagnostic| (diagnostic.line, diagnostic.column);
        prop_assert!(diagnostics.is_sorted_by_key(places));
        let _ = strip(&document);
        let mut device = DeviceState::default();
        apply(&file.initial_changes().update, &mut device);
        prop_assert!(is_nothing(&changes(&file, &file, &device, AllowedIpRemoval::Replace).update));
        save_state(&mut document, &device, &[]);
    }

    #[test]
    fn an_unchanged_file_changes_nothing(file in model(), device in model(), replace in any::<bool>()) {
        let (file, device) = (typed(&file), state(&device));
        let settings = changes(&file, &file, &device, if replace { AllowedIpRemoval::Replace } else { AllowedIpRemoval::OneByOne });
        prop_assert!(is_nothing(&settings.update) && settings.unresolved.is_empty());
    }

    #[test]
    fn applying_the_changes_of_a_file_yields_its_new_state(then in model(), now in model(), replace in any::<bool>()) {
        let lists = if replace { AllowedIpRemoval::Replace } else { AllowedIpRemoval::OneByOne };
        let mut device = state(&then);
        let settings = changes(&typed(&then), &typed(&now), &device, lists);
        if replace {
            prop_assert!(settings.update.peers.iter().all(|peer| peer.allowed_ips.iter().all(|ip| ip.add)));
        }
        apply(&settings.update, &mut device);
        // What the file no longer sets of the device, and an endpoint that it no longer says, stay.
        let mut expected = now.clone();
        expected.port = now.port.or(then.port);
        expected.mark = now.mark.or(then.mark);
        expected.private = now.private.or(then.private);
        for (key, peer) in &mut expected.peers {
            let before = then.peers.get(key).and_then(|peer| peer.endpoint);
            peer.endpoint = peer.endpoint.filter(|&endpoint| endpoint != NAMED).or(before.filter(|&endpoint| endpoint != NAMED));
        }
        prop_assert!(sorted(device) == sorted(state(&expected)));
        // A name that is new is to be resolved.
        let named: BTreeSet<PublicKey> = settings.unresolved.iter().map(|(key, _)| *key).collect();
        let new = now.peers.iter().filter(|(key, peer)| {
            peer.endpoint == Some(NAMED) && then.peers.get(key).and_then(|peer| peer.endpoint) != Some(NAMED)
        });
        prop_assert_eq!(named, new.map(|(key, _)| public(*key)).collect());
    }

    #[test]
    fn peers_that_stay_at_both_ends_change_nothing_of_the_others(
        then in model(), other in model(), stays in prop::collection::vec(any::<bool>(), 6), replace in any::<bool>()
    ) {
        let mut now = other;
        let staying = then.peers.iter().filter(|(key, _)| stays[usize::from(**key)]);
        now.peers.extend(staying.map(|(key, peer)| (*key, peer.clone())));
        // A prefix has one owner.
        let mut taken = BTreeSet::new();
        now.peers.values_mut().for_each(|peer| peer.allowed.retain(|prefix| taken.insert(*prefix)));
        let lists = if replace { AllowedIpRemoval::Replace } else { AllowedIpRemoval::OneByOne };
        let ends = [6, 7];
        // Between peers that change, all are compared.
        let between = |model: &Model, keepalive| {
            let end = ModelPeer { preshared: None, endpoint: None, keepalive: Some(keepalive), allowed: Vec::new() };
            let mut file = typed(model);
            let [first, last] = ends.map(|key| {
                let peers = [(key, end.clone())].into();
                typed(&Model { private: None, port: None, mark: None, peers }).peers.remove(0)
            });
            file.peers.insert(0, first);
            file.peers.push(last);
            file
        };
        let mut device = state(&then);
        let plain = changes(&typed(&then), &typed(&now), &device, lists);
        device.peers.extend(ends.map(|key| PeerState { persistent_keepalive: 5, ..PeerState::new(public(key)) }));
        let mut all = changes(&between(&then, 5), &between(&now, 25), &device, lists);
        let count = all.update.peers.len();
        all.update.peers.retain(|peer| !ends.map(public).contains(&peer.public_key));
        prop_assert_eq!(count, all.update.peers.len() + 2);
        prop_assert!(all == plain);
    }

    #[test]
    fn a_reload_keeps_runtime_changes_that_the_file_does_not_touch(then in model(), now in model()) {
        // A peer that was added by hand, and endpoints that have roamed.
        let hand = PublicKey([99; 32]);
        let mut device = state(&then);
        for peer in &mut device.peers {
            peer.endpoint = Some("198.51.100.1:9".parse().unwrap());
        }
        let mut added = PeerState::new(hand);
        added.allowed_ips = vec![("203.0.113.0".parse().unwrap(), 24)];
        device.peers.push(added);
        let settings = changes(&typed(&then), &typed(&now), &device, AllowedIpRemoval::OneByOne);
        for peer in &settings.update.peers {
            prop_assert!(peer.public_key != hand);
            let key = peer.public_key.0[0];
            let (before, after) = (then.peers.get(&key), now.peers.get(&key));
            prop_assert!(before != after, "a peer that is the same in both is not sent");
            prop_assert!(!peer.replace_allowed_ips || before.is_none(), "no prefix is without a peer meanwhile");
            let nobodys = |ip: &AllowedIp| !now.peers.values().any(|peer| net_of(&peer.allowed).contains(&(ip.addr, ip.cidr)));
            prop_assert!(peer.allowed_ips.iter().all(|ip| ip.add || nobodys(ip)), "a prefix that moves is not removed first");
            if let (Some(before), Some(after)) = (before, after) {
                prop_assert!(before.endpoint != after.endpoint || peer.endpoint.is_none(), "no roaming is undone");
            }
        }
    }

    #[test]
    fn an_added_prefix_goes_to_its_peer_whatever_is_running(
        then in model(), now in model(), device in model(), replace in any::<bool>()
    ) {
        let lists = if replace { AllowedIpRemoval::Replace } else { AllowedIpRemoval::OneByOne };
        let mut device = state(&device);
        let settings = changes(&typed(&then), &typed(&now), &device, lists);
        let removed = settings.update.peers.iter().filter(|peer| peer.remove);
        prop_assert!(removed.into_iter().all(|gone| device.peers.iter().any(|peer| peer.public_key == gone.public_key)));
        apply(&settings.update, &mut device);
        for (key, peer) in &now.peers {
            let before = then.peers.get(key).map_or(&[][..], |peer| &peer.allowed);
            let added: Vec<u8> = peer.allowed.iter().copied().filter(|prefix| !before.contains(prefix)).collect();
            let running = device.peers.iter().find(|peer| peer.public_key == public(*key));
            let running = running.map_or(&[][..], |peer| &peer.allowed_ips);
            prop_assert!(net_of(&added).iter().all(|prefix| running.contains(prefix)));
        }
    }

    #[test]
    fn a_saved_file_matches_the_device_and_keeps_its_comments(file in model(), device in model()) {
        let text = format!("{}\n# the end\n", text_of(&file));
        let mut document = Document::parse(text.as_bytes());
        let state = state(&device);
        save_state(&mut document, &state, &[]);
        let (saved, diagnostics) = TunnelFile::read(&document, &wg0(), &NoNames);
        prop_assert_eq!(diagnostics, []);
        let mut running = DeviceState::default();
        apply(&saved.initial_changes().update, &mut running);
        // A file that says no port gets none, and a name stays until the peer is somewhere.
        running.listen_port = state.listen_port;
        let bytes = document.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        prop_assert!(sorted(running) == sorted(state_with_file_endpoints(&device, &file)), "{}", text);
        prop_assert!(text.contains("# the end\n") && text.starts_with("# the start\n"));
        for key in file.peers.keys().filter(|key| device.peers.contains_key(key)) {
            let comment = format!("# of {key}\n");
            prop_assert!(text.contains(&comment));
        }
        // Once saved there is nothing to save.
        save_state(&mut document, &state, &[]);
        prop_assert_eq!(&document.to_bytes()[..], &bytes[..]);
    }

    #[test]
    fn saving_a_tunnel_that_matches_its_file_changes_nothing(file in model()) {
        let text = text_of(&file);
        let mut document = Document::parse(text.as_bytes());
        save_state(&mut document, &state(&file), &[]);
        prop_assert_eq!(String::from_utf8_lossy(&document.to_bytes()).into_owned(), text);
    }
}

/// A tunnel in small: what its file may say.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    private: Option<u8>,
    port: Option<u16>,
    mark: Option<u32>,
    peers: BTreeMap<u8, ModelPeer>,
}

#[derive(Clone, Debug, PartialEq)]
struct ModelPeer {
    preshared: Option<u8>,
    endpoint: Option<u8>,
    keepalive: Option<u16>,
    allowed: Vec<u8>,
}

/// The endpoint that is a name.
const NAMED: u8 = 0;

fn model() -> impl Strategy<Value = Model> {
    let peer = (of(1u8..3), of(0u8..3), of(select(vec![5u16, 25])), subsequence((0..6).collect::<Vec<u8>>(), 0..=6))
        .prop_map(|(preshared, endpoint, keepalive, allowed)| ModelPeer { preshared, endpoint, keepalive, allowed });
    let device = (of(1u8..3), of(1u16..3), of(1u32..3));
    (device, btree_map(1u8..6, peer, 0..5)).prop_map(|((private, port, mark), mut peers)| {
        // A prefix has one owner.
        let mut taken = BTreeSet::new();
        peers.values_mut().for_each(|peer: &mut ModelPeer| peer.allowed.retain(|&prefix| taken.insert(prefix)));
        Model { private, port, mark, peers }
    })
}

fn public(key: u8) -> PublicKey {
    PublicKey([key; 32])
}

fn secret(key: u8) -> SecretKey {
    SecretKey::from_bytes(&[key; 32])
}

fn text_of(model: &Model) -> String {
    let line = |key: &str, value: Option<String>| value.map_or_else(String::new, |value| format!("{key} = {value}\n"));
    let key = |key: Option<u8>| key.map(|key| secret(key).to_base64().to_string());
    let mut text = "# the start\n[Interface]\n".to_owned();
    text += &line("PrivateKey", key(model.private));
    text += &line("ListenPort", model.port.map(|port| port.to_string()));
    text += &line("FwMark", model.mark.map(|mark| mark.to_string()));
    for (name, peer) in &model.peers {
        text += &format!("\n# of {name}\n[Peer]\nPublicKey = {}\n", public(*name));
        text += &line("PresharedKey", key(peer.preshared));
        text += &line("Endpoint", peer.endpoint.map(endpoint_text));
        text += &line("PersistentKeepalive", peer.keepalive.map(|seconds| seconds.to_string()));
        let allowed: Vec<String> = peer.allowed.iter().map(|prefix| format!("10.0.{prefix}.0/24")).collect();
        text += &line("AllowedIPs", (!allowed.is_empty()).then(|| allowed.join(", ")));
    }
    text
}

fn endpoint_text(endpoint: u8) -> String {
    if endpoint == NAMED { "a.example:1".into() } else { format!("192.0.2.{endpoint}:1") }
}

fn typed(model: &Model) -> TunnelFile {
    let (file, diagnostics) = read(text_of(model).as_bytes());
    assert_eq!(diagnostics, []);
    file
}

fn net_of(allowed: &[u8]) -> Vec<(IpAddr, u8)> {
    allowed.iter().map(|prefix| (IpAddr::from([10, 0, *prefix, 0]), 24)).collect()
}

/// A device on which the file is: names are not resolved.
fn state(model: &Model) -> DeviceState {
    let mut state = DeviceState {
        private_key: model.private.map(secret),
        listen_port: model.port.unwrap_or(0),
        fwmark: model.mark.unwrap_or(0),
        peers: Vec::new(),
    };
    for (key, peer) in &model.peers {
        let mut made = PeerState::new(public(*key));
        made.preshared_key = peer.preshared.map(secret);
        made.endpoint = peer.endpoint.filter(|&to| to != NAMED).map(|to| endpoint_text(to).parse().unwrap());
        made.persistent_keepalive = peer.keepalive.unwrap_or(0);
        made.allowed_ips = net_of(&peer.allowed);
        state.peers.push(made);
    }
    state
}

/// The device, and where a peer is nowhere, where the file has it.
fn state_with_file_endpoints(device: &Model, file: &Model) -> DeviceState {
    let mut merged = device.clone();
    for (key, peer) in &mut merged.peers {
        let in_file = file.peers.get(key).and_then(|peer| peer.endpoint);
        peer.endpoint = peer.endpoint.filter(|&to| to != NAMED).or(in_file);
    }
    state(&merged)
}

fn save_state(document: &mut Document, device: &DeviceState, addresses: &[IpNet]) {
    let interface = wg0();
    let runtime = RunningTunnel {
        interface: &interface,
        device,
        addresses,
        has_ipv6: true,
        mtu: 1420,
        dns_servers: None,
        chosen_port: None,
        chosen_fwmark: None,
        previous: None,
        is_resolved_address: &|_, _| false,
    };
    save(document, &runtime).unwrap();
}

/// What a daemon makes of an update: top to bottom, and a prefix leaves who had it.
fn apply(update: &DeviceUpdate, state: &mut DeviceState) {
    if let Some(key) = &update.private_key {
        state.private_key = Some(key.clone()).filter(|key| !key.is_zero());
    }
    state.listen_port = update.listen_port.unwrap_or(state.listen_port);
    state.fwmark = update.fwmark.unwrap_or(state.fwmark);
    for update in &update.peers {
        if update.remove {
            state.peers.retain(|peer| peer.public_key != update.public_key);
            continue;
        }
        let found = state.peers.iter().position(|peer| peer.public_key == update.public_key);
        if found.is_none() && update.update_only {
            continue;
        }
        let at = found.unwrap_or_else(|| {
            state.peers.push(PeerState::new(update.public_key));
            state.peers.len() - 1
        });
        if let Some(key) = &update.preshared_key {
            state.peers[at].preshared_key = Some(key.clone()).filter(|key| !key.is_zero());
        }
        state.peers[at].endpoint = update.endpoint.or(state.peers[at].endpoint);
        state.peers[at].persistent_keepalive =
            update.persistent_keepalive.unwrap_or(state.peers[at].persistent_keepalive);
        if update.replace_allowed_ips {
            state.peers[at].allowed_ips.clear();
        }
        for &AllowedIp { add, addr, cidr } in &update.allowed_ips {
            if !add {
                state.peers[at].allowed_ips.retain(|ip| *ip != (addr, cidr));
                continue;
            }
            state.peers.iter_mut().for_each(|peer| peer.allowed_ips.retain(|ip| *ip != (addr, cidr)));
            state.peers[at].allowed_ips.push((addr, cidr));
        }
    }
}

fn sorted(mut state: DeviceState) -> DeviceState {
    state.peers.iter_mut().for_each(|peer| peer.allowed_ips.sort());
    state.peers.sort_by_key(|peer| peer.public_key);
    state
}

fn is_nothing(update: &DeviceUpdate) -> bool {
    *update == DeviceUpdate::default()
}

/// The files of `files/` with bytes replaced, and random bytes.
fn odd_bytes() -> impl Strategy<Value = Vec<u8>> {
    let file = select(FILES.iter().map(|(file, _)| file.to_vec()).collect::<Vec<_>>());
    let odd = select(b"\n\r#!=[],/+-: \t\0\xff09azP".to_vec());
    let damaged = (file, vec((any::<prop::sample::Index>(), odd), 0..8)).prop_map(|(mut file, damages)| {
        for (at, byte) in damages {
            let at = at.index(file.len() + 1);
            if at == file.len() { file.push(byte) } else { file[at] = byte }
        }
        file
    });
    prop_oneof![4 => damaged, 1 => vec(any::<u8>(), 0..200)]
}

fn read(bytes: &[u8]) -> (TunnelFile, Vec<Diagnostic>) {
    TunnelFile::read(&Document::parse(bytes), &wg0(), &NoNames)
}

fn wg0() -> InterfaceName {
    "wg0".parse().unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Resolver without names.
struct Numeric;

impl Resolver for Numeric {
    fn resolve(&mut self, text: &str, _: &str, _: &str) -> Result<SocketAddr, ValueError> {
        text.parse().map_err(|_| ValueError::Value(text.to_owned()))
    }

    fn port(&mut self, service: &str) -> Result<u16, ValueError> {
        service.parse().map_err(|_| ValueError::Value(service.to_owned()))
    }

    fn warn(&mut self, warning: &str) {
        panic!("{warning}");
    }
}
