//! In the place of [`kernel`](self), where no kernel runs tunnels that it could ask: there are none of them.

use std::io;

use linerate_netio::link::index_of;
use linerate_netlink::NetlinkError;

use crate::uapi::request::DeviceUpdate;
use crate::uapi::response::DeviceState;

/// A client of the kernel for one of its tunnels: nobody has one.
pub enum KernelClient {}

impl KernelClient {
    /// # Errors
    /// Always: there is no such interface, or no daemon that runs it.
    pub fn open(name: &str) -> Result<Self, NetlinkError> {
        index_of(name)?;
        Err(io::Error::new(io::ErrorKind::Unsupported, "no daemon of WireGuard runs it").into())
    }

    /// # Errors
    /// None.
    pub fn get(&mut self) -> Result<DeviceState, NetlinkError> {
        match *self {}
    }

    /// # Errors
    /// None.
    pub fn set(&mut self, _: &DeviceUpdate) -> Result<(), NetlinkError> {
        match *self {}
    }
}

/// None.
///
/// # Errors
/// None.
pub fn interfaces() -> Result<Vec<String>, NetlinkError> {
    Ok(Vec::new())
}
