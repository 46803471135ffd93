//! The names of clients.

use std::fmt;
use std::str::FromStr;

use linerate_control::printable::printable;

/// The longest name in bytes: the phones' apps name a tunnel after its file, as the kernel does, and take no more.
const LONGEST: usize = 15;

/// The name of a client: safe as a file's name, in a shell, on a page, and as the name of an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName(String);

/// The text is not the name of a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a client's name: use 1 to {LONGEST} letters, digits, `-`, `_` or `.`, the first none of `-` and `.`"
)]
pub struct InvalidClientName(String);

impl ClientName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What two names must differ in: some file systems ignore case.
    pub(crate) fn key(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

impl FromStr for ClientName {
    type Err = InvalidClientName;

    fn from_str(text: &str) -> Result<Self, InvalidClientName> {
        let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name =
            (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_inside) && !text.starts_with(['-', '.']);
        match is_name {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidClientName(printable(text).into_owned())),
        }
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_control::interface::InterfaceName;
    use proptest::prelude::*;

    #[test]
    fn what_could_reach_a_shell_a_page_or_another_folder_is_refused() {
        let texts =
            ["", ".", "..", "-x", ".x", "a/b", "a b", "a\nb", "a\0", "é", "a;b", "$a", "<b>", "a'b", "`a`", "a%d"];
        for text in texts.into_iter().chain(["1234567890123456"]) {
            assert!(text.parse::<ClientName>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_that_of_an_interface_and_part_of_a_path(text in "[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,14}") {
            let name: ClientName = text.parse().unwrap();
            prop_assert!(name.as_str().parse::<InterfaceName>().is_ok());
            prop_assert_eq!(name.to_string(), text);
        }

        #[test]
        fn any_other_text_is_refused_without_repeating_control_characters(text in any::<String>()) {
            if let Err(error) = text.parse::<ClientName>() {
                prop_assert!(!error.to_string().contains(char::is_control));
            }
        }
    }
}
