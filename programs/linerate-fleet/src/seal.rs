//! Keys derived from the shared private key: for receiver indices, for sealing peers' secrets, and for the MACs of
//! values in the store and of messages between gateways. A stolen store contains none of them, so a thief or a writer
//! of the store cannot forge a peer or a gateway.

use std::io::Write as _;

use blake2::Blake2sMac;
use blake2::digest::consts::U32;
use blake2::digest::{FixedOutput, KeyInit, Mac as _, Update};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::FleetName;
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a nonce, which stands before what is sealed.
const NONCE: usize = 24;

/// Bytes of a MAC.
pub const MAC: usize = 32;

/// Seals what the store must not know, and tells what was written with the shared key. Its keys are wiped, and it has no
/// `Debug`.
#[derive(Clone)]
pub struct Seal {
    key: SecretKey,
    mac_key: SecretKey,
    fleet: FleetName,
}

impl Seal {
    /// The seal of a fleet with this shared private key.
    pub fn new(private: &SecretKey, fleet: &FleetName) -> Self {
        let [key, mac_key] =
            [&b"linerate fleet seal 1"[..], b"linerate fleet value 1"].map(|purpose| derived(private, &[purpose]));
        Self { key, mac_key, fleet: fleet.clone() }
    }

    /// The MAC of a value of the store, bound to its key there.
    pub fn mac(&self, key: &[u8], value: &[u8]) -> [u8; MAC] {
        self.mac_of(key, value).finalize_fixed().into()
    }

    /// Whether `mac` is that of this value; in constant time.
    pub fn has_mac(&self, key: &[u8], value: &[u8], mac: &[u8]) -> bool {
        self.mac_of(key, value).verify_slice(mac).is_ok()
    }

    fn mac_of(&self, key: &[u8], value: &[u8]) -> Blake2sMac<U32> {
        keyed(&self.mac_key, &[key, value])
    }

    /// Seals `text` for a peer.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn seal(&self, peer: &PublicKey, text: &[u8]) -> Result<Vec<u8>, String> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|error| format!("the system has no random numbers: {error}"))?;
        let payload = Payload { msg: text, aad: &self.bound_to(peer) };
        let sealed = self.cipher().encrypt(XNonce::from_slice(&nonce), payload);
        let sealed = sealed.map_err(|_| "a peer's secrets are too long".to_owned())?;
        Ok([&nonce[..], &sealed].concat())
    }

    /// Opens what was sealed for a peer of this fleet; none if it was not.
    pub fn open(&self, peer: &PublicKey, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE)?;
        let payload = Payload { msg: sealed, aad: &self.bound_to(peer) };
        self.cipher().decrypt(XNonce::from_slice(nonce), payload).ok().map(Zeroizing::new)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.key.as_bytes().into())
    }

    /// What is sealed for one peer is not taken for another's, nor in another fleet.
    fn bound_to(&self, peer: &PublicKey) -> Vec<u8> {
        let mut bound = Vec::with_capacity(80);
        let _ = bound.write_all(self.fleet.as_str().as_bytes());
        bound.push(0);
        bound.extend_from_slice(&peer.0);
        bound
    }
}

/// The key of the MACs of messages between gateways in an epoch. It is wiped on drop, and has no `Debug`.
#[derive(Clone)]
pub struct MessageKey(SecretKey);

impl MessageKey {
    /// Derives the key from the fleet's shared private key.
    pub fn new(private: &SecretKey, fleet: &FleetName, epoch: u32) -> Self {
        Self(derived(private, &[b"linerate fleet message 2", &epoch.to_le_bytes(), fleet.as_str().as_bytes()]))
    }

    /// Computes the MAC of a message.
    pub fn mac(&self, message: &[u8]) -> [u8; MAC] {
        keyed(&self.0, &[message]).finalize_fixed().into()
    }

    /// Whether `mac` is the message's MAC; compares in constant time.
    pub fn has_mac(&self, message: &[u8], mac: &[u8; MAC]) -> bool {
        keyed(&self.0, &[message]).verify_slice(mac).is_ok()
    }
}

