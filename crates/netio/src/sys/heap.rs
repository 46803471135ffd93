//! The number of heaps of the C library's allocator.

/// Makes all threads share the first heap. Call it before any thread is started.
///
/// glibc creates more heaps for concurrent threads; when one of them shrinks, it reads /proc/sys/vm/overcommit_memory
/// (malloc/arena.c, check_may_shrink_heap), at any time. Other C libraries do not.
pub(crate) fn share() {
    // SAFETY: mallopt takes two numbers by value, and no other thread allocates meanwhile (mallopt(3), "MT-Unsafe
    // init"). It fails only for unknown options.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
