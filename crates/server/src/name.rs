//! The names of clients: what people call them, and the names of their files.
//!
//! A client's name is one line of text in a comment of the tunnel's file, so it sets nothing there. It is never part of a
//! path: the client's file has a name made from it that is valid in a shell, in the phones' apps and for an interface.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use linerate_control::characters::{Odd, is_invisible, visible};
use linerate_control::printable::printable;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The maximum length of a name, in characters (Unicode scalar values).
pub(crate) const MAX_NAME_CHARS: usize = 64;

/// The maximum length of a file's name in bytes, without `.conf`. The phones' apps name a tunnel after its file, and like
/// the kernel accept no longer name.
const MAX_FILE_NAME_BYTES: usize = 15;

/// The name of a client: one line of any text, in Unicode's normalization form C.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName(String);

/// The text is not the name of a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a client's name: {why}")]
pub struct InvalidClientName {
    text: String,
    why: String,
}

impl ClientName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the form in which names are compared: no two clients have the same.
    pub(crate) fn key(&self) -> String {
        folded(&self.0)
    }

    /// Whether the client's file has the same name.
    pub fn is_plain(&self) -> bool {
        is_plain(&self.0)
    }

    /// Returns a name for the client's file, without `.conf`: the name itself if it is plain, or else its plain characters
    /// and a digest of the whole name. Each `attempt` has another digest.
    pub(crate) fn file_name(&self, attempt: u32) -> String {
        const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        if self.is_plain() && attempt == 0 {
            return self.0.clone();
        }
        let stem = plain_part(&self.0);
        let (stem, digits) =
            if stem.is_empty() { ("client", 8) } else { (shortened(&stem, MAX_FILE_NAME_BYTES - 6), 5) };
        let bytes = self.0.bytes().chain(attempt.to_le_bytes());
        // FNV-1a is enough: a collision, also a deliberate one, only causes another attempt.
        let digest =
            bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        let digit = |at: u32| char::from(DIGITS[(digest >> (5 * at)) as usize % DIGITS.len()]);
        format!("{stem}-{}", (0..digits).map(digit).collect::<String>())
    }
}

impl FromStr for ClientName {
    type Err = InvalidClientName;

    fn from_str(text: &str) -> Result<Self, InvalidClientName> {
        let name = composed(text.trim());
        let refused = |why: String| {
            let shown: String = printable(&visible(text)).chars().take(2 * MAX_NAME_CHARS).collect();
            InvalidClientName { text: shown, why }
        };
        let length = name.chars().count();
        if !(1..=MAX_NAME_CHARS).contains(&length) {
            return Err(refused(format!("it has {length} characters, and names have 1 to {MAX_NAME_CHARS}")));
        }
        match first_odd(&name) {
            Some(odd) => {
                let hint = odd.hint().map_or_else(String::new, |hint| format!(": {hint}"));
                Err(refused(format!("it has {odd}{hint}")))
            }
            None => Ok(Self(name.into_owned())),
        }
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Returns the form in which names are compared: without regard to case, to how letters are composed and to invisible
/// characters.
pub fn folded(name: &str) -> String {
    let name = name.trim();
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    let seen = name.nfc().filter(|&c| !is_joiner(c) && !is_variation(c));
    let seen = seen.map(|c| if c == IDEOGRAPHIC_SPACE { ' ' } else { c });
    // Upper case first: it makes `ß` equal to `ss`, and all forms of sigma equal.
    seen.flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfc().collect()
}

/// Returns the form in which texts are searched: without regard to case, accents and widths.
pub fn searchable(text: &str) -> String {
    if text.is_ascii() {
        return text.trim().to_ascii_lowercase();
    }
    let bare: String = text.nfkd().filter(|&c| !is_combining_mark(c)).collect();
    folded(&bare)
}

/// Makes a valid name from `text`; `None` if it has no valid characters.
pub(crate) fn mended(text: &str) -> Option<ClientName> {
    let mut name = String::new();
    for (c, is_odd) in judged(&composed(text)) {
        match is_odd {
            false => name.push(c),
            true if c.is_whitespace() && !name.ends_with(' ') => name.push(' '),
            true => {}
        }
    }
    let name: String = name.trim().chars().take(MAX_NAME_CHARS).collect();
    // A cut may leave half of an emoji.
    let half = |c: char| is_joiner(c) || c.is_whitespace();
    name.trim_end_matches(half).parse().ok()
}

/// Whether the kernel accepts the name for an interface, and every system for a file.
fn is_plain(name: &str) -> bool {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_FILE_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_inside) && !name.starts_with(['-', '.'])
}

/// Reduces a name to ASCII letters and digits: drops accents, and replaces other characters by `-`.
fn plain_part(name: &str) -> String {
    let mut plain = String::new();
    for c in name.nfkd().filter(|&c| !is_combining_mark(c) && c != '\'' && c != '’') {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' => plain.push(c),
            _ if plain.ends_with('-') => {}
            _ => plain.push('-'),
        }
    }
    plain.trim_matches(['-', '.']).to_owned()
}

