//! What the kernel says of the network: sysctls, counters, the firewall, sockets, cards.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linerate_doctor::evidence::{Link, Way};
use linerate_doctor::firewall::Ruleset;
use linerate_host::linux::Host;
use linerate_host::state::{ForeignChain, HostState};
use linerate_netio::link;
use linerate_probe::sockets;

/// The sysctls that rules ask for, of the host and of an interface.
const OF_HOST: [&str; 5] = [
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.conf.all.src_valid_mark",
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.conf.all.disable_ipv6",
];
const OF_LINK: [&str; 5] = [
    "net.ipv4.conf.LINK.rp_filter",
    "net.ipv4.conf.LINK.forwarding",
    "net.ipv6.conf.LINK.forwarding",
    "net.ipv6.conf.LINK.force_forwarding",
    "net.ipv6.conf.LINK.disable_ipv6",
];

/// The sysctls of the host and of these links, by their dotted names.
pub(super) fn sysctls<'a>(links: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let read = |folder: &str| fs::read_to_string(Path::new("/proc/sys").join(folder)).ok();
    let mut values = BTreeMap::new();
    for name in OF_HOST {
        values.extend(read(&name.replace('.', "/")).map(|value| (name.to_owned(), value.trim().to_owned())));
    }
    for link in links {
        for name in OF_LINK {
            // The name of a link may have dots, not slashes.
            let path = name.replace('.', "/").replace("LINK", link);
            values.extend(read(&path).map(|value| (name.replace("LINK", link), value.trim().to_owned())));
        }
    }
    values
}

/// The counters of /proc/net/snmp and netstat, such as `TcpExt.IPReversePathFilter`.
pub(super) fn counters() -> BTreeMap<String, u64> {
    let texts = ["/proc/net/snmp", "/proc/net/netstat"].map(|path| fs::read_to_string(path).unwrap_or_default());
    texts.iter().flat_map(|text| pairs(text)).collect()
}

/// Two lines for each group: names, then values.
fn pairs(text: &str) -> Vec<(String, u64)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut counters = Vec::new();
    for pair in lines.chunks_exact(2) {
        let (Some((group, names)), Some((_, values))) = (pair[0].split_once(':'), pair[1].split_once(':')) else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            counters.extend(value.parse().ok().map(|value| (format!("{group}.{name}"), value)));
        }
    }
    counters
}

/// How many datagrams the sockets of a port have dropped.
pub(super) fn socket_drops(port: u16) -> BTreeMap<String, u64> {
    BTreeMap::from([("drops".to_owned(), sockets::drops(port))])
}

/// The process that has a UDP port, as `NAME (process N)`.
pub(super) fn port_holder(port: u16) -> Option<String> {
    let inode = sockets::udp().into_iter().find(|socket| socket.port == port)?.inode;
    let link = PathBuf::from(format!("socket:[{inode}]"));
    let processes = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let holds = |process: &PathBuf| {
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        descriptors.into_iter().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == link))
    };
    let is_process = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit());
    let process = processes.filter(is_process).find(holds)?;
    let name = fs::read_to_string(process.join("comm")).ok()?;
    Some(format!("{} (process {})", name.trim(), process.file_name()?.to_string_lossy()))
}

/// The firewall, and the base chains of other programs' firewalls.
#[derive(Clone, Default)]
pub(super) struct Firewall {
    /// None without the right to read it.
    pub(super) ruleset: Option<Ruleset>,
    pub(super) foreign: Vec<ForeignChain>,
}

pub(super) fn firewall() -> Firewall {
    let Ok(mut host) = Host::open() else { return Firewall::default() };
    let foreign = host.foreign().map(|foreign| foreign.chains).unwrap_or_default();
    Firewall { ruleset: host.firewall().ok().flatten().map(Ruleset::of), foreign }
}

/// Whether there are tables of the older iptables, of which only those that filter are read.
pub(super) fn has_legacy_rules() -> bool {
    let is_used = |file| fs::read_to_string(file).is_ok_and(|tables| !tables.trim().is_empty());
    ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"].into_iter().any(is_used)
}

/// Whether an interface has IPv6 at all.
pub(super) fn has_ipv6(link: &str) -> bool {
    fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6")).is_ok_and(|value| value.trim() == "0")
}

/// What a program prints, if it succeeds.
pub(super) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    // Without root, these are often not in the path.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    // Comments of others may be anything.
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where the kernel sends packets to an address.
pub(super) fn way(to: IpAddr, mark: u32) -> Way {
    let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    match link::egress(to, any, mark).and_then(link::name_of) {
        Ok(device) => Way::Device(device),
        Err(error) => Way::None(error.to_string()),
    }
}

