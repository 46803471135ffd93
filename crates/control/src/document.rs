//! A configuration file as lines that survive: what is not edited comes out byte for byte as it went in.
//!
//! Any bytes are a document; whether they make sense is for [`crate::tunnel_file`] to say. Sections and keys are found
//! as `wg` finds them (man 8 wg, CONFIGURATION FILE FORMAT): white space and case do not count, `#` begins a comment.
//! A comment that begins with `#!` and goes on like a line with a key is one, of keys that only linerate knows.
//! Nothing here opens a file. The lines may hold keys: they are wiped, and have no `Debug`.

use std::ops::Range;

use zeroize::Zeroizing;

use crate::wg_config::values::is_space;
use crate::zeroizing::Buffer;

/// What an editor of other systems puts before the text (U+FEFF in UTF-8).
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A configuration file.
#[derive(Clone)]
pub struct Document {
    byte_order_mark: bool,
    /// The first is what stands before any header; it may be empty, and is always there.
    sections: Vec<Section>,
}

/// A header with what belongs to it: the comments directly above, and everything up to the next.
#[derive(Clone)]
pub struct Section {
    kind: SectionKind,
    /// Which of the lines is the header.
    header: usize,
    lines: Vec<Line>,
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// Nothing: this is what stands before the first header.
    Start,
    /// `[Interface]`.
    Interface,
    /// `[Peer]`.
    Peer,
    /// Something in brackets that is neither.
    Other,
}

/// A key, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The section it belongs into.
    pub section: SectionKind,
    /// It is written behind `#!`, so that other tools take it for a comment.
    pub marked: bool,
    /// Its value reaches to the end of the line: `#` is part of it.
    pub whole_line: bool,
}

/// A line with a key.
pub struct Entry<'a> {
    /// Which line of its section it is, from 0: where edits find it.
    pub index: usize,
    /// It stands behind `#!`.
    pub marked: bool,
    line: &'a [u8],
    key: Range<usize>,
    value: Range<usize>,
    /// The value, if `#` is part of it.
    whole: Range<usize>,
}

/// Why a text cannot be a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a value is not empty, has no space around it, no line end and no NUL in it, and only that of a command has `#`"
)]
pub struct InvalidValue;

impl Document {
    /// Takes the file apart. Any bytes will do.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = bytes.strip_prefix(BYTE_ORDER_MARK);
        let mut document = Self {
            byte_order_mark: text.is_some(),
            sections: vec![Section { kind: SectionKind::Start, header: 0, lines: Vec::new() }],
        };
        for line in text.unwrap_or(bytes).split_inclusive(|&byte| byte == b'\n') {
            document.push(Line::new(&[line]));
        }
        document
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Buffer {
        let mark: &[u8] = if self.byte_order_mark { BYTE_ORDER_MARK } else { b"" };
        let lines = || self.sections.iter().flat_map(|section| &section.lines).map(|line| &**line.0);
        let mut bytes = Buffer::with_capacity(mark.len() + lines().map(<[u8]>::len).sum::<usize>());
        bytes.extend(mark);
        lines().for_each(|line| bytes.extend(line));
        bytes
    }

    /// Whether a byte order mark stands before the text, which `wg` does not take.
    pub fn has_byte_order_mark(&self) -> bool {
        self.byte_order_mark
    }

    /// All sections; the first is what stands before any header. An edit is told the section by its place here, and the
    /// line by its place in the section; a place that is not there is a caller's mistake, and panics.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// A document of one section alone.
    pub fn only(&self, section: usize) -> Self {
        let start = Section { kind: SectionKind::Start, header: 0, lines: Vec::new() };
        Self { byte_order_mark: false, sections: vec![start, self.sections[section].clone()] }
    }

