//! What a host's kernel counted: packets lost, retransmitted, fragmented, refused. From `/proc/net/snmp`, `netstat`,
//! `snmp6` and `dev`, which every network namespace has of its own.

use std::collections::BTreeMap;
use std::fs;

use crate::Result;
use crate::error::Doing;
use crate::hosts::Host;

/// The counters that explain a throughput: loss, repair, fragments. Names are those of nstat(8), RFC 1213 and
/// RFC 4293 behind them.
const TELLING: [&str; 51] = [
    "IpInHdrErrors",
    "IpInAddrErrors",
    "IpInDiscards",
    "IpOutDiscards",
    "IpOutNoRoutes",
    "IpForwDatagrams",
    "IpReasmReqds",
    "IpReasmFails",
    "IpFragOKs",
    "IpFragFails",
    "IpFragCreates",
    "IcmpInDestUnreachs",
    "IcmpOutDestUnreachs",
    "Ip6InHdrErrors",
    "Ip6InTooBigErrors",
    "Ip6InAddrErrors",
    "Ip6InDiscards",
    "Ip6OutDiscards",
    "Ip6OutNoRoutes",
    "Ip6OutForwDatagrams",
    "Ip6ReasmReqds",
    "Ip6ReasmFails",
    "Ip6FragOKs",
    "Ip6FragFails",
    "Ip6FragCreates",
    "Icmp6InPktTooBigs",
    "Icmp6OutPktTooBigs",
    "Icmp6InDestUnreachs",
    "Icmp6OutDestUnreachs",
    "TcpOutSegs",
    "TcpRetransSegs",
    "TcpInErrs",
    "TcpInCsumErrors",
    "TcpExtTCPTimeouts",
    "TcpExtTCPLostRetransmit",
    "TcpExtTCPSpuriousRTOs",
    "TcpExtTCPOFOQueue",
    "TcpExtTCPRcvQDrop",
    "TcpExtTCPBacklogDrop",
    "UdpInDatagrams",
    "UdpInErrors",
    "UdpRcvbufErrors",
    "UdpSndbufErrors",
    "UdpInCsumErrors",
    "UdpNoPorts",
    "Udp6InDatagrams",
    "Udp6InErrors",
    "Udp6RcvbufErrors",
    "Udp6SndbufErrors",
    "Udp6InCsumErrors",
    "Udp6NoPorts",
];

/// A host's counters at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelCounters(BTreeMap<String, u64>);

impl KernelCounters {
    /// Reads the counters of `host`: those that explain a throughput, and what its interfaces dropped, as
    /// `eth0/RxDropped` and `eth0/TxDropped`. A tunnel's queue that overflows because its daemon is too slow is a
    /// `TxDropped` of the tunnel's interface.
    ///
    /// # Errors
    ///
    /// When `/proc` does not show them.
    pub fn of(host: &Host) -> Result<Self> {
        host.inside(|| {
            let read = |name: &str| {
                let path = format!("/proc/thread-self/net/{name}");
                fs::read_to_string(&path).doing(|| format!("reading {path}"))
            };
            // There is no snmp6 where the kernel has no IPv6.
            let snmp6 = read("snmp6").unwrap_or_default();
            Ok(Self::parse(&[&read("snmp")?, &read("netstat")?], &snmp6, &read("dev")?))
        })
    }

    /// By how much each counter moved since `earlier`; those that did not are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        let moved = self.0.iter().map(|(name, &now)| {
            let before = earlier.0.get(name).copied().unwrap_or(0);
            (name.clone(), now.saturating_sub(before))
        });
        moved.filter(|(_, by)| *by > 0).collect()
    }

    fn parse(tables: &[&str], snmp6: &str, dev: &str) -> Self {
        let all = tables.iter().flat_map(|table| pairs_of_lines(table)).chain(names_and_numbers(snmp6));
        let telling = all.filter(|(name, _)| TELLING.contains(&name.as_str()));
        Self(telling.chain(drops(dev)).collect())
    }
}

/// The counters of a table whose lines come in pairs: a group's names, then its numbers.
fn pairs_of_lines(table: &str) -> impl Iterator<Item = (String, u64)> + '_ {
    let lines: Vec<&str> = table.lines().collect();
    let pairs: Vec<(&str, &str)> = lines.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter().flat_map(|(names, numbers)| {
        let (group, names) = names.split_once(':').unwrap_or_default();
        let (_, numbers) = numbers.split_once(':').unwrap_or_default();
        let counters = names.split_whitespace().zip(numbers.split_whitespace());
        // TCP's MaxConn is -1: not a counter.
        counters.filter_map(move |(name, number)| Some((format!("{group}{name}"), number.parse().ok()?)))
    })
}

