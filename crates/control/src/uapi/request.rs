//! The text of a request: parses bytes into a valid [`Request`], and writes a [`DeviceUpdate`] as text.
//!
//! A request is validated as a whole before it has any effect: one invalid line rejects all of it. Nothing here
//! resolves a name or queries the kernel, except for the interface index of a link-local endpoint.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use crate::endpoint;
use crate::keys::{PublicKey, SecretKey};
use crate::number::decimal;
use crate::printable::printable;
use crate::rate::Rate;
use crate::uapi::fleet::{FleetUpdate, Gateway};
use crate::uapi::group::GroupUpdate;
use crate::uapi::limits::LimitUpdate;
use crate::uapi::{RequestError, errno, lines, prefix};
use crate::zeroizing::Buffer;

/// The largest request in bytes. 130,000 IPv6 allowed IPs of full length are 8 MB.
pub const REQUEST_MAX: usize = 16 << 20;

/// The longest line in bytes: bufio.MaxScanTokenSize, which bounds wireguard-go's.
pub const LINE_MAX: usize = 64 << 10;

const RATE: LineError =
    LineError::Expected("bits per second down, `/` and bits per second up, each 64000 to 100000000000 or 0");

/// The longest first line in bytes. Every operation is shorter.
const OPERATION_MAX: usize = 48;

/// A complete and valid request.
#[derive(PartialEq, Eq)]
pub enum Request {
    /// `get=1`: return the whole state.
    Get,
    /// `set=1`: apply the changes in the lines that follow.
    Set(DeviceUpdate),
    /// `stats=1`: return the counters. Only linerated knows it; other daemons close the connection.
    Stats,
    /// `activity=SINCE`: return the peers that were active since then, without secrets and allowed IPs. Only linerated
    /// knows it. `SINCE` is a time from an earlier reply, or 0 for all peers. The main thread answers it from the tables:
    /// those who poll `get=1` for 100,000 peers take the control thread from handshakes.
    Activity(u64),
    /// `fleet_changes=SINCE`: return what other gateways of a fleet have to know of the peers that changed since then.
    /// `SINCE` is a number from an earlier reply, or 0 for all peers that ever changed.
    #[cfg(feature = "fleet")]
    FleetChanges(u64),
}

/// The changes of a `set` to the device; `None` leaves a field unchanged.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DeviceUpdate {
    /// The device's private key; all zero removes it.
    pub private_key: Option<SecretKey>,
    /// The UDP port; 0 chooses a random one each time.
    pub listen_port: Option<u16>,
    /// The mark on outgoing datagrams; 0 for none.
    pub fwmark: Option<u32>,
    /// Remove every peer before the peers below are applied.
    pub replace_peers: bool,
    /// Its place in a fleet; `Some(None)` leaves it. Only linerated knows fleets.
    pub fleet: Option<Option<Gateway>>,
    /// The address by which clients know the fleet, which its gateways send from; `Some(None)`: the system chooses.
    pub fleet_address: Option<Option<IpAddr>>,
    /// The port of this host that gets datagrams of other gateways' sessions; `Some(None)`: they are dropped.
    pub fleet_forward: Option<Option<SocketAddrV4>>,
    /// Whether what the fleet knows of its peers is too old: no handshake begins or is answered then.
    pub fleet_stale: Option<bool>,
    /// Peer updates in the order of the request; a peer may occur more than once.
    pub peers: Vec<PeerUpdate>,
}

/// The changes of a `set` to one peer.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerUpdate {
    /// The peer to change.
    pub public_key: PublicKey,
    /// Remove the peer and ignore all other fields.
    pub remove: bool,
    /// Ignore the update unless the peer exists.
    pub update_only: bool,
    /// The preshared key; all zero removes it.
    pub preshared_key: Option<SecretKey>,
    /// The address of the peer.
    pub endpoint: Option<SocketAddr>,
    /// Seconds between keepalives; 0 turns them off.
    pub persistent_keepalive: Option<u16>,
    /// Remove the peer's allowed IPs before those below are applied.
    pub replace_allowed_ips: bool,
    /// Allowed IPs in the order of the request.
    pub allowed_ips: Vec<AllowedIp>,
    /// Its limits. Only linerated knows them: other daemons reject the request.
    pub limits: LimitUpdate,
    /// Its rate; [`Rate::NONE`] removes it. Only linerated knows rates.
    pub rate: Option<Rate>,
    /// What a fleet knows of it. Only linerated knows that.
    pub fleet: FleetUpdate,
    /// Its group. Only linerated knows groups.
    pub group: GroupUpdate,
}

