//! Recognises commands that a gateway of linerate replaces: NAT, forwarding, opening the port, segment sizes.
//!
//! A command that is not understood word for word is kept unchanged. A kept rule may depend on others, as a REJECT does on
//! the ACCEPT before it; then none of them is replaced ([`Sorted::is_entangled`]). No command is run or expanded.

use ipnet::IpNet;

use super::text;

/// A rule that settings of ours replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Source addresses of the tunnel become those of the host.
    Masquerade {
        /// In IPv6.
        ipv6: bool,
        /// On packets that leave through this interface only.
        out: Option<String>,
    },
    /// Packets of the tunnel may be forwarded.
    Forward(Opens),
    /// Packets to the tunnel's port, or from the tunnel, may reach the host.
    OpenPort,
    /// The kernel forwards at all.
    Forwarding,
    /// TCP segments fit into the tunnel.
    SegmentSize,
}

/// The packets out of the tunnel that a rule accepts; none if the rule is for answers or for packets into the tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opens {
    /// Packets that leave by this interface.
    pub out: Option<String>,
    /// Packets that leave by any interface.
    pub everywhere: bool,
    /// Packets from one client to another.
    pub between: bool,
}

/// What the rules are about.
pub struct Scene<'a> {
    /// The tunnel's interface.
    pub interface: &'a str,
    /// Its networks, and the addresses of clients outside of them.
    pub networks: &'a [IpNet],
    pub port: Option<u16>,
    /// Rules that open the port stay, because the host drops what no rule accepts.
    pub keep_open_port: bool,
    /// The command runs when the tunnel goes down, and undoes others.
    pub undoes: bool,
}

/// A command, sorted.
#[derive(Debug, PartialEq, Eq)]
pub struct Sorted {
    /// What is replaced.
    pub replaced: Vec<Rule>,
    /// What is left of the command.
    pub kept: Option<String>,
    /// The kept commands and the replaced rules may decide together which packets pass.
    pub is_entangled: bool,
}

/// Sorts the parts of a command between `;` and `&&`. Parts joined by `||` count as one: the second does the same as the
/// first in another way.
pub fn sort(command: &str, scene: &Scene<'_>) -> Sorted {
    let Some(parts) = parts(command) else {
        let is_entangled = ["iptables", "ip6tables", "nft", "ufw", "firewall-cmd", ".sh", "bash", "./"]
            .iter()
            .any(|word| command.contains(word));
        return Sorted { replaced: Vec::new(), kept: Some(command.trim().to_owned()), is_entangled };
    };
    let (mut replaced, mut kept, mut is_entangled) = (Vec::new(), String::new(), false);
    for ways in parts.chunk_by(|_, next| next.joined_by == OTHERWISE) {
        let or_nothing = |part: &&Part<'_>| part.joined_by != OTHERWISE || part.words != ["true"];
        let rules = ways
            .iter()
            .filter(or_nothing)
            .map(|part| rule(&part.words, scene).filter(|rule| *rule != Rule::OpenPort || !scene.keep_open_port));
        if let Some(rules) = rules.collect::<Option<Vec<Rule>>>() {
            replaced.extend(rules);
            continue;
        }
        for part in ways {
            is_entangled |= is_entangling(&part.words, scene);
            if !kept.is_empty() {
                kept.push_str(part.joined_by);
            }
            kept.push_str(part.text);
        }
    }
    Sorted { replaced, kept: Some(kept).filter(|kept| !kept.is_empty()), is_entangled }
}

/// A key that a command sets from a file (wg-quick(8) shows such a `PostUp`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// For a preshared key, its peer's public key; `None` for the tunnel's private key.
    pub peer: Option<String>,
    pub path: String,
}

/// Returns the key files of a command, and the rest of the command without them.
pub fn key_files(command: &str, interface: &str) -> (Vec<KeyFile>, Option<String>) {
    let mut found = Vec::new();
    let mut kept = String::new();
    let Some(parts) = parts(command) else { return (found, Some(command.to_owned())) };
    for part in parts {
        let words: Vec<&str> = part.words.iter().map(String::as_str).collect();
        let taken = match &words[..] {
            [program, "set", name, rest @ ..]
                if program.rsplit('/').next() == Some("wg") && [interface, "%i"].contains(name) =>
            {
                without_key_files(rest, interface, &mut found)
            }
            _ => None,
        };
        let text = match taken {
            Some(rest) if rest.is_empty() => continue,
            Some(rest) => format!("{} {}", words[..3].join(" "), rest.join(" ")),
            None => part.text.to_owned(),
        };
        if !kept.is_empty() {
            kept.push_str(part.joined_by);
        }
        kept.push_str(&text);
    }
    (found, Some(kept).filter(|kept| !kept.is_empty()))
}

