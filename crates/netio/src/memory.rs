//! The memory backend for tests: a TUN device and sockets made of bounded queues, without a kernel.
//!
//! Deterministic and without threads. An empty queue returns WouldBlock; a full one drops or returns an error, as the
//! kernel does. [`MemoryNet`] connects sockets by address, splits GSO batches and, like UDP_GRO, delivers equal-sized
//! neighbours as one message; its [`Fate`] function loses, duplicates and delays datagrams for a test.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::tun::{HEADER, Tun, TunOffloads};
use crate::udp::{GSO_BATCH_MAX, PacketInfo, Received, SEGMENTS_MAX, Socket, Transmit, UdpOffloads};

/// Where a virtio header says whether it is a GSO packet (virtio_net.h, `gso_type`).
const GSO_TYPE: usize = 1;

/// A TUN device with one queue; the test is its other side. Every packet has a virtio header.
pub struct MemoryTun {
    capacity: usize,
    queues: Mutex<TunQueues>,
    /// How many more GRO packets are refused.
    refusals: AtomicUsize,
}

#[derive(Default)]
struct TunQueues {
    inward: VecDeque<Vec<u8>>,
    outward: VecDeque<Vec<u8>>,
}

impl MemoryTun {
    /// A device that holds up to `capacity` packets in each direction.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, queues: Mutex::default(), refusals: AtomicUsize::new(0) }
    }

    /// Refuses the next `packets` GRO packets that the engine writes, with EINVAL.
    pub fn refuse_gro(&self, packets: usize) {
        self.refusals.store(packets, Ordering::Relaxed);
    }

    /// Queues a packet, virtio header first, for the engine to read. Returns false and drops it when the queue is
    /// full, as the kernel does.
    pub fn push(&self, packet: &[u8]) -> bool {
        let queue = &mut lock(&self.queues).inward;
        let room = queue.len() < self.capacity;
        if room {
            queue.push_back(packet.to_vec());
        }
        room
    }

    /// Whether a read would find a packet, as poll(2) says.
    pub fn is_readable(&self) -> bool {
        !lock(&self.queues).inward.is_empty()
    }

    /// Takes the oldest packet that the engine wrote, virtio header first.
    pub fn take(&self) -> Option<Vec<u8>> {
        lock(&self.queues).outward.pop_front()
    }
}

impl Tun for MemoryTun {
    fn queues(&self) -> usize {
        1
    }

    fn read(&self, _queue: usize, buf: &mut [u8]) -> io::Result<usize> {
        let packet = lock(&self.queues).inward.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        // A packet longer than the buffer is cut off (tun_put_user).
        let len = packet.len().min(buf.len());
        buf[..len].copy_from_slice(&packet[..len]);
        Ok(len)
    }

    fn write(&self, _queue: usize, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let packet: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        if packet.len() <= HEADER {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let refused = || self.refusals.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if packet[GSO_TYPE] != 0 && refused().is_ok() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let len = packet.len();
        let queue = &mut lock(&self.queues).outward;
        if queue.len() >= self.capacity {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        queue.push_back(packet);
        Ok(len)
    }

    fn offloads(&self) -> TunOffloads {
        TunOffloads::ALL
    }
}

/// A datagram in a [`MemoryNet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Who sent it.
    pub source: SocketAddr,
    /// Where it goes.
    pub to: SocketAddr,
    /// Its TOS or traffic class octet.
    pub tos: u8,
    /// Its bytes.
    pub contents: Vec<u8>,
}

/// What happens to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Deliver,
    /// It is lost.
    Lose,
    /// It arrives twice.
    Twice,
    /// It arrives after this many later datagrams of the net were sent.
    Delay(usize),
}

type Decide = Box<dyn FnMut(&mut Datagram) -> Fate + Send>;

/// A network that connects sockets by address.
#[derive(Clone)]
pub struct MemoryNet {
    shared: Arc<Mutex<Wires>>,
}

