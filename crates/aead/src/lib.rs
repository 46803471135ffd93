//! ChaCha20-Poly1305 (RFC 8439) over batches of packets of one key.
//!
//! A batch is one buffer and a list of [`Slot`]s with the positions of the packets in it; sealing and
//! opening happen in place. The nonce is WireGuard's: four zero bytes, then the packet's 64-bit
//! counter in little-endian (paper section 5.4.6). There is no associated data.
//!
//! This crate never allocates per batch, reads a clock or opens a socket. Its neighbours are
//! `protocol`, which derives the keys, and `engine`, which fills the batches.
//!
//! # Implementations
//!
//! [`choose`] picks one implementation at start. `avx2`, `avx512f` and `avx512` are vector kernels of this crate:
//! `passes` cuts a batch into passes over the blocks of all its packets; `interleaved` authenticates with the scalar
//! units while the vector units encrypt (`avx2`, `avx512f`), `side_by_side` afterwards with vectors (`avx512`, which
//! has IFMA, from three packets on); `small_batch` computes the blocks of a small batch at once; `arch` has the
//! instructions. `library` is aws-lc-rs, one packet at a time: for other CPUs (arm64 among them), and for batches for
//! which it is as fast as the kernel: too many blocks for `small_batch` in too few packets, or long texts
//! (`VectorKernel::min_packets`). [`portable`] is the reference that all others must equal.
//!
//! The feature `no-cipher`, off by default, adds `none`, which protects nothing: it measures what
//! everything except the cryptography costs. It is used only if named explicitly.
//!
//! # Secrets
//!
//! No branch and no address depends on a key, a text or a tag; comparing tags is the only step that makes a secret
//! public. Keys, one-time keys and keystream are wiped. So are, once per batch, the vector registers and the stack to
//! which kernels spill. (General registers may keep the last two packets' tags in progress, whose keys are used up.) Kernels
//! never decrypt a packet whose tag is wrong: its bytes are zeros afterwards.
//!
//! # Speed and its bounds
//!
//! `cargo bench -p linerate-aead` prints the table. The figures are ratios to the fastest library in the
//! same run, for batches of 45 packets:
//!
//! | CPU | kernel | 1420 bytes, seal and open | 64 bytes, seal and open |
//! |---|---|---|---|
//! | Emerald Rapids | AVX-512 | 2.1 to 2.3, 2.0 to 2.2 | 3.1, 2.9 |
//! | Emerald Rapids | AVX-512F, as without IFMA | 1.59, 1.51 | 2.8, 2.9 |
//! | Emerald Rapids | AVX2 | 1.08, 1.02 | 2.1, 2.2 |
//! | Zen 5, earlier code | AVX-512 | 3.06, 3.25 | 3.6 to 4.6 |
//!
//! The Zen 5 was measured before the AVX-512 kernel interleaved multiplications with shuffles. Cycles are
//! computed from times and the clock rate, measured with a loop of dependent instructions, as neither
//! machine gives access to its performance counters.
//!
//! **AVX-512 on Emerald Rapids** (3 to 3.7 GHz, varying with load). It issues two 512-bit vector operations
//! per cycle: rotations and shifts on one port only, shuffles on the other only, additions and
//! multiplications on both; consecutive multiplications at 1.75 per cycle.
//!
//! | part | operations | at best | measured |
//! |---|---|---|---|
//! | ChaCha20, 2048 bytes: 1920 in rounds, 192 to add and transpose | 2112 | 1056 cycles | 1040 to 1070 |
//! | Poly1305, 512 bytes of 8 packets: 72 multiply-adds, 24 shuffles, 43 others | 139 | 70 cycles | 76 |
//! | Poly1305, keys, powers, edges and tags of 8 packets | | | 330 |
//! | applying the keystream of a packet | 66 | 25 cycles | 65 |
//!
//! A packet of 1420 bytes takes 23 blocks and one for its key, so ChaCha20 alone takes 0.56 cycles per
//! byte, and the best cases add up to 0.75. Sealing takes 0.83: by samples 67 % in ChaCha20, 23 % in
//! Poly1305, 6 % in applying the keystream and 4 % in laying out the passes. ChaCha20 is at its bound;
//! only fewer operations would help. The CPU assigns an instruction to a port when it enters the queue,
//! so shuffles clustered before the multiplications cost about 20 cycles per 512 bytes more than
//! shuffles finely interleaved with them.
//!
//! At 64 bytes a packet takes about 170 cycles: 66 for two blocks of ChaCha20, about 55 for Poly1305's
//! set-up, edges and tag, the rest for the bookkeeping of packets and passes.
//!
//! In the best case it would be about 2.5 times as fast as the best library at 1420 bytes. Prefetching the
//! texts did not help: a packet takes as long in a batch of 16 as in one of 128.
//!
//! **AVX2 on Emerald Rapids.** Three 256-bit vector operations per cycle, of which two shifts or shuffles. 512 bytes of
//! ChaCha20 take 152 ns alone. 480 bytes of scalar Poly1305 take 83 to 150 ns alone, depending on how many packets
//! are folded side by side, and 56 to 67 ns between the half rounds: they are not free, because `mulx` uses two of
//! the three ports that vectors use. A pass of 512 bytes takes 230 to 240 ns here, of which 25 go into laying it out
//! and applying it. ring interleaves in the same way within one packet and takes 222 ns per 512 bytes of a long
//! packet, so that only what it does once per packet can be saved: 2.1 to 2.2 times as fast at 64 bytes, 1.3 at 512,
//! 1.02 to 1.08 at 1420, 0.95 at 9000, where the library seals. docs/decisions/0039 has what was tried and slower.
//!
//! **AVX-512F on Emerald Rapids.** ChaCha20 of a pass of 1024 bytes takes 640 to 670 cycles alone (the best case is
//! 560), Poly1305 16 to 17 cycles per block in the chain of one packet, and 10 in two chains: its instructions then
//! compete with each other. Together, a pass takes 950 cycles with 80 blocks in pairs and 1260 to 1400 in one chain;
//! 1420 bytes take 599 ns in pairs and 756 one by one. `mulx` and `mul` use one of the two ports that 512-bit vectors
//! use, and `adc` the other or one more. Neither four chains, nor 2048 bytes of ChaCha20 in a pass, nor quarter rounds
//! out of step with each other make it faster.
//!
//! **AVX-512 on Zen 5** (about 4.1 GHz; the earlier code). Four vector operations per cycle, two of
//! them multiplications or rotations: at best 528 cycles for 2048 bytes of ChaCha20 (measured 660)
//! and 36 for 512 bytes of Poly1305 (62); keys and tags of eight packets 510, applying 55; 0.63
//! cycles per byte in all, where the best cases add up to 0.37. The rest seems to be limited look-ahead: in
//! a loop of their own the same operations run near their best case when they are finely interleaved, and a
//! third slower in clusters.
//!
//! **Small batches.** Up to eight blocks, including those for the keys, are computed at once, with one row
//! of several blocks' states in each vector. Latency bounds it: 240 cycles for four blocks with AVX-512
//! (about 260 measured) and 280 for two with AVX2 (350). More blocks take longer than their operations
//! need: eight take 400 cycles with AVX-512. Poly1305 then takes 20 cycles per 16 bytes, as each block
//! depends on the one before. Ratios to ring, the fastest library here, on Emerald Rapids, the lower of
//! sealing and opening (aws-lc-rs has 0.86 to 0.97):
//!
//! | packets | 0 bytes | 64 | 128 | 192 | 256 | 448 |
//! |---|---|---|---|---|---|---|
//! | one, AVX-512 | 1.5 to 1.65 | 1.5 | 1.45 | 1.4 | 1.2 | 1.2 |
//! | two, AVX-512 | 2.2 | 2.0 to 2.4 | 1.65 | 1.55 | `interleaved`: 1.25 | 1.3 |
//! | one, AVX2 | 1.1 to 1.25 | 1.05 to 1.15 | aws-lc-rs | aws-lc-rs | aws-lc-rs | aws-lc-rs |
//! | two, AVX2 | 1.8 | 1.5 to 1.65 | 1.4 | 1.2 | aws-lc-rs | aws-lc-rs |
//!
//! A packet of 64 bytes takes 131 ns with AVX-512 and 200 with ring; in a batch of four each takes 70 to
//! 76 ns. Beyond eight blocks `side_by_side` would take 1.3 to 1.8 times as long as ring for one packet.
//!
//! While other work runs on the machine, the kernels slow down more than the libraries: in the worst runs, at
//! 1420 bytes on the Zen 5, the ratio was 2.6 with AVX-512.