/// Removes from the arguments of `wg set NAME` those that set keys from files; `None` if there are none.
fn without_key_files<'a>(arguments: &[&'a str], interface: &str, found: &mut Vec<KeyFile>) -> Option<Vec<&'a str>> {
    let (mut rest, mut peer, before) = (Vec::new(), None, found.len());
    let mut words = arguments.iter().copied().peekable();
    while let Some(word) = words.next() {
        match (word, words.peek()) {
            ("private-key" | "preshared-key", Some(path)) => {
                let peer = peer.filter(|_| word == "preshared-key").map(str::to_owned);
                found.push(KeyFile { peer, path: path.replace("%i", interface) });
                words.next();
            }
            ("peer", Some(key)) => {
                peer = Some(*key);
                rest.extend([word, *key]);
                words.next();
            }
            _ => rest.push(word),
        }
    }
    // Nothing is left to set for the last peer.
    if let [.., "peer", _] = rest[..] {
        rest.truncate(rest.len() - 2);
    }
    (found.len() > before).then_some(rest)
}

/// Whether a line of `iptables-save -t nat` (`-A POSTROUTING …`) translates addresses of the tunnel's networks: by
/// MASQUERADE, or by SNAT to a certain address.
pub fn saved_translation(line: &str, ipv6: bool, scene: &Scene<'_>) -> bool {
    let Some(parts) = parts(line) else { return false };
    let [part] = &parts[..] else { return false };
    let mut words: Vec<&str> = ["-t", "nat"].into_iter().chain(part.words.iter().map(String::as_str)).collect();
    if let Some(at) = words.iter().position(|word| ["--to", "--to-source"].contains(word)) {
        words.drain(at..words.len().min(at + 2));
        words.iter_mut().filter(|word| **word == "SNAT").for_each(|word| *word = "MASQUERADE");
    }
    matches!(firewall_rule(words, ipv6, scene), Some(Rule::Masquerade { .. }))
}

/// A simple command.
struct Part<'a> {
    text: &'a str,
    words: Vec<String>,
    /// What stands between it and the one before.
    joined_by: &'static str,
}

/// Joins a command that runs only if the one before has failed.
const OTHERWISE: &str = " || ";
/// Redirections of a command's output, which do not change its effect.
const SILENCERS: [&str; 7] =
    ["2>/dev/null", "2> /dev/null", "2>&1", "&>/dev/null", "&> /dev/null", ">/dev/null", "> /dev/null"];

/// Splits a line into simple commands; `None` if a shell would expand anything in it, or if it has operators other than
/// `;`, `&&` and `||`.
fn parts(line: &str) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    let mut joined_by = "";
    let mut start = 0;
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.char_indices().peekable();
    let mut end = |words: &mut Vec<String>, joined_by: &'static str, start: usize, at: usize| {
        let words = std::mem::take(words);
        if !words.is_empty() {
            parts.push(Part { text: line[start..at].trim(), words, joined_by });
        }
    };
    while let Some((at, c)) = chars.next() {
        let silencer = SILENCERS.iter().find(|silencer| line[at..].starts_with(**silencer));
        if let Some(silencer) = silencer.filter(|_| quote.is_none() && word.is_none()) {
            while chars.next_if(|(next, _)| *next < at + silencer.len()).is_some() {}
            continue;
        }
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some('"'), '$' | '`' | '\\') => return None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, ';' | '&' | '|') => {
                words.extend(word.take());
                let doubled = chars.peek().is_some_and(|(_, next)| *next == c);
                if doubled != (c != ';') {
                    return None;
                }
                end(&mut words, joined_by, start, at);
                if doubled {
                    chars.next();
                }
                joined_by = match c {
                    '&' => " && ",
                    '|' => OTHERWISE,
                    _ => "; ",
                };
                start = at + if doubled { 2 } else { 1 };
            }
            (None, '>') => {
                words.extend(word.take());
                words.push(">".to_owned());
            }
            (None, '$' | '`' | '\\' | '<' | '(' | ')' | '{' | '}' | '#' | '*' | '?' | '[' | '~' | '\n' | '\r') => {
                return None;
            }
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return None;
    }
    words.extend(word);
    end(&mut words, joined_by, start, line.len());
    Some(parts)
}

