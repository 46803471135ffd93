//! What makes a device a gateway of a fleet (docs/fleet.md): linerated's own lines of `set`. Without the feature `fleet`
//! they are unknown keys.
//!
//! | line | what |
//! |---|---|
//! | `fleet_gateway=N` | the device is gateway N (0 to 63) of a fleet; `none`: of no fleet any more |
//! | `fleet_index_key=HEX` | the key of indices, 64 hexadecimal digits, in each request with `fleet_gateway=N` |
//! | `fleet_address=IP` | datagrams leave from this address, unless the peer has written to another one; `none`: the routes choose |
//! | `fleet_forward=127.0.0.1:PORT` | datagrams whose receiver index names a session that another gateway has, or that this one has lost, are sent there; `none`: dropped |
//! | `fleet_stale=true` | what the device knows of the fleet's peers is too old, so no handshake begins or is answered; `false` ends that |
//! | `fleet_number=N` | a peer's number in the fleet, below 2^20; another peer that had it has none any more |
//! | `fleet_hint=ENDPOINT,SENT,RECEIVED` | where a peer is, unless the last handshake was one of a session that is here, and the greatest timestamps sent to it and accepted from it, 12 bytes in hexadecimal. Each may be `none`: not known. RECEIVED of zeros: no gateway ever accepted one. A timestamp more than 10 s ahead of the clock is ignored; if it is RECEIVED, the peer has no floor |
//! | `initiate=true` | a handshake with a peer now, after its other lines; also in a device without a fleet. `once`: by one initiation without repetitions |
//!
//! `fleet_changes=SINCE` asks for the peers whose endpoint, session or timestamps have changed since the reply with that
//! number (0: all), each with `public_key=`, `fleet_hint=` and `fleet_seen=`, the Unix time of the last handshake that was
//! completed here. When nothing has changed it costs one comparison.
//!
//! What is forwarded begins with 28 bytes: the version (1), the gateway that the index names, the source's port (big
//! endian), the peer's number (little endian), the source's address (IPv6, or IPv4-mapped), four bytes of zero. The
//! datagram follows as it came. It is no more to be believed than what comes from the network.

use std::net::SocketAddr;

use crate::keys::{PublicKey, SecretKey};

/// A gateway's place in its fleet.
#[derive(Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Its number, below 64.
    pub number: u8,
    /// The key of the fleet's receiver indices.
    pub index_key: SecretKey,
}

/// What other gateways know of a peer; timestamps as they are in handshake messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// Where it is.
    pub endpoint: Option<SocketAddr>,
    /// The greatest timestamp sent to it.
    pub sent: Option<[u8; 12]>,
    /// The greatest timestamp accepted from it; all zero: none ever was.
    pub received: Option<[u8; 12]>,
}

/// The reply to `fleet_changes`: what a gateway's device has learnt of its peers by itself.
#[derive(Default, PartialEq, Eq)]
pub struct FleetChanges {
    /// The number to pass in the next request.
    pub now: u64,
    /// The peers whose endpoint, session or timestamps have changed.
    pub peers: Vec<FleetPeer>,
}

/// What other gateways have to know of a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FleetPeer {
    /// Its public key.
    pub public_key: PublicKey,
    /// Where it is, and the greatest timestamps.
    pub hint: Hint,
    /// When the last handshake completed here, in seconds since 1970; 0 for never.
    pub seen: u64,
}

/// The changes of a `set` to a peer.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FleetUpdate {
    /// Its number in the fleet, below 2^20.
    pub number: Option<u32>,
    /// What other gateways know of it.
    pub hint: Option<Hint>,
    /// Whether a handshake is started, after all other changes to the peer.
    pub initiate: Initiate,
}

/// Whether a handshake with a peer is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Initiate {
    /// It is not.
    #[default]
    No,
    /// By one initiation, as the peer may not be where its endpoint says.
    Once,
    /// Urgently: what may be lost is repeated soon.
    Now,
}

