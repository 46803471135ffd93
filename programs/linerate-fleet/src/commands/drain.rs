//! `drain` and `undrain`: whether a gateway is to give its clients away. The flag is in the store, where its service sees it.

use std::process::ExitCode;

use linerate_cli::eprint_line;

use super::{change_member, member, no_gateway};
use crate::arguments::Which;
use crate::local::Fleet;
use crate::store::layout::{self, Member};

pub(super) async fn run(which: &Which, draining: bool) -> Result<ExitCode, String> {
    let fleet = Fleet::open(which.of.fleet.as_ref())?;
    let seal = fleet.seal()?;
    let number = which.gateway.unwrap_or(fleet.local.gateway);
    let found = member(&fleet, number).await?.ok_or_else(|| no_gateway(&fleet, number))?;
    let known: Member = layout::read(&seal, &found).map_err(|why| format!("gateway {number}: {why}"))?;
    if known.draining != draining {
        let put = layout::put(&seal, fleet.keys.member(number), &Member { draining, ..known });
        change_member(&fleet, number, &found, vec![put]).await?;
    }
    eprint_line(&match draining {
        true => format!("gateway {number} gives its clients away; `linerate fleet status' tells when none is left"),
        false => format!("gateway {number} takes clients again"),
    });
    Ok(ExitCode::SUCCESS)
}
