//! `linerate`, the tool: its arguments, and who carries out which command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use linerate_control::interface::InterfaceName;
use linerate_program::{Complaint, documents, print};

use crate::show::{self, Field};
use crate::{doctor, keys, lab, tunnels};
use linerate_tunnel::Failed;

/// The arguments of `linerate`.
#[derive(Parser)]
#[command(
    name = "linerate",
    version,
    about = "A fast WireGuard tunnel in user space: try it, bring tunnels up, look at them.",
    long_about = "A fast WireGuard tunnel in user space: try it, bring tunnels up, look at them.\n\n\
        The tunnel itself is linerated, which `linerate up` starts. It speaks the same language as other WireGuard \
        daemons, so `wg` and `wg-quick` drive it unchanged.",
    after_long_help = "EXAMPLES\n\
        \x20 See it work, on this machine alone:\n\
        \x20   linerate demo\n\n\
        \x20 Measure all WireGuards of this machine side by side:\n\
        \x20   linerate lab run --quick\n\n\
        \x20 Make a key pair, readable by you alone:\n\
        \x20   umask 077\n\
        \x20   linerate genkey > private.key\n\
        \x20   linerate pubkey < private.key > public.key\n\n\
        \x20 Bring up /etc/wireguard/wg0.conf, look at it, apply changes of the file, take it down:\n\
        \x20   sudo linerate up wg0\n\
        \x20   sudo linerate status\n\
        \x20   sudo linerate reload wg0\n\
        \x20   sudo linerate down wg0"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Show a tunnel at work on this machine, and how fast it is
    ///
    /// Runs `linerate-lab demo`, which the package linerate-lab brings.
    #[command(disable_help_flag = true)]
    Demo {
        /// The options of `linerate-lab demo`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },

    /// Make a private key
    ///
    /// Prints a new private key in base64. Warns if standard output is a file that everyone can read.
    #[command(after_long_help = "EXAMPLE\n  umask 077; linerate genkey > private.key")]
    Genkey,

    /// Make a preshared key
    ///
    /// Prints 32 random bytes in base64. A preshared key is the same on both sides of a pair of peers
    /// and protects today's traffic from the quantum computers of tomorrow.
    #[command(after_long_help = "EXAMPLE\n  umask 077; linerate genpsk > preshared.key")]
    Genpsk,

    /// Print the public key of the private key on standard input
    #[command(after_long_help = "EXAMPLE\n  linerate pubkey < private.key")]
    Pubkey,

    /// Show tunnels: peers, handshakes, traffic
    ///
    /// Prints what `wg show` prints, for tunnels of the kernel's module and of user-space daemons
    /// (linerated, wireguard-go and others).
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate show                    every tunnel, for people\n\
        \x20 linerate show interfaces         their names, on one line\n\
        \x20 linerate show wg0 transfer       one value per peer, for scripts\n\
        \x20 linerate show wg0 --json         everything, for programs\n\
        \x20 linerate show wg0 --stats        why packets were dropped, and how many wake-ups found work\n\n\
        ENVIRONMENT\n\
        \x20 WG_COLOR_MODE   always or never; otherwise colours are for terminals\n\
        \x20 WG_HIDE_KEYS    never shows private and preshared keys; otherwise people and --json do not see them")]
    Show(ShowArguments),

    /// Do what wg does, with the same words
    ///
    /// Every command of `wg` (wireguard-tools 1.0.20260223), for tunnels of user-space daemons and of the
    /// kernel's module. A link to linerate that is named `wg` does the same. `linerate wg help` lists the
    /// commands.
    #[command(
        disable_help_flag = true,
        after_long_help = "EXAMPLES\n\
        \x20 linerate wg set wg0 peer KEY allowed-ips +10.0.0.7/32\n\
        \x20 linerate wg syncconf wg0 wg0.conf\n\
        \x20 linerate wg show all --json\n\n\
        ENVIRONMENT\n\
        \x20 WG_COLOR_MODE   always or never; otherwise colours are for terminals\n\
        \x20 WG_HIDE_KEYS    never shows private and preshared keys in the form for people\n\
        \x20 WG_ENDPOINT_RESOLUTION_RETRIES\n\
        \x20                 how often a name without an answer is asked for again: a number (15) or infinity"
    )]
    Wg {
        /// The command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },

    /// Do what wg-quick does, with the same words
    ///
    /// Every command of `wg-quick` (wireguard-tools 1.0.20260223) on the same files, with linerated as the engine. A
    /// link to linerate that is named `wg-quick` does the same.
    #[command(
        disable_help_flag = true,
        after_long_help = "EXAMPLES\n\
        \x20 linerate wg-quick up wg0\n\
        \x20 linerate wg-quick --kernel up ./wg0.conf\n\n\
        ENVIRONMENT\n\
        \x20 WG_QUICK_BACKEND   kernel has the kernel's module run tunnels, user (the default) linerated\n\
        \x20 WG_QUICK_USERSPACE_IMPLEMENTATION\n\
        \x20                    another daemon than the linerated beside this program\n\
        \x20 LINERATE_USER      the user that linerated becomes once the tunnel is set up"
    )]
    WgQuick {
        /// The command and its file
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },

    /// Bring a tunnel up
    ///
    /// Reads the file, plans, and does: the tunnel is up at the end, or the host is as it was. A route that exists
    /// already is no reason to be without a tunnel, nor is a name that has no address yet.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate plan wg0            what it would do, and what is in its way\n\
        \x20 linerate up wg0              /etc/wireguard/wg0.conf\n\
        \x20 linerate up ./home.conf      a file elsewhere; the interface is `home`\n\n\
        linerate.conf(5) describes the file, which is that of wg-quick and more.")]
    Up(tunnels::UpArguments),

    /// Take a tunnel down
    ///
    /// Undoes what was done to bring it up, whatever has become of its file.
    Down(tunnels::TunnelArguments),

    /// Apply a changed file to a tunnel that is up, without dropping a session
    ///
    /// Compares the file as it was with the file as it is, and changes only that: peers, addresses, routes, name
    /// servers, MTU. What was changed by hand, and what the file does not set, stays.
    Reload(tunnels::TunnelArguments),

    /// Save what runs into the file of a tunnel
    ///
    /// Comments, names, order and everything else that only the file has stay.
    Save {
        /// An interface, whose file is /etc/wireguard/NAME.conf, or the path of a file NAME.conf
        #[arg(value_name = "NAME")]
        name: String,
    },

    /// Show what `up` would do on this host, conflicts included, and change nothing
    Plan(tunnels::PlanArguments),

    /// Show tunnels with the names of their peers, and whether they work
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate status\n\
        \x20 linerate status wg0 --check || echo 'wg0 needs help'\n\
        \x20 linerate status --json")]
    Status(tunnels::StatusArguments),

    /// Examine tunnels, and say what to do about what is not right
    ///
    /// Whether the interface is up, with a key, a port and peers that answer; and the user, capabilities, system calls,
    /// files and memory that the daemon of each tunnel and whoever keeps it are left with, and whether that is as little
    /// as it can be. With --security only the latter. Ends with 1 if there is anything to fix.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate doctor\n\
        \x20 sudo linerate doctor --security wg0 --json")]
    Doctor(doctor::DoctorArguments),

    /// Look after a tunnel: what `up` leaves in the background
    #[command(hide = true)]
    Keep {
        /// The interface
        interface: InterfaceName,
    },

    /// Look up names that are given on standard input, without privileges
    #[command(hide = true)]
    Resolve,

    /// Print the version
    Version,

    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man {
        /// An existing directory
        directory: PathBuf,
    },

    /// Print the completions for a shell
    #[command(hide = true)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },

    /// Measure every WireGuard of this machine: which is faster, and what bounds them
    ///
    /// Runs `linerate-lab`, which is a package of its own. `linerate lab help` lists its commands.
    #[command(disable_help_flag = true)]
    Lab {
        /// The command of linerate-lab and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
}