/// Shortens an ASCII text to at most `length` bytes.
fn shortened(text: &str, length: usize) -> &str {
    text[..text.len().min(length)].trim_end_matches(['-', '.'])
}

/// The text with its letters composed (NFC).
fn composed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(text.nfc().collect()) }
}

fn first_odd(name: &str) -> Option<Odd> {
    judged(name).zip(1..).find(|((_, is_odd), _)| *is_odd).map(|((c, _), column)| Odd::of(c, column))
}

/// Returns the characters of a name, each with whether it is forbidden in names.
fn judged(name: &str) -> impl Iterator<Item = (char, bool)> {
    let mut before = None;
    name.char_indices().map(move |(at, c)| {
        let after = name[at + c.len_utf8()..].chars().next();
        let is_odd = c == char::REPLACEMENT_CHARACTER || is_invisible(c) && !is_part(before, c, after);
        before = Some(c);
        (c, is_odd)
    })
}

/// The space of Chinese and Japanese keyboards, common between family and given names.
const IDEOGRAPHIC_SPACE: char = '\u{3000}';

/// Whether an invisible character changes the visible ones around it, as in emoji and in the scripts of Persian and Hindi.
fn is_part(before: Option<char>, c: char, after: Option<char>) -> bool {
    let before = before.unwrap_or_default();
    let is_seen = |c: char| !c.is_ascii() && !is_invisible(c);
    let can_join = |c: char| c >= '\u{590}' && is_seen(c);
    match c {
        IDEOGRAPHIC_SPACE => true,
        // 1️⃣ begins with a digit.
        c if is_variation(c) => is_seen(before) || "0123456789#*".contains(before),
        c if is_joiner(c) => (can_join(before) || is_variation(before)) && after.is_some_and(can_join),
        // The flags of England, Scotland and Wales.
        c if is_tag(c) => before == '🏴' || is_tag(before),
        _ => false,
    }
}

