//! The handshake's cryptography: Noise_IKpsk2 (paper section 5.4).
//!
//! Turns keys and bytes into messages and session keys. Knows nothing of earlier handshakes, MACs,
//! cookies or time, which `handshake` adds. Every intermediate secret is wiped on drop.

use blake2::{Blake2s256, Digest};
use linerate_aead::TAG_LEN;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::constants::{CONSTRUCTION, IDENTIFIER, LABEL_COOKIE, LABEL_MAC1};
use crate::library::{self, AgreementKey};
use crate::messages::{self, Initiation, Response, field, initiation, response};
use crate::scrub::scrubbed;
use crate::tai64n::Timestamp;
use crate::{DropReason, Entropy, PresharedKey, PrivateKey, PublicKey};

/// A secret of 32 bytes, wiped on drop.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// The device's private key, and what handshakes derive from it.
pub(crate) struct Identity {
    pub(crate) secret: PrivateKey,
    pub(crate) public: PublicKey,
    /// Key of the first MAC of messages to us.
    pub(crate) mac1_key: [u8; 32],
    /// Key that seals our cookies.
    pub(crate) cookie_key: [u8; 32],
    agreement: AgreementKey,
}

impl Identity {
    pub(crate) fn new(secret: PrivateKey) -> Self {
        let (agreement, public) = scrubbed(|| {
            let agreement = secret.agreement();
            let public = agreement.public();
            (agreement, public)
        });
        Self { mac1_key: mac1_key(&public), cookie_key: cookie_key(&public), secret, public, agreement }
    }

    /// The Diffie-Hellman result of both static keys; `None` if the peer's is of low order.
    pub(crate) fn static_static(&self, peer: &PublicKey) -> Option<Secret> {
        diffie_hellman(&self.agreement, &peer.0)
    }
}

/// The key with which messages *to* `public` carry their first MAC.
pub(crate) fn mac1_key(public: &PublicKey) -> [u8; 32] {
    hash([LABEL_MAC1, &public.0])
}

/// The key with which `public` seals its cookies.
pub(crate) fn cookie_key(public: &PublicKey) -> [u8; 32] {
    hash([LABEL_COOKIE, &public.0])
}

/// One end's keys of a session.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct TransportKeys {
    pub(crate) sealing: [u8; 32],
    pub(crate) opening: [u8; 32],
}

/// An initiation sent, waiting for its response.
pub(crate) struct Initiator {
    /// Our index in it.
    pub(crate) index: u32,
    /// Whether a response to it was admitted without a cookie under load.
    pub(crate) was_answered: bool,
    ephemeral: AgreementKey,
    noise: SymmetricState,
}

/// The responder, as the initiator knows it.
pub(crate) struct Remote<'a> {
    pub(crate) public: &'a PublicKey,
    pub(crate) static_static: &'a Secret,
}

/// Composes an initiation without its MACs. `None` if the peer's key is of low order.
pub(crate) fn initiate(
    identity: &Identity,
    remote: &Remote<'_>,
    rng: &mut dyn Entropy,
    index: u32,
    timestamp: Timestamp,
) -> Option<(Initiator, Initiation)> {
    let mut noise = SymmetricState::start(remote.public);
    let mut message = messages::blank_initiation(index);
    let (ephemeral, ephemeral_public) = generate(rng);

    message[initiation::EPHEMERAL..][..32].copy_from_slice(&ephemeral_public.0);
    noise.mix_ephemeral(&ephemeral_public.0);
    let key = noise.mix_key(&*diffie_hellman(&ephemeral, &remote.public.0)?);
    noise.seal(&key, &identity.public.0, &mut message[initiation::STATIC]);
    let key = noise.mix_key(&**remote.static_static);
    noise.seal(&key, &timestamp.0, &mut message[initiation::TIMESTAMP]);
    Some((Initiator { index, was_answered: false, ephemeral, noise }, message))
}

/// An initiation whose claimed sender was read but is not yet authenticated.
pub(crate) struct UnverifiedInitiation {
    pub(crate) sender: PublicKey,
    noise: SymmetricState,
    ephemeral: [u8; 32],
    index: u32,
}

/// Reads the static key of an initiation.
pub(crate) fn open_static(identity: &Identity, message: &Initiation) -> Result<UnverifiedInitiation, DropReason> {
    let mut noise = SymmetricState::start(&identity.public);
    let ephemeral = field(message, initiation::EPHEMERAL);
    noise.mix_ephemeral(&ephemeral);
    let shared = diffie_hellman(&identity.agreement, &ephemeral).ok_or(DropReason::LowOrder)?;
    let key = noise.mix_key(&*shared);
    let mut sender = [0; 32];
    noise.open(&key, &message[initiation::STATIC], &mut sender)?;
    Ok(UnverifiedInitiation { sender: PublicKey(sender), noise, ephemeral, index: messages::sender(message) })
}

