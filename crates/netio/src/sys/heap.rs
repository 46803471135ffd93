//! How many heaps the C library's allocator makes.

/// Has all threads share the first heap from here on. To be called before there is another thread.
///
/// glibc gives threads that meet at the allocator heaps of their own; when one of these shrinks, it reads
/// /proc/sys/vm/overcommit_memory (malloc/arena.c, check_may_shrink_heap), at any time. Other libraries have one
/// kind of heap.
pub(crate) fn share() {
    // SAFETY: mallopt takes two numbers by value, and no other thread allocates meanwhile (mallopt(3), "MT-Unsafe init").
    // It refuses nothing but numbers that it does not know.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
