//! The system calls that the daemon, or the proxy, makes after setup; all others are refused (seccomp(2)).
//!
//! Calls that carry packets are allowed with any arguments: the kernel keeps a bitmap of such calls (kernel/seccomp.c,
//! seccomp_cache_check_allow, Linux 5.11) and runs the filter only for the others. A call that could do more than the
//! program needs is allowed only with certain arguments; a filter sees numbers, never what a pointer points to.
//!
//! Opening files, executing programs and creating processes are refused, so everything must be opened before. A call that
//! is missing from the list shows as `system_calls_refused` in `linerate show IFACE --stats`; with
//! `LINERATE_SECCOMP=kill`, which the scenarios set, it ends the program.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use linerate_netio::process::refuse_trapped_calls;
use rustix::process::getpid;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

use crate::filter::Filter;

/// Whose calls are filtered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    /// `linerated`.
    Daemon,
    /// `linerate-proxy`.
    Proxy,
}

/// Filters the calls of all threads. Returns whether any is refused.
pub(super) fn install(program: Program, filter: Filter) -> Result<bool, String> {
    let action = match filter {
        Filter::Off => return Ok(false),
        Filter::Log => SeccompAction::Log,
        Filter::Kill => SeccompAction::KillProcess,
        Filter::Refuse => {
            refuse_trapped_calls().map_err(|error| format!("sigaction: {error}"))?;
            SeccompAction::Trap
        }
    };
    let architecture = ARCH.try_into().map_err(|_| format!("there is no list of system calls for {ARCH}"))?;
    let filters = filters(program, action, architecture).map_err(|error| error.to_string())?;
    let applied = filters.iter().try_for_each(|filter| apply_filter_all_threads(filter));
    applied.map_err(|error| match error {
        Error::Seccomp(error) => format!("seccomp: {error}"),
        error => error.to_string(),
    })?;
    Ok(filter != Filter::Log)
}

/// Two filters; the kernel takes the stricter result. One makes clone3 fail with ENOSYS, the other handles every other
/// call.
fn filters(program: Program, action: SeccompAction, architecture: TargetArch) -> Result<[BpfProgram; 2], BackendError> {
    // The flags of clone3 are behind a pointer. After ENOSYS, C libraries start threads with clone.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let enosys = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let clone3 = SeccompFilter::new(clone3, SeccompAction::Allow, enosys, architecture)?;
    let others = SeccompFilter::new(allowlist(program)?, action, SeccompAction::Allow, architecture)?;
    Ok([clone3.try_into()?, others.try_into()?])
}

/// Each call with the rules that allow it; a call without rules is always allowed.
fn allowlist(program: Program) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = unconditional(program).map(|call| (call, Vec::new())).collect();
    for (call, conditions) in conditional(program) {
        let conditions = conditions.iter().map(Condition::compile).collect::<Result<_, _>>()?;
        rules.entry(call).or_default().push(SeccompRule::new(conditions)?);
    }
    Ok(rules)
}

/// An argument of a call must equal `value` in the bits of `mask`.
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

/// Calls that are allowed if all of their conditions hold. A call that occurs several times is allowed by any of its
/// sets.
fn conditional(program: Program) -> Vec<(i64, Vec<Condition>)> {
    let mut calls = vec![
        // UDP sockets of the tunnel.
        socket(libc::AF_INET, libc::SOCK_DGRAM, 0),
        socket(libc::AF_INET6, libc::SOCK_DGRAM, 0),
        (libc::SYS_getsockopt, vec![is(1, libc::SOL_UDP), is(2, libc::UDP_SEGMENT)]),
        // The name and namespace of the TUN device; non-blocking clients.
        request(libc::TUNGETIFF),
        request(TUNGETDEVNETNS),
        request(libc::FIONBIO),
        // The interface of an endpoint's zone.
        request(SIOCGIFINDEX),
        // With debug assertions, std checks a descriptor before closing it.
        (libc::SYS_fcntl, vec![is(1, libc::F_GETFD)]),
        // Non-executable memory.
        (libc::SYS_mmap, vec![masked(2, libc::PROT_EXEC, 0)]),
        (libc::SYS_mprotect, vec![masked(2, libc::PROT_EXEC, 0)]),
        // New threads in the current namespaces, and their names.
        (libc::SYS_clone, vec![masked(0, libc::CLONE_THREAD | NEVER_FOR_THREADS, libc::CLONE_THREAD)]),
        (libc::SYS_prctl, vec![is(0, libc::PR_SET_NAME)]),
        // abort(3) after a panic; musl uses tkill.
        (libc::SYS_tgkill, vec![is(0, getpid().as_raw_nonzero().get()), is(2, libc::SIGABRT)]),
        #[cfg(target_env = "musl")]
        (libc::SYS_tkill, vec![is(1, libc::SIGABRT)]),
    ];
    calls.extend(options(&OPTIONS));
    calls.extend(match program {
        Program::Daemon => of_daemon(),
        Program::Proxy => of_proxy(),
    });
    calls
}

fn of_daemon() -> Vec<(i64, Vec<Condition>)> {
    let calls = [
        // Links, addresses and routes (protocol 0 is NETLINK_ROUTE).
        socket(libc::AF_NETLINK, libc::SOCK_RAW, 0),
        // Network namespaces only.
        (libc::SYS_setns, vec![is(1, libc::CLONE_NEWNET)]),
    ];
    calls.into_iter().chain(options(&[(libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK)])).collect()
}