    /// Gives `key` a value: where it was said last, else in a new line.
    ///
    /// # Errors
    /// The text cannot be a value.
    pub fn set(&mut self, section: usize, key: &Key, value: &str) -> Result<(), InvalidValue> {
        let last = self.sections[section].entries().rfind(|entry| entry.is(key)).map(|entry| entry.index);
        match last {
            Some(index) => self.replace(section, index, key, value),
            None => self.insert(section, key, value),
        }
    }

    /// Gives the line `index` of a section, which has `key`, another value. What surrounds the value stays; a line
    /// without a key stays as it is.
    ///
    /// # Errors
    /// The text cannot be a value.
    pub fn replace(&mut self, section: usize, index: usize, key: &Key, value: &str) -> Result<(), InvalidValue> {
        check(key, value)?;
        let line = &mut self.sections[section].lines[index];
        let Form::Entry(entry) = line.form() else { return Ok(()) };
        let old = if key.whole_line { entry.whole } else { entry.value };
        // `Key =` gets the space behind the sign that it has before it.
        let space = old.is_empty() && entry.key.end + 1 < old.start;
        let (before, after) = (&line.0[..old.start], &line.0[old.end..]);
        *line = Line::new(&[before, if space { b" " } else { b"" }, value.as_bytes(), after]);
        Ok(())
    }

    /// Adds a line with `key`: below the last of the same, else below the last of the section. Its spaces are those of
    /// its neighbour.
    ///
    /// # Errors
    /// The text cannot be a value.
    pub fn insert(&mut self, section: usize, key: &Key, value: &str) -> Result<(), InvalidValue> {
        check(key, value)?;
        let entries = || self.sections[section].entries();
        let same = entries().rfind(|entry| entry.is(key));
        let after = same.or_else(|| entries().next_back()).map_or(self.sections[section].header, |entry| entry.index);
        let neighbour = self.sections[..=section].iter().rev().find_map(|section| section.entries().next_back());
        let [indent, before, behind] = neighbour.as_ref().map_or([&b""[..], b" ", b" "], Entry::spaces);
        let mark: &[u8] = if key.marked { b"#! " } else { b"" };
        let parts = [indent, mark, key.name.as_bytes(), before, b"=", behind, value.as_bytes()];
        let line = Line::new(&parts);
        self.sections[section].insert_below(after, line);
        Ok(())
    }

    /// Takes the line `index` of a section away. Comments that it kept apart from the header below stay in their section,
    /// behind which an empty line then stands.
    pub fn remove(&mut self, section: usize, index: usize) {
        let is_last = section + 1 == self.sections.len();
        let section = &mut self.sections[section];
        let end = section.end();
        section.lines.remove(index);
        if index < section.header {
            section.header -= 1;
        }
        if !is_last && section.lines.last().is_some_and(Line::leads) {
            section.lines.push(Line::new(&[&end]));
        }
    }

    /// Takes all lines with `key` out of a section.
    pub fn unset(&mut self, section: usize, key: &Key) {
        let entries = self.sections[section].entries().filter(|entry| entry.is(key));
        let indices: Vec<usize> = entries.map(|entry| entry.index).collect();
        indices.into_iter().rev().for_each(|index| self.remove(section, index));
    }

    /// Adds an empty `[Peer]` at the end and says which section it is.
    pub fn add_peer(&mut self) -> usize {
        self.add_section(self.sections.len(), SectionKind::Peer, b"[Peer]")
    }

    /// The first `[Interface]`, made in front of all peers if there is none.
    pub fn interface(&mut self) -> usize {
        let interface = self.sections.iter().position(|section| section.kind == SectionKind::Interface);
        interface.unwrap_or_else(|| self.add_section(1, SectionKind::Interface, b"[Interface]"))
    }