fn rule(words: &[String], scene: &Scene<'_>) -> Option<Rule> {
    let mut words = words.iter().map(String::as_str);
    let program = words.next()?;
    let program = program.rsplit('/').next()?;
    match program {
        "iptables" | "iptables-nft" | "iptables-legacy" => firewall_rule(words, false, scene),
        "ip6tables" | "ip6tables-nft" | "ip6tables-legacy" => firewall_rule(words, true, scene),
        "sysctl" => {
            let all: Vec<&str> = words.filter(|word| !matches!(*word, "-w" | "-q" | "-e" | "-qw" | "-wq")).collect();
            let forwards = |word: &&str| {
                let (name, value) = word.split_once('=').unwrap_or((word, ""));
                is_forwarding(&name.replace('/', ".")) && (value == "1" || (scene.undoes && value == "0"))
            };
            (!all.is_empty() && all.iter().all(forwards)).then_some(Rule::Forwarding)
        }
        "echo" => {
            let all: Vec<&str> = words.collect();
            let [value, ">", path] = all[..] else { return None };
            let name = path.strip_prefix("/proc/sys/")?.replace('/', ".");
            let switches = value == "1" || (scene.undoes && value == "0");
            (switches && is_forwarding(&name)).then_some(Rule::Forwarding)
        }
        "firewall-cmd" => {
            let mut all = words.filter(|word| !matches!(*word, "-q" | "--quiet"));
            let word = all.next()?;
            let rich = ["--add-rich-rule=", "--remove-rich-rule="].iter().find_map(|start| word.strip_prefix(start))?;
            if all.next().is_some() {
                return None;
            }
            let words: Vec<&str> = rich.split_whitespace().collect();
            let ["rule", family, "source", source, "masquerade"] = words[..] else { return None };
            let source: IpNet = source.strip_prefix("address=")?.trim_matches('"').parse().ok()?;
            let ipv6 = family.strip_prefix("family=")?.trim_matches('"') == "ipv6";
            scene.has(&source).then_some(Rule::Masquerade { ipv6, out: None })
        }
        _ => None,
    }
}

fn is_forwarding(name: &str) -> bool {
    ["net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding", "net.ipv6.conf.all.forwarding"].contains(&name)
}

/// Whether a kept command may affect the same packets as the replaced rules.
fn is_entangling(words: &[String], scene: &Scene<'_>) -> bool {
    let mut words = words.iter().map(String::as_str);
    let path = words.next().unwrap_or_default();
    let program = path.rsplit('/').next().unwrap_or_default();
    match program {
        "iptables" | "iptables-nft" | "iptables-legacy" | "ip6tables" | "ip6tables-nft" | "ip6tables-legacy" => {
            is_entangling_rule(words, scene)
        }
        // Zones are chains of firewalld's own; direct rules are in those of iptables.
        "firewall-cmd" => words.any(|word| word == "--direct"),
        "sysctl" | "echo" | "ip" | "wg" | "systemctl" | "resolvectl" | "resolvconf" | "logger" | "true" | "sleep" => {
            false
        }
        "nft" | "ufw" | "sh" | "bash" | "dash" | "source" | "." | "eval" | "exec" | "python3" | "perl" => true,
        _ => {
            let of_system =
                ["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/"].iter().any(|folder| path.starts_with(folder));
            program.contains("tables") || program.contains('.') || (path.contains('/') && !of_system)
        }
    }
}

/// Whether a kept iptables rule may affect the same packets: every rule except those that only accept further packets or
/// match other packets.
fn is_entangling_rule<'a>(words: impl IntoIterator<Item = &'a str>, scene: &Scene<'_>) -> bool {
    let (mut table, mut chain, mut target) = ("filter", "", "");
    let (mut input, mut output, mut source, mut destination) = (None, None, None, None);
    let (mut negated, mut is_negated) = (false, false);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default();
        match word {
            "-t" | "--table" => table = value(),
            "-A" | "--append" | "-D" | "--delete" | "-I" | "--insert" => chain = value(),
            "-j" | "--jump" => target = value(),
            "-i" | "--in-interface" => input = Some(value()),
            "-o" | "--out-interface" => output = Some(value()),
            "-s" | "--source" => source = Some(value()),
            "-d" | "--destination" => destination = Some(value()),
            _ => {}
        }
        // The one after `!` says the reverse.
        is_negated |= negated && !matches!(word, "-p" | "--protocol");
        negated = word == "!";
    }
    let is_tunnel = |name: Option<&str>| name.is_some_and(|name| scene.is_tunnel(name));
    let touches =
        |text: Option<&str>| text.is_some_and(|text| text::net(text, "").map_or(true, |net| scene.touches(&net)));
    let is_others = |name: Option<&str>| name.is_some_and(|name| !scene.is_tunnel(name));
    match (table, chain, target) {
        ("nat", "PREROUTING" | "OUTPUT", _) | ("mangle" | "raw" | "security", ..) => false,
        ("nat", "POSTROUTING", "MASQUERADE") => {
            let into_tunnel = is_tunnel(output);
            let of_others = source.is_some() && !touches(source);
            is_negated || !(into_tunnel || of_others)
        }
        ("filter", "INPUT", "ACCEPT") => is_tunnel(input) || touches(source),
        ("filter", "FORWARD" | DOCKER_USER_CHAIN, "ACCEPT") => {
            let into_tunnel = is_tunnel(output) || touches(destination);
            is_negated || is_tunnel(input) || touches(source) || !(into_tunnel || is_others(input))
        }
        _ => true,
    }
}

