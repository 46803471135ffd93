//! The configuration file of `wg setconf`, `addconf` and `syncconf`: parses it into a [`DeviceUpdate`].
//!
//! Accepts what wireguard-tools accepts, with the same error messages (man 8 wg, CONFIGURATION FILE FORMAT). Nothing
//! here opens a file or resolves a name: a [`Resolver`] does. [`values`] parses the values, also for the command line
//! of
//! `wg set`.

mod sync;
pub mod values;

use std::fmt;
use std::net::SocketAddr;

pub use sync::synchronize;
use zeroize::Zeroizing;

use crate::keys::{PublicKey, SecretKey};
use crate::uapi::request::{DeviceUpdate, PeerUpdate};

/// Resolves names in values, and takes warnings about them.
pub trait Resolver {
    /// The first address of `host`, with the port of `service`; `text` is the whole endpoint, for messages.
    ///
    /// # Errors
    /// There is none, or looking it up is not allowed.
    fn resolve(&mut self, text: &str, host: &str, service: &str) -> Result<SocketAddr, ValueError>;

    /// The UDP port of `service`, a number or a name.
    ///
    /// # Errors
    /// There is no such service.
    fn port(&mut self, service: &str) -> Result<u16, ValueError>;

    /// Reports a warning.
    fn warn(&mut self, warning: &str);
}

/// Why a value is invalid, in the words of `wg`. No `Debug`: those quote the value, which may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum ValueError {
    /// It is not valid.
    Value(String),
    /// It cannot be resolved, because an environment variable is not valid.
    Environment(String),
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Value(sentence) | Self::Environment(sentence)) = self;
        f.write_str(sentence)
    }
}

/// Why a file is invalid. No `Debug`, as for [`ValueError`].
#[derive(Clone, PartialEq, Eq)]
pub enum ParseError {
    /// A line is unknown, or not allowed in its section.
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The line without its comment and white space.
        text: String,
    },
    /// The value of a line is not valid.
    Value {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong.
        reason: ValueError,
    },
    /// A `[Peer]` has no `PublicKey`.
    MissingPublicKey,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { text, .. } => write!(f, "Line unrecognized: `{text}'"),
            Self::Value { reason, .. } => reason.fmt(f),
            Self::MissingPublicKey => f.write_str("A peer is missing a public key"),
        }
    }
}

/// How to apply the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Replace the configuration: remove what the file does not contain.
    Replace,
    /// Add to the configuration: keep what the file does not contain.
    Append,
}

/// Parses a whole file.
///
/// # Errors
/// The first error.
pub fn parse(text: &[u8], mode: Mode, resolver: &mut dyn Resolver) -> Result<DeviceUpdate, ParseError> {
    let mut file = File { device: start(mode), peers: Vec::new(), section: Section::None };
    for (line, number) in text.split(|&byte| byte == b'\n').zip(1..) {
        let line = compact(line);
        if !line.is_empty() {
            file.line(&line, number, resolver)?;
        }
    }
    file.finish()
}

/// The update for an empty file.
fn start(mode: Mode) -> DeviceUpdate {
    match mode {
        Mode::Append => DeviceUpdate::default(),
        Mode::Replace => DeviceUpdate {
            private_key: Some(SecretKey::ZERO),
            listen_port: Some(0),
            fwmark: Some(0),
            replace_peers: true,
            ..DeviceUpdate::default()
        },
    }
}

/// The line up to its comment or NUL, without any white space.
fn compact(line: &[u8]) -> Zeroizing<String> {
    let end = line.iter().position(|byte| matches!(byte, b'#' | 0)).unwrap_or(line.len());
    let kept = line[..end].iter().copied().filter(|&byte| !values::is_space(byte));
    let mut bytes = Zeroizing::new(Vec::with_capacity(end));
    bytes.extend(kept);
    Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned())
}

struct File {
    device: DeviceUpdate,
    peers: Vec<PeerSection>,
    section: Section,
}

/// A `[Peer]` section.
struct PeerSection {
    has_public_key: bool,
    update: PeerUpdate,
}

#[derive(Clone, Copy)]
enum Section {
    None,
    Interface,
    Peer,
}