impl UnverifiedInitiation {
    /// Opens the timestamp, which proves that the sender has its private key.
    pub(crate) fn open_timestamp(
        mut self,
        static_static: &Secret,
        message: &Initiation,
    ) -> Result<(VerifiedInitiation, Timestamp), DropReason> {
        let key = self.noise.mix_key(&**static_static);
        let mut timestamp = [0; 12];
        self.noise.open(&key, &message[initiation::TIMESTAMP], &mut timestamp)?;
        Ok((VerifiedInitiation(self), Timestamp(timestamp)))
    }
}

/// An initiation whose sender is authenticated.
pub(crate) struct VerifiedInitiation(UnverifiedInitiation);

impl VerifiedInitiation {
    /// The sender's index.
    pub(crate) fn index(&self) -> u32 {
        self.0.index
    }

    /// Composes the response without its MACs, and derives the session's keys.
    pub(crate) fn respond(
        self,
        psk: &PresharedKey,
        rng: &mut dyn Entropy,
        index: u32,
    ) -> Result<(Response, TransportKeys), DropReason> {
        let UnverifiedInitiation { sender, mut noise, ephemeral: theirs, index: receiver } = self.0;
        let mut message = messages::blank_response(index, receiver);
        let (ephemeral, ephemeral_public) = generate(rng);

        message[response::EPHEMERAL..][..32].copy_from_slice(&ephemeral_public.0);
        noise.mix_ephemeral(&ephemeral_public.0);
        noise.mix_key(&*diffie_hellman(&ephemeral, &theirs).ok_or(DropReason::LowOrder)?);
        noise.mix_key(&*diffie_hellman(&ephemeral, &sender.0).ok_or(DropReason::LowOrder)?);
        let key = noise.mix_psk(psk);
        noise.seal(&key, &[], &mut message[response::EMPTY]);
        let (opening, sealing) = noise.split();
        Ok((message, TransportKeys { sealing: *sealing, opening: *opening }))
    }
}

impl Initiator {
    /// Consumes the response to this initiation. If it is forged, the initiation stays usable.
    pub(crate) fn finish(
        &self,
        identity: &Identity,
        psk: &PresharedKey,
        message: &Response,
    ) -> Result<TransportKeys, DropReason> {
        let mut noise = self.noise.clone();
        let theirs = field(message, response::EPHEMERAL);
        noise.mix_ephemeral(&theirs);
        noise.mix_key(&*diffie_hellman(&self.ephemeral, &theirs).ok_or(DropReason::LowOrder)?);
        noise.mix_key(&*diffie_hellman(&identity.agreement, &theirs).ok_or(DropReason::LowOrder)?);
        let key = noise.mix_psk(psk);
        noise.open(&key, &message[response::EMPTY], &mut [])?;
        let (sealing, opening) = noise.split();
        Ok(TransportKeys { sealing: *sealing, opening: *opening })
    }
}

/// Noise's symmetric state: the chaining key and the hash of the transcript.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct SymmetricState {
    chain: [u8; 32],
    hash: [u8; 32],
}

impl SymmetricState {
    fn start(responder: &PublicKey) -> Self {
        let chain = hash([CONSTRUCTION]);
        let prologue = hash([&chain, IDENTIFIER]);
        Self { chain, hash: hash([&prologue, &responder.0]) }
    }

    fn mix_hash(&mut self, data: &[u8]) {
        self.hash = hash([&self.hash, data]);
    }

    /// Mixes an ephemeral key into both, because the handshake has a preshared key (Noise, "psk" modifiers).
    fn mix_ephemeral(&mut self, public: &[u8; 32]) {
        self.mix_hash(public);
        self.mix_key(public);
    }

    /// Mixes `input` into the chaining key and returns the derived key. Where the paper uses Kdf1, the
    /// caller ignores that key: the first output is the same.
    fn mix_key(&mut self, input: &[u8]) -> Secret {
        let [chain, key] = derive(&self.chain, input);
        self.chain = *chain;
        key
    }

    fn mix_psk(&mut self, psk: &PresharedKey) -> Secret {
        let [chain, temp, key] = derive(&self.chain, psk.as_bytes());
        self.chain = *chain;
        self.mix_hash(&*temp);
        key
    }

    /// The two session keys: the initiator's sealing key first.
    fn split(self) -> (Secret, Secret) {
        let [first, second] = derive(&self.chain, &[]);
        #[cfg(test)]
        tests::SPLIT.set(Some([&first, &second].map(|key| key.map(|byte| !byte))));
        (first, second)
    }

