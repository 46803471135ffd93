//! Reads a tunnel file: turns lines into fields and collects all diagnostics.
//!
//! This module checks which settings are where; [`interface`] and [`peer`] read their values.

mod interface;
mod peer;

use memchr::memchr;

pub(crate) use self::peer::PeerSection;
use self::peer::Peers;
use super::group::{self, InvalidGroup};
use super::values::InvalidValue;
use super::{Diagnostic, Names, Severity, TunnelFile, name_odd_characters, settings};
use crate::characters::{Odd, ascii_twin};
use crate::document::{Document, Entry, LineKind, Section, SectionKind, Setting};
use crate::interface::InterfaceName;
use crate::keys::PublicKey;
use crate::wg_config::is_typo_of;

pub(super) fn read(
    document: &Document,
    interface: &InterfaceName,
    names: &dyn Names,
    with_disabled: bool,
    own: Option<&PublicKey>,
) -> (TunnelFile, Vec<Diagnostic>) {
    let mut reader = Reader {
        file: TunnelFile::empty(interface),
        peers: Peers::for_sections(document.sections().len()),
        key_file: None,
        diagnostics: Diagnostics(Vec::new()),
        names,
    };
    if let Some(encoding) = document.wide_encoding() {
        let message = format!("the file seems to be {encoding}, and cannot be read");
        reader.diagnostics.error(Span { line: 1, column: 1 }, message, "save it as UTF-8");
        return reader.finish();
    }
    if document.has_byte_order_mark() {
        let message = "the file begins with a byte order mark, which wg rejects";
        reader.diagnostics.warn(Span { line: 1, column: 1 }, message, "save it as UTF-8 without one");
    }
    let mut line = 1;
    for (index, section) in document.sections().iter().enumerate() {
        match section.kind() {
            SectionKind::DisabledPeer if !with_disabled => reader.disabled(section, line),
            SectionKind::Peer | SectionKind::DisabledPeer => {
                let header = line + section.header();
                let read = section.peer(header, index);
                if own.is_some() && read.public_key() == own {
                    let message = "this peer has the interface's own public key, and is left out";
                    reader.diagnostics.warn(
                        Span { line: header, column: 1 },
                        message,
                        "an interface is not its own peer",
                    );
                } else {
                    reader.peers.add(read, index, line, header, &mut reader.diagnostics);
                }
            }
            _ => reader.section(section, line),
        }
        line += section.line_count();
    }
    let (file, mut diagnostics) = reader.finish();
    name_odd_characters(document.sections().iter().flat_map(Section::lines), &mut diagnostics);
    (file, diagnostics)
}

struct Reader<'a> {
    file: TunnelFile,
    peers: Peers,
    /// Where `PrivateKeyFile` is set.
    key_file: Option<Span>,
    diagnostics: Diagnostics,
    names: &'a dyn Names,
}

/// What was found so far.
#[derive(Clone, Default)]
struct Diagnostics(Vec<Diagnostic>);

/// Where in the file a diagnostic points: a line and a column, from 1.
#[derive(Clone, Copy)]
struct Span {
    line: usize,
    column: usize,
}

impl Span {
    /// The same place, in a text that begins `lines` further down.
    fn below(self, lines: usize) -> Self {
        Self { line: self.line + lines, ..self }
    }
}

/// An entry and its line in the file.
struct Located<'a> {
    entry: Entry<'a>,
    line: usize,
}

impl Located<'_> {
    fn name(&self) -> Span {
        Span { line: self.line, column: self.entry.name_column() }
    }

    fn value(&self) -> Span {
        self.inside(0)
    }

    /// `offset` bytes into the value.
    fn inside(&self, offset: usize) -> Span {
        Span { line: self.line, column: self.entry.value_column(offset) }
    }
}

