//! Why the protocol dropped a datagram or a packet.
//!
//! One name per reason, so that each can be counted. A discard is normal weather: it allocates
//! nothing and carries no data.

macro_rules! discards {
    ($($(#[$doc:meta])+ $variant:ident => $name:literal,)+) => {
        /// A named reason for dropping.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])+ $variant,)+
        }

        impl DropReason {
            /// How many reasons there are.
            pub const COUNT: usize = [$(Self::$variant),+].len();

            /// Every reason, in the order of [`DropReason::index`].
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant),+];

            /// The reason's name in `snake_case`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

discards! {
    /// Shorter than any message.
    TooShort => "too_short",
    /// The type field, reserved bytes included, is none of the four.
    UnknownType => "unknown_type",
    /// The length does not fit the type.
    BadLength => "bad_length",
    /// A data message was given to the handshake, or the other way round.
    WrongKind => "wrong_kind",
    /// The device is down.
    Down => "down",
    /// The device has no private key.
    NoPrivateKey => "no_private_key",
    /// The first MAC is wrong: the sender does not know our public key.
    Mac1 => "mac1",
    /// Under load and without a valid cookie: a cookie reply was sent, but for most messages of an address that was
    /// met in the same second; those are refused before a MAC is looked at.
    UnderLoad => "under_load",
    /// Under load with a valid cookie, but the address is over its rate.
    RateLimited => "rate_limited",
    /// An authentication tag is wrong.
    Undecryptable => "undecryptable",
    /// A Diffie-Hellman result is zero: a public key of low order.
    LowOrder => "low_order",
    /// The initiation's static key belongs to no peer.
    UnknownPeer => "unknown_peer",
    /// The initiation's timestamp is not greater than the latest of the peer.
    Replayed => "replayed",
    /// The peer starts more than 50 handshakes per second.
    Flood => "flood",
    /// The receiver index belongs to no handshake and no session.
    UnknownIndex => "unknown_index",
    /// The receiver index exists, but its handshake is not waiting for this message.
    WrongState => "wrong_state",
    /// A cookie reply to a message that was not sent, or was answered already.
    CookieUnexpected => "cookie_unexpected",
    /// The session is too old to open or seal with.
    KeyExpired => "key_expired",
    /// The counter is at or above the limit of a session.
    CounterExpired => "counter_expired",
    /// The counter was seen before, or is older than the replay window.
    CounterReplayed => "counter_replayed",
    /// The inner source address does not belong to the peer that sent it.
    SourceNotAllowed => "source_not_allowed",
    /// The inner packet is neither IPv4 nor IPv6.
    InnerVersion => "inner_version",
    /// The inner packet's length fields do not fit the plaintext.
    InnerLength => "inner_length",
}

impl DropReason {
    /// Whether it is found out about a handshake message only by an agreement of keys, the dearest step.
    pub(crate) const fn follows_diffie_hellman(self) -> bool {
        matches!(self, Self::Undecryptable | Self::LowOrder | Self::UnknownPeer | Self::Replayed | Self::Flood)
    }

    /// The reason's place in [`DropReason::ALL`], for counting in an array.
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn every_reason_has_its_own_index_and_name() {
        for (i, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), i);
        }
        let names: BTreeSet<_> = DropReason::ALL.iter().map(|d| d.name()).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')));
    }
}
