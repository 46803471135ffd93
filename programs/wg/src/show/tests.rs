//! Compares with what the real `wg` (1.0.20210914) printed for the same replies, in `recorded/`: the
//! replies of three daemons, and the second at which it was asked.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, thread};

use clap::ValueEnum;

use super::*;

/// In the order in which `wg show all` found them.
const NAMES: [&str; 3] = ["alone", "bare", "full"];

#[test]
fn people_see_what_wg_shows_them() {
    let place = Place::with_daemons();
    for name in NAMES {
        assert_eq!(place.human(name), recorded(&format!("{name}.human")), "{name}");
    }
}

#[test]
fn colours_and_keys_are_those_of_wg() {
    let place = Place::with_daemons();
    let view = View { colour: true, keys: true, ..place.view() };
    assert_eq!(text(&Selection::new("full", None, false, false).unwrap(), &view), recorded("full.colour"));
}

#[test]
fn all_tunnels_are_each_as_wg_shows_them_with_a_blank_line_between() {
    let place = Place::with_daemons();
    for (colour, recording) in [(false, "all.human"), (true, "all.colour")] {
        let view = View { colour, ..place.view() };
        let shown = text(&Selection::new("all", None, false, false).unwrap(), &view);
        assert_eq!(devices(&shown), devices(&recorded(recording)));
    }

    /// The directory's order is the file system's, so the tunnels are compared in order of their text.
    fn devices(text: &str) -> Vec<String> {
        let mut found = vec![String::new()];
        for line in text.lines() {
            if line.contains("interface") && found != [""] {
                assert_eq!(found.last_mut().unwrap().pop(), Some('\n'), "a blank line before {line:?}");
                found.push(String::new());
            }
            let last = found.last_mut().unwrap();
            last.push_str(line);
            last.push('\n');
        }
        found.sort();
        found
    }
}

#[test]
fn scripts_see_every_field_as_wg_prints_it() {
    let place = Place::with_daemons();
    for field in Field::value_variants() {
        let name = field.to_possible_value().unwrap().get_name().to_owned();
        for interface in ["bare", "full"] {
            let selection = Selection::new(interface, Some(*field), false, false).unwrap();
            assert_eq!(text(&selection, &place.view()), recorded(&format!("{interface}.{name}")), "{interface} {name}");
        }
        // That wg named the interface only once per device in this one.
        if *field != Field::Endpoints {
            let selection = Selection::new("all", Some(*field), false, false).unwrap();
            let lines = |text: &str| {
                let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(lines(&text(&selection, &place.view())), lines(&recorded(&format!("all.{name}"))), "all {name}");
        }
    }
}

#[test]
fn the_names_are_on_one_line_and_no_names_are_no_line() {
    let names = Selection::new("interfaces", None, false, false).unwrap();
    let place = Place::with_daemons();
    let line = text(&names, &place.view());
    let mut found: Vec<_> = line.strip_suffix('\n').unwrap().split(' ').collect();
    found.sort_unstable();
    assert_eq!(found, NAMES);
    let nobody = Place::new();
    assert_eq!(text(&names, &nobody.view()), "");
    let nowhere = View { directory: Path::new("/nonexistent/linerate"), ..nobody.view() };
    assert_eq!(text(&names, &nowhere), "");
    assert!(Selection::new("interfaces", Some(Field::Peers), false, false).is_err());
}

#[test]
fn json_has_the_names_of_wg_json_and_no_secret_unless_asked_for() {
    let place = Place::with_daemons();
    let selection = Selection::new("full", None, true, false).unwrap();
    let json = |keys| -> serde_json::Value {
        serde_json::from_str(&text(&selection, &View { keys, ..place.view() })).unwrap()
    };
    let full = &json(true)["full"];
    assert_eq!(full["privateKey"], "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=");
    assert_eq!(full["publicKey"], "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=");
    assert_eq!((&full["listenPort"], &full["fwmark"]), (&51820.into(), &0x1234.into()));
    let peer = &full["peers"]["aYdQoJuTQzd0bwlzRIFn82TK4TLi+LMnrkkT5bVEUCk="];
    let now: u64 = recorded("now").trim().parse().unwrap();
    let expected = serde_json::json!({
        "presharedKey": "ERERERERERERERERERERERERERERERERERERERERERE=",
        "endpoint": "192.0.2.1:51820",
        "latestHandshake": now,
        "transferRx": 1023,
        "transferTx": 1,
        "persistentKeepalive": 25,
        "allowedIps": ["10.0.0.0/24", "fd00::/64"],
    });
    assert_eq!(peer, &expected);
    let hidden = json(false).to_string();
    assert!(!hidden.contains("privateKey") && !hidden.contains("presharedKey"));
}

#[test]
fn counters_are_a_table_that_says_how_many_wakeups_found_work() {
    let place = Place::new();
    let reply = "wakeups_control_work=1998\nwakeups_control_empty=2\ndrop_no_peer=7\ndrop_mac1=0\nerrno=0\n\n";
    place.daemon("wg0", reply);
    let selection = Selection::new("wg0", None, false, true).unwrap();
    let expected = "interface: wg0\n\
        \x20 wakeups control work               1998\n\
        \x20 wakeups control empty                 2\n\
        \x20 drop no peer                          7\n\
        \x20 wakeups control that found work  99.9 %\n\
        \x20 drop reasons that did not occur: 1\n";
    assert_eq!(text(&selection, &place.view()), expected);
    let selection = Selection::new("all", None, true, true).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text(&selection, &place.view())).unwrap();
    assert_eq!(json["wg0"]["drop_mac1"], 0);
}

