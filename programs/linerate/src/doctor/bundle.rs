//! `doctor --bundle`: an archive for a bug report, without secrets.
//!
//! Of a tunnel's file only settings that are known to hold none are shown. After that every key that is known is looked
//! for in all texts, and hidden. Names are looked for as whole words. Addresses and public keys stay: the report would
//! be of no use without them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use linerate_cli::print;
use linerate_control::atomic_file;
use linerate_control::client::TunnelClient;
use linerate_control::keys::SecretKey;
use linerate_control::uapi::socket;
use linerate_tunnel::ConfigFile;
use linerate_tunnel::status::Status;
use zeroize::Zeroizing;

use super::gather::Examination;
use super::{json, network};

/// What stands for something that is not shown.
const HIDDEN: &str = "(hidden)";

/// The folder in the archive.
const FOLDER: &str = "linerate-bundle";

/// Settings whose values are no secrets. Those of `NAMES` are names, which people may want to keep to themselves.
const SHOWN: [&str; 27] = [
    "address",
    "allowedips",
    "clientisolation",
    "destinations",
    "dns",
    "excludedips",
    "excludelan",
    "expires",
    "fwmark",
    "gateway",
    "inbound",
    "killswitch",
    "listenport",
    "masquerade",
    "mtu",
    "onhookerror",
    "persistentkeepalive",
    "publickey",
    "quota",
    "quotareset",
    "rate",
    "routeconflict",
    "saveconfig",
    "spin",
    "table",
    "nextpublickey",
    "clientallowedips",
];
const NAMES: [&str; 4] = ["endpoint", "name", "publicendpoint", "user"];

/// What is asked of the host, and where the answers go.
const COMMANDS: [(&str, &str, &[&str]); 8] = [
    ("network/links", "ip", &["-details", "-statistics", "link", "show"]),
    ("network/addresses", "ip", &["address", "show"]),
    ("network/routes", "ip", &["route", "show", "table", "all"]),
    ("network/routes6", "ip", &["-6", "route", "show", "table", "all"]),
    ("network/rules", "ip", &["rule", "show"]),
    ("network/rules6", "ip", &["-6", "rule", "show"]),
    ("network/nftables", "nft", &["list", "ruleset"]),
    ("network/sockets", "ss", &["-uanm"]),
];

/// Writes the archive, readable only by its owner, and says where it is.
pub(super) fn write(file: &Path, examinations: &[Examination], all: &[Status], names: bool) -> Result<(), String> {
    let mut texts = texts(examinations, all, names)?;
    let secrets = secrets(all);
    let hidden = if names { Vec::new() } else { private_names(all) };
    let hidden = Words::of(&hidden);
    let secrets: HashSet<&str> = secrets.iter().map(|secret| secret.as_str()).collect();
    for (name, text) in &mut texts {
        *text = without_keys(text, &secrets);
        if !names {
            *text = without_comments(text);
        }
        *text = if name.ends_with(".json") { hidden.replaced_in_json(text) } else { hidden.replaced(text) };
    }
    let archive = archive(&texts).map_err(|error| format!("cannot make the archive: {error}"))?;
    let mut temporary = OsString::from(".");
    temporary.push(file.file_name().ok_or_else(|| format!("{} is no file name", file.display()))?);
    temporary.push(format!(".{}", std::process::id()));
    atomic_file::replace(file, temporary, &archive, Some(0o600), None)
        .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    let says = if names { "" } else { ", no names" };
    let text = format!(
        "{} has no keys{says}; it has addresses and public keys. Look at it before you send it.\n",
        file.display()
    );
    print(text.as_bytes()).map(|_| ())
}

fn texts(examinations: &[Examination], all: &[Status], names: bool) -> Result<BTreeMap<String, String>, String> {
    let to_json = |value: serde_json::Result<String>| value.map_err(|error| format!("cannot write JSON: {error}"));
    let mut texts = BTreeMap::new();
    let findings = String::from_utf8_lossy(&json(examinations)?).into_owned();
    texts.insert("findings.json".to_owned(), findings);
    texts.insert("status.json".to_owned(), to_json(serde_json::to_string_pretty(all))?);
    let stats: BTreeMap<_, _> = examinations.iter().map(|one| (&one.name, &one.counters)).collect();
    texts.insert("stats.json".to_owned(), to_json(serde_json::to_string_pretty(&stats))?);
    texts.insert("versions".to_owned(), versions());
    for (name, program, arguments) in COMMANDS {
        let output = network::output(program, arguments).unwrap_or_else(|| format!("{program} is missing or failed\n"));
        texts.insert(name.to_owned(), output);
    }
    let links: Vec<&str> = all.iter().map(|status| status.interface.as_str()).collect();
    let sysctls = network::sysctls(links.iter().copied());
    let lines = sysctls.iter().map(|(name, value)| format!("{name} = {value}\n"));
    texts.insert("network/sysctls".to_owned(), lines.collect());
    for status in all {
        let path = status.file.clone().unwrap_or_else(|| format!("/etc/wireguard/{}.conf", status.interface));
        if let Ok(text) = fs::read(&path).map(Zeroizing::new) {
            texts.insert(format!("{}.conf", status.interface), redact(&String::from_utf8_lossy(&text), names));
        }
    }
    Ok(texts)
}

