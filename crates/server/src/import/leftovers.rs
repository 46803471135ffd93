//! What of the old tool remains on the host after an import, and the commands that remove it. Nothing here runs them.

use super::hooks::{Scene, saved_translation};
use super::value::Import;
use super::{Input, Kind, text};

/// Files that tell what remains; the caller reads those that exist.
pub const PATHS: [&str; 17] = [
    WG_IPTABLES,
    RC_LOCAL,
    "/etc/sysctl.d/wg.conf",
    "/etc/sysctl.d/99-wireguard-forward.conf",
    "/etc/sysctl.d/99-wireguard-optimize.conf",
    "/etc/sysctl.d/99-pivpn.conf",
    "/etc/iptables/rules.v4",
    "/etc/iptables/rules.v6",
    "/etc/ufw/before.rules",
    "/etc/ufw/before6.rules",
    FIREWALLD,
    "/etc/pivpn/hosts.wireguard",
    "/etc/systemd/system/wg-dashboard.service",
    "/etc/systemd/system/wgui.service",
    "/etc/systemd/system/wgui.path",
    SAVED_IPV4,
    SAVED_IPV6,
];

const WG_IPTABLES: &str = "/etc/systemd/system/wg-iptables.service";
const RC_LOCAL: &str = "/etc/rc.local";
const FIREWALLD: &str = "/etc/firewalld/direct.xml";

/// In place of a file: what `iptables-save -t nat` prints.
pub const SAVED_IPV4: &str = "iptables-save";
/// Likewise of `ip6tables-save -t nat`.
pub const SAVED_IPV6: &str = "ip6tables-save";

/// Something that remains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub what: String,
    /// The commands that remove it.
    pub commands: Vec<String>,
    /// It translates addresses of the tunnel, as the gateway does.
    pub is_nat: bool,
}

/// What is left of the tool, from the files of [`PATHS`] that exist and whether a service of the host runs the tunnel.
pub fn find(import: &Import, input: &Input, host: &[(&str, &[u8])], wg_quick_is_enabled: bool) -> Vec<Leftover> {
    let pool: Vec<_> = import.addresses.iter().map(ipnet::IpNet::trunc).collect();
    let interface = &*import.interface;
    let scene = Scene { interface, networks: &pool, port: import.listen_port, keep_open_port: false, undoes: false };
    let mut all = Vec::new();
    let mut add = |what: String, commands: Vec<String>, is_nat: bool| all.push(Leftover { what, commands, is_nat });
    if wg_quick_is_enabled {
        let unit = format!("wg-quick@{interface}");
        add(format!("the service {unit} is enabled"), vec![format!("systemctl disable --now {unit}")], false);
    }
    for &(path, bytes) in host {
        match path {
            WG_IPTABLES if translates(bytes, &pool) => add(
                format!("wg-iptables.service translates addresses at each start{}", certain(bytes, &pool)),
                vec![
                    "systemctl disable --now wg-iptables.service".to_owned(),
                    format!("rm {WG_IPTABLES}"),
                    "systemctl daemon-reload".to_owned(),
                ],
                true,
            ),
            RC_LOCAL if has(bytes, "systemctl restart wg-iptables.service") => add(
                format!("a line of {RC_LOCAL} starts wg-iptables.service"),
                vec![format!("sed -i '/^systemctl restart wg-iptables.service/d' {RC_LOCAL}")],
                true,
            ),
            SAVED_IPV4 => saved(bytes, "iptables", false, &scene, &mut add),
            SAVED_IPV6 => saved(bytes, "ip6tables", true, &scene, &mut add),
            "/etc/iptables/rules.v4" | "/etc/iptables/rules.v6" => {
                let ipv6 = path.ends_with('6');
                if lines(bytes).any(|line| saved_translation(line, ipv6, &scene)) {
                    let program = if ipv6 { "ip6tables-save" } else { "iptables-save" };
                    add(
                        format!("{path} restores rules that translate addresses at each start"),
                        vec![format!("{program} >{path}   # after the rules themselves are removed")],
                        true,
                    );
                }
            }
            "/etc/ufw/before.rules" | "/etc/ufw/before6.rules" if has(bytes, "wireguard-nat-rule") => add(
                format!("{path} masquerades for PiVPN"),
                vec![format!("sed -i '/wireguard-nat-rule/d' {path}"), "ufw reload".to_owned()],
                true,
            ),
            FIREWALLD if translates(bytes, &pool) => add(
                format!("firewalld has direct rules that translate addresses{}", certain(bytes, &pool)),
                direct_rules(bytes, &pool),
                true,
            ),
            "/etc/pivpn/hosts.wireguard" => add(
                format!("{path} has names of clients for Pi-hole; they stay true, but no new ones are added"),
                Vec::new(),
                false,
            ),
            _ if path.starts_with("/etc/sysctl.d/") => add(
                format!("{path} switches forwarding on for the whole host, or tunes it"),
                vec![format!("rm {path}   # unless something else on this host forwards, for example Docker")],
                false,
            ),
            _ if path.starts_with("/etc/systemd/system/") && !path.ends_with(WG_IPTABLES) => {
                let unit = path.rsplit('/').next().unwrap_or_default();
                add(
                    format!("the panel's unit {unit} would write its own files again"),
                    vec![format!("systemctl disable --now {unit}")],
                    false,
                );
            }
            _ => {}
        }
    }
    of_kind(import, input, &mut add);
    all
}

