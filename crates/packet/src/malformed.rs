//! Why a packet is malformed. The engine counts each reason under its name; none carries data, so that
//! dropping a packet is cheap.

/// A packet, or the virtio header before it, is inconsistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The version nibble is neither 4 nor 6.
    Version,
    /// Fewer bytes than a header needs.
    Truncated,
    /// A length field contradicts another one or exceeds the packet.
    Length,
    /// The virtio header requests an offload that is unknown or does not match the packet.
    Offload,
    /// The virtio header has the checksum where the packet's transport header has none.
    Checksum,
    /// The virtio header requests segments of zero bytes.
    Segment,
}

impl Malformed {
    /// The name under which the packet is counted.
    pub const fn name(self) -> &'static str {
        match self {
            Malformed::Version => "version",
            Malformed::Truncated => "truncated",
            Malformed::Length => "length",
            Malformed::Offload => "offload",
            Malformed::Checksum => "checksum",
            Malformed::Segment => "segment",
        }
    }
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Malformed {}
