//! Why bytes are not the packet they claim to be. Each reason is a discard that the engine counts
//! under this name; none carries data, so that dropping a packet costs nothing.

/// A packet, or the virtio header in front of it, that contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The version nibble is neither 4 nor 6.
    Version,
    /// Fewer bytes than a header needs.
    Truncated,
    /// A length field contradicts another one or exceeds the bytes that are there.
    Length,
    /// The virtio header asks for an offload that is unknown or does not fit the packet.
    Offload,
    /// The virtio header places the checksum where the packet's transport header has none.
    Checksum,
    /// The virtio header asks for segments of zero bytes.
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