/// The counters of a table with one on each line: its name, its number.
fn names_and_numbers(table: &str) -> impl Iterator<Item = (String, u64)> + '_ {
    table.lines().filter_map(|line| {
        let (name, number) = line.split_once(char::is_whitespace)?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    })
}

/// What each interface of `/proc/net/dev` dropped on either way.
fn drops(dev: &str) -> impl Iterator<Item = (String, u64)> + '_ {
    // Two lines of headings: eight columns for what was received, eight for what was sent; the fourth of either
    // counts drops.
    dev.lines().skip(2).filter_map(|line| line.split_once(':')).flat_map(|(interface, numbers)| {
        let interface = interface.trim();
        let mut numbers = numbers.split_whitespace();
        let (received, sent) = (numbers.nth(3), numbers.nth(7));
        let counters = [("RxDropped", received), ("TxDropped", sent)];
        counters
            .into_iter()
            .filter_map(move |(name, number)| Some((format!("{interface}/{name}"), number?.parse().ok()?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos InDiscards InDelivers OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs FragFails FragCreates OutTransmits
Ip: 2 64 11859 0 0 0 0 7 11859 7724 0 0 0 0 0 0 3 0 6 7724
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors
Tcp: 1 200 120000 -1 22 2 0 3 0 11813 7685 42 0 16 0
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 45 0 9 46 9 0 0 0 0
";
    const NETSTAT: &str = "\
TcpExt: SyncookiesSent TCPTimeouts TCPOFOQueue
TcpExt: 0 5 64
IpExt: InNoRoutes InTruncatedPkts
IpExt: 0 0
";
    const SNMP6: &str = "\
Ip6InReceives                   \t1
Udp6RcvbufErrors                \t8
Icmp6InPktTooBigs               \t2
";
    const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  300823   11859    0    0    0     0          0         0   300823   11859    0    0    0     0       0          0
wg-left: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
";

    fn counters() -> KernelCounters {
        KernelCounters::parse(&[SNMP, NETSTAT], SNMP6, DEV)
    }

    #[test]
    fn counters_have_the_names_of_nstat() {
        let KernelCounters(counters) = counters();
        let number = |name| counters.get(name).copied();
        assert_eq!((number("UdpRcvbufErrors"), number("UdpInErrors")), (Some(9), Some(9)));
        assert_eq!((number("TcpRetransSegs"), number("TcpExtTCPTimeouts")), (Some(42), Some(5)));
        assert_eq!((number("IpFragCreates"), number("IpInDiscards")), (Some(6), Some(7)));
        assert_eq!((number("Udp6RcvbufErrors"), number("Icmp6InPktTooBigs")), (Some(8), Some(2)));
        assert_eq!((number("IpForwarding"), number("TcpMaxConn")), (None, None), "settings are no counters");
    }

    #[test]
    fn drops_of_interfaces_are_their_fourth_columns() {
        let KernelCounters(counters) = counters();
        assert_eq!(counters.get("wg-left/RxDropped"), Some(&4));
        assert_eq!(counters.get("wg-left/TxDropped"), Some(&12));
    }

    #[test]
    fn only_what_moved_is_told() {
        let earlier = counters();
        let mut later = earlier.clone();
        later.0.insert("TcpRetransSegs".into(), 50);
        later.0.insert("wg-new/TxDropped".into(), 3);
        let moved = later.since(&earlier);
        assert_eq!(moved, BTreeMap::from([("TcpRetransSegs".into(), 8), ("wg-new/TxDropped".into(), 3)]));
        assert!(earlier.since(&earlier).is_empty());
        assert!(earlier.since(&later).is_empty(), "an interface that is gone, or a namespace made anew");
    }

    #[test]
    fn tables_of_another_kind_are_empty() {
        for table in ["", "Ip:", "Ip: A B\nIp: 1\nrest", "\u{0}\n\n\n\n", "a b c\n:\n:: 1\n"] {
            assert!(KernelCounters::parse(&[table], table, table).0.is_empty(), "{table:?}");
        }
    }

    #[test]
    fn every_name_is_listed_once() {
        let mut names = TELLING.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TELLING.len());
    }
}
