//! The unprivileged user that the daemon becomes (`--user`).

use std::fs;
use std::io;

/// Where users are looked up (passwd(5)). Directory services have no system users.
const PASSWD: &str = "/etc/passwd";

/// A user of this system.
#[derive(Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    uid: u32,
    gid: u32,
}

impl User {
    /// The user called `name`.
    ///
    /// # Errors
    /// There is no such user, or /etc/passwd cannot be read.
    pub fn find(name: &str) -> Result<Self, String> {
        let users =
            fs::read_to_string(PASSWD).map_err(|error| format!("cannot look up {name} in {PASSWD}: {error}"))?;
        Self::among(&users, name).ok_or_else(|| {
            format!("--user {name}: {PASSWD} has no such user; make one with `useradd --system {name}`, or use nobody")
        })
    }

    fn among(users: &str, name: &str) -> Option<Self> {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let entry = fields.into_iter().find(|fields| fields[0] == name && !name.is_empty())?;
        // To setresuid(2) the largest number means "unchanged".
        let number = |at: usize| entry.get(at)?.parse().ok().filter(|number| *number != u32::MAX);
        Some(Self { name: name.to_owned(), uid: number(2)?, gid: number(3)? })
    }

    /// The user's number.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The number of its primary group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The user's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Why the daemon cannot become this user.
    pub(super) fn refuse(&self, error: &io::Error) -> String {
        format!("cannot switch to user {}: {error}; start as root, or without --user", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD_LINES: &str = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65533::/:/bin/false\nshort:x\nbad:x:-1:0:::\nkept:x:4294967295:4294967295:::\n";

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let nobody = User { name: "nobody".into(), uid: 65534, gid: 65533 };
        assert_eq!(User::among(PASSWD_LINES, "nobody"), Some(nobody));
        for none in ["", "nobod", "nobody:x", "x", "short", "bad", "kept"] {
            assert_eq!(User::among(PASSWD_LINES, none), None, "{none:?}");
        }
    }

    #[test]
    fn an_unknown_user_is_refused_with_a_hint() {
        let refused = User::find("nobody-of-that-name").unwrap_err();
        assert!(refused.contains("useradd"), "{refused}");
    }
}
