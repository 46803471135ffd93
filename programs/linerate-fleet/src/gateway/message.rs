//! What gateways send each other over the mesh, and what a daemon hands to its gateway: bytes in and out.
//!
//! Each message between gateways is in an [envelope](super::envelope), so its sender is authentic; the message may
//! still be malformed. Decoding accepts only exact encodings, never panics, and allocates no more than a datagram's
//! worth.
//!
//! ```text
//! heartbeat  1 | version | gateway | flags | sequence 8 | started 8 | wall 8 | evidence 8
//! hints      2 | version | gateway | count | count times 60 bytes: number 4 | owner | flags | port 2 | address 16 |
//!            sent 12 | received 12 | seen 4 | claim 8
//! take       3 | as hints
//! table end  4 | version | gateway | 0
//! forward    5 | a datagram of a daemon
//! ```
//!
//! Numbers are little endian. A datagram of a daemon is described at [`Forwarded`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::GATEWAYS_MAX;

/// The version of all messages between gateways, and of datagrams that a daemon hands over.
const VERSION: u8 = 1;
/// Peer numbers are below this.
pub const NUMBERS: u32 = 1 << 20;
/// The most hints of a message: it fits into a packet of the mesh.
pub const HINTS_MAX: usize = 20;
/// The header in front of a datagram that a daemon hands over.
pub const FORWARD_HEADER: usize = 28;
/// The longest datagram that a daemon hands over, without its header.
pub const DATAGRAM_MAX: usize = 9000;

const HEARTBEAT: u8 = 1;
const HINTS: u8 = 2;
const TAKE: u8 = 3;
const TABLE_END: u8 = 4;
const FORWARD: u8 = 5;

const HEARTBEAT_LEN: usize = 36;
const HINT_LEN: usize = 60;

/// A timestamp of a handshake message, as it is on the wire. Comparing the bytes compares the times.
pub type Stamp = [u8; 12];

/// A message between gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The sender is alive.
    Heartbeat(Heartbeat),
    /// What a gateway knows of peers.
    Hints {
        /// Who says so.
        gateway: u8,
        /// At most [`HINTS_MAX`].
        hints: Vec<PeerHint>,
    },
    /// The sender gives these peers of its own away.
    Take {
        /// Who does.
        gateway: u8,
        /// At most [`HINTS_MAX`].
        hints: Vec<PeerHint>,
    },
    /// All that the sender knew of peers when it was asked has been sent.
    TableEnd {
        /// Who says so.
        gateway: u8,
    },
    /// A datagram that another gateway is responsible for.
    Forward(Forwarded<'a>),
}

/// A heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who sends it.
    pub gateway: u8,
    /// Whether it initiates for others.
    pub takes: bool,
    /// Whether it sees the store.
    pub sees_store: bool,
    /// Whether it gives its clients away.
    pub is_draining: bool,
    /// Whether it asks the receiver for all that it knows of peers.
    pub wants_table: bool,
    /// Whether it ends: there will be no further heartbeat.
    pub ends: bool,
    /// One more in each heartbeat.
    pub sequence: u64,
    /// When it was started, by its clock: tells one life of a gateway from the next.
    pub started: u64,
    /// Its clock, in nanoseconds since 1970.
    pub wall: u64,
    /// Dead gateways whose data comes to the sender, a bit each: the routes have moved.
    pub evidence: u64,
}

/// What a gateway knows of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerHint {
    /// The peer.
    pub number: u32,
    /// Who has its session, if `claim` is not zero.
    pub owner: u8,
    /// When the owner said so: of two claims the greater counts. Zero: nobody has.
    pub claim: u64,
    /// Where the owner sees it.
    pub endpoint: Option<SocketAddr>,
    /// The greatest timestamp that a gateway sent to it.
    pub sent: Option<Stamp>,
    /// The greatest timestamp that a gateway accepted from it; all zero: none ever did.
    pub received: Option<Stamp>,
    /// The Unix time of its last handshake at the owner; zero: never.
    pub seen: u32,
}

/// A datagram from a daemon that has no session for its receiver index, because it is another gateway's:
///
/// ```text
/// 1 | gateway of the index | source port 2, big endian | peer number 4 | source address 16 | 0 0 0 0 | the datagram
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded<'a> {
    /// The gateway that the index names. Anybody can make an index up.
    pub gateway: u8,
    /// The peer that the index names.
    pub number: u32,
    /// Where it came from.
    pub source: SocketAddr,
    /// As it came.
    pub datagram: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a message.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        if kind == FORWARD {
            return Forwarded::decode(rest).map(Self::Forward);
        }
        let [version, gateway, fourth, rest @ ..] = rest else { return None };
        let (gateway, fourth) = (*gateway, *fourth);
        if *version != VERSION || gateway >= GATEWAYS_MAX {
            return None;
        }
        match kind {
            HEARTBEAT => Heartbeat::decode(gateway, fourth, rest).map(Self::Heartbeat),
            HINTS => hints(fourth, rest).map(|hints| Self::Hints { gateway, hints }),
            TAKE => hints(fourth, rest).map(|hints| Self::Take { gateway, hints }),
            TABLE_END if fourth == 0 && rest.is_empty() => Some(Self::TableEnd { gateway }),
            _ => None,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Heartbeat(heartbeat) => heartbeat.encode(),
            Self::Hints { gateway, hints } => encode_hints(HINTS, *gateway, hints),
            Self::Take { gateway, hints } => encode_hints(TAKE, *gateway, hints),
            Self::TableEnd { gateway } => vec![TABLE_END, VERSION, *gateway, 0],
            Self::Forward(forwarded) => {
                let mut bytes = vec![FORWARD];
                forwarded.write(&mut bytes);
                bytes
            }
        }
    }
}

