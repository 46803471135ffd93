//! What a machine and its tunnel's daemon do during a load.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::limit::{self, Limit};
use crate::machine::Machine;
use crate::sockets;
use crate::usage::{self, Thread};

/// Only the busiest threads are told.
pub const MOST_THREADS: usize = 8;

/// Bytes of a thread's name (TASK_COMM_LEN).
pub const LONGEST_NAME: usize = 15;

/// The beginning of a load.
pub struct Watch {
    daemon: Option<u32>,
    port: u16,
    at: Instant,
    machine: Option<Machine>,
    threads: Vec<Thread>,
    limit: Option<Limit>,
    socket_drops: u64,
    fragmented: u64,
}

/// What happened until its end. Without a daemon in a process of its own, only the machine's part is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Seen {
    /// How long it was watched.
    pub seconds: f64,
    /// Processors of the machine.
    pub processors: usize,
    /// Share of their time at rest.
    pub idle: f64,
    /// The idle share of the busiest one.
    pub least_idle: f64,
    /// The daemon's busiest threads.
    pub threads: Vec<ThreadShare>,
    /// Processor time of the daemon, as a number of cores.
    pub daemon: f64,
    /// What its control group allows it.
    pub limit: Option<LimitUse>,
    /// Datagrams that the tunnel's sockets dropped because their buffers were full.
    pub socket_drops: u64,
    /// IP packets that this host fragmented.
    pub fragmented: u64,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ThreadShare {
    /// Its name.
    pub name: String,
    /// How much of one core it used.
    pub share: f64,
    /// How long it waited for a core each time it was ready to run, on average.
    pub wait_milliseconds: f64,
    /// Share of the time in which it was ready to run, and had no core. A responder tells it apart from the rest.
    #[serde(skip)]
    pub waiting: f64,
}

/// How far a limit of processor time was used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitUse {
    /// So many processors' worth of time.
    pub processors: f64,
    /// Share of the periods in which it was used up.
    pub used_up: f64,
}

impl Watch {
    /// From now on, of the daemon of that process id, whose tunnel has that port.
    #[must_use]
    pub fn begin(daemon: Option<u32>, port: u16) -> Self {
        Self {
            daemon,
            port,
            machine: Machine::now().ok(),
            threads: daemon.map(usage::threads_of).unwrap_or_default(),
            limit: daemon.and_then(limit::of),
            socket_drops: sockets::drops(port),
            fragmented: fragmented(),
            at: Instant::now(),
        }
    }

    /// What happened until now.
    #[must_use]
    pub fn end(&self) -> Seen {
        let seconds = self.at.elapsed().as_secs_f64().max(1e-3);
        let machine = Machine::now().ok();
        let shares = machine.as_ref().zip(self.machine.as_ref()).map(|(now, before)| now.since(before));
        let threads = usage::busiest(&self.daemon.map(usage::threads_of).unwrap_or_default(), &self.threads);
        let share = |thread: &Thread| ThreadShare {
            name: thread.name.clone(),
            share: thread.seconds / seconds,
            wait_milliseconds: thread.mean_wait(),
            waiting: (thread.waited / seconds).clamp(0.0, 1.0),
        };
        Seen {
            seconds,
            processors: machine.as_ref().map_or(0, Machine::processors),
            idle: shares.map_or(1.0, |shares| shares.idle),
            least_idle: shares.map_or(1.0, |shares| shares.least_idle),
            daemon: threads.iter().map(|thread| thread.seconds).sum::<f64>() / seconds,
            threads: threads.iter().take(MOST_THREADS).map(share).collect(),
            limit: self
                .limit
                .as_ref()
                .zip(self.daemon.and_then(limit::of))
                .and_then(|(before, now)| used(before, &now)),
            socket_drops: sockets::drops(self.port).saturating_sub(self.socket_drops),
            fragmented: fragmented().saturating_sub(self.fragmented),
        }
    }
}

impl Seen {
    /// What happened during a load of so many seconds that was watched from some time before it until some time after.
    /// The daemon was at rest then, and the machine as it was at `rest`, if that is known.
    #[must_use]
    pub fn during(self, load: f64, rest: Option<&Self>) -> Self {
        if load <= 0.0 || load >= self.seconds {
            return self;
        }
        let times = (self.seconds / load).min(MOST_TIMES);
        let busy = |all: f64, before: Option<f64>| {
            let before = 1.0 - before.unwrap_or(1.0);
            (before + (1.0 - all - before) * times).clamp(0.0, 1.0)
        };
        let thread = |thread: ThreadShare| ThreadShare {
            share: (thread.share * times).min(1.0),
            waiting: (thread.waiting * times).min(1.0),
            ..thread
        };
        Self {
            seconds: self.seconds / times,
            idle: 1.0 - busy(self.idle, rest.map(|rest| rest.idle)),
            least_idle: 1.0 - busy(self.least_idle, rest.map(|rest| rest.least_idle)),
            daemon: self.daemon * times,
            threads: self.threads.into_iter().map(thread).collect(),
            ..self
        }
    }

