//! The heaps of the C library's allocator.

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

/// Makes every allocation of `bytes` and more a mapping of its own. Call it before any thread is started.
///
/// glibc maps what is above 128 KiB, until the first mapping is freed: from then on whatever is as large comes from the
/// heap (mallopt(3), M_MMAP_THRESHOLD), where memory that has been used is zeroed, and so is resident as a whole.
pub(crate) fn map_from(bytes: i32) {
    // SAFETY: as above.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, bytes);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}
