//! Imports the samples of `tests/data/import`, one folder for each kind, and compares file and report with what is
//! expected. `UPDATE_EXPECTED=1 cargo test -p linerate-server` writes what is expected anew: read the difference.

mod samples;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use linerate_control::document::Document;
use linerate_control::interface::InterfaceName;
use linerate_control::keys::SecretKey;
use linerate_control::tunnel_file::{NoNames, TunnelFile};
use linerate_server::import::{self, Context, Import, Input, InputFile, Kind, Options, Remark, leftovers};
use proptest::prelude::*;

use samples::{Sample, context, public_key};

fn options() -> Options {
    Options { now: UNIX_EPOCH + Duration::from_secs(1_800_000_000), keep_keys: false, fix_firewall: false }
}

fn imported(kind: Kind, input: &Input) -> Import {
    let mut import = import::read(kind, input, &context()).unwrap_or_else(|error| panic!("{}: {error}", kind.as_str()));
    if import.endpoint.is_none() {
        import.endpoint = Some("vpn.example.com".parse().unwrap());
    }
    import
}

fn file(import: &Import, options: &Options) -> String {
    let interface: InterfaceName = import.interface.parse().unwrap();
    String::from_utf8(import.to_bytes(&interface, options).unwrap().to_vec()).unwrap()
}

fn report(import: &Import, leftovers: &[leftovers::Leftover]) -> String {
    let mut text = String::new();
    let remarks = [(Remark::Taken, "taken"), (Remark::Changed, "changed"), (Remark::Dropped, "dropped")];
    let mut all = |title: &str, remarks_of: &import::Remarks| {
        let _ = writeln!(text, "{title}");
        for (remark, word) in remarks {
            for sentence in remarks_of.of(remark) {
                let _ = writeln!(text, "  {word}: {sentence}");
            }
        }
    };
    all("the server", &import.remarks);
    for client in &import.clients {
        all(&client.name, &client.remarks);
    }
    for leftover in leftovers {
        let _ = writeln!(text, "remains{}: {}", if leftover.is_nat { " (NAT)" } else { "" }, leftover.what);
        for command in &leftover.commands {
            let _ = writeln!(text, "  {command}");
        }
    }
    text
}

fn compare(path: &std::path::Path, seen: &str) {
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(path, seen).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(seen, expected, "{}", path.display());
}

#[test]
fn each_sample_is_recognised_and_becomes_the_expected_file_and_report() {
    for sample in Sample::all() {
        assert_eq!(import::recognise(&sample.input).ok(), Some(sample.kind), "{}", sample.folder.display());
        let import = imported(sample.kind, &sample.input);
        let host = sample.host();
        let host: Vec<(&str, &[u8])> = host.iter().map(|(path, bytes)| (&**path, &**bytes)).collect();
        let leftovers = leftovers::find(&import, &sample.input, &host, false);
        compare(&sample.folder.join("expected.tunnel"), &file(&import, &options()));
        compare(&sample.folder.join("expected.txt"), &report(&import, &leftovers));
    }
}

#[test]
fn the_old_files_of_clients_fit_the_new_file_of_the_server() {
    for sample in Sample::all() {
        let import = imported(sample.kind, &sample.input);
        let interface: InterfaceName = "wg0".parse().unwrap();
        let text = file(&import, &options()).replace("#~ ", "");
        let (server, _) = TunnelFile::read(&Document::parse(text.as_bytes()), &interface, &NoNames);
        let own = public_key(server.private_key.as_ref().unwrap());
        let clients = sample.clients();
        assert!(clients.len() >= 2, "{}", sample.folder.display());
        for (path, bytes) in clients {
            let (client, _) = TunnelFile::read(&Document::parse(&bytes), &interface, &NoNames);
            let Some(key) = &client.private_key else { continue };
            let peer = server.peers.iter().find(|peer| peer.public_key == public_key(key));
            let peer = peer.unwrap_or_else(|| panic!("{path}: no peer has its key"));
            assert_eq!(client.peers[0].public_key, own, "{path}");
            assert!(client.peers[0].preshared_key == peer.preshared_key, "{path}: another preshared key");
            for address in &client.addresses {
                let host = ipnet::IpNet::from(address.addr());
                assert!(peer.allowed_ips.contains(&host), "{path}: {host}");
            }
        }
    }
}

#[test]
fn keys_of_clients_are_kept_only_if_asked_for() {
    for sample in Sample::all() {
        let import = imported(sample.kind, &sample.input);
        let keys = import.clients.iter().filter_map(|client| client.private_key.as_ref());
        let keys: Vec<String> = keys.map(|key| key.to_base64().to_string()).collect();
        assert!(!keys.is_empty(), "{}", sample.folder.display());
        let (without, with) = (file(&import, &options()), file(&import, &Options { keep_keys: true, ..options() }));
        assert!(keys.iter().all(|key| !without.contains(key) && with.contains(key)));
    }
}