#![deny(unsafe_code)]
#![warn(missing_docs)]

#[allow(unsafe_code)]
mod arch;
pub mod choose;
#[cfg(target_arch = "x86_64")]
mod interleaved;
mod library;
#[cfg(feature = "no-cipher")]
mod no_cipher;
#[cfg(target_arch = "x86_64")]
mod passes;
#[cfg(target_arch = "x86_64")]
mod poly1305;
pub mod portable;
#[cfg(target_arch = "x86_64")]
mod side_by_side;
#[cfg(target_arch = "x86_64")]
mod small_batch;
#[cfg(target_arch = "x86_64")]
mod vector_kernel;

use choose::{Choice, Implementation};
use library::LibraryKey;
#[cfg(target_arch = "x86_64")]
use vector_kernel::{KeyWords, VectorKernel};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of a key.
pub const KEY_LEN: usize = 32;

/// Bytes of an authentication tag, which follows the ciphertext.
pub const TAG_LEN: usize = 16;

/// Packets of a batch at most: the bits of an [`AuthMask`].
pub const BATCH_MAX: usize = 128;

/// Bytes of a ChaCha20 block.
const BLOCK_LEN: usize = 64;

/// Packets of a batch at most for which `interleaved` is faster than `side_by_side`, most of whose lanes would be
/// empty: two of 256 to 1420 bytes take 0.78 to 0.95 times as long, of 9000 1.08 times.
#[cfg(target_arch = "x86_64")]
const FEW: usize = 2;

