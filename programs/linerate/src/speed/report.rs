//! What was measured, for people and for programs.

use std::fmt::Write as _;

use linerate_control::printable::printable;
use linerate_probe::watch::Seen;

use super::measure::{By, LATE, Mtu, RoundTrips, Speed, Way};

/// The table and the verdict.
pub(super) fn text(speed: &Speed) -> String {
    let Speed { tunnel, label, by, mtu, at_rest, send, receive, verdict, .. } = speed;
    let by = match by {
        By::Linerate => "linerate",
        By::Iperf3 => "iperf3",
    };
    let mut text = format!("{tunnel} to {label}, one TCP stream each way, answered by {by}\n\n");
    let each = |of: &dyn Fn(&Way) -> Option<String>| [of(send), of(receive)];
    let rows: [(&str, [Option<String>; 2]); 9] = [
        ("", ["sending", "receiving"].map(|way| Some(way.to_owned()))),
        ("throughput", each(&|way| Some(megabits(way.megabits_per_second)))),
        ("sent again", each(&|way| Some(percent(f64::from(way.retransmitted?) / f64::from(way.segments?.max(1)))))),
        ("lost datagrams", each(&|way| way.lost.map(percent))),
        ("round trip under load", each(&|way| way.under_load.median.map(loaded))),
        ("  at most", each(&|way| way.under_load.most.map(loaded))),
        ("processors here", each(&|way| Some(busy(&way.here)))),
        ("processors there", each(&|way| way.there.as_ref().map(busy))),
        ("daemons' cores", each(&|way| daemons(way))),
    ];
    for (label, [send, receive]) in rows {
        let cell = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let _ = writeln!(text, "{label:<22}{:>18}{:>18}", cell(send), cell(receive));
    }
    let _ = writeln!(text, "\nround trip at rest    {}", rest(at_rest));
    let _ = writeln!(text, "MTU                   {}", sizes(mtu));
    let _ = writeln!(text, "\n{}", printable(verdict));
    text
}

/// One object.
pub(super) fn json(speed: &Speed) -> Result<String, String> {
    let text = serde_json::to_string_pretty(speed).map_err(|error| format!("cannot write JSON: {error}"))?;
    Ok(text + "\n")
}

/// `812 Mbit/s`, `1.25 Gbit/s`.
pub(super) fn megabits(value: f64) -> String {
    match value {
        1000.0.. => format!("{:.2} Gbit/s", value / 1e3),
        100.0.. => format!("{value:.0} Mbit/s"),
        10.0.. => format!("{value:.1} Mbit/s"),
        _ => format!("{value:.2} Mbit/s"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn milliseconds(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0} ms"),
        10.0.. => format!("{value:.1} ms"),
        _ => format!("{value:.2} ms"),
    }
}

/// One that is not answered in time counts as one that takes that long.
fn loaded(value: f64) -> String {
    let most = LATE.as_secs_f64() * 1e3;
    if value < most { milliseconds(value) } else { format!("over {}", milliseconds(most)) }
}

fn busy(seen: &Seen) -> String {
    format!("{:.0} % of {} busy", (1.0 - seen.idle) * 100.0, seen.processors)
}

/// Here and there; nothing where there is no daemon of its own, as with the kernel module.
fn daemons(way: &Way) -> Option<String> {
    let of = |seen: Option<&Seen>| {
        let seen = seen.filter(|seen| !seen.threads.is_empty());
        seen.map_or_else(|| "-".to_owned(), |seen| format!("{:.2}", seen.daemon))
    };
    let text = format!("{} / {}", of(Some(&way.here)), of(way.there.as_ref()));
    (text != "- / -").then_some(text)
}

fn rest(at_rest: &RoundTrips) -> String {
    match (at_rest.median, at_rest.most) {
        (Some(median), Some(most)) => format!("{} in the median, {} at most", milliseconds(median), milliseconds(most)),
        _ => "unknown: echo requests are not answered there".to_owned(),
    }
}

fn sizes(mtu: &Mtu) -> String {
    let Mtu { interface, passes } = mtu;
    match passes {
        Some(passes) if passes == interface => format!("packets of {interface} bytes, the interface's MTU, pass"),
        Some(passes) => format!(
            "only packets of up to {passes} bytes pass, and the interface's MTU is {interface}: set `MTU = {passes}` in the \
             tunnel's file at both ends"
        ),
        None => format!("{interface} bytes; which sizes pass is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_as_far_as_they_mean_something() {
        let figures = [0.1234, 12.34, 123.4, 1234.0].map(megabits);
        assert_eq!(figures, ["0.12 Mbit/s", "12.3 Mbit/s", "123 Mbit/s", "1.23 Gbit/s"]);
        assert_eq!([0.123, 12.34, 123.4].map(milliseconds), ["0.12 ms", "12.3 ms", "123 ms"]);
        assert_eq!([2999.0, 3000.0].map(loaded), ["2999 ms", "over 3000 ms"]);
    }

    #[test]
    fn a_narrow_path_comes_with_its_remedy() {
        assert!(sizes(&Mtu { interface: 1420, passes: Some(1420) }).ends_with("pass"));
        assert!(sizes(&Mtu { interface: 1420, passes: Some(1300) }).contains("set `MTU = 1300`"));
        assert!(sizes(&Mtu { interface: 1420, passes: None }).contains("unknown"));
    }

    #[test]
    fn lines_align() {
        let way = |megabits_per_second| Way {
            megabits_per_second,
            bytes: 1,
            seconds: 1.0,
            stalled: false,
            segments: Some(1000),
            retransmitted: Some(5),
            tcp: None,
            held: 0.0,
            lost: None,
            under_load: RoundTrips::default(),
            here: Seen { processors: 4, idle: 0.25, ..Seen::default() },
            there: None,
            bottleneck: None,
        };
        let speed = Speed {
            tunnel: "wg0".into(),
            peer: "h2".into(),
            label: "h2 (10.0.0.2)".into(),
            address: "10.0.0.2".into(),
            by: By::Iperf3,
            mtu: Mtu { interface: 1420, passes: None },
            at_rest: RoundTrips::default(),
            send: way(9.4),
            receive: way(1900.0),
            verdict: "bound by x (y)".into(),
        };
        let text = text(&speed);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "wg0 to h2 (10.0.0.2), one TCP stream each way, answered by iperf3");
        assert_eq!(lines[3], "throughput                   9.40 Mbit/s       1.90 Gbit/s");
        assert_eq!(lines[4], "sent again                        0.50 %            0.50 %");
        assert_eq!(lines[8], "processors here           75 % of 4 busy    75 % of 4 busy");
        assert_eq!(lines[9], "processors there                       -                 -");
        assert_eq!(lines.last(), Some(&"bound by x (y)"));
        assert!(json(&speed).unwrap().contains("\"underLoad\""));
    }
}
