//! The text of the replies to `get`, and to linerated's own `stats` and `activity`: writes and parses them.
//!
//! Which keys are written, and their order, are wireguard-go's (IpcGetOperation), which `wg` was written for. The texts
//! contain secrets, so they are in a [`Buffer`].

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::endpoint;
use crate::keys::{PublicKey, SecretKey};
use crate::number::decimal;
use crate::rate::Rate;
use crate::uapi::limits::LimitState;
use crate::uapi::{lines, prefix};
use crate::zeroizing::Buffer;

/// The state of a device, as `get` returns it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// The device's private key.
    pub private_key: Option<SecretKey>,
    /// The UDP port; 0 without a socket.
    pub listen_port: u16,
    /// The mark on outgoing datagrams; 0 for none.
    pub fwmark: u32,
    /// The peers in the order of their creation.
    pub peers: Vec<PeerState>,
}

/// The state of a peer, as `get` returns it.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerState {
    /// Its public key.
    pub public_key: PublicKey,
    /// The preshared key; never all zero.
    pub preshared_key: Option<SecretKey>,
    /// The last known address of the peer.
    pub endpoint: Option<SocketAddr>,
    /// When the last handshake completed, since 1970; zero for never.
    pub last_handshake: Duration,
    /// How long that handshake took, from our initiation to the response; zero if the peer initiated it. Only in
    /// linerated's reply to `activity`.
    pub handshake_time: Duration,
    /// Bytes of datagrams sent to the peer.
    pub tx_bytes: u64,
    /// Bytes of authentic datagrams received from the peer.
    pub rx_bytes: u64,
    /// Seconds between keepalives; 0 if they are off.
    pub persistent_keepalive: u16,
    /// The allowed IPs, host bits zero.
    pub allowed_ips: Vec<(IpAddr, u8)>,
    /// Its limits; only linerated has them.
    pub limits: LimitState,
    /// Its rate; only linerated has one.
    pub rate: Rate,
    /// When the last authentic packet was received from the peer, as a time of [`Activity::now`]; zero for never. Only
    /// the reply to `activity` has it.
    pub last_received: u64,
}

impl PeerState {
    /// A peer with nothing but its key.
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            public_key,
            preshared_key: None,
            endpoint: None,
            last_handshake: Duration::ZERO,
            handshake_time: Duration::ZERO,
            tx_bytes: 0,
            rx_bytes: 0,
            persistent_keepalive: 0,
            allowed_ips: Vec::new(),
            limits: LimitState::default(),
            rate: Rate::NONE,
            last_received: 0,
        }
    }
}

/// The reply to linerated's own `activity`.
#[derive(Default, PartialEq, Eq)]
pub struct Activity {
    /// The time to pass in the next request, whose reply may repeat a peer.
    pub now: u64,
    /// How often the device was configured, or a peer suspended or let in again. If it changed, the client needs a new
    /// `get`.
    pub configured: u64,
    /// The active peers in the order of their creation, without secrets and allowed IPs.
    pub peers: Vec<PeerState>,
}

/// Why a reply contains no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The daemon rejected the request, with this number in its `errno=` line.
    #[error("the daemon rejected the request with errno {0}")]
    Refused(i64),
    /// A line is not valid.
    #[error("line {0} of the daemon's reply is not valid")]
    Line(usize),
    /// The reply has no `errno=` line or no blank line.
    #[error("the daemon's reply is incomplete")]
    Truncated,
}

// The longest text of a peer without its allowed IPs, and of one allowed IP, so that a reply is allocated once.
const PEER_TEXT: usize = 800;
const ALLOWED_IP_TEXT: usize = 56;

impl DeviceState {
    /// The reply's text, with `errno=0` and its blank line.
    pub fn render(&self) -> Buffer {
        let peers = self.peers.iter();
        let bytes = peers.map(|peer| PEER_TEXT + ALLOWED_IP_TEXT * peer.allowed_ips.len());
        let mut text = Buffer::with_capacity(PEER_TEXT + bytes.sum::<usize>());
        self.write(&mut text).expect("a Buffer takes every write");
        text
    }

    fn write(&self, text: &mut Buffer) -> std::fmt::Result {
        if let Some(key) = &self.private_key {
            writeln!(text, "private_key={}", &**key.to_hex())?;
        }
        if self.listen_port != 0 {
            writeln!(text, "listen_port={}", self.listen_port)?;
        }
        if self.fwmark != 0 {
            writeln!(text, "fwmark={}", self.fwmark)?;
        }
        for peer in &self.peers {
            peer.write(text)?;
        }
        text.write_str("errno=0\n\n")
    }
}