impl Scene<'_> {
    /// Whether a prefix has all of the tunnel's networks of its family, of which there is one.
    fn has(&self, prefix: &IpNet) -> bool {
        let is_same = |net: &&IpNet| net.addr().is_ipv4() == prefix.addr().is_ipv4();
        let mut networks = self.networks.iter().filter(is_same).peekable();
        networks.peek().is_some() && networks.all(|net| prefix.trunc().contains(&net.trunc()))
    }

    /// Whether a prefix is the only network of its family.
    fn is(&self, prefix: &IpNet) -> bool {
        self.has(prefix) && self.networks.iter().any(|net| net.trunc() == prefix.trunc())
    }

    /// Whether a prefix has addresses of the tunnel's networks.
    fn touches(&self, prefix: &IpNet) -> bool {
        self.networks.iter().any(|net| net.contains(&prefix.trunc()) || prefix.trunc().contains(&net.trunc()))
    }

    /// Whether the name of an interface in a rule means the tunnel's; `wg+` is any that begins with wg.
    fn is_tunnel(&self, name: &str) -> bool {
        match name.strip_suffix('+') {
            Some(start) => !start.is_empty() && self.interface.starts_with(start),
            None => [self.interface, "%i"].contains(&name),
        }
    }
}

/// Docker's chain for rules of users; it runs before Docker's own rules for forwarded packets.
const DOCKER_USER_CHAIN: &str = "DOCKER-USER";

/// What a rule of iptables matches; each of these at most once.
#[derive(Default)]
struct Matches<'a> {
    table: Option<&'a str>,
    chain: Option<&'a str>,
    target: Option<&'a str>,
    input: Option<&'a str>,
    output: Option<&'a str>,
    source: Option<&'a str>,
    destination: Option<&'a str>,
    not_destination: bool,
    protocol: Option<&'a str>,
    port: Option<&'a str>,
    state: Option<&'a str>,
    segment_size: bool,
}

/// Reads the arguments of iptables; anything that is not known here, or twice, makes it a rule to keep.
fn firewall_rule<'a>(words: impl IntoIterator<Item = &'a str>, ipv6: bool, scene: &Scene<'_>) -> Option<Rule> {
    let mut words = words.into_iter().peekable();
    let mut found = Matches::default();
    let mut negated = false;
    let set = |place: &mut Option<&'a str>, value: Option<&'a str>| {
        let fresh = place.is_none();
        *place = value;
        (fresh && value.is_some()).then_some(())
    };
    while let Some(word) = words.next() {
        if negated && !matches!(word, "-d" | "--destination") {
            return None;
        }
        match word {
            "!" => {
                negated = true;
                continue;
            }
            "-w" | "--wait" => {
                words.next_if(|next| next.bytes().all(|byte| byte.is_ascii_digit()));
            }
            "-t" | "--table" => set(&mut found.table, words.next())?,
            "-A" | "--append" | "-D" | "--delete" | "-I" | "--insert" => {
                set(&mut found.chain, words.next())?;
                words.next_if(|next| next.bytes().all(|byte| byte.is_ascii_digit()));
            }
            "-j" | "--jump" => set(&mut found.target, words.next())?,
            "-i" | "--in-interface" => set(&mut found.input, words.next())?,
            "-o" | "--out-interface" => set(&mut found.output, words.next())?,
            "-s" | "--source" => set(&mut found.source, words.next())?,
            "-d" | "--destination" => {
                set(&mut found.destination, words.next())?;
                found.not_destination = std::mem::take(&mut negated);
            }
            "-p" | "--protocol" => set(&mut found.protocol, words.next())?,
            "--dport" | "--destination-port" => set(&mut found.port, words.next())?,
            "--state" | "--ctstate" => set(&mut found.state, words.next())?,
            "-m" | "--match" => {
                let known = ["udp", "tcp", "state", "conntrack", "comment"];
                known.contains(&words.next()?).then_some(())?;
            }
            "--comment" => drop(words.next()?),
            "--tcp-flags" => {
                (words.next()? == "SYN,RST" && words.next()? == "SYN").then_some(())?;
            }
            "--clamp-mss-to-pmtu" => found.segment_size = true,
            "--set-mss" => {
                words.next()?.parse::<u16>().ok()?;
                found.segment_size = true;
            }
            _ => return None,
        }
    }
    (!negated).then_some(())?;
    found.rule(ipv6, scene)
}

