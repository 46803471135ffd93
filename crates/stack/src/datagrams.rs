//! UDP sockets.
//!
//! They need nothing of a shard but its queue of packets to be sent.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use linerate_netio::tun::HEADER;
use linerate_sockets::Datagrams;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, IpRepr, UdpPacket, UdpRepr};

use crate::counters::{Counters, DropReason};
use crate::stack::{self, Inner};
use crate::wire::Key;

/// The bytes of datagrams that wait in a socket, each with [`OVERHEAD`].
pub(crate) const QUEUE_BYTES: usize = 128 << 10;
const OVERHEAD: usize = 128;

/// The most UDP sockets.
pub(crate) const PORTS_MAX: usize = 1024;

const UDP_HEADER: usize = 8;
const HOP_LIMIT: u8 = 64;

/// The queue of a UDP socket. Locked alone.
#[derive(Default)]
pub(crate) struct Port(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    datagrams: VecDeque<(SocketAddr, Box<[u8]>)>,
    bytes: usize,
    error: Option<io::ErrorKind>,
    waker: Option<Waker>,
}

impl Port {
    fn with<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> R {
        f(&mut self.0.lock().expect("a panic aborts the process"))
    }

    /// A datagram has arrived.
    pub(crate) fn deliver(&self, from: SocketAddr, payload: &[u8], counters: &Counters) {
        let waker = self.with(|queue| {
            let bytes = queue.bytes + payload.len() + OVERHEAD;
            if bytes > QUEUE_BYTES {
                counters.count(DropReason::QueueFull);
                return None;
            }
            queue.bytes = bytes;
            queue.datagrams.push_back((from, payload.into()));
            queue.waker.take()
        });
        waker.into_iter().for_each(Waker::wake);
    }

    /// A datagram that was sent has not arrived.
    pub(crate) fn fail(&self, why: io::ErrorKind) {
        let waker = self.with(|queue| {
            queue.error = Some(why);
            queue.waker.take()
        });
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A UDP socket.
pub(crate) struct UdpSocket {
    stack: Arc<Inner>,
    local: SocketAddr,
    port: Arc<Port>,
}

impl UdpSocket {
    pub(crate) fn new(stack: &Arc<Inner>, local: SocketAddr) -> io::Result<Self> {
        if !stack.common.is_local(local.ip()) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let mut ports = stack.common.ports.write().expect("a panic aborts the process");
        if ports.len() >= PORTS_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let local = stack::choose_port(&stack.common, local, |local| ports.contains_key(&local))?;
        let port = Arc::new(Port::default());
        ports.insert(local, port.clone());
        Ok(Self { stack: stack.clone(), local, port })
    }
}

impl Datagrams for UdpSocket {
    fn poll_receive(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.port.with(|queue| {
            if let Some((from, payload)) = queue.datagrams.pop_front() {
                queue.bytes -= payload.len() + OVERHEAD;
                let len = payload.len().min(into.len());
                into[..len].copy_from_slice(&payload[..len]);
                return Poll::Ready(Ok((len, from)));
            }
            if let Some(kind) = queue.error.take() {
                return Poll::Ready(Err(kind.into()));
            }
            queue.waker = Some(context.waker().clone());
            Poll::Pending
        })
    }

    fn poll_send(&mut self, context: &mut Context<'_>, from: &[u8], to: SocketAddr) -> Poll<io::Result<()>> {
        let common = &self.stack.common;
        let source = if self.local.ip().is_unspecified() { common.source(to.ip()) } else { Some(self.local.ip()) };
        let Some(source) = source.filter(|source| source.is_ipv4() == to.is_ipv4()) else {
            return Poll::Ready(Err(io::ErrorKind::NetworkUnreachable.into()));
        };
        if to.port() == 0 || to.ip().is_unspecified() {
            return Poll::Ready(Err(io::ErrorKind::AddrNotAvailable.into()));
        }
        let key = Key { local: SocketAddr::new(source, self.local.port()), remote: to };
        let Some(packet) = datagram(key, from, common.mtu) else {
            let mtu = common.mtu;
            let error = format!("a datagram of {} bytes does not fit the tunnel's MTU of {mtu}", from.len());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, error)));
        };
        self.stack.with(common.shard_of(key), |shard, _| {
            if shard.queue(packet) {
                return Poll::Ready(Ok(()));
            }
            shard.wait_for_room(context);
            Poll::Pending
        })
    }

    fn local(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.stack.common.ports.write().expect("a panic aborts the process").remove(&self.local);
    }
}

/// A packet behind a virtio header that asks for nothing; `None` if it is longer than the MTU.
fn datagram(key: Key, payload: &[u8], mtu: usize) -> Option<Box<[u8]>> {
    let repr = UdpRepr { src_port: key.local.port(), dst_port: key.remote.port() };
    packet(key.local.ip(), key.remote.ip(), IpProtocol::Udp, UDP_HEADER + payload.len(), mtu, |message, checksums| {
        repr.emit(
            &mut UdpPacket::new_unchecked(message),
            &key.local.ip().into(),
            &key.remote.ip().into(),
            payload.len(),
            |room| room.copy_from_slice(payload),
            checksums,
        );
    })
}

/// A packet with a message of `len` bytes that `emit` writes, behind a virtio header that asks for nothing; `None` if
/// it is longer than the MTU.
pub(crate) fn packet(
    from: IpAddr,
    to: IpAddr,
    protocol: IpProtocol,
    len: usize,
    mtu: usize,
    emit: impl FnOnce(&mut [u8], &ChecksumCapabilities),
) -> Option<Box<[u8]>> {
    let repr = IpRepr::new(from.into(), to.into(), protocol, len, HOP_LIMIT);
    if repr.buffer_len() > mtu {
        return None;
    }
    let mut packet = vec![0; HEADER + repr.buffer_len()];
    let checksums = ChecksumCapabilities::default();
    repr.emit(&mut packet[HEADER..], &checksums);
    emit(&mut packet[HEADER + repr.header_len()..], &checksums);
    Some(packet.into())
}
