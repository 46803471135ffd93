//! ChaCha20-Poly1305 (RFC 8439) over batches of packets of one key.
//!
//! A batch is one buffer and a list of [`Slot`]s that say where in it the packets lie; sealing and
//! opening happen in place. The nonce is WireGuard's: four zero bytes, then the packet's 64-bit
//! counter in little-endian (paper section 5.4.6). There is no associated data on this path.
//!
//! This crate never allocates per batch, never reads a clock and never sees a socket. Its
//! neighbours are `protocol` (which derives the keys) and `engine` (which fills the batches).
//!
//! # Ways
//!
//! [`choose`] picks one way at start. `avx512` and `avx2` are kernels of this crate: `batch` cuts a
//! batch into passes of blocks of any of its packets, `small_batch` makes the blocks of a small batch at
//! once, `arch` computes them. `library` is aws-lc-rs, a packet at a time: for other CPUs (arm64 among
//! them), and under a kernel for batches that neither fits (more than a few blocks, but fewer packets
//! than `VectorKernel::MIN_PACKETS`). [`portable`] is the oracle that all others equal.
//!
//! The feature `no-cipher`, off unless a build asks for it, adds `none`, which protects nothing: for
//! measuring what everything but the cryptography costs. It is taken only where it is named.
//!
//! # Secrets
//!
//! No branch and no address depends on a key, a text or a tag; the comparison of tags is the one
//! place where a secret becomes public. Keys, one-time keys and keystream are wiped, and so are the
//! stack on which kernels keep what does not fit into registers and the vector registers themselves,
//! once per batch (about 17 cycles).
//! A packet whose tag is wrong is never decrypted by a kernel: its bytes are zeroes afterwards.
//!
//! # Speed, and what bounds it
//!
//! `cargo bench -p linerate-aead` prints the table. Ratios are to the best library of the same run,
//! for batches of 45 packets:
//!
//! | CPU | kernel | 1420 bytes, seal and open | 64 bytes, seal and open |
//! |---|---|---|---|
//! | Emerald Rapids | AVX-512 | 2.1 to 2.3, 2.0 to 2.2 | 3.1, 2.9 |
//! | Emerald Rapids | AVX2 | 1.05, 1.0 | 1.45, 1.45 |
//! | Zen 5, earlier code | AVX-512 | 3.06, 3.25 | 3.6 to 4.6 |
//! | Zen 5, earlier code | AVX2 | 1.22 to 1.29 | 1.75 to 2.3 |
//!
//! The Zen 5 was measured before the AVX-512 kernel mixed its multiplications with shuffles. Cycles
//! come from times and from the clock as a loop of dependent instructions shows it, as neither
//! machine lets its counters be read.
//!
//! **AVX-512 on Emerald Rapids** (3 to 3.7 GHz, changing under load). It starts two vector operations
//! of 512 bits per cycle: rotations and shifts at one port only, shuffles at the other only,
//! additions and multiplications at both, multiplications in a row 1.75 per cycle.
//!
//! | part | operations | at best | measured |
//! |---|---|---|---|
//! | ChaCha20, 2048 bytes: 1920 in rounds, 192 to add and transpose | 2112 | 1056 cycles | 1040 to 1070 |
//! | Poly1305, 512 bytes of 8 packets: 72 multiply-adds, 24 shuffles, 43 others | 139 | 70 cycles | 76 |
//! | Poly1305, keys, powers, borders and tags of 8 packets | | | 330 |
//! | applying the keystream of a packet | 66 | 25 cycles | 65 |
//!
//! A packet of 1420 bytes takes 23 blocks and one for its key, so ChaCha20 alone is 0.56 cycles per
//! byte, and the sum of the best cases is 0.75. Sealing takes 0.83, by samples 67 % of it in ChaCha20,
//! 23 % in Poly1305, 6 % in applying the keystream and 4 % in laying out the passes. ChaCha20 is at
//! its bound; only fewer operations would help. A port is chosen for an instruction when it enters
//! the queue, so shuffles in a cluster in front of the multiplications cost about 20 cycles per 512
//! bytes more than the same ones finely mixed with them.
//!
//! At 64 bytes a packet takes about 170 cycles: 66 are two blocks of ChaCha20, about 55 are
//! Poly1305's set-up, borders and tag, the rest is the bookkeeping of packets and passes.
//!
//! The best cases would be about 2.5 times the best library at 1420 bytes. Fetching the texts ahead
//! did not help: 16 packets take as long each as 128.
//!
//! **AVX2 on Emerald Rapids.** Three vector operations of 256 bits per cycle, multiplications and
//! shifts two. 2048 bytes of ChaCha20 take 2220 cycles where their operations need 1800, whether
//! both sets of eight blocks advance together or one behind the other; folding 256 bytes of four
//! packets takes 127 cycles where 93 are needed. That makes 1.9 cycles per byte; the libraries' own
//! AVX2 code takes 2.0.
//!
//! **AVX-512 on Zen 5** (about 4.1 GHz; the earlier code). Four vector operations per cycle, two of
//! them multiplications or rotations: at best 528 cycles for 2048 bytes of ChaCha20 (measured 660)
//! and 36 for 512 bytes of Poly1305 (62); keys and tags of eight packets 510, applying 55; 0.63
//! cycles per byte in all, where the sum of the best cases is 0.37. What is left there looks like
//! look-ahead: in a loop of their own the same operations run near their best case when they are
//! finely mixed, and a third slower in clusters. AVX2 takes 1.7 cycles per byte there.
//!
//! **Small batches.** Up to eight blocks, those for the keys among them, are made at once, with a row
//! of several blocks' states in each vector. That is bound by how long one step waits for the one
//! before: 240 cycles for four blocks with AVX-512, where about 260 were measured, and 280 for two
//! with AVX2 (350). More blocks take longer than their operations need: eight take 400 cycles with
//! AVX-512. Poly1305 then takes 20 cycles for 16 bytes, each block waiting for the one before. Ratios
//! to ring, the best library here, on Emerald Rapids, the lower one of sealing and opening (aws-lc-rs
//! itself has 0.86 to 0.97):
//!
//! | packets | 0 bytes | 64 | 128 | 192 | 256 | 448 |
//! |---|---|---|---|---|---|---|
//! | one, AVX-512 | 1.5 to 1.65 | 1.5 | 1.45 | 1.4 | 1.2 | 1.2 |
//! | two, AVX-512 | 2.2 | 2.0 to 2.4 | 1.65 | 1.55 | aws-lc-rs | aws-lc-rs |
//! | one, AVX2 | 1.1 to 1.25 | 1.05 to 1.15 | aws-lc-rs | aws-lc-rs | aws-lc-rs | aws-lc-rs |
//! | two, AVX2 | 1.8 | 1.5 to 1.65 | 1.4 | 1.2 | aws-lc-rs | aws-lc-rs |
//!
//! A packet of 64 bytes takes 131 ns with AVX-512 where ring takes 200; of four such packets each
//! takes 70 to 76 ns. Beyond eight blocks the passes would take one packet 1.3 to 1.8 times as long as
//! ring does, and two of 1420 bytes 0.8 to 0.9 times as long.
//!
//! While other work runs on the machine the kernels lose more than the libraries do: at 1420 bytes
//! on the Zen 5 to 2.6 times the best library with AVX-512, and to 0.84 times with AVX2, in the
//! worst runs seen.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod arch;
#[cfg(target_arch = "x86_64")]
mod batch;
pub mod choose;
mod library;
#[cfg(feature = "no-cipher")]
mod no_cipher;
#[cfg(target_arch = "x86_64")]
mod poly1305;
pub mod portable;
#[cfg(target_arch = "x86_64")]
mod small_batch;

