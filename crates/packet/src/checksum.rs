//! The Internet checksum (RFC 1071): over bytes, along with a copy, over a pseudo-header, and updated for one
//! changed word (RFC 1624).
//!
//! A sum is kept in the machine's byte order and swapped once at the end, because one's complement addition
//! commutes with swapping the bytes of every word (RFC 1071 section 2).

/// Bytes per iteration of the inner loop. Two accumulators of eight lanes fit the sixteen vector registers of
/// baseline x86-64 and leave room for the loads.
const BLOCK: usize = 64;
/// 64-bit words in a block.
const LANES: usize = BLOCK / 8;

/// An unfinished one's complement sum of 16-bit words.
///
/// Always below 2^34, because every addition ends with a partial fold, so no chain of additions overflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum(0);

    /// Adds a 16-bit field, given in host byte order.
    #[inline]
    #[must_use]
    pub const fn word(self, value: u16) -> Sum {
        Sum(shorten(self.0 + value.to_be() as u64))
    }

    /// Adds a 32-bit field, given in host byte order.
    #[inline]
    #[must_use]
    pub const fn long(self, value: u32) -> Sum {
        Sum(shorten(self.0 + value.to_be() as u64))
    }

    /// Adds the sum of bytes that follow at an even offset.
    #[inline]
    #[must_use]
    pub const fn join(self, other: Sum) -> Sum {
        Sum(shorten(self.0 + other.0))
    }

    /// Subtracts a 16-bit field: one's complement subtraction adds the inverse.
    #[inline]
    #[must_use]
    pub const fn without(self, value: u16) -> Sum {
        self.word(!value)
    }

    /// The sum folded to 16 bits, not inverted: the pseudo-header sum that `VIRTIO_NET_HDR_F_NEEDS_CSUM` requires in
    /// the checksum field, and 0xffff over bytes with a valid checksum.
    #[inline]
    pub const fn fold(self) -> u16 {
        let sum = (self.0 & 0xffff) + ((self.0 >> 16) & 0xffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        u16::from_be(sum as u16)
    }

    /// The checksum: the folded sum, inverted.
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// The checksum as UDP sends it: there zero means "none", so a computed zero is sent as all ones (RFC 768).
    #[inline]
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }
}

/// Adds `bytes` to `acc`.
///
/// A last odd byte counts as the high half of a word padded with zero. In a chain every part must therefore
/// start at an even offset; only the last part may have an odd length.
#[inline]
#[must_use]
pub fn sum(bytes: &[u8], acc: Sum) -> Sum {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    // Headers are shorter than a block, and adding up empty lanes would cost more than summing them.
    if blocks.is_empty() {
        return Sum(shorten(acc.0 + tail(rest)));
    }
    let mut lanes = Lanes::default();
    for block in blocks {
        lanes.add(block);
    }
    Sum(shorten(acc.0 + lanes.total() + tail(rest)))
}

/// Copies `src` to `dst` and adds it to `acc`. Odd lengths as in [`sum`].
///
/// The C library copies with the widest vectors of the CPU, and the sum then reads the bytes from the L1 cache:
/// 1368 bytes take 57 ns on an Emerald Rapids. One loop that copies and sums takes 72 ns with the vectors of
/// baseline x86-64.
///
/// # Panics
///
/// If the slices differ in length.
#[inline]
#[must_use]
pub fn copy_and_sum(src: &[u8], dst: &mut [u8], acc: Sum) -> Sum {
    assert_eq!(src.len(), dst.len(), "the caller passes slices of equal length");
    dst.copy_from_slice(src);
    sum(src, acc)
}

/// The sum of the pseudo-header of TCP, UDP or ICMPv6 (RFC 9293 section 3.1, RFC 8200 section 8.1).
///
/// `addresses` are source and destination, adjacent as in the IP header: 8 bytes of IPv4 or 32 bytes of IPv6.
/// `length` counts the bytes of transport header and payload. Both families sum alike, because their fields
/// differ only in width.
#[inline]
#[must_use]
pub fn pseudo_header(addresses: &[u8], protocol: u8, length: usize) -> Sum {
    debug_assert!(addresses.len() == 8 || addresses.len() == 32);
    sum(addresses, Sum::ZERO).word(u16::from(protocol)).long(length as u32)
}

/// The checksum after one covered word changed from `old` to `new`, without reading the rest (RFC 1624,
/// equation 3). A wrong checksum stays wrong by the same amount.
#[inline]
pub const fn after_change(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::ZERO.word(!checksum).without(old).word(new).checksum()
}

/// Per-lane sums of 64-bit words, and of their upper 32-bit halves alone.
///
/// The sums of words wrap. The sums of halves do not for 2^32 iterations, and recover what wrapping lost: the
/// sum of the lower halves is that of the words minus 2^32 times that of the upper halves, modulo 2^64, and is
/// below 2^64. So a word takes one shift and two additions, which unlike widening shuffles run on every
/// vector port, and no mask.
#[derive(Default)]
struct Lanes {
    words: [u64; LANES],
    high: [u64; LANES],
}

impl Lanes {
    #[inline(always)]
    fn add(&mut self, block: &[u8; BLOCK]) {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in words.iter().enumerate() {
            let word = u64::from_ne_bytes(*word);
            self.words[lane] = self.words[lane].wrapping_add(word);
            self.high[lane] += word >> 32;
        }
    }

    /// Not inlined, so that the lanes stay arrays in the loop that adds blocks: inlined, this sum has kept the
    /// compiler from vectorizing the loop.
    #[inline(never)]
    fn total(&self) -> u64 {
        let words = self.words.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word));
        let high: u64 = self.high.iter().sum();
        words.wrapping_sub(high << 32) + high
    }
}

/// Sums the bytes after the last full block.
#[inline]
fn tail(rest: &[u8]) -> u64 {
    let (words, rest) = rest.as_chunks::<4>();
    let mut total = 0u64;
    for word in words {
        total += u64::from(u32::from_ne_bytes(*word));
    }
    // Spelled out, because a copy of unknown length would become a call.
    let last = match *rest {
        [a, b, c] => [a, b, c, 0],
        [a, b] => [a, b, 0, 0],
        [a] => [a, 0, 0, 0],
        _ => return total,
    };
    total + u64::from(u32::from_ne_bytes(last))
}

/// Folds 64 bits to at most 33 without losing the carry.
#[inline]
const fn shorten(sum: u64) -> u64 {
    (sum & 0xffff_ffff) + (sum >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_gives_the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes, Sum::ZERO).fold(), 0xddf2);
    }

    #[test]
    fn a_last_odd_byte_is_the_high_half_of_a_word() {
        assert_eq!(sum(&[0x12], Sum::ZERO).fold(), 0x1200);
        assert_eq!(sum(&[0xff, 0xff, 0x01], Sum::ZERO).fold(), 0x0100);
    }

    #[test]
    fn udp_never_sends_zero() {
        let all_ones = Sum::ZERO.word(0xffff);
        assert_eq!(all_ones.checksum(), 0);
        assert_eq!(all_ones.udp_checksum(), 0xffff);
    }

    #[test]
    fn the_largest_sums_do_not_overflow() {
        let mut acc = Sum::ZERO;
        for _ in 0..100 {
            acc = sum(&[0xff; 4096], acc).long(u32::MAX);
        }
        assert_eq!(acc.fold(), 0xffff);
    }

    #[test]
    fn after_change_follows_the_example_of_rfc_1624() {
        assert_eq!(after_change(0xdd2f, 0x5555, 0x3285), 0x0000);
    }
}
