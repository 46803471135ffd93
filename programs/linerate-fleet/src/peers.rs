//! Peers as sections of a tunnel's file, and as values of the store. A section is kept line by line, so what an administrator
//! writes on one gateway, comments included, is what another has.
//!
//! Lines with secrets are sealed in the store: a mark stands in their place.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use blake2::{Blake2s256, Digest};
use linerate_control::document::{Document, Section as FileSection, SectionKind};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::{self, Severity, TunnelFile, settings};
use linerate_control::zeroizing::Buffer;
use linerate_tunnel::System;
use zeroize::Zeroizing;

use crate::seal::Seal;
use crate::store::layout::{self, Keys, NUMBERS};
use crate::store::{KeyValue, Operation};

/// Stands for a line that is sealed.
const MARK: &[u8] = b"# (sealed)\n";

/// So many characters of base64 in a row may be a key.
const KEY_LENGTH: usize = 43;

/// The section of a peer: lines that end with a line feed, the last of them not blank. It may hold secrets, so it has no
/// `Debug`.
#[derive(Clone)]
pub struct Section(Arc<Buffer>);

impl PartialEq for Section {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0[..] == other.0[..]
    }
}

impl Eq for Section {}

/// The peers of a tunnel's file by their keys.
pub type Sections = BTreeMap<PublicKey, Section>;

/// A peer that is in force in the fleet.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub number: u32,
    /// Its section.
    pub section: Section,
    /// What that says.
    pub contents: Arc<tunnel_file::Peer>,
    /// Whether it is not disabled.
    pub is_enabled: bool,
}

impl Section {
    /// A section of a file.
    fn of(section: &FileSection) -> Self {
        let lines: Vec<&[u8]> = section.lines().map(<[u8]>::trim_ascii_end).collect();
        let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        let start = lines.iter().position(|line| !line.is_empty()).unwrap_or(0);
        let mut text = Buffer::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
        for line in &lines[start.min(end)..end] {
            text.extend(line);
            text.extend(b"\n");
        }
        Self(Arc::new(text))
    }

    /// Its text.
    pub fn text(&self) -> &[u8] {
        &self.0
    }

    /// What puts it into the store.
    ///
    /// # Errors
    /// It is too long, or not text.
    pub fn put(&self, key: &PublicKey, number: u32, keys: &Keys, seal: &Seal) -> Result<Operation, String> {
        let (section, secrets) = split(self.text());
        let section =
            String::from_utf8(section).map_err(|_| format!("the peer {key} has characters that are not UTF-8"))?;
        let sealed = match secrets.is_empty() {
            true => None,
            false => Some(BASE64.encode(seal.seal(key, &secrets)?)),
        };
        let store_key = keys.peer(key);
        let value = layout::signed(seal, &store_key, &layout::Peer { number, section, sealed });
        match value.len() > layout::VALUE_MAX {
            true => Err(format!("the peer {key} is too long for the store: shorten its comments or AllowedIPs")),
            false => Ok(Operation::Put(store_key, value)),
        }
    }
}

/// The section without its secret lines, and those lines.
fn split(text: &[u8]) -> (Vec<u8>, Buffer) {
    let document = Document::parse(text);
    let (mut section, mut secrets) = (Vec::with_capacity(text.len()), Buffer::new());
    for part in document.sections() {
        let enabled = part.enabled();
        let known: BTreeMap<usize, bool> = enabled.entries().map(|entry| (entry.index, is_public(&entry))).collect();
        for (index, line) in part.lines().enumerate() {
            match is_secret(line, known.get(&index).copied()) {
                true => {
                    secrets.extend(line);
                    section.extend_from_slice(MARK);
                }
                false => section.extend_from_slice(line),
            }
        }
    }
    (section, secrets)
}

/// Whether a setting is that of a key which everybody may know.
fn is_public(entry: &linerate_control::document::Entry<'_>) -> bool {
    entry.is(&settings::PUBLIC_KEY) || entry.is(&settings::NEXT_PUBLIC_KEY)
}

/// Whether a line is sealed: what may have a key, wherever that is, and what looks like the mark.
fn is_secret(line: &[u8], is_public: Option<bool>) -> bool {
    let is_of_key = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let has_key = || line.split(|byte| !is_of_key(byte)).any(|word| word.len() >= KEY_LENGTH);
    line == MARK || (is_public != Some(true) && has_key())
}

/// The section with its secret lines.
fn joined(section: &[u8], secrets: &[u8]) -> Option<Buffer> {
    let mut text = Buffer::with_capacity(section.len() + secrets.len());
    let mut secrets = secrets.split_inclusive(|byte| *byte == b'\n');
    for line in section.split_inclusive(|byte| *byte == b'\n') {
        text.extend(if line == MARK { secrets.next()? } else { line });
    }
    secrets.next().is_none().then_some(text)
}

