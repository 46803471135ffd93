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

/// What a bottleneck is found from. What is not known stays at its default, and no rule speaks of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// The machine that both ends run on, or those of the ends that are seen.
    pub machines: Vec<Machine>,
    /// Roughly how many packets with payload the tunnel carried: datagrams as counted; for TCP, as many as full
    /// segments would be.
    pub packets: u64,
    /// Of those, the datagrams that the tunnel's sockets dropped because their receive buffers were full.
    pub socket_drops: u64,
    /// IP packets that an end of the tunnel had to fragment, beyond those before the load.
    pub fragmented: u64,
    /// Share of the TCP segments that were retransmitted; unknown where no TCP told.
    pub retransmitted: Option<f64>,
    /// Round trips through the tunnel.
    pub round_trips: Option<RoundTrips>,
    /// Share of the time in which TCP waited for room in the receiver's window.
    pub window_full: f64,
    /// Share of the time in which TCP waited for room in the sender's buffer.
    pub buffer_full: f64,
    /// Share of the time in which the responder at the other end held the load back, for its own limit.
    pub held: f64,
    /// That limit, in Mbit/s.
    pub allowed: f64,
}

/// A machine of which processors and daemons are seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Machine {
    /// Which ends it runs.
    pub place: Place,
    /// How many processors it has.
    pub processors: usize,
    /// Share of their time at rest.
    pub idle: f64,
    /// That before the load, if that was looked at.
    pub idle_before: Option<f64>,
    /// The idle share of the busiest processor.
    pub least_idle: f64,
    /// That before the load, if that was looked at.
    pub least_idle_before: Option<f64>,
    /// Each daemon thread's share of one core, and at which end it runs.
    pub threads: Vec<Thread>,
    /// Processor time of its daemons, as a number of cores.
    pub daemons: f64,
    /// What a control group allows the daemon.
    pub limit: Option<Limit>,
}

/// Which ends of the tunnel a machine runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// Both, and the load.
    #[default]
    Both,
    /// The end where the question is asked.
    Here,
    /// The other end.
    There,
}

impl Place {
    /// As part of a sentence; nothing where there is no other machine.
    fn at(self) -> &'static str {
        match self {
            Self::Both => "",
            Self::Here => " at this end",
            Self::There => " at the far end",
        }
    }
}

/// A limit of processor time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// So many processors' worth of time.
    pub processors: f64,
    /// Share of the periods in which it was used up.
    pub used_up: f64,
}

/// Round trips, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrips {
    /// The median at rest.
    pub at_rest: f64,
    /// What nine of ten took longer than, beside the load.
    pub loaded: f64,
}

/// A thread of a daemon.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    /// `the sending daemon`, `the receiving daemon`.
    pub of: &'static str,
    pub name: String,
    /// How much of one core it used, 0 to 1.
    pub share: f64,
    /// How long it waited for a core each time it was ready to run, on average, in milliseconds.
    pub wait: f64,
    /// Share of the time in which it was ready to run, and had no core.
    pub waiting: f64,
}

impl Thread {
    /// The share of the time in which it had something to do.
    fn ready(&self) -> f64 {
        self.share + self.waiting
    }
}

/// A thread with this share of a core never waits.
const WHOLE_CORE: f64 = 0.9;

/// A machine with less idle time is full.
const NO_IDLE: f64 = 0.08;

/// A share of lost datagrams or segments that cannot be chance on a wire inside one machine.
const MANY: f64 = 0.01;

/// A limit that is reached in this share of the time decides.
const MOSTLY: f64 = 0.5;

/// Threads with a smaller share of a core have time: what waits does not wait for them.
const HAS_TIME: f64 = 0.3;

/// A thread that is ready to run in more of the time, on a core or waiting for one, hardly ever sleeps: what waits does
/// so for its machine, which others fill.
const HARDLY_SLEEPS: f64 = 0.75;

/// A queue that is hardly ever empty makes round trips so many times, and so many milliseconds, longer.
const QUEUE: (f64, f64) = (3.0, 1.0);

/// Both daemons handle a round trip's packets, each of them twice, and the kernel's threads wait as they do. So many of
/// their waits explain a longer round trip without any queue.
const WAITS: f64 = 8.0;

/// TCP that waits for room in this share of the time would be faster with more.
const WAITS_FOR_ROOM: f64 = 0.3;

impl Bottleneck {
    /// What bounded a load with this evidence.
    #[must_use]
    pub fn find(evidence: &Evidence) -> Self {
        let rules = [
            responder_limits,
            group_limits,
            socket_overflows,
            path_is_narrow,
            link_is_full,
            machine_is_full,
            thread_is_full,
            processor_is_full,
            segments_get_lost,
            window_is_full,
            buffer_is_full,
        ];
        rules.iter().find_map(|rule| rule(evidence)).unwrap_or_else(|| waits(evidence))
    }
}

