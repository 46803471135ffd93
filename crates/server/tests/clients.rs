//! Clients in a tunnel's file: what each change does to the bytes, and what a client's own file says.

use jiff::Timestamp;
use linerate_control::document::Document;
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::{NoNames, TunnelFile, strip};
use linerate_server::{
    Client, ClientName, NewClient, NoClientFile, PRIVATE, Properties, Refusal, Roster, State, client_file, without,
};
use proptest::prelude::*;

const SERVER: &str = "# The office\n[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIkIUGAHfBmk=\n\
    Address = 10.71.8.1/24, fd12::1/64\nListenPort = 51820\n#! PublicEndpoint = vpn.example.com\n\n\
    # Site to site\n[Peer]\n# Name = Branch\nPublicKey = aYdQoJuTQzd0bwlzRIFn82TK4TLi+LMnrkkT5bVEUCk=\n\
    AllowedIPs = 10.71.8.2/32, 192.168.5.0/24\n";

const NOW: i64 = 1_900_000_000;

#[test]
fn a_client_that_is_added_has_the_lowest_addresses_that_nobody_has() {
    let mut roster = read(SERVER);
    add(&mut roster, "laptop", 1).unwrap();
    let expected = format!(
        "{SERVER}\n[Peer]\n# Name = laptop\n#! Created = 2030-03-17T17:46:40Z\nPublicKey = {}\nPresharedKey = {}\n\
         AllowedIPs = 10.71.8.3/32, fd12::3/128\n",
        key(1),
        &**SecretKey::from_bytes(&[1; 32]).to_base64()
    );
    assert_eq!(text(&roster), expected);
    // Read again, it is the same.
    let roster = read(&expected);
    let client = roster.client("LAPTOP").unwrap();
    assert_eq!((client.state, client.peer.allowed_ips.len()), (State::Enabled, 2));
}

#[test]
fn names_and_keys_are_there_once() {
    let mut roster = read(SERVER);
    add(&mut roster, "laptop", 1).unwrap();
    assert!(matches!(add(&mut roster, "Laptop", 2), Err(Refusal::NameTaken(..))));
    assert!(matches!(add(&mut roster, "phone", 1), Err(Refusal::KeyTaken(_))));
    roster.rekey("laptop", key(7), None, None).unwrap();
    let mut roster = read(&text(&roster));
    assert!(matches!(add(&mut roster, "phone", 7), Err(Refusal::KeyTaken(_))));
    // A peer that is not a client is not touched.
    let error = roster.disable("branch", now(NOW)).unwrap_err().to_string();
    assert!(error.contains("not made by `linerate client add`"), "{error}");
}

#[test]
fn a_disabled_client_is_a_comment_to_everybody_else_and_keeps_its_addresses() {
    let mut roster = read(SERVER);
    add(&mut roster, "laptop", 1).unwrap();
    let before = text(&roster);
    roster.disable("laptop", now(NOW)).unwrap();
    let disabled = text(&roster);
    let lines: Vec<&str> = disabled.lines().skip(SERVER.lines().count() + 1).collect();
    assert_eq!(lines[..2], ["#~ [Peer]", "#~ #! Disabled = 2030-03-17T17:46:40Z"]);
    assert!(lines.iter().all(|line| line.starts_with("#~ ")), "{lines:?}");
    let stripped = String::from_utf8(strip(&Document::parse(disabled.as_bytes())).unwrap().to_vec()).unwrap();
    assert_eq!(stripped.lines().filter(|line| line.starts_with("[Peer]")).count(), 1);

    let mut roster = read(&disabled);
    assert_eq!(roster.client("laptop").unwrap().state, State::Disabled);
    let phone = add(&mut roster, "phone", 2).unwrap();
    assert_eq!(phone.peer.allowed_ips[0].to_string(), "10.71.8.4/32");
    roster.remove(&["phone".into()], now(NOW)).unwrap();
    let mut roster = read(&before);
    roster.disable("laptop", now(NOW)).unwrap();
    let mut roster = read(&text(&roster));
    roster.enable("laptop").unwrap();
    assert_eq!(text(&roster), before);
}

