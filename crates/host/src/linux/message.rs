//! Netlink messages as bytes: requests that are built up, and answers that are read.
//!
//! Written out rather than taken from a general codec, because such a codec refuses a whole message over one
//! attribute whose layout a newer kernel has changed; here what is not asked for is stepped over. A message that lies
//! about a length ends the reading, never panics (include/uapi/linux/netlink.h; lib/nlattr.c).

use std::net::IpAddr;

use ipnet::IpNet;

pub(super) const NLM_F_REQUEST: u16 = 1;
pub(super) const NLM_F_ACK: u16 = 4;
pub(super) const NLM_F_DUMP: u16 = 0x300;
pub(super) const NLM_F_EXCL: u16 = 0x200;
pub(super) const NLM_F_CREATE: u16 = 0x400;
pub(super) const NLM_F_APPEND: u16 = 0x800;

/// `struct nlmsghdr`: length, type, flags, sequence, port.
pub(super) const HEADER: usize = 16;
/// `struct nlattr`: length, type.
const ATTRIBUTE_HEADER: usize = 4;
const NLA_F_NESTED: u16 = 0x8000;
/// What is not the type: nested, and network byte order.
const NLA_FLAGS: u16 = 0xc000;

/// A request to the kernel.
pub(super) struct Message(Vec<u8>);

impl Message {
    /// A request of type `kind` that begins with the `fixed` part of its family, a multiple of four bytes.
    pub(super) fn new(kind: u16, flags: u16, fixed: &[u8], attributes: Attributes) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(fixed);
        bytes.extend(attributes.0);
        let length = u32::try_from(bytes.len()).expect("requests are short");
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        Self(bytes)
    }

    /// The same, to be answered even if all goes well.
    pub(super) fn acknowledged(mut self) -> Self {
        let flags = u16::from_ne_bytes([self.0[6], self.0[7]]) | NLM_F_ACK;
        self.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        self
    }

    /// Its bytes, with the number that the answer to it will bear.
    pub(super) fn numbered(&mut self, sequence: u32) -> &[u8] {
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.0
    }
}

/// Attributes, one after the other.
#[derive(Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute. Whoever takes a value from outside has bounded it: a length has 16 bits.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).expect("values are bounded");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds a number in the byte order of this machine.
    pub(super) fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Adds an address.
    pub(super) fn with_address(self, kind: u16, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.with(kind, &address.octets()),
            IpAddr::V6(address) => self.with(kind, &address.octets()),
        }
    }

    /// Adds a text, which ends with a NUL.
    pub(super) fn with_text(self, kind: u16, text: &str) -> Self {
        self.with(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// Adds an attribute made of attributes.
    pub(super) fn with_nest(self, kind: u16, inner: Self) -> Self {
        self.with(kind | NLA_F_NESTED, &inner.0)
    }
}

/// What the kernel says.
pub(super) struct Frame<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) payload: &'a [u8],
}

/// The messages in a datagram, up to the first that lies about its length.
pub(super) fn frames(mut datagram: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(datagram, 0)?).ok()?;
        let frame = Frame {
            kind: u16_at(datagram, 4)?,
            flags: u16_at(datagram, 6)?,
            sequence: u32_at(datagram, 8)?,
            payload: datagram.get(HEADER..length)?,
        };
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(frame)
    })
}

/// The attributes in `bytes`, up to the first that lies about its length: type and value.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let attribute = (u16_at(bytes, 2)? & !NLA_FLAGS, bytes.get(ATTRIBUTE_HEADER..length)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(attribute)
    })
}

/// The value of the first attribute of type `kind`.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// The number that a value is, in the byte order of this machine.
pub(super) fn u32_of(value: &[u8]) -> Option<u32> {
    u32_at(value, 0)
}

/// The text that a value is, without its NUL.
pub(super) fn text_of(value: &[u8]) -> Option<String> {
    String::from_utf8(value.split(|byte| *byte == 0).next()?.to_vec()).ok()
}