#[test]
fn the_error_for_a_missing_tunnel_says_what_to_do() {
    let refused = |error: Errno| inaccessible("wg9", &ClientError::Io(error.into()));
    for absent in [Errno::NODEV, Errno::OPNOTSUPP, Errno::PROTONOSUPPORT] {
        assert!(refused(absent).contains("`linerate show interfaces` lists all tunnels"));
    }
    for forbidden in [Errno::ACCESS, Errno::PERM] {
        assert!(refused(forbidden).contains("as root (sudo)"));
    }
}

#[test]
fn a_socket_that_nobody_answers_on_is_no_tunnel_and_goes() {
    let place = Place::new();
    let left_over = place.0.join("wg9.sock");
    drop(UnixListener::bind(&left_over).unwrap());
    let selection = Selection::new("wg9", None, false, false).unwrap();
    assert!(show(&selection, &place.view()).is_err());
    assert_eq!(text(&Selection::new("interfaces", None, false, false).unwrap(), &place.view()), "");
    assert!(!left_over.exists());
}

#[test]
fn a_tunnel_that_does_not_answer_does_not_hide_the_others() {
    let place = Place::with_daemons();
    place.daemon("broken", "listen_port=none\nerrno=0\n\n");
    drop(UnixListener::bind(place.0.join("left-over.sock")).unwrap());
    let shown = show(&Selection::new("all", Some(Field::Fwmark), false, false).unwrap(), &place.view()).ok().unwrap();
    assert!(shown.any);
    let failures: Vec<_> = shown.failures.iter().map(|(name, error)| reason(name, error)).collect();
    assert_eq!(failures, ["line 1 of the daemon's reply is not valid"]);
    assert_eq!(shown.text.iter().filter(|byte| **byte == b'\n').count(), NAMES.len());
}

#[test]
fn counters_of_a_tunnel_that_is_not_there_are_no_matter_of_counters() {
    let place = Place::new();
    let selection = Selection::new("nosuch", None, false, true).unwrap();
    let Err(ShowError::Tunnel(name, error)) = show(&selection, &place.view()) else {
        panic!("there is no such tunnel")
    };
    assert!(!inaccessible(&name, &error).contains("counters"));
}

/// A directory of sockets.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("linerate-show-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn with_daemons() -> Self {
        let place = Self::new();
        for name in NAMES {
            place.daemon(name, &recorded(&format!("{name}.reply")));
        }
        place
    }

    /// Something that answers everything with `reply`, for as long as the test's process lives.
    fn daemon(&self, name: &str, reply: &str) {
        let listener = UnixListener::bind(self.0.join(format!("{name}.sock"))).unwrap();
        let reply = reply.to_owned();
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let asked = client.read(&mut [0; 64]).unwrap_or(0);
                if asked > 0 {
                    let _ = client.write_all(reply.as_bytes());
                }
            }
        });
    }

    fn view(&self) -> View<'_> {
        let now = recorded("now").trim().parse().unwrap();
        View { directory: &self.0, names: client::daemon_names, now, colour: false, keys: false, activity: false }
    }

    fn human(&self, name: &str) -> String {
        text(&Selection::new(name, None, false, false).unwrap(), &self.view())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(selection: &Selection, view: &View<'_>) -> String {
    let Ok(shown) = show(selection, view) else { panic!("no answer") };
    assert!(shown.failures.is_empty());
    String::from_utf8(shown.text.to_vec()).unwrap()
}

fn recorded(name: &str) -> String {
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/show/recorded")).join(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