impl Matches<'_> {
    fn rule(&self, ipv6: bool, scene: &Scene<'_>) -> Option<Rule> {
        let is_tunnel = |name: Option<&str>| name.is_some_and(|name| scene.is_tunnel(name));
        let parsed = |text: &str| text::net(text, "").ok();
        let is_about = |text: Option<&str>| text.is_none_or(|text| parsed(text).is_some_and(|net| scene.has(&net)));
        let is_pool = |text: Option<&str>| text.and_then(parsed).is_some_and(|net| scene.is(&net));
        let unlimited = self.protocol.is_none() && self.port.is_none() && !self.segment_size;
        match (self.table.unwrap_or("filter"), self.chain?, self.target?) {
            ("nat", "POSTROUTING", "MASQUERADE") => {
                let to_anywhere = self.destination.is_none() || (self.not_destination && is_pool(self.destination));
                let outwards = !is_tunnel(self.output) && self.input.is_none();
                let ours = self.state.is_none() && unlimited && to_anywhere && outwards && is_about(self.source);
                // Without a source and an interface it would masquerade everything that the host forwards.
                let out = self.output.map(str::to_owned).filter(|name| !name.ends_with('+'));
                (ours && (self.source.is_some() || self.output.is_some())).then_some(Rule::Masquerade { ipv6, out })
            }
            ("filter", "FORWARD" | DOCKER_USER_CHAIN, "ACCEPT") => {
                let replies = |state: &str| {
                    let mut states: Vec<&str> = state.split(',').collect();
                    states.sort_unstable();
                    states == ["ESTABLISHED", "RELATED"]
                };
                let of_tunnel = is_tunnel(self.input) || is_tunnel(self.output);
                let of_networks = [self.source, self.destination].iter().flatten().any(|net| is_about(Some(net)));
                let only_replies = self.state.is_some_and(replies);
                let known_state = self.state.is_none() || only_replies;
                let about = is_about(self.source) && is_about(self.destination) && !self.not_destination;
                let is_any = |name: Option<&str>| name.is_none_or(|name| scene.is_tunnel(name));
                let is_out = |name: &&str| !scene.is_tunnel(name) && !name.ends_with('+');
                let comes_out = is_tunnel(self.input) || (self.input.is_none() && self.source.is_some());
                let is_fresh = self.state.is_none();
                let opens = Opens {
                    out: self.output.filter(is_out).filter(|_| is_fresh && comes_out).map(str::to_owned),
                    everywhere: is_fresh
                        && comes_out
                        && !self.output.is_some_and(|name| is_out(&name) || scene.is_tunnel(name)),
                    between: is_fresh && is_any(self.input) && is_any(self.output),
                };
                (unlimited && known_state && about && (of_tunnel || of_networks || only_replies))
                    .then_some(Rule::Forward(opens))
            }
            ("filter", "INPUT", "ACCEPT") => {
                let to_port =
                    self.protocol == Some("udp") && self.port.is_some_and(|port| port.parse().ok() == scene.port);
                let from_tunnel = is_tunnel(self.input) && self.protocol.is_none() && self.port.is_none();
                let plain = self.source.is_none() && self.destination.is_none() && self.state.is_none();
                (plain && (to_port || from_tunnel)).then_some(Rule::OpenPort)
            }
            ("mangle" | "filter", "FORWARD" | "POSTROUTING", "TCPMSS") => {
                let plain = self.protocol == Some("tcp") && self.port.is_none() && self.state.is_none();
                let of_tunnel = is_tunnel(self.input) || is_tunnel(self.output) || self.source.is_some();
                (plain && self.segment_size && of_tunnel && is_about(self.source)).then_some(Rule::SegmentSize)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(command: &str) -> Sorted {
        sorted_of(command, false)
    }

    fn sorted_of(command: &str, undoes: bool) -> Sorted {
        let networks = ["10.66.66.0/24".parse().unwrap(), "fd42:42:42::/64".parse().unwrap()];
        let scene = Scene { interface: "wg0", networks: &networks, port: Some(51820), keep_open_port: false, undoes };
        sort(command, &scene)
    }

    fn forward(out: &str, everywhere: bool, between: bool) -> Rule {
        let out = Some(out).filter(|out| !out.is_empty()).map(str::to_owned);
        Rule::Forward(Opens { out, everywhere, between })
    }

    fn kept(command: &str) -> Option<String> {
        let Sorted { replaced, kept, .. } = sorted(command);
        assert_eq!(replaced, [], "{command}");
        kept
    }

    fn masquerade(ipv6: bool, out: &str) -> Rule {
        Rule::Masquerade { ipv6, out: Some(out).filter(|out| !out.is_empty()).map(str::to_owned) }
    }

    #[test]
    fn the_rules_of_the_tools_are_replaced() {
        let replaced = [
            ("iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE", masquerade(false, "eth0")),
            ("ip6tables -t nat -D POSTROUTING -o eth0 -j MASQUERADE", masquerade(true, "eth0")),
            (
                "/usr/sbin/iptables -w 5 -t nat -A POSTROUTING -s 10.66.66.0/24 ! -d 10.66.66.0/24 -j MASQUERADE",
                masquerade(false, ""),
            ),
            (
                "iptables -t nat -I POSTROUTING 1 -s 10.66.66.1/24 -o ens3 -j MASQUERADE -m comment --comment nat-rule",
                masquerade(false, "ens3"),
            ),
            (
                "firewall-cmd --add-rich-rule='rule family=ipv4 source address=10.66.66.0/24 masquerade'",
                masquerade(false, ""),
            ),
            ("iptables -A FORWARD -i %i -j ACCEPT", forward("", true, true)),
            ("iptables -A FORWARD -i %i -j ACCEPT || true", forward("", true, true)),
            ("iptables -A FORWARD -i %i -j ACCEPT 2>/dev/null || true", forward("", true, true)),
            ("iptables -A FORWARD -i wg0 -o eth1 -j ACCEPT >/dev/null 2>&1", forward("eth1", false, false)),
            ("iptables -A FORWARD -s 10.66.66.0/24 -o eth1 -j ACCEPT", forward("eth1", false, false)),
            ("iptables -A FORWARD -i wg0 -o wg0 -j ACCEPT", forward("", false, true)),
            ("iptables -A FORWARD -o wg0 -j ACCEPT", forward("", false, true)),
            ("iptables -A FORWARD -i wg0 -m state --state RELATED,ESTABLISHED -j ACCEPT", forward("", false, false)),
            ("iptables -I FORWARD -i eth0 -o wg0 -j ACCEPT", forward("", false, false)),
            (
                "iptables -A FORWARD -o wg+ -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
                forward("", false, false),
            ),
            ("iptables -I FORWARD -m state --state RELATED,ESTABLISHED -j ACCEPT", forward("", false, false)),
            ("iptables -A INPUT -p udp -m udp --dport 51820 -j ACCEPT", Rule::OpenPort),
            ("iptables -I INPUT 1 -i wg0 -j ACCEPT", Rule::OpenPort),
            ("sysctl -w net.ipv4.ip_forward=1", Rule::Forwarding),
            ("sysctl -q net/ipv6/conf/all/forwarding=1", Rule::Forwarding),
            ("echo 1 > /proc/sys/net/ipv4/ip_forward", Rule::Forwarding),
            (
                "iptables -t mangle -A FORWARD -o wg0 -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu",
                Rule::SegmentSize,
            ),
        ];
        for (command, rule) in replaced {
            let expected = Sorted { replaced: vec![rule], kept: None, is_entangled: false };
            assert_eq!(sorted(command), expected, "{command}");
        }
    }

    #[test]
    fn two_ways_of_doing_the_same_are_one() {
        let line = "iptables -I DOCKER-USER -i %i -j ACCEPT || iptables -A FORWARD -i %i -j ACCEPT";
        let expected = Sorted { replaced: vec![forward("", true, true); 2], kept: None, is_entangled: false };
        assert_eq!(sorted(line), expected);
        let line = "iptables -A FORWARD -i wg0 -j ACCEPT || /etc/wireguard/up.sh";
        assert_eq!((sorted(line).kept.as_deref(), sorted(line).is_entangled), (Some(line), true));
        let line = "one || two; iptables -A FORWARD -i wg0 -j ACCEPT; three";
        assert_eq!(sorted(line).kept.as_deref(), Some("one || two; three"));
    }

    #[test]
    fn forwarding_is_switched_off_only_where_things_are_undone() {
        for command in ["sysctl -q -w net.ipv4.ip_forward=0", "echo 0 > /proc/sys/net/ipv4/ip_forward"] {
            assert_eq!(sorted_of(command, true).replaced, [Rule::Forwarding], "{command}");
            assert_eq!(sorted_of(command, false).kept.as_deref(), Some(command));
        }
    }

    #[test]
    fn keys_that_commands_set_from_files_are_found() {
        let own = |path: &str| KeyFile { peer: None, path: path.to_owned() };
        let of_peer = |path: &str| KeyFile { peer: Some("KEY=".to_owned()), path: path.to_owned() };
        let path = "/etc/wireguard/wg0.key";
        let cases = [
            ("wg set %i private-key /etc/wireguard/%i.key", vec![own(path)], None),
            ("/usr/bin/wg set wg0 private-key '/etc/wireguard/wg0.key'; echo up", vec![own(path)], Some("echo up")),
            (
                "wg set wg0 private-key /etc/wireguard/wg0.key peer KEY= preshared-key /psk",
                vec![own(path), of_peer("/psk")],
                None,
            ),
            ("wg set wg0 peer KEY= preshared-key /psk", vec![of_peer("/psk")], None),
            (
                "wg set wg0 peer KEY= preshared-key /psk persistent-keepalive 25",
                vec![of_peer("/psk")],
                Some("wg set wg0 peer KEY= persistent-keepalive 25"),
            ),
            ("wg set wg0 fwmark 7 private-key /etc/wireguard/wg0.key", vec![own(path)], Some("wg set wg0 fwmark 7")),
        ];
        for (command, files, kept) in cases {
            assert_eq!(key_files(command, "wg0"), (files, kept.map(str::to_owned)), "{command}");
        }
        for command in
            ["wg set wg1 private-key /x", "wg set wg0 private-key <(pass wg)", "wg set wg0 private-key", "echo"]
        {
            assert_eq!(key_files(command, "wg0"), (vec![], Some(command.to_owned())));
        }
    }

    #[test]
    fn everything_else_is_kept_as_it_is() {
        let kept = [
            "iptables -t nat -A PREROUTING -i eth0 -p tcp --dport 8080 -j DNAT --to-destination 10.66.66.2",
            "iptables -t nat -A POSTROUTING -o wg0 -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -s 192.168.5.0/24 -o eth0 -j MASQUERADE",
            "iptables -t nat -A POSTROUTING ! -s 10.66.66.0/24 -o eth0 -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -s 10.66.66.2/32 -o eth0 -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -s 10.66.66.2 -o eth0 -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -s 10.66.66.0/25 -o eth0 -j MASQUERADE",
            "ip6tables -t nat -A POSTROUTING -s fd42:42:42::2 -o eth0 -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -s 10.66.66.0/24 ! -d 10.0.0.0/8 -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -s 10.66.66.0/24 ! -d 10.66.66.2 -j MASQUERADE",
            "iptables -A FORWARD -i wg0 -s 10.66.66.2/32 -j ACCEPT",
            "iptables -A FORWARD -i wg0 -s 10.66.66.2 -j ACCEPT",
            "iptables -A FORWARD -i wg0 -d 10.66.66.2 -j ACCEPT",
            "iptables -t nat -A POSTROUTING -s 10.66.66.0/24 -d 192.168.5.0/24 -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -o eth0 -j SNAT --to-source 192.0.2.1",
            "iptables -A FORWARD -i wg0 -d 192.168.5.0/24 -j DROP",
            "iptables -A FORWARD -i wg0 -p tcp --dport 22 -j ACCEPT",
            "iptables -A FORWARD -i eth1 -j ACCEPT",
            "iptables -A INPUT -p udp --dport 53 -j ACCEPT",
            "iptables -t nat -A POSTROUTING -o $(ip route show default | awk '{print $5}') -j MASQUERADE",
            "iptables -A FORWARD -i wg0 -j ACCEPT || reboot",
            "iptables -A FORWARD -i wg0 -j ACCEPT | reboot",
            "iptables -A FORWARD -i wg0 -j ACCEPT & reboot",
            "iptables -A FORWARD -i wg0 -j ACCEPT -m",
            "iptables -A FORWARD -i wg0 -i wg0 -j ACCEPT",
            "iptables -A FORWARD -i wg0 -j ACCEPT > /etc/passwd",
            "echo 1 > /proc/sys/net/ipv4/ip_forward /etc/passwd",
            "sysctl -w net.ipv4.ip_forward=0",
            "sysctl -w",
            "ufw route allow in on wg0 out on eth0",
            "systemctl restart 'unbalanced",
            "wg set wg0 peer x",
        ];
        for command in kept {
            assert_eq!(super::tests::kept(command).as_deref(), Some(command));
        }
    }

    #[test]
    fn rules_that_depend_on_others_are_known() {
        let entangled = [
            "iptables -A FORWARD -i wg0 -j REJECT",
            "iptables -A FORWARD -s 10.66.66.2 -j ACCEPT",
            "iptables -A FORWARD -i wg0 -s 10.66.66.2/32 -o eth1 -j ACCEPT",
            "iptables -A FORWARD ! -i eth0 -o wg0 -j ACCEPT",
            "iptables -A FORWARD -i wg0 -m time --timestart 08:00 -j ACCEPT",
            "iptables -A FORWARD -i wg0 -j CLIENTS",
            "iptables -P FORWARD DROP",
            "iptables -N CLIENTS",
            "ip6tables -I INPUT -i wg0 -p tcp -j DROP",
            "iptables -A INPUT -i wg0 -p tcp --dport 22 -j ACCEPT",
            "iptables -t nat -A POSTROUTING -s 10.66.66.2 -o eth0 -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -s 10.66.66.0/24 -d 192.168.5.0/24 -j ACCEPT",
            "iptables -t nat -A POSTROUTING -o eth0 -j SNAT --to-source 192.0.2.1",
            "iptables -t nat -A POSTROUTING -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -o $(ip route show default | awk '{print $5}') -j MASQUERADE",
            "iptables-restore /etc/wireguard/rules",
            "nft add rule ip filter forward iifname wg0 drop",
            "ufw route allow in on wg0 out on eth0",
            "bash /etc/wireguard/up",
            "/etc/wireguard/up",
            "up.sh",
            "firewall-cmd --direct --add-rule ipv4 filter FORWARD 0 -i wg0 -j DROP",
            "echo up; iptables -A FORWARD -i wg0 -j DROP",
        ];
        for command in entangled {
            assert!(sorted(command).is_entangled, "{command}");
        }
        let free = [
            "iptables -t nat -A PREROUTING -i eth0 -p tcp --dport 8080 -j DNAT --to-destination 10.66.66.2",
            "iptables -A FORWARD -i eth0 -d 10.66.66.2 -p tcp --dport 8080 -j ACCEPT",
            "iptables -A FORWARD -o wg0 -d 10.66.66.2 -j ACCEPT",
            "iptables -A FORWARD -i eth1 -j ACCEPT",
            "iptables -t nat -A POSTROUTING -o wg0 -j MASQUERADE",
            "iptables -t nat -A POSTROUTING -s 192.168.5.0/24 -o eth0 -j MASQUERADE",
            "iptables -A INPUT -p udp --dport 53 -j ACCEPT",
            "iptables -t mangle -A PREROUTING -i wg0 -j MARK --set-mark 7",
            "firewall-cmd --zone=public --add-interface=wg0",
            "ip route add 192.168.7.0/24 dev wg0",
            "echo \"$(date)\" >>/var/log/tunnel",
            "wg set wg0 peer x",
        ];
        for command in free {
            let sorted = sorted(command);
            assert!(sorted.kept.is_some() && !sorted.is_entangled, "{command}");
        }
    }

    #[test]
    fn a_line_keeps_only_its_other_commands() {
        let rest = |command: &str| sorted(command).kept;
        let forward = "iptables -A FORWARD -i wg0 -j ACCEPT";
        assert_eq!(rest(&format!("{forward}; echo up; {forward};")).as_deref(), Some("echo up"));
        assert_eq!(rest(&format!("one && {forward} && two 'a; b'")).as_deref(), Some("one && two 'a; b'"));
        assert_eq!(rest(&format!("one; {forward}; two && three")).as_deref(), Some("one; two && three"));
        assert_eq!(rest(&format!(" {forward}; {forward}; ")), None);
        assert_eq!(rest(""), None);
    }

    #[test]
    fn the_rule_that_opens_the_port_stays_where_the_host_is_closed() {
        let command = "iptables -I INPUT -p udp --dport 51820 -j ACCEPT";
        let scene = Scene { interface: "wg0", networks: &[], port: Some(51820), keep_open_port: true, undoes: false };
        assert_eq!(sort(command, &scene).kept.as_deref(), Some(command));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_of_a_line_that_is_not_understood(command in "[a-z$'\"`;&|<>() -]{0,60}") {
            let Sorted { replaced, kept, .. } = sorted(&command);
            prop_assert_eq!(replaced, Vec::new());
            let essence = |text: &str| text.chars().filter(|c| !"; &|".contains(*c)).collect::<String>();
            prop_assert_eq!(essence(&kept.unwrap_or_default()), essence(&command));
        }
    }
}