/// Reads the name servers in /etc/resolv.conf, or the servers that systemd-resolved queries, with the route to each.
pub(super) fn name_servers() -> Vec<(IpAddr, Option<Way>)> {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let server = |line: &str| line.trim().strip_prefix("nameserver")?.trim().parse::<IpAddr>().ok();
    let mut servers: Vec<IpAddr> = text.lines().filter_map(server).collect();
    if servers.contains(&RESOLVED) {
        let [asked, domains] = ["dns", "domain"].map(|what| output("resolvectl", &[what]).unwrap_or_default());
        let asked = servers_of_resolved(&asked, &domains);
        if !asked.is_empty() {
            servers = asked;
        }
    }
    servers.into_iter().map(|server| (server, Some(way(server, 0)))).collect()
}

/// The address on which systemd-resolved listens.
const RESOLVED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 53));

/// Picks the servers that resolve most names, from the output of `resolvectl dns` and `resolvectl domain`: those of
/// links that take all domains (`~.`), or else all. Each line is `Link 2 (eth0): WORD...`, or `Global: WORD...`.
fn servers_of_resolved(servers: &str, domains: &str) -> Vec<IpAddr> {
    let words = |line: &str| {
        let (link, words) = line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, "")))?;
        Some((link.trim().to_owned(), words.split_whitespace().map(str::to_owned).collect::<Vec<_>>()))
    };
    let all_of = domains.lines().filter_map(words).filter(|(_, domains)| domains.iter().any(|domain| domain == "~."));
    let takes_all: Vec<String> = all_of.map(|(link, _)| link).collect();
    let links = servers.lines().filter_map(words).filter(|(link, _)| takes_all.is_empty() || takes_all.contains(link));
    // A server may have a port, an interface and a name: `192.0.2.1:53%eth0#example.org`.
    let address = |word: &String| {
        let word = word.split(['#', '%']).next()?;
        word.parse().ok().or_else(|| Some(word.parse::<std::net::SocketAddr>().ok()?.ip()))
    };
    links.flat_map(|(_, servers)| servers).filter_map(|word| address(&word)).collect()
}

/// The links with what /sys says of their cards.
pub(super) fn links(state: &HostState) -> Vec<Link> {
    state
        .links
        .iter()
        .map(|link| Link {
            name: link.name.clone(),
            mtu: link.mtu,
            up: link.up,
            is_tunnel: link.wireguard || link.tun,
            addresses: link.addresses.clone(),
            receive_queues: receive_queues(&link.name).len(),
            spreads: receive_queues(&link.name).iter().any(|queue| spreads(queue)),
            interrupt_cores: interrupt_cores(&link.name),
        })
        .collect()
}

fn receive_queues(link: &str) -> Vec<PathBuf> {
    let queues = fs::read_dir(format!("/sys/class/net/{link}/queues"));
    let paths = queues.into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rx-"))).collect()
}

fn spreads(queue: &Path) -> bool {
    fs::read_to_string(queue.join("rps_cpus"))
        .is_ok_and(|mask| mask.bytes().any(|byte| matches!(byte, b'1'..=b'9' | b'a'..=b'f')))
}

/// The processors that a card's interrupts go to; none where it has none of its own.
fn interrupt_cores(link: &str) -> Vec<usize> {
    let interrupts = fs::read_dir(format!("/sys/class/net/{link}/device/msi_irqs"));
    let numbers = interrupts.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut cores: Vec<usize> = numbers
        .filter_map(|number| {
            let file = format!("/proc/irq/{}/effective_affinity_list", number.to_string_lossy());
            fs::read_to_string(file).ok()?.trim().parse().ok()
        })
        .collect();
    cores.sort_unstable();
    cores.dedup();
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_of_links_that_take_all_domains_are_asked() {
        let servers = "Global: 9.9.9.9#dns.quad9.net\nLink 2 (eth0): 192.168.1.1 fe80::1%2\nLink 3 (wg0): 10.9.0.1\n";
        let asked = |domains: &str| -> Vec<String> {
            servers_of_resolved(servers, domains).iter().map(IpAddr::to_string).collect()
        };
        assert_eq!(asked("Global:\nLink 2 (eth0): lan\nLink 3 (wg0): ~.\n"), ["10.9.0.1"]);
        assert_eq!(asked("Global:\nLink 2 (eth0): lan\n"), ["9.9.9.9", "192.168.1.1", "fe80::1", "10.9.0.1"]);
        assert_eq!(servers_of_resolved("no colon\n: \n", "").len(), 0);
    }

    #[test]
    fn counters_are_read_by_group_and_name() {
        let text = "Ip: Forwarding InReceives\nIp: 2 77\nUdp: InDatagrams RcvbufErrors\nUdp: 5 -1\n";
        let expected = [("Ip.Forwarding", 2), ("Ip.InReceives", 77), ("Udp.InDatagrams", 5)];
        assert_eq!(pairs(text), expected.map(|(name, value)| (name.to_owned(), value)));
        assert!(pairs("Ip: a\n").is_empty() && pairs("x\ny\n").is_empty());
    }
}
