//! The text of resolv.conf with and without the name servers of tunnels. Pure: files are read and written in [`super`].
//!
//! Each tunnel is one comment line with its whole record. The lines that these records produce follow between two
//! markers, and other lines that must not apply meanwhile are commented out. So tunnels can be added and removed in
//! any order, others may edit the rest in between, and in the end the text is as it was.
//!
//! ```text
//! #linerate tunnel {"interface":"wg0","dns":{"servers":["10.0.0.1"],"search":["corp.example"]},"exclusive":true}
//! #linerate begin: follows from the lines above, and goes with them
//! nameserver 10.0.0.1
//! search corp.example
//! #linerate end
//! #linerate hides nameserver 192.168.1.1
//! options edns0
//! ```

use serde::{Deserialize, Serialize};

use crate::spec::Dns;

/// The text with the name servers of `interface` before all others, replacing those that it had of this interface.
///
/// `exclusive` comments out all other servers and domains: resolvers would query them too, glibc when the first server does
/// not respond, musl at once.
pub fn add(text: &[u8], interface: &str, dns: &Dns, exclusive: bool) -> Vec<u8> {
    let mut conf = ResolvConf::parse(text);
    conf.tunnels.retain(|tunnel| tunnel.interface != interface);
    let tunnel = Tunnel { interface: interface.into(), dns: dns.clone(), exclusive };
    if !dns.servers.is_empty() || tunnel.search().next().is_some() {
        conf.tunnels.insert(0, tunnel);
    }
    conf.render()
}

/// The text without the name servers of `interface`; unchanged if it has none.
pub fn remove(text: &[u8], interface: &str) -> Vec<u8> {
    let mut conf = ResolvConf::parse(text);
    if conf.tunnels.iter().all(|tunnel| tunnel.interface != interface) {
        return text.to_vec();
    }
    conf.tunnels.retain(|tunnel| tunnel.interface != interface);
    conf.render()
}

/// The interfaces whose name servers are in the text, newest first.
pub fn interfaces(text: &[u8]) -> Vec<String> {
    ResolvConf::parse(text).tunnels.into_iter().map(|tunnel| tunnel.interface).collect()
}

const OURS: &[u8] = b"#linerate ";
const TUNNEL: &[u8] = b"#linerate tunnel ";
const BEGIN: &[u8] = b"#linerate begin: follows from the lines above, and goes with them\n";
const END: &[u8] = b"#linerate end\n";
const HIDES: &[u8] = b"#linerate hides ";

struct ResolvConf<'a> {
    tunnels: Vec<Tunnel>,
    /// All other lines with their line ends, none commented out.
    others: Vec<&'a [u8]>,
}

#[derive(Serialize, Deserialize)]
struct Tunnel {
    interface: String,
    dns: Dns,
    exclusive: bool,
}

impl<'a> ResolvConf<'a> {
    fn parse(text: &'a [u8]) -> Self {
        let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
        let tunnels: Vec<Tunnel> = lines.iter().filter_map(|line| Tunnel::parse(line)).collect();
        if tunnels.is_empty() {
            // Without a record, nothing here is ours.
            return Self { tunnels, others: lines };
        }
        let mut others = Vec::new();
        let mut rest = &lines[..];
        while let Some((&line, after)) = rest.split_first() {
            rest = after;
            if is(line, BEGIN) {
                // The end marker is missing: somebody edited the block, so the rest is theirs.
                let end = rest.iter().position(|line| is(line, END));
                rest = end.map_or(rest, |end| &rest[end + 1..]);
            } else if Tunnel::parse(line).is_none() {
                // We never comment out a record; one that is must not take effect when the last other one is removed.
                let hidden = line.strip_prefix(HIDES).filter(|line| Tunnel::parse(line).is_none());
                others.push(hidden.unwrap_or(line));
            }
        }
        Self { tunnels, others }
    }

    fn render(&self) -> Vec<u8> {
        if self.tunnels.is_empty() {
            return self.others.concat();
        }
        let mut text: Vec<u8> = self.tunnels.iter().flat_map(Tunnel::render).collect();
        let (active, exclusive) = self.active();
        let search = self.search(active, exclusive);
        text.extend(BEGIN);
        for server in active.iter().flat_map(|tunnel| &tunnel.dns.servers) {
            text.extend(format!("nameserver {server}\n").bytes());
        }
        if !search.is_empty() {
            text.extend([b"search ", search.join(&b' ').as_slice(), b"\n"].concat());
        }
        text.extend(END);
        for line in &self.others {
            let hidden = match keyword(line) {
                b"nameserver" => exclusive,
                // Resolvers use the last of these lines.
                b"search" | b"domain" => exclusive || !search.is_empty(),
                _ => line.starts_with(OURS),
            };
            text.extend(if hidden { HIDES } else { b"" });
            text.extend(*line);
        }
        text
    }