impl Reader<'_> {
    /// A disabled peer has only comments. Other tools read a setting below it as one of the section above.
    fn disabled(&mut self, section: &Section, first_line: usize) {
        let is_read = |kind: &LineKind<'_>| matches!(kind, LineKind::Entry(_) | LineKind::Unknown);
        for (line, _) in (first_line..).zip(section.kinds()).filter(|(_, (_, kind))| is_read(kind)) {
            let span = Span { line, column: 1 };
            let message = "this line is below a disabled peer, so other tools take it for one of the section above";
            self.diagnostics.error(span, message, "begin it with `#~ `, or move it to its section");
        }
    }

    /// A section that is not that of a peer.
    fn section(&mut self, section: &Section, first_line: usize) {
        if section.kind() == SectionKind::Other {
            let header = Span { line: first_line + section.header(), column: 1 };
            self.diagnostics.error(header, "unknown section", "use [Interface] or [Peer]");
        }
        let mut seen = Vec::new();
        for (line, (text, kind)) in (first_line..).zip(section.kinds()) {
            if let Some((setting, at, value)) = self.diagnostics.line(line, text, kind, section.kind(), &mut seen) {
                self.interface_entry(&setting, &at, value);
            }
        }
    }

    fn finish(mut self) -> (TunnelFile, Vec<Diagnostic>) {
        if let (Some(span), Some(_)) = (self.key_file, &self.file.private_key) {
            self.diagnostics.error(span, "PrivateKey and PrivateKeyFile are both set", "keep one of them");
        }
        self.file.peers = self.peers.list;
        for InvalidGroup { line, message, hint } in group::complete(&mut self.file) {
            self.diagnostics.error(Span { line, column: 1 }, message, hint);
        }
        self.diagnostics.0.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        (self.file, self.diagnostics.0)
    }
}

