//! `leave`: a gateway is none any more. Its service ends when it sees that, and the others stop speaking with it.

use std::process::ExitCode;

use linerate_cli::eprint_line;
use linerate_control::tunnel_file::settings;

use super::{change_member, followed, member, no_gateway};
use crate::arguments::Which;
use crate::local::{self, Fleet};
use crate::store::Operation;
use crate::{daemon, file};

pub(super) async fn run(which: &Which) -> Result<ExitCode, String> {
    let fleet = Fleet::open(which.of.fleet.as_ref())?;
    let own = fleet.local.gateway;
    let number = which.gateway.unwrap_or(own);
    match member(&fleet, number).await? {
        Some(known) => {
            let keys = [fleet.keys.member(number), fleet.keys.gateway(number), fleet.keys.applied(number)];
            change_member(&fleet, number, &known, keys.map(Operation::Delete).into()).await?;
        }
        None if number != own => return Err(no_gateway(&fleet, number)),
        // Another gateway has removed this one: what is left of it here goes.
        None => {}
    }
    if number != own {
        eprint_line(&format!(
            "gateway {number} is none any more. Whoever has its disk has the shared private key: after a theft make a new one"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let (file, _) = fleet.tunnel()?;
    daemon::release(&file.interface).await;
    let unmet = file::follow(&file.path, |document| {
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
    Ok(followed(&unmet))
}
