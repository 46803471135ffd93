//! Tunnels as a whole: the file, the host and the daemon together. The verbs of `linerate` (`up`, `down`, `reload`,
//! `save`, `plan`, `status`) and those of `wg-quick` are both made of this; they differ in words and in the names of
//! what they leave on the host ([`Compat`]).
//!
//! The plan is `linerate_host::plan`'s, what a file means is `linerate_control::tunnel_file`'s.

#![forbid(unsafe_code)]

mod down;
pub mod execute;
mod interruption;
mod read;
pub mod record;
mod reload;
mod resolve;
pub mod resolver;
mod save;
pub mod status;
pub mod supervise;
mod up;

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::execute::transaction::StepError;
use crate::record::ledger::{self, Entry, LedgerError};
use linerate_control::client::TunnelClient;
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;
use linerate_host::linux::{Host, dns};
use linerate_host::plan::Warning;
use linerate_host::state::HostState;
use linerate_host::step::{MAIN, Step};
use linerate_host::wanted::Compat;

pub use down::down;
pub use execute::daemon::backend;
pub use interruption::Interruption;
pub use read::{Source, locate};
pub use reload::reload;
pub use resolve::answer as answer_names;
pub use save::save;
pub use up::{leave_keeper, planned, up};

use execute::hook;
use linerate_program::{Complaint, complain};
use resolve as names;

/// How a verb is carried out.
pub struct Options {
    /// Whose words and names.
    pub compat: Compat,
    /// What runs a tunnel that is brought up.
    pub backend: linerate_host::step::Backend,
    /// The user that the daemon becomes, if the command line names one.
    pub user: Option<String>,
    /// Whether the commands of the file are run.
    pub hooks: bool,
    /// Whether every step is said (`[#] …`).
    pub echo: bool,
    /// Whether the caller stays and looks after the tunnel.
    pub supervised: bool,
}

/// A verb that failed: what to say, and what to end with.
#[derive(Debug)]
pub struct Failed {
    /// A sentence, without the name of the program.
    pub complaint: String,
    /// The exit code.
    pub code: u8,
}

impl Failed {
    fn new(complaint: impl Display) -> Self {
        Self { complaint: complaint.to_string(), code: 1 }
    }
}

impl<T: Display> From<T> for Failed {
    fn from(complaint: T) -> Self {
        Self::new(complaint)
    }
}

/// What `operand` names for `down` and `reload`: its file, if that can be read, and its interface. A tunnel that is up is
/// known though its file has gone.
///
/// # Errors
/// There is neither a file nor a tunnel.
pub fn find(operand: &str) -> Result<(InterfaceName, Option<Source>), Failed> {
    let found = locate(operand).and_then(|(path, interface)| Ok(Source::read(path, interface)?.called_as(operand)));
    let complaint = match found {
        Ok(source) => return Ok((source.interface.clone(), Some(source))),
        Err(complaint) => complaint,
    };
    let name = Path::new(operand).file_name().and_then(|name| name.to_str()).unwrap_or(operand);
    let name: Option<InterfaceName> = name.strip_suffix(".conf").unwrap_or(name).parse().ok();
    match name.filter(|name| ledger::read(ledgers(), name).is_ok_and(|ledger| ledger.is_some())) {
        Some(interface) => Ok((interface, None)),
        None => Err(complaint.into()),
    }
}

/// The state of the tunnel, if it runs.
pub fn running(interface: &InterfaceName) -> Option<DeviceState> {
    TunnelClient::open(socket::DIRECTORY.as_ref(), interface.as_str()).ok()?.get().ok()
}

/// Whether the copy of the tunnel's file holds keys; none if there is no copy.
pub fn copy_has_keys(interface: &InterfaceName) -> Option<bool> {
    let text = ledger::read_file(ledgers(), interface).ok().flatten()?;
    let file = Source::of(PathBuf::new(), interface.clone(), &text).file;
    Some(file.private_key.is_some() || file.peers.iter().any(|peer| peer.preshared_key.is_some()))
}

/// The addresses of the names of a file, as far as they are at hand.
pub fn at_hand(source: &Source) -> Vec<Vec<SocketAddr>> {
    names::at_hand(&source.names())
}

