//! The screen as text, drawn on ratatui's own test terminal.

use std::path::PathBuf;
use std::time::Duration;

use linerate_control::keys::PublicKey;
use linerate_control::uapi::limits::Suspension;
use linerate_watch::{Counter, Daemon, Settings, Time, View};
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::*;
use crate::top::state::{Key, Outcome};

const PLAIN: Look = Look { colours: false, utf8: true };
const NOW: u64 = 1_700_000_000;

fn ignore(_: Outcome) {}

fn ago(seconds: u64) -> Option<Time> {
    Some(Time(Duration::from_secs(NOW - seconds)))
}

fn peer(number: u8, name: &str, rates: Option<(f64, f64)>) -> Peer {
    let settings = Settings {
        public_key: PublicKey([number; 32]),
        name: (!name.is_empty()).then(|| name.to_owned()),
        allowed_ips: vec![([10, 0, 0, number].into(), 32)],
        persistent_keepalive: 0,
        expires: None,
        quota: None,
        rate: linerate_control::rate::Rate::NONE,
    };
    let mut peer = Peer::new(settings);
    peer.endpoint = Some(([198, 51, 100, number], 51820).into());
    (peer.last_handshake, peer.last_received) = (ago(100), ago(2));
    peer.rates = rates.map(|(received, sent)| Rates { received, sent });
    peer
}

fn tunnel(interface: &str, instance: u64, peers: Vec<Peer>) -> Tunnel {
    let counter = |name: &str, value, per_second| Counter { name: name.into(), value, per_second: Some(per_second) };
    Tunnel {
        interface: interface.to_owned(),
        implementation: RunBy::Daemon,
        problem: None,
        place: None,
        is_awaited: false,
        file: PathBuf::new(),
        public_key: None,
        listen_port: 51820,
        fwmark: 0,
        daemon: Some(Daemon { pid: 1, started: 1, cpu_time: Duration::ZERO, cpu: Some(0.034) }),
        instance,
        peers,
        counters: vec![
            counter("drop_no_peer", 1234, 12.0),
            counter("drop_replayed", 3, 0.0),
            counter("looks_work", 9, 9.0),
        ],
    }
}

fn view() -> View {
    let mut silent = peer(3, "phone", Some((0.0, 40.0)));
    (silent.unanswered_since, silent.last_received) = (ago(60), ago(90));
    let mut over = peer(4, "guest", Some((0.0, 0.0)));
    (over.suspended, over.last_handshake, over.last_received) = (Some(Suspension::Quota), None, None);
    let peers = vec![
        peer(1, "laptop", Some((1_250_000.0, 30_000.0))),
        peer(2, "", Some((0.0, 0.0))),
        silent,
        over,
        peer(5, "evil\x1b[2J\u{202e}name that is very long indeed", Some((10.0, 0.0))),
    ];
    View { time: Time(Duration::from_secs(NOW)), tunnels: vec![tunnel("wg0", 1, peers)] }
}

fn state() -> State {
    let mut state = State::new(Duration::from_secs(1));
    for _ in 0..3 {
        state.update(view());
    }
    state
}

fn drawn(state: &mut State, (width, height): (u16, u16), look: Look) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame.buffer_mut(), state, look)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn a_terminal_of_80_columns_shows_what_matters() {
    let expected = "\
linerate top  22:13:20Z  5 peers, 4 connected, 1 silent, 1 not let in  every 1 s
wg0       CPU  3.4%  rx 10.0Mbit/s  tx  240kbit/s  5 peers  12/s dropped
dropped   no peer 1.23k (12/s)  replayed 3

PEER             ENDPOINT              HEARD SHAKE    RX    TX HISTORY
laptop           198.51.100.1:51820       2s    1m 10.0M  240k              ███
phone            198.51.100.3:51820      90s    1m     0   320              ███
evil\\u{1b}[2J\\u… 198.51.100.5:51820       2s    1m    80     0              ███
AgICAgICAgICAgI… 198.51.100.2:51820       2s    1m     0     0
guest            not let in: quota     never never     0     0";
    let lines = drawn(&mut state(), (80, 24), PLAIN);
    assert_eq!(lines[..10].join("\n"), expected);
    assert!(lines[23].starts_with("sorted by rate") && lines[23].contains("h help"), "{}", lines[23]);
    assert!(lines[10..23].iter().all(String::is_empty));
}

#[test]
fn nothing_is_wider_than_the_terminal_and_it_never_panics() {
    for width in 1..200 {
        for height in [1, 2, 7, 8, 9, 12, 16, 17, 24, 60] {
            for look in [PLAIN, Look { colours: true, utf8: false }] {
                let mut state = state();
                let lines = drawn(&mut state, (width, height), look);
                if width >= SMALLEST.0 && height >= SMALLEST.1 {
                    assert!(lines.iter().any(|line| line.starts_with("PEER")), "{width}x{height}");
                    assert!(lines.iter().any(|line| line.starts_with("laptop")), "{width}x{height}");
                }
                state.press(Key::Char('h'));
                drawn(&mut state, (width, height), look);
            }
        }
    }
}

#[test]
fn a_wide_terminal_shows_whole_keys_and_addresses() {
    let mut state = state();
    let mut view = view();
    view.tunnels[0].peers[1].endpoint = Some("[2001:db8:1234:5678:9abc:def0:1234:5678]:51820".parse().unwrap());
    state.update(view);
    let screen = drawn(&mut state, (200, 24), PLAIN).join("\n");
    assert!(screen.contains("[2001:db8:1234:5678:9abc:def0:1234:5678]:51820"), "{screen}");
    assert!(screen.contains(&PublicKey([2; 32]).to_string()), "{screen}");
}

#[test]
fn a_narrow_terminal_keeps_names_and_rates() {
    let lines = drawn(&mut state(), (40, 24), PLAIN);
    assert_eq!(lines[4], "PEER                  HEARD    RX    TX");
    assert!(lines[5].starts_with("laptop") && lines[5].ends_with("10.0M  240k"), "{}", lines[5]);
    assert_eq!(lines[1], "wg0       rx 10.0Mbit/s  tx  240kbit/s", "no number is cut off");
    assert!(lines[0].starts_with("22:13:20Z  5 peers, 4 connected"), "{}", lines[0]);
}

#[test]
fn names_move_no_cursor_and_reverse_no_text() {
    let screen = drawn(&mut state(), (120, 24), PLAIN).join("");
    assert!(!screen.contains(|c: char| c.is_control() || c == '\u{202e}'), "{screen:?}");
}

#[test]
fn without_colours_no_cell_has_one() {
    for (look, has) in [(PLAIN, false), (Look { colours: true, utf8: true }, true)] {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame.buffer_mut(), &mut state(), look)).unwrap();
        let coloured = |cell: &&ratatui_core::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
        assert_eq!(terminal.backend().buffer().content.iter().any(|cell| coloured(&cell)), has);
    }
}

