//! Why the protocol drops a datagram or a packet.
//!
//! Each reason has a name under which it is counted. Drops are routine: they allocate nothing and carry no data.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])+ $variant:ident => $name:literal,)+) => {
        /// A named reason to drop a datagram or a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])+ $variant,)+
        }

        impl DropReason {
            /// The number of reasons.
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

drop_reasons! {
    /// Shorter than any message.
    TooShort => "too_short",
    /// The type field, reserved bytes included, is not one of the four.
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
    /// Under load, or of a peer that may be another gateway's, and without a valid cookie. A cookie reply was sent, except for most repeated messages of an address
    /// in one second, which are dropped before a MAC is checked.
    UnderLoad => "under_load",
    /// Under load with a valid cookie, but the address exceeds its rate.
    RateLimited => "rate_limited",
    /// An authentication tag is wrong.
    Undecryptable => "undecryptable",
    /// A Diffie-Hellman result is zero: a public key of low order.
    LowOrder => "low_order",
    /// No peer has the initiation's static key.
    UnknownPeer => "unknown_peer",
    /// The initiation is of a suspended peer.
    Suspended => "suspended_initiation",
    /// What this gateway knows of its fleet's peers is too old to let any in.
    Stale => "stale_initiation",
    /// The initiation's timestamp is not greater than the peer's latest.
    Replayed => "replayed",
    /// The peer starts more than 50 handshakes per second.
    Flood => "flood",
    /// No handshake and no session has the receiver index.
    UnknownIndex => "unknown_index",
    /// The receiver index exists, but its handshake is not waiting for this message.
    WrongState => "wrong_state",
    /// A cookie reply to a message that was not sent or already answered.
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
    /// Whether a handshake message is dropped for this reason only after a key agreement, the most expensive step.
    pub(crate) const fn follows_diffie_hellman(self) -> bool {
        matches!(
            self,
            Self::Undecryptable | Self::LowOrder | Self::UnknownPeer | Self::Suspended | Self::Replayed | Self::Flood
        )
    }

    /// The reason's index in [`DropReason::ALL`].
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
