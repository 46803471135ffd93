//! The UDP sockets of the calling thread's host (`/proc/net/udp`, `udp6`).

use std::fs;

/// A UDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpSocket {
    /// Its local port.
    pub port: u16,
    /// Its inode, by which /proc/PID/fd names it.
    pub inode: u64,
    /// How many datagrams it dropped because its buffer was full.
    pub drops: u64,
}

/// All of them.
#[must_use]
pub fn udp() -> Vec<UdpSocket> {
    // A thread may be in another network namespace than its process.
    let read = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    ["udp", "udp6"].iter().flat_map(|name| read(name).lines().skip(1).filter_map(socket).collect::<Vec<_>>()).collect()
}

/// How many datagrams the sockets of `port` have dropped.
#[must_use]
pub fn drops(port: u16) -> u64 {
    udp().iter().filter(|socket| socket.port == port).map(|socket| socket.drops).sum()
}

fn socket(line: &str) -> Option<UdpSocket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let port = u16::from_str_radix(words.get(1)?.rsplit_once(':')?.1, 16).ok()?;
    Some(UdpSocket { port, inode: words.get(9)?.parse().ok()?, drops: words.get(12)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_port_inode_and_drops() {
        let line = " 2201: 0100007F:CA6C 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 71812 2 \
            0000000000000000 42";
        assert_eq!(socket(line), Some(UdpSocket { port: 51820, inode: 71812, drops: 42 }));
        for cut in ["", "1:", "1: 2 3", &line[..line.len() - 3]] {
            assert_eq!(socket(cut), None, "{cut:?}");
        }
    }
}
