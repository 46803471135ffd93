//! The text of a request, both ways: bytes to a checked [`Request`], and a [`DeviceUpdate`] to text.
//!
//! A request is judged whole before anything may act on it: one bad line refuses all of it. Nothing
//! here resolves a name or asks the kernel, except the index of a link-local endpoint's interface.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use crate::endpoint;
use crate::keys::{PublicKey, SecretKey};
use crate::printable::printable;
use crate::uapi::{RequestError, decimal, errno, lines, prefix};
use crate::zeroizing::Buffer;

/// The largest request in bytes. 130,000 IPv6 allowed IPs of full length are 8 MB.
pub const REQUEST_MAX: usize = 16 << 20;

/// The longest line in bytes: bufio.MaxScanTokenSize, which bounds wireguard-go's.
pub const LINE_MAX: usize = 64 << 10;

/// The longest first line in bytes; every operation is shorter.
const OPERATION_MAX: usize = 32;

/// A request that was read whole and found good.
#[derive(PartialEq, Eq)]
pub enum Request {
    /// `get=1`: tell the whole state.
    Get,
    /// `set=1`: change what the lines name.
    Set(DeviceUpdate),
    /// `stats=1`: tell the counters. linerate's own; other implementations close the connection.
    Stats,
    /// `activity=SINCE`: tell what happened with the peers that were active since then, and no keys or allowed IPs.
    /// linerate's own. `SINCE` is a moment that an earlier reply named, or 0 for all peers.
    Activity(u64),
}

/// What a `set` changes on the device; `None` leaves a field as it is.
#[derive(Default, PartialEq, Eq)]
pub struct DeviceUpdate {
    /// The device's private key; all zero takes it away.
    pub private_key: Option<SecretKey>,
    /// The UDP port; 0 asks for a random one, each time.
    pub listen_port: Option<u16>,
    /// The mark on outgoing datagrams; 0 is none.
    pub fwmark: Option<u32>,
    /// Remove every peer before the peers below are applied.
    pub replace_peers: bool,
    /// Peers in the order they were named; a key named twice is there twice.
    pub peers: Vec<PeerUpdate>,
}

/// What a `set` changes on one peer.
#[derive(PartialEq, Eq)]
pub struct PeerUpdate {
    /// Which peer.
    pub public_key: PublicKey,
    /// Remove the peer; every other field is then moot.
    pub remove: bool,
    /// Do nothing unless the peer exists.
    pub update_only: bool,
    /// The preshared key; all zero takes it away.
    pub preshared_key: Option<SecretKey>,
    /// Where the peer is to be reached.
    pub endpoint: Option<SocketAddr>,
    /// Seconds between keepalives; 0 is off.
    pub persistent_keepalive: Option<u16>,
    /// Forget the peer's allowed IPs before those below are applied.
    pub replace_allowed_ips: bool,
    /// Allowed IPs in the order they were named.
    pub allowed_ips: Vec<AllowedIp>,
}

/// One `allowed_ip` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedIp {
    /// Give the prefix to the peer; false (`-` before the prefix) takes it away.
    pub add: bool,
    /// The address as it was written: host bits are the receiver's to mask.
    pub addr: IpAddr,
    /// Bits of the prefix: at most 32 for IPv4, 128 for IPv6.
    pub cidr: u8,
}

impl PeerUpdate {
    /// An update that only creates the peer.
    pub fn new(public_key: PublicKey) -> Self {
        Self {
            public_key,
            remove: false,
            update_only: false,
            preshared_key: None,
            endpoint: None,
            persistent_keepalive: None,
            replace_allowed_ips: false,
            allowed_ips: Vec::new(),
        }
    }
}

impl DeviceUpdate {
    /// The request's text, from `set=1` to its blank line.
    pub fn render(&self) -> Buffer {
        let mut text = Buffer::new();
        self.write(&mut text).expect("a Buffer takes every write");
        text
    }

    fn write(&self, text: &mut Buffer) -> std::fmt::Result {
        text.write_str("set=1\n")?;
        if let Some(key) = &self.private_key {
            writeln!(text, "private_key={}", &**key.to_hex())?;
        }
        if let Some(port) = self.listen_port {
            writeln!(text, "listen_port={port}")?;
        }
        if let Some(mark) = self.fwmark {
            writeln!(text, "fwmark={mark}")?;
        }
        if self.replace_peers {
            text.write_str("replace_peers=true\n")?;
        }
        for peer in &self.peers {
            peer.write(text)?;
        }
        text.write_str("\n")
    }
}