/// What remains of a kind by its nature.
fn of_kind(import: &Import, input: &Input, add: &mut impl FnMut(String, Vec<String>, bool)) {
    let files = |ends: &[&str]| -> String {
        let files = input.files.iter().map(|file| quoted(&file.path));
        files
            .filter(|path| ends.iter().any(|end| path.trim_end_matches('\'').ends_with(end)))
            .collect::<Vec<_>>()
            .join(" ")
    };
    match import.kind {
        Kind::WgEasy14 | Kind::WgEasy15 => add(
            "the container of wg-easy has the tunnel, its port and its NAT".to_owned(),
            vec!["docker stop wg-easy && docker rm wg-easy   # or whatever `docker ps` calls it".to_owned()],
            false,
        ),
        Kind::Networkd => add(
            "systemd-networkd brings the tunnel up".to_owned(),
            vec![
                format!("rm {}", files(&[".netdev", ".network"])),
                "networkctl reload".to_owned(),
                format!("networkctl delete {}", quoted(&import.interface)),
            ],
            false,
        ),
        Kind::NetworkManager => add(
            "NetworkManager brings the tunnel up".to_owned(),
            vec![format!("rm {}", files(&[".nmconnection"])), "nmcli connection reload".to_owned()],
            false,
        ),
        Kind::WireguardUi => add(
            "wireguard-ui writes the tunnel's file whenever somebody presses Apply".to_owned(),
            vec!["docker stop wireguard-ui   # or stop its service".to_owned()],
            false,
        ),
        _ => {}
    }
}

/// Rules of the running firewall, as commands that delete them.
fn saved(bytes: &[u8], program: &str, ipv6: bool, scene: &Scene<'_>, add: &mut impl FnMut(String, Vec<String>, bool)) {
    let rules: Vec<&str> = lines(bytes).filter(|line| saved_translation(line, ipv6, scene)).collect();
    if !rules.is_empty() {
        let commands =
            rules.iter().map(|rule| rule.replacen("-A ", "-D ", 1)).map(|rule| format!("{program} -t nat {rule}"));
        add(format!("{program} has rules that translate addresses"), commands.collect(), true);
    }
}

/// `<rule ipv="ipv4" table="nat" chain="POSTROUTING" priority="0">-s 10.7.0.0/24 …</rule>`
fn direct_rules(bytes: &[u8], pool: &[ipnet::IpNet]) -> Vec<String> {
    let mut commands = Vec::new();
    for line in lines(bytes).filter(|line| is_translation(line) && names(line, pool)) {
        let Some((head, rest)) = line.split_once('>') else { continue };
        let Some((rule, _)) = rest.split_once('<') else { continue };
        let attribute = |name: &str| head.split(&format!(" {name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        if let (Some(ipv), Some(table), Some(chain), Some(priority)) =
            (attribute("ipv"), attribute("table"), attribute("chain"), attribute("priority"))
        {
            for permanent in ["", "--permanent "] {
                let rule = text::one_line(rule);
                commands.push(format!(
                    "firewall-cmd {permanent}--direct --remove-rule {ipv} {table} {chain} {priority} {rule}"
                ));
            }
        }
    }
    commands
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &str> {
    text::lines(bytes).filter_map(|(_, line)| std::str::from_utf8(line).ok())
}

fn has(bytes: &[u8], what: &str) -> bool {
    lines(bytes).any(|line| line.contains(what) && !line.starts_with('#'))
}

/// Whether a line translates addresses of one of the networks.
fn translates(bytes: &[u8], pool: &[ipnet::IpNet]) -> bool {
    lines(bytes).any(|line| is_translation(line) && names(line, pool))
}

fn is_translation(line: &str) -> bool {
    line.contains("-j MASQUERADE") || line.contains("-j SNAT")
}

/// Describes the addresses that SNAT rules give to packets; the host may have several.
fn certain(bytes: &[u8], pool: &[ipnet::IpNet]) -> String {
    let mut addresses: Vec<&str> = Vec::new();
    for line in lines(bytes).filter(|line| names(line, pool)) {
        let of_rule = ["--to ", "--to-source "].iter().filter_map(|word| line.split_once(word));
        let words = of_rule.filter_map(|(_, rest)| rest.split([' ', '<']).next());
        addresses.extend(words.filter(|word| !addresses.contains(word)).collect::<Vec<_>>());
    }
    if addresses.is_empty() {
        return String::new();
    }
    format!(
        " to {}; the gateway uses the interface's first address instead: if that is another, import with --keep-nat",
        addresses.join(", ")
    )
}

fn names(line: &str, pool: &[ipnet::IpNet]) -> bool {
    line.split(['>', '<', ' '])
        .filter_map(|word| word.parse::<ipnet::IpNet>().ok())
        .any(|net| pool.contains(&net.trunc()))
}

/// A path as a word of a shell.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    if !path.is_empty() && path.chars().all(is_plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}