#[derive(clap::Args)]
struct ShowArguments {
    /// An interface, `all`, or `interfaces` for just the names
    #[arg(default_value = "all")]
    interface: String,

    /// Print this alone, separated by tabs, for scripts
    #[arg(conflicts_with_all = ["json", "stats"])]
    field: Option<Field>,

    /// Print JSON, with the same names as wg-json
    #[arg(long)]
    json: bool,

    /// Print the daemon's counters (linerated only)
    #[arg(long)]
    stats: bool,
}

/// Runs the tool on this process's arguments.
pub fn main() -> ExitCode {
    match Arguments::try_parse() {
        Ok(arguments) => linerate_program::exit("linerate", run(arguments)),
        Err(error) => linerate_program::refuse_arguments(&error),
    }
}

fn run(arguments: Arguments) -> Result<ExitCode, Complaint> {
    let Some(command) = arguments.command else {
        let help = Arguments::command().render_long_help();
        return print(help.to_string().as_bytes());
    };
    match command {
        Command::Demo { arguments } => lab::run(std::iter::once("demo".into()).chain(arguments)),
        Command::Genkey => keys::genkey(),
        Command::Genpsk => keys::genpsk(),
        Command::Pubkey => keys::pubkey(),
        Command::Show(options) => {
            let wanted = show::Wanted::new(&options.interface, options.field, options.json, options.stats)?;
            show::main(&wanted)
        }
        Command::Wg { arguments } => Ok(crate::wg::main("linerate wg", &arguments)),
        Command::WgQuick { arguments } => Ok(crate::wg_quick::main("linerate wg-quick", &arguments)),
        Command::Up(arguments) => told(tunnels::up(&arguments)),
        Command::Down(arguments) => told(tunnels::down(&arguments)),
        Command::Reload(arguments) => told(tunnels::reload(&arguments)),
        Command::Save { name } => told(tunnels::save(&name)),
        Command::Plan(arguments) => told(tunnels::plan(&arguments)),
        Command::Status(arguments) => told(tunnels::status(&arguments)),
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Keep { interface } => told(tunnels::keep(&interface)),
        Command::Resolve => tunnels::resolve(),
        Command::Version => print(concat!("linerate ", env!("CARGO_PKG_VERSION"), "\n").as_bytes()),
        Command::Man { directory } => {
            documents::write_pages(Arguments::command(), "1", &directory).map(|()| ExitCode::SUCCESS)
        }
        Command::Completions { shell } => documents::print_completions(Arguments::command(), shell),
        Command::Lab { arguments } => lab::run(arguments),
    }
}

/// All but wg-quick end with 0 or 1.
fn told(outcome: Result<ExitCode, Failed>) -> Result<ExitCode, Complaint> {
    outcome.map_err(|failed| failed.complaint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_and_command_has_its_help() {
        documents::assert_documented(Arguments::command());
    }

    #[test]
    fn there_is_a_manual_page_for_each_command_that_is_no_secret() {
        let directory = std::env::temp_dir().join(format!("linerate-man-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        documents::write_pages(Arguments::command(), "1", &directory).unwrap();
        let entries = std::fs::read_dir(&directory).unwrap();
        let mut pages: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        pages.sort();
        std::fs::remove_dir_all(&directory).unwrap();
        let tunnels = ["down", "plan", "reload", "save", "status", "up", "wg-quick"];
        let others = ["demo", "doctor", "genkey", "genpsk", "lab", "pubkey", "show", "version", "wg"];
        let commands = tunnels.into_iter().chain(others);
        let mut expected: Vec<_> = commands.map(|name| format!("linerate-{name}.1")).collect();
        expected.push("linerate.1".into());
        expected.sort();
        assert_eq!(pages, expected);
    }
}