impl Heartbeat {
    fn decode(gateway: u8, flags: u8, rest: &[u8]) -> Option<Self> {
        let mut rest = Reader(rest);
        let heartbeat = Self {
            gateway,
            takes: flags & 1 != 0,
            sees_store: flags & 2 != 0,
            is_draining: flags & 4 != 0,
            wants_table: flags & 8 != 0,
            ends: flags & 16 != 0,
            sequence: rest.u64()?,
            started: rest.u64()?,
            wall: rest.u64()?,
            evidence: rest.u64()?,
        };
        (flags < 32 && rest.0.is_empty()).then_some(heartbeat)
    }

    fn encode(&self) -> Vec<u8> {
        let flags = [self.takes, self.sees_store, self.is_draining, self.wants_table, self.ends];
        let flags = flags.iter().rev().fold(0, |bits, &flag| bits << 1 | u8::from(flag));
        let mut bytes = Vec::with_capacity(HEARTBEAT_LEN);
        bytes.extend([HEARTBEAT, VERSION, self.gateway, flags]);
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.started.to_le_bytes());
        bytes.extend(self.wall.to_le_bytes());
        bytes.extend(self.evidence.to_le_bytes());
        bytes
    }
}

fn hints(count: u8, rest: &[u8]) -> Option<Vec<PeerHint>> {
    let count = usize::from(count);
    if count > HINTS_MAX || rest.len() != count * HINT_LEN {
        return None;
    }
    rest.chunks_exact(HINT_LEN).map(PeerHint::decode).collect()
}

fn encode_hints(kind: u8, gateway: u8, hints: &[PeerHint]) -> Vec<u8> {
    let hints = &hints[..hints.len().min(HINTS_MAX)];
    let mut bytes = Vec::with_capacity(4 + hints.len() * HINT_LEN);
    bytes.extend([kind, VERSION, gateway, hints.len() as u8]);
    hints.iter().for_each(|hint| hint.write(&mut bytes));
    bytes
}

impl PeerHint {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Reader(bytes);
        let number = rest.u32().filter(|number| *number < NUMBERS)?;
        let [owner, flags] = rest.array()?;
        let port = u16::from_le_bytes(rest.array()?);
        let address = Ipv6Addr::from(rest.array::<16>()?).to_canonical();
        let (sent, received) = (rest.array()?, rest.array()?);
        let hint = Self {
            number,
            owner,
            claim: 0,
            endpoint: (flags & 1 != 0).then_some(SocketAddr::new(address, port)),
            sent: (flags & 2 != 0).then_some(sent),
            received: (flags & 4 != 0).then_some(received),
            seen: rest.u32()?,
        };
        let hint = Self { claim: rest.u64()?, ..hint };
        // What is absent is zero, so that each hint has one form.
        let is_plain = (hint.endpoint.is_some() || (port == 0 && address == IpAddr::V6(Ipv6Addr::UNSPECIFIED)))
            && (hint.sent.is_some() || sent == [0; 12])
            && (hint.received.is_some() || received == [0; 12]);
        (owner < GATEWAYS_MAX && flags < 8 && is_plain).then_some(hint)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let flags = u8::from(self.endpoint.is_some())
            | u8::from(self.sent.is_some()) << 1
            | u8::from(self.received.is_some()) << 2;
        bytes.extend(self.number.to_le_bytes());
        bytes.extend([self.owner, flags]);
        bytes.extend(self.endpoint.map_or(0, |endpoint| endpoint.port()).to_le_bytes());
        bytes.extend(self.endpoint.map_or([0; 16], |endpoint| mapped(endpoint.ip()).octets()));
        bytes.extend(self.sent.unwrap_or_default());
        bytes.extend(self.received.unwrap_or_default());
        bytes.extend(self.seen.to_le_bytes());
        bytes.extend(self.claim.to_le_bytes());
    }
}

