//! The format for people: that of `wg show`, line by line.

use std::cmp::Reverse;
use std::fmt::{self, Write as _};
use std::time::Duration;

use jiff::Timestamp;
use linerate_control::endpoint;
use linerate_control::rate::Rate;
use linerate_control::uapi::limits::{LimitState, Suspension};
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::zeroizing::Buffer;

use super::{View, own_public_key};

/// Writes `state`, with blank lines before its peers, those with the newest handshake first.
pub(super) fn write(text: &mut Buffer, name: &str, mut state: DeviceState, view: &View<'_>) -> fmt::Result {
    let ink = Ink::new(view.colour);
    let Ink { reset, bold, green, .. } = ink;
    writeln!(text, "{reset}{green}{bold}interface{reset}: {green}{name}{reset}")?;
    if let (Some(private), Some(public)) = (&state.private_key, own_public_key(&state)) {
        writeln!(text, "  {bold}public key{reset}: {public}")?;
        let private = private.to_base64();
        writeln!(text, "  {bold}private key{reset}: {}", if view.keys { &private } else { HIDDEN })?;
    }
    if state.listen_port != 0 {
        writeln!(text, "  {bold}listening port{reset}: {}", state.listen_port)?;
    }
    if state.fwmark != 0 {
        writeln!(text, "  {bold}fwmark{reset}: {:#x}", state.fwmark)?;
    }
    state.peers.sort_by_key(|peer| Reverse(peer.last_handshake));
    for state in &state.peers {
        text.write_str("\n")?;
        peer(text, state, view, &ink)?;
    }
    Ok(())
}

const HIDDEN: &str = "(hidden)";

fn peer(text: &mut Buffer, state: &PeerState, view: &View<'_>, ink: &Ink) -> fmt::Result {
    let Ink { reset, bold, yellow, cyan, red, .. } = ink;
    writeln!(text, "{yellow}{bold}peer{reset}: {yellow}{}{reset}", state.public_key)?;
    if let Some(key) = &state.preshared_key {
        let key = key.to_base64();
        writeln!(text, "  {bold}preshared key{reset}: {}", if view.keys { &key } else { HIDDEN })?;
    }
    if let Some(at) = &state.endpoint {
        writeln!(text, "  {bold}endpoint{reset}: {}", endpoint::text(at))?;
    }
    write!(text, "  {bold}allowed ips{reset}: ")?;
    for (at, (addr, cidr)) in state.allowed_ips.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        write!(text, "{comma}{addr}{cyan}/{reset}{cidr}")?;
    }
    text.write_str(if state.allowed_ips.is_empty() { "(none)\n" } else { "\n" })?;
    match state.last_handshake.as_secs() {
        0 => {}
        then if then == view.now => writeln!(text, "  {bold}latest handshake{reset}: Now")?,
        then if then > view.now => writeln!(
            text,
            "  {bold}latest handshake{reset}: ({red}System clock wound backward; connection problems may ensue.{reset})"
        )?,
        then => {
            write!(text, "  {bold}latest handshake{reset}: ")?;
            time(text, view.now - then, ink)?;
            text.write_str(" ago\n")?;
        }
    }
    if (state.rx_bytes, state.tx_bytes) != (0, 0) {
        write!(text, "  {bold}transfer{reset}: ")?;
        bytes(text, state.rx_bytes, ink)?;
        text.write_str(" received, ")?;
        bytes(text, state.tx_bytes, ink)?;
        text.write_str(" sent\n")?;
    }
    if state.persistent_keepalive != 0 {
        write!(text, "  {bold}persistent keepalive{reset}: every ")?;
        time(text, state.persistent_keepalive.into(), ink)?;
        text.write_str("\n")?;
    }
    if !state.rate.is_none() {
        let Rate { down, up } = state.rate;
        let bits = |rate: u64| if rate == 0 { "any".to_owned() } else { format!("{rate} bit/s") };
        writeln!(text, "  {bold}rate{reset}: {} to it, {} from it", bits(down), bits(up))?;
    }
    limits(text, &state.limits, ink)
}

/// Only linerated has them.
fn limits(text: &mut Buffer, limits: &LimitState, ink: &Ink) -> fmt::Result {
    let Ink { reset, bold, red, .. } = ink;
    if let Some(expires) = limits.expires {
        writeln!(text, "  {bold}expires{reset}: {}", instant(expires))?;
    }
    if let Some(quota) = limits.quota {
        write!(text, "  {bold}quota{reset}: ")?;
        bytes(text, limits.used, ink)?;
        text.write_str(" of ")?;
        bytes(text, quota, ink)?;
        match limits.quota_day {
            Some(day) => writeln!(text, " used, anew on day {day} of each month")?,
            None => text.write_str(" used\n")?,
        }
    }
    if let Some(suspension) = limits.suspended {
        writeln!(text, "  {bold}suspended{reset}: {red}{}{reset}", reason(suspension))?;
    }
    if let Some(key) = limits.replaces {
        writeln!(text, "  {bold}replaces{reset}: {key}, at its first handshake")?;
    }
    Ok(())
}

/// In UTC, such as `2027-01-31T23:59:59Z`.
fn instant(time: Duration) -> Timestamp {
    i64::try_from(time.as_secs()).ok().and_then(|secs| Timestamp::from_second(secs).ok()).unwrap_or(Timestamp::MAX)
}

/// Why a peer is not let in.
pub fn reason(suspension: Suspension) -> &'static str {
    match suspension {
        Suspension::Expired => "expired",
        Suspension::Quota => "quota reached",
    }
}

/// `1 day, 1 second`: units that are zero are left out; a year has 365 days.
fn time(text: &mut Buffer, seconds: u64, ink: &Ink) -> fmt::Result {
    const UNITS: [(&str, u64); 5] =
        [("year", 365 * 86_400), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)];
    let mut rest = seconds;
    let mut comma = "";
    for (unit, length) in UNITS {
        let count = rest / length;
        rest %= length;
        if count > 0 {
            let plural = if count == 1 { "" } else { "s" };
            write!(text, "{comma}{count} {}{unit}{plural}{}", ink.cyan, ink.reset)?;
            comma = ", ";
        }
    }
    Ok(())
}

fn bytes(text: &mut Buffer, count: u64, ink: &Ink) -> fmt::Result {
    let (number, unit) = amount(count);
    write!(text, "{number} {}{unit}{}", ink.cyan, ink.reset)
}

/// Bytes as a number and its unit: two decimals from KiB on; TiB is the last unit.
pub fn amount(bytes: u64) -> (String, &'static str) {
    if bytes < 1 << 10 {
        return (bytes.to_string(), "B");
    }
    let (unit, shift) = match bytes.ilog2() {
        ..20 => ("KiB", 10),
        20..30 => ("MiB", 20),
        30..40 => ("GiB", 30),
        _ => ("TiB", 40),
    };
    (format!("{:.2}", bytes as f64 / (1u64 << shift) as f64), unit)
}

/// Terminal colours, or nothing.
struct Ink {
    reset: &'static str,
    bold: &'static str,
    green: &'static str,
    yellow: &'static str,
    cyan: &'static str,
    red: &'static str,
}

impl Ink {
    fn new(colour: bool) -> Self {
        let code = |code| if colour { code } else { "" };
        Self {
            reset: code("\x1b[0m"),
            bold: code("\x1b[1m"),
            green: code("\x1b[32m"),
            yellow: code("\x1b[33m"),
            cyan: code("\x1b[36m"),
            red: code("\x1b[31m"),
        }
    }
}