/// The key of receiver indices in an epoch.
pub fn index_key(private: &SecretKey, fleet: &FleetName, epoch: u32) -> SecretKey {
    derived(private, &[b"linerate fleet index 1", &epoch.to_le_bytes(), fleet.as_str().as_bytes()])
}

fn derived(private: &SecretKey, parts: &[&[u8]]) -> SecretKey {
    let mut bytes: [u8; 32] = keyed(private, parts).finalize_fixed().into();
    let key = SecretKey::from_bytes(&bytes);
    bytes.zeroize();
    key
}

/// Keyed BLAKE2s of `parts`, each with its length before it.
fn keyed(key: &SecretKey, parts: &[&[u8]]) -> Blake2sMac<U32> {
    let mut mac = <Blake2sMac<U32> as KeyInit>::new_from_slice(key.as_bytes()).expect("BLAKE2s takes keys of 32 bytes");
    for part in parts {
        Update::update(&mut mac, &u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
        Update::update(&mut mac, part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seal(byte: u8, fleet: &str) -> Seal {
        Seal::new(&SecretKey::from_bytes(&[byte; 32]), &fleet.parse().unwrap())
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_for_that_peer_of_that_fleet_with_that_key_alone(text: Vec<u8>, flip in any::<prop::sample::Index>()) {
            let peer = PublicKey([7; 32]);
            let sealed = seal(1, "berlin").seal(&peer, &text).unwrap();
            let opened = seal(1, "berlin").open(&peer, &sealed);
            prop_assert_eq!(opened.as_deref(), Some(&text));
            prop_assert!(seal(2, "berlin").open(&peer, &sealed).is_none());
            prop_assert!(seal(1, "paris").open(&peer, &sealed).is_none());
            prop_assert!(seal(1, "berlin").open(&PublicKey([8; 32]), &sealed).is_none());
            let mut forged = sealed.clone();
            forged[flip.index(sealed.len())] ^= 1;
            prop_assert!(seal(1, "berlin").open(&peer, &forged).is_none());
            prop_assert!(seal(1, "berlin").open(&peer, &sealed[..sealed.len() - 1]).is_none());
        }
    }

    proptest! {
        #[test]
        fn a_mac_is_of_one_value_at_one_key(key: Vec<u8>, value: Vec<u8>, flip in any::<prop::sample::Index>()) {
            let mac = seal(1, "berlin").mac(&key, &value);
            prop_assert!(seal(1, "berlin").has_mac(&key, &value, &mac));
            prop_assert!(!seal(2, "berlin").has_mac(&key, &value, &mac));
            let moved = [&key[..], &value[..1.min(value.len())]].concat();
            prop_assert!(value.is_empty() || !seal(1, "berlin").has_mac(&moved, &value[1..], &mac));
            let mut forged = mac;
            forged[flip.index(MAC)] ^= 1;
            prop_assert!(!seal(1, "berlin").has_mac(&key, &value, &forged));
            prop_assert!(!seal(1, "berlin").has_mac(&key, &value, &mac[..MAC - 1]) && !seal(1, "berlin").has_mac(&key, &value, b""));
        }
    }

    #[test]
    fn a_sealed_text_shorter_than_its_nonce_is_refused() {
        assert!(seal(1, "a").open(&PublicKey([7; 32]), &[0; NONCE - 1]).is_none());
        assert!(seal(1, "a").open(&PublicKey([7; 32]), &[]).is_none());
    }

    #[test]
    fn derived_keys_differ_by_use_epoch_and_fleet() {
        let private = SecretKey::from_bytes(&[1; 32]);
        let fleet: FleetName = "a".parse().unwrap();
        let keys = [
            index_key(&private, &fleet, 1),
            index_key(&private, &fleet, 2),
            index_key(&private, &"b".parse().unwrap(), 1),
            Seal::new(&private, &fleet).key,
            Seal::new(&private, &fleet).mac_key,
            MessageKey::new(&private, &fleet, 1).0,
            MessageKey::new(&private, &fleet, 2).0,
            MessageKey::new(&private, &"b".parse().unwrap(), 1).0,
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(keys[..index].iter().all(|other| other != key) && *key != private);
        }
    }
}