fn versions() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/version").unwrap_or_default();
    let programs = [("nft", "-V"), ("ip", "-V")].map(|(program, option)| network::output(program, &[option]));
    let programs: String = programs.into_iter().flatten().collect();
    format!("linerate {}\n{kernel}{release}{programs}", env!("CARGO_PKG_VERSION"))
}

/// The file with the settings that are shown; comments may be anything, and are not.
fn redact(text: &str, names: bool) -> String {
    text.lines().map(|line| redacted(line.trim(), names) + "\n").collect()
}

fn redacted(line: &str, names: bool) -> String {
    let (mark, setting) = match line.strip_prefix("#!") {
        Some(setting) => ("#! ", setting.trim()),
        None => ("", line),
    };
    if setting.is_empty() {
        return String::new();
    }
    let (setting, comment) =
        setting.split_once('#').map_or((setting, ""), |(setting, _)| (setting.trim(), " # (hidden)"));
    match setting.split_once('=') {
        Some((name, value)) => {
            let (name, value) = (name.trim(), value.trim());
            let key = name.to_ascii_lowercase();
            let is_shown =
                SHOWN.contains(&&*key) || (names && NAMES.contains(&&*key)) || key == "endpoint" && is_address(value);
            // A line that is not a setting could be anything.
            let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let name = if is_name { name } else { HIDDEN };
            let value = match () {
                () if !is_shown => HIDDEN.to_owned(),
                () if key == "dns" && !names => addresses_only(value),
                () => value.to_owned(),
            };
            format!("{mark}{name} = {value}{comment}")
        }
        None if matches!(setting, "[Interface]" | "[Peer]") => format!("{setting}{comment}"),
        None if setting.is_empty() => "# (hidden)".to_owned(),
        None => HIDDEN.to_owned(),
    }
}

fn is_address(value: &str) -> bool {
    value.parse::<std::net::SocketAddr>().is_ok()
}

/// Words, and what is to be in the place of each.
struct Words<'a> {
    all: HashMap<&'a str, &'a str>,
    /// How long those with each first letter are.
    lengths: HashMap<char, BTreeSet<usize>>,
}

impl<'a> Words<'a> {
    fn of(words: &'a [(String, String)]) -> Self {
        let all: HashMap<&str, &str> = words.iter().rev().map(|(word, to)| (&**word, &**to)).collect();
        let mut lengths: HashMap<char, BTreeSet<usize>> = HashMap::new();
        for word in all.keys() {
            let Some(first) = word.chars().next() else { continue };
            lengths.entry(first).or_default().insert(word.len());
        }
        Self { all, lengths }
    }

    /// `text` with something else in place of each word that is not a part of a longer one: a peer that is called
    /// `port` must not change the identifier `port-in-use`. All of them in one pass, the longest first: a server may
    /// have ten thousand names.
    fn replaced(&self, text: &str) -> String {
        let is_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
        let mut replaced = String::with_capacity(text.len());
        let (mut rest, mut before) = (text, None);
        while let Some(first) = rest.chars().next() {
            let found = self.lengths.get(&first).into_iter().flatten().rev().find_map(|length| {
                let (word, after) = rest.split_at_checked(*length)?;
                let begins_inside = is_of_word(Some(first)) && is_of_word(before);
                let ends_inside = is_of_word(word.chars().next_back()) && is_of_word(after.chars().next());
                self.all.get(word).filter(|_| !begins_inside && !ends_inside).map(|to| (*to, word, after))
            });
            let (to, taken, after) = found.unwrap_or_else(|| {
                let (taken, after) = rest.split_at(first.len_utf8());
                (taken, taken, after)
            });
            replaced.push_str(to);
            (rest, before) = (after, taken.chars().next_back());
        }
        replaced
    }

    /// As [`Self::replaced`], of each string in JSON: a name may end with a quotation mark, and a string does.
    fn replaced_in_json(&self, json: &str) -> String {
        let mut replaced = String::with_capacity(json.len());
        let mut rest = json;
        while let Some((before, _)) = rest.split_once('"') {
            let mut strings = serde_json::Deserializer::from_str(&rest[before.len()..]).into_iter::<String>();
            let Some(Ok(string)) = strings.next() else { break };
            replaced.push_str(before);
            replaced.push_str(&serde_json::Value::from(self.replaced(&string)).to_string());
            rest = &rest[before.len() + strings.byte_offset()..];
        }
        replaced + &self.replaced(rest)
    }
}

