//! What is in the store, below `/linerate/FLEET/`. A value is a line of JSON, and a line with its MAC in base64
//! ([`Seal::mac`]): whoever can write to the store and does not have the shared private key makes no value that counts.
//!
//! | key | value | who writes it |
//! |---|---|---|
//! | `config` | [`Config`] | `init` |
//! | `next` | [`Next`] | every edit of peers, which compares its revision: two administrators are safe |
//! | `peers/HEXKEY` | [`Peer`] | edits of peers |
//! | `members/ID` | [`Member`] | `init`, `join`, `leave`, `drain`: who may be a gateway |
//! | `gateways/ID` | [`Gateway`], with a lease | the service, while it runs |
//! | `confirmed` | [`Confirmed`] | `accept` |
//! | `applied/ID` | [`Applied`] | the service; nobody watches it |
//!
//! A MAC does not tell when a value was written, so an old one can be put back. What is read is checked like a stranger's all
//! the same: it may be of another version.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ipnet::Ipv6Net;
use linerate_control::keys::PublicKey;
use linerate_control::tunnel_file::FleetName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{KeyValue, Operation};
use crate::gateway::GATEWAYS_MAX;
use crate::seal::Seal;

/// The longest value in bytes.
pub const VALUE_MAX: usize = 32 << 10;

/// Peers' numbers are below this.
pub const NUMBERS: u32 = 1 << 20;

/// How long a gateway's key outlives it, in seconds.
pub const LEASE: u32 = 5;

/// What is the same for all gateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The public half of the shared key, in base64.
    pub public_key: String,
    /// The shared address and port.
    pub address: SocketAddr,
    /// The mesh's network, a /64 of unique local addresses.
    pub mesh: String,
    /// The epoch of receiver indices, of which their key is made.
    pub epoch: u32,
    /// For so many seconds without the store a gateway lets clients in.
    pub max_stale: u64,
    /// A gateway whose clock is further from the others' leaves, in milliseconds.
    pub skew_max: u64,
}

/// What edits of peers compare and put.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// The next peer's number.
    pub number: u32,
    /// How many peers there are.
    pub peers: u64,
    /// The edit, by which it is found out whether one without an answer was done.
    pub edit: String,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its number in the fleet.
    pub number: u32,
    /// Its section of the tunnel's file; lines with secrets are sealed.
    pub section: String,
    /// Those lines, sealed, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
}

/// Who may be a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The host's name.
    pub name: String,
    /// Its public key in the mesh, in base64.
    pub mesh_key: String,
    /// Where its mesh listens.
    pub mesh_endpoint: SocketAddr,
    /// Whether it is to give its clients away.
    #[serde(default)]
    pub draining: bool,
}

/// What a gateway says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// The version of its program.
    pub version: String,
    /// How many peers it takes, compared with others.
    pub capacity: u32,
}

/// That peers may vanish as they did up to a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The revision.
    pub revision: i64,
}

/// Up to where a gateway follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The revision.
    pub revision: i64,
    /// When that was, since 1970 in seconds.
    pub time: u64,
}

/// A key of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// See [`Config`].
    Config,
    /// See [`Next`].
    Next,
    /// See [`Confirmed`].
    Confirmed,
    /// See [`Peer`].
    Peer(PublicKey),
    /// A key below `peers/` that is none of a peer.
    NoPeer(String),
    /// See [`Member`].
    Member(u8),
    /// See [`Gateway`].
    Gateway(u8),
    /// See [`Applied`].
    Applied(u8),
    /// None of these.
    Unknown,
}

/// The keys of a fleet.
#[derive(Clone, Debug)]
pub struct Keys(String);

impl Keys {
    /// Those of this fleet.
    pub fn of(fleet: &FleetName) -> Self {
        Self(format!("/linerate/{fleet}/"))
    }

    /// What all begin with.
    pub fn all(&self) -> &str {
        &self.0
    }

    /// Where the keys begin that are watched: all but those below `applied/`, which every gateway writes after each change.
    pub fn watched(&self) -> String {
        format!("{}b", self.0)
    }

    /// See [`Config`].
    pub fn config(&self) -> String {
        format!("{}config", self.0)
    }

    /// See [`Next`].
    pub fn next(&self) -> String {
        format!("{}next", self.0)
    }

    /// See [`Confirmed`].
    pub fn confirmed(&self) -> String {
        format!("{}confirmed", self.0)
    }

    /// What the keys of peers begin with.
    pub fn peers(&self) -> String {
        format!("{}peers/", self.0)
    }

    /// See [`Peer`].
    pub fn peer(&self, key: &PublicKey) -> String {
        format!("{}peers/{}", self.0, key.to_hex())
    }

    /// What the keys of members begin with.
    pub fn members(&self) -> String {
        format!("{}members/", self.0)
    }

    /// See [`Member`].
    pub fn member(&self, number: u8) -> String {
        format!("{}members/{number}", self.0)
    }

    /// See [`Gateway`].
    pub fn gateway(&self, number: u8) -> String {
        format!("{}gateways/{number}", self.0)
    }

    /// See [`Applied`].
    pub fn applied(&self, number: u8) -> String {
        format!("{}applied/{number}", self.0)
    }

