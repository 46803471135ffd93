//! Ways in firewalls of others ([`Opening`]) as the commands that open and close them, each with the tool that keeps
//! the firewall. What is opened carries the tunnel's name, so that exactly that is closed: a comment, or a name.

use crate::step::{ForeignFirewall, Opening, Way};

impl Opening {
    /// The comment that its rules carry.
    pub fn mark(&self) -> String {
        let tunnel = &self.interface;
        match &self.way {
            Way::Forward { from, to, answers: true } => format!("linerate {tunnel}: answers from {from} to {to}"),
            Way::Forward { from, to, .. } => format!("linerate {tunnel}: from {from} to {to}"),
            Way::Tunnel { inbound } => {
                let names = firewalld_names(tunnel);
                if *inbound { names.into_tunnel } else { names.from_tunnel }
            }
            Way::Port { port } => match self.firewall {
                ForeignFirewall::Firewalld { .. } => format!("{} {port}", firewalld_names(tunnel).port),
                _ => format!("linerate {tunnel}: UDP port {port}"),
            },
        }
    }

    /// What tells it from all others: where it is, and its [`mark`](Self::mark).
    pub fn id(&self) -> String {
        let place = match &self.firewall {
            ForeignFirewall::Iptables { program, chain } => {
                let family = if program.starts_with("ip6") { "ip6" } else { "ip" };
                let kind = if program.ends_with("-legacy") { "legacy " } else { "" };
                format!("{kind}{family} filter {chain}")
            }
            ForeignFirewall::Nftables { table, chain } => format!("{table} {chain}"),
            ForeignFirewall::Ufw => "ufw".to_owned(),
            ForeignFirewall::Firewalld { .. } => "firewalld".to_owned(),
        };
        id(&place, &self.mark())
    }
}

/// What tells an opening from all others.
pub(crate) fn id(place: &str, mark: &str) -> String {
    format!("{place}: {mark}")
}

/// The names that a tunnel's zone and policies have in firewalld.
#[derive(Debug)]
pub struct FirewalldNames {
    pub zone: String,
    /// The policy of what comes from it.
    pub from_tunnel: String,
    /// The policy of new connections into it.
    pub into_tunnel: String,
    /// The policy of the UDP port.
    pub port: String,
}

/// The names that linerate gives them.
pub fn firewalld_names(interface: &str) -> FirewalldNames {
    named(&format!("lr-{}", shortened(interface)))
}

/// The name of an interface as firewalld takes it: the names of policies have at most 18 characters, of which `lr-` and
/// `-udp` are seven, and are of letters, digits, `-` and `_`. Another one keeps its beginning, and gets a hash.
fn shortened(interface: &str) -> String {
    const LONGEST: usize = 11;
    let is_taken = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    if interface.len() <= LONGEST && interface.bytes().all(|byte| is_taken(&byte)) {
        return interface.to_owned();
    }
    let beginning = interface.bytes().filter(is_taken).map(char::from).take(5);
    // FNV-1a, whose values stay what they are.
    let hash = interface.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{}{:06x}", beginning.collect::<String>(), hash & 0xff_ffff)
}

fn named(name: &str) -> FirewalldNames {
    let policy = |end: &str| format!("{name}-{end}");
    FirewalldNames { zone: name.to_owned(), from_tunnel: policy("out"), into_tunnel: policy("in"), port: policy("udp") }
}

/// The commands that open it by hand, as lines for a shell. They carry no mark: it is for those that are ours to close.
pub fn by_hand(opening: &Opening) -> Vec<String> {
    let names = named(&shortened(&opening.interface));
    opened(opening, &names, None).iter().map(|command| line(command)).collect()
}

/// The commands that open it.
pub fn to_open(opening: &Opening) -> Vec<Vec<String>> {
    opened(opening, &firewalld_names(&opening.interface), Some(&opening.mark()))
}