/// One `allowed_ip` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedIp {
    /// Add the prefix; false (`-` before the prefix) removes it.
    pub add: bool,
    /// The address as written; the receiver masks the host bits.
    pub addr: IpAddr,
    /// The prefix length: at most 32 for IPv4, 128 for IPv6.
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
            limits: LimitUpdate::default(),
            rate: None,
            fleet: FleetUpdate::default(),
            group: GroupUpdate::default(),
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

    /// Whether it has what only linerated knows.
    pub fn has_limits(&self) -> bool {
        self.peers.iter().any(|peer| peer.limits != LimitUpdate::default())
    }

    /// Whether it has rates, which only linerated knows.
    pub fn has_rates(&self) -> bool {
        self.peers.iter().any(|peer| peer.rate.is_some())
    }

    /// The same for an implementation that knows no rates.
    #[must_use]
    pub fn without_rates(&self) -> Self {
        let mut update = self.clone();
        update.peers.iter_mut().for_each(|peer| peer.rate = None);
        update
    }

    /// Whether it has groups, which only linerated knows.
    pub fn has_groups(&self) -> bool {
        self.peers.iter().any(|peer| peer.group != GroupUpdate::default())
    }

    /// The same for an implementation that knows no groups: of peers with the same allowed IPs the last one has them.
    #[must_use]
    pub fn without_groups(&self) -> Self {
        let mut update = self.clone();
        update.peers.iter_mut().for_each(|peer| peer.group = GroupUpdate::default());
        update
    }

    /// The same for an implementation that knows no limits: without them, without peers that have expired by `now`, the
    /// time since 1970, and without those that wait to replace others.
    #[must_use]
    pub fn without_limits(&self, now: Duration) -> Self {
        let mut update = self.clone();
        let is_over = |limits: &LimitUpdate| limits.expires.is_some_and(|end| !end.is_zero() && end <= now);
        let removed = self.removed_keys();
        let waits =
            |limits: &LimitUpdate| limits.replaces.is_some_and(|key| key.0 != [0; 32] && !removed.contains(&key));
        update.peers.retain(|peer| !is_over(&peer.limits) && !waits(&peer.limits));
        update.peers.iter_mut().for_each(|peer| peer.limits = LimitUpdate::default());
        update
    }

    /// The peers that are removed.
    pub fn removed_keys(&self) -> HashSet<PublicKey> {
        self.peers.iter().filter(|peer| peer.remove).map(|peer| peer.public_key).collect()
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
        #[cfg(feature = "fleet")]
        crate::uapi::fleet::write_device(self, text)?;
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
        if let Some(rate) = self.rate {
            rate.write_line(text)?;
        }
        #[cfg(feature = "fleet")]
        self.fleet.write(text)?;
        #[cfg(feature = "fleet")]
        self.group.write(text)?;
        self.limits.write(text)
    }
}

/// What the received bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The beginning of a request; more is needed.
    Partial,
    /// A request of this many bytes, for [`parse`].
    Whole(usize),
    /// Not a request: the connection is closed without a reply, as in wireguard-go.
    Unknown,
    /// A line or a request is too long.
    TooLong,
}

/// Finds the end of the first request in `bytes`. `searched` starts at 0 and is kept between calls for the same
/// request, so that no whole line is searched twice.
pub fn frame(bytes: &[u8], searched: &mut usize) -> Frame {
    let Some(end) = bytes.iter().take(OPERATION_MAX).position(|&byte| byte == b'\n') else {
        return if bytes.len() < OPERATION_MAX { Frame::Partial } else { Frame::Unknown };
    };
    match &bytes[..end] {
        b"set=1" => frame_set(bytes, searched, end + 1),
        operation if !is_query(operation) => Frame::Unknown,
        _ if bytes.len() > end + 1 => Frame::Whole(end + 2),
        _ => Frame::Partial,
    }
}

/// A query has no further lines: the next byte ends it, whether it is a line end or not.
fn is_query(operation: &[u8]) -> bool {
    matches!(operation, b"get=1" | b"stats=1") || since(operation).is_some()
}

