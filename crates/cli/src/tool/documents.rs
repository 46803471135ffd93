//! Manual pages and shell completions, made from the definition of the arguments.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Arguments, print};
use crate::{Complaint, daemon};

/// One of the programs.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Program {
    Linerate,
    Linerated,
}

impl Program {
    fn command(self) -> clap::Command {
        match self {
            Self::Linerate => Arguments::command(),
            Self::Linerated => daemon::Arguments::command(),
        }
    }
}

/// Writes `linerate.1`, a page for each of its commands, and `linerated.8`.
pub(super) fn man(directory: &Path) -> Result<ExitCode, Complaint> {
    let write = || {
        clap_mangen::generate_to(Program::Linerate.command(), directory)?;
        Man::new(Program::Linerated.command()).section("8").generate_to(directory)
    };
    write().map_err(|error| format!("cannot write to {}: {error}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn completions(shell: Shell, program: Program) -> Result<ExitCode, Complaint> {
    let mut command = program.command();
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_both_programs_do_not_contradict_each_other() {
        Program::Linerate.command().debug_assert();
        Program::Linerated.command().debug_assert();
    }

    #[test]
    fn every_argument_and_command_has_its_help() {
        fn look(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            command.get_subcommands().for_each(look);
        }
        look(&Program::Linerate.command());
        look(&Program::Linerated.command());
    }

    #[test]
    fn there_is_a_manual_page_for_each_command_that_is_no_secret() {
        let directory = std::env::temp_dir().join(format!("linerate-man-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        man(&directory).unwrap();
        let entries = std::fs::read_dir(&directory).unwrap();
        let mut pages: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        pages.sort();
        std::fs::remove_dir_all(&directory).unwrap();
        let commands = ["demo", "genkey", "genpsk", "pubkey", "show", "version"];
        let mut expected: Vec<_> = commands.map(|name| format!("linerate-{name}.1")).into();
        expected.extend(["linerate.1".into(), "linerated.8".into()]);
        assert_eq!(pages, expected);
    }
}
