//! Parses the arguments of `wg set INTERFACE` into a [`DeviceUpdate`].

use std::ffi::OsStr;

use linerate_control::keys::SecretKey;
use linerate_control::uapi::request::{DeviceUpdate, PeerUpdate};
use linerate_control::wg_config::{Resolver, values};

use super::input;

/// Parses `words`: settings of the device come before the first `peer`.
pub(super) fn parse(words: &[&OsStr], resolver: &mut dyn Resolver) -> Result<DeviceUpdate, String> {
    let mut device = DeviceUpdate::default();
    let mut rest = words;
    while let [word, after @ ..] = rest {
        let text = word.to_str().unwrap_or_default();
        rest = after;
        if let ("remove", Some(peer)) = (text, device.peers.last_mut()) {
            peer.remove = true;
            continue;
        }
        let invalid = || format!("Invalid argument: {}", word.display());
        let (value, after) = after.split_first().ok_or_else(invalid)?;
        rest = after;
        let known = match device.peers.last_mut() {
            _ if text == "peer" => {
                let key = values::public_key(&value.to_string_lossy()).map_err(|bad| bad.to_string())?;
                device.peers.push(PeerUpdate::new(key));
                true
            }
            Some(peer) => peer_words(peer, text, value, resolver)?,
            None => device_words(&mut device, text, value, resolver)?,
        };
        if !known {
            return Err(invalid());
        }
    }
    for peer in device.peers.iter_mut().filter(|peer| peer.remove) {
        // Other settings of a removed peer are not sent.
        *peer = PeerUpdate { remove: true, ..PeerUpdate::new(peer.public_key) };
    }
    Ok(device)
}

/// Whether the word is a setting of the device.
fn device_words(
    device: &mut DeviceUpdate,
    word: &str,
    value: &OsStr,
    resolver: &mut dyn Resolver,
) -> Result<bool, String> {
    let text = value.to_string_lossy();
    match word {
        "listen-port" => {
            device.listen_port = Some(values::listen_port(&text, resolver).map_err(|bad| bad.to_string())?);
        }
        "fwmark" => device.fwmark = Some(values::fwmark(&text).map_err(|bad| bad.to_string())?),
        "private-key" => device.private_key = Some(key_file(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Whether the word is a setting of a peer.
fn peer_words(peer: &mut PeerUpdate, word: &str, value: &OsStr, resolver: &mut dyn Resolver) -> Result<bool, String> {
    let text = value.to_string_lossy();
    match word {
        "endpoint" => peer.endpoint = Some(values::endpoint(&text, resolver).map_err(|bad| bad.to_string())?),
        "allowed-ips" => {
            let text: String = text.chars().filter(|c| !u8::try_from(*c).is_ok_and(values::is_space)).collect();
            values::allowed_ips(&text, peer, resolver).map_err(|bad| bad.to_string())?;
        }
        "persistent-keepalive" => {
            let seconds = values::persistent_keepalive(&text).map_err(|bad| bad.to_string())?;
            peer.persistent_keepalive = Some(seconds);
        }
        "preshared-key" => peer.preshared_key = Some(key_file(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Anything longer is not a key.
const KEY_FILE_MAX: usize = 64 << 10;

fn key_file(path: &OsStr) -> Result<SecretKey, String> {
    let input = input::read(path, KEY_FILE_MAX)?;
    if input.text.is_empty() && !input.seekable {
        // An empty pipe is the output of a command that failed, not a request to remove the key.
        return Err("Invalid length key in key file".into());
    }
    values::key_file(&input.text).map_err(|bad| bad.to_string())
}
