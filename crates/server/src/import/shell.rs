//! Files of `NAME=VALUE` lines that a shell would source. They are parsed, never run: what only a shell can evaluate is
//! refused.

use super::{Error, InputFile, text};

/// The assignments of such a file, in their order.
pub(super) struct Assignments<'a> {
    path: &'a str,
    all: Vec<(&'a str, String, usize)>,
}

impl<'a> Assignments<'a> {
    pub(super) fn read(file: &'a InputFile) -> Result<Self, Error> {
        let mut all = Vec::new();
        for (number, line) in text::lines(&file.bytes) {
            let place = format!("{}:{number}", file.path);
            let line = text::utf8(line, &place)?;
            let Some((name, value)) = line.split_once('=').filter(|(name, _)| is_name(name)) else { continue };
            // An array names packages and the like, which are of no use here.
            if !value.starts_with('(') {
                all.push((name, unquoted(value, &place)?, number));
            }
        }
        Ok(Self { path: &file.path, all })
    }

    /// The last value of `name`, unless it is empty, and its place.
    pub(super) fn get(&self, name: &str) -> Option<(&str, String)> {
        let (_, value, number) = self.all.iter().rfind(|(other, ..)| *other == name)?;
        Some((&**value, format!("{}:{number}", self.path))).filter(|(value, _)| !value.is_empty())
    }

    /// The value of `name`.
    pub(super) fn require(&self, name: &str) -> Result<(&str, String), Error> {
        self.get(name).ok_or_else(|| Error::at(self.path, format!("{name} is missing")))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The value without its quotes. A line of an environment file has none, and its value may contain spaces.
fn unquoted(value: &str, place: &str) -> Result<String, Error> {
    let value = value.trim();
    let inner = ['"', '\''].iter().find_map(|&quote| value.strip_prefix(quote)?.strip_suffix(quote));
    let plain = inner.unwrap_or(value);
    if plain.contains(['$', '`', '\\', '"']) {
        return Err(Error::at(place, "this value is for a shell to evaluate: write out what it means"));
    }
    Ok(plain.to_owned())
}
