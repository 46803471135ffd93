//! Every implementation of the AEAD seals and opens a batch like ring, and refuses exactly the altered packets.

use linerate_aead::choose::Choice;
use linerate_aead::{BATCH_MAX, Key, Slot, TAG_LEN};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// The longest packet; longer ones take no other path.
const LEN_MAX: usize = 4200;

/// An input is a seed of one byte, then five bytes per packet: two for the length, one for gap and counter, and two
/// that choose a bit to flip, if not zero.
pub fn check(input: &[u8]) {
    let Some((&seed, packets)) = input.split_first() else { return };
    let mut offset = 0;
    let (mut slots, mut flips) = (Vec::new(), Vec::new());
    for &[low, high, gap, flip_low, flip_high] in packets.as_chunks::<5>().0.iter().take(BATCH_MAX) {
        let len = usize::from(u16::from_le_bytes([low, high])) % (LEN_MAX + 1);
        offset += usize::from(gap % 64);
        let counter =
            (u64::from(seed) << 32 | u64::from(gap)).wrapping_mul(0x1_0000_0001).wrapping_sub(slots.len() as u64);
        slots.push(Slot { offset, len, counter });
        offset += len + TAG_LEN;
        let flip = usize::from(u16::from_le_bytes([flip_low, flip_high]));
        flips.push((flip > 0).then(|| flip % ((len + TAG_LEN) * 8)));
    }
    let key = [seed; 32];
    let plain = Vec::from_iter((0..offset).map(|at| (at as u8).wrapping_mul(seed | 1)));
    let sealed = seal_by_ring(&key, &plain, &slots);
    for choice in Choice::available() {
        let key = Key::with(choice, &key);
        let mut buf = plain.clone();
        key.seal(&mut buf, &slots);
        assert!(buf == sealed, "{choice:?} seals {slots:?}");
        for (slot, flip) in slots.iter().zip(&flips) {
            if let Some(bit) = flip {
                buf[slot.offset + bit / 8] ^= 1 << (bit % 8);
            }
        }
        let authentic = key.open(&mut buf, &slots);
        for (index, (slot, flip)) in slots.iter().zip(&flips).enumerate() {
            assert_eq!(authentic.authentic(index), flip.is_none(), "{choice:?} opens {slots:?}, index {index}");
            let range = slot.offset..slot.offset + slot.len;
            let expected = if flip.is_some() { &vec![0; slot.len] } else { &plain[range.clone()] };
            assert!(buf[range] == *expected, "{choice:?} opens {slots:?}, index {index}");
        }
    }
}

fn seal_by_ring(key: &[u8; 32], plain: &[u8], slots: &[Slot]) -> Vec<u8> {
    let ring = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("its length is right"));
    let mut sealed = plain.to_vec();
    for slot in slots {
        let (text, room) = sealed[slot.offset..][..slot.len + TAG_LEN].split_at_mut(slot.len);
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&slot.counter.to_le_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        room.copy_from_slice(ring.seal_in_place_separate_tag(nonce, Aad::empty(), text).expect("short").as_ref());
    }
    sealed
}
