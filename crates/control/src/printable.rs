//! Text for a terminal. What a file, a daemon or a record contains must not move the cursor, colour the screen or reverse
//! the order of what is read.

use std::borrow::Cow;

/// `text` with its control characters escaped as in Rust (`\u{1b}`, `\n`), including those that change the direction of
/// writing (UAX #9).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_all_else_stays() {
        assert_eq!(printable("Zoë's router, 家 \\"), "Zoë's router, 家 \\");
        assert_eq!(printable("\x1b]0;x\x07"), r"\u{1b}]0;x\u{7}");
        assert_eq!(printable("a\nb\tc\rd\0"), r"a\nb\tc\rd\u{0}");
        assert_eq!(printable("\u{9b}31m \u{7f}"), r"\u{9b}31m \u{7f}");
        assert_eq!(printable("user\u{202e}toor"), r"user\u{202e}toor");
    }
}