#[test]
fn firewalls_of_others_are_opened_only_if_asked_for() {
    for sample in Sample::all() {
        let import = imported(sample.kind, &sample.input);
        let setting = "\n#! FixFirewall = true\n";
        assert!(!file(&import, &options()).contains(setting), "{}", sample.folder.display());
        assert!(file(&import, &Options { fix_firewall: true, ..options() }).contains(setting));
    }
}

#[test]
fn no_report_has_a_secret() {
    for sample in Sample::all() {
        let import = imported(sample.kind, &sample.input);
        let text = report(&import, &leftovers::find(&import, &sample.input, &[], true));
        let secrets = import.clients.iter().flat_map(|client| [&client.private_key, &client.preshared_key]);
        for secret in secrets.flatten().chain([&import.private_key]) {
            assert!(!text.contains(&**secret.to_base64()), "{}", sample.folder.display());
        }
    }
}

fn edited(kind: &str, name: &str, edit: impl Fn(&str) -> String) -> (Kind, Input) {
    let mut sample = Sample::of(kind);
    let file = sample.input.files.iter_mut().find(|file| file.path.ends_with(name)).unwrap();
    let text = edit(std::str::from_utf8(&file.bytes).unwrap());
    file.bytes = samples::buffer(text.as_bytes());
    (sample.kind, sample.input)
}

#[test]
fn names_stay_as_people_wrote_them_and_no_two_are_alike() {
    let (kind, input) = edited("wg-easy-14", "wg0.json", |text| {
        let text = text.replace("Bob's phone", "Müller's iPhone 📱").replace("old laptop", "MÜLLER'S iPhone 📱");
        text.replace("Jürgen’s phone", "Küche\u{a0}2\u{200b}").replace("\"alice\"", "\"] [Peer] # ../x\"")
    });
    let file = file(&imported(kind, &input), &options());
    let names: Vec<&str> = file.lines().filter_map(|line| line.split_once("# Name = ")).map(|(_, name)| name).collect();
    let long = "a name that is much longer than an interface's may be";
    assert_eq!(names, ["] [Peer] # ../x", "Müller's iPhone 📱", "MÜLLER'S iPhone 📱-2", long, "Küche 2"]);
    assert!(file.contains("#! Note = MÜLLER'S iPhone 📱\n"), "{file}");
}

#[test]
fn commands_that_no_gateway_replaces_stay() {
    let without = |text: &str| {
        text.lines().filter(|line| !line.starts_with("Post")).fold(String::new(), |text, line| text + line + "\n")
    };
    let (kind, input) = edited("wg-quick", "wg0.conf", without);
    let import = imported(kind, &input);
    assert!(import.gateway.is_none());
    let file = file(&import, &options());
    assert!(file.contains("\nPreUp = sysctl -w net.ipv4.ip_forward=1\n"), "{file}");
}