    /// The tunnels whose servers are queried, up to the first exclusive one, and whether no other server is.
    fn active(&self) -> (&[Tunnel], bool) {
        // Without a server it cannot be exclusive.
        match self.tunnels.iter().position(|tunnel| tunnel.exclusive && !tunnel.dns.servers.is_empty()) {
            Some(last) => (&self.tunnels[..=last], true),
            None => (&self.tunnels, false),
        }
    }

    /// The search domains of `tunnels` and, if there are any and none is `exclusive`, the existing ones.
    fn search<'s>(&'s self, tunnels: &'s [Tunnel], exclusive: bool) -> Vec<&'s [u8]> {
        let ours: Vec<&[u8]> = tunnels.iter().flat_map(Tunnel::search).map(str::as_bytes).collect();
        let theirs = self.others.iter().rfind(|line| matches!(keyword(line), b"search" | b"domain"));
        let theirs = theirs.filter(|_| !exclusive && !ours.is_empty()).into_iter().flat_map(|line| words(line).skip(1));
        let mut search: Vec<&[u8]> = Vec::new();
        for domain in ours.iter().copied().chain(theirs) {
            if !search.contains(&domain) {
                search.push(domain);
            }
        }
        search
    }
}

impl Tunnel {
    fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line.strip_prefix(TUNNEL)?).ok()
    }

    fn render(&self) -> Vec<u8> {
        let record = serde_json::to_vec(self).expect("strings, addresses and a flag are JSON");
        [TUNNEL, record.as_slice(), b"\n"].concat()
    }

    /// Its search domains, without routing-only domains and without anything that could start a new line.
    fn search(&self) -> impl Iterator<Item = &str> {
        let is_plain = |domain: &&str| {
            !domain.is_empty()
                && !domain.starts_with('~')
                && !domain.contains(|letter: char| letter.is_whitespace() || letter.is_control())
        };
        self.dns.search.iter().map(String::as_str).filter(is_plain)
    }
}

/// Whether a line is that marker, with any line end.
fn is(line: &[u8], marker: &[u8]) -> bool {
    line.trim_ascii_end() == marker.trim_ascii_end()
}

