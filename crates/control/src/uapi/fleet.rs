//! What makes a device a gateway of a fleet (docs/fleet.md): linerated's own lines of `set`. Without the feature `fleet`
//! they are unknown keys.

use std::net::SocketAddr;

use crate::keys::SecretKey;

/// A gateway's place in its fleet.
#[derive(Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Its number, below 32.
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

/// The changes of a `set` to a peer.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FleetUpdate {
    /// Its number in the fleet, below 2^20.
    pub number: Option<u32>,
    /// What other gateways know of it.
    pub hint: Option<Hint>,
    /// Start a handshake, after all other changes to the peer.
    pub initiate: bool,
}

#[cfg(feature = "fleet")]
mod text {
    use std::fmt::Write as _;

    use super::{FleetUpdate, Gateway, Hint};
    use crate::endpoint;
    use crate::number::decimal;
    use crate::uapi::request::LineError;
    use crate::zeroizing::Buffer;

    const GATEWAY: LineError = LineError::Expected("a number below 32 or `none`");
    const NUMBER: LineError = LineError::Expected("a number below 1048576");
    const HINT: LineError = LineError::Expected(
        "an endpoint and two timestamps of 24 hexadecimal digits, each of them or `none`, by commas",
    );

    pub(in crate::uapi) fn gateway(value: &[u8]) -> Result<Option<u8>, LineError> {
        if value == b"none" {
            return Ok(None);
        }
        decimal(value, 31).and_then(|number| number.try_into().ok()).map(Some).ok_or(GATEWAY)
    }

    pub(in crate::uapi) fn write_device(fleet: &Option<Gateway>, text: &mut Buffer) -> std::fmt::Result {
        match fleet {
            None => text.write_str("fleet_gateway=none\n"),
            Some(Gateway { number, index_key }) => {
                writeln!(text, "fleet_gateway={number}\nfleet_index_key={}", &**index_key.to_hex())
            }
        }
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
                b"initiate" if value == b"true" => self.initiate = true,
                b"initiate" => return Err(LineError::Expected("true")),
                _ => return Ok(false),
            }
            Ok(true)
        }

        pub(in crate::uapi) fn write(&self, text: &mut Buffer) -> std::fmt::Result {
            if let Some(number) = self.number {
                writeln!(text, "fleet_number={number}")?;
            }
            if let Some(hint) = self.hint {
                let endpoint = hint.endpoint.map_or("none".into(), |endpoint| endpoint::text(&endpoint));
                writeln!(text, "fleet_hint={endpoint},{},{}", stamp_text(hint.sent), stamp_text(hint.received))?;
            }
            if self.initiate {
                text.write_str("initiate=true\n")?;
            }
            Ok(())
        }
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
pub(super) use text::{gateway, write_device};
