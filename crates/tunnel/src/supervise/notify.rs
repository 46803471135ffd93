//! What a service tells systemd (sd_notify(3)): ready, reloading, stopping, and a line of status.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use linerate_program::complain;

/// Tells the service manager `state`, if one is listening. That it does not listen is no failure.
pub fn tell(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let told = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = told {
        complain(&format!("Warning: cannot tell the service manager: {error}"));
    }
}
