//! Makes clients' names of other tools valid: those tools allow equal names and invisible characters.

use std::collections::HashSet;

use crate::name::{ClientName, MAX_NAME_CHARS, folded, mended};

/// The taken names, in the form in which names are compared ([`folded`]).
#[derive(Default)]
pub(super) struct Taken(HashSet<String>);

impl Taken {
    /// Takes the name unchanged; `None` if it is invalid or taken.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let name: ClientName = name.parse().ok()?;
        self.0.insert(name.key()).then(|| name.to_string())
    }

    /// Takes a free name that resembles this one.
    pub(super) fn made_from(&mut self, old: &str) -> String {
        let stem = mended(old).map_or_else(|| "client".to_owned(), |name| name.to_string());
        let numbered = |number: usize| match number {
            1 => stem.clone(),
            _ => {
                let end = format!("-{number}");
                let start: String = stem.chars().take(MAX_NAME_CHARS - end.len()).collect();
                mended(&format!("{start}{end}")).map_or(end, |name| name.to_string())
            }
        };
        let free = (1..).map(numbered).find(|name| self.0.insert(folded(name)));
        free.expect("there are more numbers than names")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_names_become_valid_and_unique_ones(old in prop::collection::vec(".{0,80}", 0..20), twice in 0..20usize) {
            let mut taken = Taken::default();
            let all = old.iter().chain(old.get(twice));
            let made: Vec<String> = all.map(|old| taken.made_from(old)).collect();
            let distinct: HashSet<String> = made.iter().map(|name| folded(name)).collect();
            prop_assert_eq!(distinct.len(), made.len());
            prop_assert!(made.iter().all(|name| name.parse::<ClientName>().is_ok()), "{:?}", made);
        }
    }

    #[test]
    fn a_name_keeps_what_people_wrote() {
        let mut taken = Taken::default();
        let mut made = |old: &str| taken.made_from(old);
        assert_eq!(made("Müller's iPhone 📱"), "Müller's iPhone 📱");
        assert_eq!(made("müller's iPhone 📱"), "müller's iPhone 📱-2");
        assert_eq!(made("../../etc/passwd"), "../../etc/passwd");
        assert_eq!(made("a\u{a0}name\n[Peer]"), "a name [Peer]");
        assert_eq!(made(&"x".repeat(65)), "x".repeat(64));
        assert_eq!(made(&"x".repeat(66)), format!("{}-2", "x".repeat(62)));
        assert_eq!([made(""), made("\u{200b}")], ["client", "client-2"]);
    }
}
