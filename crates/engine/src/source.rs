//! The sources of packets: the queues of the TUN device, the IPv4 sockets, the IPv6 sockets.

use std::os::fd::{AsFd, BorrowedFd};

use linerate_netio::tun::{self, QUEUES_MAX};
use linerate_netio::udp::UdpSocket;

use crate::backend::Sockets;

/// While other sources have packets, a source found empty is probed once in so many passes over the sources, and
/// once in [`PROBE_INTERVAL_MAX`] when it was found empty again: a probe is a system call, a pass takes some 50
/// microseconds.
const PROBE_INTERVAL: usize = 4;
const PROBE_INTERVAL_MAX: usize = 8;

// Sources of different numbers are probed in different passes, so no pass makes more than three probes.
const _: () = assert!(QUEUES_MAX <= PROBE_INTERVAL);

/// The most sources of one engine.
pub const SOURCES_MAX: usize = 3 * QUEUES_MAX;

/// The result of serving a source once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Packets were processed; there may be more.
    Progress,
    /// The source was empty.
    Idle,
    /// Another worker is reading from the source.
    Locked,
}

/// A source of packets; queues and sockets are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A queue of the TUN device.
    Tun(usize),
    /// An IPv4 socket.
    V4(usize),
    /// An IPv6 socket.
    V6(usize),
}

impl Source {
    /// All sources of an engine, in the order of a pass; queues come first, so a queue's place is its number.
    pub fn all(queues: usize, sockets: usize) -> Vec<Source> {
        let tun = (0..queues).map(Source::Tun);
        tun.chain((0..sockets).map(Source::V4)).chain((0..sockets).map(Source::V6)).collect()
    }

    /// The number of the queue or socket.
    pub fn number(self) -> usize {
        let (Source::Tun(number) | Source::V4(number) | Source::V6(number)) = self;
        number
    }

    /// Whether this pass serves the source after it was found empty `misses` times in a row.
    pub fn is_due(self, pass: usize, misses: u8) -> bool {
        let interval = match misses {
            0 => return true,
            1 => PROBE_INTERVAL,
            _ => PROBE_INTERVAL_MAX,
        };
        let number = self.number();
        pass > number && (pass - number).is_multiple_of(interval)
    }

    /// The socket; `None` for a queue, and while there is no such socket.
    pub fn socket(self, sockets: Option<&Sockets<UdpSocket>>) -> Option<&UdpSocket> {
        match self {
            Source::Tun(_) => None,
            Source::V4(number) => sockets?.v4.get(number),
            Source::V6(number) => sockets?.v6.get(number),
        }
    }

    /// The descriptor to wait for; `None` while there is no such socket.
    pub fn fd<'a>(self, tun: &'a tun::TunDevice, sockets: Option<&'a Sockets<UdpSocket>>) -> Option<BorrowedFd<'a>> {
        match self {
            Source::Tun(queue) => Some(tun.queue_fd(queue)),
            Source::V4(_) | Source::V6(_) => self.socket(sockets).map(UdpSocket::as_fd),
        }
    }
}

/// A worker's view of one source.
#[derive(Clone, Copy, Default)]
pub struct SourceState {
    /// How many times in a row it was found empty.
    pub misses: u8,
    /// It woke the worker, which has not served it since.
    pub woke: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_source_is_probed_once_per_interval_and_few_share_a_pass() {
        let sources = Source::all(QUEUES_MAX, QUEUES_MAX);
        assert_eq!(sources.len(), SOURCES_MAX);
        for source in &sources {
            assert!(source.is_due(1, 0), "{source:?} had packets");
            for (misses, interval) in [(1, PROBE_INTERVAL), (2, PROBE_INTERVAL_MAX), (u8::MAX, PROBE_INTERVAL_MAX)] {
                assert!((0..PROBE_INTERVAL).all(|pass| !source.is_due(pass, misses)), "{source:?} is not probed first");
                for start in 2 * interval..4 * interval {
                    let due = (start..start + interval).filter(|&pass| source.is_due(pass, misses)).count();
                    assert_eq!(due, 1, "{source:?} from pass {start} on, after {misses} misses");
                }
            }
        }
        for pass in 0..4 * PROBE_INTERVAL {
            assert!(sources.iter().filter(|source| source.is_due(pass, 1)).count() <= 3, "pass {pass}");
        }
    }

    #[test]
    fn the_place_of_a_queue_is_its_number() {
        for queues in 1..=QUEUES_MAX {
            let sources = Source::all(queues, 2);
            assert!((0..queues).all(|queue| sources[queue] == Source::Tun(queue)));
        }
    }
}