fn opened(opening: &Opening, names: &FirewalldNames, mark: Option<&str>) -> Vec<Vec<String>> {
    let Opening { interface, firewall, way } = opening;
    match firewall {
        ForeignFirewall::Iptables { program, chain } => vec![iptables(program, "-I", chain, way, mark)],
        ForeignFirewall::Nftables { table, chain } => {
            let mark = mark.map(|mark| format!(" comment \"{mark}\"")).unwrap_or_default();
            vec![vec!["nft".to_owned(), format!("insert rule {table} {chain} {} accept{mark}", nft_match(way))]]
        }
        ForeignFirewall::Ufw => {
            let comment = mark.map(|mark| vec!["comment".to_owned(), mark.to_owned()]).unwrap_or_default();
            vec![[ufw(way, false), comment].concat()]
        }
        ForeignFirewall::Firewalld { zone } => {
            let mut commands = Vec::new();
            let mut permanent = |options: &[&str]| commands.push(firewalld(&[&["--permanent"], options].concat()));
            match way {
                Way::Port { port } => {
                    let policy = format!("--policy={}", names.port);
                    permanent(&[&format!("--new-policy={}", names.port)]);
                    permanent(&[&policy, "--add-ingress-zone=ANY"]);
                    permanent(&[&policy, "--add-egress-zone=HOST"]);
                    permanent(&[&policy, &format!("--add-port={port}/udp")]);
                }
                way => {
                    let own = zone.as_ref().unwrap_or(&names.zone);
                    if zone.is_none() {
                        permanent(&[&format!("--new-zone={own}")]);
                        permanent(&[&format!("--zone={own}"), &format!("--add-interface={interface}")]);
                    }
                    let mut policy = |name: &str, from: &str, to: &str| {
                        let policy = format!("--policy={name}");
                        permanent(&[&format!("--new-policy={name}")]);
                        permanent(&[&policy, &format!("--add-ingress-zone={from}")]);
                        permanent(&[&policy, &format!("--add-egress-zone={to}")]);
                        permanent(&[&policy, "--set-target=ACCEPT"]);
                    };
                    policy(&names.from_tunnel, own, "ANY");
                    if matches!(way, Way::Tunnel { inbound: true }) {
                        policy(&names.into_tunnel, "ANY", own);
                    }
                }
            }
            commands.push(firewalld(&["--reload"]));
            commands
        }
    }
}

/// The commands that close it.
pub fn to_close(opening: &Opening) -> Vec<Vec<String>> {
    let Opening { interface, firewall, way } = opening;
    let names = firewalld_names(interface);
    match firewall {
        ForeignFirewall::Iptables { program, chain } => {
            vec![iptables(program, "-D", chain, way, Some(&opening.mark()))]
        }
        ForeignFirewall::Nftables { table, chain } => {
            let what = format!("delete rule {table} {chain} handle ... # comment \"{}\"", opening.mark());
            vec![vec!["nft".to_owned(), what]]
        }
        ForeignFirewall::Ufw => vec![ufw(way, true)],
        ForeignFirewall::Firewalld { zone } => {
            let delete_policy = |name: &str| firewalld(&["--permanent", &format!("--delete-policy={name}")]);
            let mut commands = match way {
                Way::Port { .. } => vec![delete_policy(&names.port)],
                Way::Tunnel { inbound: true } => {
                    vec![delete_policy(&names.into_tunnel), delete_policy(&names.from_tunnel)]
                }
                _ => vec![delete_policy(&names.from_tunnel)],
            };
            if zone.is_none() && !matches!(way, Way::Port { .. }) {
                commands.push(firewalld(&["--permanent", &format!("--delete-zone={}", names.zone)]));
            }
            commands.push(firewalld(&["--reload"]));
            commands
        }
    }
}

/// A command of iptables: `action` is `-I`, `-C` or `-D`.
pub fn iptables(program: &str, action: &str, chain: &str, way: &Way, mark: Option<&str>) -> Vec<String> {
    let mut words: Vec<String> = [program, "-w", action, chain].map(str::to_owned).into();
    let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    match way {
        Way::Port { port } => add(&["-p", "udp", "--dport", &port.to_string()]),
        Way::Forward { from, to, answers } => {
            add(&["-i", from, "-o", to]);
            if *answers {
                add(&["-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED"]);
            }
        }
        Way::Tunnel { .. } => {}
    }
    if let Some(mark) = mark {
        add(&["-m", "comment", "--comment", mark]);
    }
    add(&["-j", "ACCEPT"]);
    words
}

/// What a rule of nft matches.
fn nft_match(way: &Way) -> String {
    match way {
        Way::Port { port } => format!("udp dport {port}"),
        Way::Forward { from, to, answers } => {
            let state = if *answers { " ct state established,related" } else { "" };
            format!("iifname \"{from}\" oifname \"{to}\"{state}")
        }
        Way::Tunnel { .. } => String::new(),
    }
}

fn ufw(way: &Way, deletes: bool) -> Vec<String> {
    let delete = if deletes { "delete " } else { "" };
    let text = match way {
        Way::Port { port } => format!("ufw {delete}allow {port}/udp"),
        Way::Forward { from, to, .. } => format!("ufw route {delete}allow in on {from} out on {to}"),
        Way::Tunnel { .. } => String::new(),
    };
    text.split(' ').map(str::to_owned).collect()
}

