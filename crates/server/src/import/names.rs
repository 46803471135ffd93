//! Names of clients made from those of other tools, which allow more.

use std::collections::HashSet;

use crate::name::ClientName;

/// The longest name in bytes.
const LONGEST: usize = 15;

/// Whether a name is one that a client of ours may have.
pub(super) fn is_valid(name: &str) -> bool {
    name.parse::<ClientName>().is_ok()
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// The names that are taken, without regard to case.
#[derive(Default)]
pub(super) struct Taken(HashSet<String>);

impl Taken {
    /// Takes a name; false if somebody has it.
    pub(super) fn insert(&mut self, name: &str) -> bool {
        self.0.insert(name.to_ascii_lowercase())
    }

    /// A name that nobody has and that resembles this one.
    pub(super) fn made_from(&mut self, old: &str) -> String {
        let mut plain = String::new();
        for c in old.chars() {
            if is_allowed(c) {
                plain.push(c);
            } else if !plain.ends_with('-') && c != '\'' && c != '’' {
                plain.push('-');
            }
        }
        let plain = plain.trim_matches(['-', '.']);
        let stem = if plain.is_empty() { "client" } else { plain };
        let numbered = |number: usize| {
            let end = if number == 1 { String::new() } else { format!("-{number}") };
            format!("{}{end}", &stem[..stem.len().min(LONGEST - end.len())])
        };
        let mut number = 1;
        loop {
            let name = numbered(number);
            if self.insert(&name) {
                return name;
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_names_become_valid_and_unique_ones(old in prop::collection::vec(".{0,30}", 0..40)) {
            let mut taken = Taken::default();
            let made: Vec<String> = old.iter().map(|old| taken.made_from(old)).collect();
            let distinct: HashSet<String> = made.iter().map(|name| name.to_ascii_lowercase()).collect();
            prop_assert_eq!(distinct.len(), made.len());
            prop_assert!(made.iter().all(|name| is_valid(name)), "{:?}", made);
        }
    }

    #[test]
    fn a_name_keeps_what_may_stay() {
        let mut taken = Taken::default();
        let mut made = |old: &str| taken.made_from(old);
        assert_eq!(made("Bob's phone"), "Bobs-phone");
        assert_eq!(made("bobs phone"), "bobs-phone-2");
        assert_eq!(made("../../etc/passwd"), "etc-passwd");
        assert_eq!(made("a name that is too long"), "a-name-that-is-");
        assert_eq!(made("a name that is too long, too"), "a-name-that-i-2");
        assert_eq!([made(""), made("家")], ["client", "client-2"]);
    }
}
