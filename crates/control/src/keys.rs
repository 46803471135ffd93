//! 32-byte keys and their text forms: base64 (44 characters, for people) and hexadecimal (64 digits, for the UAPI).
//!
//! Both codecs run in constant time, and accept exactly one text for each key: no missing padding, no stray bits, no
//! white space. `linerate-protocol` derives keys.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes of a key.
const LENGTH: usize = 32;
/// Characters of a key in base64, padding included.
pub const BASE64_LENGTH: usize = 44;
/// Digits of a key in hexadecimal.
const HEX_LENGTH: usize = 64;

/// A Curve25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; LENGTH]);

impl PublicKey {
    /// Decodes base64.
    pub fn from_base64(text: &[u8]) -> Option<Self> {
        decode_base64(text).map(|key| Self(*key))
    }

    /// Decodes hexadecimal.
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        decode_hex(text).map(|key| Self(*key))
    }

    /// The key in lower-case hexadecimal.
    pub fn to_hex(&self) -> String {
        text_of(encode_hex(&self.0))
    }
}

/// In base64.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&text_of(encode_base64(&self.0)))
    }
}

/// In base64.
impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A private or preshared key: wiped when dropped, never printed, compared in constant time. It is on the heap, so that
/// moving it does not leave a copy behind.
#[derive(Clone)]
pub struct SecretKey(Option<Box<[u8; LENGTH]>>);

impl SecretKey {
    /// The all-zero key, which means "no key" in the UAPI.
    pub const ZERO: Self = Self(None);

    /// A copy of `bytes`; the caller wipes the original.
    pub fn from_bytes(bytes: &[u8; LENGTH]) -> Self {
        let mut key = Box::new([0; LENGTH]);
        key.copy_from_slice(bytes);
        Self(Some(key))
    }

    /// Decodes base64.
    pub fn from_base64(text: &[u8]) -> Option<Self> {
        decode_base64(text).map(|key| Self::from_bytes(&key))
    }

    /// Decodes hexadecimal.
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        decode_hex(text).map(|key| Self::from_bytes(&key))
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8; LENGTH] {
        self.0.as_deref().unwrap_or(&[0; LENGTH])
    }

    /// Whether this is the all-zero key, which means "no key".
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// The key in base64.
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(text_of(encode_base64(self.as_bytes())))
    }

    /// The key in lower-case hexadecimal.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(text_of(encode_hex(self.as_bytes())))
    }
}

impl PartialEq for SecretKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl Eq for SecretKey {}

impl Drop for SecretKey {
    fn drop(&mut self) {
        if let Some(key) = &mut self.0 {
            key.as_mut_slice().zeroize();
        }
    }
}

impl ZeroizeOnDrop for SecretKey {}

/// `key` in base64.
fn encode_base64(key: &[u8; LENGTH]) -> Zeroizing<[u8; BASE64_LENGTH]> {
    let mut text = Zeroizing::new([b'='; BASE64_LENGTH]);
    for (bytes, quad) in key.chunks(3).zip(text.chunks_exact_mut(4)) {
        let mut padded = Zeroizing::new([0u8; 3]);
        padded[..bytes.len()].copy_from_slice(bytes);
        let [a, b, c] = *padded;
        let sextets = Zeroizing::new([a >> 2, (a << 4 | b >> 4) & 63, (b << 2 | c >> 6) & 63, c & 63]);
        // n bytes are n + 1 characters; the rest of the last quad stays padding.
        for (character, &sextet) in quad.iter_mut().zip(sextets.iter()).take(bytes.len() + 1) {
            *character = base64_character(sextet);
        }
    }
    text
}

/// Decodes base64: 43 characters of the standard alphabet and one `=`, unused bits zero.
fn decode_base64(text: &[u8]) -> Option<Zeroizing<[u8; LENGTH]>> {
    let text: &[u8; BASE64_LENGTH] = text.try_into().ok()?;
    // All at a time; the padding stands for zero.
    let mut sextets = [0i16; BASE64_LENGTH];
    for (sextet, &character) in sextets.iter_mut().zip(&text[..BASE64_LENGTH - 1]) {
        *sextet = base64_sextet(character);
    }
    // The sign bit is that of an invalid character, so that all characters take the same time.
    let invalid = sextets.iter().fold(0, |invalid, sextet| invalid | sextet);
    let mut bytes = [0u8; LENGTH + 1];
    for (quad, bytes) in sextets.chunks_exact(4).zip(bytes.chunks_exact_mut(3)) {
        let [a, b, c, d] = [quad[0], quad[1], quad[2], quad[3]].map(|sextet| sextet as u8 & 63);
        (bytes[0], bytes[1], bytes[2]) = (a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d);
    }
    let mut key = Zeroizing::new([0u8; LENGTH]);
    key.copy_from_slice(&bytes[..LENGTH]);
    // What is left of the last character is no part of the key.
    let is_key = invalid >= 0 && bytes[LENGTH] == 0 && text[43] == b'=';
    // In bulk: an array wipes itself element by element.
    sextets.as_mut_slice().zeroize();
    bytes.as_mut_slice().zeroize();
    is_key.then_some(key)
}

/// `key` in lower-case hexadecimal.
fn encode_hex(key: &[u8; LENGTH]) -> Zeroizing<[u8; HEX_LENGTH]> {
    let mut text = Zeroizing::new([0u8; HEX_LENGTH]);
    for (&byte, pair) in key.iter().zip(text.chunks_exact_mut(2)) {
        pair[0] = hex_digit(byte >> 4);
        pair[1] = hex_digit(byte & 15);
    }
    text
}

