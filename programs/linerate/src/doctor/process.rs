//! A process as /proc shows it (proc_pid_status(5), proc_pid_limits(5)). Only reads.

use std::{fs, io};

use rustix::thread::CapabilitySet;

/// How far a process is confined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Its program's name, of at most 15 bytes.
    pub(super) program: String,
    /// Its user.
    pub(super) uid: u32,
    pub(super) capabilities: CapabilitySet,
    /// The capabilities that it could gain by executing a program.
    pub(super) bounding: CapabilitySet,
    /// Whether executing a program cannot gain any.
    pub(super) no_new_privs: bool,
    /// Whether its system calls are filtered.
    pub(super) filtered: bool,
    /// KiB of its memory that are locked.
    pub(super) locked: u64,
    /// Whether it may write core files.
    pub(super) core_files: bool,
}

impl Process {
    /// The process of this number.
    ///
    /// # Errors
    /// It has gone, or /proc does not show it.
    pub(super) fn read(pid: u32) -> io::Result<Self> {
        let file = |name| fs::read_to_string(format!("/proc/{pid}/{name}"));
        Self::parse(&file("status")?, &file("limits")?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(status: &str, limits: &str) -> Option<Self> {
        let value = |name: &str| {
            let of = |line: &'_ str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
            status.lines().find_map(of)
        };
        let first = |name: &str| value(name)?.split_whitespace().next()?.parse::<u64>().ok();
        let set = |name: &str| Some(CapabilitySet::from_bits_retain(u64::from_str_radix(&value(name)?, 16).ok()?));
        let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size"))?;
        Some(Self {
            program: value("Name")?,
            uid: first("Uid")?.try_into().ok()?,
            capabilities: set("CapPrm")?,
            bounding: set("CapBnd")?,
            // Missing in older kernels, which do not support them.
            no_new_privs: first("NoNewPrivs") == Some(1),
            filtered: first("Seccomp") == Some(FILTERED),
            locked: first("VmLck").unwrap_or(0),
            core_files: core.split_whitespace().next()? != "0",
        })
    }
}

/// SECCOMP_MODE_FILTER (linux/seccomp.h).
const FILTERED: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tlinerated\nUid:\t65534\t65534\t65534\t65534\nVmLck:\t  216060 kB\n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000201000\nCapEff:\t0000000000201000\nCapBnd:\t0000000000001000\n\
        NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n";
    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max core file size        0                    unlimited            bytes     \n";

    #[test]
    fn a_confined_process_is_read() {
        let expected = Process {
            program: "linerated".into(),
            uid: 65534,
            capabilities: CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN),
            bounding: CapabilitySet::NET_ADMIN,
            no_new_privs: true,
            filtered: true,
            locked: 216_060,
            core_files: false,
        };
        assert_eq!(Process::parse(STATUS, LIMITS), Some(expected));
    }

    #[test]
    fn a_protection_that_an_older_kernel_does_not_list_is_absent() {
        let status = STATUS.replace("NoNewPrivs", "Other").replace("Seccomp", "Another").replace("VmLck", "VmPin");
        let limits = LIMITS.replace("size        0", "size        unlimited");
        let process = Process::parse(&status, &limits).unwrap();
        assert_eq!((process.no_new_privs, process.filtered, process.locked), (false, false, 0));
        assert!(process.core_files);
    }

    #[test]
    fn other_texts_are_rejected() {
        assert_eq!(Process::parse("", ""), None);
        assert_eq!(Process::parse(STATUS, ""), None);
        assert_eq!(Process::parse(&STATUS.replace("CapPrm:\t", "CapPrm:\tx"), LIMITS), None);
        assert!(Process::read(std::process::id()).is_ok());
    }
}
