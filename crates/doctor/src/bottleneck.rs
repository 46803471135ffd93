//! What bounds a tunnel, in words, from the counters of the run. Each rule looks at one thing that is known to
//! bound tunnels in the field, the most certain first; the first that holds is the answer.

use serde::{Deserialize, Serialize};

/// A sentence about the bottleneck, and the figures that it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bottleneck {
    /// `bound by the receiving daemon: one thread uses a whole core`.
    pub says: String,
    /// `thread wg-right-udp used 0.97 of a core`.
    pub because: String,
}

/// What a bottleneck is found from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// Processors of the machine.
    pub processors: usize,
    /// Share of the machine's time at rest.
    pub idle: f64,
    /// The idle share of the busiest processor.
    pub least_idle: f64,
    /// Each daemon thread's share of one core, and at which end it runs.
    pub threads: Vec<Thread>,
    /// Processor time of both daemons, as a number of cores.
    pub daemons: f64,
    /// Roughly how many packets with payload the tunnel carried: datagrams as counted; for TCP, as many as full
    /// segments would be.
    pub packets: u64,
    /// Of those, the datagrams that the tunnel's sockets dropped because their receive buffers were full.
    pub socket_drops: u64,
    /// IP packets that an end of the tunnel had to fragment.
    pub fragmented: u64,
    /// Share of the TCP segments that were retransmitted.
    pub retransmitted: f64,
}

/// A thread of a daemon.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    /// `the sending daemon`, `the receiving daemon`.
    pub of: &'static str,
    /// Its name.
    pub name: String,
    /// How much of one core it used, 0 to 1.
    pub share: f64,
}

/// A thread with this share of a core never waits.
const WHOLE_CORE: f64 = 0.9;

/// A machine with less idle time is full.
const NO_IDLE: f64 = 0.08;

/// A share of lost datagrams or segments that cannot be chance on a wire inside one machine.
const MANY: f64 = 0.01;

impl Bottleneck {
    /// What bounded a load with this evidence.
    #[must_use]
    pub fn find(evidence: &Evidence) -> Self {
        let rules =
            [socket_overflows, path_is_narrow, machine_is_full, thread_is_full, processor_is_full, segments_get_lost];
        rules.iter().find_map(|rule| rule(evidence)).unwrap_or_else(|| waits(evidence))
    }
}

fn socket_overflows(evidence: &Evidence) -> Option<Bottleneck> {
    let share = evidence.socket_drops as f64 / evidence.packets.max(1) as f64;
    (share > MANY).then(|| Bottleneck {
        says: "a UDP receive buffer of the tunnel overflows: it reads more slowly than datagrams come".into(),
        because: format!(
            "{} datagrams dropped at the tunnel's sockets, about {:.0} % of those sent",
            evidence.socket_drops,
            share * 100.0
        ),
    })
}

fn path_is_narrow(evidence: &Evidence) -> Option<Bottleneck> {
    (evidence.fragmented > evidence.packets / 100 && evidence.fragmented > 100).then(|| Bottleneck {
        says: "the path MTU is below the tunnel's datagrams: they are cut up on the way; lower the tunnel's MTU".into(),
        because: format!("{} packets fragmented, of about {}", evidence.fragmented, evidence.packets),
    })
}

fn machine_is_full(evidence: &Evidence) -> Option<Bottleneck> {
    (evidence.idle < NO_IDLE).then(|| {
        let processors = evidence.processors;
        let of_daemons = evidence.daemons / processors as f64;
        let whose = if evidence.threads.is_empty() {
            "by the load and the kernel"
        } else if of_daemons > 0.5 {
            "mostly by the tunnel"
        } else {
            "mostly by the load and the kernel's own network stack"
        };
        Bottleneck {
            says: format!(
                "bound by this machine's processors, which both ends and the load share: all are busy, {whose}"
            ),
            because: if evidence.threads.is_empty() {
                format!("{:.0} % of {processors} processors idle", evidence.idle * 100.0)
            } else {
                format!(
                    "{:.0} % of {processors} processors idle; the daemons used {:.2} of them",
                    evidence.idle * 100.0,
                    evidence.daemons
                )
            },
        }
    })
}

fn thread_is_full(evidence: &Evidence) -> Option<Bottleneck> {
    let busiest = evidence.threads.iter().max_by(|a, b| a.share.total_cmp(&b.share))?;
    (busiest.share > WHOLE_CORE).then(|| {
        let work = match busiest.of {
            SENDING => "encryption and sending",
            HERE => "encryption or decryption",
            _ => "decryption and receiving",
        };
        Bottleneck {
            says: format!("bound by {work} on one core: {} has a thread that never waits", busiest.of),
            because: format!(
                "thread {} used {:.2} of a core while {:.0} % of the machine was idle",
                busiest.name,
                busiest.share,
                evidence.idle * 100.0
            ),
        }
    })
}

