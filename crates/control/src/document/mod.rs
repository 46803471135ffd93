//! A configuration file that can be edited without loss: lines that are not edited stay byte for byte.
//!
//! Any bytes are a valid document; [`crate::tunnel_file`] interprets them. Sections and settings are found as `wg`
//! finds them (man 8 wg, CONFIGURATION FILE FORMAT): white space and case are ignored, and `#` begins a comment. A
//! comment that begins with `#!` and has the form of a setting is one that only linerate knows. Nothing here opens a
//! file. Lines may hold secrets: they are wiped, and have no `Debug`.

mod line;

pub use self::line::{Entry, SectionKind, Setting};
use self::line::{Line, LineKind, is_space};
use crate::zeroizing::Buffer;

/// U+FEFF in UTF-8, which some editors write before the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A configuration file.
#[derive(Clone)]
pub struct Document {
    byte_order_mark: bool,
    /// The first holds the lines before any header; it always exists and may be empty.
    sections: Vec<Section>,
}

/// A header with its lines: the comments directly above it, and everything up to the next section.
#[derive(Clone)]
pub struct Section {
    kind: SectionKind,
    /// The index of the header in `lines`.
    header: usize,
    lines: Vec<Line>,
}

/// Why a text cannot be a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a value must not be empty, begin or end with white space, or contain a line end, a NUL or (except in a command) a `#`"
)]
pub struct InvalidValue;

