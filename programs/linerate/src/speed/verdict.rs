//! What bounds the tunnel: the lab's rules over what both machines saw.

use linerate_doctor::bottleneck::{self, Bottleneck, Evidence, Limit, Machine, Place, Thread};
use linerate_probe::watch::Seen;

use super::measure::{Direction, Rest, Way};
use super::report::megabits;

/// Bytes of IP and TCP headers in a segment, options included.
const HEADERS: u32 = 52;

/// Requests under load below which no queue is diagnosed.
const MIN_LOADED_REQUESTS: usize = 10;

/// What bounds `way`. `allowed` is what the responder lets through, in bytes per second.
pub(super) fn find(direction: Direction, way: &Way, at_rest: &Rest, mtu: u32, allowed: Option<u64>) -> Bottleneck {
    if way.stalled {
        return Bottleneck {
            says: "the stream stalled: for most of its time nothing arrived, or the other end could not tell".into(),
            because: format!("{} bytes in {:.1} s", way.bytes, way.seconds),
        };
    }
    let (here, there) = match direction {
        Direction::Send => (bottleneck::SENDING, bottleneck::RECEIVING),
        Direction::Receive => (bottleneck::RECEIVING, bottleneck::SENDING),
    };
    let mut machines = vec![machine(Place::Here, here, &way.here, Some(&at_rest.here))];
    machines.extend(way.there.as_ref().map(|seen| machine(Place::There, there, seen, at_rest.there.as_ref())));
    let seen = || [Some(&way.here), way.there.as_ref()].into_iter().flatten();
    let tcp = way.tcp.unwrap_or_default();
    let fragmented = [(Some(&way.here), Some(&at_rest.here)), (way.there.as_ref(), at_rest.there.as_ref())];
    let fragmented = fragmented.iter().filter_map(|(seen, before)| Some((*seen)?.fragmented_beyond(*before)));
    let loaded = Some(way.under_load).filter(|trips| trips.requests >= MIN_LOADED_REQUESTS);
    let round_trips = at_rest.trips.median.zip(loaded.and_then(|trips| trips.tenth));
    Bottleneck::find(&Evidence {
        machines,
        packets: way.bytes / u64::from(mtu.saturating_sub(HEADERS).max(1)),
        socket_drops: seen().map(|seen| seen.socket_drops).sum(),
        fragmented: fragmented.sum(),
        retransmitted: way.tcp.map(|tcp| f64::from(tcp.retransmitted) / f64::from(tcp.segments.max(1))),
        round_trips: round_trips.map(|(at_rest, loaded)| bottleneck::RoundTrips { at_rest, loaded }),
        window_full: tcp.window_full,
        buffer_full: tcp.buffer_full,
        held: way.held,
        allowed: allowed.unwrap_or(0) as f64 / 125_000.0,
    })
}

fn machine(place: Place, of: &'static str, seen: &Seen, before: Option<&Seen>) -> Machine {
    let thread = |thread: &linerate_probe::watch::ThreadShare| Thread {
        of,
        name: thread.name.clone(),
        share: thread.share,
        wait: thread.wait_milliseconds,
        waiting: thread.waiting,
    };
    Machine {
        place,
        processors: seen.processors,
        idle: seen.idle,
        idle_before: before.map(|seen| seen.idle),
        least_idle: seen.least_idle,
        least_idle_before: before.map(|seen| seen.least_idle),
        threads: seen.threads.iter().map(thread).collect(),
        daemons: seen.daemon,
        limit: seen.limit.map(|limit| Limit { processors: limit.processors, used_up: limit.used_up }),
    }
}

/// The verdict in one sentence: about the slower way.
pub(super) fn sentence(peer: &str, send: &Way, receive: &Way) -> String {
    let (way, which) = if send.megabits_per_second <= receive.megabits_per_second {
        (send, format!("to {peer}"))
    } else {
        (receive, format!("from {peer}"))
    };
    let Some(Bottleneck { says, because }) = &way.bottleneck else { return String::new() };
    format!("{} {which}, the slower way: {says} ({because})", megabits(way.megabits_per_second))
}

#[cfg(test)]
mod tests {
    use super::super::measure::RoundTrips;
    use linerate_probe::speed::TcpCounts;
    use linerate_probe::watch::{LimitUse, ThreadShare};

    use super::*;

    fn seen(share: f64) -> Seen {
        let threads = vec![ThreadShare { name: "worker".into(), share, wait_milliseconds: 0.1, waiting: 0.0 }];
        Seen { processors: 4, idle: 0.6, least_idle: 0.3, threads, daemon: share, ..Seen::default() }
    }