struct Wires {
    capacity: usize,
    inboxes: HashMap<SocketAddr, VecDeque<Datagram>>,
    decide: Option<Decide>,
    delayed: Vec<(usize, Datagram)>,
    segment_max: usize,
    segment_errno: i32,
    gso: bool,
    gso_batches: u64,
    unreachable: Option<SocketAddr>,
    source: Option<IpAddr>,
    full: Option<SocketAddr>,
    waits: u64,
}

impl MemoryNet {
    /// A network in which each socket queues up to `capacity` datagrams.
    pub fn new(capacity: usize) -> Self {
        let wires = Wires {
            capacity,
            inboxes: HashMap::new(),
            decide: None,
            delayed: Vec::new(),
            segment_max: usize::MAX,
            segment_errno: libc::EMSGSIZE,
            gso: true,
            gso_batches: 0,
            unreachable: None,
            source: None,
            full: None,
            waits: 0,
        };
        Self { shared: Arc::new(Mutex::new(wires)) }
    }

    /// A socket at `address`; the port must not be 0.
    ///
    /// # Errors
    ///
    /// AddrInUse when there is one already.
    pub fn socket(&self, address: SocketAddr) -> io::Result<MemorySocket> {
        lock(&self.shared).bind(address)?;
        Ok(MemorySocket { net: self.clone(), address: Mutex::new(address) })
    }

    /// Lets `decide` choose the fate of each datagram, which it may also change.
    pub fn set_fate(&self, decide: impl FnMut(&mut Datagram) -> Fate + Send + 'static) {
        lock(&self.shared).decide = Some(Box::new(decide));
    }

    /// Refuses GSO batches with datagrams longer than `bytes`, as the kernel does for a route with a small MTU
    /// (EMSGSIZE); 0 refuses every GSO batch. Single datagrams still pass.
    pub fn refuse_segments_above(&self, bytes: usize) {
        lock(&self.shared).segment_max = bytes;
    }

    /// Refuses GSO batches with EINVAL, as Linux does before 6.14.
    pub fn refuse_segments_with_einval(&self) {
        lock(&self.shared).segment_errno = libc::EINVAL;
    }

    /// How many GSO batches were sent.
    pub fn gso_batches(&self) -> u64 {
        lock(&self.shared).gso_batches
    }

    /// Lets every socket send from `address` as well as from its own.
    pub fn add_source(&self, address: IpAddr) {
        lock(&self.shared).source = Some(address);
    }

    /// Removes the route to `address`: sends to it fail with ENETUNREACH.
    pub fn remove_route(&self, address: SocketAddr) {
        lock(&self.shared).unreachable = Some(address);
    }

    /// Fills the send buffer of the socket at `address`; `None` empties it again.
    pub fn fill(&self, address: Option<SocketAddr>) {
        lock(&self.shared).full = address;
    }

    /// How often a sender waited for room.
    pub fn waits(&self) -> u64 {
        lock(&self.shared).waits
    }

    /// From now on behaves like a kernel without UDP_SEGMENT: the sockets report it and refuse every GSO batch.
    pub fn disable_gso(&self) {
        self.refuse_segments_above(0);
        lock(&self.shared).gso = false;
    }

    /// Delivers every delayed datagram, oldest first.
    pub fn release(&self) {
        let wires = &mut *lock(&self.shared);
        for (_, datagram) in std::mem::take(&mut wires.delayed) {
            wires.deliver(datagram);
        }
    }
}

impl Wires {
    fn bind(&mut self, address: SocketAddr) -> io::Result<()> {
        if self.inboxes.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        self.inboxes.insert(address, VecDeque::new());
        Ok(())
    }

    fn transmit(&mut self, mut datagram: Datagram) {
        let fate = self.decide.as_mut().map_or(Fate::Deliver, |decide| decide(&mut datagram));
        match fate {
            Fate::Deliver => self.deliver(datagram),
            Fate::Lose => {}
            Fate::Twice => {
                self.deliver(datagram.clone());
                self.deliver(datagram);
            }
            // One more, because this datagram itself is counted below.
            Fate::Delay(later) => self.delayed.push((later + 1, datagram)),
        }
        self.delayed.iter_mut().for_each(|(left, _)| *left -= 1);
        for (_, datagram) in self.delayed.extract_if(.., |(left, _)| *left == 0).collect::<Vec<_>>() {
            self.deliver(datagram);
        }
    }