impl Diagnostics {
    /// The setting in a line of a section, with its value, as far as it can be read. `seen` are those above it.
    fn line<'a>(
        &mut self,
        line: usize,
        text: &[u8],
        kind: LineKind<'a>,
        section: SectionKind,
        seen: &mut Vec<&'static str>,
    ) -> Option<(Setting, Located<'a>, &'a str)> {
        let span = Span { line, column: 1 };
        if matches!(kind, LineKind::Unknown) {
            self.error(span, "this line is neither a comment nor a setting", "write NAME = VALUE");
        }
        if memchr(0, text).is_some() {
            self.warn(span, "this line contains a NUL byte: everything after it is ignored", "remove it");
        }
        if let LineKind::Comment(comment) = kind
            && let Some(setting) = disguised(comment)
        {
            let message = format!("{} is not set: this line is taken for a comment", setting.name);
            self.error(span, message, format!("write `#! {} = …`", setting.name));
        }
        let LineKind::Entry(entry) = kind else { return None };
        let at = Located { entry, line };
        let setting = self.setting(&at, section)?;
        if seen.contains(&setting.name) && !settings::may_repeat(&setting) {
            self.warn(at.name(), format!("{} is set twice", setting.name), "the last one counts");
        }
        seen.push(setting.name);
        let value = self.value(&setting, &at)?;
        // A shell takes it for a part of a word.
        if setting.whole_line
            && let Some(odd) = Odd::first_invisible(text.trim_ascii_end())
        {
            let hint = odd.hint().unwrap_or_default();
            self.warn(Span { line, column: odd.column }, format!("in the command is {odd}"), hint);
        }
        Some((setting, at, value))
    }

    /// The setting of an entry, if it is allowed there.
    fn setting(&mut self, at: &Located<'_>, section: SectionKind) -> Option<Setting> {
        let is_named = |known: &&Setting| at.entry.is_named(known.name);
        let here = settings::of(section).find(is_named);
        let Some(&setting) = here.or_else(|| settings::all().find(is_named)) else {
            if section != SectionKind::Other {
                self.unknown(at, &at.entry.name());
            }
            return None;
        };
        let name = setting.name;
        let span = at.name();
        match section {
            _ if at.entry.marked && !setting.marked => {
                self.warn(span, format!("{name} after `#!` is only a comment"), "remove `#!` to set it");
            }
            SectionKind::Start => {
                let header = header(setting.section);
                self.error(span, format!("{name} is outside of any section"), format!("put it below {header}"));
            }
            SectionKind::Other => {}
            _ if section != setting.section => {
                let (here, there) = (header(section), header(setting.section));
                self.error(span, format!("{name} does not belong in {here}"), format!("move it to {there}"));
            }
            _ if setting.marked && !at.entry.marked => {
                let message = format!("{name} is unknown to wg and wg-quick");
                self.error(span, message, format!("write it as `#! {name} = …`"));
            }
            _ => return Some(setting),
        }
        None
    }

    fn unknown(&mut self, at: &Located<'_>, name: &str) {
        // Anything that does not look like a name may be a misplaced secret.
        let is_name = name.len() <= 30 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let message = if is_name { format!("unknown setting {name}") } else { "unknown setting".into() };
        let meant = settings::all().find(|known| known.marked == at.entry.marked && is_typo_of(name, known.name));
        match meant {
            _ if at.entry.marked && meant.is_none() => {
                self.warn(at.name(), message, "the line is ignored as a comment")
            }
            Some(meant) => self.error(at.name(), message, format!("did you mean {}?", meant.name)),
            None => self.add(Severity::Error, at.name(), message, None),
        }
    }

    /// The text of a value.
    fn value<'a>(&mut self, setting: &Setting, at: &Located<'a>) -> Option<&'a str> {
        let bytes = if setting.whole_line { at.entry.whole_value() } else { at.entry.value() };
        if bytes.is_empty() {
            self.empty(setting, at);
            return None;
        }
        let value = std::str::from_utf8(bytes);
        if value.is_err() {
            let message = format!("the value of {} is not UTF-8", setting.name);
            self.error(at.value(), message, "save the file as UTF-8");
        }
        value.ok()
    }

    fn empty(&mut self, setting: &Setting, at: &Located<'_>) {
        let message = format!("{} has no value", setting.name);
        let hint = "add one or remove the line";
        // wg-quick accepts its own settings without a value, except this one.
        let severity = if settings::OF_WG_QUICK.contains(setting) && *setting != settings::SAVE_CONFIG {
            Severity::Warning
        } else {
            Severity::Error
        };
        self.add(severity, at.name(), message, Some(hint.into()));
    }

    /// Stores a valid value in `slot`, or reports what is wrong and leaves `slot` as it is.
    fn store<T>(&mut self, span: Span, value: Result<T, InvalidValue>, slot: &mut T) {
        if let Some(value) = self.check(span, value) {
            *slot = value;
        }
    }

    /// The value if it is valid; otherwise reports what is wrong.
    fn check<T>(&mut self, span: Span, value: Result<T, InvalidValue>) -> Option<T> {
        value.map_err(|InvalidValue { message, hint }| self.error(span, message, hint)).ok()
    }

    fn error(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Error, span, message.into(), Some(hint.into()));
    }

    fn warn(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Warning, span, message.into(), Some(hint.into()));
    }

    fn add(&mut self, severity: Severity, span: Span, message: String, hint: Option<String>) {
        self.0.push(Diagnostic { severity, line: span.line, column: span.column, message, hint });
    }
}

/// The setting that a comment would be but for characters that are not seen or taken for others.
fn disguised(comment: &[u8]) -> Option<&'static Setting> {
    let name = comment.strip_prefix(b"!").filter(|text| !text.is_ascii())?;
    let name = &name[..memchr(b'=', name)?];
    Odd::first(name)?;
    let plain = String::from_utf8_lossy(name);
    let plain: String = plain.chars().filter_map(ascii_twin).filter(char::is_ascii_alphanumeric).collect();
    let is_meant = |known: &&Setting| known.marked && known.name.eq_ignore_ascii_case(&plain);
    settings::all().find(is_meant)
}

fn header(section: SectionKind) -> &'static str {
    if section == SectionKind::Peer { "[Peer]" } else { "[Interface]" }
}
