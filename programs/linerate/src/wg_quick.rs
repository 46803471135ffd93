//! `wg-quick`, as wireguard-tools 1.0.20260223 does it: the same files, verbs, echo and exit codes, with linerated as
//! the engine. Where it does better, that is written in docs/wg-quick.md.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use linerate_control::document::SectionKind;
use linerate_control::tunnel_file::{keys, strip};
use linerate_control::wg_config::{self, Resolver, ValueError};
use linerate_host::wanted::Compat;

use crate::wg;
use linerate_program::complain;
use linerate_program::print;
use linerate_tunnel::{self as tunnel, Failed, Interruption, Options, Source};

/// Runs `wg-quick` on `arguments`; `program` is what it is called in messages.
pub fn main(program: &str, arguments: &[OsString]) -> ExitCode {
    // The name is enough: the original cuts the folders off.
    let program = program.rsplit('/').next().unwrap_or(program);
    run(program, arguments).unwrap_or_else(|failed| {
        complain(&format!("{program}: {}", failed.complaint));
        ExitCode::from(failed.code)
    })
}

fn run(program: &str, arguments: &[OsString]) -> Result<ExitCode, Failed> {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let kernel = words.iter().any(|word| word == "--kernel");
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "--kernel").collect();
    let (verb, operand) = match words[..] {
        ["--help" | "-h" | "help"] => {
            complain(&usage(program));
            return Ok(ExitCode::SUCCESS);
        }
        [verb @ ("up" | "down" | "save" | "strip"), operand] => (verb, operand),
        _ => {
            complain(&usage(program));
            return Ok(ExitCode::FAILURE);
        }
    };
    become_root(program, arguments)?;
    let options = Options {
        compat: Compat::WgQuick,
        backend: tunnel::backend(kernel)?,
        user: None,
        hooks: true,
        echo: true,
        supervised: false,
    };
    match verb {
        "up" => up(operand, &options),
        "down" => down(operand, &options),
        "save" => tunnel::save(&read(operand)?, options.echo, &interruption()?).map(|()| ExitCode::SUCCESS),
        _ => Ok(print(&stripped(&read(operand)?)?)?),
    }
}

fn up(operand: &str, options: &Options) -> Result<ExitCode, Failed> {
    let source = read(operand)?;
    judge(&source)?;
    let interruption = interruption()?;
    tunnel::up(&source, options, &interruption)?;
    tunnel::leave_keeper(&source);
    Ok(ExitCode::SUCCESS)
}

fn down(operand: &str, options: &Options) -> Result<ExitCode, Failed> {
    // A tunnel that is up goes down though its file has gone.
    let (interface, source) = match read(operand) {
        Ok(source) => (source.interface.clone(), Some(source)),
        Err(failed) => match tunnel::find(operand) {
            Ok((interface, None)) => (interface, None),
            _ => return Err(failed),
        },
    };
    tunnel::down(&interface, source.as_ref(), options, &interruption()?)?;
    Ok(ExitCode::SUCCESS)
}

fn interruption() -> Result<Interruption, Failed> {
    Interruption::listen().map_err(|error| Failed::from(format!("cannot handle signals: {error}")))
}

/// Reads the file of `operand` and warns if everybody may.
fn read(operand: &str) -> Result<Source, Failed> {
    let (path, interface) = tunnel::locate(operand)?;
    let source = Source::read(path, interface)?.called_as(operand);
    for path in source.world_accessible() {
        complain(&format!("Warning: `{}' is world accessible", path.display()));
    }
    // wg-quick rejects a file with a non-boolean SaveConfig for every verb.
    strip(&source.document)?;
    Ok(source)
}

/// Checks that `wg` and `ip` would accept the file, with their error messages, before anything is changed.
fn judge(source: &Source) -> Result<(), Failed> {
    let text = strip(&source.document)?;
    wg_config::parse(&text, wg_config::Mode::Append, &mut Unresolved)
        .map_err(|bad| wg::explain(&bad, source.path.as_os_str()))?;
    for warning in source.check()? {
        complain(&warning);
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
        tunnel::resolver::port(service).map_err(ValueError::Value)
    }

    fn warn(&mut self, warning: &str) {
        complain(warning);
    }
}

/// The part of the file that `wg` reads. For a running tunnel, it includes settings that the file does not contain: scripts
/// pass this to `wg syncconf`, which would remove them.
fn stripped(source: &Source) -> Result<linerate_control::zeroizing::Buffer, Failed> {
    let Some(device) = tunnel::running(&source.interface) else { return Ok(strip(&source.document)?) };
    let mut document = source.document.clone();
    let section = document.sections().iter().position(|section| section.kind() == SectionKind::Interface);
    if let Some(section) = section {
        let file = &source.file;
        if file.fwmark.is_none() && device.fwmark != 0 {
            document.insert(section, &keys::FWMARK, &format!("{:#x}", device.fwmark))?;
        }
        if file.listen_port.is_none() && device.listen_port != 0 {
            document.insert(section, &keys::LISTEN_PORT, &device.listen_port.to_string())?;
        }
        if let (None, Some(key)) = (&file.private_key, &device.private_key) {
            document.insert(section, &keys::PRIVATE_KEY, &key.to_base64())?;
        }
    }
    Ok(strip(&document)?)
}

/// Starts this program again as root, with sudo, as the original does.
fn become_root(program: &str, arguments: &[OsString]) -> Result<(), Failed> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let prompt = format!("{program} must be run as root. Please enter the password for %u to continue: ");
    let error = Command::new("sudo").args(["-p", &prompt, "--"]).arg(own).arg("wg-quick").args(arguments).exec();
    Err(Failed { complaint: format!("must be run as root, and sudo cannot be started: {error}"), code: 127 })
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
        \x20 `linerate --help' lists more commands; linerate.conf(5) describes the file."
    )
}
