//! `wg showconf`: the configuration of a running interface, in the format of `setconf`.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};

use linerate_control::endpoint;
use linerate_control::uapi::response::{DeviceState, PeerState};
use linerate_control::zeroizing::Buffer;

use super::{Outcome, get};
use linerate_cli::print;

pub(super) fn main(interface: &OsStr) -> Outcome {
    let state = get(interface, "Unable to access interface")?;
    let mut text = Buffer::new();
    write(&mut text, &state).expect("a Buffer takes every write");
    print(&text)
}

fn write(text: &mut Buffer, state: &DeviceState) -> fmt::Result {
    text.write_str("[Interface]\n")?;
    if state.listen_port != 0 {
        writeln!(text, "ListenPort = {}", state.listen_port)?;
    }
    if state.fwmark != 0 {
        writeln!(text, "FwMark = {:#x}", state.fwmark)?;
    }
    if let Some(key) = &state.private_key {
        writeln!(text, "PrivateKey = {}", &**key.to_base64())?;
    }
    text.write_str("\n")?;
    for (at, peer) in state.peers.iter().enumerate() {
        if at > 0 {
            text.write_str("\n")?;
        }
        write_peer(text, peer)?;
    }
    Ok(())
}

fn write_peer(text: &mut Buffer, peer: &PeerState) -> fmt::Result {
    writeln!(text, "[Peer]\nPublicKey = {}", peer.public_key)?;
    if let Some(key) = &peer.preshared_key {
        writeln!(text, "PresharedKey = {}", &**key.to_base64())?;
    }
    for (at, (addr, cidr)) in peer.allowed_ips.iter().enumerate() {
        let before = if at == 0 { "AllowedIPs = " } else { ", " };
        write!(text, "{before}{addr}/{cidr}")?;
    }
    if !peer.allowed_ips.is_empty() {
        text.write_str("\n")?;
    }
    if let Some(at) = &peer.endpoint {
        writeln!(text, "Endpoint = {}", endpoint::text(at))?;
    }
    if peer.persistent_keepalive != 0 {
        writeln!(text, "PersistentKeepalive = {}", peer.persistent_keepalive)?;
    }
    Ok(())
}