    fn way(here: Seen, there: Option<Seen>) -> Way {
        Way {
            megabits_per_second: 100.0,
            bytes: 12_500_000,
            seconds: 1.0,
            stalled: false,
            segments: Some(9000),
            retransmitted: Some(0),
            tcp: Some(TcpCounts { segments: 9000, ..TcpCounts::default() }),
            held: 0.0,
            lost: None,
            under_load: RoundTrips::default(),
            here,
            there,
            bottleneck: None,
        }
    }

    fn says(direction: Direction, way: &Way) -> String {
        let trips = RoundTrips { median: Some(0.4), ..RoundTrips::default() };
        find(direction, way, &Rest { trips, here: seen(0.0), there: None }, 1420, None).says
    }

    #[test]
    fn each_end_is_named_by_what_it_does_in_that_direction() {
        let there_is_full = way(seen(0.4), Some(seen(0.98)));
        let said = says(Direction::Send, &there_is_full);
        assert!(said.starts_with("bound by decryption and receiving on one core at the far end"), "{said}");
        let said = says(Direction::Receive, &there_is_full);
        assert!(said.starts_with("bound by encryption and sending on one core at the far end"), "{said}");
        let said = says(Direction::Send, &way(seen(0.98), None));
        assert!(said.starts_with("bound by encryption and sending on one core at this end"), "{said}");
    }

    #[test]
    fn the_limit_of_the_far_ends_daemon_is_named() {
        let limit = Some(LimitUse { processors: 0.1, used_up: 0.9 });
        let said = says(Direction::Send, &way(seen(0.1), Some(Seen { limit, ..seen(0.1) })));
        assert!(said.starts_with("bound by a limit of processor time at the far end"), "{said}");
    }

    #[test]
    fn a_queue_is_told_from_enough_requests_only() {
        let trips = |requests| RoundTrips { requests, tenth: Some(30.0), ..RoundTrips::default() };
        let with = |requests| Way { under_load: trips(requests), ..way(seen(0.1), Some(seen(0.1))) };
        assert!(says(Direction::Send, &with(50)).starts_with("bound by the link"));
        assert!(says(Direction::Send, &with(3)).starts_with("bound by waiting"));
    }

    #[test]
    fn a_stream_that_stalls_is_not_judged_by_its_counters() {
        let burst = Way { bytes: 13_680, stalled: true, ..way(seen(0.98), None) };
        assert!(says(Direction::Send, &burst).starts_with("the stream stalled"));
    }

    #[test]
    fn counters_that_are_not_told_are_not_zero() {
        let untold = Way { tcp: None, ..way(seen(0.1), Some(seen(0.1))) };
        assert!(!says(Direction::Send, &untold).contains("little is lost"));
        assert!(says(Direction::Send, &way(seen(0.1), Some(seen(0.1)))).contains("little is lost"));
    }

    #[test]
    fn packets_that_the_host_fragments_at_rest_are_not_the_tunnels() {
        let with = |fragmented, seconds| Seen { fragmented, seconds, ..seen(0.1) };
        let loaded = way(with(3000, 3.0), Some(seen(0.1)));
        let of = |before| {
            let rest = Rest { trips: RoundTrips::default(), here: before, there: None };
            find(Direction::Send, &loaded, &rest, 1420, None).says
        };
        assert!(of(with(0, 0.5)).starts_with("the path MTU is below"));
        assert!(of(with(500, 0.5)).starts_with("bound by waiting"));
    }

    #[test]
    fn what_a_responder_holds_back_is_its_own_limit_however_little_of_it_is_used() {
        let shared = Way { held: 0.9, ..way(seen(0.1), Some(seen(0.1))) };
        let rest = Rest { trips: RoundTrips::default(), here: seen(0.0), there: None };
        let found = find(Direction::Send, &shared, &rest, 1420, Some(25_000_000));
        assert!(found.says.starts_with("bound by the responder's own limit"), "{}", found.says);
        assert_eq!(found.because, "it held the stream back for 90 % of the time; it allows 200 Mbit/s");
    }

    #[test]
    fn the_slower_way_is_judged() {
        let bottleneck = |says: &str| Some(Bottleneck { says: says.into(), because: "figures".into() });
        let send = Way { bottleneck: bottleneck("bound by a"), ..way(seen(0.1), None) };
        let receive = Way { bottleneck: bottleneck("bound by b"), megabits_per_second: 9.5, ..way(seen(0.1), None) };
        assert_eq!(sentence("h2", &send, &receive), "9.50 Mbit/s from h2, the slower way: bound by b (figures)");
        assert_eq!(sentence("h2", &receive, &send), "9.50 Mbit/s to h2, the slower way: bound by b (figures)");
    }
}
