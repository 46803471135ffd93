//! Splits a GSO packet into its segments, each padded as the protocol requires.

use linerate_packet::Malformed;
use linerate_packet::gso;
use linerate_packet::ip::{self, Ip};
use linerate_packet::virtio;

const ECT_0: u8 = 0b10;

/// A packet or GSO packet, and how its segments are padded.
pub struct Split<'a> {
    segments: gso::Split<'a>,
    mtu: usize,
    ecn: u8,
}

impl<'a> Split<'a> {
    /// Parses a packet that was read with the virtio header `header`; `mtu` is that of the route to its destination.
    pub fn new(header: &virtio::Header, packet: &'a [u8], inner: &Ip, mtu: usize) -> Result<Self, Malformed> {
        Ok(Self { segments: gso::Split::new(header, packet)?, mtu, ecn: inner.ecn })
    }

    /// The number of segments.
    pub fn count(&self) -> usize {
        self.segments.count()
    }

    /// Bytes of segment `i`.
    pub fn len(&self, i: usize) -> usize {
        self.segments.len(i)
    }

    /// The ECN bits of the packet.
    pub fn inner_ecn(&self) -> u8 {
        self.ecn
    }

    /// Bytes of segment `i` with its padding.
    pub fn padded_len(&self, i: usize) -> usize {
        padded(self.len(i), self.mtu)
    }

    /// The ECN bits of the outer headers: the inner ones, but ECT(0) for a packet that is already marked, so that a
    /// mark on an outer header was made on the way (RFC 3168 section 9.1.1, full functionality; kernel:
    /// INET_ECN_encapsulate). RFC 6040 would copy the mark; the kernel module does not.
    pub fn ecn(&self) -> u8 {
        if self.ecn == ip::CE { ECT_0 } else { self.ecn }
    }

    /// Writes segment `i` and zeroes behind it.
    pub fn write(&self, i: usize, to: &mut [u8]) {
        let (packet, padding) = to.split_at_mut(self.len(i));
        self.segments.write(i, packet);
        padding.fill(0);
    }
}

/// Bytes of a packet with its padding: the next multiple of 16, but at most the MTU; a packet longer than the MTU is
/// padded as its last fragment would be (paper section 5.4.6; kernel: send.c, calculate_skb_padding).
fn padded(len: usize, mtu: usize) -> usize {
    if mtu == 0 {
        return len.next_multiple_of(16);
    }
    let last = if len > mtu { len % mtu } else { len };
    len - last + last.next_multiple_of(16).min(mtu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_rounds_up_to_sixteen_and_never_exceeds_the_mtu() {
        assert_eq!(padded(0, 1420), 0);
        assert_eq!(padded(1, 1420), 16);
        assert_eq!(padded(1408, 1420), 1408);
        assert_eq!(padded(1409, 1420), 1420);
        assert_eq!(padded(1420, 1420), 1420);
        assert_eq!(padded(1297, 1299), 1299);
        assert_eq!(padded(1421, 1420), 1436);
        assert_eq!(padded(2840, 1420), 2840);
        assert_eq!(padded(33, 0), 48);
    }
}
