//! The reading of a tunnel's file: lines become fields, and everything that is wrong is collected.
//!
//! This is which key stands where; what the values mean is for [`interface`] and [`peer`].

mod interface;
mod peer;

use self::peer::{Draft, Peers};
use super::values::Wrong;
use super::{Mistake, Names, Severity, TunnelFile, keys};
use crate::config::is_slip_of;
use crate::document::{Document, Entry, Key, Kind, Section};
use crate::interface::InterfaceName;

pub(super) fn read(document: &Document, interface: &InterfaceName, names: &dyn Names) -> (TunnelFile, Vec<Mistake>) {
    let mut reader = Reader {
        file: TunnelFile::empty(interface),
        peers: Peers::default(),
        key_file: None,
        mistakes: Mistakes(Vec::new()),
        names,
    };
    if document.has_byte_order_mark() {
        let what = "a byte order mark stands before the text, which wg refuses";
        reader.mistakes.warn(Place { line: 1, column: 1 }, what, "save the file as UTF-8 without it");
    }
    let mut line = 1;
    for section in document.sections() {
        reader.section(section, line);
        line += section.lines().len();
    }
    reader.finish()
}

struct Reader<'a> {
    file: TunnelFile,
    peers: Peers,
    /// Where `PrivateKeyFile` stands.
    key_file: Option<Place>,
    mistakes: Mistakes,
    names: &'a dyn Names,
}

/// What is wrong so far.
struct Mistakes(Vec<Mistake>);

/// A character of the file.
#[derive(Clone, Copy)]
struct Place {
    line: usize,
    column: usize,
}

/// A line with a key and where it is.
struct Located<'a> {
    entry: Entry<'a>,
    line: usize,
}

impl Located<'_> {
    fn key(&self) -> Place {
        Place { line: self.line, column: self.entry.key_column() }
    }

    fn value(&self) -> Place {
        self.inside(0)
    }

    /// The place `offset` bytes behind where the value begins.
    fn inside(&self, offset: usize) -> Place {
        Place { line: self.line, column: self.entry.value_column(offset) }
    }
}