#[cfg(feature = "fleet")]
mod text {
    use std::fmt::Write as _;
    use std::net::{IpAddr, SocketAddr, SocketAddrV4};

    use super::{FleetChanges, FleetPeer, FleetUpdate, Gateway, Hint, Initiate};
    use crate::endpoint;
    use crate::keys::PublicKey;
    use crate::number::decimal;
    use crate::uapi::request::{DeviceUpdate, LineError};
    use crate::uapi::response::{ReplyError, parse_lines};
    use crate::zeroizing::Buffer;

    /// The longest text of a peer in the reply to `fleet_changes`.
    const PEER_TEXT: usize = 256;

    const GATEWAY: LineError = LineError::Expected("a number below 64 or `none`");
    const NUMBER: LineError = LineError::Expected("a number below 1048576");
    const HINT: LineError = LineError::Expected(
        "an endpoint and two timestamps of 24 hexadecimal digits, each of them or `none`, by commas",
    );

    pub(in crate::uapi) fn gateway(value: &[u8]) -> Result<Option<u8>, LineError> {
        if value == b"none" {
            return Ok(None);
        }
        decimal(value, 63).and_then(|number| number.try_into().ok()).map(Some).ok_or(GATEWAY)
    }

    pub(in crate::uapi) fn address(value: &[u8]) -> Result<Option<IpAddr>, LineError> {
        if value == b"none" {
            return Ok(None);
        }
        let address = std::str::from_utf8(value).ok().and_then(|text| text.parse::<IpAddr>().ok());
        let address = address.filter(|address| !address.is_unspecified() && !address.is_multicast());
        address.map(Some).ok_or(LineError::Expected("an IP address of this host, or `none`"))
    }

    /// Reads `fleet_forward`. Only this host may get what a stranger has sent.
    pub(in crate::uapi) fn forward(value: &[u8]) -> Result<Option<SocketAddrV4>, LineError> {
        if value == b"none" {
            return Ok(None);
        }
        match endpoint::parse(value) {
            Some(SocketAddr::V4(to)) if to.ip().is_loopback() => Ok(Some(to)),
            _ => Err(LineError::Expected("a port of an address of 127.0.0.0/8, or `none`")),
        }
    }

    pub(in crate::uapi) fn stale(value: &[u8]) -> Result<bool, LineError> {
        match value {
            b"true" => Ok(true),
            b"false" => Ok(false),
            _ => Err(LineError::Expected("true or false")),
        }
    }

    pub(in crate::uapi) fn write_device(update: &DeviceUpdate, text: &mut Buffer) -> std::fmt::Result {
        match &update.fleet {
            None => {}
            Some(None) => text.write_str("fleet_gateway=none\n")?,
            Some(Some(Gateway { number, index_key })) => {
                writeln!(text, "fleet_gateway={number}\nfleet_index_key={}", &**index_key.to_hex())?;
            }
        }
        match update.fleet_address {
            None => {}
            Some(None) => text.write_str("fleet_address=none\n")?,
            Some(Some(address)) => writeln!(text, "fleet_address={address}")?,
        }
        match update.fleet_forward {
            None => {}
            Some(None) => text.write_str("fleet_forward=none\n")?,
            Some(Some(to)) => writeln!(text, "fleet_forward={to}")?,
        }
        update.fleet_stale.map_or(Ok(()), |is_stale| writeln!(text, "fleet_stale={is_stale}"))
    }

    impl FleetUpdate {
        /// Reads a line; false if it is none of these.
        pub(in crate::uapi) fn line(&mut self, key: &[u8], value: &[u8]) -> Result<bool, LineError> {
            match key {
                b"fleet_number" => {
                    let number = decimal(value, (1 << 20) - 1).and_then(|number| number.try_into().ok());
                    self.number = Some(number.ok_or(NUMBER)?);
                }
                b"fleet_hint" => self.hint = Some(hint(value).ok_or(HINT)?),
                b"initiate" if value == b"true" => self.initiate = Initiate::Now,
                b"initiate" if value == b"once" => self.initiate = Initiate::Once,
                b"initiate" => return Err(LineError::Expected("`true` or `once`")),
                _ => return Ok(false),
            }
            Ok(true)
        }

