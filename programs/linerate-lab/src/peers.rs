//! Many peers on one daemon: their keys and addresses, and what the daemon needs to take them all.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::uapi::request::{AllowedIp, DeviceUpdate, PeerUpdate, REQUEST_MAX};
use linerate_probe::usage::Usage;
use linerate_protocol::PrivateKey;
use serde::Serialize;

use crate::error::Doing;
use crate::subject::KeyPair;
use crate::tunnel::Tunnel;
use crate::{Error, Result};

/// The first of the peers' addresses inside the tunnel: 10.64.0.0/10, four million of them, and fd64::/96.
const FIRST_ADDRESSES: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 64, 0, 0), Ipv6Addr::new(0xfd64, 0, 0, 0, 0, 0, 0, 0));

/// The most peers that can be given at once: more than any daemon takes.
const PEERS_MAX: u32 = 1 << 20;

/// Peers per request. `wg setconf` sends any number in one, and daemons read requests of any length, but
/// linerated only of up to [`REQUEST_MAX`].
const REQUEST_PEERS: usize = 100_000;

/// Bytes of a peer in a request: its key and the longest two addresses.
const PEER_LENGTH: usize =
    "public_key=\n".len() + 64 + "allowed_ip=10.127.255.255/32\nallowed_ip=fd64::ffff:ffff/128\n".len();

const _: () = assert!(REQUEST_PEERS * PEER_LENGTH < REQUEST_MAX);
const _: () = assert!(PEERS_MAX <= 1 << 22);

/// Makes key pairs of peers that send.
#[must_use]
pub fn fresh(count: usize) -> Vec<KeyPair> {
    std::iter::repeat_with(key_pair).take(count).collect()
}

fn key_pair() -> KeyPair {
    let mut bytes = [0; 32];
    random(&mut bytes);
    // Not all zero, which is no key: as everywhere a key is clamped (RFC 7748, section 5).
    bytes[31] |= 64;
    let secret = PrivateKey::new(&bytes).expect("a key with a bit set is not all zero");
    let private = SecretKey::from_bytes(secret.as_bytes());
    KeyPair { private, public: PublicKey(secret.public_key().0) }
}

/// Makes the keys of a tunnel's two ends.
#[must_use]
pub fn key_pairs() -> [KeyPair; 2] {
    std::array::from_fn(|_| key_pair())
}

/// A request that gives a daemon these peers, each with addresses of its own in the tunnel.
#[must_use]
pub fn update(peers: &[KeyPair]) -> DeviceUpdate {
    addition(peers.iter().map(|pair| pair.public).enumerate())
}

/// The cost of giving a daemon its peers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PeersReport {
    /// Peers that were given.
    pub peers: u32,
    /// Seconds until the daemon had confirmed them all.
    pub seconds: f64,
    /// The daemon's resident memory before, in bytes.
    pub resident_before: u64,
    /// The same afterwards.
    pub resident_after: u64,
    /// Bytes of resident memory that each costs.
    pub bytes_per_peer: f64,
    /// Seconds that the daemon took to list them all afterwards; none where it has no list.
    pub listing_seconds: Option<f64>,
}

