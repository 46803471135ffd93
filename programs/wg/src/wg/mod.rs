//! `wg`, compatible with wireguard-tools 1.0.20260223: the same commands, messages and exit codes.
//!
//! docs/man/wg.8.pod lists the differences. [`show`](crate::show) makes the output of `wg show`;
//! `linerate_control::wg_config` parses values and files.

mod command_line;
mod input;
pub mod resolver;
mod set;
mod setconf;
mod show;
mod showconf;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use linerate_control::client::TunnelClient;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::uapi::response::DeviceState;
use linerate_control::uapi::socket;

pub use setconf::explain;

use crate::keys;
use linerate_cli::{eprint_line, print};

/// The version that this is compatible with.
const VERSION: &str = "1.0.20260223";

/// An exit code, or a message for standard error, with exit code 1.
type Outcome = Result<ExitCode, String>;

/// Runs `wg` with `arguments`; `program` is its name in messages.
pub fn main(program: &str, arguments: &[OsString]) -> ExitCode {
    run(program, arguments).unwrap_or_else(|error| {
        eprint_line(&error);
        ExitCode::FAILURE
    })
}

fn run(program: &str, arguments: &[OsString]) -> Outcome {
    let Some((command, arguments)) = arguments.split_first() else {
        return show::main(program, &[]);
    };
    let command = command.to_string_lossy();
    match (&*command, arguments) {
        ("-v" | "--version" | "version", []) => {
            print(format!("wireguard-tools v{VERSION} - https://git.zx2c4.com/wireguard-tools/\n").as_bytes())
        }
        ("-h" | "--help" | "help", []) => print(format!("{}\n", usage(program)).as_bytes()),
        ("show", _) => show::main(program, arguments),
        ("showconf", [interface]) => showconf::main(interface),
        ("set", [interface, first, rest @ ..]) => set::main(interface, first, rest),
        ("setconf", [interface, file]) => setconf::set(interface, file),
        ("addconf", [interface, file]) => setconf::add(interface, file),
        ("syncconf", [interface, file]) => setconf::sync(interface, file),
        ("genkey", []) => keys::genkey().map_err(|error| format!("{program}: {error}")),
        ("genpsk", []) => keys::genpsk().map_err(|error| format!("{program}: {error}")),
        ("pubkey", []) => keys::pubkey().map_err(|error| format!("{program}: {error}")),
        _ => Err(usage_of(program, &command)
            .unwrap_or_else(|| format!("Invalid subcommand: `{command}'\n{}", usage(program)))),
    }
}

/// The commands, their operands, and what they do.
const COMMANDS: [(&str, &str, &str); 9] = [
    (
        "show",
        " { <interface> | all | interfaces } [public-key | private-key | listen-port | fwmark | peers | \
         preshared-keys | endpoints | allowed-ips | latest-handshakes | transfer | persistent-keepalive | dump]",
        "Shows the current configuration and device information",
    ),
    (
        "showconf",
        " <interface>",
        "Shows the current configuration of a given WireGuard interface, for use with `setconf'",
    ),
    (
        "set",
        " <interface> [listen-port <port>] [fwmark <mark>] [private-key <file path>] [peer <base64 public key> \
         [remove] [preshared-key <file path>] [endpoint <ip>:<port>] [persistent-keepalive <interval seconds>] \
         [allowed-ips [+|-]<ip1>/<cidr1>[,[+|-]<ip2>/<cidr2>]...] ]...",
        "Change the current configuration, add peers, remove peers, or change peers",
    ),
    ("setconf", CONF_OPERANDS, "Applies a configuration file to a WireGuard interface"),
    ("addconf", CONF_OPERANDS, "Appends a configuration file to a WireGuard interface"),
    ("syncconf", CONF_OPERANDS, "Synchronizes a configuration file to a WireGuard interface"),
    ("genkey", "", "Generates a new private key and writes it to stdout"),
    ("genpsk", "", "Generates a new preshared key and writes it to stdout"),
    ("pubkey", "", "Reads a private key from stdin and writes a public key to stdout"),
];

const CONF_OPERANDS: &str = " <interface> <configuration filename>";

fn usage(program: &str) -> String {
    let commands: String = COMMANDS.iter().map(|(name, _, does)| format!("  {name}: {does}\n")).collect();
    format!(
        "Usage: {program} <cmd> [<args>]\n\nAvailable subcommands:\n{commands}\
         You may pass `--help' to any of these subcommands to view usage."
    )
}

fn usage_of(program: &str, command: &str) -> Option<String> {
    let (name, operands, _) = COMMANDS.iter().find(|(name, ..)| *name == command)?;
    Some(format!("Usage: {program} {name}{operands}"))
}

/// The state of `interface`. `purpose` begins the message if it cannot be read.
fn get(interface: &OsStr, purpose: &str) -> Result<DeviceState, String> {
    let tunnel = TunnelClient::of_interface(Path::new(socket::DIRECTORY), &interface.to_string_lossy());
    let state = tunnel.and_then(|mut tunnel| tunnel.get());
    state.map_err(|error| format!("{purpose}: {}", error.reason_of_get()))
}

fn modify(interface: &OsStr, update: &DeviceUpdate) -> Outcome {
    let tunnel = TunnelClient::of_interface(Path::new(socket::DIRECTORY), &settable(interface));
    let done = tunnel.and_then(|mut tunnel| tunnel.set(update));
    done.map_err(|error| format!("Unable to modify interface: {}", error.reason_of_set()))?;
    Ok(ExitCode::SUCCESS)
}

/// The interface to change: the name is truncated to the length of an interface name (IFNAMSIZ), as in `wg`.
fn settable(interface: &OsStr) -> String {
    let name = interface.to_string_lossy();
    name[..name.floor_char_boundary(15)].to_owned()
}