fn responder_limits(evidence: &Evidence) -> Option<Bottleneck> {
    (evidence.held > MOSTLY).then(|| Bottleneck {
        says: "bound by the responder's own limit, which its clients share; start it with a higher --rate".into(),
        because: format!(
            "it held the stream back for {:.0} % of the time; it allows {} Mbit/s",
            evidence.held * 100.0,
            evidence.allowed
        ),
    })
}

fn group_limits(evidence: &Evidence) -> Option<Bottleneck> {
    let limits = evidence.machines.iter().filter_map(|machine| Some((machine, machine.limit?)));
    let (machine, limit) = limits.max_by(|(_, one), (_, other)| one.used_up.total_cmp(&other.used_up))?;
    (limit.used_up > MOSTLY).then(|| Bottleneck {
        says: format!(
            "bound by a limit of processor time{}: the daemon's control group uses it up",
            machine.place.at()
        ),
        because: format!(
            "it may use {:.2} of {} processors, and had to wait in {:.0} % of the periods",
            limit.processors,
            machine.processors,
            limit.used_up * 100.0
        ),
    })
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

/// A queue that is there nearly all the time, although the daemons have time.
fn link_is_full(evidence: &Evidence) -> Option<Bottleneck> {
    let RoundTrips { at_rest, loaded } = evidence.round_trips?;
    let most =
        |figure: fn(&Thread) -> f64| evidence.machines.iter().filter_map(Machine::carrier).map(figure).reduce(f64::max);
    let (busiest, wait) = (most(|thread| thread.share)?, most(|thread| thread.wait)?);
    let sleeps = evidence.machines.iter().flat_map(|machine| &machine.threads).all(|one| one.ready() < HARDLY_SLEEPS);
    let has_queue = loaded > at_rest * QUEUE.0 && loaded - at_rest > QUEUE.1.max(wait * WAITS);
    let says = match Unseen::of(&evidence.machines) {
        Unseen::Nothing => "bound by the link between the ends: packets wait for it, not for a processor",
        Unseen::Here => "bound by the link or this end: packets wait, and what the tunnel does at this end is not seen",
        Unseen::There => "bound by the link or the far end: packets wait, and what the tunnel does there is not seen",
        // The rules about processors speak of that.
        Unseen::Full => return None,
    };
    (has_queue && sleeps && busiest < HAS_TIME).then(|| Bottleneck {
        says: says.into(),
        because: format!(
            "nine of ten round trips over {loaded:.1} ms under load, {at_rest:.1} ms at rest; the busiest thread of a \
             daemon used {busiest:.2} of a core"
        ),
    })
}

/// At which end a queue of the tunnel itself may be, for all that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unseen {
    Nothing,
    Here,
    There,
    /// At one whose processor has become full with the load, or all of whose processors are full.
    Full,
}

impl Unseen {
    /// Without a daemon of its own, a tunnel's work is somewhere in its machine: it has time where each processor has.
    fn of(machines: &[Machine]) -> Self {
        let at = |place| machines.iter().find(|machine| machine.place == place || machine.place == Place::Both);
        for (machine, unseen) in [(at(Place::Here), Self::Here), (at(Place::There), Self::There)] {
            let Some(machine) = machine else { return unseen };
            if machine.threads.is_empty() && machine.least_idle < 1.0 - WHOLE_CORE {
                let is_full = machine.idle < NO_IDLE || !machine.was_full();
                return if is_full { Self::Full } else { unseen };
            }
        }
        Self::Nothing
    }
}

impl Machine {
    /// Of its daemon, the thread that carries the packets.
    fn carrier(&self) -> Option<&Thread> {
        self.threads.iter().max_by(|one, other| one.share.total_cmp(&other.share))
    }

    /// Whether one of its processors was full before the load.
    fn was_full(&self) -> bool {
        self.least_idle_before.is_some_and(|idle| idle < 1.0 - WHOLE_CORE)
    }
}