/// The first word; some resolvers allow blanks before it.
fn keyword(line: &[u8]) -> &[u8] {
    words(line).next().unwrap_or_default()
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LAN: &[u8] = b"# by hand\nnameserver 192.168.1.1\nsearch lan\noptions edns0\n";

    #[test]
    fn an_exclusive_tunnel_hides_the_servers_and_domains_of_others() {
        let text = add(LAN, "wg0", &dns(&["10.0.0.1"], &["corp.example"]), true);
        assert_eq!(seen(&text), "nameserver 10.0.0.1\nsearch corp.example\noptions edns0\n");
    }

    #[test]
    fn a_tunnel_that_is_not_exclusive_comes_first_and_adds_its_domains() {
        let text = add(LAN, "wg0", &dns(&["10.0.0.1"], &["corp.example", "lan"]), false);
        assert_eq!(
            seen(&text),
            "nameserver 10.0.0.1\nsearch corp.example lan\nnameserver 192.168.1.1\noptions edns0\n"
        );
    }

    #[test]
    fn domains_without_servers_leave_the_servers_alone() {
        let text = add(LAN, "wg0", &dns(&[], &["corp.example"]), true);
        assert_eq!(seen(&text), "search corp.example lan\nnameserver 192.168.1.1\noptions edns0\n");
    }

    #[test]
    fn domains_that_only_route_questions_are_left_out() {
        assert_eq!(add(LAN, "wg0", &dns(&[], &["~corp.example"]), false), LAN);
        let text = add(LAN, "wg0", &dns(&["10.0.0.1"], &["~corp.example"]), false);
        assert_eq!(seen(&text), "nameserver 10.0.0.1\nnameserver 192.168.1.1\nsearch lan\noptions edns0\n");
    }

    #[test]
    fn an_exclusive_tunnel_hides_the_one_before_it_which_is_back_when_it_goes() {
        let first = add(LAN, "wg0", &dns(&["10.0.0.1"], &[]), true);
        let second = add(&first, "wg1", &dns(&["10.1.0.1"], &[]), true);
        assert_eq!(seen(&second), "nameserver 10.1.0.1\noptions edns0\n");
        assert_eq!(remove(&second, "wg1"), first);
        assert_eq!(interfaces(&second), ["wg1", "wg0"]);
    }

    #[test]
    fn edits_by_others_in_between_survive() {
        let text = add(LAN, "wg0", &dns(&["10.0.0.1"], &[]), true);
        let edited = [b"# in front\n", text.as_slice(), b"nameserver 9.9.9.9\n"].concat();
        assert_eq!(remove(&edited, "wg0"), [b"# in front\n", LAN, b"nameserver 9.9.9.9\n"].concat());
    }

    #[test]
    fn a_file_written_anew_by_others_stays_theirs() {
        assert_eq!(remove(b"nameserver 9.9.9.9\n", "wg0"), b"nameserver 9.9.9.9\n");
    }

    #[test]
    fn a_missing_end_marker_keeps_all_other_lines() {
        let text = add(b"options edns0\n", "wg0", &dns(&["10.0.0.1"], &[]), false);
        let cut: Vec<u8> =
            text.split_inclusive(|&byte| byte == b'\n').filter(|line| !is(line, END)).flatten().copied().collect();
        assert_eq!(remove(&cut, "wg0"), b"nameserver 10.0.0.1\noptions edns0\n");
    }

    #[test]
    fn a_commented_out_record_does_not_become_a_tunnel() {
        let tunnel = add(b"", "wg0", &dns(&["10.0.0.1"], &[]), true);
        let tunnel = tunnel.split_inclusive(|&byte| byte == b'\n').next().unwrap();
        let text = [add(b"", "wg1", &dns(&["10.1.0.1"], &[]), true).as_slice(), HIDES, tunnel].concat();
        assert_eq!(interfaces(&remove(&text, "wg1")), [""; 0]);
    }

    #[test]
    fn a_search_domain_cannot_inject_a_line() {
        let text = add(b"", "wg0", &dns(&["10.0.0.1"], &["a\nnameserver 6.6.6.6", "b"]), false);
        assert_eq!(seen(&text), "nameserver 10.0.0.1\nsearch b\n");
    }

    proptest! {
        #[test]
        fn removing_reverts_adding(text in texts(), dns in dnses(), exclusive: bool) {
            let there = add(&text, "wg0", &dns, exclusive);
            prop_assert_eq!(remove(&there, "wg0"), written_anew(&remove(&text, "wg0")));
            if interfaces(&text).is_empty() {
                prop_assert_eq!(remove(&there, "wg0"), text);
            }
        }

        #[test]
        fn tunnels_are_removed_in_any_order(text in texts(), one in dnses(), two in dnses(), first: bool, second: bool) {
            let text = written_anew(&remove(&remove(&text, "wg0"), "wg1"));
            let only_one = add(&text, "wg0", &one, first);
            let both = add(&only_one, "wg1", &two, second);
            prop_assert_eq!(remove(&both, "wg0"), add(&text, "wg1", &two, second));
            prop_assert_eq!(remove(&both, "wg1"), only_one);
        }

        #[test]
        fn setting_twice_is_setting_once(text in texts(), dns in dnses(), exclusive: bool) {
            let once = add(&text, "wg0", &dns, exclusive);
            prop_assert_eq!(add(&once, "wg0", &dns, exclusive), once);
        }

        #[test]
        fn the_first_servers_are_ours(text in texts(), dns in dnses(), exclusive: bool) {
            let there = add(&text, "wg0", &dns, exclusive);
            let seen = seen(&there);
            let servers = seen.lines().filter_map(|line| line.strip_prefix("nameserver "));
            let ours: Vec<String> = dns.servers.iter().map(ToString::to_string).collect();
            prop_assert_eq!(servers.take(ours.len()).collect::<Vec<_>>(), ours);
        }
    }

    fn dns(servers: &[&str], search: &[&str]) -> Dns {
        Dns {
            servers: servers.iter().map(|server| server.parse().unwrap()).collect(),
            search: search.iter().map(|domain| (*domain).into()).collect(),
        }
    }

    /// What a resolver sees: no comments.
    fn seen(text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text);
        text.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect()
    }

    /// Others may have moved what is ours.
    fn written_anew(text: &[u8]) -> Vec<u8> {
        ResolvConf::parse(text).render()
    }

    fn dnses() -> impl Strategy<Value = Dns> {
        let domains = proptest::collection::vec("~?[a-z\n ]{0,4}", 0..3);
        (proptest::collection::vec(any::<std::net::IpAddr>(), 0..4), domains)
            .prop_map(|(servers, search)| Dns { servers: servers.into_iter().map(Into::into).collect(), search })
    }

    /// Bytes of all kinds, and lines that mean something here, whole and in pieces.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..8),
            Just(b"\n".to_vec()),
            Just(b"nameserver 192.168.1.1\n".to_vec()),
            Just(b" nameserver\t192.168.1.1".to_vec()),
            Just(b"search lan\n".to_vec()),
            Just(b"domain lan\r\n".to_vec()),
            Just(BEGIN.to_vec()),
            Just(END.to_vec()),
            Just([HIDES, b"nameserver 192.168.1.1\n"].concat()),
            Just([HIDES, HIDES, b"\n"].concat()),
            Just(
                [HIDES, Tunnel { interface: "wg0".into(), dns: dns(&[], &[]), exclusive: true }.render().as_slice()]
                    .concat()
            ),
            Just(TUNNEL.to_vec()),
            Just(add(b"", "wg0", &dns(&["10.0.0.1"], &["a"]), true)),
            Just(add(b"", "wg9", &dns(&["10.0.0.9"], &[]), false)),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }
}
