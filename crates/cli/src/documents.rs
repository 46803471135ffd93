//! Manual pages and shell completions, made from the definition of the arguments.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::print;

/// Writes the manual page of `command`, and one for each of its commands, into `directory`.
///
/// # Errors
/// A page cannot be written.
pub fn write_pages(command: Command, section: &str, directory: &Path) -> Result<(), String> {
    let written = pages(command.disable_help_subcommand(true), section, directory);
    written.map_err(|error| format!("cannot write to {}: {error}", directory.display()))
}

/// Prints the completions of `command` for `shell`.
///
/// # Errors
/// They cannot be written.
pub fn print_completions(command: Command, shell: Shell) -> Result<ExitCode, String> {
    let mut command = visible(command);
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, &name, &mut text);
    print(&of_one_name(text, shell, &name))
}

/// For bash, clap_complete 4.6 calls the commands of a program whose name has a hyphen one way where it finds out which
/// of them is on the line, and another way where it says what there is to complete (clap-rs/clap#6421).
fn of_one_name(text: Vec<u8>, shell: Shell, name: &str) -> Vec<u8> {
    match String::from_utf8(text) {
        Ok(text) if shell == Shell::Bash => {
            let [wrong, right] = ["__subcmd__", "__"].map(|hyphen| format!("{}__subcmd__", name.replace('-', hyphen)));
            text.replace(&wrong, &right).into_bytes()
        }
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

/// The command without those of its commands that are hidden, which clap_complete would offer.
fn visible(command: Command) -> Command {
    if !command.get_subcommands().any(Command::is_hide_set) {
        return command;
    }
    // clap takes only text that lives as long as the program.
    let forever = |text: &str| -> &'static str { text.to_owned().leak() };
    let commands: Vec<Command> = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let shown = Command::new(forever(command.get_name())).args(command.get_arguments()).subcommands(commands);
    match command.get_version() {
        Some(version) => shown.version(forever(version)),
        None => shown,
    }
}

/// Checks that the arguments of `command` do not contradict each other and that each has its help.
///
/// # Panics
/// They do, or one has none.
pub fn assert_documented(command: Command) {
    fn check(command: &Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
        }
        command.get_subcommands().for_each(check);
    }
    command.clone().debug_assert();
    check(&command);
}

/// The page of `command` and those of its commands.
fn pages(mut command: Command, section: &str, directory: &Path) -> io::Result<()> {
    // Gives its commands their full names.
    command.build();
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        pages(command.clone(), section, directory)?;
    }
    let page = Man::new(command.clone()).section(section);
    let mut file = File::create(directory.join(page.get_filename()))?;
    render(&page, &command, &mut file)
}

/// As [`Man::render`], which would put everything after the options under one heading EXTRA: here it is split into
/// [`sections`].
fn render(page: &Man, command: &Command, to: &mut dyn Write) -> io::Result<()> {
    page.render_title(to)?;
    page.render_name_section(to)?;
    synopsis(page, to)?;
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

/// The synopsis. A long list of alternatives may be broken (groff(7), `\:`), so lines are not stretched.
fn synopsis(page: &Man, to: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::new();
    page.render_synopsis_section(&mut text)?;
    let text = String::from_utf8(text).expect("a page is text");
    writeln!(to, ".ad l\n{}\n.ad b", text.replace('|', "|\\:").trim_end())
}

/// The sections after the options in a help text. A line in capitals is a heading; any other line without indentation
/// is prose. Two columns, the first indented by [`INDENT`] and followed by two spaces or more, are a term and its
/// explanation. All other indented lines are kept as they are.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_a_program_with_a_hyphen_is_called_the_same_throughout() {
        let mut command =
            Command::new("the-tool").subcommand(Command::new("a-verb").arg(clap::Arg::new("x").long("x")));
        let mut text = Vec::new();
        clap_complete::generate(Shell::Bash, &mut command, "the-tool", &mut text);
        let text = String::from_utf8(of_one_name(text, Shell::Bash, "the-tool")).unwrap();
        let called = text.lines().find_map(|line| line.trim().strip_prefix("cmd=\"the__tool__subcmd__a")).unwrap();
        let arm = format!("the__tool__subcmd__a{})", called.trim_end_matches('"'));
        assert!(text.lines().any(|line| line.trim() == arm), "{arm}: {text}");
    }

    #[test]
    fn hidden_commands_are_not_completed() {
        let hidden = Command::new("secret").hide(true);
        let command = Command::new("tool").version("1").subcommand(Command::new("open")).subcommand(hidden);
        let mut shown = visible(command);
        let mut text = Vec::new();
        clap_complete::generate(Shell::Bash, &mut shown, "tool", &mut text);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("open") && text.contains("--version") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn headings_in_the_help_become_sections_and_examples_keep_their_layout() {
        let help = "EXAMPLES\n  By hand:\n    ip link  # all\n\nProse goes\non.\n\n\
            ENVIRONMENT\n  LOG_LEVEL  how much,\n             or none\n  A  1";
        let page = ".SH EXAMPLES\n.EX\nBy hand:\n  ip link  # all\n.EE\n.PP\nProse goes\non.\n.PP\n\
            .SH ENVIRONMENT\n.TP\n\\fBLOG_LEVEL\\fR\nhow much,\nor none\n.TP\n\\fBA\\fR\n1\n";
        assert!(sections(help).render().ends_with(page), "{}", sections(help).render());
    }
}
