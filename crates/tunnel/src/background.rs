//! The supervisor of a tunnel as a process in the background, and the lock by which there is only one.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linerate_control::interface::{InterfaceName, operands};
use linerate_control::tunnel_file::{Gateway, Table};
use linerate_host::spec::{Compat, HostSpec};
use linerate_host::system::ONE_TABLE;
use linerate_netio::process::{Terminal, background_environment, detach, outlasts_a_command};

use crate::context::Context;
use crate::error::Error;
use crate::ledger;
use crate::read::ConfigFile;

/// Starts the supervisor of the tunnel of `file` in the background.
pub(crate) fn start(file: &ConfigFile, context: Context<'_>) {
    spawn(&file.interface).unwrap_or_else(|error| {
        context.warn(format_args!(
            "there is no supervisor: endpoint names will not be resolved again, default routes not followed, what others \
             remove of the tunnel not restored, and no ends of clients written: {error}"
        ));
    });
}

impl ConfigFile {
    /// Whether the tunnel needs a supervisor: to resolve endpoint names again, write peers' outcomes into the file, follow
    /// default routes, set up a gateway's interface that comes back, or restore a lost default route. `wg-quick` leaves no
    /// process behind for the last two.
    pub(crate) fn needs_supervisor(&self, compat: Compat) -> bool {
        let has_default_route = || self.contents.table == Table::Auto && self.takes_all();
        !self.named_endpoints().is_empty()
            || self.has_outcomes()
            || self.follows_default_routes()
            || (compat == Compat::Native && (self.contents.gateway != Gateway::Off || has_default_route()))
    }

    /// Whether it follows the host's default routes: to forward to their interfaces, or, where there is one table, because
    /// the way to the endpoints around its own default routes is theirs.
    pub(crate) fn follows_default_routes(&self) -> bool {
        let file = &self.contents;
        file.gateway == Gateway::Auto || (ONE_TABLE && file.table == Table::Auto && self.takes_all())
    }

    /// Whether a peer has a default route, or a half of one.
    fn takes_all(&self) -> bool {
        self.contents.peers.iter().flat_map(|peer| &peer.allowed_ips).any(|net| net.prefix_len() <= 1)
    }

    /// Whether its supervisor opens ways in firewalls of others, for default routes to come.
    pub(crate) fn opens_firewalls(&self, spec: &HostSpec) -> bool {
        self.contents.gateway == Gateway::Auto && spec.forwarding.fixes_firewall
    }
}

fn spawn(interface: &InterfaceName) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let logs = std::env::var_os("LOG_LEVEL").is_some() && outlasts_a_command(io::stderr().as_fd());
    let mut command = Command::new(program);
    command.arg0("linerate").arg("supervise").args(operands(interface.as_str()));
    command.env_clear().envs(background_environment());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(if logs { Stdio::inherit() } else { Stdio::null() });
    detach(&mut command, Vec::new(), Terminal::None);
    command.spawn().map(drop)
}

/// Takes the supervisor's lock; `None` if another supervisor holds it. That of a tunnel that was taken down may still
/// be resolving a name, and ends after that.
pub(crate) fn lock(interface: &InterfaceName, context: Context<'_>) -> Result<Option<File>, Error> {
    let started = Instant::now();
    while started.elapsed() < TAKEOVER_TIMEOUT && !context.interruption.came() {
        if let Some(lock) = ledger::lock_supervisor(ledger::directory(), interface)? {
            return Ok(Some(lock));
        }
        context.interruption.pause(&[], Some(PAUSE)).map_err(Error::system("cannot wait"))?;
    }
    Ok(None)
}

/// How long the supervisor of a tunnel that was taken down may take to end.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(15);

/// Whether `interface` has no supervisor; false if the lock cannot be checked.
pub(crate) fn is_missing(interface: &InterfaceName) -> bool {
    ledger::lock_supervisor(ledger::directory(), interface).is_ok_and(|lock| lock.is_some())
}

const PAUSE: Duration = Duration::from_millis(20);
