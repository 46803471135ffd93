//! Builds packets field by field, with a naive checksum.

use linerate_packet::virtio::{self, Gso, Header};
use linerate_packet::{TCP, UDP};
use proptest::collection::vec;
use proptest::prelude::*;

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;
pub const ECE: u8 = 0x40;
pub const CWR: u8 = 0x80;

/// The constant fields of a flow.
#[derive(Clone, Debug)]
pub struct Flow {
    pub v6: bool,
    pub protocol: u8,
    pub host: u8,
    pub ports: [u16; 2],
    pub tos: u8,
    pub ttl: u8,
    pub dont_fragment: bool,
    pub options: Vec<u8>,
    pub ack: u32,
    pub window: u16,
}

/// The fields that differ between packets of a flow.
#[derive(Clone, Copy, Debug)]
pub struct At {
    pub id: u16,
    pub sequence: u32,
    pub flags: u8,
}

impl Flow {
    pub fn tcp(v6: bool) -> Flow {
        Flow {
            v6,
            protocol: TCP,
            host: 1,
            ports: [40_000, 443],
            tos: 0,
            ttl: 64,
            dont_fragment: true,
            options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            ack: 7,
            window: 512,
        }
    }

    pub fn udp(v6: bool) -> Flow {
        Flow { protocol: UDP, ..Flow::tcp(v6) }
    }

    pub fn transport(&self) -> usize {
        if self.v6 { 40 } else { 20 }
    }

    pub fn headers(&self) -> usize {
        self.transport()
            + match self.protocol {
                TCP => 20 + self.options.len(),
                _ => 8,
            }
    }