/// `text` without the keys, wherever they are in what could be one. One pass for all of them, too.
fn without_keys(text: &str, keys: &HashSet<&str>) -> String {
    let lengths: BTreeSet<usize> = keys.iter().map(|key| key.len()).collect();
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_');
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let found = lengths.iter().rev().find(|length| rest.get(..**length).is_some_and(|text| keys.contains(text)));
        let length = match found {
            Some(length) => {
                kept.push_str(HIDDEN);
                *length
            }
            None => {
                kept.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[length..];
        // No key begins in what is shorter than one.
        let run = rest.find(|c| !is_of_key(c)).unwrap_or(rest.len());
        if lengths.first().is_none_or(|least| run < *least) {
            kept.push_str(&rest[..run]);
            rest = &rest[run..];
        }
    }
    kept
}

/// What people wrote beside rules of the firewall: `comment "laptop of Eve"` (nft has no quotes within these).
fn without_comments(text: &str) -> String {
    const MARK: &str = "comment \"";
    let mut parts = text.split(MARK);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let after = part.split_once('"').map_or("", |(_, after)| after);
        kept.push_str(&format!("{MARK}{HIDDEN}\"{after}"));
    }
    kept
}

/// The name servers of a setting, without the domains that it may have as well.
fn addresses_only(value: &str) -> String {
    let shown = |part: &str| if part.parse::<IpAddr>().is_ok() { part.to_owned() } else { HIDDEN.to_owned() };
    value.split(',').map(|part| shown(part.trim())).collect::<Vec<_>>().join(", ")
}

/// All keys of these tunnels that this process can read, in the forms in which they are written; base64 without the end
/// that adds nothing.
fn secrets(all: &[Status]) -> Vec<Zeroizing<String>> {
    let mut keys = Vec::new();
    let mut add = |key: &Option<SecretKey>| {
        let Some(key) = key else { return };
        let (base64, hex) = (key.to_base64(), key.to_hex());
        let base64 = Zeroizing::new(base64.trim_end_matches('=').to_owned());
        let upper = Zeroizing::new(hex.to_ascii_uppercase());
        let for_urls = Zeroizing::new(base64.replace('+', "-").replace('/', "_"));
        keys.extend([for_urls, base64, hex, upper]);
    };
    for status in all {
        let tunnel = TunnelClient::open(Path::new(socket::DIRECTORY), &status.interface);
        if let Ok(device) = tunnel.and_then(|mut tunnel| tunnel.get()) {
            add(&device.private_key);
            device.peers.iter().for_each(|peer| add(&peer.preshared_key));
        }
        let file = ConfigFile::open(status.file.as_ref().unwrap_or(&status.interface));
        if let Some(file) = file.as_ref().ok().and_then(|file| file.loaded().ok()) {
            add(&file.private_key);
            file.peers.iter().for_each(|peer| add(&peer.preshared_key));
        }
    }
    keys
}

