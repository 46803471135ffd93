//! System calls that confinement must block; test-only.
//!
//! Each is harmless if it is not blocked: it has descriptors, flags or addresses that the kernel rejects, or an
//! effect that ends with the process.

use std::ffi::CStr;
use std::io;

use super::super::checked;

/// What the call would do, its number and arguments.
type Call = (&'static str, libc::c_long, [libc::c_long; 6]);

/// In no particular order.
const CALLS: &[Call] = &[
    ("make an AF_PACKET socket", libc::SYS_socket, of(libc::AF_PACKET, libc::SOCK_RAW, 0)),
    ("make a TCP socket", libc::SYS_socket, of(libc::AF_INET, libc::SOCK_STREAM, 0)),
    ("make a unix socket", libc::SYS_socket, of(libc::AF_UNIX, libc::SOCK_STREAM, 0)),
    ("make a raw IP socket", libc::SYS_socket, of(libc::AF_INET, libc::SOCK_RAW, 1)),
    ("speak with nftables", libc::SYS_socket, of(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER)),
    ("connect a socket", libc::SYS_connect, of(-1, 0, 0)),
    ("listen on a socket", libc::SYS_listen, of(-1, 0, 0)),
    ("replace iptables", libc::SYS_setsockopt, of(-1, libc::IPPROTO_IP, IPT_SO_SET_REPLACE)),
    ("load a module", libc::SYS_init_module, of(0, 0, 0)),
    ("load a module from a file", libc::SYS_finit_module, of(-1, 0, 0)),
    ("load another kernel", libc::SYS_kexec_load, of(0, 0, 0)),
    ("mount", libc::SYS_mount, of(0, 0, 0)),
    ("change the root directory", libc::SYS_chroot, of(0, 0, 0)),
    ("trace a process", libc::SYS_ptrace, of(-1, 0, 0)),
    ("become root", libc::SYS_setuid, of(0, 0, 0)),
    ("set capabilities", libc::SYS_capset, of(0, 0, 0)),
    ("load a BPF program", libc::SYS_bpf, of(-1, 0, 0)),
    ("add another filter", libc::SYS_seccomp, of(-1, 0, 0)),
    ("read another process's memory", libc::SYS_process_vm_readv, of(1, 0, 0)),
    ("kill another process", libc::SYS_kill, of(1, 0, 0)),
    ("make a ping socket", libc::SYS_socket, of(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)),
    ("signal a thread of another process", libc::SYS_tgkill, of(1, 1, 0)),
    ("make executable memory", libc::SYS_mmap, [0, 4096, EXECUTABLE, PRIVATE, -1, 0]),
    ("make memory executable", libc::SYS_mprotect, of(0, 0, libc::PROT_EXEC)),
    ("leave a namespace", libc::SYS_unshare, of(libc::CLONE_NEWNS, 0, 0)),
    ("enter a mount namespace", libc::SYS_setns, of(-1, libc::CLONE_NEWNS, 0)),
    ("make a process", libc::SYS_clone, of(libc::CLONE_NEWNS | libc::CLONE_FS, 0, 0)),
    ("use a key of the kernel's", libc::SYS_keyctl, of(-1, 0, 0)),
    ("watch the processor", libc::SYS_perf_event_open, of(0, 0, 0)),
    ("restart the machine", libc::SYS_reboot, of(0, 0, 0)),
    ("set the clock", libc::SYS_clock_settime, of(-1, 0, 0)),
    ("use io_uring", libc::SYS_io_uring_setup, of(0, 0, 0)),
    ("type into a terminal", libc::SYS_ioctl, of(-1, libc::TIOCSTI as i32, 0)),
    ("be traceable", libc::SYS_prctl, of(libc::PR_SET_DUMPABLE, 0, 0)),
    ("hold a file open by handle", libc::SYS_open_by_handle_at, of(-1, 0, 0)),
    ("rename a file", libc::SYS_renameat2, of(-1, 0, -1)),
    ("make a file in memory", libc::SYS_memfd_create, of(0, 0, 0)),
];

/// Calls with a path as their second argument.
const CALLS_AT: &[(&str, libc::c_long, &CStr, libc::c_int)] = &[
    ("read /etc/passwd", libc::SYS_openat, c"/etc/passwd", libc::O_RDONLY),
    ("read /etc/shadow", libc::SYS_openat, c"/etc/shadow", libc::O_RDONLY),
    ("open the TUN driver", libc::SYS_openat, c"/dev/net/tun", libc::O_RDWR),
    ("open memory", libc::SYS_openat, c"/proc/self/mem", libc::O_RDWR),
    // With O_EXCL on a directory that exists.
    ("make a file", libc::SYS_openat, c"/tmp", libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL),
    ("make a directory", libc::SYS_mkdirat, c"/tmp", 0),
    ("run a program", libc::SYS_execveat, c"/nonexistent/program", 0),
];

/// iptables' request to replace its rules (linux/netfilter_ipv4/ip_tables.h).
const IPT_SO_SET_REPLACE: libc::c_int = 64;
const EXECUTABLE: libc::c_long = (libc::PROT_READ | libc::PROT_EXEC) as libc::c_long;
const PRIVATE: libc::c_long = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as libc::c_long;

const fn of(first: libc::c_int, second: libc::c_int, third: libc::c_int) -> [libc::c_long; 6] {
    [first as libc::c_long, second as libc::c_long, third as libc::c_long, 0, 0, 0]
}

/// The names of all calls.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CALLS.iter().map(|call| call.0).chain(CALLS_AT.iter().map(|call| call.0))
}

/// Makes the call `name`.
pub(crate) fn make(name: &str) -> io::Result<()> {
    let plain = CALLS.iter().find(|call| call.0 == name).map(|call| (call.1, call.2));
    let at = CALLS_AT.iter().find(|call| call.0 == name);
    let at = at.map(|(_, call, path, flags)| {
        let path = path.as_ptr() as libc::c_long;
        (*call, [libc::AT_FDCWD.into(), path, (*flags).into(), 0, 0, 0])
    });
    let Some((call, [a, b, c, d, e, f])) = plain.or(at) else { return Err(io::ErrorKind::NotFound.into()) };
    // SAFETY: of all calls in the tables, with their arguments, none writes to memory of this process or takes any
    // away; those that read some read the path, which is constant. The one that maps memory chooses where none is.
    let answer = unsafe { libc::syscall(call, a, b, c, d, e, f) };
    checked(if answer < 0 { -1 } else { 0 })?;
    Ok(())
}