fn machine_is_full(evidence: &Evidence) -> Option<Bottleneck> {
    let machine = evidence.machines.iter().min_by(|one, other| one.idle.total_cmp(&other.idle))?;
    (machine.idle < NO_IDLE).then(|| {
        let processors = machine.processors;
        let of_daemons = machine.daemons / processors as f64;
        let whose = if machine.idle_before.is_some_and(|idle| idle < NO_IDLE) {
            "as they were before, by other programs"
        } else if machine.threads.is_empty() {
            "by the load and the kernel"
        } else if of_daemons > 0.5 {
            "mostly by the tunnel"
        } else {
            "mostly by the load and the kernel's own network stack"
        };
        let which = match machine.place {
            Place::Both => "this machine's processors, which both ends and the load share",
            Place::Here => "the processors at this end",
            Place::There => "the processors at the far end",
        };
        Bottleneck {
            says: format!("bound by {which}: all are busy, {whose}"),
            because: if machine.threads.is_empty() {
                format!("{:.0} % of {processors} processors idle", machine.idle * 100.0)
            } else {
                let daemons = if machine.place == Place::Both { "daemons" } else { "daemon" };
                format!(
                    "{:.0} % of {processors} processors idle; the {daemons} used {:.2} of them",
                    machine.idle * 100.0,
                    machine.daemons
                )
            },
        }
    })
}

fn thread_is_full(evidence: &Evidence) -> Option<Bottleneck> {
    let threads =
        evidence.machines.iter().flat_map(|machine| machine.threads.iter().map(move |thread| (machine, thread)));
    let (machine, busiest) = threads.max_by(|(_, one), (_, other)| one.share.total_cmp(&other.share))?;
    (busiest.share > WHOLE_CORE).then(|| {
        let work = match busiest.of {
            SENDING => "encryption and sending",
            HERE => "encryption or decryption",
            _ => "decryption and receiving",
        };
        Bottleneck {
            says: format!(
                "bound by {work} on one core{}: {} has a thread that never waits",
                machine.place.at(),
                busiest.of
            ),
            because: format!(
                "thread {} used {:.2} of a core while {:.0} % of the machine was idle",
                busiest.name,
                busiest.share,
                machine.idle * 100.0
            ),
        }
    })
}

/// The kernel's tunnels, whose work is in no thread, and daemons whose threads migrate.
fn processor_is_full(evidence: &Evidence) -> Option<Bottleneck> {
    // What was full before the load is not what the load is bound by, for all that is known.
    let machines = evidence.machines.iter().filter(|machine| !machine.was_full());
    let machine = machines.min_by(|one, other| one.least_idle.total_cmp(&other.least_idle))?;
    (machine.least_idle < 1.0 - WHOLE_CORE).then(|| Bottleneck {
        says: format!("bound by one processor{}, which is full while others have time", machine.place.at()),
        because: format!(
            "the busiest of {} processors was idle {:.0} % of the time, all together {:.0} %",
            machine.processors,
            machine.least_idle * 100.0,
            machine.idle * 100.0
        ),
    })
}

fn segments_get_lost(evidence: &Evidence) -> Option<Bottleneck> {
    let retransmitted = evidence.retransmitted?;
    (retransmitted > MANY / 10.0).then(|| Bottleneck {
        says: "bound by loss: TCP slows down each time a segment does not arrive".into(),
        because: format!("{:.2} % of the segments retransmitted", retransmitted * 100.0),
    })
}

fn window_is_full(evidence: &Evidence) -> Option<Bottleneck> {
    (evidence.window_full > WAITS_FOR_ROOM).then(|| Bottleneck {
        says: "bound by the receiver's TCP window, too small for this round trip; `sysctl net.ipv4.tcp_rmem` there"
            .into(),
        because: format!("TCP waited for it {:.0} % of the time", evidence.window_full * 100.0),
    })
}

fn buffer_is_full(evidence: &Evidence) -> Option<Bottleneck> {
    (evidence.buffer_full > WAITS_FOR_ROOM).then(|| Bottleneck {
        says: "bound by the sender's TCP buffer, too small for this round trip; `sysctl net.ipv4.tcp_wmem` there"
            .into(),
        because: format!("TCP waited for it {:.0} % of the time", evidence.buffer_full * 100.0),
    })
}

