//! Characters of a configuration file that people do not see, or take for others: what they are, and where. And the
//! encodings in which Windows writes such a file.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use crate::zeroizing::Buffer;

/// A character that no keyword, number, key or address has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Odd {
    /// Its column in the line: characters, from 1.
    pub column: usize,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Character(char),
    /// A byte that is not UTF-8.
    Byte(u8),
}

impl Odd {
    /// This one, at a column.
    pub fn of(c: char, column: usize) -> Self {
        Self { column, what: What::Character(c) }
    }

    /// The first one in a line, which has no line end.
    pub fn first(line: &[u8]) -> Option<Self> {
        Self::find(line, |c| !c.is_ascii() || c.is_ascii_control())
    }

    /// The first one in a line that is not seen.
    pub fn first_invisible(line: &[u8]) -> Option<Self> {
        Self::find(line, is_invisible).filter(|odd| matches!(odd.what, What::Character(_)))
    }

    fn find(line: &[u8], is_odd: impl Fn(char) -> bool) -> Option<Self> {
        let mut column = 0;
        for chunk in line.utf8_chunks() {
            for c in chunk.valid().chars() {
                column += 1;
                if c != '\t' && is_odd(c) {
                    return Some(Self::of(c, column));
                }
            }
            if let Some(&byte) = chunk.invalid().first() {
                return Some(Self { column: column + 1, what: What::Byte(byte) });
            }
        }
        None
    }

    /// What to do about it; nothing if that depends on what was meant.
    pub fn hint(self) -> Option<String> {
        match self.what {
            What::Byte(_) | What::Character(char::REPLACEMENT_CHARACTER) => Some("save the file as UTF-8".to_owned()),
            What::Character(c) if is_invisible(c) => Some("remove it, or put a plain space in its place".to_owned()),
            What::Character(c) => ascii_twin(c).map(|twin| format!("type a plain `{twin}` in its place")),
        }
    }
}

/// `U+00A0 no-break space at column 11`.
impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Byte(byte) => write!(f, "a byte that is not UTF-8 (0x{byte:02X})")?,
            What::Character(c) => {
                write!(f, "U+{:04X} ", u32::from(c))?;
                match (name(c), ascii_twin(c).filter(|twin| *twin != c)) {
                    (Some(name), Some(twin)) => write!(f, "{name} that looks like `{twin}`")?,
                    (Some(name), None) => f.write_str(name)?,
                    (None, _) if is_invisible(c) => f.write_str("invisible character")?,
                    (None, _) => write!(f, "`{c}`")?,
                }
            }
        }
        write!(f, " at column {}", self.column)
    }
}