impl PeerState {
    fn write(&self, text: &mut Buffer) -> std::fmt::Result {
        static NONE: SecretKey = SecretKey::ZERO;
        let preshared_key = self.preshared_key.as_ref().unwrap_or(&NONE);
        writeln!(text, "public_key={}", self.public_key.to_hex())?;
        writeln!(text, "preshared_key={}", &**preshared_key.to_hex())?;
        text.write_str("protocol_version=1\n")?;
        self.write_activity(text)?;
        writeln!(text, "persistent_keepalive_interval={}", self.persistent_keepalive)?;
        for (addr, cidr) in &self.allowed_ips {
            writeln!(text, "allowed_ip={addr}/{cidr}")?;
        }
        if !self.rate.is_none() {
            self.rate.write_line(text)?;
        }
        self.limits.write(text)
    }

    fn write_activity(&self, text: &mut Buffer) -> std::fmt::Result {
        if let Some(endpoint) = self.endpoint {
            writeln!(text, "endpoint={endpoint}")?;
        }
        writeln!(text, "last_handshake_time_sec={}", self.last_handshake.as_secs())?;
        writeln!(text, "last_handshake_time_nsec={}", self.last_handshake.subsec_nanos())?;
        writeln!(text, "tx_bytes={}", self.tx_bytes)?;
        writeln!(text, "rx_bytes={}", self.rx_bytes)
    }
}

impl Activity {
    /// The reply's text, with `errno=0` and its blank line.
    pub fn render(&self) -> Buffer {
        let mut text = Buffer::with_capacity(PEER_TEXT * (1 + self.peers.len()));
        self.write(&mut text).expect("a Buffer takes every write");
        text
    }

    fn write(&self, text: &mut Buffer) -> std::fmt::Result {
        writeln!(text, "now={}\nconfigured={}", self.now, self.configured)?;
        for peer in &self.peers {
            writeln!(text, "public_key={}", peer.public_key.to_hex())?;
            peer.write_activity(text)?;
            if !peer.handshake_time.is_zero() {
                writeln!(text, "handshake_nsec={}", peer.handshake_time.as_nanos())?;
            }
            if peer.last_received != 0 {
                writeln!(text, "last_received={}", peer.last_received)?;
            }
        }
        text.write_str("errno=0\n\n")
    }
}

/// Parses the reply to linerated's own `activity`.
///
/// # Errors
/// See [`ReplyError`].
pub fn parse_activity(reply: &[u8]) -> Result<Activity, ReplyError> {
    let mut activity = Activity::default();
    let mut known = (false, false);
    parse_lines(reply, |key, value| match activity.peers.last_mut() {
        _ if key == b"public_key" => {
            activity.peers.push(PeerState::new(PublicKey::from_hex(value)?));
            Some(())
        }
        Some(peer) if key == b"last_received" => {
            peer.last_received = decimal(value, u64::MAX)?;
            Some(())
        }
        // Not part of this reply.
        Some(_) if matches!(key, b"preshared_key" | b"rate" | b"persistent_keepalive_interval" | b"allowed_ip") => None,
        Some(peer) if key == b"handshake_nsec" => {
            peer.handshake_time = Duration::from_nanos(decimal(value, u64::MAX)?);
            Some(())
        }
        Some(peer) => peer_line(peer, key, value).filter(|()| peer.limits == LimitState::default()),
        None => {
            match key {
                b"now" => (activity.now, known.0) = (decimal(value, u64::MAX)?, true),
                b"configured" => (activity.configured, known.1) = (decimal(value, u64::MAX)?, true),
                _ => {}
            }
            Some(())
        }
    })?;
    (known == (true, true)).then_some(activity).ok_or(ReplyError::Truncated)
}

/// Parses the reply to a `get` of any implementation; unknown keys are skipped.
///
/// # Errors
/// See [`ReplyError`].
pub fn parse(reply: &[u8]) -> Result<DeviceState, ReplyError> {
    let mut device = DeviceState::default();
    let text = parse_lines(reply, |key, value| match device.peers.last_mut() {
        _ if key == b"public_key" => {
            device.peers.push(PeerState::new(PublicKey::from_hex(value)?));
            Some(())
        }
        Some(peer) => peer_line(peer, key, value),
        None => device_line(&mut device, key, value),
    });
    text.map(|()| device)
}