fn waits(evidence: &Evidence) -> Bottleneck {
    let of_machine = |machine: &Machine| {
        format!(
            "{:.0} % of {} processors{} idle, the busiest of them {:.0} %",
            machine.idle * 100.0,
            machine.processors,
            machine.place.at(),
            machine.least_idle * 100.0,
        )
    };
    let mut figures: Vec<String> = evidence.machines.iter().map(of_machine).collect();
    let retransmitted = |share| format!("{:.2} % of the segments retransmitted", share * 100.0);
    figures.extend(evidence.retransmitted.map(retransmitted));
    let little_is_lost = if evidence.retransmitted.is_some() { " and little is lost" } else { "" };
    Bottleneck {
        says: format!(
            "bound by waiting: no processor is full{little_is_lost}, so the round trip or the load's own pace decides"
        ),
        because: figures.join("; "),
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
        Evidence { machines: vec![machine()], packets: 700_000, ..Evidence::default() }
    }

    fn machine() -> Machine {
        Machine { processors: 8, idle: 0.7, least_idle: 0.5, ..Machine::default() }
    }

    fn on(machine: Machine) -> Evidence {
        Evidence { machines: vec![machine], ..quiet() }
    }

    fn thread(of: &'static str, share: f64) -> Thread {
        Thread { of, name: "worker".into(), share, wait: 0.1, waiting: 0.0 }
    }

    fn says(evidence: &Evidence) -> String {
        Bottleneck::find(evidence).says
    }

    #[test]
    fn a_thread_without_rest_is_named_with_its_part() {
        let threads = vec![thread(SENDING, 0.4), thread(RECEIVING, 0.97)];
        let bottleneck = Bottleneck::find(&on(Machine { threads, ..machine() }));
        assert!(bottleneck.says.starts_with("bound by decryption and receiving on one core:"), "{}", bottleneck.says);
        assert!(bottleneck.because.contains("0.97 of a core"), "{}", bottleneck.because);
        let threads = vec![thread(SENDING, 0.95)];
        assert!(says(&on(Machine { threads, ..machine() })).starts_with("bound by encryption and sending"));
    }

    #[test]
    fn of_two_machines_the_one_that_is_full_is_named() {
        let here = Machine { place: Place::Here, threads: vec![thread(SENDING, 0.4)], ..machine() };
        let there = Machine { place: Place::There, threads: vec![thread(RECEIVING, 0.98)], ..machine() };
        let of = |here: &Machine, there: &Machine| {
            let one = says(&Evidence { machines: vec![here.clone(), there.clone()], ..quiet() });
            let other = says(&Evidence { machines: vec![there.clone(), here.clone()], ..quiet() });
            assert_eq!(one, other, "the order does not matter");
            one
        };
        assert!(of(&here, &there).starts_with("bound by decryption and receiving on one core at the far end:"));
        let here = Machine { idle: 0.01, ..here };
        assert!(of(&here, &there).starts_with("bound by the processors at this end: all are busy"));
        let there = Machine { threads: Vec::new(), least_idle: 0.01, ..there };
        assert!(of(&Machine { idle: 0.5, ..here }, &there).starts_with("bound by one processor at the far end"));
        let limit = Some(Limit { processors: 0.2, used_up: 0.97 });
        let bottleneck = Bottleneck::find(&on(Machine { limit, ..there }));
        assert!(bottleneck.says.starts_with("bound by a limit of processor time at the far end"));
        assert_eq!(bottleneck.because, "it may use 0.20 of 8 processors, and had to wait in 97 % of the periods");
    }

    #[test]
    fn a_queue_is_the_links_only_while_the_daemons_have_time() {
        let with = |share, wait, at_rest, loaded| {
            let threads =
                vec![Thread { wait, ..thread(SENDING, share) }, Thread { wait: 99.0, ..thread(SENDING, 0.0) }];
            let round_trips = Some(RoundTrips { at_rest, loaded });
            // A machine that others fill is not what bounds this.
            says(&Evidence { round_trips, ..on(Machine { threads, idle: 0.0, ..machine() }) })
        };
        assert!(with(0.05, 0.2, 0.4, 26.0).starts_with("bound by the link between the ends"));
        assert!(with(0.05, 0.2, 40.0, 60.0).starts_with("bound by this machine's processors"), "no queue");
        assert!(with(0.05, 0.0, 0.1, 0.9).starts_with("bound by this machine's processors"), "hardly a queue");
        assert!(with(0.6, 0.2, 0.4, 26.0).starts_with("bound by this machine's processors"), "the daemon's queue");
        assert!(with(0.05, 4.0, 0.4, 26.0).starts_with("bound by this machine's processors"), "waits for a core");
    }

    #[test]
    fn a_queue_before_a_daemon_that_hardly_gets_a_core_is_its_machines() {
        // What TCP keeps waiting in a queue has nothing to do with how long the daemon waits for a core each time.
        let round_trips = Some(RoundTrips { at_rest: 0.4, loaded: 250.0 });
        let with = |share, waiting| {
            let threads = vec![Thread { waiting, wait: 4.0, ..thread(SENDING, share) }];
            let machine = Machine { threads, idle: 0.01, idle_before: Some(0.02), ..machine() };
            says(&Evidence { round_trips, ..on(machine) })
        };
        assert!(with(0.2, 0.75).ends_with("all are busy, as they were before, by other programs"));
        assert!(with(0.05, 0.4).starts_with("bound by the link between the ends"), "it sleeps in half of the time");
    }

    #[test]
    fn a_queue_is_the_links_only_if_both_ends_are_seen() {
        let seen = |place, threads| Machine { place, threads, ..machine() };
        let here = seen(Place::Here, vec![thread(SENDING, 0.05)]);
        let there = seen(Place::There, vec![thread(RECEIVING, 0.05)]);
        let round_trips = Some(RoundTrips { at_rest: 0.4, loaded: 26.0 });
        let with = |machines: &[&Machine]| {
            says(&Evidence { round_trips, machines: machines.iter().copied().cloned().collect(), ..quiet() })
        };
        assert!(with(&[&here, &there]).starts_with("bound by the link between the ends"));
        assert!(with(&[&here]).starts_with("bound by the link or the far end"));
        // A kernel's tunnel, whose machine has time, is full, or was so before.
        let kernels = |least_idle, before| {
            let there = Machine { least_idle, least_idle_before: Some(before), ..seen(Place::There, Vec::new()) };
            with(&[&here, &there])
        };
        assert!(kernels(0.4, 0.9).starts_with("bound by the link between the ends"));
        assert!(kernels(0.02, 0.9).starts_with("bound by one processor at the far end"));
        assert!(kernels(0.02, 0.03).starts_with("bound by the link or the far end"));
        let full = Machine {
            idle: 0.01,
            idle_before: Some(0.02),
            least_idle: 0.0,
            least_idle_before: Some(0.01),
            ..seen(Place::There, Vec::new())
        };
        assert!(with(&[&here, &full]).ends_with("all are busy, as they were before, by other programs"));
    }

    #[test]
    fn a_processor_that_was_full_before_is_not_what_bounds() {
        let full = Machine { least_idle: 0.02, ..machine() };
        assert!(
            says(&on(Machine { least_idle_before: Some(0.6), ..full.clone() })).starts_with("bound by one processor")
        );
        assert!(says(&on(Machine { least_idle_before: Some(0.04), ..full })).starts_with("bound by waiting"));
    }

    #[test]
    fn what_tcp_does_not_tell_is_not_said_to_be_nothing() {
        let Bottleneck { says, because } = Bottleneck::find(&quiet());
        assert!(!says.contains("little is lost") && because.ends_with("the busiest of them 50 %"), "{because}");
        let Bottleneck { says, because } = Bottleneck::find(&Evidence { retransmitted: Some(0.0), ..quiet() });
        assert!(says.contains("little is lost") && because.ends_with("; 0.00 % of the segments retransmitted"));
    }

    #[test]
    fn room_that_tcp_waits_for_is_named() {
        assert!(says(&Evidence { window_full: 0.4, ..quiet() }).contains("the receiver's TCP window"));
        assert!(says(&Evidence { buffer_full: 0.4, ..quiet() }).contains("the sender's TCP buffer"));
        assert!(says(&Evidence { held: 0.97, ..quiet() }).contains("the responder's own limit"));
        assert!(says(&Evidence { window_full: 0.2, buffer_full: 0.2, held: 0.4, ..quiet() }).contains("waiting"));
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
        let machine = Machine { idle: 0.0, ..machine() };
        let evidence = Evidence { socket_drops: 99_000, retransmitted: Some(0.14), ..on(machine) };
        assert!(says(&evidence).contains("receive buffer of the tunnel overflows"));
        let load_too_slow = Evidence { socket_drops: 10, ..evidence };
        assert!(!says(&load_too_slow).contains("receive buffer"));
    }

    #[test]
    fn a_full_machine_says_who_filled_it() {
        let threads = vec![thread(SENDING, 0.7)];
        let full = Machine { idle: 0.01, daemons: 1.4, processors: 2, threads, ..machine() };
        assert!(says(&on(full.clone())).ends_with("mostly by the tunnel"));
        assert!(says(&on(Machine { daemons: 0.5, ..full.clone() })).ends_with("network stack"));
        assert!(says(&on(Machine { idle_before: Some(0.02), ..full.clone() })).ends_with("before, by other programs"));
        assert!(says(&on(Machine { threads: Vec::new(), ..full })).ends_with("by the load and the kernel"));
    }

    #[test]
    fn loss_is_told_from_waiting() {
        assert!(says(&Evidence { retransmitted: Some(0.03), ..quiet() }).starts_with("bound by loss"));
        assert!(says(&on(Machine { least_idle: 0.02, ..machine() })).starts_with("bound by one processor"));
        assert!(says(&quiet()).starts_with("bound by waiting"));
        assert!(says(&Evidence::default()).starts_with("bound by waiting"));
    }
}