impl Document {
    /// Splits the file into lines and sections. Any bytes are valid.
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
        let lines = || self.sections.iter().flat_map(|section| &section.lines).map(Line::bytes);
        let mut bytes = Buffer::with_capacity(mark.len() + lines().map(<[u8]>::len).sum::<usize>());
        bytes.extend(mark);
        lines().for_each(|line| bytes.extend(line));
        bytes
    }

    /// Whether the file begins with a byte order mark, which `wg` rejects.
    pub fn has_byte_order_mark(&self) -> bool {
        self.byte_order_mark
    }

    /// All sections; the first holds the lines before any header. Edits take the index of a section here and of a
    /// line in its section, and panic if there is none.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// A document with only this section.
    pub fn only(&self, section: usize) -> Self {
        let start = Section { kind: SectionKind::Start, header: 0, lines: Vec::new() };
        Self { byte_order_mark: false, sections: vec![start, self.sections[section].clone()] }
    }

    /// Sets the value of `setting`: in the last line that has it, else in a new line.
    ///
    /// # Errors
    /// See [`InvalidValue`].
    pub fn set(&mut self, section: usize, setting: &Setting, value: &str) -> Result<(), InvalidValue> {
        let last = self.sections[section].entries().rfind(|entry| entry.is(setting)).map(|entry| entry.index);
        match last {
            Some(index) => self.replace(section, index, setting, value),
            None => self.insert(section, setting, value),
        }
    }

    /// Replaces the value in the line `index` of a section, which has `setting`. The rest of the line stays; a line
    /// without a setting is not changed.
    ///
    /// # Errors
    /// See [`InvalidValue`].
    pub fn replace(
        &mut self,
        section: usize,
        index: usize,
        setting: &Setting,
        value: &str,
    ) -> Result<(), InvalidValue> {
        check(setting, value)?;
        let line = &mut self.sections[section].lines[index];
        if let Some(edited) = line.with_value(setting, value) {
            *line = edited;
        }
        Ok(())
    }

    /// Adds a line with `setting`: below the last line that has it, else below the last entry of the section. It
    /// copies the white space of the nearest entry.
    ///
    /// # Errors
    /// See [`InvalidValue`].
    pub fn insert(&mut self, section: usize, setting: &Setting, value: &str) -> Result<(), InvalidValue> {
        check(setting, value)?;
        let entries = || self.sections[section].entries();
        let same = entries().rfind(|entry| entry.is(setting));
        let after = same.or_else(|| entries().next_back()).map_or(self.sections[section].header, |entry| entry.index);
        let neighbour = self.sections[..=section].iter().rev().find_map(|section| section.entries().next_back());
        let [indent, before, behind] = neighbour.as_ref().map_or([&b""[..], b" ", b" "], Entry::spaces);
        let mark: &[u8] = if setting.marked { b"#! " } else { b"" };
        let parts = [indent, mark, setting.name.as_bytes(), before, b"=", behind, value.as_bytes()];
        let line = Line::new(&parts);
        self.sections[section].insert_below(after, line);
        Ok(())
    }

    /// Removes the line `index` of a section. If only comments are left above the next header, an empty line is
    /// added, so that they stay in this section.
    pub fn remove(&mut self, section: usize, index: usize) {
        let edited = &mut self.sections[section];
        edited.lines.remove(index);
        if index < edited.header {
            edited.header -= 1;
        }
        self.separate(section);
    }

    /// Removes all lines with `setting` from a section.
    pub fn unset(&mut self, section: usize, setting: &Setting) {
        let entries = self.sections[section].entries().filter(|entry| entry.is(setting));
        let indices: Vec<usize> = entries.map(|entry| entry.index).collect();
        indices.into_iter().rev().for_each(|index| self.remove(section, index));
    }

    /// Adds an empty `[Peer]` at the end and returns its index.
    pub fn add_peer(&mut self) -> usize {
        self.add_section(self.sections.len(), SectionKind::Peer, b"[Peer]")
    }

    /// The index of the first `[Interface]`, which is added before all peers if there is none.
    pub fn interface(&mut self) -> usize {
        let interface = self.sections.iter().position(|section| section.kind == SectionKind::Interface);
        interface.unwrap_or_else(|| self.add_section(1, SectionKind::Interface, b"[Interface]"))
    }

    /// Removes a section with its comments: those directly above its header, in it, and directly below. A comment
    /// after an empty line stays.
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
        self.separate(section - 1);
    }

    /// Turns a peer into comments, line by line. [`Document::enable`] gives back the same bytes, if no line that begins
    /// with `#~` was there before but those of disabled peers, and no comment ends the one above.
    pub fn disable(&mut self, section: usize) {
        if self.sections[section].kind == SectionKind::Peer {
            let disabled = &mut self.sections[section];
            let end = disabled.own_end();
            disabled.lines[..end].iter_mut().for_each(|line| *line = line.disabled());
            disabled.kind = SectionKind::DisabledPeer;
            self.separate(section - 1);
        }
    }

    /// Puts a disabled peer in force.
    pub fn enable(&mut self, section: usize) {
        self.sections[section] = self.sections[section].enabled();
        self.separate(section);
    }

    /// Gives a section a name in a comment `# Name = x`: in the one that it has, else in a new line below the header.
    ///
    /// # Errors
    /// See [`InvalidValue`].
    pub fn set_name(&mut self, section: usize, name: &str) -> Result<(), InvalidValue> {
        check(&NAME, name)?;
        let edited = &mut self.sections[section];
        let named = |line: &Line| line.comment().and_then(line::assigned_name).is_some();
        let line = Line::new(&[b"# Name = ", name.as_bytes()]);
        let (above, inside) = edited.lines.split_at(edited.header);
        let inside = inside.iter().position(named).map(|index| above.len() + index);
        let names = |line: &Line| named(line) || line.comment().and_then(line::title).is_some();
        let above = || above.iter().rposition(names).filter(|&index| named(&above[index]));
        match inside.or_else(above) {
            Some(index) => {
                let end = edited.lines[index].end().to_vec();
                edited.lines[index] = Line::new(&[line.bytes(), &end]);
            }
            None => edited.insert_below(edited.header, line),
        }
        self.separate(section);
        Ok(())
    }

    /// Adds a line with `setting` directly below the header of a section.
    ///
    /// # Errors
    /// See [`InvalidValue`].
    pub fn insert_first(&mut self, section: usize, setting: &Setting, value: &str) -> Result<(), InvalidValue> {
        check(setting, value)?;
        let mark: &[u8] = if setting.marked { b"#! " } else { b"" };
        let line = Line::new(&[mark, setting.name.as_bytes(), b" = ", value.as_bytes()]);
        let header = self.sections[section].header;
        self.sections[section].insert_below(header, line);
        Ok(())
    }

    /// Adds an empty line below a section if its last line is a comment that would belong to the header below.
    fn separate(&mut self, section: usize) {
        let [above, below, ..] = &mut self.sections[section..] else { return };
        if above.lines.last().is_some_and(|last| last.leads_to(&below.lines[below.header])) {
            let end = above.end();
            above.lines.push(Line::new(&[&end]));
        }
    }

    fn add_section(&mut self, at: usize, kind: SectionKind, header: &[u8]) -> usize {
        let first = self.sections.iter().find_map(|section| section.lines.first());
        let end: &[u8] = if first.is_some_and(|line| line.end() == b"\r\n") { b"\r\n" } else { b"\n" };
        let mut lines = Vec::new();
        if let Some(above) = self.sections[..at].iter_mut().rev().find_map(|section| section.lines.last_mut()) {
            if above.end().is_empty() {
                *above = Line::new(&[above.bytes(), end]);
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

    /// Adds the next line of the file. A header takes the comments directly above it from the previous section.
    fn push(&mut self, line: Line) {
        let Some(kind) = line.header() else {
            if let Some(section) = self.sections.last_mut() {
                section.lines.push(line);
            }
            return;
        };
        let mut lines = Vec::new();
        if let Some(above) = self.sections.last_mut() {
            let leading = above.lines.iter().rev().take_while(|above| above.leads_to(&line)).count();
            lines = above.lines.split_off(above.lines.len() - leading);
        }
        let header = lines.len();
        lines.push(line);
        self.sections.push(Section { kind, header, lines });
    }
}

impl Section {
    /// What kind of section its header begins.
    pub fn kind(&self) -> SectionKind {
        self.kind
    }

    /// The index of its header among its lines.
    pub fn header(&self) -> usize {
        self.header
    }

    /// Its lines, with their line ends.
    pub fn lines(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.lines.iter().map(Line::bytes)
    }

    /// Its lines with a setting.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        self.lines.iter().enumerate().filter_map(|(index, line)| line.entry(index))
    }

    /// The indices of its lines that are neither blank nor a comment, a header or an entry.
    pub fn unknown_lines(&self) -> impl Iterator<Item = usize> {
        let unknown = |line: &Line| matches!(line.kind(), LineKind::Unknown);
        self.lines.iter().enumerate().filter_map(move |(index, line)| unknown(line).then_some(index))
    }

    /// Its name from a comment: `# Name = x` or `# friendly_name = x` (prometheus_wireguard_exporter) in it or directly
    /// above; only above, also `### Client x` (wireguard-install), `# BEGIN_PEER x` (Nyr/wireguard-install) and
    /// `### begin x ###` (PiVPN).
    pub fn name(&self) -> Option<String> {
        let (above, inside) = self.lines.split_at(self.header);
        let inside = inside.iter().find_map(|line| line.comment().and_then(line::assigned_name));
        inside.or_else(|| {
            let named = |text: &[u8]| line::assigned_name(text).or_else(|| line::title(text));
            above.iter().rev().find_map(|line| line.comment().and_then(named))
        })
    }

    /// The section in force, if it is a disabled peer; else a copy.
    pub fn enabled(&self) -> Self {
        if self.kind != SectionKind::DisabledPeer {
            return self.clone();
        }
        Self { kind: SectionKind::Peer, header: self.header, lines: self.lines.iter().map(Line::enabled).collect() }
    }

    /// The end of its own lines. Comments after an empty line are not its own, unless they name or close it.
    fn own_end(&self) -> usize {
        let is_disabled = self.kind == SectionKind::DisabledPeer;
        let last = self.lines.iter().rposition(|line| match line.kind() {
            LineKind::Blank => false,
            LineKind::Comment(_) if is_disabled && line.is_disabled() => true,
            LineKind::Comment(text) => line::assigned_name(text).is_some() || line::closes(text),
            LineKind::Header(_) | LineKind::Entry(_) | LineKind::Unknown => true,
        });
        let end = last.map_or(0, |last| last + 1);
        end + self.lines[end..].iter().take_while(|line| line.comment().is_some()).count()
    }

    /// Its line end: `\n` or `\r\n`.
    fn end(&self) -> Vec<u8> {
        self.lines.iter().map(Line::end).find(|end| !end.is_empty()).unwrap_or(b"\n").to_vec()
    }

    /// Inserts `line`, which has no line end, below the line `index`. A file without a final line end stays without.
    fn insert_below(&mut self, index: usize, mut line: Line) {
        let end = self.end();
        match self.lines.get_mut(index) {
            Some(above) if above.end().is_empty() => *above = Line::new(&[above.bytes(), &end]),
            _ => line = Line::new(&[line.bytes(), &end]),
        }
        self.lines.insert(self.lines.len().min(index + 1), line);
    }
}

/// For [`check`] alone: a name is in a comment.
const NAME: Setting = Setting { name: "Name", section: SectionKind::Peer, marked: false, whole_line: false };

fn check(setting: &Setting, value: &str) -> Result<(), InvalidValue> {
    let bytes = value.as_bytes();
    let bad = |&byte: &u8| matches!(byte, b'\n' | 0) || (byte == b'#' && !setting.whole_line);
    let space_around = bytes.first().zip(bytes.last()).is_none_or(|(&first, &last)| is_space(first) || is_space(last));
    if space_around || bytes.iter().any(bad) { Err(InvalidValue) } else { Ok(()) }
}