/// Reads what the store has of a peer, whoever has written it.
///
/// # Errors
/// Why it is refused.
pub fn read(key: &PublicKey, kv: &KeyValue, seal: &Seal, interface: &InterfaceName) -> Result<Peer, String> {
    let layout::Peer { number, section, sealed } = layout::read(seal, kv)?;
    if number >= NUMBERS {
        return Err(format!("its number {number} is not below {NUMBERS}"));
    }
    let opened = || {
        let Some(sealed) = &sealed else { return Some(Zeroizing::default()) };
        seal.open(key, &BASE64.decode(sealed).ok()?)
    };
    let secrets = opened().ok_or("its secrets were not sealed with this fleet's key")?;
    let text = joined(section.as_bytes(), &secrets).ok_or("its secrets do not fit its section")?;
    let is_text = |byte: &u8| !byte.is_ascii_control() || matches!(byte, b'\n' | b'\t');
    if !text.iter().all(is_text) {
        return Err("it has control characters".to_owned());
    }
    peer(key, number, &text, interface)
}

/// A peer with this number, of the text of its section.
///
/// # Errors
/// Why it cannot be in a fleet.
pub fn peer(key: &PublicKey, number: u32, text: &[u8], interface: &InterfaceName) -> Result<Peer, String> {
    let document = Document::parse(text);
    let [start, section] = document.sections() else { return Err("it is not one section".to_owned()) };
    let is_enabled = section.kind() == SectionKind::Peer;
    if start.lines().next().is_some() || !matches!(section.kind(), SectionKind::Peer | SectionKind::DisabledPeer) {
        return Err("it is not the section of a peer".to_owned());
    }
    let section = Section::of(section);
    if section.text() != text {
        return Err("it has blank lines around it, or ends without a line feed".to_owned());
    }
    let (file, diagnostics) = TunnelFile::read_with_disabled(&document, interface, &System);
    if let Some(error) = diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Error) {
        return Err(error.to_string());
    }
    let [contents] = &file.peers[..] else { return Err("it has no PublicKey".to_owned()) };
    if contents.public_key != *key {
        return Err(format!("its PublicKey is another one, {}", contents.public_key));
    }
    if contents.preshared_key_file.is_some() {
        return Err("its PresharedKeyFile is a file that other gateways do not have: write PresharedKey".to_owned());
    }
    Ok(Peer { number, section, contents: Arc::clone(contents), is_enabled })
}

/// The peers of a file.
///
/// # Errors
/// One has no key, or several sections: which, and what to do.
pub fn sections(document: &Document, interface: &InterfaceName) -> Result<Sections, String> {
    let mut all = Sections::new();
    for section in document.sections().iter().filter(|section| is_peer(section)) {
        let key = key_of(section)
            .ok_or_else(|| format!("{interface} has a [Peer] without PublicKey: complete or remove it"))?;
        if all.insert(key, Section::of(section)).is_some() {
            return Err(format!("the peer {key} has two sections in the file of {interface}: make them one"));
        }
    }
    Ok(all)
}

/// Checks that other gateways can have this peer.
///
/// # Errors
/// Why not.
pub fn check(key: &PublicKey, section: &Section, interface: &InterfaceName) -> Result<(), String> {
    let read = peer(key, 0, section.text(), interface);
    read.map(drop).map_err(|why| format!("the peer {key} cannot be in a fleet: {why}"))
}

fn is_peer(section: &FileSection) -> bool {
    matches!(section.kind(), SectionKind::Peer | SectionKind::DisabledPeer)
}

fn key_of(section: &FileSection) -> Option<PublicKey> {
    let enabled = section.enabled();
    let last = enabled.entries().rfind(|entry| entry.is(&settings::PUBLIC_KEY))?;
    PublicKey::from_base64(last.value())
}

/// The file with exactly these peers: sections that are as they should be stay byte for byte, and new ones come last, in
/// the order given.
pub fn with_peers<'a>(document: &Document, peers: impl Iterator<Item = (&'a PublicKey, &'a Section)>) -> Buffer {
    let peers: Vec<(&PublicKey, &Section)> = peers.collect();
    let mut left: BTreeMap<&PublicKey, &Section> = peers.iter().copied().collect();
    let mut text = Buffer::with_capacity(document.to_bytes().len());
    for section in document.sections() {
        if !is_peer(section) {
            section.lines().for_each(|line| text.extend(line));
            continue;
        }
        let wanted = key_of(section).and_then(|key| left.remove(&key));
        match wanted {
            Some(wanted) if *wanted == Section::of(section) => section.lines().for_each(|line| text.extend(line)),
            Some(wanted) => append(&mut text, wanted),
            None => {}
        }
    }
    peers.into_iter().filter(|(key, _)| left.contains_key(key)).for_each(|(_, section)| append(&mut text, section));
    text
}