#[test]
fn a_terminal_without_utf8_gets_ascii() {
    let look = Look { colours: false, utf8: false };
    let screen = drawn(&mut state(), (80, 24), look).join("");
    assert!(screen.is_ascii(), "{screen}");
}

#[test]
fn keys_sort_filter_pause_scroll_and_quit() {
    let mut state = state();
    let names = |state: &State| -> Vec<String> {
        state.rows().iter().map(|(_, peer)| peer.settings.name.clone().unwrap_or_default()).collect()
    };
    assert_eq!(names(&state)[0], "laptop");
    state.press(Key::Char('r'));
    assert_eq!(names(&state)[4], "laptop");
    state.press(Key::Char('r'));
    (0..3).for_each(|_| ignore(state.press(Key::Char('s'))));
    assert_eq!(names(&state)[1..4], ["guest", "laptop", "phone"]);
    state.press(Key::Char('i'));
    assert_eq!(names(&state)[1..], ["laptop", "phone"]);
    state.press(Key::Char('i'));

    "/198.51.100.3".chars().for_each(|c| ignore(state.press(Key::Char(c))));
    assert_eq!(names(&state), ["phone"]);
    assert!(drawn(&mut state, (80, 24), PLAIN)[23].starts_with("/198.51.100.3"));
    // A key of a command is a letter of the filter.
    state.press(Key::Char('q'));
    assert!(names(&state).is_empty());
    state.press(Key::Backspace);
    state.press(Key::Enter);
    assert!(drawn(&mut state, (80, 24), PLAIN)[23].contains("only /198.51.100.3"));
    state.press(Key::Escape);
    assert_eq!(names(&state).len(), 5);

    state.press(Key::Char('p'));
    state.update(View::default());
    assert_eq!(names(&state).len(), 5);
    assert!(drawn(&mut state, (80, 24), PLAIN)[0].ends_with("PAUSED"));
    state.press(Key::Char(' '));
    state.update(View::default());
    assert!(drawn(&mut state, (80, 24), PLAIN)[1].starts_with("There is no tunnel."));
    for (key, outcome) in [
        (Key::Char('q'), Outcome::Quit),
        (Key::Control('c'), Outcome::Quit),
        (Key::Control('z'), Outcome::Suspend),
        (Key::Control('l'), Outcome::Redraw),
        (Key::End, Outcome::Goes),
    ] {
        assert_eq!(state.press(key), outcome);
    }
    // Far beyond the end: drawing brings it back.
    drawn(&mut state, (80, 24), PLAIN);
    assert_eq!(state.top, 0);
}

#[test]
fn ten_thousand_peers_scroll_by_pages() {
    let mut state = State::new(Duration::from_secs(1));
    let peers = (0..10_000).map(|number| {
        let mut peer = peer((number % 251) as u8, &format!("peer {number:05}"), None);
        peer.last_received = None;
        peer
    });
    state.update(View { time: Time(Duration::from_secs(NOW)), tunnels: vec![tunnel("wg0", 1, peers.collect())] });
    state.sort = crate::top::state::Sort::Name;
    drawn(&mut state, (80, 24), PLAIN);
    state.press(Key::PageDown);
    let lines = drawn(&mut state, (80, 24), PLAIN);
    assert!(lines[5].starts_with("peer 00018"), "{}", lines[5]);
    state.press(Key::End);
    assert!(drawn(&mut state, (80, 24), PLAIN)[22].starts_with("peer 09999"));
    state.press(Key::Home);
    assert!(drawn(&mut state, (80, 24), PLAIN)[5].starts_with("peer 00000"));
}

#[test]
fn a_tunnel_that_is_gone_or_cannot_be_read_says_so() {
    let mut gone = tunnel("wg1", 2, Vec::new());
    gone.implementation = RunBy::Gone;
    let mut closed = tunnel("wg2", 3, Vec::new());
    (closed.implementation, closed.problem) = (RunBy::Unknown, Some("permission denied".to_owned()));
    let mut state = State::new(Duration::from_secs(1));
    state.update(View { time: Time(Duration::from_secs(NOW)), tunnels: vec![gone, closed] });
    let lines = drawn(&mut state, (80, 24), PLAIN);
    assert_eq!(lines[1..3], ["wg1       its daemon has died", "wg2       permission denied"]);
}
