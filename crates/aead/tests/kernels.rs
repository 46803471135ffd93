//! Compares every implementation with ring, which shares no code with any of them, at every length, alignment and batch
//! size; and checks that any alteration is refused.

use linerate_aead::choose::Choice;
use linerate_aead::{BATCH_MAX, Key, Slot, TAG_LEN};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// Bytes before every packet, and after the last.
const GAP: usize = 3;

const KEY: [u8; 32] = *b"A key for tests, in no other use";

#[test]
fn batches_equal_ring_at_every_length_up_to_2100() {
    for name in ["avx2", "avx512f", "avx512"] {
        if let Err(refusal) = Choice::named(name) {
            println!("skipped: {refusal}");
        }
    }
    let mut check = Check::new();
    for len in 0..=2100 {
        // Packets side by side in a kernel: of equal length, slightly longer, much shorter.
        let lens = [len, len, len + 1, len, len / 7, len, (2100 - len).min(2048), len, len];
        check.batch(0, &[&lens[..], &[0; 8]].concat());
        check.batch(0, &[len, len]);
    }
}

#[test]
fn batches_equal_ring_around_the_borders_of_long_packets() {
    let mut check = Check::new();
    for border in [2048, 4096, 8192, 9000, 16384, 32768, 49152, 65_520] {
        for len in border - 18..=(border + 18).min(65_535) {
            check.batch(0, &[&[len, 40, len, len, 40, len, 40, len, len][..], &[40; 8]].concat());
        }
    }
    check.batch(0, &[65_535; 9]);
}

#[test]
fn batches_equal_ring_at_every_alignment() {
    let mut check = Check::new();
    for start in 0..64 {
        for len in [0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 512, 1420] {
            check.batch(start, &[len; 17]);
        }
    }
}

#[test]
fn batches_equal_ring_at_every_size() {
    let mut check = Check::new();
    for size in 0..=BATCH_MAX {
        check.batch(0, &vec![0; size]);
        check.batch(0, &vec![100; size]);
        check.batch(0, &Vec::from_iter((0..size).map(|i| i * 37 % 300)));
        check.batch(0, &Vec::from_iter((0..size).map(|i| if i + 1 == size { 9 } else { 1420 })));
    }
}

#[test]
fn every_implementation_refuses_batches_longer_than_batch_max() {
    for choice in Choice::available() {
        for size in [BATCH_MAX + 1, BATCH_MAX + 2] {
            let slots = vec![Slot { offset: 0, len: 0, counter: 0 }; size];
            let key = Key::with(choice, &KEY);
            let seal = std::panic::AssertUnwindSafe(|| key.seal(&mut [0; TAG_LEN], &slots));
            assert!(std::panic::catch_unwind(seal).is_err(), "{choice:?}");
        }
    }
}

#[test]
fn a_slot_outside_the_buffer_is_refused_before_anything_is_written() {
    let inside = Slot { offset: 0, len: 10, counter: 0 };
    for bad in [Slot { offset: 75, ..inside }, Slot { len: usize::MAX - 5, ..inside }, Slot { len: 85, ..inside }] {
        for choice in Choice::available() {
            let mut buf = [0x5a; 100];
            let seal = std::panic::AssertUnwindSafe(|| Key::with(choice, &KEY).seal(&mut buf, &[inside, bad]));
            assert!(std::panic::catch_unwind(seal).is_err(), "{choice:?} took {bad:?}");
            assert_eq!(buf, [0x5a; 100], "{choice:?}");
        }
    }
}

#[test]
fn any_flipped_bit_has_only_its_packet_refused_and_wiped() {
    for choice in Choice::available() {
        let key = Key::with(choice, &KEY);
        for len in [0, 1, 16, 31, 64, 65, 130] {
            let (plain, slots) = lay_out(0, &[len; 9], 77);
            let mut sealed = plain.clone();
            key.seal(&mut sealed, &slots);
            for bit in 0..(len + TAG_LEN) * 8 {
                let victim = bit % slots.len();
                let mut buf = sealed.clone();
                buf[slots[victim].offset + bit / 8] ^= 1 << (bit % 8);
                let authentic = key.open(&mut buf, &slots);
                for (place, slot) in slots.iter().enumerate() {
                    assert_eq!(authentic.authentic(place), place != victim, "{choice:?}, {len} bytes, bit {bit}");
                    let range = slot.offset..slot.offset + len;
                    let expected = if place == victim { &vec![0; len] } else { &plain[range.clone()] };
                    assert_eq!(&buf[range], expected, "{choice:?}, {len} bytes, bit {bit}");
                }
            }
        }
    }
}

