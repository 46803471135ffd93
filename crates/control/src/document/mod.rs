//! A configuration file that can be edited without loss: lines that are not edited stay byte for byte.
//!
//! Any bytes are a valid document; [`crate::tunnel_file`] interprets them. Sections and settings are found as `wg`
//! finds them (man 8 wg, CONFIGURATION FILE FORMAT): white space and case are ignored, and `#` begins a comment. A
//! comment that begins with `#!` and has the form of a setting is one that only linerate knows. Nothing here opens a
//! file. Lines may hold secrets: they are wiped, and have no `Debug`.

mod line;

use std::num::NonZero;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::thread::{self, available_parallelism};

use zeroize::Zeroizing;

use self::line::{EditedLine, Line, is_space};
pub use self::line::{Entry, SectionKind, Setting};
pub(crate) use self::line::{LineKind, Naming};
use crate::characters::wide_encoding;
use crate::tunnel_file::PeerSection;
use crate::zeroizing::Buffer;

/// U+FEFF in UTF-8, which some editors write before the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// On how many processors the peers of a file are read at most, and how many peers a thread is worth.
const MOST_THREADS: usize = 8;
const WORTH_A_THREAD: usize = 500;

/// A configuration file.
#[derive(Clone)]
pub struct Document {
    byte_order_mark: bool,
    /// The encoding, if no line of the file can be read in it.
    wide_encoding: Option<&'static str>,
    /// The first holds the lines before any header; it always exists and may be empty.
    sections: Vec<Section>,
}

/// A header with its lines: the comments directly above it, and everything up to the next section. Copies share what is
/// in it.
#[derive(Clone)]
pub struct Section(Arc<Content>);

struct Content {
    kind: SectionKind,
    /// The index of the header among the lines.
    header: usize,
    /// How many lines there are.
    count: usize,
    /// The lines are a part of this text, which is wiped when the last of its sections is dropped.
    text: Arc<Buffer>,
    range: Range<usize>,
    /// What it says of a peer, once that was asked for: copies of a file are read again and again, and most sections
    /// stay as they are.
    peer: OnceLock<PeerSection>,
}

