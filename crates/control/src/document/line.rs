//! One line of a configuration file: its kind, and where the name and value of its setting are.

use std::ops::Range;

use memchr::{memchr, memrchr};

use crate::zeroizing::Buffer;

pub(super) use crate::wg_config::values::is_space;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// There is no header: these are the lines before the first one.
    Start,
    /// `[Interface]`.
    Interface,
    /// `[Peer]`.
    Peer,
    /// `#~ [Peer]`: a peer that is kept and not in force. Each of its lines begins with `#~`, so other tools see comments.
    DisabledPeer,
    /// Anything else in brackets.
    Other,
}

/// A setting of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name as documented.
    pub name: &'static str,
    /// The section that it belongs in.
    pub section: SectionKind,
    /// It is written after `#!`, so that other tools take the line for a comment.
    pub marked: bool,
    /// Its value extends to the end of the line, and may contain `#`.
    pub whole_line: bool,
}

/// A line that sets something: `NAME = VALUE`.
pub struct Entry<'a> {
    /// The index of the line in its section, for edits.
    pub index: usize,
    /// The line begins with `#!`.
    pub marked: bool,
    line: &'a [u8],
    name: Range<usize>,
    value: Range<usize>,
    /// The value of a setting whose value may contain `#`.
    whole: Range<usize>,
}

impl<'a> Entry<'a> {
    /// The name of the setting as spelled, without white space.
    pub fn name(&self) -> String {
        let kept = self.line[self.name.clone()].iter().copied().filter(|&byte| !is_space(byte));
        String::from_utf8_lossy(&kept.collect::<Vec<u8>>()).into_owned()
    }

    /// Whether it sets `setting`, with `#!` if that is needed.
    pub fn is(&self, setting: &Setting) -> bool {
        self.marked == setting.marked && self.is_named(setting.name)
    }

    /// Whether its name is `name`, in any case, white space aside.
    pub fn is_named(&self, name: &str) -> bool {
        let spelled = &self.line[self.name.clone()];
        if spelled.len() <= name.len() || !spelled.iter().any(|&byte| is_space(byte)) {
            return spelled.eq_ignore_ascii_case(name.as_bytes());
        }
        let mut kept = spelled.iter().filter(|&&byte| !is_space(byte));
        let is_next = |byte: u8| kept.next().is_some_and(|kept| kept.eq_ignore_ascii_case(&byte));
        name.bytes().all(is_next) && kept.next().is_none()
    }

    /// The value without the comment and the white space around it.
    pub fn value(&self) -> &'a [u8] {
        &self.line[self.value.clone()]
    }

    /// The value up to the end of the line, without the white space around it.
    pub fn whole_value(&self) -> &'a [u8] {
        &self.line[self.whole.clone()]
    }

    /// The column of the name: characters, from 1.
    pub fn name_column(&self) -> usize {
        self.column(self.name.start)
    }

    /// The column `offset` bytes into the value: characters, from 1.
    pub fn value_column(&self, offset: usize) -> usize {
        self.column(self.value.start + offset)
    }

    fn column(&self, offset: usize) -> usize {
        let before = &self.line[..offset.min(self.line.len())];
        if before.is_ascii() {
            return 1 + before.len();
        }
        let continues = |byte: u8| byte & 0b1100_0000 == 0b1000_0000;
        1 + before.iter().filter(|&&byte| !continues(byte)).count()
    }

    /// The white space before the name (or its `#!`), before `=` and after it.
    pub(super) fn spaces(&self) -> [&[u8]; 3] {
        let indent = self.line.iter().take_while(|&&byte| is_space(byte)).count();
        let equals = self.name.end + self.line[self.name.end..].iter().take_while(|&&byte| byte != b'=').count();
        let before = &self.line[self.name.end..equals];
        let after = if self.value.is_empty() { before } else { &self.line[equals + 1..self.value.start] };
        [&self.line[..indent], before, after]
    }
}

/// What each line of a disabled peer begins with.
const DISABLED: &[u8] = b"#~";

/// A line of the file with its line end.
#[derive(Clone, Copy)]
pub(super) struct Line<'a>(pub(super) &'a [u8]);

/// The lines of a text.
pub(super) struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let end = memchr(b'\n', self.0).map_or(self.0.len(), |at| at + 1);
        let (line, rest) = self.0.split_at(end);
        self.0 = rest;
        (!line.is_empty()).then_some(Line(line))
    }
}

impl<'a> DoubleEndedIterator for Lines<'a> {
    fn next_back(&mut self) -> Option<Line<'a>> {
        let (_, before) = self.0.split_last()?;
        let (rest, line) = self.0.split_at(memrchr(b'\n', before).map_or(0, |at| at + 1));
        self.0 = rest;
        Some(Line(line))
    }
}