    /// Queues a datagram at its destination; drops it if there is none or its queue is full.
    fn deliver(&mut self, datagram: Datagram) {
        if let Some(inbox) = self.inboxes.get_mut(&datagram.to)
            && inbox.len() < self.capacity
        {
            inbox.push_back(datagram);
        }
    }
}

/// A socket of a [`MemoryNet`].
pub struct MemorySocket {
    net: MemoryNet,
    address: Mutex<SocketAddr>,
}

impl MemorySocket {
    /// The address it is at.
    pub fn address(&self) -> SocketAddr {
        *lock(&self.address)
    }

    /// Whether a receive call would find a datagram, as poll(2) says.
    pub fn is_readable(&self) -> bool {
        lock(&self.net.shared).inboxes.get(&self.address()).is_some_and(|inbox| !inbox.is_empty())
    }

    /// Moves to another address, as a roaming host does; what was not received is lost.
    ///
    /// # Errors
    ///
    /// AddrInUse when another socket is there.
    pub fn move_to(&self, address: SocketAddr) -> io::Result<()> {
        let wires = &mut *lock(&self.net.shared);
        wires.bind(address)?;
        let left = std::mem::replace(&mut *lock(&self.address), address);
        wires.inboxes.remove(&left);
        Ok(())
    }

    /// Sends one message.
    fn transmit(&self, wires: &mut Wires, message: &Transmit<'_>) -> io::Result<()> {
        let source = self.address();
        let errno = |number| Err(io::Error::from_raw_os_error(number));
        if message.contents.len() > GSO_BATCH_MAX {
            return errno(libc::EMSGSIZE);
        }
        if wires.full == Some(source) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if wires.unreachable == Some(message.to) {
            return errno(libc::ENETUNREACH);
        }
        let from = message.from.unwrap_or(source.ip());
        if from != source.ip() && wires.source != Some(from) {
            return errno(libc::EINVAL);
        }
        let source = SocketAddr::new(from, source.port());
        let whole = message.contents.len().max(1);
        let size = match message.segment.map(usize::from) {
            Some(0) => return errno(libc::EINVAL),
            Some(size) if size > wires.segment_max => return errno(wires.segment_errno),
            Some(size) if message.contents.len().div_ceil(size) > SEGMENTS_MAX => {
                return errno(libc::EINVAL);
            }
            Some(size) => {
                wires.gso_batches += 1;
                size
            }
            None => whole,
        };
        let datagram =
            |contents: &[u8]| Datagram { source, to: message.to, tos: message.tos, contents: contents.to_vec() };
        if message.contents.is_empty() {
            wires.transmit(datagram(&[]));
        }
        for contents in message.contents.chunks(size) {
            wires.transmit(datagram(contents));
        }
        Ok(())
    }
}