/// The kernel's tunnels, whose work is in no thread, and daemons whose threads migrate.
fn processor_is_full(evidence: &Evidence) -> Option<Bottleneck> {
    (evidence.least_idle < 1.0 - WHOLE_CORE).then(|| Bottleneck {
        says: "bound by one processor, which is full while others have time".into(),
        because: format!(
            "the busiest of {} processors was idle {:.0} % of the time, all together {:.0} %",
            evidence.processors,
            evidence.least_idle * 100.0,
            evidence.idle * 100.0
        ),
    })
}

fn segments_get_lost(evidence: &Evidence) -> Option<Bottleneck> {
    (evidence.retransmitted > MANY / 10.0).then(|| Bottleneck {
        says: "bound by loss: TCP slows down each time a segment does not arrive".into(),
        because: format!("{:.2} % of the segments retransmitted", evidence.retransmitted * 100.0),
    })
}

fn waits(evidence: &Evidence) -> Bottleneck {
    Bottleneck {
        says: "bound by waiting: no processor is full and little is lost, so the round trip or the load's own \
               pace decides"
            .into(),
        because: format!(
            "{:.0} % of {} processors idle, the busiest of them {:.0} %; {:.2} % of the segments retransmitted",
            evidence.idle * 100.0,
            evidence.processors,
            evidence.least_idle * 100.0,
            evidence.retransmitted * 100.0
        ),
    }
}

/// The part of the daemon at the load's source.
pub const SENDING: &str = "the sending daemon";

/// The part of the daemon at the load's destination.
pub const RECEIVING: &str = "the receiving daemon";

/// The part of a daemon of which only this one end is seen.
pub const HERE: &str = "the daemon";

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Evidence {
        Evidence { processors: 8, idle: 0.7, least_idle: 0.5, packets: 700_000, ..Evidence::default() }
    }

    fn says(evidence: &Evidence) -> String {
        Bottleneck::find(evidence).says
    }

    #[test]
    fn a_thread_without_rest_is_named_with_its_part() {
        let thread = |of, share| Thread { of, name: "worker".into(), share };
        let evidence = Evidence { threads: vec![thread(SENDING, 0.4), thread(RECEIVING, 0.97)], ..quiet() };
        let bottleneck = Bottleneck::find(&evidence);
        assert!(bottleneck.says.starts_with("bound by decryption and receiving on one core"), "{}", bottleneck.says);
        assert!(bottleneck.because.contains("0.97 of a core"), "{}", bottleneck.because);
        let evidence = Evidence { threads: vec![thread(SENDING, 0.95)], ..quiet() };
        assert!(says(&evidence).starts_with("bound by encryption and sending"));
    }

    #[test]
    fn fragments_speak_of_the_path() {
        let evidence = Evidence { fragmented: 700_000, ..quiet() };
        assert!(says(&evidence).contains("path MTU is below the tunnel's datagrams"));
        // A few are chance: a probe of a host that does not know the path yet.
        assert!(!says(&Evidence { fragmented: 20, ..quiet() }).contains("path MTU"));
    }

    #[test]
    fn drops_at_the_daemons_socket_come_before_everything() {
        let evidence = Evidence { socket_drops: 99_000, idle: 0.0, retransmitted: 0.14, ..quiet() };
        assert!(says(&evidence).contains("receive buffer of the tunnel overflows"));
        let load_too_slow = Evidence { socket_drops: 10, ..evidence };
        assert!(!says(&load_too_slow).contains("receive buffer"));
    }

    #[test]
    fn a_full_machine_says_who_filled_it() {
        let thread = Thread { of: SENDING, name: "worker".into(), share: 0.7 };
        let evidence = Evidence { idle: 0.01, daemons: 1.4, processors: 2, threads: vec![thread], ..quiet() };
        assert!(says(&evidence).ends_with("mostly by the tunnel"));
        assert!(says(&Evidence { daemons: 0.5, ..evidence.clone() }).ends_with("network stack"));
        assert!(says(&Evidence { threads: Vec::new(), ..evidence }).ends_with("by the load and the kernel"));
    }

    #[test]
    fn loss_is_told_from_waiting() {
        assert!(says(&Evidence { retransmitted: 0.03, ..quiet() }).starts_with("bound by loss"));
        assert!(says(&Evidence { least_idle: 0.02, ..quiet() }).starts_with("bound by one processor"));
        assert!(says(&quiet()).starts_with("bound by waiting"));
    }
}