/// What a line is.
pub(crate) enum LineKind<'a> {
    Blank,
    /// The text after `#`.
    Comment(&'a [u8]),
    Header(SectionKind),
    Entry(Entry<'a>),
    Unknown,
}

impl<'a> Line<'a> {
    /// The lines of a text.
    pub(super) fn all(text: &'a [u8]) -> Lines<'a> {
        Lines(text)
    }

    pub(super) fn end(self) -> &'static [u8] {
        match self.0 {
            [.., b'\r', b'\n'] => b"\r\n",
            [.., b'\n'] => b"\n",
            _ => b"",
        }
    }

    pub(super) fn kind(self) -> LineKind<'a> {
        let line = self.0;
        let line = &line[..memchr(0, line).unwrap_or(line.len())];
        let all = trim(line, 0..line.len());
        if all.is_empty() {
            return LineKind::Blank;
        }
        if line[all.start] == b'#' {
            let comment = &line[all.start + 1..all.end];
            let marked = comment.starts_with(b"!").then(|| entry(line, all.start + 2, true)).flatten();
            // Only a word before `=` names a setting: `#!/bin/sh` is a comment.
            let is_word = |entry: &Entry<'_>| line[entry.name.clone()].iter().all(u8::is_ascii_alphanumeric);
            return marked.filter(is_word).map_or(LineKind::Comment(comment), LineKind::Entry);
        }
        if line[all.start] == b'[' {
            return LineKind::Header(kind(&line[all.start..comment_start(line, all.start)]));
        }
        entry(line, 0, false).map_or(LineKind::Unknown, LineKind::Entry)
    }

    /// Whether it belongs to a disabled peer, where one is.
    pub(super) fn is_disabled(self) -> bool {
        self.0.starts_with(DISABLED)
    }

    /// The line as part of a disabled peer.
    pub(super) fn disabled(self) -> EditedLine<'static> {
        // An empty line gets no space, because editors remove it.
        let space: &[u8] = if self.0 == self.end() { b"" } else { b" " };
        EditedLine::new(&[DISABLED, space, self.0])
    }

    /// The line as part of a peer in force: without the mark, if it has one.
    pub(super) fn enabled(self) -> Self {
        let rest = self.0.strip_prefix(DISABLED).map(|rest| rest.strip_prefix(b" ").unwrap_or(rest));
        Self(rest.unwrap_or(self.0))
    }

    /// The kind of section that it begins, if it is a header.
    pub(super) fn header(self) -> Option<SectionKind> {
        let header = |line: Self| match line.first() {
            Some(b'[') => match line.kind() {
                LineKind::Header(kind) => Some(kind),
                _ => None,
            },
            _ => None,
        };
        if !self.is_disabled() {
            return header(self);
        }
        (header(self.enabled()) == Some(SectionKind::Peer)).then_some(SectionKind::DisabledPeer)
    }

    /// The setting in it, if there is one; `index` is that of the line in its section.
    pub(super) fn entry(self, index: usize) -> Option<Entry<'a>> {
        match self.kind() {
            LineKind::Entry(entry) => Some(Entry { index, ..entry }),
            _ => None,
        }
    }

    /// The line with another value for its `setting`, if it has one.
    pub(super) fn with_value(self, setting: &Setting, value: &str) -> Option<EditedLine<'static>> {
        let entry = self.entry(0)?;
        let old = if setting.whole_line { entry.whole } else { entry.value };
        // `NAME =` gets the same space after `=` as before.
        let space = old.is_empty() && entry.name.end + 1 < old.start;
        let (before, after) = (&self.0[..old.start], &self.0[old.end..]);
        Some(EditedLine::new(&[before, if space { b" " } else { b"" }, value.as_bytes(), after]))
    }

    pub(super) fn comment(self) -> Option<&'a [u8]> {
        match self.first() {
            Some(b'#') => match self.kind() {
                LineKind::Comment(text) => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// The first byte that is not white space: it tells most lines apart at once, and files have many.
    fn first(self) -> Option<u8> {
        self.0.iter().copied().find(|&byte| !is_space(byte))
    }

    pub(super) fn is_blank(self) -> bool {
        matches!(self.kind(), LineKind::Blank)
    }

    /// Whether it belongs to a header directly below.
    pub(super) fn leads(self) -> bool {
        self.comment().is_some_and(|text| !closes(text))
    }

    /// Whether it belongs to `header` directly below: a peer in force has no lines of a disabled one.
    pub(super) fn leads_to(self, header: Self) -> bool {
        match (self.is_disabled(), header.is_disabled()) {
            (false, _) => self.leads(),
            (true, true) => self.enabled().leads(),
            (true, false) => false,
        }
    }
}

/// A line while its section is edited.
pub(super) enum EditedLine<'a> {
    /// As it was.
    Kept(Line<'a>),
    /// Another one, wiped when dropped.
    New(Buffer),
}

impl EditedLine<'_> {
    pub(super) fn new(parts: &[&[u8]]) -> Self {
        let mut bytes = Buffer::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| bytes.extend(part));
        Self::New(bytes)
    }

    pub(super) fn line(&self) -> Line<'_> {
        match self {
            Self::Kept(line) => *line,
            Self::New(bytes) => Line(bytes),
        }
    }
}

