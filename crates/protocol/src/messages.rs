//! The four messages as bytes: kinds, sizes, offsets of fields (paper section 5.4).
//!
//! Reading and writing never allocate and never interpret a field; `noise`, `cookie` and `device` do.
//! Integers are little-endian.

use core::ops::Range;

use crate::DropReason;
use crate::constants::{COOKIE_LEN, DATA_MIN_LEN, INITIATION_LEN, RESPONSE_LEN};

/// Bytes of a data message before the ciphertext: type, receiver index, counter.
pub const DATA_HEADER: usize = 16;

const TYPE_INITIATION: u32 = 1;
const TYPE_RESPONSE: u32 = 2;
const TYPE_COOKIE: u32 = 3;
const TYPE_DATA: u32 = 4;

/// The four kinds of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// First message of a handshake.
    Initiation,
    /// Second message of a handshake.
    Response,
    /// Reply of a device under load.
    Cookie,
    /// A sealed packet; an empty one is a keepalive.
    Data,
}

/// Determines a datagram's kind by its type and length.
///
/// The type is read as 32 bits, so the three reserved bytes must be zero. Each handshake message has a
/// fixed length; a data message has at least a header and a tag.
pub fn classify(datagram: &[u8]) -> Result<MessageKind, DropReason> {
    let Some(first) = datagram.first_chunk::<4>() else { return Err(DropReason::TooShort) };
    let (kind, fits) = match u32::from_le_bytes(*first) {
        TYPE_INITIATION => (MessageKind::Initiation, datagram.len() == INITIATION_LEN),
        TYPE_RESPONSE => (MessageKind::Response, datagram.len() == RESPONSE_LEN),
        TYPE_COOKIE => (MessageKind::Cookie, datagram.len() == COOKIE_LEN),
        TYPE_DATA => (MessageKind::Data, datagram.len() >= DATA_MIN_LEN),
        _ => return Err(DropReason::UnknownType),
    };
    if fits { Ok(kind) } else { Err(DropReason::BadLength) }
}

/// The receiver index of a message, if it has one: an initiation has none.
pub fn receiver_index(datagram: &[u8]) -> Option<u32> {
    match classify(datagram).ok()? {
        MessageKind::Initiation => None,
        MessageKind::Response => Some(u32::from_le_bytes(field(datagram, response::RECEIVER))),
        MessageKind::Cookie => Some(u32::from_le_bytes(field(datagram, cookie_reply::RECEIVER))),
        MessageKind::Data => Some(DataHeader::decode(datagram).receiver),
    }
}

/// The header of a data message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// The receiver's index of the session.
    pub receiver: u32,
    /// The packet's counter.
    pub counter: u64,
}

impl DataHeader {
    /// Reads the header of a data message that [`classify`] has accepted.
    ///
    /// # Panics
    /// If `datagram` is shorter than [`DATA_HEADER`].
    pub fn decode(datagram: &[u8]) -> Self {
        Self { receiver: u32::from_le_bytes(field(datagram, 4)), counter: u64::from_le_bytes(field(datagram, 8)) }
    }

    /// Writes type, receiver and counter.
    ///
    /// # Panics
    /// If `datagram` is shorter than [`DATA_HEADER`].
    pub fn encode(&self, datagram: &mut [u8]) {
        datagram[..4].copy_from_slice(&TYPE_DATA.to_le_bytes());
        datagram[4..8].copy_from_slice(&self.receiver.to_le_bytes());
        datagram[8..16].copy_from_slice(&self.counter.to_le_bytes());
    }
}

/// An initiation: type, sender, ephemeral, sealed static key, sealed timestamp, two MACs.
pub(crate) type Initiation = [u8; INITIATION_LEN];
/// A response: type, sender, receiver, ephemeral, sealed nothing, two MACs.
pub(crate) type Response = [u8; RESPONSE_LEN];
/// A cookie reply: type, receiver, nonce, sealed cookie.
pub(crate) type CookieReply = [u8; COOKIE_LEN];

/// Offsets of the fields of an initiation.
pub(crate) mod initiation {
    use super::Range;
    pub(crate) const SENDER: usize = 4;
    pub(crate) const EPHEMERAL: usize = 8;
    pub(crate) const STATIC: Range<usize> = 40..88;
    pub(crate) const TIMESTAMP: Range<usize> = 88..116;
}

/// Offsets of the fields of a response.
pub(crate) mod response {
    use super::Range;
    pub(crate) const SENDER: usize = 4;
    pub(crate) const RECEIVER: usize = 8;
    pub(crate) const EPHEMERAL: usize = 12;
    pub(crate) const EMPTY: Range<usize> = 44..60;
}

