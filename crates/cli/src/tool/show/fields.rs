//! The forms for scripts: one value, separated by tabs. Secrets are always shown, as `wg` does.

use std::fmt::{self, Write as _};

use linerate_control::endpoint;
use linerate_control::keys::SecretKey;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::wiped::Buffer;
use zeroize::Zeroizing;

use super::{Field, own_public_key};

const NONE: &str = "(none)";

/// Writes `field` of all of `states`; with `names`, each line begins with its interface.
pub(super) fn write(text: &mut Buffer, states: &[(String, DeviceState)], field: Field, names: bool) -> fmt::Result {
    for (name, state) in states {
        let name = if names { format!("{name}\t") } else { String::new() };
        if let Some(line) = device(state, field) {
            writeln!(text, "{name}{}", *line)?;
        }
        for state in &state.peers {
            if let Some(line) = peer(state, field) {
                writeln!(text, "{name}{}", *line)?;
            }
        }
    }
    Ok(())
}

type Line = Zeroizing<String>;

fn device(state: &DeviceState, field: Field) -> Option<Line> {
    let line = match field {
        Field::PublicKey => own_public_key(state).unwrap_or_else(|| NONE.into()),
        Field::PrivateKey => return Some(key(&state.private_key)),
        Field::ListenPort => state.listen_port.to_string(),
        Field::Fwmark => mark(state.fwmark),
        Field::Dump => {
            let public = own_public_key(state).unwrap_or_else(|| NONE.into());
            let private = key(&state.private_key);
            format!("{}\t{public}\t{}\t{}", *private, state.listen_port, mark(state.fwmark))
        }
        _ => return None,
    };
    Some(line.into())
}

fn peer(state: &PeerState, field: Field) -> Option<Line> {
    let public = state.public_key;
    let line = match field {
        Field::Peers => public.to_string(),
        Field::PresharedKeys => format!("{public}\t{}", *key(&state.preshared_key)),
        Field::Endpoints => format!("{public}\t{}", reached_at(state)),
        Field::AllowedIps => format!("{public}\t{}", allowed_ips(state, " ")),
        Field::LatestHandshakes => format!("{public}\t{}", state.last_handshake.as_secs()),
        Field::Transfer => format!("{public}\t{}\t{}", state.rx_bytes, state.tx_bytes),
        Field::PersistentKeepalive => format!("{public}\t{}", keepalive(state)),
        Field::Dump => format!(
            "{public}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            *key(&state.preshared_key),
            reached_at(state),
            allowed_ips(state, ","),
            state.last_handshake.as_secs(),
            state.rx_bytes,
            state.tx_bytes,
            keepalive(state)
        ),
        _ => return None,
    };
    Some(line.into())
}

fn key(key: &Option<SecretKey>) -> Line {
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