#[cfg(target_arch = "x86_64")]
use batch::{KeyWords, VectorKernel};
use choose::{Choice, Implementation};
use library::LibraryKey;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of a key.
pub const KEY_LEN: usize = 32;

/// Bytes of an authentication tag, which follows the ciphertext.
pub const TAG_LEN: usize = 16;

/// The most packets that one call takes: what [`AuthMask`] can report on.
pub const BATCH_MAX: usize = 128;

/// Bytes of a ChaCha20 block.
const BLOCK_LEN: usize = 64;

/// Where one packet lies in a batch's buffer, and the counter that makes its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// First byte of the plaintext or ciphertext.
    pub offset: usize,
    /// Bytes of plaintext. The tag lies in the [`TAG_LEN`] bytes behind them.
    pub len: usize,
    /// The packet's counter under this key. Never seal two packets with the same one.
    pub counter: u64,
}

/// Which packets of an opened batch were authentic; bit `i` speaks of slot `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthMask(u128);

impl AuthMask {
    /// Whether slot `i` carried a valid tag.
    pub fn authentic(&self, i: usize) -> bool {
        self.0 >> i & 1 == 1
    }

    /// How many slots carried a valid tag.
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
    /// Takes a key for the code that is [current](choose::current); the caller's copy is the
    /// caller's to wipe.
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        Self::with(choose::current(), key)
    }

    /// Takes a key for this code.
    pub fn with(choice: Choice, key: &[u8; KEY_LEN]) -> Self {
        Self {
            implementation: choice.0,
            bytes: KeyBytes(*key),
            #[cfg(target_arch = "x86_64")]
            words: KeyWords::new(key),
            library: LibraryKey::new(key),
        }
    }

    /// Seals every slot of `batch` in place and writes the tags behind the ciphertexts.
    ///
    /// # Panics
    /// If a slot with its tag does not lie inside `buf`, or the batch is longer than [`BATCH_MAX`].
    pub fn seal(&self, buf: &mut [u8], batch: &[Slot]) {
        check(buf, batch);
        match self.implementation {
            Implementation::Portable => portable::seal_batch(&self.bytes.0, buf, batch),
            Implementation::Library => self.library.seal(buf, batch),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx2(token) => self.seal_by(token, buf, batch),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512(token) => self.seal_by(token, buf, batch),
            #[cfg(feature = "no-cipher")]
            Implementation::None => no_cipher::seal(buf, batch),
        }
    }

    /// Opens every slot of `batch` in place. A packet whose tag is wrong is reported in the
    /// result by its absence and its bytes are wiped; the others are not affected.
    ///
    /// # Panics
    /// If a slot with its tag does not lie inside `buf`, or the batch is longer than [`BATCH_MAX`].
    pub fn open(&self, buf: &mut [u8], batch: &[Slot]) -> AuthMask {
        check(buf, batch);
        match self.implementation {
            Implementation::Portable => portable::open_batch(&self.bytes.0, buf, batch),
            Implementation::Library => self.library.open(buf, batch),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx2(token) => self.open_by(token, buf, batch),
            #[cfg(target_arch = "x86_64")]
            Implementation::Avx512(token) => self.open_by(token, buf, batch),
            #[cfg(feature = "no-cipher")]
            Implementation::None => no_cipher::open(batch),
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Key {
    fn seal_by<K: VectorKernel>(&self, kernel: K, buf: &mut [u8], batch: &[Slot]) {
        if small_batch::fits::<K>(batch) {
            small_batch::seal(kernel, &self.words, buf, batch);
        } else if batch.len() < K::MIN_PACKETS {
            self.library.seal(buf, batch);
        } else {
            batch::seal(kernel, &self.words, buf, batch);
        }
    }

    fn open_by<K: VectorKernel>(&self, kernel: K, buf: &mut [u8], batch: &[Slot]) -> AuthMask {
        if small_batch::fits::<K>(batch) {
            small_batch::open(kernel, &self.words, buf, batch)
        } else if batch.len() < K::MIN_PACKETS {
            self.library.open(buf, batch)
        } else {
            batch::open(kernel, &self.words, buf, batch)
        }
    }
}

fn check(buf: &[u8], batch: &[Slot]) {
    assert!(batch.len() <= BATCH_MAX, "a batch has at most {BATCH_MAX} packets");
    for slot in batch {
        let end = slot.offset.checked_add(slot.len).and_then(|end| end.checked_add(TAG_LEN));
        assert!(end.is_some_and(|end| end <= buf.len()), "a packet and its tag lie inside the buffer");
    }
}

fn nonce(counter: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    bytes
}

/// Compares without a branch on the way. The answer is what the network may know.
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
