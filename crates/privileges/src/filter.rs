//! The system calls that the daemon makes once it is set up; all others are refused (seccomp(2)).
//!
//! Calls that carry packets are allowed whatever their arguments: the kernel keeps a bitmap of such calls
//! (kernel/seccomp.c, seccomp_cache_check_allow, Linux 5.11), and runs the filter for the others alone. What could
//! do more than the daemon needs is bound to the arguments it is made with; a filter sees numbers, never what a
//! pointer points to.
//!
//! Opening files, connecting, executing and making processes are not among the calls, so whatever is opened has to
//! be opened before. A call that is missing here shows as `system_calls_refused` in `linerate show IFACE --stats`,
//! and with `LINERATE_SECCOMP=kill`, as the scenarios run, ends the daemon.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use linerate_netio::process::refuse_trapped_calls;
use rustix::process::getpid;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

/// What becomes of a system call that the daemon has no use for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// It fails with EPERM and is counted.
    #[default]
    Refuse,
    /// It ends the daemon.
    Kill,
    /// It is carried out, and the kernel writes a line (into the audit log, or else its own).
    Log,
    /// There is no filter.
    Off,
}

impl Filter {
    /// What `LINERATE_SECCOMP` may be.
    pub const WORDS: [(&str, Self); 4] =
        [("refuse", Self::Refuse), ("kill", Self::Kill), ("log", Self::Log), ("off", Self::Off)];

    /// Filters the calls of all threads; says whether any is refused.
    pub(super) fn install(self) -> Result<bool, String> {
        let action = match self {
            Self::Off => return Ok(false),
            Self::Log => SeccompAction::Log,
            Self::Kill => SeccompAction::KillProcess,
            Self::Refuse => {
                refuse_trapped_calls().map_err(|error| format!("sigaction: {error}"))?;
                SeccompAction::Trap
            }
        };
        let architecture = ARCH
            .try_into()
            .map_err(|_| format!("there is no list of system calls for processors of the kind {ARCH}"))?;
        let programs = programs(action, architecture).map_err(|error| error.to_string())?;
        let applied = programs.iter().try_for_each(|program| apply_filter_all_threads(program));
        applied.map_err(|error| match error {
            Error::Seccomp(error) => format!("seccomp: {error}"),
            error => error.to_string(),
        })?;
        Ok(self != Self::Log)
    }
}

/// Two filters, of which the stricter answer counts: one for the call that has to look as if this kernel did not
/// know it, one for all others.
fn programs(action: SeccompAction, architecture: TargetArch) -> Result<[BpfProgram; 2], BackendError> {
    // Its flags lie behind a pointer. C libraries that are told ENOSYS start threads with clone.
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let enosys = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let unknown = SeccompFilter::new(unknown, SeccompAction::Allow, enosys, architecture)?;
    let listed = SeccompFilter::new(listed()?, action, SeccompAction::Allow, architecture)?;
    Ok([unknown.try_into()?, listed.try_into()?])
}

/// Each call with the sets of conditions under which it is allowed, or with none if it always is.
fn listed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut listed: BTreeMap<i64, Vec<SeccompRule>> = ANYHOW.iter().map(|call| (*call, Vec::new())).collect();
    for (call, conditions) in bound() {
        let conditions = conditions.iter().map(Condition::compile).collect::<Result<_, _>>()?;
        listed.entry(call).or_default().push(SeccompRule::new(conditions)?);
    }
    Ok(listed)
}

/// What an argument of a call has to be: `value` in the bits of `mask`.
struct Condition {
    argument: u8,
    mask: i32,
    value: i32,
}

impl Condition {
    fn compile(&self) -> Result<SeccompCondition, BackendError> {
        let masked = SeccompCmpOp::MaskedEq(self.mask.cast_unsigned().into());
        SeccompCondition::new(self.argument, SeccompCmpArgLen::Dword, masked, self.value.cast_unsigned().into())
    }
}

fn is(argument: u8, value: i32) -> Condition {
    masked(argument, -1, value)
}

fn masked(argument: u8, mask: i32, value: i32) -> Condition {
    Condition { argument, mask, value }
}

