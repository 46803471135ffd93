//! `status` for people: for each tunnel a line, and a table of its peers.

use std::borrow::Cow;
use std::fmt::Write as _;

use ipnet::IpNet;
use linerate_control::printable::printable;
use linerate_tunnel::status::{Health, PeerStatus, RunBy, Status};
use linerate_wg::show::human::amount;

use crate::columns;

/// The tunnels for people: for each a line, and a table of its peers.
pub(crate) fn render(all: &[Status]) -> String {
    let mut text = String::new();
    for (index, status) in all.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let _ = writeln!(text, "{}", headline(status));
        let rows: Vec<[String; 6]> = status.peers.iter().map(row).collect();
        if rows.is_empty() {
            continue;
        }
        // Numbers are right-aligned.
        for line in columns::lines(HEADER, &rows, &[3, 4]) {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

fn headline(status: &Status) -> String {
    let runs = match status.implementation {
        RunBy::Daemon => "run by a daemon",
        RunBy::Kernel => "run by the kernel",
        RunBy::Unknown => {
            let reason = status.reason.as_deref().unwrap_or("the daemon does not respond");
            return format!("{}: state unknown: {reason}", status.interface);
        }
        RunBy::Gone => {
            let place = status.place.iter().map(|place| format!("; it {place}")).collect::<String>();
            return format!(
                "{}: not running (its daemon has died); `linerate down {0}` cleans up{place}",
                status.interface
            );
        }
    };
    let alive = status.peers.iter().filter(|peer| peer.health == Health::Alive).count();
    let addresses: Vec<String> = status.addresses.iter().map(IpNet::to_string).collect();
    let addresses = if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") };
    let problems: String = problems(status).iter().map(|problem| format!("; {problem}")).collect();
    let gateway = match status.gateway.is_empty() {
        true => String::new(),
        false => format!("gateway to {}, ", status.gateway.join(", ")),
    };
    format!(
        "{}: {runs}, {addresses}, port {}, MTU {}, {gateway}{alive} of {} peers connected{problems}",
        status.interface,
        status.listen_port,
        status.mtu,
        status.peers.len(),
    )
}

const HEADER: [&str; 6] = ["PEER", "ENDPOINT", "HANDSHAKE", "RECEIVED", "SENT", "ALLOWED IPS"];

fn row(peer: &PeerStatus) -> [String; 6] {
    let bytes = |count| {
        let (number, unit) = amount(count);
        format!("{number} {unit}")
    };
    [
        printable(peer.name.as_ref().unwrap_or(&peer.public_key)).into_owned(),
        match (&peer.endpoint, &peer.endpoint_name) {
            (Some(endpoint), _) => endpoint.clone(),
            (None, Some(name)) => format!("{} (no address yet)", printable(name)),
            (None, None) => "-".to_owned(),
        },
        match peer.suspended {
            Some("expired") => "expired".to_owned(),
            Some(_) => "quota reached".to_owned(),
            None => peer.seconds_since_handshake.map_or_else(|| "never".to_owned(), age),
        },
        bytes(peer.received),
        bytes(peer.sent),
        match (&peer.group, peer.active) {
            (Some(group), Some(true)) => format!("{} (in use of {})", allowed_ips(&peer.allowed_ips), printable(group)),
            (Some(group), _) => format!("those of {}, if needed", printable(group)),
            (None, _) => allowed_ips(&peer.allowed_ips),
        },
    ]
}

/// Only the first ones: a peer may have thousands.
fn allowed_ips(all: &[String]) -> String {
    const SHOWN: usize = 3;
    match all {
        [] => "none".to_owned(),
        few if few.len() <= SHOWN => few.join(", "),
        many => format!("{}, and {} more", many[..SHOWN].join(", "), many.len() - SHOWN),
    }
}

fn age(seconds: u64) -> String {
    match seconds {
        ..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Problems of the tunnel itself, each as the end of a sentence.
fn problems(status: &Status) -> Vec<Cow<'_, str>> {
    let all = [
        (status.link_down, "the interface is down"),
        (status.no_private_key, "it has no private key"),
        (status.not_listening, "its UDP port is in use by another program: it cannot receive"),
        (status.hook_failed, "a hook failed"),
    ];
    let of_tunnel = all.into_iter().filter(|(applies, _)| *applies).map(|(_, problem)| problem.into());
    let lost = match &status.lost[..] {
        [] => None,
        [first] => Some(format!("another program removed `{first}`")),
        [first, more @ ..] => Some(format!("another program removed `{first}` and {} more", more.len())),
    };
    let lost = lost.map(|lost| format!("{lost}: `linerate reload {}` restores that", status.interface).into());
    let place = status.place.as_ref().map(|place| format!("it {}", printable(place)).into());
    let bypassed = status.bypassed.iter().map(|bypass| bypass.as_str().into());
    let supervisor = status.supervisor.iter().map(|trouble| printable(trouble));
    place.into_iter().chain(of_tunnel).chain(lost).chain(bypassed).chain(supervisor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests;

    fn peer(name: &str, age: Option<u64>, endpoint: Option<&str>) -> PeerStatus {
        let allowed: Vec<String> = (0..5).map(|index| format!("10.0.0.{index}/32")).collect();
        PeerStatus {
            endpoint: endpoint.map(str::to_owned),
            health: age.map_or(Health::Never, |_| Health::Alive),
            seconds_since_handshake: age,
            received: 1 << 21,
            ..tests::peer(name, &allowed.iter().map(String::as_str).collect::<Vec<_>>())
        }
    }

    fn example(peers: Vec<PeerStatus>) -> Status {
        tests::tunnel("wg0", "10.0.0.1/24", peers)
    }

    #[test]
    fn the_table_has_names_and_aligned_columns() {
        let status = example(vec![peer("laptop", Some(7), Some("192.0.2.1:51820")), peer("router", None, None)]);
        let text = render(&[status]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "wg0: run by a daemon, 10.0.0.1/24, port 51820, MTU 1420, 1 of 2 peers connected");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(words[..5], ["laptop", "192.0.2.1:51820", "7", "s", "ago"]);
        assert!(lines[2].ends_with("10.0.0.0/32, 10.0.0.1/32, 10.0.0.2/32, and 2 more"), "{}", lines[2]);
        assert!(lines[3].contains("never"), "{}", lines[3]);
        assert_eq!(lines[1].find("ENDPOINT"), lines[2].find("192.0.2.1"));
    }

    #[test]
    fn an_unresolved_endpoint_is_shown_by_name() {
        let phone = PeerStatus { endpoint_name: Some("phone.example:51820".into()), ..peer("phone", None, None) };
        let text = render(&[example(vec![phone])]);
        assert!(text.contains("phone  phone.example:51820 (no address yet)  never"), "{text}");
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        let mut status = example(vec![peer("\x1b]0;x\x07", Some(7), None), peer("phone", None, None)]);
        status.peers[1].endpoint_name = Some("\u{202e}host:1".into());
        let text = render(&[status]);
        assert!(text.contains(r"\u{1b}]0;x\u{7}") && text.contains(r"\u{202e}host:1"), "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
    }

    #[test]
    fn the_headline_says_what_is_wrong_with_a_tunnel() {
        let down = Status { link_down: true, ..example(vec![]) };
        let keyless = Status { no_private_key: true, ..example(vec![]) };
        let not_listening = Status { not_listening: true, ..example(vec![]) };
        let trouble = "cannot follow the host's default routes: \x07".to_owned();
        let supervisor = Status { supervisor: vec![trouble], ..example(vec![]) };
        let port = "; its UDP port is in use by another program: it cannot receive";
        for (status, end) in [
            (down, "; the interface is down"),
            (keyless, "; it has no private key"),
            (not_listening, port),
            (supervisor, r"; cannot follow the host's default routes: \u{7}"),
        ] {
            assert!(headline(&status).ends_with(end), "{}", headline(&status));
        }
        let reason = Some("permission denied; try again as root (sudo)".to_owned());
        let line = headline(&Status { reason, implementation: RunBy::Unknown, ..example(vec![]) });
        assert_eq!(line, "wg0: state unknown: permission denied; try again as root (sudo)");
    }
}