#[test]
fn a_batch_of_forgeries_opens_nothing() {
    for choice in Choice::available() {
        let (mut buf, slots) = lay_out(0, &[1420; 45], 0);
        assert_eq!(Key::with(choice, &KEY).open(&mut buf, &slots).count(), 0, "{choice:?}");
        for slot in &slots {
            assert!(buf[slot.offset..][..slot.len + TAG_LEN].iter().all(|&byte| byte == 0), "{choice:?}");
        }
    }
}

#[test]
fn counters_may_have_any_value_in_any_order() {
    let mut check = Check::new();
    let edges = [0, u64::MAX, 1 << 32, u64::from(u32::MAX), 1, u64::MAX - 1, 1 << 63, (1 << 32) + 1, 7];
    let (plain, mut slots) = lay_out(0, &[200; 9], 0);
    for (slot, counter) in slots.iter_mut().zip(edges) {
        slot.counter = counter;
    }
    slots.reverse();
    check.slots(&plain, &slots);
}

/// All implementations, and ring.
struct Check {
    implementations: Vec<(Choice, Key)>,
    ring: LessSafeKey,
    next: u64,
}

impl Check {
    fn new() -> Self {
        let implementations = Choice::available().map(|choice| (choice, Key::with(choice, &KEY))).collect();
        let ring = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &KEY).expect("its length is right"));
        Self { implementations, ring, next: 0 }
    }

    /// Packets of these lengths, the first one `start` bytes after an aligned address.
    fn batch(&mut self, start: usize, lens: &[usize]) {
        let (plain, slots) = lay_out(start, lens, self.next);
        self.next += lens.len() as u64;
        self.slots(&plain, &slots);
    }

    fn slots(&mut self, plain: &[u8], slots: &[Slot]) {
        let lens = || slots.iter().map(|slot| slot.len).collect::<Vec<_>>();
        let mut sealed = plain.to_vec();
        for slot in slots {
            let (text, room) = sealed[slot.offset..][..slot.len + TAG_LEN].split_at_mut(slot.len);
            let mut nonce = [0; 12];
            nonce[4..].copy_from_slice(&slot.counter.to_le_bytes());
            let nonce = Nonce::assume_unique_for_key(nonce);
            let tag = self.ring.seal_in_place_separate_tag(nonce, Aad::empty(), text).expect("the packet is short");
            room.copy_from_slice(tag.as_ref());
        }
        for (choice, key) in &self.implementations {
            let mut buf = plain.to_vec();
            key.seal(&mut buf, slots);
            assert!(buf == sealed, "{choice:?} seals as ring does: {:?}", lens());
            assert_eq!(key.open(&mut buf, slots).count(), slots.len(), "{choice:?} opens: {:?}", lens());
            for slot in slots {
                buf[slot.offset + slot.len..][..TAG_LEN].copy_from_slice(&plain[slot.offset + slot.len..][..TAG_LEN]);
            }
            assert!(buf == plain, "{choice:?} gives back what was sealed: {:?}", lens());
        }
    }
}

/// A buffer with packets of these lengths, and gaps before, between and after them. The allocator aligns it to 16
/// bytes, so starts of 0 to 63 cover every position in a cache line.
fn lay_out(start: usize, lens: &[usize], first: u64) -> (Vec<u8>, Vec<Slot>) {
    let mut offset = start + GAP;
    let mut slots = Vec::new();
    for (&len, counter) in lens.iter().zip(first..) {
        slots.push(Slot { offset, len, counter });
        offset += len + TAG_LEN + GAP;
    }
    let buf = (0..offset).map(|at| (at * 31 + at / 255) as u8).collect();
    (buf, slots)
}