impl<'a> Forwarded<'a> {
    /// Reads what a daemon has sent.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Reader(bytes);
        let [version, gateway] = rest.array()?;
        let port = u16::from_be_bytes(rest.array()?);
        let number = rest.u32()?;
        let address = Ipv6Addr::from(rest.array::<16>()?).to_canonical();
        let reserved = rest.u32()?;
        let datagram = rest.0;
        let is_one = version == VERSION
            && gateway < GATEWAYS_MAX
            && number < NUMBERS
            && reserved == 0
            && port != 0
            && is_of_a_client(address)
            && (1..=DATAGRAM_MAX).contains(&datagram.len());
        is_one.then_some(Self { gateway, number, source: SocketAddr::new(address, port), datagram })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FORWARD_HEADER + self.datagram.len());
        self.write(&mut bytes);
        bytes
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend([VERSION, self.gateway]);
        bytes.extend(self.source.port().to_be_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(mapped(self.source.ip()).octets());
        bytes.extend([0; 4]);
        bytes.extend(self.datagram);
    }
}

/// Whether a client can have this address. Another gateway injects the datagram with this source, and its daemon
/// answers to it.
fn is_of_a_client(address: IpAddr) -> bool {
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_broadcast)
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The rest of a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::envelope::ENVELOPE;
    use proptest::prelude::*;

    fn hint() -> PeerHint {
        PeerHint {
            number: NUMBERS - 1,
            owner: 31,
            claim: u64::MAX,
            endpoint: Some("192.0.2.1:7".parse().unwrap()),
            sent: Some([1; 12]),
            received: Some([0; 12]),
            seen: 5,
        }
    }

    fn all() -> Vec<Message<'static>> {
        let source = "[2001:db8::1]:9".parse().unwrap();
        let heartbeat = Heartbeat { gateway: 3, takes: true, ends: true, wall: 1, evidence: 7, ..Heartbeat::default() };
        vec![
            Message::Heartbeat(heartbeat),
            Message::Hints { gateway: 0, hints: vec![] },
            Message::Hints { gateway: 31, hints: vec![hint(); HINTS_MAX] },
            Message::Take { gateway: 1, hints: vec![PeerHint::default(), hint()] },
            Message::TableEnd { gateway: 2 },
            Message::Forward(Forwarded { gateway: 2, number: 7, source, datagram: b"x" }),
        ]
    }

    #[test]
    fn every_message_round_trips_and_none_is_read_if_a_byte_is_missing() {
        for message in all() {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes).as_ref(), Some(&message));
            for length in 0..bytes.len() {
                // A shorter datagram is still one.
                let whole = matches!(message, Message::Forward(_)) && length > 1 + FORWARD_HEADER;
                assert!(whole || Message::decode(&bytes[..length]).is_none(), "{message:?} cut to {length}");
            }
            if !matches!(message, Message::Forward(_)) {
                assert_eq!(Message::decode(&[&bytes[..], &[0]].concat()), None, "{message:?} with a byte too much");
            }
        }
    }

    #[test]
    fn a_full_message_of_hints_fits_into_a_packet_of_the_mesh() {
        let message = Message::Hints { gateway: 31, hints: vec![hint(); HINTS_MAX] };
        assert!(ENVELOPE + message.encode().len() <= 1420 - 48);
    }

    #[test]
    fn a_daemons_datagram_is_laid_out_as_documented() {
        let source = "192.0.2.1:258".parse().unwrap();
        let bytes = Forwarded { gateway: 3, number: 0x1_0203, source, datagram: b"ab" }.encode();
        let address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 1];
        assert_eq!(bytes, [&[1, 3, 1, 2, 3, 2, 1, 0][..], &address, &[0; 4], b"ab"].concat());
    }

    #[test]
    fn nothing_is_passed_on_as_if_a_host_had_sent_it_to_itself_or_a_group_had_sent_it() {
        for source in
            ["127.0.0.1:7", "[::1]:7", "224.0.0.1:7", "[ff02::1]:7", "255.255.255.255:7", "0.0.0.0:7", "192.0.2.1:0"]
        {
            let bytes = Forwarded { gateway: 3, number: 1, source: source.parse().unwrap(), datagram: b"x" }.encode();
            assert_eq!(Forwarded::decode(&bytes), None, "{source}");
        }
    }

    #[test]
    fn hostile_bytes_are_no_message() {
        for kind in 0..=255 {
            for length in [1, 2, 3, 4, 29, 35, 37, 64, 1204, 1500] {
                let mut ones = vec![0xff; length];
                ones[0] = kind;
                assert_eq!(Message::decode(&ones), None);
            }
        }
        let count_lies = [&[HINTS, VERSION, 0, 255][..], &[0; 255 * HINT_LEN]].concat();
        assert_eq!(Message::decode(&count_lies), None);
        let too_long = vec![1; 1 + FORWARD_HEADER + DATAGRAM_MAX + 1];
        assert_eq!(Message::decode(&too_long), None);
    }

    proptest! {
        #[test]
        fn what_is_read_has_one_form(kind in 1u8..6, rest in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = vec![kind, VERSION];
            bytes.extend(rest);
            if let Some(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