/// The address that a value is.
pub(super) fn address_of(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => None,
    }
}

/// The prefix of an address family (`AF_INET` or `AF_INET6`) with these bits; without an address, that of all.
pub(super) fn prefix_of(family: u8, address: Option<&[u8]>, length: u8) -> Option<IpNet> {
    let address = match (family, address) {
        (AF_INET, None) => IpAddr::from([0; 4]),
        (AF_INET6, None) => IpAddr::from([0; 16]),
        (_, Some(value)) => address_of(value)?,
        _ => return None,
    };
    IpNet::new(address, length).ok().filter(|net| family_of(net.addr()) == family)
}

pub(super) const AF_INET: u8 = 2;
pub(super) const AF_INET6: u8 = 10;

/// The address family of an address.
pub(super) fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the kernel could have said, had it to say what a request says.
    pub(crate) fn told(mut request: Message, read: impl FnOnce(&Frame<'_>)) {
        read(&frames(request.numbered(7)).next().expect("a request is a message"));
    }

    /// Attributes as a kernel would never have them: types that are known, with values that may be anything.
    pub(crate) fn odd_attributes() -> impl Strategy<Value = Vec<u8>> {
        let value = prop::collection::vec(any::<u8>(), 0..20);
        let attributes = prop::collection::vec((0u16..32, value, -2i32..3), 0..6);
        attributes.prop_map(|attributes| {
            let mut bytes = Vec::new();
            for (kind, value, lie) in attributes {
                let at = bytes.len();
                bytes.extend(Attributes::default().with(kind, &value).0);
                let length = i32::from(bytes[at]) + if lie.abs() == 2 { lie } else { 0 };
                bytes[at] = u8::try_from(length).expect("values are short");
            }
            bytes
        })
    }

    #[test]
    fn a_message_that_lies_about_its_length_ends_the_reading() {
        let mut one = Message::new(16, 0, &[1; 4], Attributes::default());
        let mut two = [one.numbered(1).to_vec(), one.numbered(2).to_vec()].concat();
        let sequences = |bytes: &[u8]| frames(bytes).map(|frame| frame.sequence).collect::<Vec<_>>();
        assert_eq!(sequences(&two), [1, 2]);
        assert_eq!(sequences(&two[..two.len() - 1]), [1]);
        for lie in [0u32, 15, 21, u32::MAX] {
            two[20..24].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(sequences(&two), [1], "{lie}");
        }
    }

    proptest! {
        #[test]
        fn attributes_are_read_as_they_are_written(written in prop::collection::vec((0u16..0x4000, prop::collection::vec(any::<u8>(), 0..40)), 0..8)) {
            let bytes = written.iter().fold(Attributes::default(), |all, (kind, value)| all.with(*kind, value)).0;
            let read: Vec<_> = attributes(&bytes).map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(&read, &written);
            let nest = Attributes::default().with_nest(9, Attributes(bytes.clone())).0;
            prop_assert_eq!(attribute(&nest, 9), Some(&bytes[..]));
        }

        #[test]
        fn nothing_makes_the_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), odd in odd_attributes()) {
            frames(&bytes).for_each(drop);
            for bytes in [bytes, odd] {
                for (_, value) in attributes(&bytes) {
                    let _ = (u32_of(value), text_of(value), address_of(value));
                }
            }
        }

        #[test]
        fn a_prefix_is_of_its_family_and_not_too_long(family in 0u8..12, octets in prop::collection::vec(any::<u8>(), 0..20), length: u8) {
            let longest = match family { AF_INET => 32, AF_INET6 => 128, _ => 0 };
            let right = usize::from(longest) == octets.len() * 8 && longest > 0 && length <= longest;
            prop_assert_eq!(prefix_of(family, Some(&octets), length).is_some(), right);
            prop_assert_eq!(prefix_of(family, None, length).is_some(), longest > 0 && length <= longest);
        }
    }
}
