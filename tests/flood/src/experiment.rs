//! A tunnel on two hosts, flooded for one round.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use linerate_lab::load::{self, Arrived, Traffic};
use linerate_lab::ping::{self, Probes};
use linerate_lab::run::WARM_UP;
use linerate_lab::sandbox::Sandbox;
use linerate_lab::subject::{KeyPair, Subject};
use linerate_lab::topology::{AddressFamily, Testbed, Topology};
use linerate_lab::tunnel::Tunnel;
use linerate_lab::{Result, peers};

use crate::{Capture, Content, Flood, FloodReport, NewPeersReport, Unread};

/// Peers that flood with valid initiations, and that shake hands where handshakes are counted.
const FRESH_PEERS: usize = 10_000;

/// Peers that the daemon has not heard from and that want to get in during a flood.
const NEW_PEERS: usize = 50;

/// Probes that are captured to be replayed.
const REPLAYED: u32 = 64;

const TRAFFIC: Traffic = Traffic::Tcp { streams: 1, reverse: false };

/// What a round measures.
pub const COLUMNS: [&str; 8] = ["1000/s", "Gbit/s", "kept %", "unread %", "daemon %", "new %", "after ms", "memory MB"];

/// A figure for each of the columns, not finite where there is none.
pub type Figures = [f64; COLUMNS.len()];

/// How a round is measured. Each has hosts of its own.
pub struct Experiment<'a> {
    /// Where the hosts are.
    pub inside: &'a Sandbox,
    /// The daemon.
    pub subject: &'a Subject,
    /// Seconds of each measurement.
    pub seconds: f64,
}

impl Experiment<'_> {
    /// The same traffic three times: undisturbed, during a flood of a socket that nobody reads, and during the flood of
    /// the daemon, when new peers want to get in, too.
    ///
    /// # Errors
    ///
    /// Why the tunnel, the flood or the traffic failed.
    pub fn flood(&self, content: Content) -> Result<Figures> {
        self.with_tunnel(|pair| {
            let flooding = if content == Content::Valid { FRESH_PEERS } else { 0 };
            let peers = peers::fresh(flooding + NEW_PEERS);
            pair.tunnel.add_peers(1, &peers::update(&peers))?;
            let (flooding, new) = peers.split_at(flooding);
            let captured = if content == Content::Replayed { pair.capture()? } else { Vec::new() };
            let unread = Unread::open(pair.testbed.server(), pair.to().ip())?;
            let flood = Flood {
                to: pair.to(),
                responder: pair.keys[1].public,
                content,
                captured: &captured,
                peers: flooding,
                rate: Some(rate(content)),
                seconds: self.traffic_seconds(),
            };
            // What is not read costs the same whatever is in it.
            let elsewhere = Flood { to: unread.endpoint()?, content: Content::WrongMac1, ..flood };
            let undisturbed = pair.load(self.seconds)?.rate();
            let (arrived, ..) = pair.load_during(&elsewhere, &[], self.seconds)?;
            let unread = arrived.rate();
            let (arrived, flood, new) = pair.load_during(&flood, new, self.seconds)?;
            let daemon = arrived.rate();
            let memory = pair.tunnel.usage()?.iter().map(|usage| usage.peak_resident).max();
            Ok([
                flood.rate() / 1e3,
                daemon / 1e9,
                100.0 * daemon / undisturbed,
                100.0 * unread / undisturbed,
                100.0 * daemon / unread,
                100.0 * new.answered(),
                1e3 * new.median().unwrap_or(f64::NAN),
                memory.map_or(f64::NAN, |bytes| bytes as f64 / 1e6),
            ])
        })
    }

    /// Handshakes of fresh peers, as fast as they complete.
    ///
    /// # Errors
    ///
    /// Why the tunnel or the handshakes failed.
    pub fn handshakes(&self) -> Result<Handshakes> {
        self.with_tunnel(|pair| {
            let fresh = peers::fresh(FRESH_PEERS);
            pair.tunnel.add_peers(1, &peers::update(&fresh))?;
            let used = || Ok(pair.tunnel.usage()?.iter().map(|usage| usage.seconds()).sum::<f64>());
            let before = used()?;
            let [near, far] = pair.testbed.ends();
            let report = crate::handshakes(near, far, pair.to(), pair.keys[1].public, &fresh, self.seconds)?;
            let per_core_second = report.completed as f64 / (used()? - before);
            Ok(Handshakes { per_second: report.rate(), per_core_second, cookie_replies: report.cookie_replies })
        })
    }

    fn with_tunnel<T>(&self, measure: impl FnOnce(&Pair<'_>) -> Result<T>) -> Result<T> {
        let testbed = Testbed::build(self.inside, &Topology::Pair, 1)?;
        let keys = peers::key_pairs();
        let tunnel = Tunnel::up(self.subject, &testbed, &keys, AddressFamily::V4)?;
        let pair = Pair { testbed: &testbed, tunnel: &tunnel, keys: &keys };
        let measured = measure(&pair)?;
        tunnel.down()?;
        Ok(measured)
    }

    /// Seconds that the traffic takes at most: iperf3 runs for whole seconds, and takes some time to start.
    fn traffic_seconds(&self) -> f64 {
        (WARM_UP + self.seconds).ceil() + 0.5
    }
}

