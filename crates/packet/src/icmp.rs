//! ICMP destination unreachable, sent to an inner sender whose packet has no peer or whose peer has no endpoint, as
//! the kernel module does (`device.c`, `wg_xmit`): host unreachable (3/1) for IPv4, address unreachable (1/3) for
//! IPv6.
//!
//! Packets that must not be answered are not (RFC 1122 section 3.2.2, RFC 4443 section 2.4), so two hosts never
//! answer each other's errors. The caller limits the rate.

use core::net::IpAddr;

use crate::checksum::{self, Sum};
use crate::ip::{self, Ip, V4_HEADER, V6_HEADER, Version, be16, put16};
use crate::{ICMP, ICMPV6};

/// Bytes of the ICMP header of both families.
const HEADER: usize = 8;
/// The maximum length of an ICMPv4 error (RFC 1812 section 4.3.2.3).
const LONGEST_V4: usize = 576;
/// The maximum length of an ICMPv6 error: the minimum MTU (RFC 4443 section 2.4 c).
const LONGEST_V6: usize = 1280;

/// The longest answer in bytes: an `out` of this length is always sufficient for [`fn@unreachable`].
pub const LONGEST: usize = LONGEST_V6;

/// "Internetwork control" (RFC 1812 section 4.3.2.5), as in the kernel's `icmp_send`.
const V4_TOS: u8 = 0xc0;
const HOP_LIMIT: u8 = 64;

const V4_UNREACHABLE: u8 = 3;
const V4_HOST_UNREACHABLE: u8 = 1;
const V6_UNREACHABLE: u8 = 1;
const V6_ADDRESS_UNREACHABLE: u8 = 3;
const V4_ECHO: u8 = 8;
const V6_ECHO: u8 = 128;
/// ICMPv6 redirect, the only informational message that must not be answered.
const V6_REDIRECT: u8 = 137;
/// ICMPv6 types below this are errors.
const V6_INFORMATIONAL: u8 = 128;

/// Writes the answer to `original` to the start of `out` and returns its length. Its source is the unreachable
/// address, and it quotes as much of `original` as the family allows.
///
/// `None` if `original` must not be answered (an ICMP error, a fragment other than the first, an address that does
/// not name one host), is malformed, or the answer does not fit `out`; [`LONGEST`] bytes always suffice.
pub fn unreachable(original: &[u8], out: &mut [u8]) -> Option<usize> {
    let ip = ip::parse(original).ok()?;
    let original = &original[..ip.total_len];
    if !is_one_host(ip.source) || !is_one_host(ip.destination) {
        return None;
    }
    match ip.version {
        Version::V4 if is_answerable_v4(original, &ip) => write_v4(original, out),
        Version::V6 if is_answerable_v6(original) => write_v6(original, out),
        _ => None,
    }
}

/// Whether an address names a single host (RFC 1122 section 3.2.2).
fn is_one_host(address: IpAddr) -> bool {
    let reserved = match address {
        // 240/4 is class E and holds the limited broadcast address.
        IpAddr::V4(address) => address.octets()[0] >= 240,
        IpAddr::V6(_) => false,
    };
    !(reserved || address.is_unspecified() || address.is_multicast() || address.is_loopback())
}

fn is_answerable_v4(original: &[u8], ip: &Ip) -> bool {
    let fragment_offset = be16(original, 6) & 0x1fff;
    if fragment_offset != 0 {
        return false;
    }
    if ip.protocol != ICMP {
        return true;
    }
    // Unreachable, source quench, redirect, time exceeded, parameter problem.
    original.get(ip.transport).is_some_and(|kind| !matches!(kind, 3 | 4 | 5 | 11 | 12))
}

fn is_answerable_v6(original: &[u8]) -> bool {
    let Some(upper) = ip::upper_layer_v6(original) else {
        return false;
    };
    if upper.fragment_offset != 0 {
        return false;
    }
    if upper.protocol != ICMPV6 {
        return true;
    }
    original.get(upper.offset).is_some_and(|kind| *kind >= V6_INFORMATIONAL && *kind != V6_REDIRECT)
}

