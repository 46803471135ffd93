//! The format for scripts: one value, tab-separated. Shows secrets, as `wg` does.

use std::fmt::{self, Write as _};

use linerate_control::endpoint;
use linerate_control::keys::SecretKey;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::zeroizing::Buffer;
use zeroize::Zeroizing;

use super::{Field, own_public_key};

const NONE: &str = "(none)";

/// Writes `field` of all of `states`; with `names`, each line begins with its interface.
///
/// Writes directly into `text`: a string that grows would leave copies of keys behind.
pub(super) fn write(text: &mut Buffer, states: &[(String, DeviceState)], field: Field, names: bool) -> fmt::Result {
    for (name, state) in states {
        let name = if names { format!("{name}\t") } else { String::new() };
        device(text, &name, state, field)?;
        for state in &state.peers {
            peer(text, &name, state, field)?;
        }
    }
    Ok(())
}

fn device(text: &mut Buffer, name: &str, state: &DeviceState, field: Field) -> fmt::Result {
    let public = || own_public_key(state).unwrap_or_else(|| NONE.into());
    let private = || key(&state.private_key);
    match field {
        Field::PublicKey => writeln!(text, "{name}{}", public()),
        Field::PrivateKey => writeln!(text, "{name}{}", *private()),
        Field::ListenPort => writeln!(text, "{name}{}", state.listen_port),
        Field::Fwmark => writeln!(text, "{name}{}", mark(state.fwmark)),
        Field::Dump => {
            let (public, private) = (public(), private());
            writeln!(text, "{name}{}\t{public}\t{}\t{}", *private, state.listen_port, mark(state.fwmark))
        }
        _ => Ok(()),
    }
}

fn peer(text: &mut Buffer, name: &str, state: &PeerState, field: Field) -> fmt::Result {
    let public = state.public_key;
    match field {
        Field::Peers => writeln!(text, "{name}{public}"),
        Field::PresharedKeys => writeln!(text, "{name}{public}\t{}", *key(&state.preshared_key)),
        Field::Endpoints => writeln!(text, "{name}{public}\t{}", reached_at(state)),
        Field::AllowedIps => writeln!(text, "{name}{public}\t{}", allowed_ips(state, " ")),
        Field::LatestHandshakes => writeln!(text, "{name}{public}\t{}", state.last_handshake.as_secs()),
        Field::Transfer => writeln!(text, "{name}{public}\t{}\t{}", state.rx_bytes, state.tx_bytes),
        Field::PersistentKeepalive => writeln!(text, "{name}{public}\t{}", keepalive(state)),
        Field::Dump => writeln!(
            text,
            "{name}{public}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            *key(&state.preshared_key),
            reached_at(state),
            allowed_ips(state, ","),
            state.last_handshake.as_secs(),
            state.rx_bytes,
            state.tx_bytes,
            keepalive(state)
        ),
        _ => Ok(()),
    }
}

fn key(key: &Option<SecretKey>) -> Zeroizing<String> {
    key.as_ref().map_or_else(|| NONE.to_owned().into(), SecretKey::to_base64)
}

fn mark(mark: u32) -> String {
    if mark == 0 { "off".into() } else { format!("{mark:#x}") }
}

fn reached_at(state: &PeerState) -> String {
    state.endpoint.as_ref().map_or_else(|| NONE.into(), endpoint::text)
}

fn allowed_ips(state: &PeerState, separator: &str) -> String {
    if state.allowed_ips.is_empty() {
        return NONE.into();
    }
    let prefixes: Vec<_> = state.allowed_ips.iter().map(|(addr, cidr)| format!("{addr}/{cidr}")).collect();
    prefixes.join(separator)
}

fn keepalive(state: &PeerState) -> String {
    if state.persistent_keepalive == 0 { "off".into() } else { state.persistent_keepalive.to_string() }
}
