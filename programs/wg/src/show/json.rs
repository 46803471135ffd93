//! The format for programs, with the names of wg-json (wireguard-tools, contrib/json). Unset values are omitted.

use std::collections::BTreeMap;
use std::{fmt, io};

use linerate_control::endpoint;
use linerate_control::keys::SecretKey;
use linerate_control::uapi::limits::Suspension;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::zeroizing::Buffer;
use serde::{Serialize, Serializer};
use zeroize::Zeroizing;

use super::own_public_key;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    #[serde(skip_serializing_if = "Option::is_none")]
    private_key: Option<Secret>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    listen_port: u64,
    #[serde(skip_serializing_if = "is_zero")]
    fwmark: u64,
    peers: BTreeMap<String, Peer>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Peer {
    #[serde(skip_serializing_if = "Option::is_none")]
    preshared_key: Option<Secret>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    latest_handshake: u64,
    #[serde(skip_serializing_if = "is_zero")]
    transfer_rx: u64,
    #[serde(skip_serializing_if = "is_zero")]
    transfer_tx: u64,
    #[serde(skip_serializing_if = "is_zero")]
    persistent_keepalive: u64,
    allowed_ips: Vec<String>,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "is_zero")]
    expires: u64,
    /// Bytes.
    #[serde(skip_serializing_if = "is_zero")]
    quota: u64,
    #[serde(skip_serializing_if = "is_zero")]
    quota_used: u64,
    /// The day of the month on which it begins anew.
    #[serde(skip_serializing_if = "is_zero")]
    quota_day: u64,
    /// Bits per second to the peer.
    #[serde(skip_serializing_if = "is_zero")]
    rate_down: u64,
    /// The same from it.
    #[serde(skip_serializing_if = "is_zero")]
    rate_up: u64,
    /// `expired` or `quota`.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<String>,
}

/// A key in base64.
struct Secret(Zeroizing<String>);

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Writes one object with all of `states` by their interfaces; secrets only with `keys`.
pub(super) fn write(text: &mut Buffer, states: &[(String, DeviceState)], keys: bool) -> fmt::Result {
    let devices: BTreeMap<_, _> = states.iter().map(|(name, state)| (name.as_str(), device(state, keys))).collect();
    write_object(text, &devices)
}

/// Writes any object, over several lines.
pub(super) fn write_object(text: &mut Buffer, object: &impl Serialize) -> fmt::Result {
    serde_json::to_writer_pretty(Writer(text), object).map_err(|_| fmt::Error)?;
    text.extend(b"\n");
    Ok(())
}

struct Writer<'a>(&'a mut Buffer);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn device(state: &DeviceState, keys: bool) -> Device {
    Device {
        private_key: secret(&state.private_key, keys),
        public_key: own_public_key(state),
        listen_port: state.listen_port.into(),
        fwmark: state.fwmark.into(),
        peers: state.peers.iter().map(|state| (state.public_key.to_string(), peer(state, keys))).collect(),
    }
}

fn peer(state: &PeerState, keys: bool) -> Peer {
    let limits = &state.limits;
    Peer {
        preshared_key: secret(&state.preshared_key, keys),
        endpoint: state.endpoint.as_ref().map(endpoint::text),
        latest_handshake: state.last_handshake.as_secs(),
        transfer_rx: state.rx_bytes,
        transfer_tx: state.tx_bytes,
        persistent_keepalive: state.persistent_keepalive.into(),
        allowed_ips: state.allowed_ips.iter().map(|(addr, cidr)| format!("{addr}/{cidr}")).collect(),
        expires: limits.expires.map_or(0, |expires| expires.as_secs()),
        quota: limits.quota.unwrap_or(0),
        quota_used: limits.used,
        quota_day: limits.quota_day.unwrap_or(0).into(),
        rate_down: state.rate.down,
        rate_up: state.rate.up,
        suspended: limits.suspended.map(Suspension::name),
        replaces: limits.replaces.map(|key| key.to_string()),
    }
}

fn secret(key: &Option<SecretKey>, keys: bool) -> Option<Secret> {
    key.as_ref().filter(|_| keys).map(|key| Secret(key.to_base64()))
}
