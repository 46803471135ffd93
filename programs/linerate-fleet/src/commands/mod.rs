//! What each command does.

pub mod commit;
mod drain;
mod init;
mod join;
mod leave;
mod run;
mod status;

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use linerate_cli::eprint_line;
use linerate_tunnel::resolver;

use crate::arguments::{Command, OfFleet};
use crate::local::Fleet;
use crate::store::layout::{self, Confirmed};
use crate::store::{Compare, KeyValue, Operation, StoreError, Transaction};

/// Runs a command.
///
/// # Errors
/// It is not done: why, and what to do.
pub fn run(command: Command) -> Result<ExitCode, String> {
    match command {
        // Before there is a runtime.
        Command::Resolve => {
            let answered = resolver::process::answer().map_err(|error| format!("cannot look up names: {error}"));
            return answered.map(|()| ExitCode::SUCCESS);
        }
        Command::Supervise { arguments } => {
            let program = std::env::current_exe().map(|own| own.with_file_name("linerate")).ok();
            let program = program.filter(|file| file.is_file()).unwrap_or_else(|| "linerate".into());
            let mut command = std::process::Command::new(program);
            // Its own `--` is gone by now.
            let error = command.args(["supervise", "--"]).args(arguments).exec();
            return Err(format!("cannot run linerate: {error}"));
        }
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(async {
        match command {
            Command::Init(arguments) => init::run(&arguments).await,
            Command::Join(arguments) => join::run(&arguments).await,
            Command::Leave(which) => leave::run(&which).await,
            Command::Status(arguments) => status::run(&arguments).await,
            Command::Drain(which) => drain::run(&which, true).await,
            Command::Undrain(which) => drain::run(&which, false).await,
            Command::Accept(of) => accept(&of).await,
            Command::Run { name } => run::run(&name).await,
            Command::Commit { interface } => commit::run(&interface).await,
            Command::Supervise { .. } | Command::Resolve => unreachable!("they were run above"),
        }
    });
    // A write of the file that waits for a lock must not hold the end up.
    runtime.shutdown_background();
    outcome
}

async fn accept(of: &OfFleet) -> Result<ExitCode, String> {
    let fleet = Fleet::open(of.fleet.as_ref())?;
    let said = |error: StoreError| error.to_string();
    let (revision, _) = fleet.client.get(&fleet.keys.confirmed()).await.map_err(said)?;
    let operations = vec![layout::put(&fleet.seal()?, fleet.keys.confirmed(), &Confirmed { revision })];
    fleet.client.transact(&Transaction { compares: Vec::new(), operations }).await.map_err(said)?;
    linerate_cli::eprint_line("confirmed: gateways that held their peers follow the store now");
    Ok(ExitCode::SUCCESS)
}

/// A gateway of the fleet as the store has it.
async fn member(fleet: &Fleet, number: u8) -> Result<Option<KeyValue>, String> {
    Ok(fleet.client.get(&fleet.keys.member(number)).await.map_err(|error| error.to_string())?.1)
}

/// Changes a gateway, if it is still as it was.
async fn change_member(fleet: &Fleet, number: u8, known: &KeyValue, operations: Vec<Operation>) -> Result<(), String> {
    let compares = vec![Compare::Unchanged(fleet.keys.member(number), known.modified)];
    let outcome = fleet.client.transact(&Transaction { compares, operations }).await;
    match outcome.map_err(|error| error.to_string())?.is_done {
        true => Ok(()),
        false => Err(format!("gateway {number} was changed at the same time: try again")),
    }
}

/// Says what the tunnel does not do of what its file says, and fails then.
fn followed(unmet: &[String]) -> ExitCode {
    unmet.iter().for_each(|sentence| eprint_line(&format!("linerate-fleet: {sentence}")));
    if unmet.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn no_gateway(fleet: &Fleet, number: u8) -> String {
    format!("the fleet {} has no gateway {number}: `linerate fleet status' lists them", fleet.name)
}
