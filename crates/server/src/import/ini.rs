//! Files of sections and `key=value` lines: systemd's units, NetworkManager's keyfiles, Python's configparser.

use super::{Error, InputFile, text};

/// A section with its entries; sections with the same name stay apart.
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) place: String,
    pub(super) entries: Vec<Entry<'a>>,
}

pub(super) struct Entry<'a> {
    pub(super) key: &'a str,
    pub(super) value: String,
    pub(super) place: String,
}

/// The syntax of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// A line that ends in a backslash continues in the next one, and invalid lines are skipped (systemd.syntax(7)).
    Systemd,
    /// Each line is a setting, a section or a comment.
    Keyfile,
    /// A value may continue in lines that begin with white space (configparser).
    Python,
}

/// Splits a file into sections.
pub(super) fn sections(file: &InputFile, dialect: Dialect) -> Result<Vec<Section<'_>>, Error> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut continues = false;
    for (number, line) in text::lines(text::without_mark(&file.bytes)) {
        let place = format!("{}:{number}", file.path);
        let line = text::utf8(line, &place)?;
        let is_comment = line.starts_with(['#', ';']);
        if is_comment {
            // It does not end a continued line.
            continue;
        }
        if std::mem::take(&mut continues) {
            let entry = sections.last_mut().and_then(|section| section.entries.last_mut());
            if let Some(entry) = entry {
                continues = line.ends_with('\\');
                entry.value.push(' ');
                entry.value.push_str(line.trim_end_matches('\\').trim());
            }
        } else if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            sections.push(Section { name, place, entries: Vec::new() });
        } else if let Some((key, value)) = line.split_once('=') {
            let Some(section) = sections.last_mut() else {
                if dialect == Dialect::Systemd {
                    continue;
                }
                return Err(Error::at(place, "this setting is outside of any section"));
            };
            continues = dialect == Dialect::Systemd && line.ends_with('\\');
            let value = if continues { value.trim_end_matches('\\') } else { value };
            let value = value.trim().to_owned();
            section.entries.push(Entry { key: key.trim(), value, place });
        } else if !line.is_empty() && (dialect == Dialect::Keyfile || line.starts_with('[')) {
            return Err(Error::at(place, "this line is neither a comment nor a setting"));
        }
    }
    Ok(sections)
}

impl<'a> Section<'a> {
    /// All values of a key. An empty one resets what was before it, as in systemd.
    pub(super) fn all<'s>(&'s self, key: &'s str) -> Vec<&'s Entry<'a>> {
        let entries: Vec<_> = self.entries.iter().filter(|entry| entry.key.eq_ignore_ascii_case(key)).collect();
        let reset = entries.iter().rposition(|entry| entry.value.is_empty()).map_or(0, |at| at + 1);
        entries[reset..].to_vec()
    }

    /// The last value of a key.
    pub(super) fn get<'s>(&'s self, key: &'s str) -> Option<&'s Entry<'a>> {
        self.all(key).last().copied()
    }
}