/// The setting in `line` from `start`, if a `=` has a name before it.
fn entry(line: &[u8], start: usize, marked: bool) -> Option<Entry<'_>> {
    let end = comment_start(line, start);
    let equals = start + memchr(b'=', line.get(start..end)?)?;
    let name = trim(line, start..equals);
    let value = trim(line, equals + 1..end);
    let whole = trim(line, equals + 1..line.len());
    (!name.is_empty()).then_some(Entry { index: 0, marked, line, name, value, whole })
}

/// `range` without the white space at its ends; empty at its start if there is nothing else.
fn trim(line: &[u8], range: Range<usize>) -> Range<usize> {
    let text = &line[range.clone()];
    let filled = |&byte: &u8| !is_space(byte);
    match (text.iter().position(filled), text.iter().rposition(filled)) {
        (Some(first), Some(last)) => range.start + first..range.start + last + 1,
        _ => range.start..range.start,
    }
}

fn comment_start(line: &[u8], start: usize) -> usize {
    let rest = line.get(start..).unwrap_or_default();
    memchr(b'#', rest).map_or(line.len(), |at| start + at)
}

fn kind(header: &[u8]) -> SectionKind {
    let essence = || header.iter().filter(|&&byte| !is_space(byte)).map(u8::to_ascii_lowercase);
    if essence().eq(*b"[peer]") {
        SectionKind::Peer
    } else if essence().eq(*b"[interface]") {
        SectionKind::Interface
    } else {
        SectionKind::Other
    }
}

/// The name of a section, from its comments.
#[derive(Default)]
pub(crate) struct Naming {
    above: Option<String>,
    inside: Option<String>,
}

impl Naming {
    /// Takes note of the next line, which is above the header or not.
    pub(crate) fn line(&mut self, kind: &LineKind<'_>, is_above: bool) {
        let LineKind::Comment(text) = kind else { return };
        if is_above {
            self.above = assigned_name(text).or_else(|| title(text)).or(self.above.take());
        } else if self.inside.is_none() {
            self.inside = assigned_name(text);
        }
    }

    /// The name, if the lines have one.
    pub(crate) fn name(self) -> Option<String> {
        self.inside.or(self.above)
    }
}

/// The name in a comment `Name = x`.
pub(super) fn assigned_name(comment: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(comment);
    let (key, name) = text.split_once('=')?;
    let named = ["name", "friendly_name"].iter().any(|known| key.trim().eq_ignore_ascii_case(known));
    Some(name.trim().to_owned()).filter(|name| named && !name.is_empty())
}

/// The name in a comment that installation scripts write above a section.
pub(super) fn title(comment: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(comment);
    let text = text.trim();
    let begun =
        |text: &str| text.strip_prefix("## begin ").and_then(|rest| rest.strip_suffix("###")).map(str::to_owned);
    let name = text.strip_prefix("## Client ").or_else(|| text.strip_prefix("BEGIN_PEER ")).map(str::to_owned);
    name.or_else(|| begun(text)).map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Whether a comment is a header behind `#!`: a section of linerate-proxy.
pub(super) fn is_marked_header(comment: &[u8]) -> bool {
    comment.strip_prefix(b"!").is_some_and(|text| text.trim_ascii_start().starts_with(b"["))
}

/// Whether a comment is one that installation scripts write below a section.
pub(super) fn closes(comment: &[u8]) -> bool {
    let text = comment.trim_ascii();
    text.starts_with(b"END_PEER ") || text.starts_with(b"## end ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    proptest! {
        #[test]
        fn lines_are_the_same_from_both_ends(text in vec(select(b"ab\r\n\n".to_vec()), 0..30), ahead in 0usize..5) {
            let expected: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
            let mut lines = Line::all(&text).map(|line| line.0);
            let mut found: Vec<&[u8]> = lines.by_ref().take(ahead).collect();
            let mut behind: Vec<&[u8]> = lines.rev().collect();
            behind.reverse();
            found.extend(behind);
            prop_assert_eq!(found, expected);
        }
    }
}