/// How ufw writes its rule into its files, without the comment: `user.rules` and `user6.rules` have one line each.
pub fn ufw_tuples(way: &Way) -> [String; 2] {
    ["0.0.0.0/0", "::/0"].map(|any| match way {
        Way::Port { port } => format!("### tuple ### allow udp {port} {any} any {any} in"),
        Way::Forward { from, to, .. } => {
            format!("### tuple ### route:allow any any {any} any {any} in_{from}!out_{to}")
        }
        Way::Tunnel { .. } => String::new(),
    })
}

fn firewalld(options: &[&str]) -> Vec<String> {
    std::iter::once(&"firewall-cmd").chain(options).map(|word| (*word).to_owned()).collect()
}

/// A command as a line for a shell.
pub fn line(command: &[String]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=+,./:@%".contains(&byte);
    let quoted = |word: &String| match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// What opening it does, for people.
pub(super) fn describe(opening: &Opening) -> String {
    let place = match &opening.firewall {
        ForeignFirewall::Iptables { program, chain } => format!("the chain {chain} of {program}"),
        ForeignFirewall::Nftables { table, chain } => format!("the chain {chain} of the firewall table {table}"),
        ForeignFirewall::Ufw => "ufw".to_owned(),
        ForeignFirewall::Firewalld { .. } => "firewalld".to_owned(),
    };
    let what = match &opening.way {
        Way::Forward { from, to, answers: true } => format!("answers from {from} to {to}"),
        Way::Forward { from, to, .. } => format!("packets from {from} to {to}"),
        Way::Tunnel { inbound: false } => format!("packets from {} and answers to them", opening.interface),
        Way::Tunnel { inbound: true } => format!("packets from and to {}", opening.interface),
        Way::Port { port } => format!("datagrams to UDP port {port}"),
    };
    format!("{place} lets {what} pass")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(firewall: ForeignFirewall, way: Way) -> Opening {
        Opening { interface: "wg0".into(), firewall, way }
    }

    fn out() -> Way {
        Way::Forward { from: "wg0".into(), to: "eth0".into(), answers: false }
    }

    #[test]
    fn a_command_by_hand_carries_no_mark_and_ours_does() {
        let docker = ForeignFirewall::Iptables { program: "iptables".into(), chain: "DOCKER-USER".into() };
        let way = opening(docker, out());
        assert_eq!(by_hand(&way), ["iptables -w -I DOCKER-USER -i wg0 -o eth0 -j ACCEPT"]);
        let ours = line(&to_open(&way)[0]);
        let mark = "-m comment --comment 'linerate wg0: from wg0 to eth0'";
        assert_eq!(ours, format!("iptables -w -I DOCKER-USER -i wg0 -o eth0 {mark} -j ACCEPT"));
        assert_eq!(line(&to_close(&way)[0]), ours.replace("-I", "-D"));
    }

    #[test]
    fn a_rule_of_nft_is_quoted_for_the_shell() {
        let site = ForeignFirewall::Nftables { table: "inet site".into(), chain: "forward".into() };
        let rule = "nft 'insert rule inet site forward iifname \"wg0\" oifname \"eth0\" accept'";
        assert_eq!(by_hand(&opening(site, out())), [rule]);
    }

    #[test]
    fn firewalld_gets_no_name_that_it_refuses() {
        for name in ["wg0", "wg-eleven-1", "wg-fifteen-long", "wg-fifteen-lonh", "a.b=c+d", "=====", "x"] {
            let FirewalldNames { zone, from_tunnel, into_tunnel, port } = firewalld_names(name);
            for made in [&zone, &from_tunnel, &into_tunnel, &port] {
                let is_taken = made.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
                assert!(is_taken && made.len() <= 18, "{name}: {made}");
            }
        }
        assert_eq!(firewalld_names("wg-eleven-1").zone, "lr-wg-eleven-1");
        assert_ne!(firewalld_names("wg-fifteen-long").zone, firewalld_names("wg-fifteen-lonh").zone);
        // It is in the settings of hosts, and in their ledgers.
        assert_eq!(firewalld_names("wg-fifteen-long").zone, "lr-wg-fi8d5c54");
    }

    #[test]
    fn firewalld_gets_names_that_are_ours() {
        let way = opening(ForeignFirewall::Firewalld { zone: None }, Way::Tunnel { inbound: true });
        let [open, close] = [to_open(&way), to_close(&way)];
        for name in ["--new-zone=lr-wg0", "--new-policy=lr-wg0-out", "--new-policy=lr-wg0-in"] {
            let is_there =
                |commands: &[Vec<String>], name: &str| commands.iter().any(|words| words.contains(&name.to_owned()));
            assert!(is_there(&open, name), "{name}");
            assert!(is_there(&close, &name.replace("new", "delete")), "{name}");
        }
        assert!(by_hand(&way).iter().all(|command| !command.contains("lr-")));
    }
}