    /// Seals `text` into `sealed`, which is [`TAG_LEN`] longer, and mixes the result in.
    fn seal(&mut self, key: &Secret, text: &[u8], sealed: &mut [u8]) {
        let (body, tag) = sealed.split_at_mut(text.len());
        body.copy_from_slice(text);
        tag.copy_from_slice(&library::seal(key, &self.hash, body));
        self.mix_hash(sealed);
    }

    /// Opens `sealed` into `text`, which is [`TAG_LEN`] shorter, and mixes `sealed` in.
    fn open(&mut self, key: &Secret, sealed: &[u8], text: &mut [u8]) -> Result<(), DropReason> {
        // The longest field is a static key with its tag.
        let mut buffer = Zeroizing::new([0; 32 + TAG_LEN]);
        let buffer = &mut buffer[..sealed.len()];
        buffer.copy_from_slice(sealed);
        let opened = library::open(key, &self.hash, buffer).ok_or(DropReason::Undecryptable)?;
        text.copy_from_slice(opened);
        self.mix_hash(sealed);
        Ok(())
    }
}

/// BLAKE2s-256 of the concatenation of `parts`.
fn hash<const N: usize>(parts: [&[u8]; N]) -> [u8; 32] {
    let mut hasher = Blake2s256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// HMAC-BLAKE2s (RFC 2104) with a key of one hash length, over the concatenation of `parts`.
fn hmac<const N: usize>(key: &[u8; 32], parts: [&[u8]; N]) -> Secret {
    let mut pad = Zeroizing::new([0x36; 64]);
    for (byte, key) in pad.iter_mut().zip(key) {
        *byte ^= key;
    }
    let mut inner = Blake2s256::new();
    inner.update(pad.as_slice());
    for part in parts {
        inner.update(part);
    }
    let inner: Secret = Zeroizing::new(inner.finalize().into());
    for byte in pad.iter_mut() {
        *byte ^= 0x36 ^ 0x5c;
    }
    Zeroizing::new(hash([&*pad, &*inner]))
}

/// Kdf with `N` outputs (paper section 5.4: HKDF with the chaining key as salt).
fn derive<const N: usize>(chain: &[u8; 32], input: &[u8]) -> [Secret; N] {
    let seed = hmac(chain, [input]);
    let mut outputs = core::array::from_fn(|_| Secret::default());
    for i in 0..N {
        let (made, rest) = outputs.split_at_mut(i);
        let before: &[u8] = made.last().map_or(&[], |output: &Secret| &output[..]);
        rest[0] = hmac(&seed, [before, &[i as u8 + 1]]);
    }
    outputs
}

fn generate(rng: &mut dyn Entropy) -> (AgreementKey, PublicKey) {
    let mut secret = Secret::default();
    rng.fill(&mut *secret);
    let private = AgreementKey::new(&secret);
    let public = private.public();
    (private, public)
}

/// X25519; `None` if the result is zero (paper section 5.4: a public key of low order).
fn diffie_hellman(private: &AgreementKey, public: &[u8; 32]) -> Option<Secret> {
    #[cfg(test)]
    tests::AGREEMENTS.set(tests::AGREEMENTS.get() + 1);
    // A library may refuse a zero result, too, but this does not depend on it.
    private.agree(public).filter(|shared| !bool::from(shared.ct_eq(&[0; 32])))
}

/// How many key agreements this thread has computed (for the tests of `handshake`).
#[cfg(test)]
pub(crate) fn agreements() -> usize {
    tests::AGREEMENTS.get()
}

/// The keys of the last session that this thread made, inverted, so that a search of memory for the keys does not find
/// these copies (for the tests of `handshake`).
#[cfg(test)]
pub(crate) fn last_split() -> [[u8; 32]; 2] {
    tests::SPLIT.get().expect("a session was made")
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::draw;
    use crate::test_rng::TestRng;
    use alloc::vec::Vec;
    use core::cell::Cell;
    use proptest::prelude::*;

    std::thread_local! {
        pub(super) static AGREEMENTS: Cell<usize> = const { Cell::new(0) };
        pub(super) static SPLIT: Cell<Option<[[u8; 32]; 2]>> = const { Cell::new(None) };
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    fn identity(seed: u64) -> Identity {
        Identity::new(PrivateKey::new(&draw(&mut TestRng::new(seed))).unwrap())
    }

    #[test]
    fn blake2s_equals_the_vector_of_rfc_7693() {
        let abc = "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982";
        assert_eq!(hash([b"abc"])[..], hex(abc));
        assert_eq!(hash([b"a", b"bc"])[..], hex(abc));
    }

    #[test]
    fn key_derivation_equals_the_vectors_of_wireguard_go() {
        // The vectors of wireguard-go's device/kdf_test.go. A short HMAC key is padded with zeros.
        let vectors = [
            (
                "test-key",
                "test-input",
                [
                    "6f0e5ad38daba1bea8a0d213688736f19763239305e0f58aba697f9ffc41c633",
                    "df1194df20802a4fe594cde27e92991c8cae66c366e8106aaa937a55fa371e8a",
                    "fac6e2745a325f5dc5d11a5b165aad08b0ada28e7b4e666b7c077934a4d76c24",
                ],
            ),
            (
                "wireguard",
                "wireguard",
                [
                    "491d43bbfdaa8750aaf535e334ecbfe5129967cd64635101c566d4caefda96e8",
                    "1e71a379baefd8a79aa4662212fcafe19a23e2b609a3db7d6bcba8f560e3d25f",
                    "31e1ae48bddfbe5de38f295e5452b1909a1b4e38e183926af3780b0c1e1f0160",
                ],
            ),
            (
                "",
                "",
                [
                    "8387b46bf43eccfcf349552a095d8315c4055beb90208fb1be23b894bc2ed5d0",
                    "58a0e5f6faefccf4807bff1f05fa8a9217945762040bcec2f4b4a62bdfe0e86e",
                    "0ce6ea98ec548f8e281e93e32db65621c45eb18dc6f0a7ad94178610a2f7338e",
                ],
            ),
        ];
        for (key, input, expected) in vectors {
            let mut padded = [0; 32];
            padded[..key.len()].copy_from_slice(key.as_bytes());
            let outputs: [Secret; 3] = derive(&padded, input.as_bytes());
            for (output, expected) in outputs.iter().zip(expected) {
                assert_eq!(output[..], hex(expected));
            }
            let [first]: [Secret; 1] = derive(&padded, input.as_bytes());
            assert_eq!(first, outputs[0]);
        }
    }

    #[test]
    fn the_handshake_starts_with_the_constants_of_the_paper() {
        let chain = hash([CONSTRUCTION]);
        assert_eq!(chain[..], hex("60e26daef327efc02ec335e2a025d2d016eb4206f87277f52d38d1988b78cd36"));
        let prologue = hash([&chain, IDENTIFIER]);
        assert_eq!(prologue[..], hex("2211b361081ac566691243db458ad5322d9c6c662293e8b70ee19c65ba079ef3"));
    }

    #[test]
    fn every_point_of_low_order_is_refused() {
        let private = AgreementKey::new(&draw(&mut TestRng::new(1)));
        let points = [
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000000",
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ];
        for point in points {
            let mut point: [u8; 32] = hex(point).try_into().unwrap();
            assert!(diffie_hellman(&private, &point).is_none());
            point[31] |= 0x80;
            assert!(diffie_hellman(&private, &point).is_none(), "the highest bit does not count");
        }
    }

    #[test]
    fn diffie_hellman_equals_the_vector_of_rfc_7748() {
        let private = hex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a").try_into().unwrap();
        let public = hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f").try_into().unwrap();
        let shared = diffie_hellman(&AgreementKey::new(&private), &public).unwrap();
        assert_eq!(shared[..], hex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn both_ends_derive_mirrored_keys_and_learn_the_timestamp(seed: u64, psk: [u8; 32], stamp: [u8; 12]) {
            let rng = &mut TestRng::new(seed);
            let (ours, theirs) = (identity(seed ^ 1), identity(seed ^ 2));
            let psk = PresharedKey::new(&psk);
            let secret = ours.static_static(&theirs.public).unwrap();
            prop_assert_eq!(&secret, &theirs.static_static(&ours.public).unwrap());
            let remote = Remote { public: &theirs.public, static_static: &secret };
            let (initiator, initiation) = initiate(&ours, &remote, rng, 0x1122_3344, Timestamp(stamp)).unwrap();

            let unverified = open_static(&theirs, &initiation).unwrap();
            prop_assert_eq!(unverified.sender, ours.public);
            let (verified, seen) = unverified.open_timestamp(&secret, &initiation).unwrap();
            prop_assert_eq!((verified.index(), seen), (0x1122_3344, Timestamp(stamp)));
            let (response, keys) = verified.respond(&psk, rng, 0x5566_7788).unwrap();

            let mirrored = initiator.finish(&ours, &psk, &response).unwrap();
            prop_assert_eq!(mirrored.sealing, keys.opening);
            prop_assert_eq!(mirrored.opening, keys.sealing);
            prop_assert_ne!(mirrored.opening, mirrored.sealing);

            let wrong = PresharedKey::new(&[0x55; 32]);
            prop_assert_eq!(initiator.finish(&ours, &wrong, &response).err(), Some(DropReason::Undecryptable));
            prop_assert_eq!(open_static(&ours, &initiation).err(), Some(DropReason::Undecryptable));
        }
    }
}