impl Reader<'_> {
    fn section(&mut self, section: &Section, first_line: usize) {
        let header = Place { line: first_line + section.header(), column: 1 };
        if section.kind() == Kind::Other {
            self.mistakes.error(header, "this is not a section", "[Interface] and [Peer] are");
        }
        for index in section.unknown_lines() {
            let place = Place { line: first_line + index, column: 1 };
            self.mistakes.error(place, "this line is neither a comment nor a key with a value", "KEY = VALUE is one");
        }
        for (line, _) in (first_line..).zip(section.lines()).filter(|(_, text)| text.contains(&0)) {
            let place = Place { line, column: 1 };
            self.mistakes.warn(place, "there is a NUL in this line: what follows it does not count", "remove it");
        }
        let mut draft = Draft::named(section.name());
        let mut seen = Vec::new();
        for entry in section.entries() {
            let line = first_line + entry.index;
            let entry = Located { entry, line };
            let Some(key) = self.key(&entry, section.kind()) else { continue };
            if !keys::may_repeat(&key) && seen.contains(&key.name) {
                self.mistakes.warn(entry.key(), format!("{} is there twice", key.name), "the last counts");
            }
            seen.push(key.name);
            self.entry(&key, &entry, &mut draft);
        }
        if section.kind() == Kind::Peer {
            self.peers.adopt(draft, header, &mut self.mistakes);
        }
    }

    /// The key of a line, if it may stand there.
    fn key(&mut self, at: &Located<'_>, section: Kind) -> Option<Key> {
        let name = at.entry.key();
        let known = keys::all().find(|known| known.name.eq_ignore_ascii_case(&name));
        let Some(key) = known else {
            if section != Kind::Other {
                self.unknown(at, &name);
            }
            return None;
        };
        let name = key.name;
        let place = at.key();
        match section {
            _ if at.entry.marked && !key.marked => {
                self.mistakes.warn(
                    place,
                    format!("{name} is only a comment behind `#!`"),
                    "remove `#!` if it is to count",
                );
            }
            Kind::Start => {
                let header = header(key.section);
                self.mistakes.error(
                    place,
                    format!("{name} stands before any section"),
                    format!("{header} belongs above it"),
                );
            }
            Kind::Other => {}
            _ if section != key.section => {
                let (here, there) = (header(section), header(key.section));
                self.mistakes.error(
                    place,
                    format!("{name} does not belong into {here}"),
                    format!("it belongs into {there}"),
                );
            }
            _ if key.marked && !at.entry.marked => {
                let what = format!("{name} is a key that wg and wg-quick do not know");
                self.mistakes.error(place, what, format!("write it behind a mark: `#! {name} = …`"));
            }
            _ => return Some(key),
        }
        None
    }

    fn unknown(&mut self, at: &Located<'_>, name: &str) {
        // What does not look like a name may be a secret in the wrong place.
        let is_name = name.len() <= 30 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let what = if is_name { format!("there is no key {name}") } else { "there is no such key".into() };
        let meant = keys::all().find(|known| known.marked == at.entry.marked && is_slip_of(name, known.name));
        match meant {
            _ if at.entry.marked && meant.is_none() => {
                self.mistakes.warn(at.key(), what, "the line counts as a comment")
            }
            Some(meant) => self.mistakes.error(at.key(), what, format!("{} may be meant", meant.name)),
            None => self.mistakes.add(Severity::Error, at.key(), what, None),
        }
    }

    fn entry(&mut self, key: &Key, at: &Located<'_>, draft: &mut Draft) {
        let bytes = if key.whole_line { at.entry.whole_value() } else { at.entry.value() };
        if bytes.is_empty() {
            self.empty(key, at);
            return;
        }
        let Ok(value) = std::str::from_utf8(bytes) else {
            self.mistakes.error(
                at.value(),
                format!("the value of {} is not UTF-8", key.name),
                "save the file as UTF-8",
            );
            return;
        };
        if key.section == Kind::Peer {
            draft.entry(key, at, value, &mut self.mistakes);
        } else {
            self.interface_entry(key, at, value);
        }
    }

    fn empty(&mut self, key: &Key, at: &Located<'_>) {
        let what = format!("{} has no value", key.name);
        let hint = "give it one or remove the line";
        // wg-quick takes its own keys without a value, but for this one.
        let severity = if keys::OF_WG_QUICK.contains(key) && *key != keys::SAVE_CONFIG {
            Severity::Warning
        } else {
            Severity::Error
        };
        self.mistakes.add(severity, at.key(), what, Some(hint.into()));
    }

    fn finish(mut self) -> (TunnelFile, Vec<Mistake>) {
        if let (Some(place), Some(_)) = (self.key_file, &self.file.private_key) {
            self.mistakes.error(place, "there are both PrivateKey and PrivateKeyFile", "keep one of them");
        }
        self.file.peers = self.peers.list;
        self.mistakes.0.sort_by_key(|mistake| (mistake.line, mistake.column));
        (self.file, self.mistakes.0)
    }
}

impl Mistakes {
    /// Puts a value where it belongs, or says what is wrong with it; what was there before then stays.
    fn take<T>(&mut self, place: Place, value: Result<T, Wrong>, slot: &mut T) {
        if let Some(value) = self.judged(place, value) {
            *slot = value;
        }
    }

    /// The value, if nothing is wrong with it.
    fn judged<T>(&mut self, place: Place, value: Result<T, Wrong>) -> Option<T> {
        value.map_err(|Wrong { what, hint }| self.error(place, what, hint)).ok()
    }

    fn error(&mut self, place: Place, what: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Error, place, what.into(), Some(hint.into()));
    }

    fn warn(&mut self, place: Place, what: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Warning, place, what.into(), Some(hint.into()));
    }

    fn add(&mut self, severity: Severity, place: Place, what: String, hint: Option<String>) {
        self.0.push(Mistake { severity, line: place.line, column: place.column, what, hint });
    }
}

fn header(section: Kind) -> &'static str {
    if section == Kind::Peer { "[Peer]" } else { "[Interface]" }
}