/// Adds a section, with an empty line before it and, if another follows, one behind it.
fn append(text: &mut Buffer, section: &Section) {
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.extend(b"\n");
    }
    if !text.is_empty() && !text.ends_with(b"\n\n") {
        text.extend(b"\n");
    }
    text.extend(section.text());
    text.extend(b"\n");
}

/// What two sets of peers differ in.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// New or changed.
    pub put: Vec<PublicKey>,
    /// Not there any more.
    pub gone: Vec<PublicKey>,
}

impl Difference {
    /// From one to the other.
    pub fn between<T: PartialEq>(from: &BTreeMap<PublicKey, T>, to: &BTreeMap<PublicKey, T>) -> Self {
        let is_new = |(key, value): &(&PublicKey, &T)| from.get(key) != Some(value);
        let is_gone = |key: &&PublicKey| !to.contains_key(key);
        Self {
            put: to.iter().filter(is_new).map(|(key, _)| *key).collect(),
            gone: from.keys().filter(is_gone).copied().collect(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.gone.is_empty()
    }
}

/// By which a file is known to have exactly these peers.
pub fn digest(sections: &Sections) -> String {
    let mut hash = Blake2s256::new();
    for (key, section) in sections {
        hash.update(key.0);
        hash.update((section.text().len() as u64).to_le_bytes());
        hash.update(section.text());
    }
    BASE64.encode(hash.finalize())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::store::model;
    use linerate_control::keys::SecretKey;
    use proptest::prelude::*;

    pub(crate) fn seal() -> Seal {
        Seal::new(&SecretKey::from_bytes(&[1; 32]), &"berlin".parse().unwrap())
    }

    pub(crate) fn keys() -> Keys {
        Keys::of(&"berlin".parse().unwrap())
    }

    pub(crate) fn wg0() -> InterfaceName {
        "wg0".parse().unwrap()
    }

    const SECRET: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIkIUGAHfBmk=";

    /// A section of a peer.
    pub(crate) fn text(byte: u8, note: &str) -> String {
        let key = PublicKey([byte; 32]);
        format!(
            "# above\n[Peer]\n# Name = p{byte}\nPublicKey = {key}\nPresharedKey = {SECRET}\nAllowedIPs = 10.9.0.{byte}/32\n{note}"
        )
    }

    fn file(peers: &[(u8, bool)]) -> Document {
        let mut file = "# head\n[Interface]\nListenPort = 1\n\n".to_owned();
        peers.iter().for_each(|(byte, noted)| {
            file += &format!("{}\n\n", text(*byte, if *noted { "#! Note = x\n" } else { "" }))
        });
        let mut document = Document::parse(file.as_bytes());
        if peers.len() > 2 {
            document.disable(2);
        }
        document
    }

    fn peers() -> impl Strategy<Value = Vec<(u8, bool)>> {
        prop::collection::btree_map(1u8..9, any::<bool>(), 0..6).prop_map(|peers| peers.into_iter().collect())
    }

    proptest! {
        #[test]
        fn a_file_follows_any_view_and_what_is_right_stays_byte_for_byte(from in peers(), to in peers()) {
            let (from, to) = (file(&from), file(&to));
            let wanted = sections(&to, &wg0()).unwrap();
            let followed = with_peers(&from, wanted.iter());
            let again = Document::parse(&followed);
            prop_assert!(sections(&again, &wg0()).unwrap() == wanted);
            prop_assert_eq!(&with_peers(&again, wanted.iter())[..], &followed[..]);
            let own = sections(&from, &wg0()).unwrap();
            prop_assert_eq!(&with_peers(&from, own.iter())[..], &from.to_bytes()[..]);
            prop_assert_eq!(digest(&own) == digest(&wanted), own == wanted);
        }

        #[test]
        fn what_is_put_into_the_store_is_what_comes_out_and_no_secret_is_in_it(peers in peers(), number in 0..NUMBERS) {
            for (key, section) in sections(&file(&peers), &wg0()).unwrap() {
                let kv = model::key_value(section.put(&key, number, &keys(), &seal()).unwrap(), 1);
                prop_assert!(!String::from_utf8_lossy(&kv.value).contains(&SECRET[..20]));
                let peer = read(&key, &kv, &seal(), &wg0()).unwrap();
                prop_assert!(peer.section == section && peer.number == number);
                prop_assert!(peer.contents.preshared_key.is_some());
            }
        }

        #[test]
        fn any_text_is_split_and_joined_without_loss(lines in prop::collection::vec(
            prop_oneof!["[a-z =#]{0,9}", Just(format!("PresharedKey={SECRET}")), Just("# (sealed)".to_owned()),
                Just(format!("#~ #! ClientPrivateKey = {SECRET}")), Just("[Peer]".to_owned())], 0..9))
        {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let (section, secrets) = split(text.as_bytes());
            prop_assert!(!String::from_utf8_lossy(&section).contains(SECRET));
            prop_assert_eq!(&joined(&section, &secrets).unwrap()[..], text.as_bytes());
        }

        #[test]
        fn a_difference_leads_from_one_to_the_other(from in peers(), to in peers()) {
            let [from, to]: [BTreeMap<PublicKey, bool>; 2] =
                [from, to].map(|peers| peers.into_iter().map(|(byte, noted)| (PublicKey([byte; 32]), noted)).collect());
            let difference = Difference::between(&from, &to);
            let mut followed = from.clone();
            difference.gone.iter().for_each(|key| assert!(followed.remove(key).is_some()));
            followed.extend(difference.put.iter().map(|key| (*key, to[key])));
            prop_assert_eq!(&followed, &to);
            prop_assert_eq!(difference.is_empty(), from == to);
        }

        #[test]
        fn no_peer_makes_the_reader_panic(number: u32, section: String, sealed: Option<String>) {
            let key = PublicKey([1; 32]);
            let put = layout::put(&seal(), keys().peer(&key), &layout::Peer { number, section, sealed });
            let _ = read(&key, &model::key_value(put, 1), &seal(), &wg0());
        }
    }

    #[test]
    fn bad_peers_are_refused_with_the_reason() {
        let key = PublicKey([7; 32]);
        let value = |number: u32, section: &str, sealed: Option<&str>| {
            let sealed = sealed.map(str::to_owned);
            layout::signed(&seal(), &keys().peer(&key), &layout::Peer { number, section: section.to_owned(), sealed })
        };
        let read = |value: Vec<u8>| {
            read(&key, &model::key_value(Operation::Put(keys().peer(&key), value), 1), &seal(), &wg0())
        };
        let good = format!("[Peer]\nPublicKey = {key}\nAllowedIPs = 10.9.0.7/32\n");
        assert!(read(value(1, &good, None)).is_ok());
        for (value, why) in [
            (b"nonsense".to_vec(), "private key"),
            (layout::signed(&seal(), &keys().peer(&key), &"nonsense"), "not as it should be"),
            (layout::signed(&seal(), &keys().peer(&PublicKey([8; 32])), &1), "private key"),
            (vec![b' '; layout::VALUE_MAX + 1], "longer than"),
            (value(NUMBERS, &good, None), "number"),
            (value(1, &good, Some("AAAA")), "sealed"),
            (value(1, &good, Some("%")), "sealed"),
            (value(1, &format!("{good}# (sealed)\n"), None), "do not fit"),
            (value(1, "", None), "not one section"),
            (value(1, &format!("[Interface]\nPostUp = reboot\n{good}"), None), "not one section"),
            (value(1, "[Interface]\nPostUp = reboot\n", None), "not the section of a peer"),
            (value(1, &format!("{good}[Peer]\n"), None), "not one section"),
            (value(1, &good.replace("10.9.0.7/32", "10.9.0.7/33"), None), "33"),
            (value(1, &good.replace(&key.to_string(), &PublicKey([8; 32]).to_string()), None), "another one"),
            (value(1, "[Peer]\nAllowedIPs = 10.9.0.7/32\n", None), "PublicKey"),
            (value(1, &format!("{good}#! PresharedKeyFile = /etc/shadow\n"), None), "PresharedKeyFile"),
            (value(1, &format!("{good}\u{1b}[2J\n"), None), "control characters"),
            (value(1, good.trim_end(), None), "line feed"),
        ] {
            let said = read(value).err().unwrap_or_default();
            assert!(said.contains(why), "{why}: {said}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_shared_is_refused() {
        let twice = format!("{}\n{}", text(7, ""), text(7, ""));
        for (file, why) in [(twice.as_str(), "two sections"), ("[Peer]\n", "without PublicKey")] {
            let said = sections(&Document::parse(file.as_bytes()), &wg0()).err().unwrap_or_default();
            assert!(said.contains(why), "{said}");
        }
    }
}
