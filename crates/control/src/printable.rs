//! Text for a terminal: control characters in a file, a record or a reply must not move the cursor, change colours or
//! reverse the direction of text.

use std::borrow::Cow;

/// `text` with control characters escaped as in Rust (`\u{1b}`, `\n`), including those that change the text direction
/// (UAX #9).
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A message for a terminal: [`printable`] line by line, without the error numbers that std adds to errors of the
/// system.
pub fn for_people(text: &str) -> String {
    let parts = text.split_inclusive(['\n', '\t']);
    let mut shown = String::with_capacity(text.len());
    for part in parts {
        let whole = part.trim_end_matches(['\n', '\t']);
        shown.push_str(&printable(&without_error_numbers(whole)));
        shown.push_str(&part[whole.len()..]);
    }
    shown
}

fn without_error_numbers(text: &str) -> String {
    let mut pieces = text.split(" (os error ");
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => shown.push_str(rest),
            _ => shown.extend([" (os error ", piece]),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_are_escaped() {
        assert_eq!(printable("Zoë's router, 家 \\"), "Zoë's router, 家 \\");
        assert_eq!(printable("\x1b]0;x\x07"), r"\u{1b}]0;x\u{7}");
        assert_eq!(printable("a\nb\tc\rd\0"), r"a\nb\tc\rd\u{0}");
        assert_eq!(printable("\u{9b}31m \u{7f}"), r"\u{9b}31m \u{7f}");
        assert_eq!(printable("user\u{202e}toor"), r"user\u{202e}toor");
    }

    #[test]
    fn people_read_errors_of_the_system_without_their_number() {
        let error = std::io::Error::from_raw_os_error(13);
        assert!(error.to_string().ends_with(" (os error 13)"), "std says it otherwise: {error}");
        assert_eq!(for_people(&format!("`/run': {error}; run as root")), "`/run': Permission denied; run as root");
        assert_eq!(for_people(&format!("{error}\n{error}")), "Permission denied\nPermission denied");
        // Of a daemon that forgot the sign.
        assert_eq!(for_people(&std::io::Error::from_raw_os_error(-98).to_string()), "Unknown error -98");
    }

    #[test]
    fn a_message_keeps_its_lines_and_no_other_control_character() {
        assert_eq!(for_people("a\tb\n\x1b[31mred\n"), "a\tb\n\\u{1b}[31mred\n");
    }

    #[test]
    fn what_only_looks_like_such_a_number_stays() {
        for text in ["", "an (os error ", " (os error )", "x (os error 1", "x (os error one)", " (os error"] {
            assert_eq!(for_people(text), text);
        }
    }
}