/// Why `path` cannot be used. Only root may look into /etc/wireguard and /run/linerate.
fn inaccessible(path: &Path, error: &io::Error) -> Complaint {
    let is_for_root = error.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root();
    let hint = if is_for_root { "; run as root (sudo)" } else { "" };
    format!("`{}': {error}{hint}", path.display())
}

/// Why there is no ledger.
fn unusable(error: LedgerError) -> Complaint {
    match error {
        LedgerError::Io { path, error } => inaccessible(&path, &error),
        error => error.to_string(),
    }
}

/// Where ledgers are.
fn ledgers() -> &'static Path {
    Path::new(ledger::DIRECTORY)
}

/// The ledger of an interface, for this command alone. Waits for another command that has it, and says so; a hook of
/// that command would wait for ever and is refused.
fn lock(interface: &InterfaceName, interruption: &Interruption) -> Result<Entry, Failed> {
    lock_unless_hook(interface, interruption)?.ok_or_else(|| {
        let sentence = "this command cannot be run from the PreUp, PostUp, PreDown or PostDown of";
        Failed::new(format!("{sentence} {interface} itself"))
    })
}

/// As [`lock`], but none where the command that has the ledger runs us as its hook.
fn lock_unless_hook(interface: &InterfaceName, interruption: &Interruption) -> Result<Option<Entry>, Failed> {
    let mut said = false;
    loop {
        match Entry::open(ledgers(), interface) {
            Err(LedgerError::Busy { .. }) if is_hook_of_holder(interface) => return Ok(None),
            Err(busy @ LedgerError::Busy { .. }) => {
                if !std::mem::replace(&mut said, true) {
                    complain(&format!("{busy}; waiting for it"));
                }
                interruption.pause(&[], Some(LOCK_PAUSE)).map_err(|error| format!("cannot wait: {error}"))?;
                if interruption.came() {
                    return Err(Failed { complaint: "interrupted".to_owned(), code: 130 });
                }
            }
            entry => return Ok(Some(entry.map_err(unusable)?)),
        }
    }
}

const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Whether the command that has locked the ledger of `interface` is the one that started us as a hook. A process that a
/// hook left behind still has the variable, but no holder has that signature any more.
fn is_hook_of_holder(interface: &InterfaceName) -> bool {
    std::env::var_os(hook::LOCKED).is_some_and(|signature| signature == *ledger::signature(ledgers(), interface))
}

/// What the planner has to know of this host, for the tunnel `own`. What other tunnels are about to add counts as there.
fn look(host: &mut Host, own: &InterfaceName) -> Result<HostState, Failed> {
    // The ledgers first: the host has all that a ledger tells which is complete by then.
    let mut to_come = Vec::new();
    for interface in ledger::interfaces(ledgers()).map_err(unusable)?.into_iter().filter(|interface| interface != own) {
        // One that cannot be read is for the commands of that tunnel to complain of.
        let Ok(Some(ledger)) = ledger::read(ledgers(), &interface) else { continue };
        if !ledger.complete {
            to_come.extend(ledger.possibly_applied());
        }
    }
    let mut state = host.state().map_err(|error| format!("cannot read the state of this host: {error}"))?;
    state.dns = dns::detect();
    for step in to_come {
        match step {
            Step::AddRule(rule) if !state.rules.contains(&rule) => state.rules.push(rule),
            Step::AddRoute(route) if route.table != MAIN && !state.routes.contains(&route) => state.routes.push(route),
            _ => {}
        }
    }
    Ok(state)
}

/// Opens what the kernel is spoken to with.
fn host() -> Result<Host, Failed> {
    Host::open().map_err(|error| Failed::new(format!("cannot query the kernel: {error}")))
}

fn warn(warnings: &[Warning]) {
    warnings.iter().for_each(|warning| complain(&format!("Warning: {warning}")));
}

/// Says which step did not succeed while others went on.
fn step_failed(step: &Step, stumble: &StepError) {
    complain(&format!("{}: {}", linerate_host::plan::messages::describe(step), stumble.error));
}