fn of_proxy() -> Vec<(i64, Vec<Condition>)> {
    let calls = [
        // Clients and targets, and whether they answer pings.
        socket(libc::AF_INET, libc::SOCK_STREAM, 0),
        socket(libc::AF_INET6, libc::SOCK_STREAM, 0),
        socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
        socket(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_ICMPV6),
        // Whether a connection was made.
        (libc::SYS_getsockopt, vec![is(1, libc::SOL_SOCKET), is(2, libc::SO_ERROR)]),
        // With debug assertions, tokio checks that a socket is non-blocking.
        (libc::SYS_fcntl, vec![is(1, libc::F_GETFL)]),
    ];
    calls.into_iter().chain(options(&OPTIONS_OF_PROXY)).collect()
}

fn socket(domain: i32, kind: i32, protocol: i32) -> (i64, Vec<Condition>) {
    (libc::SYS_socket, vec![is(0, domain), masked(1, SOCK_TYPE_MASK, kind), is(2, protocol)])
}

fn request(number: libc::Ioctl) -> (i64, Vec<Condition>) {
    (libc::SYS_ioctl, vec![is(1, number as i32)])
}

fn options(options: &[(i32, i32)]) -> impl Iterator<Item = (i64, Vec<Condition>)> {
    options.iter().map(|(level, name)| (libc::SYS_setsockopt, vec![is(1, *level), is(2, *name)]))
}

/// Socket options that are set. Listed one by one, because with CAP_NET_ADMIN some others change the firewall.
const OPTIONS: [(i32, i32); 15] = [
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
];
const OPTIONS_OF_PROXY: [(i32, i32); 5] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
];

/// The type in the second argument of socket(2); the rest are flags (linux/net.h).
const SOCK_TYPE_MASK: i32 = 0xf;

/// `_IO('T', 227)` (linux/if_tun.h).
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;

/// linux/sockios.h
const SIOCGIFINDEX: libc::Ioctl = 0x8933;

/// With one of these flags, clone creates or traces more than a thread.
const NEVER_FOR_THREADS: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_PTRACE;

/// Calls that are allowed with any arguments.
fn unconditional(program: Program) -> impl Iterator<Item = i64> {
    let own = match program {
        Program::Daemon => OF_DAEMON,
        Program::Proxy => OF_PROXY,
    };
    OF_BOTH.iter().chain(own).copied()
}

const OF_BOTH: &[i64] = &[
    // packets, clients, the log
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
    // the machine's load from /proc
    libc::SYS_pread64,
    // poll and futex
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_timerfd_settime,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    // sockets (domains and types are checked by `conditional`)
    libc::SYS_bind,
    libc::SYS_getsockname,
    libc::SYS_accept4,
    libc::SYS_close,
    libc::SYS_uname,
    // leaving the terminal, the end of standard output
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    libc::SYS_dup3,
    // clocks and randomness
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    // memory (mmap and mprotect are checked by `conditional`)
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // thread creation, sleep and exit (clone3 is handled by the other filter)
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

const OF_DAEMON: &[i64] = &[
    // what peers have used, into files that were opened before
    libc::SYS_pwrite64,
    libc::SYS_fdatasync,
    // the file of the control socket: identify and remove it
    libc::SYS_statx,
    libc::SYS_newfstatat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    // leaving the terminal
    libc::SYS_setsid,
];

const OF_PROXY: &[i64] = &[
    // connections; it listens before it is confined
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getpeername,
    // from one connection to another, without a copy
    libc::SYS_splice,
    libc::SYS_pipe2,
    // waiting for them; C libraries differ in the call
    libc::SYS_epoll_ctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// linux/bpf_common.h
    const BPF_MAXINSNS: usize = 4096;

    const PROGRAMS: [Program; 2] = [Program::Daemon, Program::Proxy];

    #[test]
    fn on_each_architecture_the_filters_fit_into_the_kernels_limit() {
        for architecture in [TargetArch::x86_64, TargetArch::aarch64] {
            for action in [SeccompAction::Trap, SeccompAction::KillProcess, SeccompAction::Log] {
                for program in PROGRAMS {
                    let filters = filters(program, action.clone(), architecture).unwrap();
                    assert!(filters.iter().all(|filter| filter.len() < BPF_MAXINSNS / 4));
                }
            }
        }
    }

    #[test]
    fn a_call_is_listed_once_and_is_either_conditional_or_not() {
        for program in PROGRAMS {
            let all: Vec<_> = unconditional(program).collect();
            let mut different = all.clone();
            different.sort();
            different.dedup();
            assert_eq!(different.len(), all.len(), "{program:?}");
            let mut conditional = conditional(program).into_iter();
            assert!(conditional.all(|(call, conditions)| !all.contains(&call) && !conditions.is_empty()));
        }
    }

    #[test]
    fn each_mode_has_one_name() {
        for (name, filter) in Filter::MODES {
            let same = Filter::MODES.iter().filter(|(other_name, other)| *other_name == name || *other == filter);
            assert_eq!(same.count(), 1, "{name}");
            assert_eq!(name.parse(), Ok(filter));
        }
    }
}