impl PeerUpdate {
    fn write(&self, text: &mut Buffer) -> std::fmt::Result {
        writeln!(text, "public_key={}", self.public_key.to_hex())?;
        if self.remove {
            text.write_str("remove=true\n")?;
        }
        if self.update_only {
            text.write_str("update_only=true\n")?;
        }
        if let Some(key) = &self.preshared_key {
            writeln!(text, "preshared_key={}", &**key.to_hex())?;
        }
        if let Some(endpoint) = self.endpoint {
            writeln!(text, "endpoint={}", endpoint::text(&endpoint))?;
        }
        if let Some(seconds) = self.persistent_keepalive {
            writeln!(text, "persistent_keepalive_interval={seconds}")?;
        }
        if self.replace_allowed_ips {
            text.write_str("replace_allowed_ips=true\n")?;
        }
        for AllowedIp { add, addr, cidr } in &self.allowed_ips {
            let sign = if *add { "" } else { "-" };
            writeln!(text, "allowed_ip={sign}{addr}/{cidr}")?;
        }
        Ok(())
    }
}

/// What the first bytes of a conversation hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The beginning of a request; more has to come.
    Partial,
    /// A request of this many bytes, for [`parse`].
    Whole(usize),
    /// Not a request at all: wireguard-go closes the connection without a word, so do we.
    Unknown,
    /// A line or a request over its bound.
    TooLong,
}

/// Finds the end of the first request in `bytes`. `seen` starts at 0 and is kept between calls for
/// the same request, so that no whole line is searched twice.
pub fn frame(bytes: &[u8], seen: &mut usize) -> Frame {
    let Some(end) = bytes.iter().take(OPERATION_MAX).position(|&byte| byte == b'\n') else {
        return if bytes.len() < OPERATION_MAX { Frame::Partial } else { Frame::Unknown };
    };
    match &bytes[..end] {
        b"set=1" => frame_set(bytes, seen, end + 1),
        operation if !is_question(operation) => Frame::Unknown,
        _ if bytes.len() > end + 1 => Frame::Whole(end + 2),
        _ => Frame::Partial,
    }
}

/// Questions have no lines: the byte that follows ends them, right or wrong.
fn is_question(operation: &[u8]) -> bool {
    matches!(operation, b"get=1" | b"stats=1") || activity(operation).is_some()
}

fn activity(operation: &[u8]) -> Option<u64> {
    decimal(operation.strip_prefix(b"activity=")?, u64::MAX)
}

fn frame_set(bytes: &[u8], seen: &mut usize, first_line: usize) -> Frame {
    let mut at = first_line.max(*seen);
    while let Some(length) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        let line = &bytes[at..at + length];
        at += length + 1;
        *seen = at;
        if line.is_empty() || line == b"\r" {
            return if at <= REQUEST_MAX { Frame::Whole(at) } else { Frame::TooLong };
        }
        if length > LINE_MAX {
            return Frame::TooLong;
        }
    }
    if bytes.len() - at > LINE_MAX || bytes.len() >= REQUEST_MAX {
        return Frame::TooLong;
    }
    Frame::Partial
}

/// Reads one whole request, as [`frame`] measured it.
///
/// # Errors
/// The first thing wrong with it: -22 for a value or a key that is not valid, -71 for a line that
/// is not `key=value` or a missing blank line, -5 for a line over [`LINE_MAX`].
pub fn parse(request: &[u8]) -> Result<Request, RequestError> {
    let end = request.iter().position(|&byte| byte == b'\n');
    let (operation, rest) = match end {
        Some(end) => (&request[..end], &request[end + 1..]),
        None => (request, &[][..]),
    };
    match operation {
        b"get=1" if rest == b"\n" => Ok(Request::Get),
        b"stats=1" if rest == b"\n" => Ok(Request::Stats),
        question if is_question(question) && rest != b"\n" => {
            Err(refuse(errno::EINVAL, "the line after a get has to be blank".into()))
        }
        b"set=1" => parse_set(rest).map(Request::Set),
        _ => activity(operation)
            .map(Request::Activity)
            .ok_or_else(|| refuse(errno::EPROTO, format!("`{}` is not an operation", beginning(operation)))),
    }
}

