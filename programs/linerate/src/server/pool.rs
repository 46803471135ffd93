//! The clients' networks of a server, and how full they are.

use ipnet::IpNet;
use jiff::Timestamp;
use linerate_server::{Roster, State};
use linerate_tunnel::{ConfigFile, Error, System};
use serde::Serialize;

/// The networks that clients' addresses come from.
pub(super) fn networks(file: &ConfigFile) -> Result<Vec<IpNet>, Error> {
    Ok(roster(file, Timestamp::now())?.networks())
}

pub(super) fn client_names(file: &ConfigFile) -> Result<Vec<String>, Error> {
    let roster = roster(file, Timestamp::now())?;
    Ok(roster.clients().iter().map(|client| client.name.to_string()).collect())
}

fn roster(file: &ConfigFile, now: Timestamp) -> Result<Roster, Error> {
    let roster = Roster::read(file.document.clone(), &file.interface, &System, now);
    roster.map_err(|error| Error::State(format!("{}: {error}", file.interface)))
}

/// The clients of a server, as in the output of `--json`.
#[derive(Serialize)]
pub(super) struct Clients {
    /// How many there are.
    pub(super) total: usize,
    pub(super) enabled: usize,
    pub(super) disabled: usize,
    pub(super) expired: usize,
    /// The networks that their addresses come from.
    pub(super) pools: Vec<IpNet>,
    /// How many addresses are taken, and how many clients could have.
    pub(super) used: u32,
    pub(super) usable: u32,
}

impl Clients {
    /// Those in the file.
    pub(super) fn of(file: &ConfigFile) -> Result<Self, Error> {
        let now = Timestamp::now();
        let mut roster = roster(file, now)?;
        let count = |state| roster.clients().iter().filter(|client| client.state == state).count();
        let (enabled, disabled, expired) = (count(State::Enabled), count(State::Disabled), count(State::Expired));
        let (total, pools) = (roster.clients().len(), roster.networks());
        // A file without a network for clients may still be shown.
        let (used, usable) = roster.pool(now).map_or((0, 0), |pool| pool.usage());
        Ok(Self { total, enabled, disabled, expired, pools, used, usable })
    }

    /// As a line of a table.
    pub(super) fn text(&self) -> String {
        let parts = [(self.enabled, "enabled"), (self.disabled, "disabled"), (self.expired, "expired")];
        let parts: Vec<String> =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    }
}