    /// Takes a section away, with the comments that belong to it: those directly above its header, and those in it and
    /// directly below. A comment that stands alone behind it stays.
    pub fn remove_section(&mut self, section: usize) {
        if section == 0 {
            return;
        }
        let mut removed = self.sections.remove(section);
        let was_last = section == self.sections.len();
        let rest = removed.lines.split_off(removed.own_end());
        let above = &mut self.sections[section - 1];
        let separated = above.lines.last().is_none_or(Line::is_blank);
        let rest = rest.into_iter().skip_while(|line| separated && line.is_blank());
        let before = above.lines.len();
        above.lines.extend(rest);
        if was_last && above.lines.len() == before {
            while above.lines.last().is_some_and(Line::is_blank) {
                above.lines.pop();
            }
        }
    }

    fn add_section(&mut self, at: usize, kind: SectionKind, header: &[u8]) -> usize {
        let first = self.sections.iter().find_map(|section| section.lines.first());
        let end: &[u8] = if first.is_some_and(|line| line.end() == b"\r\n") { b"\r\n" } else { b"\n" };
        let mut lines = Vec::new();
        if let Some(above) = self.sections[..at].iter_mut().rev().find_map(|section| section.lines.last_mut()) {
            if above.end().is_empty() {
                *above = Line::new(&[&above.0, end]);
            }
            if !above.is_blank() {
                lines.push(Line::new(&[end]));
            }
        }
        let header_at = lines.len();
        lines.push(Line::new(&[header, end]));
        if at < self.sections.len() {
            lines.push(Line::new(&[end]));
        }
        self.sections.insert(at, Section { kind, header: header_at, lines });
        at
    }

    /// Adds the next line of the file. A header takes the comments directly above it out of the section before.
    fn push(&mut self, line: Line) {
        let Form::Header(kind) = line.form() else {
            if let Some(section) = self.sections.last_mut() {
                section.lines.push(line);
            }
            return;
        };
        let mut lines = Vec::new();
        if let Some(above) = self.sections.last_mut() {
            let leading = above.lines.iter().rev().take_while(|line| line.leads()).count();
            lines = above.lines.split_off(above.lines.len() - leading);
        }
        let header = lines.len();
        lines.push(line);
        self.sections.push(Section { kind, header, lines });
    }
}

impl Section {
    /// What its header says.
    pub fn kind(&self) -> SectionKind {
        self.kind
    }

    /// Which of its lines is the header, from 0.
    pub fn header(&self) -> usize {
        self.header
    }

    /// Its lines, each with its end.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.lines.iter().map(|line| &**line.0)
    }

    /// Its lines with a key.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        self.lines.iter().enumerate().filter_map(|(index, line)| match line.form() {
            Form::Entry(entry) => Some(Entry { index, ..entry }),
            _ => None,
        })
    }

    /// Its lines that are neither empty, nor comments, headers or lines with a key: where they are, from 0.
    pub fn unknown_lines(&self) -> impl Iterator<Item = usize> {
        let unknown = |line: &Line| matches!(line.form(), Form::Unknown);
        self.lines.iter().enumerate().filter_map(move |(index, line)| unknown(line).then_some(index))
    }

    /// The name that comments give it: `# Name = x` or `# friendly_name = x` (prometheus_wireguard_exporter) in it or
    /// directly above; directly above also `### Client x` (wireguard-install), `# BEGIN_PEER x`
    /// (Nyr/wireguard-install) and `### begin x ###` (PiVPN).
    pub fn name(&self) -> Option<String> {
        let (above, inside) = self.lines.split_at(self.header);
        let inside = inside.iter().find_map(|line| line.comment().and_then(assigned_name));
        inside.or_else(|| {
            let named = |text: &[u8]| assigned_name(text).or_else(|| title(text));
            above.iter().rev().find_map(|line| line.comment().and_then(named))
        })
    }

    /// Where what belongs to it ends. Comments behind an empty line do not, unless they name it or close it.
    fn own_end(&self) -> usize {
        let last = self.lines.iter().rposition(|line| match line.form() {
            Form::Blank => false,
            Form::Comment(text) => assigned_name(text).is_some() || closes(text),
            Form::Header(_) | Form::Entry(_) | Form::Unknown => true,
        });
        let end = last.map_or(0, |last| last + 1);
        end + self.lines[end..].iter().take_while(|line| line.comment().is_some()).count()
    }

    /// What ends its lines.
    fn end(&self) -> Vec<u8> {
        self.lines.iter().map(Line::end).find(|end| !end.is_empty()).unwrap_or(b"\n").to_vec()
    }

    /// Puts `line`, which has no end, below the line `index`. A file without a final line end stays one.
    fn insert_below(&mut self, index: usize, mut line: Line) {
        let end = self.end();
        match self.lines.get_mut(index) {
            Some(above) if above.end().is_empty() => *above = Line::new(&[&above.0, &end]),
            _ => line = Line::new(&[&line.0, &end]),
        }
        self.lines.insert(self.lines.len().min(index + 1), line);
    }
}