fn parse_set(text: &[u8]) -> Result<DeviceUpdate, RequestError> {
    let mut device = DeviceUpdate::default();
    // Line 1 is the operation.
    for (line, number) in lines(text).zip(2..) {
        if line.is_empty() {
            return Ok(device);
        }
        if line.len() > LINE_MAX {
            return Err(refuse(errno::EIO, format!("line {number} is longer than {LINE_MAX} bytes")));
        }
        let Some(equals) = line.iter().position(|&byte| byte == b'=') else {
            return Err(refuse(errno::EPROTO, format!("line {number} is not key=value")));
        };
        let (key, value) = (&line[..equals], &line[equals + 1..]);
        let known = if key == b"public_key" {
            let opened = PublicKey::from_hex(value).map(PeerUpdate::new);
            opened.map(|peer| device.peers.push(peer)).ok_or("64 hexadecimal digits")
        } else if let Some(peer) = device.peers.last_mut() {
            peer_line(peer, key, value)
        } else {
            device_line(&mut device, key, value)
        };
        known.map_err(|wanted| refuse_line(number, key, value, wanted))?;
    }
    Err(refuse(errno::EPROTO, "the request ends before its blank line".into()))
}

/// What a value should have been, or [`UNKNOWN_KEY`].
type Wanted = &'static str;

const UNKNOWN_KEY: Wanted = "";

fn device_line(device: &mut DeviceUpdate, key: &[u8], value: &[u8]) -> Result<(), Wanted> {
    match key {
        b"private_key" => device.private_key = Some(secret(value)?),
        b"listen_port" => device.listen_port = Some(short(value)?),
        b"fwmark" => {
            let mark = decimal(value, u32::MAX.into()).and_then(|mark| u32::try_from(mark).ok());
            device.fwmark = Some(mark.ok_or("a decimal number up to 4294967295")?);
        }
        b"replace_peers" => {
            only_true(value)?;
            device.replace_peers = true;
        }
        _ => return Err(UNKNOWN_KEY),
    }
    Ok(())
}

fn peer_line(peer: &mut PeerUpdate, key: &[u8], value: &[u8]) -> Result<(), Wanted> {
    match key {
        b"remove" => {
            only_true(value)?;
            peer.remove = true;
        }
        b"update_only" => {
            only_true(value)?;
            peer.update_only = true;
        }
        b"preshared_key" => peer.preshared_key = Some(secret(value)?),
        b"endpoint" => {
            peer.endpoint = Some(endpoint::parse(value).ok_or("an IP address, in a zone that there is, and a port")?);
        }
        b"persistent_keepalive_interval" => peer.persistent_keepalive = Some(short(value)?),
        b"replace_allowed_ips" => {
            only_true(value)?;
            peer.replace_allowed_ips = true;
            // Lines count from top to bottom: what this peer was given above is replaced, too.
            peer.allowed_ips.clear();
        }
        b"allowed_ip" => {
            let (add, text) = value.strip_prefix(b"-").map_or((true, value), |text| (false, text));
            let (addr, cidr) = prefix(text).ok_or("an IP address, `/` and a prefix length")?;
            peer.allowed_ips.push(AllowedIp { add, addr, cidr });
        }
        b"protocol_version" if value == b"1" => {}
        b"protocol_version" => return Err("1"),
        _ => return Err(UNKNOWN_KEY),
    }
    Ok(())
}

fn secret(value: &[u8]) -> Result<SecretKey, Wanted> {
    SecretKey::from_hex(value).ok_or("64 hexadecimal digits")
}

fn short(value: &[u8]) -> Result<u16, Wanted> {
    let number = decimal(value, u16::MAX.into()).and_then(|number| u16::try_from(number).ok());
    number.ok_or("a decimal number up to 65535")
}

fn only_true(value: &[u8]) -> Result<(), Wanted> {
    (value == b"true").then_some(()).ok_or("true")
}

/// A refused `set` (and the framing of `get`) carries its number negated.
fn refuse(number: i32, message: String) -> RequestError {
    RequestError { errno: -number, message }
}

fn refuse_line(number: usize, key: &[u8], value: &[u8], wanted: Wanted) -> RequestError {
    let name = beginning(key);
    let message = if wanted == UNKNOWN_KEY {
        // What does not look like a name may be a secret in the wrong place.
        let is_name = key.len() <= 40 && key.iter().all(|&c| c.is_ascii_lowercase() || c == b'_');
        let name = if is_name { &name } else { "..." };
        format!("line {number}: `{name}` is not a key that is known here")
    } else if key.ends_with(b"_key") {
        // The value may be a slightly damaged secret.
        format!("line {number}: {name} has to be {wanted}")
    } else {
        format!("line {number}: {name} has to be {wanted}, not `{}`", beginning(value))
    };
    refuse(errno::EINVAL, message)
}

/// The beginning of `bytes`, fit for a log line.
fn beginning(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(&bytes[..bytes.len().min(64)])).into_owned()
}