/// The request of an operation that has a number.
fn since(operation: &[u8]) -> Option<Request> {
    // `decimal` accepts any number of leading zeros, but [`frame`] refuses an operation this long.
    if operation.len() >= OPERATION_MAX {
        return None;
    }
    #[cfg(feature = "fleet")]
    if let Some(number) = operation.strip_prefix(b"fleet_changes=") {
        return decimal(number, u64::MAX).map(Request::FleetChanges);
    }
    decimal(operation.strip_prefix(b"activity=")?, u64::MAX).map(Request::Activity)
}

fn frame_set(bytes: &[u8], searched: &mut usize, first_line: usize) -> Frame {
    let mut at = first_line.max(*searched);
    while let Some(length) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        let line = &bytes[at..at + length];
        at += length + 1;
        *searched = at;
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

/// Parses one whole request, of the length that [`frame`] found.
///
/// # Errors
/// The first error: -22 for an invalid key or value, -71 for a line that is not `key=value` or a missing blank line, -5
/// for a line over [`LINE_MAX`].
pub fn parse(request: &[u8]) -> Result<Request, RequestError> {
    let end = request.iter().position(|&byte| byte == b'\n');
    let (operation, rest) = match end {
        Some(end) => (&request[..end], &request[end + 1..]),
        None => (request, &[][..]),
    };
    match operation {
        b"get=1" if rest == b"\n" => Ok(Request::Get),
        b"stats=1" if rest == b"\n" => Ok(Request::Stats),
        query if is_query(query) && rest != b"\n" => {
            Err(reject(errno::EINVAL, "the line after the operation must be blank".into()))
        }
        b"set=1" => parse_set(rest).map(Request::Set),
        _ => since(operation)
            .ok_or_else(|| reject(errno::EPROTO, format!("`{}` is not an operation", beginning(operation)))),
    }
}

fn parse_set(text: &[u8]) -> Result<DeviceUpdate, RequestError> {
    let mut device = DeviceUpdate::default();
    #[cfg(feature = "fleet")]
    let (mut gateway, mut index_key) = (None, None);
    // Line 1 is the operation.
    for (line, number) in lines(text).zip(2..) {
        if line.is_empty() {
            #[cfg(feature = "fleet")]
            match (gateway, index_key) {
                (None, None) => {}
                (Some(None), None) => device.fleet = Some(None),
                (Some(Some(number)), Some(index_key)) => device.fleet = Some(Some(Gateway { number, index_key })),
                _ => {
                    let message = "fleet_gateway and fleet_index_key must be in one request";
                    return Err(reject(errno::EINVAL, message.into()));
                }
            }
            return Ok(device);
        }
        if line.len() > LINE_MAX {
            return Err(reject(errno::EIO, format!("line {number} is longer than {LINE_MAX} bytes")));
        }
        let Some(equals) = line.iter().position(|&byte| byte == b'=') else {
            return Err(reject(errno::EPROTO, format!("line {number} is not key=value")));
        };
        let (key, value) = (&line[..equals], &line[equals + 1..]);
        let known = if key == b"public_key" {
            let opened = PublicKey::from_hex(value).map(PeerUpdate::new);
            opened.map(|peer| device.peers.push(peer)).ok_or(LineError::Expected("64 hexadecimal digits"))
        } else if let Some(peer) = device.peers.last_mut() {
            peer_line(peer, key, value)
        } else if cfg!(feature = "fleet") && key.starts_with(b"fleet_") {
            #[cfg(feature = "fleet")]
            match key {
                b"fleet_gateway" => crate::uapi::fleet::gateway(value).map(|number| gateway = Some(number)),
                b"fleet_index_key" => secret(value).map(|key| index_key = Some(key)),
                b"fleet_address" => {
                    crate::uapi::fleet::address(value).map(|address| device.fleet_address = Some(address))
                }
                b"fleet_forward" => crate::uapi::fleet::forward(value).map(|to| device.fleet_forward = Some(to)),
                b"fleet_stale" => crate::uapi::fleet::stale(value).map(|is_stale| device.fleet_stale = Some(is_stale)),
                _ => Err(LineError::UnknownKey),
            }
            #[cfg(not(feature = "fleet"))]
            Err(LineError::UnknownKey)
        } else {
            device_line(&mut device, key, value)
        };
        known.map_err(|error| reject_line(number, key, value, error))?;
    }
    Err(reject(errno::EPROTO, "the request ends before its blank line".into()))
}

/// Why a line is invalid.
pub(super) enum LineError {
    UnknownKey,
    /// The value must be this.
    Expected(&'static str),
}

fn device_line(device: &mut DeviceUpdate, key: &[u8], value: &[u8]) -> Result<(), LineError> {
    match key {
        b"private_key" => device.private_key = Some(secret(value)?),
        b"listen_port" => device.listen_port = Some(short(value)?),
        b"fwmark" => {
            let mark = decimal(value, u32::MAX.into()).and_then(|mark| u32::try_from(mark).ok());
            device.fwmark = Some(mark.ok_or(LineError::Expected("a decimal number up to 4294967295"))?);
        }
        b"replace_peers" => {
            only_true(value)?;
            device.replace_peers = true;
        }
        _ => return Err(LineError::UnknownKey),
    }
    Ok(())
}

fn peer_line(peer: &mut PeerUpdate, key: &[u8], value: &[u8]) -> Result<(), LineError> {
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
            peer.endpoint = Some(
                endpoint::parse(value)
                    .ok_or(LineError::Expected("an IP address, with an existing zone if any, and a port"))?,
            );
        }
        b"persistent_keepalive_interval" => peer.persistent_keepalive = Some(short(value)?),
        b"replace_allowed_ips" => {
            only_true(value)?;
            peer.replace_allowed_ips = true;
            // Lines apply from top to bottom: this also removes what the lines above added.
            peer.allowed_ips.clear();
        }
        b"allowed_ip" => {
            let (add, text) = value.strip_prefix(b"-").map_or((true, value), |text| (false, text));
            let (addr, cidr) = prefix(text).ok_or(LineError::Expected("an IP address, `/` and a prefix length"))?;
            peer.allowed_ips.push(AllowedIp { add, addr, cidr });
        }
        b"protocol_version" if value == b"1" => {}
        b"protocol_version" => return Err(LineError::Expected("1")),
        b"rate" => peer.rate = Some(Rate::from_line(value).ok_or(RATE)?),
        #[cfg(feature = "fleet")]
        _ if peer.fleet.line(key, value)? => {}
        #[cfg(feature = "fleet")]
        _ if peer.group.line(key, value)? => {}
        _ => return peer.limits.line(key, value)?.then_some(()).ok_or(LineError::UnknownKey),
    }
    Ok(())
}