        pub(in crate::uapi) fn write(&self, text: &mut Buffer) -> std::fmt::Result {
            if let Some(number) = self.number {
                writeln!(text, "fleet_number={number}")?;
            }
            if let Some(hint) = &self.hint {
                write_hint(hint, text)?;
            }
            match self.initiate {
                Initiate::No => Ok(()),
                Initiate::Once => text.write_str("initiate=once\n"),
                Initiate::Now => text.write_str("initiate=true\n"),
            }
        }
    }

    impl FleetChanges {
        /// The reply's text, with `errno=0` and its blank line.
        pub fn render(&self) -> Buffer {
            let mut text = Buffer::with_capacity(PEER_TEXT * (1 + self.peers.len()));
            self.write(&mut text).expect("a Buffer takes every write");
            text
        }

        fn write(&self, text: &mut Buffer) -> std::fmt::Result {
            writeln!(text, "now={}", self.now)?;
            for peer in &self.peers {
                writeln!(text, "public_key={}", peer.public_key.to_hex())?;
                write_hint(&peer.hint, text)?;
                writeln!(text, "fleet_seen={}", peer.seen)?;
            }
            text.write_str("errno=0\n\n")
        }
    }

    /// Parses the reply to `fleet_changes`.
    ///
    /// # Errors
    /// See [`ReplyError`].
    pub fn parse_changes(reply: &[u8]) -> Result<FleetChanges, ReplyError> {
        let mut changes = FleetChanges::default();
        let mut is_known = false;
        parse_lines(reply, |key, value| {
            match (key, changes.peers.last_mut()) {
                (b"now", None) => (changes.now, is_known) = (decimal(value, u64::MAX)?, true),
                (b"public_key", _) => {
                    let hint = Hint { endpoint: None, sent: None, received: None };
                    changes.peers.push(FleetPeer { public_key: PublicKey::from_hex(value)?, hint, seen: 0 });
                }
                (b"fleet_hint", Some(peer)) => peer.hint = hint(value)?,
                (b"fleet_seen", Some(peer)) => peer.seen = decimal(value, u64::MAX)?,
                _ => return None,
            }
            Some(())
        })?;
        is_known.then_some(changes).ok_or(ReplyError::Truncated)
    }

    fn write_hint(hint: &Hint, text: &mut Buffer) -> std::fmt::Result {
        let endpoint = hint.endpoint.map_or("none".into(), |endpoint| endpoint::text(&endpoint));
        writeln!(text, "fleet_hint={endpoint},{},{}", stamp_text(hint.sent), stamp_text(hint.received))
    }

    fn hint(value: &[u8]) -> Option<Hint> {
        let mut parts = value.split(|&byte| byte == b',');
        let (endpoint, sent, received) = (parts.next()?, parts.next()?, parts.next()?);
        let endpoint = if endpoint == b"none" { None } else { Some(endpoint::parse(endpoint)?) };
        parts.next().is_none().then_some(Hint { endpoint, sent: stamp(sent)?, received: stamp(received)? })
    }

    fn stamp(text: &[u8]) -> Option<Option<[u8; 12]>> {
        if text == b"none" {
            return Some(None);
        }
        let digits = text.iter().all(u8::is_ascii_hexdigit).then(|| std::str::from_utf8(text).ok())??;
        let number = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 24)?;
        number.to_be_bytes()[4..].try_into().ok().map(Some)
    }

    fn stamp_text(stamp: Option<[u8; 12]>) -> String {
        stamp.map_or("none".into(), |bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

#[cfg(feature = "fleet")]
pub use text::parse_changes;
#[cfg(feature = "fleet")]
pub(super) use text::{address, forward, gateway, stale, write_device};
