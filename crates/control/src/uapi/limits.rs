//! Until when and for how many bytes a peer is let in, and which key follows which: linerated's own lines of `set` and
//! `get`. No other implementation knows them, and they are written only for a peer that has limits.

use std::fmt::Write as _;
use std::time::Duration;

use super::request::LineError;
use crate::keys::PublicKey;
use crate::number::decimal;
use crate::zeroizing::Buffer;

/// The last second of the year 9999.
const TIME_MAX: u64 = 253_402_300_799;

const TIME: LineError = LineError::Expected("seconds since 1970, up to the year 9999");
const BYTES: LineError = LineError::Expected("a decimal number of bytes");
const DAY: LineError = LineError::Expected("a day of the month, 1 to 31, or 0");
const KEY: LineError = LineError::Expected("64 hexadecimal digits");

/// The changes of a `set` to the limits of a peer; `None` leaves one unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitUpdate {
    /// When the peer expires, since 1970 in whole seconds; zero: never.
    pub expires: Option<Duration>,
    /// How many bytes it may send and receive; zero: any number.
    pub quota: Option<u64>,
    /// The day of the month on which its usage begins anew; zero: it does not.
    pub quota_day: Option<u8>,
    /// The peer whose place it takes at its first handshake, with what that one has used; zero: none. At once if the same
    /// request removes that one.
    pub replaces: Option<PublicKey>,
}

impl LimitUpdate {
    /// Removes all limits.
    pub const NONE: Self =
        Self { expires: Some(Duration::ZERO), quota: Some(0), quota_day: Some(0), replaces: Some(PublicKey([0; 32])) };

    pub(super) fn write(&self, text: &mut Buffer) -> std::fmt::Result {
        if let Some(expires) = self.expires {
            writeln!(text, "expires={}", expires.as_secs())?;
        }
        if let Some(quota) = self.quota {
            writeln!(text, "quota={quota}")?;
        }
        if let Some(day) = self.quota_day {
            writeln!(text, "quota_day={day}")?;
        }
        if let Some(key) = &self.replaces {
            writeln!(text, "replaces={}", key.to_hex())?;
        }
        Ok(())
    }

    /// Reads a line; false if it is none of these.
    pub(super) fn line(&mut self, key: &[u8], value: &[u8]) -> Result<bool, LineError> {
        match key {
            b"expires" => self.expires = Some(time(value).ok_or(TIME)?),
            b"quota" => self.quota = Some(decimal(value, u64::MAX).ok_or(BYTES)?),
            b"quota_day" => self.quota_day = Some(day(value).ok_or(DAY)?),
            b"replaces" => self.replaces = Some(PublicKey::from_hex(value).ok_or(KEY)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The limits of a peer, as `get` returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitState {
    /// When the peer expires, since 1970.
    pub expires: Option<Duration>,
    /// How many bytes it may send and receive.
    pub quota: Option<u64>,
    /// The day of the month on which its usage begins anew.
    pub quota_day: Option<u8>,
    /// The bytes that it has used of its quota, or of what would be its quota.
    pub used: u64,
    /// Why it is not let in.
    pub suspended: Option<Suspension>,
    /// The peer whose place it takes at its first handshake.
    pub replaces: Option<PublicKey>,
}

/// Why a peer is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// Its time is over.
    Expired,
    /// Its quota is reached.
    Quota,
}

impl Suspension {
    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Quota => "quota",
        }
    }
}

impl LimitState {
    /// The update that gives a peer the same limits.
    pub fn restored(&self) -> LimitUpdate {
        LimitUpdate { expires: self.expires, quota: self.quota, quota_day: self.quota_day, replaces: self.replaces }
    }

    pub(super) fn write(&self, text: &mut Buffer) -> std::fmt::Result {
        self.restored().write(text)?;
        if self.used > 0 {
            writeln!(text, "quota_used={}", self.used)?;
        }
        if let Some(suspension) = self.suspended {
            writeln!(text, "suspended={}", suspension.name())?;
        }
        Ok(())
    }

    /// Reads a line, or skips another; `None` for an invalid value.
    pub(super) fn line(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"expires" => self.expires = Some(time(value)?).filter(|time| !time.is_zero()),
            b"quota" => self.quota = Some(decimal(value, u64::MAX)?).filter(|bytes| *bytes > 0),
            b"quota_day" => self.quota_day = Some(day(value)?).filter(|day| *day > 0),
            b"quota_used" => self.used = decimal(value, u64::MAX)?,
            b"suspended" => {
                let known = [Suspension::Expired, Suspension::Quota];
                self.suspended = Some(known.into_iter().find(|known| known.name().as_bytes() == value)?);
            }
            b"replaces" => self.replaces = Some(PublicKey::from_hex(value)?).filter(|key| key.0 != [0; 32]),
            _ => {}
        }
        Some(())
    }
}

fn time(value: &[u8]) -> Option<Duration> {
    decimal(value, TIME_MAX).map(Duration::from_secs)
}

fn day(value: &[u8]) -> Option<u8> {
    decimal(value, 31)?.try_into().ok()
}