#[test]
fn only_renewing_lets_an_expired_client_in_again_whatever_the_clock_says() {
    let mut roster = read(SERVER);
    add(&mut roster, "laptop", 1).unwrap();
    roster.set("laptop", &Properties { expires: Some(Some(now(NOW + 100))), ..Properties::default() }).unwrap();
    let file = text(&roster);
    assert_eq!(read_at(&file, NOW + 99).client("laptop").unwrap().state, State::Enabled);
    let mut roster = read_at(&file, NOW + 100);
    assert_eq!(roster.client("laptop").unwrap().state, State::Expired);
    assert_eq!(roster.expire(now(NOW + 100)).unwrap().len(), 1);

    let latched = text(&roster);
    let mut roster = read_at(&latched, NOW);
    assert_eq!(roster.client("laptop").unwrap().state, State::Expired);
    assert_eq!(roster.expire(now(NOW + 200)).unwrap(), []);
    let error = roster.enable("laptop").unwrap_err().to_string();
    assert!(error.contains("`linerate client renew laptop`"), "{error}");
    assert_eq!(text(&roster), latched);
    roster.renew("laptop", Some(now(NOW + 500))).unwrap();
    let renewed = text(&roster);
    assert_eq!(renewed, file.replace(&now(NOW + 100).to_string(), &now(NOW + 500).to_string()));
    assert_eq!(read(&renewed).client("laptop").unwrap().state, State::Enabled);
}

#[test]
fn a_disabled_client_that_expired_is_still_disabled_when_it_is_renewed() {
    let mut roster = read(SERVER);
    add(&mut roster, "laptop", 1).unwrap();
    roster.set("laptop", &Properties { expires: Some(Some(now(NOW + 100))), ..Properties::default() }).unwrap();
    let mut roster = read(&text(&roster));
    roster.disable("laptop", now(NOW)).unwrap();
    let mut roster = read_at(&text(&roster), NOW + 100);
    roster.expire(now(NOW + 100)).unwrap();
    let mut roster = read(&text(&roster));
    roster.renew("laptop", None).unwrap();
    let mut roster = read(&text(&roster));
    assert_eq!(roster.client("laptop").unwrap().state, State::Disabled);
    roster.enable("laptop").unwrap();
    assert_eq!(read(&text(&roster)).client("laptop").unwrap().state, State::Enabled);
}

#[test]
fn addresses_of_a_removed_client_are_kept_back_for_a_day() {
    let mut roster = read(SERVER);
    add(&mut roster, "laptop", 1).unwrap();
    add(&mut roster, "phone", 2).unwrap();
    let mut roster = read(&text(&roster));
    roster.remove(&["laptop".into(), "phone".into(), "LAPTOP".into()], now(NOW)).unwrap();
    let removed = text(&roster);
    let released = "#! Released = 2030-03-17T17:46:40Z 10.71.8.3, fd12::3, 10.71.8.4, fd12::4\n";
    let endpoint = "#! PublicEndpoint = vpn.example.com\n";
    assert_eq!(removed, SERVER.replace(endpoint, &format!("{endpoint}{released}")));
    let next = |second| {
        let mut roster = read_at(&removed, second);
        let new = new("tablet", 3);
        roster.add(&new, now(second)).unwrap().peer.allowed_ips[0].to_string()
    };
    assert_eq!([next(NOW + 86_399), next(NOW + 86_400)], ["10.71.8.5/32", "10.71.8.3/32"]);
    // The line goes with the next removal.
    let mut roster = read(&removed);
    add(&mut roster, "tablet", 3).unwrap();
    let mut roster = read(&text(&roster));
    roster.remove(&["tablet".into()], now(NOW + 86_400)).unwrap();
    assert!(!text(&roster).contains(released));
}

#[test]
fn a_name_that_is_unknown_removes_nobody() {
    let mut roster = read(SERVER);
    add(&mut roster, "laptop", 1).unwrap();
    let before = text(&roster);
    let mut roster = read(&before);
    roster.remove(&["laptop".into(), "phone".into()], now(NOW)).unwrap_err();
    assert_eq!(text(&roster), before);
}