/// Calls that are allowed if all of their conditions hold; a call may stand here several times.
fn bound() -> impl Iterator<Item = (i64, Vec<Condition>)> {
    let socket = |domain, kind| (libc::SYS_socket, vec![is(0, domain), masked(1, KINDS, kind), is(2, 0)]);
    let request = |number: libc::Ioctl| (libc::SYS_ioctl, vec![is(1, number as i32)]);
    let others = [
        // The tunnel's own sockets, and netlink for links, addresses and routes (protocol 0, NETLINK_ROUTE).
        socket(libc::AF_INET, libc::SOCK_DGRAM),
        socket(libc::AF_INET6, libc::SOCK_DGRAM),
        socket(libc::AF_NETLINK, libc::SOCK_RAW),
        (libc::SYS_getsockopt, vec![is(1, libc::SOL_UDP), is(2, libc::UDP_SEGMENT)]),
        // The device's name and namespace; clients that do not block.
        request(libc::TUNGETIFF),
        request(TUNGETDEVNETNS),
        request(libc::FIONBIO),
        // The interface that is the zone of an endpoint.
        request(SIOCGIFINDEX),
        // std makes sure of a descriptor before it closes it, in builds with assertions.
        (libc::SYS_fcntl, vec![is(1, libc::F_GETFD)]),
        // Network namespaces, and no other kind.
        (libc::SYS_setns, vec![is(1, libc::CLONE_NEWNET)]),
        // Threads of this process, in its namespaces, and their names.
        (libc::SYS_clone, vec![masked(0, libc::CLONE_THREAD | NOT_FOR_THREADS, libc::CLONE_THREAD)]),
        (libc::SYS_prctl, vec![is(0, libc::PR_SET_NAME)]),
        // Memory that nobody can run.
        (libc::SYS_mmap, vec![masked(2, libc::PROT_EXEC, 0)]),
        (libc::SYS_mprotect, vec![masked(2, libc::PROT_EXEC, 0)]),
        // A panic ends this process. musl names the thread alone.
        (libc::SYS_tgkill, vec![is(0, getpid().as_raw_nonzero().get()), is(2, libc::SIGABRT)]),
        #[cfg(target_env = "musl")]
        (libc::SYS_tkill, vec![is(1, libc::SIGABRT)]),
    ];
    let options = OPTIONS.iter().map(|(level, name)| (libc::SYS_setsockopt, vec![is(1, *level), is(2, *name)]));
    others.into_iter().chain(options)
}

/// The options that sockets are given. One by one: with CAP_NET_ADMIN there are some that change the firewall.
const OPTIONS: [(i32, i32); 16] = [
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE),
    (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::SOL_UDP, libc::UDP_GRO),
    (libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK),
];

/// What of the second argument of socket is the kind; the rest are flags (linux/net.h).
const KINDS: i32 = 0xf;

/// `_IO('T', 227)` (linux/if_tun.h).
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;

/// linux/sockios.h
const SIOCGIFINDEX: libc::Ioctl = 0x8933;

/// What clone is asked for with one of these is more than a thread.
const NOT_FOR_THREADS: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_PTRACE;

/// Calls that are allowed with any arguments.
const ANYHOW: &[i64] = &[
    // Packets, clients and the log.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    // The machine's load.
    libc::SYS_pread64,
    // Waiting, and what is waited for.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_timerfd_settime,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    // Sockets; which kinds stands below.
    libc::SYS_bind,
    libc::SYS_getsockname,
    libc::SYS_accept4,
    libc::SYS_close,
    libc::SYS_uname,
    // The socket's file: whether it is ours, and its end.
    libc::SYS_statx,
    libc::SYS_newfstatat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    // Leaving the terminal.
    libc::SYS_setsid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    libc::SYS_dup3,
    // Time and chance.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    // Memory; not executable, as stands below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads begin, rest and end; the other filter answers the first.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// BPF_MAXINSNS (linux/bpf_common.h).
    const LONGEST: usize = 4096;

    #[test]
    fn the_filters_are_short_enough_for_the_kernel_on_every_processor_that_has_a_list() {
        for architecture in [TargetArch::x86_64, TargetArch::aarch64] {
            for action in [SeccompAction::Trap, SeccompAction::KillProcess, SeccompAction::Log] {
                let programs = programs(action, architecture).unwrap();
                assert!(programs.iter().all(|program| program.len() < LONGEST / 4));
            }
        }
    }

    #[test]
    fn a_call_is_allowed_anyhow_or_under_conditions_and_stands_once() {
        let mut anyhow = ANYHOW.to_vec();
        anyhow.sort();
        anyhow.dedup();
        assert_eq!(anyhow.len(), ANYHOW.len());
        assert!(bound().all(|(call, conditions)| !anyhow.contains(&call) && !conditions.is_empty()));
    }

    #[test]
    fn each_word_is_another_filter() {
        for (word, filter) in Filter::WORDS {
            let same = Filter::WORDS.iter().filter(|(other, wanted)| *other == word || *wanted == filter);
            assert_eq!(same.count(), 1, "{word}");
        }
    }
}
