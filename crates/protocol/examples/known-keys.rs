//! A peer that prints its keys: it makes one session with a WireGuard daemon and prints the keys that both ends
//! have, in hexadecimal. tests/netns/wiped-keys.sh searches the daemon's memory for these bytes.
//!
//! Implements section 5.4 of the paper without this crate's code, which does not expose its keys.
//!
//!     known-keys PRIVATE-KEY PEERS-PUBLIC-KEY LISTEN-PORT initiate ADDRESS
//!     known-keys PRIVATE-KEY PEERS-PUBLIC-KEY LISTEN-PORT respond
//!
//! Once the session carries data, it prints three lines: the secret of both static keys and the two transport
//! keys.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime};

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use blake2::digest::{Mac, consts::U16};
use blake2::{Blake2s256, Blake2sMac, Digest};

type Failure = Box<dyn Error>;
type Key = [u8; 32];

const TIMEOUT: Duration = Duration::from_secs(20);
const INDEX: [u8; 4] = *b"keys";

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [private, peer, port, role, rest @ ..] = &arguments[..] else {
        return Err("known-keys PRIVATE-KEY PEERS-PUBLIC-KEY LISTEN-PORT initiate ADDRESS | respond".into());
    };
    let own = PrivateKey::from_private_key(&X25519, &bytes(private)?)?;
    let ends = SessionIndices { own, peer: bytes(peer)? };
    let socket = UdpSocket::bind(("0.0.0.0", port.parse()?))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let (sealing, opening) = match (&role[..], rest) {
        ("initiate", [address]) => ends.initiate(&socket, address.parse()?)?,
        ("respond", []) => ends.respond(&socket)?,
        _ => return Err("expected `initiate ADDRESS` or `respond`".into()),
    };
    for key in [diffie_hellman(&ends.own, &ends.peer)?, sealing, opening] {
        println!("{}", key.map(|byte| format!("{byte:02x}")).concat());
    }
    Ok(())
}

struct SessionIndices {
    own: PrivateKey,
    peer: Key,
}

impl SessionIndices {
    /// Sends an initiation, takes the response and confirms the session with a keepalive.
    fn initiate(&self, socket: &UdpSocket, to: SocketAddr) -> Result<(Key, Key), Failure> {
        let ephemeral = PrivateKey::generate(&X25519)?;
        let mut noise = Noise::start(&self.peer);
        let mut message = [&[1, 0, 0, 0][..], &INDEX, &public(&ephemeral)].concat();
        noise.mix_ephemeral(&public(&ephemeral));
        let key = noise.mix_key(&diffie_hellman(&ephemeral, &self.peer)?);
        message.extend(noise.seal(&key, &public(&self.own))?);
        let key = noise.mix_key(&diffie_hellman(&self.own, &self.peer)?);
        message.extend(noise.seal(&key, &timestamp())?);
        self.sign(&mut message);
        socket.send_to(&message, to)?;

        let (response, _) = receive(socket, 2)?;
        let theirs = response[12..44].try_into()?;
        noise.mix_ephemeral(&theirs);
        noise.mix_key(&diffie_hellman(&ephemeral, &theirs)?);
        noise.mix_key(&diffie_hellman(&self.own, &theirs)?);
        let key = noise.mix_psk();
        noise.open(&key, &response[44..60])?;
        let [sealing, opening] = kdf(&noise.chain, &[]);
        let keepalive = [&[4, 0, 0, 0][..], &response[4..8], &[0; 8], &seal(&sealing, &[], &[])?].concat();
        socket.send_to(&keepalive, to)?;
        Ok((sealing, opening))
    }

    /// Takes an initiation, sends the response and waits for the first packet, which confirms the session.
    fn respond(&self, socket: &UdpSocket) -> Result<(Key, Key), Failure> {
        let (initiation, from) = receive(socket, 1)?;
        let mut noise = Noise::start(&public(&self.own));
        let theirs = initiation[8..40].try_into()?;
        noise.mix_ephemeral(&theirs);
        let key = noise.mix_key(&diffie_hellman(&self.own, &theirs)?);
        noise.open(&key, &initiation[40..88])?;
        let key = noise.mix_key(&diffie_hellman(&self.own, &self.peer)?);
        noise.open(&key, &initiation[88..116])?;

        let ephemeral = PrivateKey::generate(&X25519)?;
        let mut message = [&[2, 0, 0, 0][..], &INDEX, &initiation[4..8], &public(&ephemeral)].concat();
        noise.mix_ephemeral(&public(&ephemeral));
        noise.mix_key(&diffie_hellman(&ephemeral, &theirs)?);
        noise.mix_key(&diffie_hellman(&ephemeral, &self.peer)?);
        let key = noise.mix_psk();
        message.extend(noise.seal(&key, &[])?);
        self.sign(&mut message);
        socket.send_to(&message, from)?;
        let [opening, sealing] = kdf(&noise.chain, &[]);
        let (data, _) = receive(socket, 4)?;
        open(&opening, &data[16..], &[])?;
        Ok((sealing, opening))
    }