/// A section while it is edited.
struct EditedSection<'a> {
    kind: SectionKind,
    /// The index of the header in `lines`.
    header: usize,
    lines: Vec<EditedLine<'a>>,
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
        let mut copy = Buffer::with_capacity(bytes.len());
        copy.extend(bytes);
        Self::of(Arc::new(copy))
    }

    /// As [`Self::parse`], without a copy.
    pub fn of(text: Arc<Buffer>) -> Self {
        let byte_order_mark = text.starts_with(BYTE_ORDER_MARK);
        let mut end = if byte_order_mark { BYTE_ORDER_MARK.len() } else { 0 };
        let mut sections = Vec::new();
        let mut section = Content::new(SectionKind::Start, 0, 0, &text, end..end);
        for line in Line::all(&text[end..]) {
            if let Some(kind) = line.header() {
                // A header takes the comments directly above it from the previous section.
                let above = Line::all(section.text()).rev().take_while(|above| above.leads_to(line));
                let (leading, length) =
                    above.fold((0, 0), |(leading, length), above| (leading + 1, length + above.0.len()));
                section.count -= leading;
                section.range.end -= length;
                let next = Content::new(kind, leading, leading, &text, section.range.end..end);
                sections.push(Section(Arc::new(std::mem::replace(&mut section, next))));
            }
            end += line.0.len();
            section.count += 1;
            section.range.end = end;
        }
        sections.push(Section(Arc::new(section)));
        Self { byte_order_mark, wide_encoding: wide_encoding(&text), sections }
    }

    /// Reads the peers of a large file ahead, on several processors: whoever asks for them finds them read.
    pub fn read_ahead(&self) {
        if self.sections.len() < 2 * WORTH_A_THREAD {
            return;
        }
        // Asking for it reads files.
        let threads = available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
        if threads == 1 {
            return;
        }
        let mut line = 1;
        let mut peers = Vec::with_capacity(self.sections.len());
        for (index, section) in self.sections.iter().enumerate() {
            if section.kind() == SectionKind::Peer {
                peers.push((section, line + section.header(), index));
            }
            line += section.line_count();
        }
        thread::scope(|scope| {
            for part in peers.chunks(peers.len().div_ceil(threads).max(WORTH_A_THREAD)) {
                let read = move || {
                    for (section, header, index) in part {
                        section.peer(*header, *index);
                    }
                };
                // Without a thread they are read by whoever asks for them.
                let _ = thread::Builder::new().spawn_scoped(scope, read);
            }
        });
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Buffer {
        let mark: &[u8] = if self.byte_order_mark { BYTE_ORDER_MARK } else { b"" };
        let texts = || self.sections.iter().map(|section| section.0.text());
        let mut bytes = Buffer::with_capacity(mark.len() + texts().map(<[u8]>::len).sum::<usize>());
        bytes.extend(mark);
        texts().for_each(|text| bytes.extend(text));
        bytes
    }

    /// Whether the file begins with a byte order mark, which `wg` rejects.
    pub fn has_byte_order_mark(&self) -> bool {
        self.byte_order_mark
    }

    /// The encoding of the file, if no line can be read in it: UTF-16 without a byte order mark, UTF-32.
    pub(crate) fn wide_encoding(&self) -> Option<&'static str> {
        self.wide_encoding
    }

    /// All sections; the first holds the lines before any header. Edits take the index of a section here and of a
    /// line in its section, and panic if there is none.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// A document with only this section.
    pub fn only(&self, section: usize) -> Self {
        let start = Section::of(SectionKind::Start, 0, &[]);
        Self { byte_order_mark: false, wide_encoding: None, sections: vec![start, self.sections[section].clone()] }
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
        self.edit(section, |edited| {
            let line = &mut edited.lines[index];
            if let Some(with_value) = line.line().with_value(setting, value) {
                *line = with_value;
            }
        });
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
        let after = same.or_else(|| entries().next_back()).map_or(self.sections[section].header(), |entry| entry.index);
        let neighbour = self.sections[..=section].iter().rev().find_map(|section| section.entries().next_back());
        let line = Spaces::of(neighbour.as_ref()).line(setting, value);
        self.edit(section, |edited| edited.insert_below(after, line));
        Ok(())
    }

    /// Removes the line `index` of a section. If only comments are left above the next header, an empty line is
    /// added, so that they stay in this section.
    pub fn remove(&mut self, section: usize, index: usize) {
        self.remove_all(section, &[index]);
    }

    /// As [`Self::remove`], of all these lines, which are in order.
    pub fn remove_all(&mut self, section: usize, indices: &[usize]) {
        if indices.is_empty() {
            return;
        }
        self.edit(section, |edited| {
            let mut gone = indices.iter().peekable();
            let lines = std::mem::take(&mut edited.lines).into_iter().enumerate();
            edited.lines = lines.filter(|(index, _)| gone.next_if_eq(&index).is_none()).map(|(_, line)| line).collect();
            assert!(gone.peek().is_none(), "the section has all the lines, each is named once, and they are in order");
            edited.header -= indices.iter().filter(|index| **index < edited.header).count();
        });
        self.separate(section);
    }

    /// Removes all lines with `setting` from a section.
    pub fn unset(&mut self, section: usize, setting: &Setting) {
        let entries = self.sections[section].entries().filter(|entry| entry.is(setting));
        let indices: Vec<usize> = entries.map(|entry| entry.index).collect();
        self.remove_all(section, &indices);
    }

    /// Adds an empty `[Peer]` at the end and returns its index.
    pub fn add_peer(&mut self) -> usize {
        self.add_section(self.sections.len(), SectionKind::Peer, b"[Peer]")
    }

    /// Adds a `[Peer]` with a name and different settings at the end, and returns its index. The text is that of one
    /// which gets them one after the other.
    ///
    /// # Errors
    /// The setting whose value is not valid (see [`InvalidValue`]); nothing was added.
    pub fn add_peer_with(
        &mut self,
        name: &str,
        values: &[(Setting, Zeroizing<String>)],
    ) -> Result<usize, (&'static str, InvalidValue)> {
        check(&NAME, name).map_err(|error| (NAME.name, error))?;
        for (setting, value) in values {
            check(setting, value).map_err(|error| (setting.name, error))?;
        }
        let section = self.add_peer();
        let neighbour = self.sections.iter().rev().find_map(|section| section.entries().next_back());
        let spaces = Spaces::of(neighbour.as_ref());
        let lines: Vec<_> = values.iter().map(|(setting, value)| spaces.line(setting, value)).collect();
        self.edit(section, |edited| {
            edited.insert_below(edited.header, EditedLine::new(&[b"# Name = ", name.as_bytes()]));
            lines.into_iter().for_each(|line| edited.insert_below(edited.lines.len() - 1, line));
        });
        Ok(section)
    }

    /// The index of the first `[Interface]`, which is added before all peers if there is none.
    pub fn interface(&mut self) -> usize {
        let interface = self.sections.iter().position(|section| section.kind() == SectionKind::Interface);
        interface.unwrap_or_else(|| self.add_section(1, SectionKind::Interface, b"[Interface]"))
    }

    /// Removes a section with its comments: those directly above its header, in it, and directly below. A comment
    /// after an empty line stays.
    pub fn remove_section(&mut self, section: usize) {
        if section == 0 {
            return;
        }
        let removed = self.sections.remove(section);
        let was_last = section == self.sections.len();
        let removed = removed.0.edited();
        let rest = &removed.lines[removed.own_end()..];
        self.edit(section - 1, |above| {
            let separated = above.lines.last().is_none_or(|line| line.line().is_blank());
            let rest = rest.iter().map(EditedLine::line).skip_while(|line| separated && line.is_blank());
            let before = above.lines.len();
            above.lines.extend(rest.map(|line| EditedLine::new(&[line.0])));
            if was_last && above.lines.len() == before {
                while above.lines.last().is_some_and(|line| line.line().is_blank()) {
                    above.lines.pop();
                }
            }
        });
        self.separate(section - 1);
    }

    /// Turns a peer into comments, line by line. [`Document::enable`] gives back the same bytes, if no line that begins
    /// with `#~` was there before but those of disabled peers, and no comment ends the one above.
    pub fn disable(&mut self, section: usize) {
        if self.sections[section].kind() == SectionKind::Peer {
            self.edit(section, |disabled| {
                let end = disabled.own_end();
                disabled.lines[..end].iter_mut().for_each(|line| *line = line.line().disabled());
                disabled.kind = SectionKind::DisabledPeer;
            });
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
        let named = |line: Line<'_>| line.comment().and_then(line::assigned_name).is_some();
        let names = |line: Line<'_>| named(line) || line.comment().and_then(line::title).is_some();
        self.edit(section, |edited| {
            let (above, inside) = edited.lines.split_at(edited.header);
            let inside = inside.iter().position(|line| named(line.line())).map(|index| above.len() + index);
            let above =
                || above.iter().rposition(|line| names(line.line())).filter(|&index| named(above[index].line()));
            let parts = [b"# Name = ", name.as_bytes()];
            match inside.or_else(above) {
                Some(index) => {
                    let end = edited.lines[index].line().end();
                    edited.lines[index] = EditedLine::new(&[parts[0], parts[1], end]);
                }
                None => edited.insert_below(edited.header, EditedLine::new(&parts)),
            }
        });
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
        let line = EditedLine::new(&[mark, setting.name.as_bytes(), b" = ", value.as_bytes()]);
        self.edit(section, |edited| edited.insert_below(edited.header, line));
        Ok(())
    }

    /// Adds an empty line below a section if its last line is a comment that would belong to the header below.
    fn separate(&mut self, section: usize) {
        let [above, below, ..] = &self.sections[section..] else { return };
        let header = below.0.lines().nth(below.header());
        if above.0.last_line().zip(header).is_some_and(|(last, header)| last.leads_to(header)) {
            self.edit(section, |above| above.lines.push(EditedLine::new(&[above.end()])));
        }
    }

    fn add_section(&mut self, at: usize, kind: SectionKind, header: &[u8]) -> usize {
        let first = self.sections.iter().find_map(|section| section.0.lines().next());
        let end: &[u8] = if first.is_some_and(|line| line.end() == b"\r\n") { b"\r\n" } else { b"\n" };
        let mut lines: Vec<&[u8]> = Vec::new();
        if let Some(last) = self.sections[..at].iter().rposition(|section| section.0.count > 0) {
            let line = self.sections[last].0.last_line();
            let (is_open, is_blank) = line.map_or((false, true), |line| (line.end().is_empty(), line.is_blank()));
            if is_open {
                self.edit(last, |above| above.lines.push(EditedLine::new(&[end])));
            }
            if !is_blank {
                lines.push(end);
            }
        }
        let header_at = lines.len();
        lines.extend([header, end]);
        if at < self.sections.len() {
            lines.push(end);
        }
        self.sections.insert(at, Section::of(kind, header_at, &lines));
        at
    }

    /// Puts what `change` makes of a section in its place.
    fn edit(&mut self, section: usize, change: impl FnOnce(&mut EditedSection<'_>)) {
        let before = Arc::clone(&self.sections[section].0);
        let mut edited = before.edited();
        change(&mut edited);
        let lines: Vec<&[u8]> = edited.lines.iter().map(|line| line.line().0).collect();
        self.sections[section] = Section::of(edited.kind, edited.header, &lines);
    }
}

impl Section {
    /// A section of which these are the lines, or pieces of them.
    fn of(kind: SectionKind, header: usize, lines: &[&[u8]]) -> Self {
        let mut text = Buffer::with_capacity(lines.iter().map(|line| line.len()).sum());
        lines.iter().for_each(|line| text.extend(line));
        let range = 0..text.len();
        let count = Line::all(&text).count();
        Self(Arc::new(Content::new(kind, header, count, &Arc::new(text), range)))
    }

    /// What it says of a peer, a disabled one as if it were in force. It is section `index` of a file, and its header is
    /// in this line.
    pub(crate) fn peer(&self, line: usize, index: usize) -> &PeerSection {
        self.0.peer.get_or_init(|| PeerSection::read(&self.enabled(), line, index))
    }

    /// What kind of section its header begins.
    pub fn kind(&self) -> SectionKind {
        self.0.kind
    }

    /// The index of its header among its lines.
    pub fn header(&self) -> usize {
        self.0.header
    }

    /// How many lines it has.
    pub(crate) fn line_count(&self) -> usize {
        self.0.count
    }

    /// Its lines, with their line ends.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.0.lines().map(|line| line.0)
    }

    /// Its lines, and what they are. Below a header behind `#!` are settings of linerate-proxy, which are comments here.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&[u8], LineKind<'_>)> {
        let mut is_of_the_proxy = false;
        self.0.lines().map(move |line| {
            let kind = match line.kind() {
                LineKind::Entry(entry) if is_of_the_proxy && entry.marked => LineKind::Comment(b"!"),
                kind => kind,
            };
            match kind {
                LineKind::Comment(text) => is_of_the_proxy |= line::is_marked_header(text),
                LineKind::Header(_) => is_of_the_proxy = false,
                LineKind::Blank | LineKind::Entry(_) | LineKind::Unknown => {}
            }
            (line.0, kind)
        })
    }

    /// Its lines with a setting.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        let lines: Vec<Line<'_>> = self.0.lines().collect();
        lines.into_iter().enumerate().filter_map(|(index, line)| line.entry(index))
    }

    /// Its name from a comment: `# Name = x` or `# friendly_name = x` (prometheus_wireguard_exporter) in it or directly
    /// above; only above, also `### Client x` (wireguard-install), `# BEGIN_PEER x` (Nyr/wireguard-install) and
    /// `### begin x ###` (PiVPN).
    pub fn name(&self) -> Option<String> {
        let mut naming = Naming::default();
        self.kinds().enumerate().for_each(|(index, (_, kind))| naming.line(&kind, index < self.header()));
        naming.name()
    }

    /// The section in force, if it is a disabled peer; else a copy.
    pub fn enabled(&self) -> Self {
        if self.kind() != SectionKind::DisabledPeer {
            return self.clone();
        }
        let lines: Vec<&[u8]> = self.0.lines().map(|line| line.enabled().0).collect();
        Self::of(SectionKind::Peer, self.header(), &lines)
    }
}