/// Gives `count` peers that never send to that end of the tunnel, whose daemon is the process `pid`, and checks that
/// it lists them afterwards, if it can. The interface is up, so the daemon has done for them all that it does before
/// their first packet.
///
/// # Errors
///
/// [`Error::Refused`] for more than 1,048,576; [`Error::Subject`] when the daemon does not take them, or loses
/// some. It may keep those that it took.
pub fn set_up(tunnel: &Tunnel<'_>, end: usize, pid: u32, count: u32) -> Result<PeersReport> {
    if count > PEERS_MAX {
        return Err(Error::Refused(format!("{count} peers are more than the lab can give; the most is {PEERS_MAX}")));
    }
    let had = tunnel.device(end)?.map(|state| state.peers.len());
    let additions = additions(&public_keys(count));
    let before = Usage::of(pid).doing(|| format!("reading what process {pid} has used"))?;
    let start = Instant::now();
    for addition in &additions {
        tunnel
            .add_peers(end, addition)
            .map_err(|error| Error::Subject(format!("{count} peers were too much: {error}")))?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = Usage::of(pid).doing(|| format!("reading what process {pid} has used"))?;
    Ok(PeersReport {
        peers: count,
        seconds,
        resident_before: before.resident,
        resident_after: after.resident,
        bytes_per_peer: after.resident.saturating_sub(before.resident) as f64 / f64::from(count.max(1)),
        listing_seconds: had.map(|had| check(tunnel, end, had, count)).transpose()?,
    })
}

/// Checks that the daemon lists the peers that it had and was given. Returns the seconds that the list took.
fn check(tunnel: &Tunnel<'_>, end: usize, had: usize, given: u32) -> Result<f64> {
    let start = Instant::now();
    let has = tunnel.device(end)?.map_or(0, |state| state.peers.len());
    if has != had + given as usize {
        let said = format!("the daemon lists {has} peers after it had {had} and took {given} more");
        return Err(Error::Subject(said));
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Public keys without private ones, for peers that never send. Any 32 bytes are a public key; making 100,000 pairs
/// would take seconds.
fn public_keys(count: u32) -> Vec<PublicKey> {
    let make = |_| {
        let mut bytes = [0; 32];
        random(&mut bytes);
        PublicKey(bytes)
    };
    (0..count).map(make).collect()
}

/// The requests that give a daemon these peers, as few as it takes.
fn additions(keys: &[PublicKey]) -> Vec<DeviceUpdate> {
    let numbered: Vec<_> = keys.iter().copied().enumerate().collect();
    numbered.chunks(REQUEST_PEERS).map(|part| addition(part.iter().copied())).collect()
}

fn addition(keys: impl Iterator<Item = (usize, PublicKey)>) -> DeviceUpdate {
    DeviceUpdate { peers: keys.map(|(number, key)| peer(number, key)).collect(), ..DeviceUpdate::default() }
}

/// A peer with addresses by its number.
fn peer(number: usize, key: PublicKey) -> PeerUpdate {
    let (v4, v6) = FIRST_ADDRESSES;
    let v4 = Ipv4Addr::from_bits(v4.to_bits() + number as u32);
    let v6 = Ipv6Addr::from_bits(v6.to_bits() + number as u128);
    let allowed = [(IpAddr::V4(v4), 32), (IpAddr::V6(v6), 128)];
    let allowed_ips = allowed.map(|(addr, cidr)| AllowedIp { add: true, addr, cidr }).into();
    PeerUpdate { allowed_ips, ..PeerUpdate::new(key) }
}

/// Fills `bytes` from the kernel's generator.
///
/// # Panics
///
/// The kernel has none.
pub fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).unwrap_or_else(|error| panic!("the kernel gives no random bytes: {error}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_peers_share_a_key_or_an_address_across_requests() {
        let additions = additions(&public_keys(150_000));
        let peers = || additions.iter().flat_map(|addition| &addition.peers);
        let keys: HashSet<_> = peers().map(|peer| peer.public_key).collect();
        let prefixes: HashSet<_> = peers().flat_map(|peer| &peer.allowed_ips).map(|ip| (ip.addr, ip.cidr)).collect();
        assert_eq!((keys.len(), prefixes.len()), (150_000, 300_000));
    }

    #[test]
    fn a_fresh_pair_belongs_together() {
        let pairs = fresh(3);
        assert_eq!(pairs.len(), 3);
        for pair in pairs {
            assert_eq!(PrivateKey::new(pair.private.as_bytes()).unwrap().public_key().0, pair.public.0);
        }
    }

    #[test]
    fn a_hundred_thousand_peers_go_in_one_request_and_none_is_lost_beyond() {
        let sizes = |peers| additions(&public_keys(peers)).iter().map(|part| part.peers.len()).collect::<Vec<_>>();
        assert_eq!(sizes(0), Vec::<usize>::new());
        assert_eq!(sizes(100_000), [100_000]);
        assert_eq!(sizes(100_001), [100_000, 1]);
    }

    #[test]
    fn the_longest_peer_is_as_long_as_was_reckoned() {
        let mut longest = peer(0, PublicKey([0xff; 32]));
        let v6 = Ipv6Addr::from_bits(FIRST_ADDRESSES.1.to_bits() + u128::from(u32::MAX));
        longest.allowed_ips[0].addr = Ipv4Addr::new(10, 127, 255, 255).into();
        longest.allowed_ips[1].addr = v6.into();
        let length = |peers| DeviceUpdate { peers, ..DeviceUpdate::default() }.render().len();
        assert_eq!(length(vec![longest]) - length(Vec::new()), PEER_LENGTH);
    }
}