    /// A complete packet.
    pub fn packet(&self, at: At, payload: &[u8]) -> Vec<u8> {
        let mut packet = self.unsummed(at, payload);
        let field = self.field();
        let mut covered = self.pseudo(packet.len() - self.transport());
        covered.extend_from_slice(&packet[self.transport()..]);
        let checksum = match !naive_fold(&covered) {
            0 if self.protocol == UDP => 0xffff,
            checksum => checksum,
        };
        packet[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    /// A packet whose checksum field holds the pseudo-header sum, as the kernel passes it.
    pub fn partial(&self, at: At, payload: &[u8]) -> Vec<u8> {
        let mut packet = self.unsummed(at, payload);
        let field = self.field();
        let sum = naive_fold(&self.pseudo(packet.len() - self.transport()));
        packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// The virtio header that the kernel writes before such a packet.
    pub fn header(&self, gso_size: u16) -> Header {
        Header {
            flags: virtio::NEEDS_CSUM,
            gso: match (gso_size, self.protocol, self.v6) {
                (0, ..) => Gso::None,
                (_, TCP, false) => Gso::TcpV4,
                (_, TCP, true) => Gso::TcpV6,
                _ => Gso::UdpL4,
            },
            ecn: false,
            hdr_len: self.headers() as u16,
            gso_size,
            csum_start: self.transport() as u16,
            csum_offset: (self.field() - self.transport()) as u16,
        }
    }

    /// Complete packets that carry `payload` in segments of `size` bytes.
    pub fn segments(&self, at: At, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
        let last = payload.chunks(size).len() - 1;
        let segment = |(i, piece): (usize, &[u8])| {
            let mut flags = at.flags;
            if i != last {
                flags &= !(FIN | PSH);
            }
            if i != 0 {
                flags &= !CWR;
            }
            let at =
                At { id: at.id.wrapping_add(i as u16), sequence: at.sequence.wrapping_add((i * size) as u32), flags };
            self.packet(at, piece)
        };
        payload.chunks(size).enumerate().map(segment).collect()
    }

    fn field(&self) -> usize {
        self.transport() + if self.protocol == TCP { 16 } else { 6 }
    }

    fn addresses(&self) -> Vec<u8> {
        match self.v6 {
            false => vec![10, 0, 0, self.host, 10, 0, 1, 200],
            true => {
                let mut addresses = vec![0xfd; 32];
                addresses[15] = self.host;
                addresses[31] = 200;
                addresses
            }
        }
    }

    fn pseudo(&self, length: usize) -> Vec<u8> {
        let mut pseudo = self.addresses();
        pseudo.extend_from_slice(&(length as u32).to_be_bytes());
        pseudo.extend_from_slice(&[0, 0, 0, self.protocol]);
        pseudo
    }

    fn unsummed(&self, at: At, payload: &[u8]) -> Vec<u8> {
        let mut transport = Vec::new();
        transport.extend_from_slice(&self.ports[0].to_be_bytes());
        transport.extend_from_slice(&self.ports[1].to_be_bytes());
        if self.protocol == TCP {
            transport.extend_from_slice(&at.sequence.to_be_bytes());
            transport.extend_from_slice(&self.ack.to_be_bytes());
            transport.push((((20 + self.options.len()) / 4) << 4) as u8);
            transport.push(at.flags);
            transport.extend_from_slice(&self.window.to_be_bytes());
            transport.extend_from_slice(&[0; 4]);
            transport.extend_from_slice(&self.options);
        } else {
            transport.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
            transport.extend_from_slice(&[0; 2]);
        }
        transport.extend_from_slice(payload);
        let mut packet = self.network(at.id, transport.len());
        packet.extend_from_slice(&transport);
        packet
    }

    fn network(&self, id: u16, length: usize) -> Vec<u8> {
        let mut header = Vec::new();
        if self.v6 {
            header.extend_from_slice(&[0x60 | self.tos >> 4, self.tos << 4, 0, 9]);
            header.extend_from_slice(&(length as u16).to_be_bytes());
            header.extend_from_slice(&[self.protocol, self.ttl]);
            header.extend_from_slice(&self.addresses());
            return header;
        }
        header.extend_from_slice(&[0x45, self.tos]);
        header.extend_from_slice(&(20 + length as u16).to_be_bytes());
        header.extend_from_slice(&id.to_be_bytes());
        header.extend_from_slice(&[if self.dont_fragment { 0x40 } else { 0 }, 0]);
        header.extend_from_slice(&[self.ttl, self.protocol, 0, 0]);
        header.extend_from_slice(&self.addresses());
        fix_header(&mut header);
        header
    }
}

/// Writes the header checksum of an IPv4 packet.
pub fn fix_header(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let checksum = !naive_fold(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// RFC 1071, word for word.
pub fn naive_fold(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

pub fn flow() -> impl Strategy<Value = Flow> {
    (
        any::<bool>(),
        prop_oneof![Just(TCP), Just(UDP)],
        1..3u8,
        [1..3u16, 1..3u16],
        any::<u8>(),
        1..=255u8,
        any::<bool>(),
        vec(any::<u8>(), 0..=10),
        any::<u32>(),
        any::<u16>(),
    )
        .prop_map(|(v6, protocol, host, ports, tos, ttl, dont_fragment, words, ack, window)| Flow {
            v6,
            protocol,
            host,
            ports,
            tos,
            ttl,
            dont_fragment,
            options: words.iter().flat_map(|word| [*word; 4]).collect(),
            ack,
            window,
        })
}

pub fn tcp_flow() -> impl Strategy<Value = Flow> {
    flow().prop_map(|flow| Flow { protocol: TCP, ..flow })
}

pub fn at() -> impl Strategy<Value = At> {
    (any::<u16>(), any::<u32>(), any::<u8>()).prop_map(|(id, sequence, flags)| At { id, sequence, flags })
}

/// Flags of a TCP segment that may be merged.
pub fn plain_at() -> impl Strategy<Value = At> {
    let flags = prop_oneof![Just(ACK), Just(ACK | PSH), Just(ACK | ECE)];
    (at(), flags).prop_map(|(at, flags)| At { flags, ..at })
}

/// A payload and a segment size that give fewer than 40 segments.
pub fn payload_and_size() -> impl Strategy<Value = (Vec<u8>, usize)> {
    (1..1500usize, 1..40usize, any::<prop::sample::Index>(), any::<u64>()).prop_map(|(size, pieces, cut, seed)| {
        let len = ((pieces - 1) * size + 1 + cut.index(size)).min(60_000);
        (noise(len, seed), size)
    })
}

/// Pseudo-random bytes, without patterns that a checksum would miss.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}