#[test]
fn a_client_is_renamed_and_described_while_it_is_disabled() {
    let mut roster = read(SERVER);
    add(&mut roster, "laptop", 1).unwrap();
    roster.disable("laptop", now(NOW)).unwrap();
    let mut roster = read(&text(&roster));
    roster.rename("laptop", &"Desk".parse().unwrap()).unwrap();
    roster.set("desk", &Properties { note: Some("at the window # 3".into()), ..Properties::default() }).unwrap();
    let roster = read(&text(&roster));
    let client = roster.client("desk").unwrap();
    assert_eq!((client.state, client.peer.client.note.as_deref()), (State::Disabled, Some("at the window # 3")));
    let mut roster = read(&text(&roster));
    let note = Properties { note: Some("two\nlines".into()), ..Properties::default() };
    assert!(matches!(roster.set("desk", &note), Err(Refusal::Value("Note", _))));
}

#[test]
fn a_client_without_a_name_of_its_own_is_an_error_with_its_line() {
    for (name, message) in
        [("", "has no name"), ("# Name = a\u{200b}b\n", "not a client's name"), ("# Name = x\n", "already")]
    {
        let client = |name: &str, byte| {
            format!("\n[Peer]\n{name}#! Created = 2030-01-01T00:00:00Z\nPublicKey = {}\n", key(byte))
        };
        let file = format!("{SERVER}{}{}", client("# Name = X\n", 1), client(name, 2));
        let error = Roster::read(Document::parse(file.as_bytes()), &wg0(), &NoNames, now(NOW)).err().unwrap();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn a_clients_file_has_what_every_app_takes() {
    let mut roster = read(&SERVER.replace("ListenPort", "#! ClientDNS = 10.71.8.1\n#! ClientMTU = 1280\nListenPort"));
    add(&mut roster, "laptop", 1).unwrap();
    let client = roster.client("laptop").unwrap();
    let private = SecretKey::from_bytes(&[9; 32]);
    let file = exported(&roster, client, Some(&private)).unwrap();
    let expected = format!(
        "[Interface]\n# Name = laptop\nPrivateKey = {}\nAddress = 10.71.8.3/32, fd12::3/128\nDNS = 10.71.8.1\n\
         MTU = 1280\n\n[Peer]\nPublicKey = {}\nPresharedKey = {}\nAllowedIPs = 0.0.0.0/0, ::/0\n\
         Endpoint = vpn.example.com:51820\nPersistentKeepalive = 25\n",
        &**private.to_base64(),
        key(8),
        &**SecretKey::from_bytes(&[1; 32]).to_base64()
    );
    assert_eq!(file, expected);
    let (_, diagnostics) = TunnelFile::read(&Document::parse(file.as_bytes()), &wg0(), &NoNames);
    assert_eq!(diagnostics, []);
    let without_key = exported(&roster, client, None).unwrap();
    assert!(without_key.contains("\n# PrivateKey = ") && !without_key.contains("\nPrivateKey"));
}

#[test]
fn networks_behind_a_client_are_not_its_addresses() {
    let mut roster = read(SERVER);
    add(&mut roster, "router", 1).unwrap();
    let with_network = text(&roster).replace("10.71.8.3/32, fd12::3/128", "10.71.8.3/32, 192.168.7.0/24, fd07::/64");
    let roster = read(&with_network);
    let file = exported(&roster, roster.client("router").unwrap(), None).unwrap();
    assert!(file.contains("\nAddress = 10.71.8.3/32\n"), "{file}");
    assert!(file.contains("\nAllowedIPs = 0.0.0.0/0\n"), "{file}");
}

#[test]
fn another_time_to_expire_does_not_let_an_expired_client_in() {
    let mut roster = read(SERVER);
    add(&mut roster, "guest", 1).unwrap();
    let until = |second: i64| Properties { expires: Some(Some(now(second))), ..Properties::default() };
    roster.set("guest", &until(NOW + 10)).unwrap();
    let mut roster = read_at(&text(&roster), NOW + 10);
    let error = roster.set("guest", &until(NOW + 20)).unwrap_err().to_string();
    assert!(error.contains("`linerate client renew guest`"), "{error}");
    // What has nothing to do with it may be changed.
    roster.set("guest", &Properties { note: Some("a guest".to_owned()), ..Properties::default() }).unwrap();
}

#[test]
fn a_server_that_clients_cannot_find_gives_no_files() {
    for (missing, error) in [("#! Public", NoClientFile::NoEndpoint), ("Listen", NoClientFile::NoPort)] {
        let lines = SERVER.lines().filter(|line| !line.starts_with(missing)).map(|line| format!("{line}\n"));
        let mut roster = read(&lines.collect::<String>());
        add(&mut roster, "laptop", 1).unwrap();
        assert_eq!(exported(&roster, roster.client("laptop").unwrap(), None).unwrap_err(), error);
    }
}

#[test]
fn everything_but_private_networks_is_a_list_of_the_known_length() {
    let holes = PRIVATE.map(|net| net.parse().unwrap());
    let lengths = ["0.0.0.0/0", "::/0"].map(|net| without(net.parse().unwrap(), &holes).len());
    assert_eq!(lengths, [31, 8]);
}

proptest! {
    #[test]
    fn any_changes_leave_a_file_that_reads_and_no_address_to_two_clients(
        steps in prop::collection::vec((0u8..9, 0u8..6), 0..40)
    ) {
        let mut file = SERVER.to_owned();
        for (at, (step, who)) in (NOW..).step_by(40_000).zip(steps) {
            let mut roster = read_at(&file, at);
            let name = format!("c{who}");
            let later = now(at + 50_000);
            let outcome = match step {
                0..=2 => roster.add(&new(&name, (at / 40_000 % 251) as u8 + 1), now(at)).map(drop),
                3 => roster.disable(&name, now(at)),
                4 => roster.enable(&name),
                5 => roster.renew(&name, Some(later)),
                6 => roster.rename(&name, &format!("c{}", (who + 1) % 6).parse().unwrap()),
                7 => roster.expire(now(at)).map(drop),
                _ => roster.remove(&[name], now(at)),
            };
            if outcome.is_ok() {
                file = text(&roster);
            }
            let roster = read_at(&file, at);
            let addresses = roster.clients().iter().flat_map(|client| &client.peer.allowed_ips);
            let mut addresses: Vec<String> = addresses.map(ToString::to_string).collect();
            let count = addresses.len();
            addresses.sort();
            addresses.dedup();
            prop_assert_eq!(count, addresses.len());
            prop_assert_eq!(count, roster.clients().len() * 2);
            // What is not about clients is as it was.
            let rest = file.lines().take_while(|line| !line.contains("Created")).filter(|line| !line.starts_with("#! Released"));
            let rest: Vec<&str> = rest.take(SERVER.lines().count()).collect();
            prop_assert_eq!(rest, SERVER.lines().collect::<Vec<_>>());
        }
    }
}

proptest! {
    #[test]
    fn any_name_is_read_back_and_nothing_else_of_the_file_depends_on_it(text in any_text()) {
        let Ok(name) = text.parse::<ClientName>() else { return Ok(()) };
        let other = if name.as_str() == "x" { "y" } else { "x" };
        let mut plain = read(SERVER);
        add(&mut plain, other, 1).unwrap();
        let mut roster = read(SERVER);
        let added = add(&mut roster, name.as_str(), 1).unwrap().clone();
        let written = self::text(&roster);
        let line = |name: &str| format!("# Name = {name}\n");
        prop_assert_eq!(&written, &self::text(&plain).replace(&line(other), &line(name.as_str())));
        prop_assert_eq!(stripped(&written), stripped(&self::text(&plain)));
        let mut again = read(&written);
        prop_assert_eq!(again.clients().len(), 1);
        for known in [name.as_str(), &added.file_name, &name.as_str().to_uppercase()] {
            let client = again.client(known).unwrap();
            prop_assert_eq!((&client.name, &client.file_name), (&name, &added.file_name));
        }
        plain.rename(other, &name).unwrap();
        prop_assert_eq!(self::text(&plain), written);
        again.disable(name.as_str(), now(NOW)).unwrap();
        prop_assert_eq!(stripped(&self::text(&again)), stripped(SERVER));
        let file = exported(&roster, roster.client(&text).unwrap(), None).unwrap();
        let (read, diagnostics) = TunnelFile::read(&Document::parse(file.as_bytes()), &wg0(), &NoNames);
        prop_assert_eq!((read.peers.len(), read.peers[0].name.as_deref()), (1, None));
        prop_assert!(diagnostics.iter().all(|found| !found.message.contains("unknown")), "{:?}", diagnostics);
    }

    #[test]
    fn files_of_clients_have_safe_names_of_their_own_that_stay(texts in prop::collection::vec(any_text(), 1..30)) {
        let mut roster = read(SERVER);
        let mut names = std::collections::BTreeMap::new();
        for (byte, name) in (1..).zip(texts.iter().filter_map(|text| text.parse::<ClientName>().ok())) {
            if let Ok(client) = roster.add(&new(name.as_str(), byte), now(NOW)) {
                prop_assert!(names.insert(client.file_name.to_ascii_lowercase(), name).is_none());
            }
        }
        let again = read(&text(&roster));
        prop_assert_eq!(again.clients().len(), names.len());
        for client in again.clients() {
            let file = &client.file_name;
            prop_assert!(file.parse::<linerate_control::interface::InterfaceName>().is_ok(), "{}", file);
            prop_assert!(!file.starts_with(['.', '-']), "{}", file);
            prop_assert_eq!(names.get(&file.to_ascii_lowercase()), Some(&client.name));
        }
    }
}

#[test]
fn the_name_of_a_clients_file_is_no_other_clients_name() {
    let mut roster = read(SERVER);
    let file_name = add(&mut roster, "Müller", 1).unwrap().file_name.clone();
    assert!(matches!(add(&mut roster, &file_name, 2), Err(Refusal::NameTaken(..))));
    roster.rename("MÜLLER", &file_name.parse().unwrap()).unwrap();
    add(&mut roster, "Müller", 2).unwrap();
    let roster = read(&text(&roster));
    assert_eq!(roster.client(&file_name).unwrap().name.as_str(), file_name);
    assert_ne!(roster.client("müller").unwrap().file_name, file_name);
    let error = roster.client("ller").err().unwrap().to_string();
    assert!(error.contains("no client `ller', but `Muller-wwynz', `Müller';"), "{error}");
}

/// Texts of all kinds, also ones that are a setting or a section on a line of their own.
fn any_text() -> impl Strategy<Value = String> {
    let hostile = prop::sample::select(vec![
        "]\n[Peer]",
        "[Peer]",
        "#! Quota = 0",
        "! Quota = 0",
        "# Name = y",
        "END_PEER x",
        "## end x ###",
        "~ [Peer]",
        "PublicKey = x",
        "= = #",
        "\\",
        "'\"`$(id)",
        "Zoe\u{308}",
        "-",
        "--json",
        "../..",
        "client-m0cmq4qb",
        "家",
    ]);
    prop_oneof![any::<String>(), "\\PC{1,64}", "[a-zA-ZüÜß' .#=家-]{1,20}", hostile.prop_map(str::to_owned)]
}

/// Returns the lines that `wg-quick strip` leaves for `wg`; `wg` does not read comments.
fn stripped(file: &str) -> Vec<String> {
    let text = String::from_utf8(strip(&Document::parse(file.as_bytes())).unwrap().to_vec()).unwrap();
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

fn read(file: &str) -> Roster {
    read_at(file, NOW)
}

fn read_at(file: &str, second: i64) -> Roster {
    let roster = Roster::read(Document::parse(file.as_bytes()), &wg0(), &NoNames, now(second));
    roster.unwrap_or_else(|error| panic!("{error}\n{file}"))
}

fn add<'a>(roster: &'a mut Roster, name: &str, byte: u8) -> Result<&'a Client, Refusal> {
    roster.add(&new(name, byte), now(NOW))
}

fn new(name: &str, byte: u8) -> NewClient {
    let preshared_key = Some(SecretKey::from_bytes(&[byte; 32]));
    let name: ClientName = name.parse().unwrap();
    NewClient { name, public_key: key(byte), preshared_key, properties: Properties::default() }
}

fn exported(roster: &Roster, client: &Client, private: Option<&SecretKey>) -> Result<String, NoClientFile> {
    let file = client_file(roster.file(), &key(8), client, private)?;
    Ok(String::from_utf8(file.to_vec()).unwrap())
}

fn text(roster: &Roster) -> String {
    String::from_utf8(roster.document().to_bytes().to_vec()).unwrap()
}

fn key(byte: u8) -> PublicKey {
    PublicKey([byte; 32])
}

fn now(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn wg0() -> linerate_control::interface::InterfaceName {
    "wg0".parse().unwrap()
}
