//! The reading of a tunnel's file: lines become fields, and everything that is wrong is collected.
//!
//! This is which key stands where; what the values mean is for [`interface`] and [`peer`].

mod interface;
mod peer;

use self::peer::{Draft, Peers};
use super::values::InvalidValue;
use super::{Diagnostic, Names, Severity, TunnelFile, keys};
use crate::document::{Document, Entry, Key, Section, SectionKind};
use crate::interface::InterfaceName;
use crate::wg_config::is_slip_of;

pub(super) fn read(document: &Document, interface: &InterfaceName, names: &dyn Names) -> (TunnelFile, Vec<Diagnostic>) {
    let mut reader = Reader {
        file: TunnelFile::empty(interface),
        peers: Peers::default(),
        key_file: None,
        diagnostics: Diagnostics(Vec::new()),
        names,
    };
    if document.has_byte_order_mark() {
        let what = "a byte order mark stands before the text, which wg refuses";
        reader.diagnostics.warn(Span { line: 1, column: 1 }, what, "save the file as UTF-8 without it");
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
    key_file: Option<Span>,
    diagnostics: Diagnostics,
    names: &'a dyn Names,
}

/// What is wrong so far.
struct Diagnostics(Vec<Diagnostic>);

/// A character of the file.
#[derive(Clone, Copy)]
struct Span {
    line: usize,
    column: usize,
}

/// A line with a key and where it is.
struct Located<'a> {
    entry: Entry<'a>,
    line: usize,
}

impl Located<'_> {
    fn key(&self) -> Span {
        Span { line: self.line, column: self.entry.key_column() }
    }

    fn value(&self) -> Span {
        self.inside(0)
    }

    /// The place `offset` bytes behind where the value begins.
    fn inside(&self, offset: usize) -> Span {
        Span { line: self.line, column: self.entry.value_column(offset) }
    }
}

impl Reader<'_> {
    fn section(&mut self, section: &Section, first_line: usize) {
        let header = Span { line: first_line + section.header(), column: 1 };
        if section.kind() == SectionKind::Other {
            self.diagnostics.error(header, "this is not a section", "[Interface] and [Peer] are");
        }
        for index in section.unknown_lines() {
            let place = Span { line: first_line + index, column: 1 };
            self.diagnostics.error(
                place,
                "this line is neither a comment nor a key with a value",
                "KEY = VALUE is one",
            );
        }
        for (line, _) in (first_line..).zip(section.lines()).filter(|(_, text)| text.contains(&0)) {
            let place = Span { line, column: 1 };
            self.diagnostics.warn(place, "there is a NUL in this line: what follows it does not count", "remove it");
        }
        let mut draft = Draft::named(section.name());
        let mut seen = Vec::new();
        for entry in section.entries() {
            let line = first_line + entry.index;
            let entry = Located { entry, line };
            let Some(key) = self.key(&entry, section.kind()) else { continue };
            if !keys::may_repeat(&key) && seen.contains(&key.name) {
                self.diagnostics.warn(entry.key(), format!("{} is there twice", key.name), "the last counts");
            }
            seen.push(key.name);
            self.entry(&key, &entry, &mut draft);
        }
        if section.kind() == SectionKind::Peer {
            self.peers.adopt(draft, header, &mut self.diagnostics);
        }
    }

    /// The key of a line, if it may stand there.
    fn key(&mut self, at: &Located<'_>, section: SectionKind) -> Option<Key> {
        let name = at.entry.key();
        let known = keys::all().find(|known| known.name.eq_ignore_ascii_case(&name));
        let Some(key) = known else {
            if section != SectionKind::Other {
                self.unknown(at, &name);
            }
            return None;
        };
        let name = key.name;
        let place = at.key();
        match section {
            _ if at.entry.marked && !key.marked => {
                self.diagnostics.warn(
                    place,
                    format!("{name} is only a comment behind `#!`"),
                    "remove `#!` if it is to count",
                );
            }
            SectionKind::Start => {
                let header = header(key.section);
                self.diagnostics.error(
                    place,
                    format!("{name} stands before any section"),
                    format!("{header} belongs above it"),
                );
            }
            SectionKind::Other => {}
            _ if section != key.section => {
                let (here, there) = (header(section), header(key.section));
                self.diagnostics.error(
                    place,
                    format!("{name} does not belong into {here}"),
                    format!("it belongs into {there}"),
                );
            }
            _ if key.marked && !at.entry.marked => {
                let what = format!("{name} is a key that wg and wg-quick do not know");
                self.diagnostics.error(place, what, format!("write it behind a mark: `#! {name} = …`"));
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
                self.diagnostics.warn(at.key(), what, "the line counts as a comment")
            }
            Some(meant) => self.diagnostics.error(at.key(), what, format!("{} may be meant", meant.name)),
            None => self.diagnostics.add(Severity::Error, at.key(), what, None),
        }
    }

    fn entry(&mut self, key: &Key, at: &Located<'_>, draft: &mut Draft) {
        let bytes = if key.whole_line { at.entry.whole_value() } else { at.entry.value() };
        if bytes.is_empty() {
            self.empty(key, at);
            return;
        }
        let Ok(value) = std::str::from_utf8(bytes) else {
            self.diagnostics.error(
                at.value(),
                format!("the value of {} is not UTF-8", key.name),
                "save the file as UTF-8",
            );
            return;
        };
        if key.section == SectionKind::Peer {
            draft.entry(key, at, value, &mut self.diagnostics);
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
        self.diagnostics.add(severity, at.key(), what, Some(hint.into()));
    }

    fn finish(mut self) -> (TunnelFile, Vec<Diagnostic>) {
        if let (Some(place), Some(_)) = (self.key_file, &self.file.private_key) {
            self.diagnostics.error(place, "there are both PrivateKey and PrivateKeyFile", "keep one of them");
        }
        self.file.peers = self.peers.list;
        self.diagnostics.0.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        (self.file, self.diagnostics.0)
    }
}

impl Diagnostics {
    /// Puts a value where it belongs, or says what is wrong with it; what was there before then stays.
    fn take<T>(&mut self, place: Span, value: Result<T, InvalidValue>, slot: &mut T) {
        if let Some(value) = self.judged(place, value) {
            *slot = value;
        }
    }

    /// The value, if nothing is wrong with it.
    fn judged<T>(&mut self, place: Span, value: Result<T, InvalidValue>) -> Option<T> {
        value.map_err(|InvalidValue { what, hint }| self.error(place, what, hint)).ok()
    }

    fn error(&mut self, place: Span, what: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Error, place, what.into(), Some(hint.into()));
    }

    fn warn(&mut self, place: Span, what: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Warning, place, what.into(), Some(hint.into()));
    }

    fn add(&mut self, severity: Severity, place: Span, what: String, hint: Option<String>) {
        self.0.push(Diagnostic { severity, line: place.line, column: place.column, what, hint });
    }
}

fn header(section: SectionKind) -> &'static str {
    if section == SectionKind::Peer { "[Peer]" } else { "[Interface]" }
}
