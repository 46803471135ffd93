//! What a service tells systemd (sd_notify(3)): ready, stopping.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::context::Context;

/// Tells the service manager `state`, if there is one. Failing to do so does not end the service.
pub(super) fn tell(state: &str, context: Context<'_>) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let send = |address: io::Result<SocketAddr>| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address?);
    if let Err(error) = send(address) {
        context.warn(format_args!("cannot tell the service manager: {error}"));
    }
}
