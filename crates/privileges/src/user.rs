//! The unprivileged user that the daemon becomes (`--user`).

use std::fs;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Where users are looked up: those of the system stand here (passwd(5)), and directory services are for people.
const USERS: &str = "/etc/passwd";

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
    /// There is none, or /etc/passwd cannot be read.
    pub fn find(name: &str) -> Result<Self, String> {
        let users = fs::read_to_string(USERS).map_err(|error| format!("cannot look up {name} in {USERS}: {error}"))?;
        Self::among(&users, name).ok_or_else(|| {
            format!("--user {name}: {USERS} has no such user; make one with `useradd --system {name}`, or take nobody")
        })
    }

    fn among(users: &str, name: &str) -> Option<Self> {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let entry = fields.into_iter().find(|fields| fields[0] == name && !name.is_empty())?;
        // The largest number means "as it is" to setresuid(2).
        let number = |at: usize| entry.get(at)?.parse().ok().filter(|number| *number != u32::MAX);
        Some(Self { name: name.to_owned(), uid: number(2)?, gid: number(3)? })
    }

    /// Makes the calling thread this user's, in the user's own group and no other. Capabilities stay permitted.
    /// For a process of one thread: others would stay whose they are.
    pub(super) fn become_it(&self) -> Result<(), String> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_keep_capabilities(true)
            .and_then(|()| set_thread_groups(&[]))
            .and_then(|()| set_thread_res_gid(gid, gid, gid))
            .and_then(|()| set_thread_res_uid(uid, uid, uid))
            .map_err(|error| format!("cannot become the user {}: {error}; start as root, or without --user", self.name))
    }
}

/// Makes the calling thread nobody's (the kernel's overflow user, 65534), without any group or capability.
///
/// # Errors
/// It may not, without CAP_SETUID and CAP_SETGID.
pub(super) fn become_nobody() -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(65534), Gid::from_raw(65534));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65533::/:/bin/false\nshort:x\nbad:x:-1:0:::\nkept:x:4294967295:4294967295:::\n";

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let nobody = User { name: "nobody".into(), uid: 65534, gid: 65533 };
        assert_eq!(User::among(SOME, "nobody"), Some(nobody));
        for none in ["", "nobod", "nobody:x", "x", "short", "bad", "kept"] {
            assert_eq!(User::among(SOME, none), None, "{none:?}");
        }
    }

    #[test]
    fn a_user_that_is_not_there_is_refused_with_what_to_do() {
        let refused = User::find("nobody-of-that-name").unwrap_err();
        assert!(refused.contains("useradd"), "{refused}");
    }
}