fn secret(value: &[u8]) -> Result<SecretKey, LineError> {
    SecretKey::from_hex(value).ok_or(LineError::Expected("64 hexadecimal digits"))
}

fn short(value: &[u8]) -> Result<u16, LineError> {
    let number = decimal(value, u16::MAX.into()).and_then(|number| u16::try_from(number).ok());
    number.ok_or(LineError::Expected("a decimal number up to 65535"))
}

fn only_true(value: &[u8]) -> Result<(), LineError> {
    (value == b"true").then_some(()).ok_or(LineError::Expected("true"))
}

/// The number is negated in replies to `set`, and to a malformed `get`.
fn reject(number: i32, message: String) -> RequestError {
    RequestError { errno: -number, message }
}

fn reject_line(number: usize, key: &[u8], value: &[u8], error: LineError) -> RequestError {
    let name = beginning(key);
    let message = match error {
        LineError::UnknownKey => {
            // Anything that does not look like a name may be a misplaced secret.
            let is_name = key.len() <= 40 && key.iter().all(|&c| c.is_ascii_lowercase() || c == b'_');
            let name = if is_name { &name } else { "..." };
            format!("line {number}: `{name}` is not a known key here")
        }
        // The value may be a slightly damaged secret.
        LineError::Expected(expected) if key.ends_with(b"_key") => format!("line {number}: {name} must be {expected}"),
        LineError::Expected(expected) => {
            format!("line {number}: {name} must be {expected}, not `{}`", beginning(value))
        }
    };
    reject(errno::EINVAL, message)
}

/// The beginning of `bytes`, escaped for a log line.
fn beginning(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(&bytes[..bytes.len().min(64)])).into_owned()
}
