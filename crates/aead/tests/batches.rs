//! Properties of batches for every implementation: they equal an independent library packet by packet, nothing outside
//! the slots changes, and altered packets are refused and wiped.

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use linerate_aead::choose::Choice;
use linerate_aead::{BATCH_MAX, Key, Slot, TAG_LEN};
use proptest::prelude::*;

/// Bytes between the packets of a batch, like headers.
const GAP: usize = 5;

fn nonce(counter: u64) -> chacha20poly1305::Nonce {
    let mut nonce = chacha20poly1305::Nonce::default();
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

/// A buffer with packets of these lengths, and gaps before, between and after them.
fn lay_out(lens: &[usize], first: u64) -> (Vec<u8>, Vec<Slot>) {
    let mut offset = GAP;
    let mut slots = Vec::new();
    for (&len, counter) in lens.iter().zip(first..) {
        slots.push(Slot { offset, len, counter });
        offset += len + TAG_LEN + GAP;
    }
    let buf = (0..offset).map(|at| (at * 31 + at / 255) as u8).collect();
    (buf, slots)
}

/// Seals with another library, one packet at a time.
fn seal_elsewhere(key: &[u8; 32], buf: &mut [u8], slots: &[Slot]) {
    let cipher = ChaCha20Poly1305::new(key.into());
    for slot in slots {
        let (text, room) = buf[slot.offset..][..slot.len + TAG_LEN].split_at_mut(slot.len);
        let tag = cipher.encrypt_in_place_detached(&nonce(slot.counter), &[], text).unwrap();
        room.copy_from_slice(&tag);
    }
}

/// Kernels that leave long texts to the library do so for the whole batch, so most batches have none.
fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![3 => Just(2048), 1 => Just(2100usize)]
        .prop_flat_map(|most| prop::collection::vec(prop_oneof![0usize..200, Just(1420), 0..=most], 1..BATCH_MAX))
}

proptest! {
    #[test]
    fn sealing_a_batch_equals_another_library_packet_by_packet(
        key: [u8; 32], lens in lengths(), first in 0..u64::MAX - 200,
    ) {
        let (plain, slots) = lay_out(&lens, first);
        let mut theirs = plain.clone();
        seal_elsewhere(&key, &mut theirs, &slots);
        for choice in Choice::available() {
            let mut ours = plain.clone();
            Key::with(choice, &key).seal(&mut ours, &slots);
            prop_assert!(ours == theirs, "{choice:?}, including unchanged gaps");
        }
    }

    #[test]
    fn opening_restores_what_was_sealed(key: [u8; 32], lens in lengths(), first in 0..u64::MAX - 200) {
        let (plain, slots) = lay_out(&lens, first);
        let mut sealed = plain.clone();
        seal_elsewhere(&key, &mut sealed, &slots);
        for choice in Choice::available() {
            let mut buf = sealed.clone();
            prop_assert_eq!(Key::with(choice, &key).open(&mut buf, &slots).count(), slots.len());
            for slot in &slots {
                prop_assert_eq!(&buf[slot.offset..][..slot.len], &plain[slot.offset..][..slot.len]);
            }
        }
    }

    #[test]
    fn only_the_altered_packet_is_refused_and_it_leaves_no_plaintext(
        key: [u8; 32], lens in lengths(), victim: prop::sample::Index, bit: prop::sample::Index,
    ) {
        let (plain, slots) = lay_out(&lens, 7);
        let victim = victim.index(slots.len());
        let Slot { offset, len, .. } = slots[victim];
        let bit = bit.index((len + TAG_LEN) * 8);
        for choice in Choice::available() {
            let mut buf = plain.clone();
            let key = Key::with(choice, &key);
            key.seal(&mut buf, &slots);
            buf[offset + bit / 8] ^= 1 << (bit % 8);
            let authentic = key.open(&mut buf, &slots);
            for (place, slot) in slots.iter().enumerate() {
                prop_assert_eq!(authentic.authentic(place), place != victim);
                let text = &buf[slot.offset..][..slot.len];
                if place == victim {
                    prop_assert!(text.iter().all(|&byte| byte == 0));
                } else {
                    prop_assert_eq!(text, &plain[slot.offset..][..slot.len]);
                }
            }
        }
    }

    #[test]
    fn a_packet_opens_only_with_its_own_counter(key: [u8; 32], counter: u64, other: u64) {
        prop_assume!(counter != other);
        let (mut buf, mut slots) = lay_out(&[100], counter);
        let key = Key::new(&key);
        key.seal(&mut buf, &slots);
        slots[0].counter = other;
        prop_assert_eq!(key.open(&mut buf, &slots).count(), 0);
    }
}

#[test]
#[should_panic(expected = "a batch has at most")]
fn a_batch_longer_than_batch_max_is_refused() {
    let (mut buf, slots) = lay_out(&[0; BATCH_MAX + 1], 0);
    Key::new(&[1; 32]).open(&mut buf, &slots);
}