impl Entry<'_> {
    /// The key without white space, as it is spelled.
    pub fn key(&self) -> String {
        let kept = self.line[self.key.clone()].iter().copied().filter(|&byte| !is_space(byte));
        String::from_utf8_lossy(&kept.collect::<Vec<u8>>()).into_owned()
    }

    /// Whether this is `key`, behind `#!` if it belongs there.
    pub fn is(&self, key: &Key) -> bool {
        self.marked == key.marked && self.key().eq_ignore_ascii_case(key.name)
    }

    /// The value up to a comment, without white space around it.
    pub fn value(&self) -> &[u8] {
        &self.line[self.value.clone()]
    }

    /// The value with what looks like a comment, without white space around it.
    pub fn whole_value(&self) -> &[u8] {
        &self.line[self.whole.clone()]
    }

    /// The character of the line that the key begins with, from 1.
    pub fn key_column(&self) -> usize {
        self.column(self.key.start)
    }

    /// The character of the line that stands `offset` bytes behind where the value begins, from 1.
    pub fn value_column(&self, offset: usize) -> usize {
        self.column(self.value.start + offset)
    }

    fn column(&self, offset: usize) -> usize {
        let continues = |byte: u8| byte & 0b1100_0000 == 0b1000_0000;
        1 + self.line.iter().take(offset).filter(|&&byte| !continues(byte)).count()
    }

    /// The white space before the key (or its `#!`), before `=`, and behind it.
    fn spaces(&self) -> [&[u8]; 3] {
        let indent = self.line.iter().take_while(|&&byte| is_space(byte)).count();
        let equals = self.key.end + self.line[self.key.end..].iter().take_while(|&&byte| byte != b'=').count();
        let before = &self.line[self.key.end..equals];
        let behind = if self.value.is_empty() { before } else { &self.line[equals + 1..self.value.start] };
        [&self.line[..indent], before, behind]
    }
}

/// A line of the file with its end, wiped when dropped.
#[derive(Clone)]
struct Line(Zeroizing<Vec<u8>>);

/// What a line is.
enum Form<'a> {
    Blank,
    /// With what follows `#`.
    Comment(&'a [u8]),
    Header(SectionKind),
    Entry(Entry<'a>),
    Unknown,
}

impl Line {
    fn new(parts: &[&[u8]]) -> Self {
        // Of the right size from the start: a vector that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(parts.iter().map(|part| part.len()).sum()));
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Self(bytes)
    }

    fn end(&self) -> &[u8] {
        match &**self.0 {
            [.., b'\r', b'\n'] => b"\r\n",
            [.., b'\n'] => b"\n",
            _ => b"",
        }
    }

    fn form(&self) -> Form<'_> {
        let line = &**self.0;
        let line = &line[..line.iter().position(|&byte| byte == 0).unwrap_or(line.len())];
        let all = trim(line, 0..line.len());
        if all.is_empty() {
            return Form::Blank;
        }
        if line[all.start] == b'#' {
            let comment = &line[all.start + 1..all.end];
            let marked = comment.starts_with(b"!").then(|| entry(line, all.start + 2, true)).flatten();
            // A word before `=` makes it a line with a key; `#!/bin/sh` is none.
            let is_word = |entry: &Entry<'_>| line[entry.key.clone()].iter().all(u8::is_ascii_alphanumeric);
            return marked.filter(is_word).map_or(Form::Comment(comment), Form::Entry);
        }
        if line[all.start] == b'[' {
            return Form::Header(kind(&line[all.start..comment_start(line, all.start)]));
        }
        entry(line, 0, false).map_or(Form::Unknown, Form::Entry)
    }

    fn comment(&self) -> Option<&[u8]> {
        match self.form() {
            Form::Comment(text) => Some(text),
            _ => None,
        }
    }

    fn is_blank(&self) -> bool {
        matches!(self.form(), Form::Blank)
    }

    /// Whether it belongs to the header below it.
    fn leads(&self) -> bool {
        self.comment().is_some_and(|text| !closes(text))
    }
}