/// Datagrams per second. Valid initiations are made beforehand, each with two X25519, so they are fewer.
fn rate(content: Content) -> u32 {
    if content == Content::Valid { 50_000 } else { 200_000 }
}

/// Two hosts with a tunnel between them. The flood comes from the first.
struct Pair<'a> {
    testbed: &'a Testbed,
    tunnel: &'a Tunnel<'a>,
    keys: &'a [KeyPair; 2],
}

impl Pair<'_> {
    /// The endpoint of the daemon that is flooded.
    fn to(&self) -> SocketAddr {
        self.testbed.endpoint(0, AddressFamily::V4)
    }

    /// Data messages of the client's session, as they arrive at the daemon.
    fn capture(&self) -> Result<Vec<crate::Message>> {
        let capture = Capture::begin(self.testbed.server(), self.to())?;
        let probes = Probes { count: REPLAYED, ..Probes::default() };
        let to = self.tunnel.to(AddressFamily::V4);
        self.testbed.client().inside(|| ping::run(to, &probes))?;
        capture.end()
    }

    fn load(&self, seconds: f64) -> Result<Arrived> {
        let to = self.tunnel.to(AddressFamily::V4);
        let arrived = load::run(self.testbed.client(), self.testbed.server(), to, &TRAFFIC, WARM_UP, seconds);
        // Asked first: a daemon that died explains everything else.
        self.tunnel.usage()?;
        arrived
    }

    /// The traffic during a flood, and what became of the new peers that tried meanwhile.
    fn load_during(
        &self,
        flood: &Flood<'_>,
        new: &[KeyPair],
        seconds: f64,
    ) -> Result<(Arrived, FloodReport, NewPeersReport)> {
        let [near, far] = self.testbed.ends();
        let running = crate::start(near, far, flood)?;
        let time = Duration::from_secs_f64(flood.seconds);
        let (arrived, tried) = thread::scope(|scope| {
            let tried = scope.spawn(|| crate::new_peers(near, far, flood.to, flood.responder, new, time));
            (self.load(seconds), tried.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let report = running.stop()?;
        Ok((arrived?, report, tried?))
    }
}

/// How fast a daemon completes handshakes.
pub struct Handshakes {
    /// Handshakes that were completed in a second.
    pub per_second: f64,
    /// The same in a second of processor time, of both ends' daemons.
    pub per_core_second: f64,
    /// How often the daemon asked for a cookie.
    pub cookie_replies: u64,
}
