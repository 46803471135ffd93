//! System calls that a seccomp filter traps: each fails with EPERM and is counted.
//!
//! The kernel has not executed the call when it raises the signal (SECCOMP_RET_TRAP, seccomp(2)); the handler sets the
//! result. As a signal handler it does not allocate, lock or call anything.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::checked;

/// How many calls were trapped.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// The number of the last one.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The si_code of a SIGSYS that a filter causes (asm-generic/siginfo.h).
const SYS_SECCOMP: libc::c_int = 1;

/// Installs the handler, for all threads.
pub(crate) fn install_handler() -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros are a sigaction: no handler, no flags, an empty set of signals.
    let action = unsafe { action.assume_init_mut() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = refuse;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the pointer is to a sigaction that lives past the call; a null old action is allowed. The handler has
    // the form that SA_SIGINFO asks for and does nothing that a signal's handler must not (signal-safety(7)).
    checked(unsafe { libc::sigaction(libc::SIGSYS, action, ptr::null_mut()) })?;
    Ok(())
}

/// How many calls were trapped, and the number of the last of them.
pub(crate) fn trapped() -> (u64, u64) {
    (COUNT.load(Ordering::Relaxed), LAST.load(Ordering::Relaxed))
}

extern "C" fn refuse(_signal: libc::c_int, about: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a siginfo_t that lives until the handler returns.
    let code = unsafe { (*about).si_code };
    // A SIGSYS sent by a process interrupts code whose registers must not be changed.
    if code != SYS_SECCOMP {
        return;
    }
    // SAFETY: with SA_SIGINFO the third argument is the interrupted thread's ucontext_t, which nobody else touches
    // until the handler returns.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    LAST.store(set_result(&mut context.uc_mcontext, -i64::from(libc::EPERM)), Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Sets the result of the call and returns its number: the kernel has restored the registers to those at the call
/// (kernel/seccomp.c, syscall_rollback).
#[cfg(target_arch = "x86_64")]
fn set_result(registers: &mut libc::mcontext_t, result: i64) -> u64 {
    let rax = &mut registers.gregs[libc::REG_RAX as usize];
    std::mem::replace(rax, result).cast_unsigned()
}

/// As for x86-64; the number is in another register than the result.
#[cfg(target_arch = "aarch64")]
fn set_result(registers: &mut libc::mcontext_t, result: i64) -> u64 {
    registers.regs[0] = result.cast_unsigned();
    registers.regs[8]
}

/// There is no filter for other architectures: nothing is trapped.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn set_result(_registers: &mut libc::mcontext_t, _result: i64) -> u64 {
    0
}
