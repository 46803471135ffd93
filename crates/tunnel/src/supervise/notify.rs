//! Notifications of a service to systemd (sd_notify(3)): ready, stopping.

use std::io;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::context::Context;

/// Sends `state` to the service manager, if there is one. A failure does not end the service.
pub(super) fn send(state: &str, context: Context<'_>) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let send_to = |address: io::Result<SocketAddr>| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address?);
    if let Err(error) = send_to(address) {
        context.warn(format_args!("cannot notify the service manager: {error}"));
    }
}