    /// Adds the first MAC, but no second one.
    fn sign(&self, message: &mut Vec<u8>) {
        let key: Key = hash(&[b"mac1----", &self.peer]);
        let mut mac = <Blake2sMac<U16> as Mac>::new_from_slice(&key).expect("a key of 32 bytes is short enough");
        Mac::update(&mut mac, message);
        message.extend(mac.finalize().into_bytes());
        message.extend([0; 16]);
    }
}

struct Noise {
    chain: Key,
    hash: Key,
}

impl Noise {
    fn start(responder: &Key) -> Self {
        let chain = hash(&[b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"]);
        let prologue = hash(&[&chain, b"WireGuard v1 zx2c4 Jason@zx2c4.com"]);
        Self { chain, hash: hash(&[&prologue, responder]) }
    }

    fn mix_ephemeral(&mut self, public: &Key) {
        self.hash = hash(&[&self.hash, public]);
        self.mix_key(public);
    }

    fn mix_key(&mut self, input: &[u8]) -> Key {
        let [chain, key] = kdf(&self.chain, input);
        self.chain = chain;
        key
    }

    fn mix_psk(&mut self) -> Key {
        let [chain, temp, key] = kdf(&self.chain, &[0; 32]);
        self.chain = chain;
        self.hash = hash(&[&self.hash, &temp]);
        key
    }

    fn seal(&mut self, key: &Key, text: &[u8]) -> Result<Vec<u8>, Failure> {
        let sealed = seal(key, text, &self.hash)?;
        self.hash = hash(&[&self.hash, &sealed]);
        Ok(sealed)
    }

    fn open(&mut self, key: &Key, sealed: &[u8]) -> Result<(), Failure> {
        open(key, sealed, &self.hash)?;
        self.hash = hash(&[&self.hash, sealed]);
        Ok(())
    }
}

fn hash(parts: &[&[u8]]) -> Key {
    let mut hasher = Blake2s256::new();
    parts.iter().for_each(|part| Digest::update(&mut hasher, part));
    hasher.finalize().into()
}

fn hmac(key: &Key, parts: &[&[u8]]) -> Key {
    let pad = |with: u8| {
        let mut pad = [with; 64];
        pad.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        pad
    };
    let inner = hash(&[&[&pad(0x36)[..]], parts].concat());
    hash(&[&pad(0x5c), &inner])
}

fn kdf<const N: usize>(chain: &Key, input: &[u8]) -> [Key; N] {
    let seed = hmac(chain, &[input]);
    let mut before = Vec::new();
    std::array::from_fn(|i| {
        let output = hmac(&seed, &[&before, &[i as u8 + 1]]);
        before = output.to_vec();
        output
    })
}

/// Each key seals one field, so the nonce is zero.
fn seal(key: &Key, text: &[u8], data: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut sealed = text.to_vec();
    cipher(key)?.seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::from(data), &mut sealed)?;
    Ok(sealed)
}

fn open(key: &Key, sealed: &[u8], data: &[u8]) -> Result<(), Failure> {
    cipher(key)?.open_in_place(Nonce::assume_unique_for_key([0; 12]), Aad::from(data), &mut sealed.to_vec())?;
    Ok(())
}

fn cipher(key: &Key) -> Result<LessSafeKey, Failure> {
    Ok(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key)?))
}

fn diffie_hellman(private: &PrivateKey, public: &Key) -> Result<Key, Failure> {
    agree(private, UnparsedPublicKey::new(&X25519, public), "no agreement".into(), |shared| Ok(shared.try_into()?))
}

fn public(private: &PrivateKey) -> Key {
    let public = private.compute_public_key().expect("every X25519 private key has a public key");
    public.as_ref().try_into().expect("an X25519 public key has 32 bytes")
}

/// TAI64N (section 5.4.2).
fn timestamp() -> [u8; 12] {
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is after 1970");
    let mut timestamp = [0; 12];
    timestamp[..8].copy_from_slice(&((1 << 62) + 10 + now.as_secs()).to_be_bytes());
    timestamp[8..].copy_from_slice(&now.subsec_nanos().to_be_bytes());
    timestamp
}

/// Receives the next message of this type.
fn receive(socket: &UdpSocket, kind: u8) -> Result<(Vec<u8>, SocketAddr), Failure> {
    let mut buf = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut buf)?;
        if len >= 32 && buf[0] == kind {
            return Ok((buf[..len].to_vec(), from));
        }
    }
}

fn bytes(hexadecimal: &str) -> Result<Key, Failure> {
    let digits = hexadecimal.as_bytes().chunks(2).map(std::str::from_utf8);
    let bytes: Vec<u8> = digits.map(|pair| Ok(u8::from_str_radix(pair?, 16)?)).collect::<Result<_, Failure>>()?;
    Ok(bytes[..].try_into()?)
}
