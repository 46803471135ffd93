//! `drain` and `undrain`: whether a gateway is to give its clients away. The flag is in the store, where its service sees it.

use std::process::ExitCode;

use linerate_cli::eprint_line;

use super::member;
use crate::arguments::Which;
use crate::local::Fleet;
use crate::store::layout::{self, Member};
use crate::store::{Operation, Transaction};

pub(super) async fn run(which: &Which, draining: bool) -> Result<ExitCode, String> {
    let fleet = Fleet::open(which.of.fleet.as_ref())?;
    let number = which.gateway.unwrap_or(fleet.local.gateway);
    let (known, unchanged) = member(&fleet, number).await?;
    if known.draining != draining {
        let value = layout::value(&Member { draining, ..known });
        let operations = vec![Operation::Put(fleet.keys.member(number), value)];
        let outcome = fleet.client.transact(&Transaction { compares: vec![unchanged], operations }).await;
        if !outcome.map_err(|error| error.to_string())?.is_done {
            return Err(format!("gateway {number} was changed at the same time: try again"));
        }
    }
    eprint_line(&match draining {
        true => format!("gateway {number} gives its clients away; `linerate fleet status' tells when none is left"),
        false => format!("gateway {number} takes clients again"),
    });
    Ok(ExitCode::SUCCESS)
}