impl Socket for MemorySocket {
    fn recv(&self, buf: &mut [u8], meta: &mut [Received]) -> io::Result<usize> {
        let stride = buf.len().checked_div(meta.len()).filter(|&stride| stride > 0);
        let stride = stride.ok_or(io::ErrorKind::InvalidInput)?;
        let local: IpAddr = self.address().ip();
        let wires = &mut *lock(&self.net.shared);
        let address = *lock(&self.address);
        let inbox = wires.inboxes.get_mut(&address).expect("every socket has a receive queue");
        let mut count = 0;
        for (part, meta) in buf.chunks_exact_mut(stride).zip(meta) {
            let Some(received) = merge(inbox, part) else { break };
            *meta = Received { local: Some(PacketInfo { addr: local, ifindex: 1 }), ..received };
            count += 1;
        }
        if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn send(&self, batch: &[Transmit<'_>]) -> io::Result<usize> {
        let wires = &mut *lock(&self.net.shared);
        for (sent, message) in batch.iter().enumerate() {
            match self.transmit(wires, message) {
                Err(error) if sent == 0 => return Err(error),
                Err(_) => return Ok(sent),
                Ok(()) => {}
            }
        }
        Ok(batch.len())
    }

    /// The simulated clock does not advance, so waiting changes nothing.
    fn wait_for_room(&self) {
        lock(&self.net.shared).waits += 1;
    }

    fn offloads(&self) -> UdpOffloads {
        UdpOffloads { gso: lock(&self.net.shared).gso, ..UdpOffloads::ALL }
    }
}

impl Drop for MemorySocket {
    fn drop(&mut self) {
        let address = *lock(&self.address);
        lock(&self.net.shared).inboxes.remove(&address);
    }
}

/// Takes the oldest datagram, and with it, as UDP_GRO does, the following ones of its source and
/// TOS that are as long, up to and including the first that is shorter.
fn merge(inbox: &mut VecDeque<Datagram>, part: &mut [u8]) -> Option<Received> {
    let first = inbox.pop_front()?;
    let Datagram { source, to, tos, contents } = first;
    let segment = contents.len();
    let described = |len| Received { len, segment: segment.min(len), source, local: None, tos };
    let Some(room) = part.get_mut(..segment) else {
        return Some(described(0));
    };
    room.copy_from_slice(&contents);
    let (mut len, mut last, mut segments) = (segment, segment, 1);
    while segments < SEGMENTS_MAX
        && last == segment
        && let Some(next) = inbox.front()
        && (next.source, next.to, next.tos) == (source, to, tos)
        && (1..=segment).contains(&next.contents.len())
        && let Some(room) = part.get_mut(len..len + next.contents.len())
    {
        room.copy_from_slice(&next.contents);
        last = next.contents.len();
        len += last;
        segments += 1;
        inbox.pop_front();
    }
    Some(described(len))
}

/// Locks a mutex, also a poisoned one: the test whose thread panicked has failed already.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn datagrams_arrive_whole_in_order_however_they_are_merged(
            lens in prop::collection::vec(0usize..40, 0..80),
            room in 1usize..5,
        ) {
            let (left, right) = pair();
            let contents: Vec<Vec<u8>> =
                lens.iter().zip(0u8..).map(|(&len, i)| vec![i; len]).collect();
            for contents in &contents {
                left.send(&[transmit(&right, None, contents)]).unwrap();
            }
            prop_assert_eq!(receive_all(&right, room), contents);
        }

