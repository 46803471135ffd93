//! Manual pages and shell completions, made from the definition of the arguments.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

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
        write_pages(Program::Linerate.command().disable_help_subcommand(true), "1", directory)?;
        write_pages(Program::Linerated.command(), "8", directory)
    };
    write().map_err(|error| format!("cannot write to {}: {error}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The page of `command` and those of its commands.
fn write_pages(mut command: clap::Command, section: &str, directory: &Path) -> io::Result<()> {
    // Gives its commands their full names.
    command.build();
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(command.clone(), section, directory)?;
    }
    let page = Man::new(command.clone()).section(section);
    let mut file = File::create(directory.join(page.get_filename()))?;
    render(&page, &command, &mut file)
}

/// As [`Man::render`], but for what follows the options in the help: that would come under one
/// heading EXTRA, as if it were prose.
fn render(page: &Man, command: &clap::Command, to: &mut dyn Write) -> io::Result<()> {
    page.render_title(to)?;
    page.render_name_section(to)?;
    page.render_synopsis_section(to)?;
    page.render_description_section(to)?;
    page.render_options_section(to)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        page.render_subcommands_section(to)?;
    }
    if let Some(text) = command.get_after_long_help() {
        sections(&text.to_string()).to_writer(to)?;
    }
    if command.get_version().is_some() {
        page.render_version_section(to)?;
    }
    Ok(())
}

/// The sections that end a help text. In it a line in capitals is a heading, what else begins at
/// the margin is prose, and what is indented stands as it is: but two columns, apart by two spaces
/// or more and the first indented by [`INDENT`], are a term and its explanation.
fn sections(help: &str) -> Roff {
    let mut roff = Roff::new();
    let mut kept = false;
    let mut explained = false;
    for line in help.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let columns = text.split_once("  ").filter(|_| indent == INDENT);
        let continues = explained && indent > INDENT;
        explained = columns.is_some() || continues;
        let keeps = indent > 0 && !explained;
        if kept && !keeps {
            roff.control("EE", []);
            kept = false;
        }
        if let Some((term, explanation)) = columns {
            roff.control("TP", []).text([bold(term)]).text([roman(explanation.trim_start())]);
        } else if continues {
            roff.text([roman(text)]);
        } else if keeps {
            if !kept {
                roff.control("EX", []);
                kept = true;
            }
            roff.text([roman(line.strip_prefix("  ").unwrap_or(text))]);
        } else if text.is_empty() {
            roff.control("PP", []);
        } else if text.chars().any(char::is_lowercase) {
            roff.text([roman(text)]);
        } else {
            roff.control("SH", [text]);
        }
    }
    if kept {
        roff.control("EE", []);
    }
    roff
}

/// How far the lines under a heading are indented.
const INDENT: usize = 2;

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
    fn headings_of_the_help_are_sections_of_the_page_and_examples_stand_as_they_are() {
        let help = "EXAMPLES\n  By hand:\n    ip link  # all\n\nProse goes\non.\n\n\
            ENVIRONMENT\n  LOG_LEVEL  how much,\n             or none\n  A  1";
        let page = ".SH EXAMPLES\n.EX\nBy hand:\n  ip link  # all\n.EE\n.PP\nProse goes\non.\n.PP\n\
            .SH ENVIRONMENT\n.TP\n\\fBLOG_LEVEL\\fR\nhow much,\nor none\n.TP\n\\fBA\\fR\n1\n";
        assert!(sections(help).render().ends_with(page), "{}", sections(help).render());
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
        let lab = ["lab-compare", "lab-list", "lab-report", "lab-run", "lab-story", "lab"];
        let tunnels = ["down", "plan", "reload", "save", "status", "up", "wg-quick"];
        let others = ["demo", "doctor", "genkey", "genpsk", "pubkey", "show", "version", "wg"];
        let commands = tunnels.into_iter().chain(lab).chain(others);
        let mut expected: Vec<_> = commands.map(|name| format!("linerate-{name}.1")).collect();
        expected.extend(["linerate.1".into(), "linerated.8".into()]);
        expected.sort();
        assert_eq!(pages, expected);
    }
}
