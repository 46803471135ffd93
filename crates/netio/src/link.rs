//! Interfaces, addresses and routes.
//!
//! Interfaces are identified by index, because their name may change. For the slow path only: each request opens a
//! socket, allocates, and waits for the kernel's reply.

use std::io;

use crate::system::link::GONE;

mod event;

pub use self::event::LinkEvent;
pub use crate::system::link::{
    Monitor, addresses_v6, egress, index_of, is_local_address, is_up, mtu, name_of, route_mtus, set_gso_max_segments,
    set_mtu, set_no_link_local_address, set_tx_queue_len, zone_index, zone_name,
};

/// Whether an error means that the interface does not exist, rather than that the request failed.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(GONE)
}

/// Whether an error is temporary: no descriptor was free, no memory, or the list changed faster than it could be read.
pub fn is_transient(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    matches!(errno, Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EINTR))
}