/// The position of one packet in a batch's buffer, and the counter of its nonce. The slots of a batch do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// First byte of the plaintext or ciphertext.
    pub offset: usize,
    /// Bytes of plaintext. The [`TAG_LEN`] bytes after them are the tag.
    pub len: usize,
    /// The packet's counter. Never seal two packets of a key with the same one.
    pub counter: u64,
}

/// Which packets of an opened batch were authentic: bit `i` is for slot `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthMask(u128);

impl AuthMask {
    /// Whether slot `i` had a valid tag.
    pub fn authentic(&self, i: usize) -> bool {
        self.0 >> i & 1 == 1
    }

    /// Number of slots with a valid tag.
    pub fn count(&self) -> usize {
        self.0.count_ones() as usize
    }

    fn set(&mut self, i: usize) {
        self.0 |= 1 << i;
    }
}

/// One direction's transport key. Wiped on drop.
pub struct Key {
    implementation: Implementation,
    bytes: KeyBytes,
    #[cfg(target_arch = "x86_64")]
    words: KeyWords,
    library: LibraryKey,
}

#[derive(Zeroize, ZeroizeOnDrop)]
struct KeyBytes([u8; KEY_LEN]);

impl Key {
    /// Takes a key for the [current](choose::current) implementation. The caller wipes its own copy.
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        Self::with(choose::current(), key)
    }

    /// Takes a key for the implementation of `choice`.
    pub fn with(choice: Choice, key: &[u8; KEY_LEN]) -> Self {
        Self {
            implementation: choice.0,
            bytes: KeyBytes(*key),
            #[cfg(target_arch = "x86_64")]
            words: KeyWords::new(key),
            library: LibraryKey::new(key),
        }
    }

    /// Seals every slot of `batch` in place and writes the tags after the ciphertexts.
    ///
    /// # Panics
    /// If a slot and its tag are not within `buf`, or the batch is longer than [`BATCH_MAX`].
    pub fn seal(&self, buf: &mut [u8], batch: &[Slot]) {
        check(buf, batch);
        match self.implementation {
            Implementation::Portable => portable::seal_batch(&self.bytes.0, buf, batch),
            Implementation::Library => self.library.seal(buf, batch),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx2(token) => self.seal_by(token, buf, batch, interleaved::seal),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512F(token) => self.seal_by(token, buf, batch, interleaved::seal),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512(token) if batch.len() <= FEW => self.seal_by(token.0, buf, batch, interleaved::seal),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512(token) => self.seal_by(token, buf, batch, side_by_side::seal),
            #[cfg(feature = "no-cipher")]
            Implementation::None => no_cipher::seal(buf, batch),
        }
    }

    /// Opens every slot of `batch` in place. A packet with a wrong tag is wiped and missing in the result; the
    /// others are not affected.
    ///
    /// # Panics
    /// If a slot and its tag are not within `buf`, or the batch is longer than [`BATCH_MAX`].
    pub fn open(&self, buf: &mut [u8], batch: &[Slot]) -> AuthMask {
        check(buf, batch);
        match self.implementation {
            Implementation::Portable => portable::open_batch(&self.bytes.0, buf, batch),
            Implementation::Library => self.library.open(buf, batch),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx2(token) => self.open_by(token, buf, batch, interleaved::open),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512F(token) => self.open_by(token, buf, batch, interleaved::open),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512(token) if batch.len() <= FEW => self.open_by(token.0, buf, batch, interleaved::open),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512(token) => self.open_by(token, buf, batch, side_by_side::open),
            #[cfg(feature = "no-cipher")]
            Implementation::None => no_cipher::open(batch),
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Key {
    /// Seals a batch with what is fastest for its size; `many` is for many blocks of many packets.
    fn seal_by<K: VectorKernel>(
        &self,
        kernel: K,
        buf: &mut [u8],
        batch: &[Slot],
        many: impl FnOnce(K, &KeyWords, &mut [u8], &[Slot]),
    ) {
        if small_batch::fits::<K>(batch) {
            small_batch::seal(kernel, &self.words, buf, batch);
        } else if few_or_long::<K>(batch) {
            self.library.seal(buf, batch);
        } else {
            many(kernel, &self.words, buf, batch);
        }
    }

    /// Opens a batch, as `seal_by` seals it.
    fn open_by<K: VectorKernel>(
        &self,
        kernel: K,
        buf: &mut [u8],
        batch: &[Slot],
        many: impl FnOnce(K, &KeyWords, &mut [u8], &[Slot]) -> AuthMask,
    ) -> AuthMask {
        if small_batch::fits::<K>(batch) {
            small_batch::open(kernel, &self.words, buf, batch)
        } else if few_or_long::<K>(batch) {
            self.library.open(buf, batch)
        } else {
            many(kernel, &self.words, buf, batch)
        }
    }
}

/// Whether the library is at least as fast for a batch as the kernel.
#[cfg(target_arch = "x86_64")]
fn few_or_long<K: VectorKernel>(batch: &[Slot]) -> bool {
    batch.len() < K::min_packets(batch.iter().map(|slot| slot.len).max().unwrap_or(0))
}

fn check(buf: &[u8], batch: &[Slot]) {
    assert!(batch.len() <= BATCH_MAX, "a batch has at most {BATCH_MAX} packets");
    for slot in batch {
        let end = slot.offset.checked_add(slot.len).and_then(|end| end.checked_add(TAG_LEN));
        assert!(end.is_some_and(|end| end <= buf.len()), "a packet and its tag are within the buffer");
    }
}

fn nonce(counter: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    bytes
}

/// Whether a packet's tag is this one; wipes the packet if not.
#[cfg(target_arch = "x86_64")]
fn is_authentic(tag: &[u8; TAG_LEN], buf: &mut [u8], slot: &Slot) -> bool {
    let (text, received) = text_and_tag(buf, slot);
    let authentic = tags_equal(tag, received);
    if !authentic {
        text.fill(0);
        received.fill(0);
    }
    authentic
}

/// Compares in constant time. Only the result becomes public.
fn tags_equal(tag: &[u8; TAG_LEN], received: &[u8; TAG_LEN]) -> bool {
    let difference = core::hint::black_box(u128::from_le_bytes(*tag) ^ u128::from_le_bytes(*received));
    #[cfg(all(test, target_arch = "x86_64"))]
    let difference = arch::x86_64::memcheck::published(difference);
    difference == 0
}

fn text_and_tag<'a>(buf: &'a mut [u8], slot: &Slot) -> (&'a mut [u8], &'a mut [u8; TAG_LEN]) {
    let sealed = &mut buf[slot.offset..][..slot.len + TAG_LEN];
    sealed.split_last_chunk_mut().expect("a sealed packet ends with its tag")
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::choose::{HaveAvx2, HaveAvx512, HaveAvx512F};

    #[test]
    fn few_packets_and_long_texts_go_to_the_library() {
        let packets = |count, len| vec![Slot { offset: 0, len, counter: 0 }; count];
        let library = few_or_long::<HaveAvx2>;
        assert!(library(&packets(7, 1024)) && !library(&packets(8, 1024)));
        assert!(library(&packets(15, 1025)) && !library(&packets(16, 2048)) && library(&packets(128, 2049)));
        assert!(library(&[&packets(127, 0)[..], &packets(1, 2049)].concat()));
        assert!(few_or_long::<HaveAvx512F>(&packets(1, 100)) && !few_or_long::<HaveAvx512F>(&packets(2, 65_535)));
        assert!(!few_or_long::<HaveAvx512>(&packets(FEW + 1, 65_535)));
    }
}