/// The names of peers, of their endpoints and of this host, and what stands for each.
fn private_names(all: &[Status]) -> Vec<(String, String)> {
    let peers = all.iter().flat_map(|status| &status.peers);
    let mut names = Vec::new();
    for (index, peer) in peers.enumerate() {
        names.extend(peer.name.clone().map(|name| (name, format!("(peer {})", index + 1))));
        let host = peer.endpoint_name.as_ref().and_then(|name| Some(name.rsplit_once(':')?.0.to_owned()));
        names.extend(host.map(|host| (host, format!("(host of peer {})", index + 1))));
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    names.push((host.trim().to_owned(), "(this host)".to_owned()));
    // A single letter says nothing of anybody, and is a word in English.
    names.retain(|(name, _)| name.chars().count() > 1);
    names
}

fn archive(texts: &BTreeMap<String, String>) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in texts {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_that_hold_no_secret_are_shown() {
        let file = "# laptop of Eve\n[Interface]\nPrivateKey = aaa=\nAddress = 10.0.0.1/24 # at home\n\
            PostUp = curl -u me:secret\n#! PrivateKeyFile = /root/key\n#! KillSwitch = yes\n#~ PresharedKey = bbb=\n\n\
            [Peer]\npresharedkey=ccc=\nEndpoint = home.example:1\nAllowedIPs=0.0.0.0/0\nstray secret\nsecret\u{a0}x=1\n";
        let expected = "# (hidden)\n[Interface]\nPrivateKey = (hidden)\nAddress = 10.0.0.1/24 # (hidden)\n\
            PostUp = (hidden)\n#! PrivateKeyFile = (hidden)\n#! KillSwitch = yes\n# (hidden)\n\n\
            [Peer]\npresharedkey = (hidden)\nEndpoint = (hidden)\nAllowedIPs = 0.0.0.0/0\n(hidden)\n(hidden) = (hidden)\n";
        assert_eq!(redact(file, false), expected);
        assert!(redact(file, true).contains("Endpoint = home.example:1"));
        assert!(redact("Endpoint = 192.0.2.1:5", false).contains("192.0.2.1"));
    }

    #[test]
    fn a_name_is_hidden_where_it_is_a_word() {
        let hidden = |text: &str, name: &str| Words::of(&[(name.to_owned(), "(peer 1)".to_owned())]).replaced(text);
        assert_eq!(
            hidden("port: the port port-in-use, airport, port.", "port"),
            "(peer 1): the (peer 1) port-in-use, airport, (peer 1)."
        );
        assert_eq!(hidden("\"eve\" eve_2 eveeve eve", "eve"), "\"(peer 1)\" eve_2 eveeve (peer 1)");
        assert_eq!(hidden("x(a b)x (a b)", "(a b)"), "x(peer 1)x (peer 1)", "its ends are no letters");
        assert_eq!(hidden("Zoë Zoëx äZoë", "Zoë"), "(peer 1) Zoëx äZoë");
        assert_eq!(hidden("", "eve"), "");
    }

    #[test]
    fn json_stays_readable_whatever_a_name_ends_with() {
        let peers = ["Eve \"the boss\"", "boss\"", "\"", "the\\", "\\\"", "Eve"];
        let told = serde_json::json!({ "name": peers, "boss": "the boss", "eve": "Eve", "says": "a \"boss\"" });
        for (count, _) in peers.iter().enumerate() {
            let named = peers[..=count].iter().enumerate();
            let hidden: Vec<_> = named.map(|(at, name)| ((*name).to_owned(), format!("(peer {at})"))).collect();
            for text in [told.to_string(), serde_json::to_string_pretty(&told).unwrap()] {
                let replaced = Words::of(&hidden).replaced_in_json(&text);
                let read: serde_json::Value =
                    serde_json::from_str(&replaced).unwrap_or_else(|error| panic!("{error}: {replaced}"));
                assert_eq!(read["name"][0], "(peer 0)", "{replaced}");
            }
        }
    }

    #[test]
    fn the_longest_of_several_names_is_hidden_and_what_stands_for_it_stays() {
        let names = ["eve", "eve b", "peer", "Zoë"].map(|name| (name.to_owned(), format!("(peer of {name})")));
        assert_eq!(
            Words::of(&names).replaced("eve b, eve c: peer Zoë"),
            "(peer of eve b), (peer of eve) c: (peer of peer) (peer of Zoë)"
        );
        assert_eq!(Words::of(&[]).replaced("a text"), "a text");
    }

    #[test]
    fn keys_are_hidden_wherever_they_are() {
        let keys = HashSet::from(["abcdefgh", "ABCDEFGHIJKL"]);
        let hidden = |text: &str| without_keys(text, &keys);
        assert_eq!(hidden("k=abcdefgh= xabcdefghy ABCDEFGHIJKL"), "k=(hidden)= x(hidden)y (hidden)");
        assert_eq!(hidden("abcdefgabcdefghabcdefgh"), "abcdefg(hidden)(hidden)");
        assert_eq!(hidden("ä abc\u{a0}abcdefgh\n"), "ä abc\u{a0}(hidden)\n");
        assert_eq!(without_keys("abc", &HashSet::new()), "abc");
    }

    #[test]
    fn comments_and_domains_are_not_shown() {
        let rules = "udp dport 5 accept comment \"Eve's laptop\"\ntcp dport 22 accept\n comment \"x";
        assert_eq!(
            without_comments(rules),
            "udp dport 5 accept comment \"(hidden)\"\ntcp dport 22 accept\n comment \"(hidden)\""
        );
        assert_eq!(redact("DNS = 10.0.0.1, corp.example, fd00::1\n", false), "DNS = 10.0.0.1, (hidden), fd00::1\n");
        assert_eq!(redact("DNS = 10.0.0.1, corp.example\n", true), "DNS = 10.0.0.1, corp.example\n");
    }

    #[test]
    fn an_archive_has_what_was_put_into_it() {
        let texts = BTreeMap::from([("a/b".to_owned(), "text".to_owned()), ("c".to_owned(), String::new())]);
        let bytes = archive(&texts).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let names: Vec<_> =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
        assert_eq!(names, ["linerate-bundle/a/b", "linerate-bundle/c"]);
    }
}