/// Offsets of the fields of a cookie reply.
pub(crate) mod cookie_reply {
    use super::Range;
    pub(crate) const RECEIVER: usize = 4;
    pub(crate) const NONCE: usize = 8;
    pub(crate) const SEALED: Range<usize> = 32..64;
}

/// An initiation with only its type and sender.
pub(crate) fn blank_initiation(sender: u32) -> Initiation {
    let mut message = [0; INITIATION_LEN];
    message[..4].copy_from_slice(&TYPE_INITIATION.to_le_bytes());
    message[initiation::SENDER..][..4].copy_from_slice(&sender.to_le_bytes());
    message
}

/// A response with only its type and indices.
pub(crate) fn blank_response(sender: u32, receiver: u32) -> Response {
    let mut message = [0; RESPONSE_LEN];
    message[..4].copy_from_slice(&TYPE_RESPONSE.to_le_bytes());
    message[response::SENDER..][..4].copy_from_slice(&sender.to_le_bytes());
    message[response::RECEIVER..][..4].copy_from_slice(&receiver.to_le_bytes());
    message
}

/// A cookie reply with only its type and receiver.
pub(crate) fn blank_cookie_reply(receiver: u32) -> CookieReply {
    let mut message = [0; COOKIE_LEN];
    message[..4].copy_from_slice(&TYPE_COOKIE.to_le_bytes());
    message[cookie_reply::RECEIVER..][..4].copy_from_slice(&receiver.to_le_bytes());
    message
}

/// The sender's index, which is at the same offset in initiations and responses.
pub(crate) fn sender(message: &[u8]) -> u32 {
    u32::from_le_bytes(field(message, initiation::SENDER))
}

/// Copies `N` bytes at offset `at` from a message whose length [`classify`] has checked.
pub(crate) fn field<const N: usize>(message: &[u8], at: usize) -> [u8; N] {
    message[at..][..N].try_into().expect("the slice was cut to N bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn classify_knows_each_kind_by_type_and_exact_length() {
        for (kind, number, len) in [
            (MessageKind::Initiation, 1, 148),
            (MessageKind::Response, 2, 92),
            (MessageKind::Cookie, 3, 64),
            (MessageKind::Data, 4, 32),
        ] {
            let mut datagram = vec![0; len];
            datagram[0] = number;
            assert_eq!(classify(&datagram), Ok(kind));
            assert_eq!(classify(&datagram[..len - 1]), Err(DropReason::BadLength));
            datagram.push(0);
            let longer = if kind == MessageKind::Data { Ok(kind) } else { Err(DropReason::BadLength) };
            assert_eq!(classify(&datagram), longer);
            for reserved in 1..4 {
                let mut spoiled = datagram.clone();
                spoiled[reserved] = 1;
                assert_eq!(classify(&spoiled), Err(DropReason::UnknownType));
            }
        }
    }

    #[test]
    fn classify_refuses_other_datagrams() {
        assert_eq!(classify(&[]), Err(DropReason::TooShort));
        assert_eq!(classify(&[1, 0, 0]), Err(DropReason::TooShort));
        assert_eq!(classify(&[0; 148]), Err(DropReason::UnknownType));
        assert_eq!(classify(&[0xff; 65535]), Err(DropReason::UnknownType));
        assert_eq!(classify(&[5, 0, 0, 0]), Err(DropReason::UnknownType));
    }

    #[test]
    fn fields_cover_their_messages_without_gaps() {
        assert_eq!(initiation::EPHEMERAL, initiation::SENDER + 4);
        assert_eq!(initiation::STATIC, initiation::EPHEMERAL + 32..initiation::TIMESTAMP.start);
        assert_eq!(initiation::TIMESTAMP.len(), 12 + 16);
        assert_eq!(initiation::TIMESTAMP.end + 32, INITIATION_LEN);
        assert_eq!(response::EMPTY, response::EPHEMERAL + 32..RESPONSE_LEN - 32);
        assert_eq!(cookie_reply::SEALED, cookie_reply::NONCE + 24..COOKIE_LEN);
    }

    proptest! {
        #[test]
        fn a_data_header_survives_the_wire(receiver: u32, counter: u64) {
            let header = DataHeader { receiver, counter };
            let mut datagram = [0xff; DATA_MIN_LEN];
            header.encode(&mut datagram);
            prop_assert_eq!(classify(&datagram), Ok(MessageKind::Data));
            prop_assert_eq!(DataHeader::decode(&datagram), header);
        }

        #[test]
        fn classify_takes_any_bytes(datagram: alloc::vec::Vec<u8>) {
            let _ = classify(&datagram);
        }
    }
}