/// Parses the reply to a `set`.
///
/// # Errors
/// See [`ReplyError`].
pub fn parse_set(reply: &[u8]) -> Result<(), ReplyError> {
    parse_lines(reply, |_, _| Some(()))
}

/// The text of counters, with `errno=0` and its blank line.
pub fn render_stats(counters: &[(String, u64)]) -> Buffer {
    let mut text = Buffer::new();
    for (name, count) in counters {
        writeln!(text, "{name}={count}").expect("a Buffer takes every write");
    }
    text.extend(b"errno=0\n\n");
    text
}

/// Parses the reply to linerated's own `stats`.
///
/// # Errors
/// See [`ReplyError`].
pub fn parse_stats(reply: &[u8]) -> Result<Vec<(String, u64)>, ReplyError> {
    let mut counters = Vec::new();
    let text = parse_lines(reply, |key, value| {
        let name = std::str::from_utf8(key).ok()?;
        counters.push((name.to_owned(), decimal(value, u64::MAX)?));
        Some(())
    });
    text.map(|()| counters)
}

/// Passes each `key=value` up to the blank line to `line`, which returns `None` for an invalid value.
pub(super) fn parse_lines(reply: &[u8], mut line: impl FnMut(&[u8], &[u8]) -> Option<()>) -> Result<(), ReplyError> {
    let mut status = None;
    for (text, number) in lines(reply).zip(1..) {
        if text.is_empty() {
            return match status {
                Some(0) => Ok(()),
                Some(number) => Err(ReplyError::Refused(number)),
                None => Err(ReplyError::Truncated),
            };
        }
        let equals = text.iter().position(|&byte| byte == b'=').ok_or(ReplyError::Line(number))?;
        let (key, value) = (&text[..equals], &text[equals + 1..]);
        if key == b"errno" {
            let value = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            status = Some(value.ok_or(ReplyError::Line(number))?);
        } else {
            line(key, value).ok_or(ReplyError::Line(number))?;
        }
    }
    Err(ReplyError::Truncated)
}

fn device_line(device: &mut DeviceState, key: &[u8], value: &[u8]) -> Option<()> {
    match key {
        b"private_key" => device.private_key = secret(value)?,
        b"listen_port" => device.listen_port = decimal(value, u16::MAX.into())?.try_into().ok()?,
        b"fwmark" => device.fwmark = decimal(value, u32::MAX.into())?.try_into().ok()?,
        _ => {}
    }
    Some(())
}

fn peer_line(peer: &mut PeerState, key: &[u8], value: &[u8]) -> Option<()> {
    match key {
        b"preshared_key" => peer.preshared_key = secret(value)?,
        b"endpoint" => peer.endpoint = endpoint::parse_reply(value),
        b"last_handshake_time_sec" => {
            // A time_t, so at most i64::MAX.
            let seconds = decimal(value, i64::MAX as u64).or_else(|| counter(value).map(|_| 0))?;
            peer.last_handshake = Duration::new(seconds, peer.last_handshake.subsec_nanos());
        }
        b"last_handshake_time_nsec" => {
            let nanos = decimal(value, 999_999_999)?.try_into().ok()?;
            peer.last_handshake = Duration::new(peer.last_handshake.as_secs(), nanos);
        }
        b"tx_bytes" => peer.tx_bytes = counter(value)?,
        b"rx_bytes" => peer.rx_bytes = counter(value)?,
        b"persistent_keepalive_interval" => {
            peer.persistent_keepalive = decimal(value, u16::MAX.into())?.try_into().ok()?;
        }
        b"allowed_ip" => peer.allowed_ips.push(prefix(value)?),
        b"rate" => peer.rate = Rate::from_line(value)?,
        _ => return peer.limits.line(key, value),
    }
    Some(())
}

/// A counter; above 64 bits it saturates, as in `wg`.
fn counter(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| decimal(value, u64::MAX).unwrap_or(u64::MAX))
}

/// `None` is an invalid value, `Some(None)` the all-zero key, which means no key.
fn secret(value: &[u8]) -> Option<Option<SecretKey>> {
    SecretKey::from_hex(value).map(|key| Some(key).filter(|key| !key.is_zero()))
}