impl Content {
    fn new(kind: SectionKind, header: usize, count: usize, text: &Arc<Buffer>, range: Range<usize>) -> Self {
        Self { kind, header, count, text: Arc::clone(text), range, peer: OnceLock::new() }
    }

    fn text(&self) -> &[u8] {
        &self.text[self.range.clone()]
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        Line::all(self.text())
    }

    fn last_line(&self) -> Option<Line<'_>> {
        Line::all(self.text()).next_back()
    }

    fn edited(&self) -> EditedSection<'_> {
        EditedSection { kind: self.kind, header: self.header, lines: self.lines().map(EditedLine::Kept).collect() }
    }
}

impl EditedSection<'_> {
    /// The end of its own lines. Comments after an empty line are not its own, unless they name or close it.
    fn own_end(&self) -> usize {
        let is_disabled = self.kind == SectionKind::DisabledPeer;
        let last = self.lines.iter().map(EditedLine::line).rposition(|line| match line.kind() {
            LineKind::Blank => false,
            LineKind::Comment(_) if is_disabled && line.is_disabled() => true,
            LineKind::Comment(text) => line::assigned_name(text).is_some() || line::closes(text),
            LineKind::Header(_) | LineKind::Entry(_) | LineKind::Unknown => true,
        });
        let end = last.map_or(0, |last| last + 1);
        end + self.lines[end..].iter().take_while(|line| line.line().comment().is_some()).count()
    }

    /// Its line end: `\n` or `\r\n`.
    fn end(&self) -> &'static [u8] {
        self.lines.iter().map(|line| line.line().end()).find(|end| !end.is_empty()).unwrap_or(b"\n")
    }

    /// Inserts `line`, which has no line end, below the line `index`. A file without a final line end stays without.
    fn insert_below(&mut self, index: usize, mut line: EditedLine<'static>) {
        let end = self.end();
        match self.lines.get_mut(index) {
            Some(above) if above.line().end().is_empty() => *above = EditedLine::new(&[above.line().0, end]),
            _ => line = EditedLine::new(&[line.line().0, end]),
        }
        self.lines.insert(self.lines.len().min(index + 1), line);
    }
}

