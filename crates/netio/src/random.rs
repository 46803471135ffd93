//! Randomness from the kernel; `protocol` takes it as an argument.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` with random ones. Early in boot it waits until the kernel's generator is ready: keys and indices must never
/// come from a generator without entropy.
///
/// # Panics
///
/// When the kernel has no getrandom(2), that is before Linux 3.17.
pub fn fill(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => panic!("getrandom(2), which Linux has since 3.17, failed: {error}"),
        }
    }
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