    /// What a key is.
    pub fn read(&self, key: &[u8]) -> Key {
        let name = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(&self.0));
        let number =
            |text: &str| text.parse().ok().filter(|number: &u8| *number < GATEWAYS_MAX && number.to_string() == text);
        match name.map(|name| name.split_once('/').unwrap_or((name, ""))) {
            Some(("config", "")) => Key::Config,
            Some(("next", "")) => Key::Next,
            Some(("confirmed", "")) => Key::Confirmed,
            Some(("peers", hex)) => match PublicKey::from_hex(hex.as_bytes()).filter(|key| key.to_hex() == hex) {
                Some(key) => Key::Peer(key),
                None => Key::NoPeer(hex.chars().take(64).collect()),
            },
            Some(("members", text)) => number(text).map_or(Key::Unknown, Key::Member),
            Some(("gateways", text)) => number(text).map_or(Key::Unknown, Key::Gateway),
            Some(("applied", text)) => number(text).map_or(Key::Unknown, Key::Applied),
            _ => Key::Unknown,
        }
    }
}

/// What puts a value there.
pub fn put(seal: &Seal, key: String, value: &impl Serialize) -> Operation {
    let value = signed(seal, &key, value);
    Operation::Put(key, value)
}

/// A value of this key, with its MAC.
pub fn signed(seal: &Seal, key: &str, value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(value).expect("these values have only names for keys");
    let mac = BASE64.encode(seal.mac(key.as_bytes(), &text));
    text.push(b'\n');
    text.extend_from_slice(mac.as_bytes());
    text
}

/// Reads a value.
///
/// # Errors
/// Why it is none.
pub fn read<T: DeserializeOwned>(seal: &Seal, kv: &KeyValue) -> Result<T, String> {
    if kv.value.len() > VALUE_MAX {
        return Err(format!("its value is longer than {VALUE_MAX} bytes"));
    }
    let end = kv.value.iter().rposition(|byte| *byte == b'\n').unwrap_or(kv.value.len());
    let (text, mac) = kv.value.split_at(end);
    let mac = BASE64.decode(mac.trim_ascii()).unwrap_or_default();
    if !seal.has_mac(&kv.key, text, &mac) {
        return Err("it was not written with this fleet's private key".to_owned());
    }
    serde_json::from_slice(text).map_err(|error| format!("its value is not as it should be: {error}"))
}

impl Config {
    /// The public half of the shared key.
    ///
    /// # Errors
    /// It is none.
    pub fn public_key(&self) -> Result<PublicKey, String> {
        let wrong = || "the fleet's `config' has no public key".to_owned();
        PublicKey::from_base64(self.public_key.as_bytes()).ok_or_else(wrong)
    }

    /// The mesh's network.
    ///
    /// # Errors
    /// It is none.
    pub fn mesh(&self) -> Result<Ipv6Net, String> {
        let is_local = |net: &Ipv6Net| net.prefix_len() == 64 && net.addr().octets()[0] & 0xfe == 0xfc;
        let net = self.mesh.parse().ok().filter(is_local);
        net.ok_or_else(|| format!("the fleet's `config' has the mesh {:?}, which is no /64 below fc00::/7", self.mesh))
    }

    /// As a time.
    pub fn max_stale(&self) -> Duration {
        Duration::from_secs(self.max_stale)
    }

    /// As a time.
    pub fn skew_max(&self) -> Duration {
        Duration::from_millis(self.skew_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_at_its_key_alone_and_only_as_it_was_written() {
        let seal = crate::peers::tests::seal();
        let keys = Keys::of(&"berlin".parse().unwrap());
        let value = signed(&seal, &keys.confirmed(), &Confirmed { revision: 7 });
        let kv = |key: String, value: &[u8]| KeyValue { key: key.into(), value: value.into(), created: 1, modified: 1 };
        let revision = |kv: &KeyValue| read(&seal, kv).map(|Confirmed { revision }| revision);
        assert_eq!(revision(&kv(keys.confirmed(), &value)), Ok(7));
        let text = String::from_utf8(value.clone()).unwrap();
        let (line, mac) = text.split_once('\n').unwrap();
        let hostile = [line.to_owned(), format!("{line}\n"), mac.to_owned(), text.replace('7', "8"), String::new()];
        for text in &hostile {
            assert!(
                revision(&kv(keys.confirmed(), text.as_bytes())).is_err_and(|why| why.contains("private key")),
                "{text}"
            );
        }
        assert!(revision(&kv(keys.next(), &value)).is_err());
        assert!(revision(&kv(keys.confirmed(), &[b' '; VALUE_MAX + 1])).is_err_and(|why| why.contains("longer")));
    }

    #[test]
    fn each_key_is_read_as_it_is_written_and_others_are_none() {
        let keys = Keys::of(&"berlin".parse().unwrap());
        let peer = PublicKey([0xab; 32]);
        for (text, key) in [
            (keys.config(), Key::Config),
            (keys.next(), Key::Next),
            (keys.confirmed(), Key::Confirmed),
            (keys.peer(&peer), Key::Peer(peer)),
            (keys.member(63), Key::Member(63)),
            (keys.gateway(0), Key::Gateway(0)),
            (keys.applied(7), Key::Applied(7)),
        ] {
            assert_eq!(keys.read(text.as_bytes()), key);
            let is_watched = text.as_bytes() >= keys.watched().as_bytes();
            assert_eq!(is_watched, !matches!(key, Key::Applied(_)), "{text}");
        }
        let upper = keys.peer(&peer).replace("ab", "AB");
        assert!(matches!(keys.read(upper.as_bytes()), Key::NoPeer(_)));
        for text in [
            "/linerate/berlin/members/64",
            "/linerate/berlin/members/07",
            "/linerate/other/next",
            "",
            "/linerate/berlin/",
        ] {
            assert_eq!(keys.read(text.as_bytes()), Key::Unknown, "{text}");
        }
        assert_eq!(keys.read(&[0xff; 9]), Key::Unknown);
    }
}