/// `text` with characters escaped that are not seen (`\u{a0}`).
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.contains(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_invisible(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Control and format characters, and white space other than a plain space (Unicode 16, general categories Cc, Cf, Zl, Zp and
/// Zs, and letters without a shape).
const INVISIBLE: [RangeInclusive<char>; 26] = [
    '\0'..='\u{1f}',
    '\u{7f}'..='\u{a0}',
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{600}'..='\u{605}',
    '\u{61c}'..='\u{61c}',
    '\u{6dd}'..='\u{6dd}',
    '\u{70f}'..='\u{70f}',
    '\u{890}'..='\u{891}',
    '\u{8e2}'..='\u{8e2}',
    '\u{115f}'..='\u{1160}',
    '\u{1680}'..='\u{1680}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{2000}'..='\u{200f}',
    '\u{2028}'..='\u{202f}',
    '\u{205f}'..='\u{206f}',
    '\u{2800}'..='\u{2800}',
    '\u{3000}'..='\u{3000}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];

/// Whether a character is not seen, or is white space other than a plain space.
pub fn is_invisible(c: char) -> bool {
    INVISIBLE.iter().any(|range| range.contains(&c))
}

fn name(c: char) -> Option<&'static str> {
    Some(match c {
        '\0' => "NUL",
        '\t' => "tab",
        '\n' => "line feed",
        '\u{8}' => "backspace",
        '\u{b}' => "vertical tab",
        '\u{c}' => "form feed",
        '\r' => "carriage return",
        '\u{1b}' => "escape",
        '\u{7f}' => "delete",
        '\u{85}' => "next line",
        c if c.is_control() => "control character",
        '\u{a0}' => "no-break space",
        '\u{ad}' => "soft hyphen",
        '\u{200b}' => "zero-width space",
        '\u{200c}' => "zero-width non-joiner",
        '\u{200d}' => "zero-width joiner",
        '\u{200e}' => "left-to-right mark",
        '\u{200f}' => "right-to-left mark",
        '\u{2028}' => "line separator",
        '\u{2029}' => "paragraph separator",
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => "control of the direction of text",
        '\u{202f}' => "narrow no-break space",
        '\u{2060}' => "word joiner",
        '\u{3000}' => "ideographic space",
        '\u{feff}' => "byte order mark",
        c if c.is_whitespace() => "space of another width",
        '\u{2010}'..='\u{2015}' | '\u{2212}' => "dash",
        '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}' => "quotation mark",
        '\u{370}'..='\u{3ff}' => "Greek letter",
        '\u{400}'..='\u{52f}' => "Cyrillic letter",
        '\u{ff01}'..='\u{ff5e}' => "full-width character",
        char::REPLACEMENT_CHARACTER => "replacement character",
        _ => return None,
    })
}

/// The characters of ASCII that others look like.
const TWINS: [(&str, &str); 4] = [
    ("АВЕЅІЈКМНОРСТУХаеорсухіјѕԁһ", "ABESIJKMHOPCTYXaeopcyxijsdh"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧο", "ABEZHIKMNOPTYXo"),
    ("‐‑‒–—―−", "-------"),
    ("‘’“”", "''\"\""),
];

/// The character of ASCII that `c` is or looks like.
pub(crate) fn ascii_twin(c: char) -> Option<char> {
    if c.is_ascii() {
        return Some(c);
    }
    if ('\u{ff01}'..='\u{ff5e}').contains(&c) {
        return char::from_u32(u32::from(c) - 0xfee0);
    }
    let twin = |(of, twins): &(&str, &'static str)| of.chars().zip(twins.chars()).find(|(other, _)| *other == c);
    TWINS.iter().find_map(twin).map(|(_, twin)| twin)
}

/// A line up to its end and its comment. What begins with `#!` or `#~` is no comment.
pub fn without_comment(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_comment = |at: usize| line[at] == b'#' && !matches!(line.get(at + 1), Some(b'!' | b'~'));
    &line[..(0..line.len()).find(|&at| is_comment(at)).unwrap_or(line.len())]
}

/// The text of a file as UTF-8, if it is UTF-16 and begins with a byte order mark, which stays; else as it is.
pub fn decoded(bytes: Buffer) -> Buffer {
    let unit: fn([u8; 2]) -> u16 = match *bytes {
        // UTF-32.
        [0xff, 0xfe, 0, 0, ..] => return bytes,
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return bytes,
    };
    let (pairs, []) = bytes.as_chunks::<2>() else { return bytes };
    // A unit becomes at most three bytes.
    let mut text = Buffer::with_capacity(pairs.len() * 3);
    for c in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        let Ok(c) = c else { return bytes };
        text.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    text
}

/// How many bytes tell in which encoding a file is.
const LOOKED_AT: usize = 256;

/// The encoding of a file that is not in one with bytes of its own for ASCII: UTF-16, UTF-32.
pub fn wide_encoding(bytes: &[u8]) -> Option<&'static str> {
    let start = &bytes[..bytes.len().min(LOOKED_AT)];
    let zeros = start.iter().filter(|&&byte| byte == 0).count();
    match bytes {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Some("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("UTF-16"),
        _ if zeros * 3 > start.len() * 2 => Some("UTF-32"),
        _ if zeros * 3 > start.len() => Some("UTF-16"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(line: &str) -> String {
        Odd::first(line.as_bytes()).map(|odd| odd.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_character_is_named_with_its_column() {
        for (line, named) in [
            ("MTU = 1420", ""),
            ("MTU\t=\t1420", ""),
            ("Address =\u{a0}10.0.0.1", "U+00A0 no-break space at column 10"),
            ("Address\u{200b} = 10.0.0.1", "U+200B zero-width space at column 8"),
            ("\u{feff}[Peer]", "U+FEFF byte order mark at column 1"),
            ("АllowedIPs = ::/0", "U+0410 Cyrillic letter that looks like `A` at column 1"),
            ("Address = 10.0.0.1／24", "U+FF0F full-width character that looks like `/` at column 19"),
            ("a\u{2003}b", "U+2003 space of another width at column 2"),
            ("a\u{e0041}b", "U+E0041 invisible character at column 2"),
            ("a\rb", "U+000D carriage return at column 2"),
            ("a\u{1b}b", "U+001B escape at column 2"),
            ("a\u{1}b", "U+0001 control character at column 2"),
            ("naïve", "U+00EF `ï` at column 3"),
        ] {
            assert_eq!(first(line), named);
        }
        let latin = Odd::first(b"caf\xe9 = 1").unwrap();
        assert_eq!(latin.to_string(), "a byte that is not UTF-8 (0xE9) at column 4");
        assert_eq!(latin.hint().unwrap(), "save the file as UTF-8");
    }

    #[test]
    fn only_what_is_not_seen_is_escaped() {
        assert_eq!(visible("10.0.0.1\u{a0}/\u{200b}24"), "10.0.0.1\\u{a0}/\\u{200b}24");
        assert_eq!(visible("Zoë's router, 家"), "Zoë's router, 家");
    }

    #[test]
    fn utf_16_with_a_byte_order_mark_is_read_in_both_orders() {
        let text = "\u{feff}[Interface]\r\n# 家 🏠\r\n";
        let units: Vec<u16> = text.encode_utf16().collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        for bytes in [&little, &big] {
            assert_eq!(wide_encoding(bytes), Some("UTF-16"));
            assert_eq!(&*decoded(Buffer::from(bytes.clone())), text.as_bytes());
            assert_eq!(wide_encoding(&bytes[2..]), Some("UTF-16"), "without the mark");
        }
        let wide: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        for bytes in [&wide[..], &wide[4..]] {
            assert_eq!(wide_encoding(bytes), Some("UTF-32"));
            assert_eq!(&*decoded(Buffer::from(bytes.to_vec())), bytes);
        }
    }

    #[test]
    fn what_is_cut_short_or_no_text_stays_as_it_is() {
        for bytes in
            [&b""[..], b"\xff", b"\xff\xfe", b"\xff\xfeA", b"\xff\xfe\x00\xd8", b"\xfe\xff\xd8\x00\x00", b"[Interface]"]
        {
            let kept = decoded(Buffer::from(bytes.to_vec()));
            assert!(*kept == *bytes || &*kept == "\u{feff}".as_bytes(), "{bytes:?}");
        }
    }
}
