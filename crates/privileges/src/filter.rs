//! What happens on a system call that a program does not need.

use std::str::FromStr;

/// What happens on a system call that a program does not need (`LINERATE_SECCOMP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// It fails with EPERM and is counted.
    #[default]
    Refuse,
    /// The program is killed.
    Kill,
    /// It is executed, and the kernel logs it (in the audit log if there is one). For debugging only.
    Log,
    /// It is executed: there is no filter. For debugging only.
    Off,
}

impl Filter {
    /// The values of `LINERATE_SECCOMP`.
    pub const MODES: [(&str, Self); 4] =
        [("refuse", Self::Refuse), ("kill", Self::Kill), ("log", Self::Log), ("off", Self::Off)];
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::MODES.iter().find(|(name, _)| *name == word).map(|(_, filter)| *filter).ok_or_else(|| {
            let words = Self::MODES.map(|(name, _)| name).join(", ");
            format!("LINERATE_SECCOMP={word} is not one of {words}")
        })
    }
}
