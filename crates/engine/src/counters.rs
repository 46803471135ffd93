//! Counts dropped packets by reason, handshakes by how far they came, and wake-ups and looks for packets by whether they
//! found work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linerate_protocol::DropReason;

/// Why the engine dropped a packet; the protocol has reasons of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum EngineDropReason {
    /// From the TUN device: neither IPv4 nor IPv6, or inconsistent lengths.
    InnerMalformed,
    /// From the TUN device: its virtio header does not fit the packet.
    GsoMalformed,
    /// From the TUN device: no peer has the destination among its allowed IPs.
    NoPeer,
    /// From the TUN device: the peer has no endpoint.
    NoEndpoint,
    /// From the TUN device: the peer has expired, or its quota is reached.
    Suspended,
    /// From the TUN device, or to it: the peer's rate is reached.
    OverRate,
    /// From the TUN device: our own datagram, routed back into the tunnel it came from.
    RoutingLoop,
    /// Staged: the queue was full, so the oldest packet was dropped.
    StagedOverflow,
    /// Staged: the handshake failed or the device went down.
    StagedAbandoned,
    /// To the wire: no socket of the endpoint's address family.
    NoSocket,
    /// To the wire: the socket's buffer was full.
    SendBusy,
    /// To the wire: a firewall of this host refused it.
    SendDenied,
    /// To the wire: no route, or an ICMP error said unreachable.
    SendUnreachable,
    /// To the wire: larger than the system can send.
    SendTooBig,
    /// To the wire: another error.
    SendFailed,
    /// From the wire: handshake messages arrived faster than they are processed.
    BacklogFull,
    /// To the TUN device: it refused the packet, as it does while the link is down.
    TunRefused,
}

const ENGINE: [(EngineDropReason, &str); 17] = [
    (EngineDropReason::InnerMalformed, "inner_malformed"),
    (EngineDropReason::GsoMalformed, "gso_malformed"),
    (EngineDropReason::NoPeer, "no_peer"),
    (EngineDropReason::NoEndpoint, "no_endpoint"),
    (EngineDropReason::Suspended, "suspended"),
    (EngineDropReason::OverRate, "over_rate"),
    (EngineDropReason::RoutingLoop, "routing_loop"),
    (EngineDropReason::StagedOverflow, "staged_overflow"),
    (EngineDropReason::StagedAbandoned, "staged_abandoned"),
    (EngineDropReason::NoSocket, "no_socket"),
    (EngineDropReason::SendBusy, "send_busy"),
    (EngineDropReason::SendDenied, "send_denied"),
    (EngineDropReason::SendUnreachable, "send_unreachable"),
    (EngineDropReason::SendTooBig, "send_too_big"),
    (EngineDropReason::SendFailed, "send_failed"),
    (EngineDropReason::BacklogFull, "backlog_full"),
    (EngineDropReason::TunRefused, "tun_refused"),
];

/// The counter that is 1 while the link is up and the port cannot be bound.
pub const NOT_LISTENING: &str = "not_listening";

/// The counter of the peers that are suspended now.
pub const PEERS_SUSPENDED: &str = "peers_suspended";

/// The counter of packets that were marked for their peer's rate. A daemon that has it knows rates.
pub const RATE_MARKED: &str = "rate_marked";

/// Wake-ups of one kind, or looks for packets.
#[derive(Default)]
pub struct Wakeups {
    work: AtomicU64,
    empty: AtomicU64,
}

