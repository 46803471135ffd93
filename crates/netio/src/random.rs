//! Randomness from the kernel; `protocol` takes it as an argument.

/// Fills `bytes` with random ones. Early in boot it waits until the kernel's generator is ready: keys and indices
/// must never come from a generator without entropy.
///
/// # Panics
///
/// The kernel has neither getrandom(2), which Linux has since 3.17, nor /dev/urandom.
pub fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).unwrap_or_else(|error| panic!("the kernel gives no random bytes: {error}"));
}

#[cfg(test)]
mod tests {
    #[test]
    fn fill_changes_every_part_of_a_long_buffer() {
        let mut bytes = [0u8; 4096];
        super::fill(&mut bytes);
        assert!(bytes.chunks(64).all(|part| part.iter().any(|&byte| byte != 0)));
    }
}