/// The white space in a line with a setting: before the name (or its `#!`), before `=` and after it.
struct Spaces<'a>([&'a [u8]; 3]);

impl<'a> Spaces<'a> {
    /// As in this line, if there is one.
    fn of(neighbour: Option<&'a Entry<'_>>) -> Self {
        Self(neighbour.map_or([&b""[..], b" ", b" "], Entry::spaces))
    }

    fn line(&self, setting: &Setting, value: &str) -> EditedLine<'static> {
        let Self([indent, before, behind]) = self;
        let mark: &[u8] = if setting.marked { b"#! " } else { b"" };
        EditedLine::new(&[indent, mark, setting.name.as_bytes(), before, b"=", behind, value.as_bytes()])
    }
}

/// For [`check`] alone: a name is in a comment.
const NAME: Setting = Setting { name: "Name", section: SectionKind::Peer, marked: false, whole_line: true };

fn check(setting: &Setting, value: &str) -> Result<(), InvalidValue> {
    let bytes = value.as_bytes();
    let bad = |&byte: &u8| matches!(byte, b'\n' | 0) || (byte == b'#' && !setting.whole_line);
    let space_around = bytes.first().zip(bytes.last()).is_none_or(|(&first, &last)| is_space(first) || is_space(last));
    if space_around || bytes.iter().any(bad) { Err(InvalidValue) } else { Ok(()) }
}