impl Wakeups {
    /// Counts one, by whether there was work.
    pub fn count(&self, found_work: bool) {
        let counter = if found_work { &self.work } else { &self.empty };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// All counters of one engine. They only grow, except flags, which are 0 or 1, and the suspended peers.
pub struct Counters {
    engine: [AtomicU64; ENGINE.len()],
    protocol: [AtomicU64; DropReason::ALL.len()],
    /// Wake-ups of a worker by the TUN device.
    pub outbound: Wakeups,
    /// Wake-ups of a worker by a socket.
    pub inbound: Wakeups,
    /// Wake-ups of a helper by another worker.
    pub helpers: Wakeups,
    /// Wake-ups of the control thread.
    pub control: Wakeups,
    /// Looks for packets before a worker sleeps.
    pub looks: Wakeups,
    /// Initiations that were sent.
    pub initiations_sent: AtomicU64,
    /// Responses that were sent.
    pub responses_sent: AtomicU64,
    /// Handshakes that are complete: answered, or confirmed by the peer that started them.
    pub handshakes_done: AtomicU64,
    /// GSO batches that the system refused and that were sent as single datagrams.
    pub segmentation_refused: AtomicU64,
    /// Whether the link is up and the port cannot be bound.
    pub not_listening: AtomicBool,
    /// The peers that are suspended now.
    pub peers_suspended: AtomicU64,
    /// Packets that were marked as having met congestion, before their peer's rate was reached.
    pub rate_marked: AtomicU64,
    /// How often the allowed IPs of a group moved to another of its peers.
    #[cfg(feature = "fleet")]
    pub group_moves: AtomicU64,
    /// Echo requests that peers of groups were sent because they were silent.
    #[cfg(feature = "fleet")]
    pub group_echoes: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            engine: [const { AtomicU64::new(0) }; ENGINE.len()],
            protocol: [const { AtomicU64::new(0) }; DropReason::ALL.len()],
            outbound: Wakeups::default(),
            inbound: Wakeups::default(),
            helpers: Wakeups::default(),
            control: Wakeups::default(),
            looks: Wakeups::default(),
            initiations_sent: AtomicU64::new(0),
            responses_sent: AtomicU64::new(0),
            handshakes_done: AtomicU64::new(0),
            segmentation_refused: AtomicU64::new(0),
            not_listening: AtomicBool::new(false),
            peers_suspended: AtomicU64::new(0),
            rate_marked: AtomicU64::new(0),
            #[cfg(feature = "fleet")]
            group_moves: AtomicU64::new(0),
            #[cfg(feature = "fleet")]
            group_echoes: AtomicU64::new(0),
        }
    }
}

impl Counters {
    /// Counts one packet dropped for one of the engine's reasons.
    pub fn count_drop(&self, reason: EngineDropReason) {
        self.count_drops(reason, 1);
    }

    /// Counts several.
    pub fn count_drops(&self, reason: EngineDropReason, packets: u64) {
        self.engine[reason as usize].fetch_add(packets, Ordering::Relaxed);
    }

    /// Counts one packet dropped for one of the protocol's reasons.
    pub fn count_protocol_drop(&self, reason: DropReason) {
        self.protocol[reason.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Every counter by name, in a fixed order.
    pub fn list(&self) -> Vec<(String, u64)> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let wakers = [
            ("wakeups_outbound", &self.outbound),
            ("wakeups_inbound", &self.inbound),
            ("wakeups_helpers", &self.helpers),
            ("wakeups_control", &self.control),
            ("looks", &self.looks),
        ];
        let wakeups = wakers.into_iter().flat_map(|(name, wakeups)| {
            [(format!("{name}_work"), load(&wakeups.work)), (format!("{name}_empty"), load(&wakeups.empty))]
        });
        let others = [
            ("handshake_initiations_sent".to_owned(), load(&self.initiations_sent)),
            ("handshake_responses_sent".to_owned(), load(&self.responses_sent)),
            ("handshakes_done".to_owned(), load(&self.handshakes_done)),
            ("segmentation_refused".to_owned(), load(&self.segmentation_refused)),
            (NOT_LISTENING.to_owned(), u64::from(self.not_listening.load(Ordering::Relaxed))),
            (PEERS_SUSPENDED.to_owned(), load(&self.peers_suspended)),
            (RATE_MARKED.to_owned(), load(&self.rate_marked)),
            #[cfg(feature = "fleet")]
            ("group_moves".to_owned(), load(&self.group_moves)),
            #[cfg(feature = "fleet")]
            ("group_echoes".to_owned(), load(&self.group_echoes)),
        ];
        let engine = ENGINE.iter().map(|(reason, name)| (format!("drop_{name}"), load(&self.engine[*reason as usize])));
        let protocol = DropReason::ALL
            .iter()
            .map(|reason| (format!("drop_{}", reason.name()), load(&self.protocol[reason.index()])));
        wakeups.chain(others).chain(engine).chain(protocol).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed_once_under_its_own_name() {
        for (index, (reason, name)) in ENGINE.iter().enumerate() {
            assert_eq!(index, *reason as usize, "{name} is at its own index");
        }
        let counters = Counters::default();
        counters.count_drops(EngineDropReason::NoPeer, 3);
        counters.count_protocol_drop(DropReason::ALL[0]);
        let list = counters.list();
        let value = |name: &str| list.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
        assert_eq!(value("drop_no_peer"), Some(3));
        assert_eq!(value(&format!("drop_{}", DropReason::ALL[0].name())), Some(1));
        let mut names: Vec<_> = list.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), list.len(), "two counters have the same name");
    }
}
