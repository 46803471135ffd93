//! What happens on a system call that the daemon does not need.

/// What happens on a system call that the daemon does not need (`LINERATE_SECCOMP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// It fails with EPERM and is counted.
    #[default]
    Refuse,
    /// The daemon is killed.
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