    /// The packets that this host fragmented beyond those that it did `before`, at rest.
    #[must_use]
    pub fn fragmented_beyond(&self, before: Option<&Self>) -> u64 {
        let each_second = |seen: &Self| seen.fragmented as f64 / seen.seconds.max(1e-3);
        let usual = before.map_or(0.0, |before| each_second(before) * self.seconds);
        self.fragmented.saturating_sub(usual as u64)
    }
}

/// What was watched is taken to be at most so many times as long as its load. On a bad way it is longer: connections and
/// answers take seconds, or next to nothing arrives, and a load's time is from its first byte to its last. What differs
/// from the time at rest by chance would then be multiplied and taken for the load's.
const MOST_TIMES: f64 = 3.0;

/// None if it is another limit by now.
fn used(before: &Limit, now: &Limit) -> Option<LimitUse> {
    let periods = now.periods.saturating_sub(before.periods).max(1);
    let throttled = now.throttled.saturating_sub(before.throttled);
    let used_up = (throttled as f64 / periods as f64).min(1.0);
    (before.group == now.group).then_some(LimitUse { processors: now.processors, used_up })
}

/// How many packets this host has fragmented, of both families.
fn fragmented() -> u64 {
    let read = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    of_pairs(&read("snmp"), "Ip:", "FragOKs") + of_line(&read("snmp6"), "Ip6FragOKs")
}

/// A counter of /proc/net/snmp: a line of names, then one of values.
fn of_pairs(text: &str, group: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let counters: BTreeMap<&str, &str> = names.split_whitespace().zip(values.split_whitespace()).collect();
    counters.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// A counter of /proc/net/snmp6: a line each.
fn of_line(text: &str, name: &str) -> u64 {
    let value = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    text.lines().find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_counted_in_both_families() {
        let snmp = "Ip: Forwarding FragOKs FragFails\nIp: 1 42 7\nTcp: a\nTcp: 1\n";
        assert_eq!((of_pairs(snmp, "Ip:", "FragOKs"), of_pairs(snmp, "Udp:", "FragOKs")), (42, 0));
        assert_eq!(of_line("Ip6FragFails 1\nIp6FragOKs                  9\n", "Ip6FragOKs"), 9);
        assert_eq!((of_pairs("", "Ip:", "FragOKs"), of_line("", "Ip6FragOKs")), (0, 0));
    }

    #[test]
    fn a_limit_is_used_up_by_periods() {
        let limit = |periods, throttled| Limit { group: "/a".into(), processors: 0.5, periods, throttled };
        assert_eq!(used(&limit(10, 4), &limit(30, 19)).unwrap().used_up, 0.75);
        assert_eq!(used(&limit(10, 4), &limit(10, 4)).unwrap().used_up, 0.0);
        assert_eq!(used(&limit(10, 4), &Limit { group: "/b".into(), ..limit(20, 9) }), None);
    }

    #[test]
    fn what_was_watched_besides_a_load_does_not_dilute_it() {
        let threads = vec![ThreadShare { name: "worker".into(), share: 0.8, wait_milliseconds: 0.1, waiting: 0.1 }];
        let seen = Seen { seconds: 3.6, idle: 0.6, least_idle: 0.2, threads, daemon: 0.9, ..Seen::default() };
        let load = seen.clone().during(3.0, None);
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(near(load.threads[0].waiting, 0.12), "{load:?}");
        assert!(near(load.threads[0].share, 0.96) && near(load.daemon, 1.08), "{load:?}");
        assert!(near(load.idle, 0.52) && near(load.least_idle, 0.04) && near(load.seconds, 3.0), "{load:?}");
        // What others do all the time is not the load's.
        let rest = Seen { idle: 0.6, least_idle: 0.2, ..Seen::default() };
        let load = seen.clone().during(3.0, Some(&rest));
        assert!(near(load.idle, 0.6) && near(load.least_idle, 0.2), "{load:?}");
        // A load that was over at once, or lasted longer than it was watched, says nothing.
        assert_eq!(seen.clone().during(0.0, None), seen);
        let longer = seen.clone().during(9.0, None);
        assert_eq!(longer, seen);
        let scarce = seen.during(1e-5, None);
        assert!(scarce.threads[0].share <= 1.0 && scarce.idle == 0.0 && scarce.least_idle == 0.0, "{scarce:?}");
    }

    #[test]
    fn packets_that_are_fragmented_at_rest_do_not_count() {
        let seen = |fragmented, seconds| Seen { fragmented, seconds, ..Seen::default() };
        assert_eq!(seen(700, 3.0).fragmented_beyond(None), 700);
        assert_eq!(seen(700, 3.0).fragmented_beyond(Some(&seen(100, 0.5))), 100);
        assert_eq!(seen(500, 3.0).fragmented_beyond(Some(&seen(100, 0.5))), 0);
        assert_eq!(seen(700, 3.0).fragmented_beyond(Some(&seen(0, 0.0))), 700);
    }

    #[test]
    fn this_process_is_seen() {
        let seen = Watch::begin(Some(std::process::id()), 9).end();
        assert!(seen.processors > 0 && !seen.threads.is_empty(), "{seen:?}");
        let other = Watch::begin(None, 9).end();
        assert!(other.threads.is_empty() && other.limit.is_none());
    }
}
