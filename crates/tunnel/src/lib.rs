//! Tunnels as a whole: file, host and daemon together.
//!
//! [`up`] is a pipeline. Each step is a module, and makes the type that the next one takes:
//!
//! | step | makes | |
//! |---|---|---|
//! | [`read`] | `ConfigFile` | the file of the tunnel |
//! | [`resolve`] | `Resolved` | with the addresses of its endpoints, and its keys |
//! | [`snapshot`] | `Snapshot` | the state of this host |
//! | [`plan`](mod@plan) | `Planned` | the steps to take |
//! | [`record`] | `Recorded` | they are in the ledger, on disk |
//! | [`execute`] | `Done` | they are taken, or undone where one fails |
//! | [`supervise`] | | the daemon is watched, and endpoints are looked up again |
//!
//! [`down`](down()), [`reload`](reload()) and [`save`](save()) go by the ledger. `linerate` and `wg-quick` differ in
//! [`Compat`](linerate_host::wanted::Compat): in what they leave on the host, and under which names.
//!
//! Nothing here prints, ends the process or knows a command line. A [`Context`] says whom to tell, and whether a signal has
//! come. The program that this library is in answers two commands, which start it again: `resolve`
//! ([`resolver::process::answer`]) and `keep IFACE` ([`supervise::in_background`]).
//!
//! These environment variables are read where they are needed: WG_QUICK_BACKEND, WG_QUICK_USERSPACE_IMPLEMENTATION,
//! LINERATE_USER, LINERATE_LOCKED, CREDENTIALS_DIRECTORY, LOG_LEVEL, NOTIFY_SOCKET and PATH.

#![forbid(unsafe_code)]

mod context;
mod down;
mod error;
pub mod execute;
mod interruption;
mod plan;
mod read;
pub mod record;
mod reload;
mod remains;
mod resolve;
pub mod resolver;
mod save;
mod snapshot;
pub mod status;
pub mod supervise;
mod up;

use std::path::PathBuf;

use linerate_control::client::TunnelClient;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;
use linerate_host::step::Backend;
use linerate_host::wanted::Compat;

pub use context::{Context, Reporter};
pub use down::down;
pub use error::Error;
pub use execute::daemon::backend;
pub use interruption::Interruption;
pub use read::{ConfigFile, find};
pub use reload::{Reloaded, reload};
pub use save::save;
pub use up::{plan, up};

/// How a call is carried out.
pub struct Options {
    /// Whose names are used on the host.
    pub compat: Compat,
    /// What runs a tunnel that is brought up.
    pub backend: Backend,
    /// The user that the daemon becomes, if not that of the environment or the file.
    pub user: Option<String>,
    /// Whether hooks are run.
    pub hooks: bool,
    /// Whether [`up`] stays and supervises the tunnel.
    pub supervised: bool,
}

/// The state of the tunnel, if it runs.
pub fn running(interface: &InterfaceName) -> Option<DeviceState> {
    TunnelClient::open(socket::DIRECTORY.as_ref(), interface.as_str()).ok()?.get().ok()
}

/// Whether the ledger's copy of the tunnel's file holds keys; `None` if there is no copy.
pub fn copy_has_keys(interface: &InterfaceName) -> Option<bool> {
    let text = record::ledger::read_file(record::ledgers(), interface).ok().flatten()?;
    let file = ConfigFile::of(PathBuf::new(), interface.clone(), &text).contents;
    Some(file.private_key.is_some() || file.peers.iter().any(|peer| peer.preshared_key.is_some()))
}
