//! A naive Internet checksum (RFC 1071), to check the optimized one.

/// The ones' complement sum of 16-bit words, folded; an odd byte is the high one of its word.
pub fn fold(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum, word| add(sum, u16::from(word[0]) << 8 | u16::from(*word.get(1).unwrap_or(&0))))
}

/// The ones' complement sum of two.
pub fn add(one: u16, other: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(other);
    sum + u16::from(carry)
}

/// The sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1) of `packet`, an IP packet, for `length`
/// bytes of `protocol`.
pub fn pseudo_header(packet: &[u8], protocol: u8, length: usize) -> u16 {
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    let length = u32::try_from(length).expect("a packet is short").to_be_bytes();
    add(fold(addresses), add(fold(&length), u16::from(protocol)))
}

/// Whether a folded sum is zero, which has two forms in ones' complement.
pub fn is_zero(sum: u16) -> bool {
    sum == 0 || sum == 0xffff
}