/// The key and value in `line` from `start`, if there is a `=` with something before it.
fn entry(line: &[u8], start: usize, marked: bool) -> Option<Entry<'_>> {
    let end = comment_start(line, start);
    let equals = start + line.get(start..end)?.iter().position(|&byte| byte == b'=')?;
    let key = trim(line, start..equals);
    let value = trim(line, equals + 1..end);
    let whole = trim(line, equals + 1..line.len());
    (!key.is_empty()).then_some(Entry { index: 0, marked, line, key, value, whole })
}

/// The part of `range` in `line` without white space around it; where it begins, if nothing is left.
fn trim(line: &[u8], range: Range<usize>) -> Range<usize> {
    let filled = |&index: &usize| !is_space(line[index]);
    match (range.clone().find(filled), range.clone().rev().find(filled)) {
        (Some(first), Some(last)) => first..last + 1,
        _ => range.start..range.start,
    }
}

fn comment_start(line: &[u8], start: usize) -> usize {
    let rest = line.get(start..).unwrap_or_default();
    rest.iter().position(|&byte| byte == b'#').map_or(line.len(), |at| start + at)
}

fn kind(header: &[u8]) -> SectionKind {
    let essence: Vec<u8> = header.iter().filter(|&&byte| !is_space(byte)).map(u8::to_ascii_lowercase).collect();
    match &essence[..] {
        b"[interface]" => SectionKind::Interface,
        b"[peer]" => SectionKind::Peer,
        _ => SectionKind::Other,
    }
}

/// The name in a comment `Name = x`.
fn assigned_name(comment: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(comment);
    let (key, name) = text.split_once('=')?;
    let named = ["name", "friendly_name"].iter().any(|known| key.trim().eq_ignore_ascii_case(known));
    Some(name.trim().to_owned()).filter(|name| named && !name.is_empty())
}

/// The name in a comment that set-up scripts write above a section.
fn title(comment: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(comment);
    let text = text.trim();
    let begun =
        |text: &str| text.strip_prefix("## begin ").and_then(|rest| rest.strip_suffix("###")).map(str::to_owned);
    let name = text.strip_prefix("## Client ").or_else(|| text.strip_prefix("BEGIN_PEER ")).map(str::to_owned);
    name.or_else(|| begun(text)).map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Whether a comment is what set-up scripts write below a section.
fn closes(comment: &[u8]) -> bool {
    let text = comment.trim_ascii();
    text.starts_with(b"END_PEER ") || text.starts_with(b"## end ")
}

fn check(key: &Key, value: &str) -> Result<(), InvalidValue> {
    let bytes = value.as_bytes();
    let bad = |&byte: &u8| matches!(byte, b'\n' | 0) || (byte == b'#' && !key.whole_line);
    let space_around = bytes.first().zip(bytes.last()).is_none_or(|(&first, &last)| is_space(first) || is_space(last));
    if space_around || bytes.iter().any(bad) { Err(InvalidValue) } else { Ok(()) }
}