impl File {
    fn line(&mut self, text: &str, line: usize, resolver: &mut dyn Resolver) -> Result<(), ParseError> {
        if text.eq_ignore_ascii_case("[Interface]") {
            self.section = Section::Interface;
            return Ok(());
        }
        if text.eq_ignore_ascii_case("[Peer]") {
            self.section = Section::Peer;
            let update = PeerUpdate { replace_allowed_ips: true, ..PeerUpdate::new(PublicKey([0; 32])) };
            self.peers.push(PeerSection { has_public_key: false, update });
            return Ok(());
        }
        let unrecognized = || ParseError::Line { line, text: text.to_owned() };
        // wg does not recognize a setting without a value.
        let (name, value) = text.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or_else(unrecognized)?;
        let name = name.to_ascii_lowercase();
        let known = match (self.section, self.peers.last_mut()) {
            (Section::Interface, _) => device_line(&mut self.device, &name, value, resolver),
            (Section::Peer, Some(peer)) => peer_line(peer, &name, value, resolver),
            _ => return Err(unrecognized()),
        };
        match known {
            Ok(true) => Ok(()),
            Ok(false) => Err(unrecognized()),
            Err(reason) => Err(ParseError::Value { line, reason }),
        }
    }

    fn finish(mut self) -> Result<DeviceUpdate, ParseError> {
        if self.peers.iter().any(|peer| !peer.has_public_key) {
            return Err(ParseError::MissingPublicKey);
        }
        self.device.peers = self.peers.into_iter().map(|peer| peer.update).collect();
        Ok(self.device)
    }
}

/// Whether the setting belongs in `[Interface]`.
fn device_line(
    device: &mut DeviceUpdate,
    name: &str,
    value: &str,
    resolver: &mut dyn Resolver,
) -> Result<bool, ValueError> {
    match name {
        "listenport" => device.listen_port = Some(values::listen_port(value, resolver)?),
        "fwmark" => device.fwmark = Some(values::fwmark(value)?),
        "privatekey" => device.private_key = Some(values::secret_key(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Whether the setting belongs in `[Peer]`.
fn peer_line(peer: &mut PeerSection, name: &str, value: &str, resolver: &mut dyn Resolver) -> Result<bool, ValueError> {
    let PeerSection { has_public_key, update } = peer;
    match name {
        "publickey" => {
            update.public_key = values::public_key(value)?;
            *has_public_key = true;
        }
        "presharedkey" => update.preshared_key = Some(values::secret_key(value)?),
        "endpoint" => update.endpoint = Some(values::endpoint(value, resolver)?),
        "allowedips" => values::allowed_ips(value, update, resolver)?,
        "persistentkeepalive" => update.persistent_keepalive = Some(values::persistent_keepalive(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

impl ParseError {
    /// The number of the invalid line, if there is one.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Line { line, .. } | Self::Value { line, .. } => Some(*line),
            Self::MissingPublicKey => None,
        }
    }

    /// How to fix it, if that is clear.
    pub fn hint(&self) -> Option<String> {
        let Self::Line { text, .. } = self else { return None };
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let is = |known: &&str| known.eq_ignore_ascii_case(name);
        if let Some(name) = WG_QUICK_SETTINGS.into_iter().find(is) {
            return Some(format!("{name} is a setting of wg-quick: `wg-quick strip` prints the file without those"));
        }
        match SETTINGS.into_iter().find(is) {
            Some(name) if value.is_empty() => Some(format!("{name} needs a value")),
            Some(name) => Some(format!("{name} does not belong in this section")),
            None => {
                let meant = SETTINGS.into_iter().find(|known| is_typo_of(name, known))?;
                Some(format!("did you mean {meant}?"))
            }
        }
    }
}

/// The settings of `wg`.
const SETTINGS: [&str; 8] = [
    "PrivateKey",
    "ListenPort",
    "FwMark",
    "PublicKey",
    "PresharedKey",
    "Endpoint",
    "AllowedIPs",
    "PersistentKeepalive",
];

/// The settings of wg-quick alone (man 8 wg-quick).
const WG_QUICK_SETTINGS: [&str; 9] =
    ["Address", "DNS", "MTU", "Table", "PreUp", "PostUp", "PreDown", "PostDown", "SaveConfig"];

/// Whether `written` differs from `meant` by one added, missing or wrong character, or by two neighbours that changed places.
pub fn is_typo_of(written: &str, meant: &str) -> bool {
    let (written, meant) = (written.to_ascii_lowercase(), meant.to_ascii_lowercase());
    let (written, meant) = (written.as_bytes(), meant.as_bytes());
    let before = written.iter().zip(meant).take_while(|(a, b)| a == b).count();
    let room = written.len().min(meant.len()) - before;
    let after = written.iter().rev().zip(meant.iter().rev()).take(room).take_while(|(a, b)| a == b).count();
    let [these, those] = [written, meant].map(|all| &all[before..all.len() - after]);
    these.len().max(those.len()) == 1 || matches!((these, those), ([a, b], [c, d]) if a == d && b == c)
}

#[cfg(test)]
mod tests;