fn write_v4(original: &[u8], out: &mut [u8]) -> Option<usize> {
    let quote = &original[..original.len().min(LONGEST_V4 - V4_HEADER - HEADER)];
    let len = V4_HEADER + HEADER + quote.len();
    let out = out.get_mut(..len)?;
    let (network, message) = out.split_at_mut(V4_HEADER);

    network.fill(0);
    network[0] = 0x45;
    network[1] = V4_TOS;
    // Never fragmented, so it needs no identification (RFC 6864).
    put16(network, 6, ip::DONT_FRAGMENT);
    network[8] = HOP_LIMIT;
    network[9] = ICMP;
    network[12..16].copy_from_slice(&original[16..20]);
    network[16..20].copy_from_slice(&original[12..16]);
    ip::set_total_len(network, Version::V4, len);

    write_message(message, [V4_UNREACHABLE, V4_HOST_UNREACHABLE], quote, Sum::ZERO);
    Some(len)
}

fn write_v6(original: &[u8], out: &mut [u8]) -> Option<usize> {
    let quote = &original[..original.len().min(LONGEST_V6 - V6_HEADER - HEADER)];
    let len = V6_HEADER + HEADER + quote.len();
    let out = out.get_mut(..len)?;
    let (network, message) = out.split_at_mut(V6_HEADER);

    network.fill(0);
    network[0] = 0x60;
    network[6] = ICMPV6;
    network[7] = HOP_LIMIT;
    network[8..24].copy_from_slice(&original[24..40]);
    network[24..40].copy_from_slice(&original[8..24]);
    ip::set_total_len(network, Version::V6, len);

    let addresses = ip::addresses(network, Version::V6);
    let pseudo = checksum::pseudo_header(addresses, ICMPV6, message.len());
    write_message(message, [V6_UNREACHABLE, V6_ADDRESS_UNREACHABLE], quote, pseudo);
    Some(len)
}

/// Bytes of [`echo_request`]'s messages after their header: the packets need no padding.
const ECHO_PAYLOAD: [usize; 2] = [20, 16];

/// Writes an echo request, whose bytes after the header are zero, to the start of `out` and returns its length.
///
/// `None` if the addresses are not of one family, or `out` has fewer than 64 bytes.
pub fn echo_request(
    source: IpAddr,
    destination: IpAddr,
    identifier: u16,
    sequence: u16,
    out: &mut [u8],
) -> Option<usize> {
    let (version, header, kind, pseudo) = match (source, destination) {
        (IpAddr::V4(_), IpAddr::V4(_)) => (Version::V4, V4_HEADER, V4_ECHO, false),
        (IpAddr::V6(_), IpAddr::V6(_)) => (Version::V6, V6_HEADER, V6_ECHO, true),
        _ => return None,
    };
    let len = header + HEADER + ECHO_PAYLOAD[usize::from(version == Version::V6)];
    let out = out.get_mut(..len)?;
    out.fill(0);
    let (network, message) = out.split_at_mut(header);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            network[0] = 0x45;
            put16(network, 6, ip::DONT_FRAGMENT);
            network[8] = HOP_LIMIT;
            network[9] = ICMP;
            network[12..16].copy_from_slice(&source.octets());
            network[16..20].copy_from_slice(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            network[0] = 0x60;
            network[6] = ICMPV6;
            network[7] = HOP_LIMIT;
            network[8..24].copy_from_slice(&source.octets());
            network[24..40].copy_from_slice(&destination.octets());
        }
        _ => return None,
    }
    ip::set_total_len(network, version, len);
    message[0] = kind;
    put16(message, 4, identifier);
    put16(message, 6, sequence);
    let acc = match pseudo {
        true => checksum::pseudo_header(ip::addresses(network, version), ICMPV6, message.len()),
        false => Sum::ZERO,
    };
    let sum = checksum::sum(message, acc);
    put16(message, 2, sum.checksum());
    Some(len)
}

fn write_message(message: &mut [u8], type_and_code: [u8; 2], quote: &[u8], pseudo: Sum) {
    let (header, body) = message.split_at_mut(HEADER);
    header.fill(0);
    header[..2].copy_from_slice(&type_and_code);
    let sum = checksum::copy_and_sum(quote, body, checksum::sum(header, pseudo));
    put16(header, 2, sum.checksum());
}