/// Whether the character is a variation selector: it chooses the form of the character before it.
fn is_variation(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

fn is_tag(c: char) -> bool {
    matches!(c, '\u{e0020}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_control::interface::InterfaceName;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<String, String> {
        text.parse().map(|name: ClientName| name.0).map_err(|error: InvalidClientName| error.to_string())
    }

    #[test]
    fn people_name_clients_in_any_script() {
        for text in [
            "Müller's iPhone 📱",
            "ноутбук Ани",
            "田中　太郎のiPhone",
            "葛\u{e0100}城",
            "مریم می\u{200c}خواهد",
            "क\u{94d}\u{200d}ष",
            "הטלפון של דנה",
            "👩\u{200d}👩\u{200d}👧 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
            "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
            "a/b; $(id) `x` <b> \"q\" %d # = ]",
            "-x",
            "..",
            &"家".repeat(64),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(text));
        }
        assert_eq!(parsed(" Zoe\u{308} ").as_deref(), Ok("Zoë"), "without white space around it, and composed");
    }

    #[test]
    fn what_is_not_seen_is_refused_by_name() {
        for (text, named) in [
            ("", "it has 0 characters, and names have 1 to 64"),
            (" \u{3000}\n", "it has 0 characters, and names have 1 to 64"),
            (&"x".repeat(65), "it has 65 characters, and names have 1 to 64"),
            ("x]\n[Peer]", "it has U+000A line feed at column 3: remove it, or put a plain space in its place"),
            ("a\tb", "it has U+0009 tab at column 2"),
            ("a\0", "it has U+0000 NUL at column 2"),
            ("a\u{1b}[31m", "it has U+001B escape at column 2"),
            ("a\u{85}b", "it has U+0085 next line at column 2"),
            ("a\u{2028}b", "it has U+2028 line separator at column 2"),
            ("user\u{202e}toor", "it has U+202E control of the direction of text at column 5"),
            ("a\u{a0}b", "it has U+00A0 no-break space at column 2"),
            ("a\u{200b}b", "it has U+200B zero-width space at column 2"),
            ("a\u{200d}b", "it has U+200D zero-width joiner at column 2"),
            ("家\u{200d}", "it has U+200D zero-width joiner at column 2"),
            ("a\u{fe0f}", "it has U+FE0F invisible character at column 2"),
            ("a\u{e0041}", "it has U+E0041 invisible character at column 2"),
            ("caf\u{fffd}", "it has U+FFFD replacement character at column 4: save the file as UTF-8"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(&format!("is not a client's name: {named}")), "{text:?}: {error}");
            assert!(!error.contains(is_invisible), "{error:?}");
        }
    }

    #[test]
    fn names_are_the_same_that_look_the_same() {
        for (one, other) in [
            ("Phone", "phone"),
            ("MÜLLER", "mu\u{308}ller"),
            ("STRASSE", "straße"),
            ("ΟΔΟΣ", "οδος"),
            ("❤\u{fe0f}", "❤"),
            ("田中　太郎", "田中 太郎"),
        ] {
            assert_eq!(folded(one), folded(other), "{one} {other}");
        }
        assert_ne!(folded("müller"), folded("muller"));
        assert_eq!(searchable("MÜLLER’s ＰＣ"), "muller’s pc");
    }

    #[test]
    fn the_name_of_a_file_is_stable_and_resembles_that_of_the_client() {
        let file = |name: &str| name.parse::<ClientName>().unwrap().file_name(0);
        assert_eq!(file("laptop"), "laptop");
        for (name, stem) in [
            ("Müller's iPhone 📱", "Mullers-i-"),
            ("a name that is too long", "a-name-th-"),
            ("../../etc/passwd", "etc-passw-"),
            ("Bob's PC", "Bobs-PC-"),
            ("-rf", "rf-"),
            ("..", "client-"),
            ("家", "client-"),
        ] {
            let (made, again) = (file(name), file(name));
            assert!(made.starts_with(stem) && is_plain(&made) && made == again, "{name}: {made}");
        }
        // Clients keep the names of their files for ever.
        assert_eq!([file("家"), file("Bob's PC")], ["client-m0cmq4qb", "Bobs-PC-78r53"]);
    }

    #[test]
    fn what_another_tool_allows_becomes_a_name() {
        let made = |text: &str| mended(text).map(|name| name.0);
        assert_eq!(made("a\u{a0}b\u{200b}\nc\u{202e}").as_deref(), Some("a b c"));
        assert_eq!(made(&"x".repeat(100)), Some("x".repeat(64)));
        assert_eq!(made(&"👩\u{200d}👧".repeat(40)).map(|name| name.chars().count()), Some(64));
        assert_eq!([made(""), made("\u{200b} ")], [None, None]);
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_that_stays_the_same_or_is_refused_without_what_is_not_seen(text in any::<String>()) {
            match text.parse::<ClientName>() {
                Ok(name) => {
                    prop_assert!(!name.as_str().contains(char::is_control));
                    prop_assert_eq!(name.as_str().parse::<ClientName>(), Ok(name.clone()));
                    prop_assert_eq!(folded(&name.key()), name.key());
                }
                Err(error) => prop_assert!(!error.to_string().contains(is_invisible), "{}", error),
            }
        }

        #[test]
        fn the_name_of_a_file_is_that_of_an_interface_and_part_of_a_path(text in "\\PC{1,70}", attempt in 0..3u32) {
            if let Some(name) = mended(&text) {
                let file = name.file_name(attempt);
                prop_assert!(is_plain(&file), "{}", file);
                prop_assert!(file.parse::<InterfaceName>().is_ok(), "{}", file);
                prop_assert_ne!(name.file_name(attempt + 1), file);
            }
        }

        #[test]
        fn a_plain_name_is_that_of_its_file(text in "[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,14}") {
            let name: ClientName = text.parse().unwrap();
            prop_assert_eq!(name.file_name(0), text.clone());
            prop_assert_eq!(name.to_string(), text);
        }
    }
}