fn refusal((kind, input): (Kind, Input)) -> String {
    match import::read(kind, &input, &context()) {
        Ok(_) => panic!("it was imported"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn amneziawg_and_other_databases_and_protocols_are_refused_with_words() {
    let refused =
        refusal(edited("wg-easy-15", "wg0.conf", |text| text.replace("Table = auto", "Table = auto\nJc = 7")));
    assert!(refused.contains("AmneziaWG") && refused.contains("wg0.conf:11:"), "{refused}");
    let refused = refusal(edited("wgdashboard", ".ini", |text| text.replace("type = sqlite", "type = postgresql")));
    assert!(refused.contains("postgresql") && refused.contains("wg-dashboard.ini:"), "{refused}");
    let refused = refusal(edited("pivpn", "setupVars.conf", |text| text.replace("VPN=wireguard", "VPN=openvpn")));
    assert!(refused.contains("OpenVPN"), "{refused}");
    let refused = refusal(edited("networkmanager", ".nmconnection", |text| {
        text.replace("preshared-key-flags=0", "preshared-key-flags=1").replace("preshared-key=", "x=")
    }));
    assert!(refused.contains("keyring"), "{refused}");
    let refused = refusal(edited("networkd", ".netdev", |text| {
        text.replace("PrivateKeyFile=", "PrivateKey=@network.wireguard.private.wg0\n#")
    }));
    assert!(refused.contains("credential"), "{refused}");
}

#[test]
fn a_broken_file_is_refused_with_its_place_and_without_its_secrets() {
    let refused = refusal(edited("angristan", "wg0.conf", |text| {
        text.replace("AllowedIPs = 10.66.66.3/32", "AllowedIPs = 10.66.66.3/33")
    }));
    assert!(refused.contains("wg0.conf:28:"), "{refused}");
    let refused =
        refusal(edited("angristan", "params", |text| text.replace("SERVER_PUB_IP=", "SERVER_PUB_IP=$(reboot)")));
    assert!(refused.contains("params:1: ") && refused.contains("shell"), "{refused}");
    let refused = refusal(edited("wg-easy-14", "wg0.json", |text| text.replace("\"publicKey\"", "\"publikey\"")));
    assert!(refused.contains("wg0.json:"), "{refused}");
    let refused =
        refusal(edited("wg-easy-14", "wg0.json", |text| text.replacen("\"privateKey\": \"", "\"privateKey\": \"x", 1)));
    assert!(refused.contains("wg0.json:3:") && !refused.contains("4GmJua"), "{refused}");
    let refused = refusal(edited("wireguard-ui", "keypair.json", |_| String::new()));
    assert!(refused.contains("keypair.json:") && refused.contains("whole"), "{refused}");
}

#[test]
fn a_server_of_ours_is_not_imported_again() {
    let (kind, input) = edited("angristan", "wg0.conf", |text| {
        text.replacen("[Interface]", "[Interface]\n#! PublicEndpoint = vpn.example.com", 1)
    });
    let refused = refusal((kind, input));
    assert!(refused.contains("wg0.conf:2: ") && refused.contains("already"), "{refused}");
}

#[test]
fn no_value_can_add_a_line_to_the_file() {
    let attack = |text: &str| text.replace("\"1.1.1.1\"", "\"1.1.1.1\\nPostUp = reboot\"");
    let (kind, input) = edited("wireguard-ui", "global_settings.json", attack);
    let import = imported(kind, &input);
    assert!(import.to_bytes(&"wg0".parse().unwrap(), &options()).is_err());
    // Names and notes become one line.
    let attack = |text: &str| {
        text.replace("\"name\": \"", "\"name\": \"x\\n[Peer]\\n")
            .replace("\"additional_notes\": \"", "\"additional_notes\": \"#\\n[Peer]\\n")
    };
    let mut sample = Sample::of("wireguard-ui");
    for client in
        sample.input.files.iter_mut().filter(|file| file.path.contains("/clients/") && file.path.ends_with(".json"))
    {
        client.bytes = samples::buffer(attack(std::str::from_utf8(&client.bytes).unwrap()).as_bytes());
    }
    let import = imported(sample.kind, &sample.input);
    assert_eq!(
        file(&import, &options()).lines().filter(|line| line.ends_with("[Peer]") && !line.contains("Note")).count(),
        4
    );
}

// As the image of linuxserver.io for Docker has it: clients have a port, too.
#[test]
fn a_client_that_listens_is_still_a_client() {
    let key = |byte: u8| SecretKey::from_bytes(&[byte; 32]);
    let [server, laptop, phone] = [key(8), key(16), key(24)];
    let conf = format!(
        "[Interface]\nAddress = 10.13.13.1\nListenPort = 51820\nPrivateKey = {}\n\n\
         [Peer]\n# peer_laptop\nPublicKey = {}\nAllowedIPs = 10.13.13.2/32\n\n\
         [Peer]\n# peer_phone\nPublicKey = {}\nAllowedIPs = 10.13.13.3/32\n",
        *server.to_base64(),
        public_key(&laptop),
        public_key(&phone)
    );
    let client = |key: &SecretKey, address: &str| {
        format!(
            "[Interface]\nAddress = {address}\nPrivateKey = {}\nListenPort = 51820\nDNS = 10.13.13.1\n\n\
             [Peer]\nPublicKey = {}\nEndpoint = vpn.example.com:51820\nAllowedIPs = 0.0.0.0/0, ::/0\n",
            *key.to_base64(),
            public_key(&server)
        )
    };
    let file = |path: &str, text: &str| InputFile { path: path.to_owned(), bytes: samples::buffer(text.as_bytes()) };
    let mut input = Input::default();
    // Of a client that was removed the file stays.
    input.files.push(file("peer_gone/peer_gone.conf", &client(&key(40), "10.13.13.4")));
    input.files.push(file("peer_laptop/peer_laptop.conf", &client(&laptop, "10.13.13.2")));
    input.files.push(file("peer_phone/peer_phone.conf", &client(&phone, "10.13.13.3")));
    input.files.push(file("wg_confs/wg0.conf", &conf));
    let import = import::read(Kind::WgQuick, &input, &context()).unwrap();
    let names: Vec<&str> = import.clients.iter().map(|client| client.name.as_str()).collect();
    assert_eq!((import.interface.as_str(), names), ("wg0", vec!["peer_laptop", "peer_phone"]));
    assert_eq!(import.endpoint.unwrap().to_string(), "vpn.example.com");
    // Another tunnel of the same host, to a site, is no client's.
    let of_server = public_key(&server).to_string();
    let of_site = public_key(&key(48)).to_string();
    input.files.push(file("wg1.conf", &client(&key(32), "10.99.0.1").replace(&of_server, &of_site)));
    let refused = refusal((Kind::WgQuick, input));
    assert!(refused.contains("several servers are among these (wg_confs/wg0.conf, wg1.conf)"), "{refused}");
}

#[test]
fn a_peer_is_a_client_or_a_site_by_all_its_signs_and_not_by_its_endpoint() {
    let key = |byte: u8| SecretKey::from_bytes(&[byte * 8; 32]);
    let imported = |address: &str, saves: bool, peer: &str| {
        let conf = format!(
            "[Interface]\nPrivateKey = {}\nAddress = {address}\nListenPort = 51820\n{}[Peer]\nPublicKey = {}\n{peer}\n\
             [Peer]\nPublicKey = {}\nAllowedIPs = 10.8.0.9/32\n",
            *key(1).to_base64(),
            if saves { "SaveConfig = true\n" } else { "" },
            public_key(&key(2)),
            public_key(&key(3)),
        );
        let mut input = Input::default();
        input.files.push(InputFile { path: "wg0.conf".to_owned(), bytes: samples::buffer(conf.as_bytes()) });
        let import = import::read(Kind::WgQuick, &input, &context()).unwrap();
        let client = import.clients.iter().find(|client| client.public_key == public_key(&key(2))).unwrap();
        (client.is_site, client.endpoint.is_some())
    };
    let at = "Endpoint = 192.0.2.52:63190";
    let [client, kept, site] = [(false, false), (false, true), (true, true)];
    let both = "10.8.0.1/24, fd00:8::1/64";
    for (address, saves, peer, expected) in [
        (both, true, format!("AllowedIPs = 10.8.0.2/32\n{at}"), client),
        (both, true, "AllowedIPs = fd00:8::2/128\nEndpoint = [2001:db8::7]:40001".to_owned(), client),
        (both, true, format!("AllowedIPs = 10.8.0.2/32, fd00:8::2/128\n{at}\nPersistentKeepalive = off"), client),
        (both, true, format!("AllowedIPs = 10.8.0.2/32, 10.8.0.3/32, 192.168.9.9/32\n{at}"), client),
        ("10.8.0.1", true, format!("AllowedIPs = 10.8.0.2/32\n{at}"), client),
        (both, false, format!("AllowedIPs = 10.8.0.2/32\n{at}"), kept),
        (both, true, format!("AllowedIPs = 10.8.0.2/32\n{at}\nPersistentKeepalive = 25"), site),
        (both, true, "AllowedIPs = 10.8.0.2/32\nEndpoint = office.example.com:51820".to_owned(), site),
        (both, true, format!("AllowedIPs = 10.8.0.2/32, 192.168.9.0/24\n{at}"), site),
        (both, true, format!("AllowedIPs = 10.9.0.2/32\n{at}"), site),
        (both, true, "AllowedIPs = 10.8.0.2/32\nPersistentKeepalive = 25".to_owned(), client),
        (both, true, "AllowedIPs = 10.8.0.2/32, 192.168.9.0/24".to_owned(), client),
    ] {
        assert_eq!(imported(address, saves, &peer), expected, "{address}: {peer}");
    }
}

// What `docker inspect` prints of a container is evaluated by nobody, and most of it is the image's.
#[test]
fn the_environment_of_a_container_is_taken_as_it_is() {
    let mut sample = Sample::of("wg-easy-14");
    sample.input.files.retain(|file| !file.path.ends_with(".env"));
    let environment = "PATH=/usr/local/bin:$HOME\nPASSWORD_HASH=$2a$12$I1IP8y6p2PuqfM2VAyEHSeQrCK0k5FqNGPZJ5kHtvT1gKPz3J8nXe\n\
        WG_HOST=vpn.example.com\nWG_DEFAULT_DNS=\nODD=`\"\\\nWG_CONFIG_PORT=51999\n\n";
    sample
        .input
        .files
        .push(InputFile { path: "wg-easy.env".to_owned(), bytes: samples::buffer(environment.as_bytes()) });
    let import = imported(sample.kind, &sample.input);
    assert_eq!(import.endpoint.as_ref().unwrap().to_string(), "vpn.example.com:51999");
    assert_eq!((import.client_dns.len(), import.clients.len()), (0, 5));
}

#[test]
fn amneziawg_is_refused_in_every_form_of_a_state() {
    let refused = |(kind, input): (Kind, Input), place: &str| {
        let refused = refusal((kind, input));
        assert!(refused.contains("AmneziaWG") && refused.contains(place), "{}: {refused}", kind.as_str());
    };
    let settings = "\"jc\": 4, \"jmin\": 50, \"s1\": 86, \"h1\": 1457645871, ";
    let in_server = |text: &str| text.replacen("\"privateKey\"", &format!("{settings}\"privateKey\""), 1);
    refused(edited("wg-easy-14", "wg0.json", in_server), "wg0.json");
    let of_fork = |text: &str| text.replace("LANG=en", "JC=4\nJMIN=50");
    refused(edited("wg-easy-14", "wg-easy.env", of_fork), "wg-easy.env:2");
    let in_interface = |text: &str| text.replacen('{', &format!("{{{settings}"), 1);
    refused(edited("wireguard-ui", "interfaces.json", in_interface), "interfaces.json");
    let long = |text: &str| text.replacen('{', "{\"initPacketMagicHeader\": \"1457645871\", ", 1);
    refused(edited("wireguard-ui", "global_settings.json", long), "global_settings.json");
    for kind in ["angristan", "hwdsl2", "pivpn", "wg-quick", "wgdashboard", "wireguard-ui", "wg-easy-14", "wg-easy-15"]
    {
        let in_conf = |text: &str| text.replacen("[Interface]", "[Interface]\njc=4", 1);
        refused(edited(kind, "wg0.conf", in_conf), "wg0.conf:");
    }
    refused(edited("networkd", ".netdev", |text| text.replace("[WireGuard]", "[WireGuard]\nJc=4")), ".netdev:");
    refused(edited("networkmanager", ".nmconnection", |text| text.replace("[wireguard]", "[wireguard]\njc=4")), ":");
    refused(edited("angristan", "params", |text| format!("{text}SERVER_AWG_JC=4\n")), "params:");
    let mut sample = Sample::of("wgdashboard");
    let table = sample.input.tables.iter_mut().find(|table| table.name == "wg0").unwrap();
    let rows = String::from_utf8(table.rows.to_vec()).unwrap().replacen('{', "{\"advanced_security\":\"on\",", 1);
    table.rows = samples::buffer(rows.as_bytes());
    refused((sample.kind, sample.input), "wg0");
    // Each database of wg-easy 15 has the columns; its file says whether they count.
    let mut sample = Sample::of("wg-easy-15");
    sample.input.files.retain(|file| !file.path.ends_with(".conf"));
    refused((sample.kind, sample.input), "sample.db");
    let off = |text: &str| text.replacen("\"privateKey\"", "\"jc\": 0, \"s1\": \"\", \"h1\": null, \"privateKey\"", 1);
    let (kind, input) = edited("wg-easy-14", "wg0.json", off);
    assert_eq!(imported(kind, &input).clients.len(), 5);
}

/// A state is refused by the name of its file, whatever it is damaged to, and never taken for another tool's.
#[test]
fn a_damaged_state_is_refused_with_its_file() {
    let states = [
        ("wg-easy-14", "wg0.json"),
        ("wg-easy-14", "wg0.conf"),
        ("wg-easy-14", "wg-easy.env"),
        ("wireguard-ui", "keypair.json"),
        ("wireguard-ui", "interfaces.json"),
        ("wireguard-ui", "global_settings.json"),
        ("wireguard-ui", "dc1ud41ksdudemp8e921.json"),
        ("wgdashboard", "wg-dashboard.ini"),
        ("wgdashboard", "wg0.conf"),
        ("pivpn", "setupVars.conf"),
        ("pivpn", "wg0.conf"),
        ("pivpn", "alice_priv"),
        ("angristan", "params"),
        ("angristan", "wg0.conf"),
        ("hwdsl2", "wg0.conf"),
        ("wg-quick", "wg0.conf"),
        ("wg-easy-15", "wg0.conf"),
        ("networkd", ".netdev"),
        ("networkd", "wg0.key"),
        ("networkmanager", ".nmconnection"),
    ];
    for (kind, name) in states {
        let damages: [&dyn Fn(&str) -> String; 3] =
            [&|_| String::new(), &|_| " \n\t\n".to_owned(), &|text| "\0".repeat(text.len())];
        for damage in damages {
            let (kind, input) = edited(kind, name, damage);
            let refused = match import::recognise(&input) {
                Ok(seen) => {
                    assert_eq!(seen, kind, "{name}");
                    refusal((seen, input))
                }
                Err(error) => error.to_string(),
            };
            assert!(refused.contains(name), "{}: {refused}", kind.as_str());
        }
    }
    let wrong =
        ["", "{", "[]", "{}", "null", "\"x\"", "{\"server\": {}, \"clients\": {}}", "{\"server\": 1, \"clients\": []}"];
    for content in wrong {
        for (kind, name) in states.iter().filter(|(_, name)| name.ends_with(".json")) {
            let (kind, input) = edited(kind, name, |_| content.to_owned());
            let refused = match import::recognise(&input) {
                Ok(seen) => {
                    assert_eq!(seen, kind, "{name}");
                    // What has no field that is required is empty settings.
                    match import::read(seen, &input, &context()) {
                        Ok(_) => continue,
                        Err(error) => error.to_string(),
                    }
                }
                Err(error) => error.to_string(),
            };
            assert!(refused.contains(name), "{} {content}: {refused}", kind.as_str());
        }
    }
}

#[test]
fn every_truncation_of_a_json_state_is_refused() {
    for (kind, name) in [("wg-easy-14", "wg0.json"), ("wireguard-ui", "interfaces.json")] {
        let sample = Sample::of(kind);
        let whole = sample.input.files.iter().find(|file| file.path.ends_with(name)).unwrap().bytes.trim_ascii().len();
        for length in (0..whole).step_by(7) {
            let (_, input) = edited(kind, name, |text| text[..length].to_owned());
            let refused = import::recognise(&input).unwrap_err().to_string();
            assert!(refused.contains(name), "{length}: {refused}");
        }
    }
}

// A backup or a copy without the state: what wg-easy writes for wg-quick has no names, and none of who is disabled.
#[test]
fn a_tools_own_file_without_its_state_is_not_taken_for_all_there_is() {
    for (kind, kept) in [("wg-easy-14", "wg0.json"), ("wireguard-ui", "keypair.json")] {
        let mut sample = Sample::of(kind);
        sample.input.files.retain(|file| file.path.ends_with("wg0.conf"));
        assert_eq!(import::recognise(&sample.input).ok(), Some(sample.kind), "{kind}");
        let refused = refusal((sample.kind, sample.input));
        assert!(refused.contains(kept), "{refused}");
    }
    // It is if that is said.
    let mut sample = Sample::of("wg-easy-14");
    sample.input.files.retain(|file| !file.path.ends_with(".env"));
    let state = sample.input.files.iter_mut().find(|file| file.path.ends_with("wg0.json")).unwrap();
    state.bytes = samples::buffer(b"");
    assert_eq!(imported(Kind::WgQuick, &sample.input).clients.len(), 4);
}

/// What is imported of the sample of wg-quick with these hooks.
fn with_hooks(hooks: &[&str]) -> Import {
    let (kind, input) = of_hooks(hooks);
    imported(kind, &input)
}

fn of_hooks(hooks: &[&str]) -> (Kind, Input) {
    edited("wg-quick", "wg0.conf", |text| {
        let others = text.lines().filter(|line| !line.starts_with("Post") && !line.starts_with("Pre"));
        let text = others.fold(String::new(), |text, line| text + line + "\n");
        let hooks = hooks.iter().map(|hook| format!("PostUp = {hook}\n")).collect::<String>();
        text.replacen("[Interface]\n", &format!("[Interface]\n{hooks}"), 1)
    })
}

#[test]
fn rules_are_taken_over_all_or_none() {
    let masquerade = "iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE";
    let forward = "iptables -A FORWARD -i wg0 -j ACCEPT; iptables -A FORWARD -o wg0 -j ACCEPT";
    assert!(with_hooks(&[masquerade, forward]).hooks.is_empty());
    let narrow = [
        "iptables -t nat -A POSTROUTING -s 10.20.0.2/32 -o eth0 -j MASQUERADE",
        "iptables -t nat -A POSTROUTING -s 10.20.0.2 -o eth0 -j MASQUERADE",
        "iptables -A FORWARD -i wg0 -s 10.20.0.2/32 -j ACCEPT; iptables -A FORWARD -i wg0 -j REJECT",
        "iptables -A FORWARD -i wg0 -s 10.20.0.2 -j ACCEPT",
        "iptables -I FORWARD -i wg0 ! -s 10.20.0.2 -j DROP",
        "iptables -A FORWARD -i wg0 -d 192.168.1.0/24 -j REJECT --reject-with icmp-net-prohibited",
        "iptables -A FORWARD -i wg0 -m mac --mac-source 00:00:00:00:00:01 -j ACCEPT",
        "ip6tables -A FORWARD -i wg0 -s fd20:1::2 -j ACCEPT",
        "nft insert rule inet filter forward iifname wg0 ip saddr 10.20.0.3 drop",
        "/etc/wireguard/up.sh wg0",
    ];
    for rule in narrow {
        for hooks in [[masquerade, forward, rule], [rule, forward, masquerade]] {
            let import = with_hooks(&hooks);
            assert!(import.gateway.is_none() && import.masquerade == [false; 2], "{rule}");
            assert_eq!(import.hooks.iter().map(|(_, hook)| &**hook).collect::<Vec<_>>(), hooks);
            assert!(import.remarks.of(Remark::Changed).any(|what| what.contains("Destinations")), "{rule}");
        }
    }
    // What only lets more in beside them stays for itself.
    let port = "iptables -t nat -A PREROUTING -i eth0 -p tcp --dport 8080 -j DNAT --to-destination 10.20.0.2";
    let import = with_hooks(&[masquerade, forward, port]);
    assert_eq!((import.hooks.len(), import.gateway), (1, Some(vec!["eth0".to_owned()])));
}

/// The host has a LAN, and its FORWARD chain is open or closed.
#[test]
fn a_gateway_has_the_interfaces_that_clients_reached() {
    let (uplinks, networks) = (["eth0".to_owned()], ["eth1".to_owned(), "docker0".to_owned()]);
    let masquerade = "iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE";
    let replies = "iptables -A FORWARD -o wg0 -m state --state RELATED,ESTABLISHED -j ACCEPT";
    let all = "eth0 eth1 docker0";
    let cases: [(bool, &[&str], &str, bool); 8] = [
        (false, &[masquerade], all, false),
        (false, &["iptables -A FORWARD -i wg0 -o eth0 -j ACCEPT", masquerade], all, false),
        (false, &["iptables -A FORWARD -i wg0 -j ACCEPT"], all, false),
        (true, &["iptables -A FORWARD -i wg0 -j ACCEPT", masquerade], all, false),
        (true, &["iptables -A FORWARD -i wg0 -o eth1 -j ACCEPT", replies], "eth1", true),
        (true, &["iptables -A FORWARD -i wg0 -o eth1 -j ACCEPT", masquerade], "eth1", true),
        (
            true,
            &["iptables -A FORWARD -i wg0 -o eth1 -j ACCEPT; iptables -A FORWARD -i wg0 -o wg0 -j ACCEPT"],
            "eth1",
            false,
        ),
        (true, &[replies, masquerade], "eth0", true),
    ];
    for (forward_is_closed, hooks, gateway, isolated) in cases {
        let (_, input) = of_hooks(hooks);
        let context = Context { forward_is_closed, uplinks: &uplinks, networks: &networks, ..context() };
        let import = import::read(Kind::WgQuick, &input, &context).unwrap();
        assert_eq!((import.gateway.unwrap().join(" "), import.isolated), (gateway.to_owned(), isolated), "{hooks:?}");
    }
    // The rules of a container name the container's interfaces, not the host's.
    let sample = Sample::of("wg-easy-14");
    let context = Context { forward_is_closed: true, uplinks: &uplinks, networks: &networks, ..context() };
    let import = import::read(sample.kind, &sample.input, &context).unwrap();
    assert_eq!((import.gateway.unwrap().join(" "), import.isolated), (all.to_owned(), false));
}

#[test]
fn keys_that_commands_set_from_files_are_taken() {
    let sample = Sample::of("wg-quick");
    let conf = sample.input.files.iter().find(|file| file.path.ends_with("wg0.conf")).unwrap();
    let text = String::from_utf8(conf.bytes.to_vec()).unwrap();
    let key = text.lines().find_map(|line| line.strip_prefix("PrivateKey = ")).unwrap();
    let by_command = text.replace(
        &format!("PrivateKey = {key}"),
        "PostUp = wg set %i private-key /etc/wireguard/%i.key && wg set %i fwmark 7",
    );
    let mut input = Input::default();
    input.files.push(InputFile { path: "wg0.conf".to_owned(), bytes: samples::buffer(by_command.as_bytes()) });
    assert_eq!(input.missing_key_files(), ["/etc/wireguard/wg0.key"]);
    assert!(import::read(Kind::WgQuick, &input, &context()).is_err());
    input.files.push(InputFile { path: "/etc/wireguard/wg0.key".to_owned(), bytes: samples::buffer(key.as_bytes()) });
    assert!(input.missing_key_files().is_empty());
    let import = imported(Kind::WgQuick, &input);
    let file = file(&import, &options());
    assert!(file.contains("\n#! PrivateKeyFile = /etc/wireguard/wg0.key\n") && !file.contains(key), "{file}");
    assert!(file.contains("\nPostUp = wg set %i fwmark 7\n"), "{file}");
}

#[test]
fn an_address_without_a_length_gets_a_pool_from_the_clients() {
    let imported = |address: &str, edit: &dyn Fn(&str) -> String| {
        let (kind, input) = edited("wg-quick", "wg0.conf", |text| {
            edit(text).replacen("Address = 10.20.0.1/24, fd20:1::1/64", &format!("Address = {address}"), 1)
        });
        imported(kind, &input)
    };
    let pool = |import: &Import| import.pool.iter().map(ToString::to_string).collect::<Vec<_>>();
    let same = |text: &str| text.to_owned();
    let both = imported("10.20.0.1, fd20:1::1", &same);
    assert_eq!(pool(&both), ["10.20.0.0/24", "fd20:1::/64"]);
    assert!(file(&both, &options()).contains("\n#! Pool = 10.20.0.0/24, fd20:1::/64\n"));
    assert_eq!(pool(&imported("10.20.0.1/32, fd20:1::1/64", &same)), ["10.20.0.0/24", "fd20:1::/64"]);
    assert_eq!(pool(&imported("10.20.0.1/31", &same)), ["10.20.0.0/24"]);
    assert_eq!(pool(&imported("10.20.0.1/24, fd20:1::1/64", &same)), [""; 0]);
    let wide = |text: &str| text.replace("10.20.0.3/32", "10.20.9.3/32");
    assert_eq!(pool(&imported("10.20.0.1", &wide)), ["10.20.0.0/20"]);
    let far = |text: &str| text.replace("10.20.0.3/32", "192.168.9.3/32");
    let import = imported("10.20.0.1", &far);
    assert_eq!(pool(&import), [""; 0]);
    assert!(import.remarks.of(Remark::Changed).any(|what| what.contains("server set --pool")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Truncated, with a byte changed, or with a part repeated: each sample is imported or refused, and what is
    /// written can be read.
    #[test]
    fn a_damaged_sample_is_imported_or_refused(
        which in any::<prop::sample::Index>(),
        part in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        change in 0..4,
        byte: u8,
    ) {
        let mut all = Sample::all();
        let mut sample = all.swap_remove(which.index(all.len()));
        let input = &mut sample.input;
        let (files, tables) = (input.files.len(), input.tables.len());
        let part = part.index(files + tables);
        let bytes = if part < files { &mut input.files[part].bytes } else { &mut input.tables[part - files].rows };
        let mut damaged = bytes.to_vec();
        let at = at.index(damaged.len());
        match change {
            0 => damaged.truncate(at),
            1 => damaged[at] = byte,
            2 => damaged.insert(at, byte),
            _ => damaged.extend_from_within(at..),
        }
        *bytes = samples::buffer(&damaged);
        let seen = import::recognise(input).ok();
        for kind in [Some(sample.kind), seen].into_iter().flatten() {
            match import::read(kind, input, &context()) {
                Ok(import) => {
                    let names = import.clients.iter().map(|client| client.name.to_lowercase());
                    let names: HashSet<_> = names.collect();
                    prop_assert_eq!(names.len(), import.clients.len());
                    if let Ok(bytes) = import.to_bytes(&"wg0".parse().unwrap(), &options()) {
                        prop_assert!(std::str::from_utf8(&bytes).is_ok());
                    }
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}

/// What is found of a file or a rule of the host beside the sample of hwdsl2, whose pool is 10.7.0.0/24.
fn found(path: &str, content: &str) -> Vec<leftovers::Leftover> {
    let sample = Sample::of("hwdsl2");
    let import = imported(sample.kind, &sample.input);
    leftovers::find(&import, &sample.input, &[(path, content.as_bytes())], false)
}

#[test]
fn rules_that_translate_the_tunnels_addresses_are_found_with_the_commands_that_remove_them() {
    let rules = "*nat\n:POSTROUTING ACCEPT [0:0]\n\
        -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE\n\
        -A POSTROUTING -s 10.7.0.0/24 ! -d 10.7.0.0/24 -j MASQUERADE\nCOMMIT\n";
    let live = found(leftovers::SAVED_IPV4, rules);
    let delete = "iptables -t nat -D POSTROUTING -s 10.7.0.0/24 ! -d 10.7.0.0/24 -j MASQUERADE";
    assert_eq!((live.len(), live[0].is_nat, &*live[0].commands), (1, true, &[delete.to_owned()][..]));
    assert!(found("/etc/iptables/rules.v4", rules)[0].is_nat);
    let direct = "<direct>\n  <rule ipv=\"ipv4\" table=\"nat\" chain=\"POSTROUTING\" priority=\"0\">\
        -s 10.7.0.0/24 '!' -d 10.7.0.0/24 -j MASQUERADE</rule>\n</direct>\n";
    let direct = found("/etc/firewalld/direct.xml", direct);
    let remove = "--direct --remove-rule ipv4 nat POSTROUTING 0 -s 10.7.0.0/24 '!' -d 10.7.0.0/24 -j MASQUERADE";
    let expected = [format!("firewall-cmd {remove}"), format!("firewall-cmd --permanent {remove}")];
    assert_eq!(direct[0].commands, expected);
    // The rules of Nyr's script translate to a fixed address.
    let rule = "POSTROUTING -s 10.7.0.0/24 ! -d 10.7.0.0/24 -j SNAT --to-source 198.51.100.7";
    let live = found(leftovers::SAVED_IPV4, &format!("-A {rule}\n"));
    assert_eq!((live[0].is_nat, &*live[0].commands), (true, &[format!("iptables -t nat -D {rule}")][..]));
    let unit = found(
        "/etc/systemd/system/wg-iptables.service",
        "ExecStart=iptables -t nat -A POSTROUTING -s 10.7.0.0/24 ! -d 10.7.0.0/24 -j SNAT --to 198.51.100.7\n",
    );
    assert!(unit[0].is_nat && unit[0].what.contains(" to 198.51.100.7;"), "{}", unit[0].what);
    let direct = "<rule ipv=\"ipv4\" table=\"nat\" chain=\"POSTROUTING\" priority=\"0\">-s 10.7.0.0/24 '!' -d 10.7.0.0/24 -j SNAT --to 198.51.100.7</rule>";
    assert!(found("/etc/firewalld/direct.xml", direct)[0].commands[0].ends_with("-j SNAT --to 198.51.100.7"));
    let ufw = "-I POSTROUTING -s 10.7.0.0/24 -o eth0 -j MASQUERADE -m comment --comment wireguard-nat-rule\n";
    assert!(found("/etc/ufw/before.rules", ufw)[0].is_nat);
}

#[test]
fn rules_of_others_are_not_found() {
    let docker = "-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE\n";
    let none = [
        (leftovers::SAVED_IPV4, docker),
        ("/etc/iptables/rules.v4", docker),
        ("/etc/firewalld/direct.xml", "<direct/>"),
        ("/etc/ufw/before.rules", "*filter\nCOMMIT\n"),
        ("/etc/rc.local", "#!/bin/sh\n# systemctl restart wg-iptables.service\nexit 0\n"),
        (
            "/etc/systemd/system/wg-iptables.service",
            "ExecStart=iptables -t nat -A POSTROUTING -s 10.9.0.0/24 -j MASQUERADE",
        ),
    ];
    for (path, content) in none {
        assert_eq!(found(path, content), [], "{path}");
    }
}
