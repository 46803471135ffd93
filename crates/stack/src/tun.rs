//! The stack as a TUN device: the engine reads what it sends, and writes what it receives.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use linerate_netio::tun::{HEADER, Tun, TunOffloads, WaitableTun};
use linerate_packet::virtio::Header;

use crate::counters::DropReason;
use crate::stack::Inner;
use crate::wire::{self, Arrival, Key, PACKET_MAX, Quoted};

thread_local! {
    /// Where the pieces of a merged packet are put together, for each of the engine's workers.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A TUN device whose other side is a [`Stack`](crate::Stack). It has a queue for each shard.
pub struct StackTun(Arc<Inner>);

impl StackTun {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// Takes a packet behind its header.
    fn take(&self, header: &Header, packet: &[u8]) {
        let common = &self.0.common;
        let (ip, arrival) = match wire::parse(header, packet) {
            Ok(parsed) => parsed,
            Err(drop) => return common.counters.count(drop),
        };
        if !common.is_ours(ip.destination) {
            return common.counters.count(DropReason::Foreign);
        }
        let packet = &packet[..ip.total_len];
        match arrival {
            Arrival::Tcp(segment) => self.0.with(common.shard_of(segment.key), |shard, now| {
                shard.arrive(now, packet, &segment);
            }),
            Arrival::Udp { to, from, payload } => match common.port(to) {
                Some(port) => port.deliver(from, payload, &common.counters),
                None => self.answer(Key { local: to, remote: from }, packet),
            },
            Arrival::Echo(key) => common.end_echo(key, Ok(())),
            Arrival::Undelivered { what, why } => match what {
                Quoted::Tcp(key, sequence) => self.0.with(common.shard_of(key), |shard, now| {
                    shard.undelivered(now, key, sequence, why);
                }),
                Quoted::Udp(key) => common.port(key.local).iter().for_each(|port| port.fail(why)),
                Quoted::Echo(key) => common.end_echo(key, Err(why)),
            },
            Arrival::Other => {
                self.answer(Key { local: (ip.destination, 0).into(), remote: (ip.source, 0).into() }, packet);
            }
        }
    }

    fn answer(&self, key: Key, packet: &[u8]) {
        self.0.with(self.0.common.shard_of(key), |shard, now| shard.arrive_other(now, packet));
    }
}

impl Tun for StackTun {
    fn queues(&self) -> usize {
        self.0.parts.len()
    }

    fn read(&self, queue: usize, buf: &mut [u8]) -> io::Result<usize> {
        if buf.len() < HEADER {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.0.read(queue, buf)
    }

    fn write(&self, _: usize, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let unfit = || io::Error::from(io::ErrorKind::InvalidInput);
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        let first = pieces.first().and_then(|first| first.split_first_chunk::<HEADER>());
        let (header, first) = first.ok_or_else(unfit)?;
        if !(HEADER + 1..=HEADER + PACKET_MAX).contains(&total) {
            return Err(unfit());
        }
        let header = Header::decode(header).map_err(|_| unfit())?;
        match (first, &pieces[1..]) {
            (packet, []) => self.take(&header, packet),
            ([], [packet]) => self.take(&header, packet),
            (first, rest) => GATHERED.with_borrow_mut(|gathered| {
                gathered.clear();
                gathered.extend_from_slice(first);
                rest.iter().for_each(|piece| gathered.extend_from_slice(piece));
                self.take(&header, gathered);
            }),
        }
        Ok(total)
    }

    fn offloads(&self) -> TunOffloads {
        // Datagrams are not merged: each is a message of its own.
        TunOffloads { vnet_hdr: true, tso: true, uso: false }
    }
}

impl WaitableTun for StackTun {
    fn queue_fd(&self, queue: usize) -> BorrowedFd<'_> {
        self.0.readable(queue)
    }
}