/// Decodes 64 hexadecimal digits, upper or lower case.
fn decode_hex(text: &[u8]) -> Option<Zeroizing<[u8; LENGTH]>> {
    let text: &[u8; HEX_LENGTH] = text.try_into().ok()?;
    let mut key = Zeroizing::new([0u8; LENGTH]);
    let mut invalid = 0i16;
    for (pair, byte) in text.chunks_exact(2).zip(key.iter_mut()) {
        let (high, low) = (hex_value(pair[0]), hex_value(pair[1]));
        invalid |= high | low;
        *byte = ((high & 15) << 4 | (low & 15)) as u8;
    }
    (invalid >= 0).then_some(key)
}

/// All ones if `low <= character <= high`, else zero, without a branch.
fn within(character: u8, low: u8, high: u8) -> i16 {
    let character = i16::from(character);
    ((i16::from(low) - 1 - character) & (character - i16::from(high) - 1)) >> 15
}

/// All ones if `value > limit`, else zero, without a branch.
fn above(value: i16, limit: i16) -> i16 {
    (limit - value) >> 15
}

fn base64_character(sextet: u8) -> u8 {
    let value = i16::from(sextet);
    // The alphabet is five runs of ASCII; each term is the step from one run to the next.
    let character =
        i16::from(b'A') + value + (above(value, 25) & 6) - (above(value, 51) & 75) - (above(value, 61) & 15)
            + (above(value, 62) & 3);
    character as u8
}

/// The six bits that a character stands for, or -1.
fn base64_sextet(character: u8) -> i16 {
    let at = |first: u8, value: i16| i16::from(character) - i16::from(first) + value + 1;
    -1 + (within(character, b'A', b'Z') & at(b'A', 0))
        + (within(character, b'a', b'z') & at(b'a', 26))
        + (within(character, b'0', b'9') & at(b'0', 52))
        + (within(character, b'+', b'+') & at(b'+', 62))
        + (within(character, b'/', b'/') & at(b'/', 63))
}

fn hex_digit(nibble: u8) -> u8 {
    let value = i16::from(nibble);
    (i16::from(b'0') + value + (above(value, 9) & 39)) as u8
}

/// The four bits that a digit stands for, or -1.
fn hex_value(digit: u8) -> i16 {
    let at = |first: u8, value: i16| i16::from(digit) - i16::from(first) + value + 1;
    -1 + (within(digit, b'0', b'9') & at(b'0', 0))
        + (within(digit, b'a', b'f') & at(b'a', 10))
        + (within(digit, b'A', b'F') & at(b'A', 10))
}

fn text_of<const N: usize>(ascii: Zeroizing<[u8; N]>) -> String {
    let mut text = String::with_capacity(N);
    text.extend(ascii.iter().map(|&byte| char::from(byte)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    proptest! {
        #[test]
        fn every_key_survives_both_texts(key: [u8; 32]) {
            prop_assert_eq!(*decode_base64(&*encode_base64(&key)).unwrap(), key);
            prop_assert_eq!(*decode_hex(&*encode_hex(&key)).unwrap(), key);
            let upper = encode_hex(&key).to_ascii_uppercase();
            prop_assert_eq!(*decode_hex(&upper).unwrap(), key);
        }

        #[test]
        fn a_text_that_decodes_is_the_only_text_of_its_key(text in prop::collection::vec(any::<u8>(), 0..70)) {
            if let Some(key) = decode_base64(&text) {
                prop_assert_eq!(&encode_base64(&key)[..], &text[..]);
            }
            if let Some(key) = decode_hex(&text) {
                prop_assert_eq!(&encode_hex(&key)[..], &text.to_ascii_lowercase()[..]);
            }
        }

        #[test]
        fn one_wrong_character_anywhere_is_refused(key: [u8; 32], at in 0usize..43, wrong: u8) {
            prop_assume!(!ALPHABET.contains(&wrong));
            let mut text = *encode_base64(&key);
            text[at] = wrong;
            prop_assert!(decode_base64(&text).is_none());
            let mut text = *encode_hex(&key);
            if !wrong.is_ascii_hexdigit() {
                text[at] = wrong;
                prop_assert!(decode_hex(&text).is_none());
            }
        }
    }

    #[test]
    fn each_character_stands_for_its_place_in_the_alphabet() {
        for byte in 0..=255u8 {
            let place = ALPHABET.iter().position(|&c| c == byte).map_or(-1, |at| at as i16);
            assert_eq!(base64_sextet(byte), place, "{byte}");
            let digit = char::from(byte).to_digit(16).map_or(-1, |value| value as i16);
            assert_eq!(hex_value(byte), digit, "{byte}");
        }
        for (value, &character) in (0u8..).zip(ALPHABET) {
            assert_eq!(base64_character(value), character);
        }
    }

    #[test]
    fn a_known_key_has_its_known_text() {
        // Made with `wg genkey`; its hexadecimal with coreutils' base64 and od.
        let key = PublicKey::from_base64(b"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=").unwrap();
        assert_eq!(key.to_hex(), "c809f3e5317e9575c9b5ed78b638b7ce530dabe85ddab614220241801ddf0669");
        assert_eq!(key.to_string(), "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=");
    }

    #[test]
    fn stray_bits_and_other_lengths_are_refused() {
        let good = b"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
        assert!(decode_base64(good).is_some());
        assert!(decode_base64(b"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBml=").is_none());
        assert!(decode_base64(b"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmkA").is_none());
        assert!(decode_base64(&good[..43]).is_none());
        assert!(decode_base64(b"").is_none());
        assert!(decode_base64(&[0xff; 44]).is_none());
        assert!(decode_hex(&[b'0'; 63]).is_none());
        assert!(decode_hex(&[b'0'; 65]).is_none());
        assert!(decode_hex(&[0xff; 64]).is_none());
    }
}
