//! What the kernel's TCP counts of a connection (TCP_INFO, tcp(7)).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::sys::options;

/// A connection's counters. What the kernel is too old to count is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Segments with payload that were sent, those that were sent again included.
    pub segments: u32,
    /// Those that were sent again.
    pub retransmitted: u32,
    /// How long there was something to send.
    pub busy: Duration,
    /// Of that, how long the receiver's window had no room.
    pub window_full: Duration,
    /// Of that, how long the sender's buffer had no room.
    pub buffer_full: Duration,
}

impl TcpInfo {
    /// Reads the counters of the connection `socket`.
    ///
    /// # Errors
    /// It is no TCP socket, or this system's counters are others (FreeBSD, macOS).
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut bytes = [0; 256];
        let length = options::tcp_info(socket.as_fd(), &mut bytes)?;
        Ok(Self::parse(&bytes[..length.min(bytes.len())]))
    }

    /// The structure only ever grows at its end.
    fn parse(bytes: &[u8]) -> Self {
        let at = |offset: usize| bytes.get(offset..)?.first_chunk().copied();
        let number = |offset| at(offset).map_or(0, u32::from_ne_bytes);
        let time = |offset: usize| {
            let value = bytes.get(offset..).and_then(|rest| rest.first_chunk().copied()).map_or(0, u64::from_ne_bytes);
            Duration::from_micros(value)
        };
        // tcpi_total_retrans, tcpi_data_segs_out, tcpi_busy_time, tcpi_rwnd_limited, tcpi_sndbuf_limited
        Self {
            retransmitted: number(100),
            segments: number(156),
            busy: time(168),
            window_full: time(176),
            buffer_full: time(184),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_structure_of_an_older_kernel_counts_less() {
        let mut bytes = [0_u8; 192];
        bytes[100..104].copy_from_slice(&7_u32.to_ne_bytes());
        bytes[156..160].copy_from_slice(&900_u32.to_ne_bytes());
        bytes[168..176].copy_from_slice(&5_000_u64.to_ne_bytes());
        let all = TcpInfo::parse(&bytes);
        assert_eq!((all.retransmitted, all.segments, all.busy), (7, 900, Duration::from_millis(5)));
        assert_eq!(TcpInfo::parse(&bytes[..158]), TcpInfo { retransmitted: 7, ..TcpInfo::default() });
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }
}
