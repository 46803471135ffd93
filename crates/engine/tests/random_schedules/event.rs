//! The events of a schedule.

use crate::rng::Rng;

/// What the network does to datagrams. Probabilities are in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairments {
    pub loss: u64,
    pub duplication: u64,
    pub corruption: u64,
    /// Datagrams that are up to five minutes late.
    pub late: u64,
    /// Milliseconds for each datagram.
    pub delay: u64,
    /// Up to this many milliseconds more, so that datagrams overtake each other.
    pub jitter: u64,
}

/// Hosts are numbered. Host 0 is the hub: the only peer of each other host.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Send {
        from: usize,
        packets: u64,
    },
    Pause {
        millis: u64,
    },
    Impairments(Impairments),
    /// The process is killed and started again with the same configuration.
    Restart {
        host: usize,
    },
    /// The interface goes down and up.
    Bounce {
        host: usize,
    },
    Suspend {
        host: usize,
        secs: u64,
    },
    /// The wall clock is set forward or back.
    SetClock {
        host: usize,
        secs: i64,
    },
    /// The host gets another address.
    Move {
        host: usize,
        place: u8,
    },
    /// `sync_peers`: the peers get the new key at once.
    NewKey {
        host: usize,
        sync_peers: bool,
    },
    NewPresharedKey {
        host: usize,
        peer: usize,
        sync_peers: bool,
    },
    Allow {
        host: usize,
        peer: usize,
        prefix: ([u8; 4], u8),
    },
    Forbid {
        host: usize,
        peer: usize,
        prefix: ([u8; 4], u8),
    },
    Keepalive {
        host: usize,
        peer: usize,
        secs: u16,
    },
    /// `expires` is in seconds from now, `quota` in bytes.
    Limit {
        host: usize,
        peer: usize,
        expires: Option<u64>,
        quota: Option<u64>,
    },
    /// `again`: it is added again at once.
    RemovePeer {
        host: usize,
        peer: usize,
        again: bool,
    },
    /// An attacker replays old datagrams.
    Replay {
        datagrams: u64,
    },
    /// An attacker sends garbage, altered copies, and initiations that were answered before.
    Forge {
        datagrams: u64,
    },
}

/// How a schedule ends, once traffic flows again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    AtOnce,
    /// Traffic goes on for longer than keys live.
    Traffic,
    /// No traffic for longer than keys are kept.
    Silence,
}

#[derive(Clone, Debug)]
pub struct Schedule {
    pub seed: u64,
    pub hosts: usize,
    pub ending: Ending,
    pub events: Vec<Event>,
}

impl Schedule {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let hosts = if rng.chance(30) { 3 } else { 2 };
        let ending = match rng.below(60) {
            0 => Ending::Traffic,
            1 => Ending::Silence,
            _ => Ending::AtOnce,
        };
        let length = 4 + rng.below(16);
        Self { seed, hosts, ending, events: (0..length).map(|_| Event::any(&mut rng, hosts)).collect() }
    }
}

impl Event {
    fn any(rng: &mut Rng, hosts: usize) -> Self {
        let host = rng.below(hosts as u64) as usize;
        let peer = if host == 0 { 1 + rng.below(hosts as u64 - 1) as usize } else { 0 };
        match rng.below(100) {
            0..30 => Self::Send { from: host, packets: rng.pick(&[1, 1, 2, 5, 20]) },
            30..55 => Self::Pause { millis: pause(rng) },
            55..60 => Self::Impairments(impairments(rng)),
            60..63 => Self::Limit {
                host,
                peer,
                expires: rng.pick(&[None, None, Some(0), Some(1), Some(20), Some(200)]),
                quota: rng.pick(&[None, None, Some(0), Some(1000), Some(5000)]),
            },
            63..66 => Self::Restart { host },
            66..68 => Self::Bounce { host },
            68..70 => Self::Suspend { host, secs: rng.pick(&[1, 30, 200, 3600]) },
            70..74 => Self::SetClock { host, secs: rng.pick(&[-86_400, -3600, -1, 1, 3600, 86_400]) },
            74..78 => Self::Move { host, place: rng.below(4) as u8 },
            78..80 => Self::NewKey { host, sync_peers: rng.chance(60) },
            80..82 => Self::NewPresharedKey { host, peer, sync_peers: rng.chance(60) },
            82..86 => Self::Allow { host, peer, prefix: prefix(rng) },
            86..88 => Self::Forbid { host, peer, prefix: prefix(rng) },
            88..91 => Self::Keepalive { host, peer, secs: rng.pick(&[0, 1, 5, 25, u16::MAX]) },
            91..93 => Self::RemovePeer { host, peer, again: rng.chance(60) },
            93..97 => Self::Replay { datagrams: 1 + rng.below(8) },
            _ => Self::Forge { datagrams: 1 + rng.below(8) },
        }
    }
}

fn pause(rng: &mut Rng) -> u64 {
    match rng.below(40) {
        0..14 => rng.below(100),
        14..26 => rng.below(5000),
        26..34 => rng.below(25_000),
        34..38 => rng.below(130_000),
        38 => rng.below(200_000),
        _ => rng.below(600_000),
    }
}

fn impairments(rng: &mut Rng) -> Impairments {
    Impairments {
        loss: rng.pick(&[0, 0, 10, 50, 100]),
        duplication: rng.pick(&[0, 20]),
        corruption: rng.pick(&[0, 0, 20]),
        late: rng.pick(&[0, 0, 20]),
        delay: rng.pick(&[0, 0, 20, 500]),
        jitter: rng.pick(&[0, 0, 30, 1000, 6000]),
    }
}

fn prefix(rng: &mut Rng) -> ([u8; 4], u8) {
    rng.pick(&[
        ([10, 0, 1, 1], 32),
        ([10, 0, 1, 2], 32),
        ([10, 0, 1, 0], 30),
        ([10, 0, 1, 77], 24),
        ([10, 0, 0, 1], 32),
        ([10, 0, 0, 2], 32),
        ([10, 0, 0, 0], 16),
        ([0, 0, 0, 0], 0),
    ])
}
