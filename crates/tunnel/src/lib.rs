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
//! | [`record`] | `Recorded` | the same, in the [`ledger`] on disk |
//! | [`execute`] | `Done` | the steps are executed, or rolled back if one fails |
//! | [`supervise`] | | restarts the daemon, and resolves endpoints again |
//!
//! [`isolated`] brings a tunnel up without privileges, in a network of its own, for `linerate run`.
//! [`down`](down()), [`reload`](reload()) and [`save`](save()) use the ledger. `linerate` and `wg-quick` differ in
//! [`Compat`](linerate_host::spec::Compat): in what they leave on the host, and under which names.
//!
//! Nothing here prints, ends the process or knows a command line. A [`Context`] takes messages, and says whether a
//! signal has come. Two processes are started as commands of the program that this library is in: `resolve`
//! ([`resolver::process::answer`]) and `supervise IFACE` ([`supervise::in_background`]).
//!
//! These environment variables are read where they are needed: WG_QUICK_BACKEND, WG_QUICK_USERSPACE_IMPLEMENTATION,
//! LINERATE_USER, LINERATE_SPIN, LINERATE_USAGE, LINERATE_LOCKED, LINERATE_LOG_LEVEL, CREDENTIALS_DIRECTORY,
//! LOG_LEVEL, NOTIFY_SOCKET and PATH.

#![forbid(unsafe_code)]

mod background;
mod context;
mod daemon;
mod down;
mod edit;
mod error;
mod execute;
mod fleet;
mod foreign;
mod identity;
mod interruption;
#[cfg(target_os = "linux")]
pub mod isolated;
pub mod ledger;
mod limits;
mod lock;
mod places;
mod plan;
mod program;
mod read;
mod record;
mod reload;
mod resolve;
pub mod resolver;
mod save;
pub mod server;
mod snapshot;
mod stale_kill_switches;
pub mod status;
pub mod supervise;
mod up;

use std::path::PathBuf;

use linerate_control::client::TunnelClient;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;
use linerate_host::spec::Compat;
use linerate_host::step::Implementation;

pub use context::{Context, Reporter};
pub use daemon::implementation;
pub use down::down;
pub use edit::{Applied, Edited, edit, follow};
pub use error::{CANNOT_QUERY, Error};
pub use interruption::Interruption;
pub use read::{ConfigFile, System, find};
pub use reload::{Reloaded, reload};
pub use save::save;
pub use up::{plan, up};

/// How a call is carried out.
pub struct Options {
    /// Whose conventions are used on the host.
    pub compat: Compat,
    /// What runs a tunnel that is brought up.
    pub implementation: Implementation,
    /// The user that the daemon becomes, if not that of the environment or the file.
    pub user: Option<String>,
    /// Whether hooks are run.
    pub hooks: bool,
    /// Whether ways are opened in firewalls of others, as with `FixFirewall` in the file.
    pub fix_firewall: bool,
    /// Whether [`up`] stays and supervises the tunnel.
    pub supervised: bool,
}

/// The state of the tunnel, if it runs.
pub fn running(interface: &InterfaceName) -> Option<DeviceState> {
    TunnelClient::open(socket::DIRECTORY.as_ref(), interface.as_str()).ok()?.get().ok()
}

/// Whether the ledger's copy of the tunnel's file holds keys; `None` if there is no copy.
pub fn copy_has_keys(interface: &InterfaceName) -> Option<bool> {
    let file = copy_of(interface)?.contents;
    Some(file.private_key.is_some() || file.peers.iter().any(|peer| peer.preshared_key.is_some()))
}

/// Whether the supervisor of a tunnel with this ledger opens ways in firewalls of others.
pub fn supervisor_opens_firewalls(interface: &InterfaceName, ledger: &ledger::Ledger) -> bool {
    copy_of(interface).is_some_and(|file| file.opens_firewalls(&ledger.spec))
}

/// The ledger's copy of the tunnel's file.
fn copy_of(interface: &InterfaceName) -> Option<ConfigFile> {
    let text = ledger::read_file(ledger::directory(), interface).ok().flatten()?;
    Some(ConfigFile::of(PathBuf::new(), interface.clone(), text))
}
