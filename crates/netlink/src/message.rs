//! Messages and attributes in received bytes.

use std::net::IpAddr;

use crate::{ATTRIBUTE_HEADER, HEADER};

/// The bits of an attribute's type that are the type; the others say "nested" and "network byte order".
const NLA_TYPE_MASK: u16 = 0x3fff;

/// One message from the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its type.
    pub kind: u16,
    /// Its flags.
    pub flags: u16,
    /// The sequence number of the request that it answers.
    pub sequence: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// The messages in a datagram, up to the first with a wrong length.
pub fn messages(datagram: &[u8]) -> MessageIter<'_> {
    MessageIter(datagram)
}

/// See [`messages`].
pub struct MessageIter<'a>(&'a [u8]);

impl<'a> MessageIter<'a> {
    /// The bytes that were not read. Not empty at the end if a message has a wrong length.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for MessageIter<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let bytes = self.0;
        let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let message = Message {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            sequence: u32_at(bytes, 8)?,
            payload: bytes.get(HEADER..length)?,
        };
        // `length` is at most that of the bytes, so that rounding it up cannot overflow.
        self.0 = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// Type and value of each attribute in `bytes`, up to the first with a wrong length.
pub fn attributes(bytes: &[u8]) -> AttributeIter<'_> {
    AttributeIter(bytes)
}

/// See [`attributes`].
pub struct AttributeIter<'a>(&'a [u8]);

impl<'a> Iterator for AttributeIter<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let attribute = (u16_at(self.0, 2)? & NLA_TYPE_MASK, self.0.get(ATTRIBUTE_HEADER..length)?);
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(attribute)
    }
}

/// As [`attributes`], with a last item `None` if one has a wrong length: for readers that accept all or nothing.
pub fn strict_attributes(bytes: &[u8]) -> impl Iterator<Item = Option<(u16, &[u8])>> {
    let mut rest = attributes(bytes);
    std::iter::from_fn(move || match rest.next() {
        Some(attribute) => Some(Some(attribute)),
        None => (!std::mem::take(&mut rest.0).is_empty()).then_some(None),
    })
}

/// The value of the first attribute of type `kind`.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// A value as a number in native byte order.
pub fn u32_of(value: &[u8]) -> Option<u32> {
    u32_at(value, 0)
}

/// A value as a text, without its NUL.
pub fn text_of(value: &[u8]) -> Option<String> {
    String::from_utf8(value.split(|byte| *byte == 0).next()?.to_vec()).ok()
}

/// A value as an address, by its length.
pub fn address_of(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok()
}

/// The u16 at byte `at`, in native byte order.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// The u32 at byte `at`, in native byte order.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Attributes, Request};

    #[test]
    fn a_message_with_a_wrong_length_ends_the_reading() {
        let mut one = Request::new(16, 0, &[1; 4], Attributes::default());
        let mut two = [one.with_sequence(1).to_vec(), one.with_sequence(2).to_vec()].concat();
        let sequences = |bytes: &[u8]| messages(bytes).map(|message| message.sequence).collect::<Vec<_>>();
        assert_eq!(sequences(&two), [1, 2]);
        assert_eq!(sequences(&two[..two.len() - 1]), [1]);
        for wrong in [0u32, 1, 15, 21, u32::MAX - 3, u32::MAX] {
            two[20..24].copy_from_slice(&wrong.to_ne_bytes());
            assert_eq!(sequences(&two), [1], "{wrong}");
        }
    }

    #[test]
    fn an_attribute_with_a_wrong_length_ends_the_reading() {
        for wrong in [0u16, 1, 3, 9, u16::MAX] {
            let mut bytes = [0; 8];
            bytes[..2].copy_from_slice(&wrong.to_ne_bytes());
            assert_eq!(attributes(&bytes).count(), 0, "{wrong}");
            assert_eq!(strict_attributes(&bytes).collect::<Vec<_>>(), [None], "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn attributes_are_read_as_they_were_written(
            written in prop::collection::vec((0u16..0x4000, prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            cut in 0usize..8,
        ) {
            let all = written.iter().fold(Attributes::default(), |all, (kind, value)| all.with(*kind, value));
            let read: Vec<_> = attributes(all.bytes()).map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(&read, &written);
            prop_assert!(strict_attributes(all.bytes()).all(|attribute| attribute.is_some()));
            let nest = Attributes::default().with_nest(9, all.clone());
            prop_assert_eq!(attribute(nest.bytes(), 9), Some(all.bytes()));
            // What is cut off is missing, and nothing else changes.
            let short = &all.bytes()[..all.bytes().len().saturating_sub(cut)];
            prop_assert!(attributes(short).zip(&read).all(|(short, (kind, value))| short == (*kind, &value[..])));
        }

        #[test]
        fn no_bytes_make_the_readers_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for message in messages(&bytes) {
                attributes(message.payload).count();
            }
            for (_, value) in attributes(&bytes) {
                let _ = (u32_of(value), text_of(value), address_of(value));
            }
            strict_attributes(&bytes).count();
        }
    }
}
