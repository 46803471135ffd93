//! `leave`: a gateway is none any more. Its service ends when it sees that, and the others stop speaking with it.

use std::process::ExitCode;

use linerate_cli::eprint_line;
use linerate_control::tunnel_file::settings;

use super::member;
use crate::arguments::Which;
use crate::local::{self, Fleet};
use crate::store::{Operation, Transaction};
use crate::{daemon, file};

pub(super) async fn run(which: &Which) -> Result<ExitCode, String> {
    let fleet = Fleet::open(which.of.fleet.as_ref())?;
    let own = fleet.local.gateway;
    let number = which.gateway.unwrap_or(own);
    let known = member(&fleet, number).await;
    match known {
        Ok((_, unchanged)) => remove(&fleet, number, unchanged).await?,
        // Another gateway has removed this one: what is left of it here goes.
        Err(why) if number != own || !why.contains("has no gateway") => return Err(why),
        Err(_) => {}
    }
    if number != own {
        eprint_line(&format!(
            "gateway {number} is none any more. Whoever has its disk has the shared private key: after a theft make a new one"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let (file, _) = fleet.tunnel()?;
    daemon::release(&file.interface).await;
    file::follow(&file.path, |document| {
        let mut document = document.clone();
        let interface = document.interface();
        document.unset(interface, &settings::FLEET);
        document
    })?;
    local::forget(&fleet.name);
    eprint_line(&format!(
        "this host is no gateway of {} any more; its tunnel {} keeps the peers, and has the shared private key",
        fleet.name, file.interface
    ));
    Ok(ExitCode::SUCCESS)
}

async fn remove(fleet: &Fleet, number: u8, unchanged: crate::store::Compare) -> Result<(), String> {
    let keys = &fleet.keys;
    let operations = [keys.member(number), keys.gateway(number), keys.applied(number)].map(Operation::Delete).to_vec();
    let outcome = fleet.client.transact(&Transaction { compares: vec![unchanged], operations }).await;
    match outcome.map_err(|error| error.to_string())?.is_done {
        true => Ok(()),
        false => Err(format!("gateway {number} was changed at the same time: try again")),
    }
}
