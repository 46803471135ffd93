//! `wg-quick`, compatible with wireguard-tools 1.0.20260223: the same files, verbs, output and exit codes, but tunnels
//! run in linerated. docs/wg-quick.md lists the differences.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use linerate_control::document::SectionKind;
use linerate_control::tunnel_file::{settings, strip};
use linerate_control::wg_config::{self, Resolver, ValueError};
use linerate_host::spec::Compat;

use linerate_cli::{eprint_line, print};
use linerate_tunnel::{self as tunnel, ConfigFile, Context, Error, Options};
use linerate_wg::wg;

use crate::cli::{CliError, Output, interruption};

/// Runs `wg-quick` on `arguments`; `program` is what it is called in messages.
pub fn main(program: &str, arguments: &[OsString]) -> ExitCode {
    // Only its name: the original removes the directory, too.
    let program = program.rsplit('/').next().unwrap_or(program);
    run(program, arguments).unwrap_or_else(|error| {
        eprint_line(&format!("{program}: {}", error.message));
        ExitCode::from(error.exit_code)
    })
}

fn run(program: &str, arguments: &[OsString]) -> Result<ExitCode, CliError> {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let kernel = words.iter().any(|word| word == "--kernel");
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "--kernel").collect();
    let (verb, operand) = match words[..] {
        ["--help" | "-h" | "help"] => {
            eprint_line(&usage(program));
            return Ok(ExitCode::SUCCESS);
        }
        [verb @ ("up" | "down" | "save" | "strip"), operand] => (verb, operand),
        _ => {
            eprint_line(&usage(program));
            return Ok(ExitCode::FAILURE);
        }
    };
    become_root(program, arguments)?;
    let options = Options {
        compat: Compat::WgQuick,
        implementation: tunnel::implementation(kernel)?,
        user: None,
        hooks: true,
        fix_firewall: false,
        supervised: false,
    };
    match verb {
        "up" => up(operand, &options),
        "down" => down(operand, &options),
        "save" => {
            tunnel::save(&read(operand)?, Context { reporter: &Output::VERBOSE, interruption: &interruption()? })?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Ok(print(&stripped(&read(operand)?)?)?),
    }
}

fn up(operand: &str, options: &Options) -> Result<ExitCode, CliError> {
    let file = read(operand)?;
    check(&file)?;
    tunnel::up(file, options, Context { reporter: &Output::VERBOSE, interruption: &interruption()? })?;
    Ok(ExitCode::SUCCESS)
}

fn down(operand: &str, options: &Options) -> Result<ExitCode, CliError> {
    // A running tunnel goes down even if its file was deleted.
    let (interface, file) = match read(operand) {
        Ok(file) => (file.interface.clone(), Some(file)),
        Err(error) => match tunnel::find(operand) {
            Ok((interface, None)) => (interface, None),
            _ => return Err(error),
        },
    };
    let context = Context { reporter: &Output::VERBOSE, interruption: &interruption()? };
    tunnel::down(&interface, file.as_ref(), options, context)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the file of `operand`, and warns if every user can read it.
fn read(operand: &str) -> Result<ConfigFile, CliError> {
    let file = ConfigFile::open(operand).map_err(|error| match error {
        // wg-quick's words.
        Error::FileName(_) => {
            CliError::from("The config file must be a valid interface name, followed by .conf".to_owned())
        }
        error => error.into(),
    })?;
    for path in file.world_accessible() {
        eprint_line(&format!("Warning: `{}' is world accessible", path.display()));
    }
    // wg-quick rejects a non-boolean SaveConfig for every verb.
    strip(&file.document)?;
    Ok(file)
}

/// Checks that `wg` and `ip` would accept the file before anything is changed. Errors are in their words.
fn check(file: &ConfigFile) -> Result<(), CliError> {
    let text = strip(&file.document)?;
    wg_config::parse(&text, wg_config::Mode::Append, &mut Unresolved)
        .map_err(|error| wg::explain(&error, &text, file.path.as_os_str()))?;
    for warning in file.check()? {
        eprint_line(&warning);
    }
    Ok(())
}

/// Validates values without resolving names: they are resolved once the tunnel exists.
struct Unresolved;

impl Resolver for Unresolved {
    fn resolve(&mut self, _: &str, host: &str, _: &str) -> Result<std::net::SocketAddr, ValueError> {
        let address = host.parse().unwrap_or(std::net::IpAddr::from([0, 0, 0, 0]));
        Ok((address, 0).into())
    }

    fn port(&mut self, service: &str) -> Result<u16, ValueError> {
        linerate_control::resolver::port(service).map_err(ValueError::Value)
    }

    fn warn(&mut self, warning: &str) {
        eprint_line(warning);
    }
}

/// The part of the file that `wg` reads. For a running tunnel, adds its settings that the file does not have: users
/// pipe this to `wg syncconf`, which removes what is missing.
fn stripped(file: &ConfigFile) -> Result<linerate_control::zeroizing::Buffer, CliError> {
    let Some(device) = tunnel::running(&file.interface) else { return Ok(strip(&file.document)?) };
    let mut document = file.document.clone();
    let section = document.sections().iter().position(|section| section.kind() == SectionKind::Interface);
    if let Some(section) = section {
        let contents = &file.contents;
        if contents.fwmark.is_none() && device.fwmark != 0 {
            document.insert(section, &settings::FWMARK, &format!("{:#x}", device.fwmark))?;
        }
        if contents.listen_port.is_none() && device.listen_port != 0 {
            document.insert(section, &settings::LISTEN_PORT, &device.listen_port.to_string())?;
        }
        if let (None, Some(key)) = (&contents.private_key, &device.private_key) {
            document.insert(section, &settings::PRIVATE_KEY, &key.to_base64())?;
        }
    }
    Ok(strip(&document)?)
}

/// Executes this program again as root with sudo, as the original does.
fn become_root(program: &str, arguments: &[OsString]) -> Result<(), CliError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let prompt = format!("{program} must be run as root. Please enter the password for %u to continue: ");
    let error = Command::new("sudo").args(["-p", &prompt, "--"]).arg(own).arg("wg-quick").args(arguments).exec();
    Err(CliError { message: format!("must be run as root, and sudo cannot be started: {error}"), exit_code: 127 })
}

fn usage(program: &str) -> String {
    format!(
        "Usage: {program} [ up | down | save | strip ] [ CONFIG_FILE | INTERFACE ]\n\n\
        \x20 CONFIG_FILE is a file named after the interface, with the extension `.conf'; INTERFACE means\n\
        \x20 /etc/wireguard/INTERFACE.conf. It has the format of `wg setconf', and in [Interface] also:\n\n\
        \x20 - Address: addresses of the interface, separated by commas.\n\
        \x20 - DNS: name servers and search domains for as long as the tunnel is up.\n\
        \x20 - MTU: the MTU of the interface (default: derived from the path to the peers).\n\
        \x20 - Table: the routing table for the routes, `off' for none, or `auto' (the default).\n\
        \x20 - PreUp, PostUp, PreDown, PostDown: shell commands; %i is the interface.\n\
        \x20 - SaveConfig: `true' saves the running state to the file when the tunnel goes down.\n\n\
        \x20 --kernel, or WG_QUICK_BACKEND=kernel, runs the tunnel in the kernel (default: in linerated).\n\
        \x20 LINERATE_USER=NAME, or `#! User = NAME' in the file, runs linerated as that user.\n\
        \x20 LINERATE_SPIN=N, or `#! Spin = N' in the file: it looks for packets for N microseconds before it sleeps.\n\
        \x20 `linerate --help' lists more commands; linerate.conf(5) describes the file."
    )
}