        #[test]
        fn a_gso_batch_arrives_as_its_datagrams(len in 1usize..2000, segment in 32u16..1500) {
            let (left, right) = pair();
            let gso_batch: Vec<u8> = (0..len).map(|i| i as u8).collect();
            left.send(&[transmit(&right, Some(segment), &gso_batch)]).unwrap();
            let sent: Vec<Vec<u8>> =
                gso_batch.chunks(usize::from(segment)).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(receive_all(&right, 1), sent);
        }
    }

    #[test]
    fn equal_neighbours_arrive_as_one_message_that_a_shorter_one_ends() {
        let (left, right) = pair();
        left.send(&[transmit(&right, Some(10), &[1; 35]), transmit(&right, None, &[2; 5])]).unwrap();
        let mut meta = [Received::default(); 2];
        let mut buf = [0; 200];
        assert_eq!(right.recv(&mut buf, &mut meta).unwrap(), 2);
        assert_eq!((meta[0].len, meta[0].segment), (35, 10));
        assert_eq!((meta[1].len, meta[1].segment), (5, 5));
        assert_eq!(meta[0].source, left.address());
        assert_eq!(meta[0].local.map(|local| local.addr), Some(right.address().ip()));
        assert_eq!(buf[..35], [1; 35]);
        assert_eq!(buf[100..105], [2; 5]);
    }

    #[test]
    fn a_datagram_longer_than_its_stride_is_reported_empty() {
        let (left, right) = pair();
        left.send(&[transmit(&right, None, &[1; 11])]).unwrap();
        let mut meta = [Received::default()];
        assert_eq!(right.recv(&mut [0; 10], &mut meta).unwrap(), 1);
        assert_eq!((meta[0].len, meta[0].source), (0, left.address()));
    }

    #[test]
    fn refused_segments_are_an_error_of_the_first_and_a_short_count_after() {
        let (left, right) = pair();
        left.net.refuse_segments_above(20);
        let gso_batch = transmit(&right, Some(21), &[0; 50]);
        let error = left.send(&[gso_batch]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!(left.send(&[transmit(&right, None, &[0; 50]), gso_batch]).unwrap(), 1);
    }

    #[test]
    fn each_fate_takes_effect() {
        let (left, right) = pair();
        let mut fates = [Fate::Delay(2), Fate::Lose, Fate::Twice, Fate::Deliver].into_iter();
        left.net.set_fate(move |_| fates.next().unwrap_or(Fate::Delay(100)));
        for i in 0..5 {
            left.send(&[transmit(&right, None, &[i])]).unwrap();
        }
        assert_eq!(receive_all(&right, 1), [[2], [2], [0], [3]]);
        left.net.release();
        assert_eq!(receive_all(&right, 1), [[4]]);
    }

    #[test]
    fn a_moved_socket_receives_at_its_new_address_only() {
        let (left, right) = pair();
        let old = transmit(&right, None, &[1]);
        right.move_to("192.0.2.3:3".parse().unwrap()).unwrap();
        left.send(&[old, transmit(&right, None, &[2])]).unwrap();
        assert_eq!(receive_all(&right, 1), [[2]]);
        let taken = right.move_to(left.address()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_full_socket_drops_datagrams() {
        let net = MemoryNet::new(2);
        let left = net.socket("192.0.2.1:1".parse().unwrap()).unwrap();
        let right = net.socket("192.0.2.2:2".parse().unwrap()).unwrap();
        left.send(&[transmit(&right, Some(1), &[1, 2, 3])]).unwrap();
        assert_eq!(receive_all(&right, 1), [[1], [2]]);
    }

    #[test]
    fn the_device_carries_packets_both_ways_and_says_when_it_is_full_or_empty() {
        let tun = MemoryTun::new(1);
        assert_eq!(tun.read(0, &mut [0; 9]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(tun.push(&[1, 2, 3]));
        assert!(!tun.push(&[4]));
        let mut buf = [0; 9];
        assert_eq!(tun.read(0, &mut buf).unwrap(), 3);
        assert_eq!(buf[..3], [1, 2, 3]);
        let pieces = [IoSlice::new(&[0; HEADER]), IoSlice::new(&[5]), IoSlice::new(&[6])];
        assert_eq!(tun.write(0, &pieces).unwrap(), 12);
        assert_eq!(tun.write(0, &pieces).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(tun.take().unwrap()[HEADER..], [5, 6]);
    }

    fn pair() -> (MemorySocket, MemorySocket) {
        let net = MemoryNet::new(1000);
        let left = net.socket("192.0.2.1:1".parse().unwrap()).unwrap();
        let right = net.socket("192.0.2.2:2".parse().unwrap()).unwrap();
        (left, right)
    }

    fn transmit<'a>(to: &MemorySocket, segment: Option<u16>, contents: &'a [u8]) -> Transmit<'a> {
        Transmit { to: to.address(), from: None, tos: 0, segment, contents }
    }

    fn receive_all(socket: &MemorySocket, room: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut buf = vec![0; room << 16];
        let mut meta = vec![Received::default(); room];
        while let Ok(count) = socket.recv(&mut buf, &mut meta) {
            for (part, meta) in buf.chunks(1 << 16).zip(&meta[..count]) {
                match meta.len {
                    0 => all.push(Vec::new()),
                    len => all.extend(part[..len].chunks(meta.segment).map(<[u8]>::to_vec)),
                }
            }
        }
        all
    }
}
