//! Runs the checks of a program of tests that makes namespaces: it runs itself again inside a sandbox, and writes a line
//! for each check. Where the machine does not let it, it says so.

use std::process::ExitCode;

use linerate_lab::Error;
use linerate_lab::sandbox::{self, Process, Sandbox};

/// Makes each of `checks` by `make`.
pub fn run<C>(checks: &[(&str, C)], make: impl Fn(&Sandbox, &C) -> Result<(), Error>) -> ExitCode {
    let inside = match sandbox::enter() {
        Ok(Process::Parent(code)) => return ExitCode::from(code),
        Ok(Process::Child(inside)) => inside,
        Err(error) => {
            println!("skipped: {error}");
            return ExitCode::SUCCESS;
        }
    };
    let mut failed = false;
    for (name, check) in checks {
        match make(&inside, check) {
            Ok(()) => println!("ok: {name}"),
            // What the machine lacks is no fault of the lab's.
            Err(Error::Refused(reason)) => println!("skipped: {name}: {reason}"),
            Err(error) => {
                println!("FAILED: {name}: {error}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
