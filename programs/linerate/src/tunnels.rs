//! The commands for whole tunnels: `up`, `down`, `reload`, `save`, `plan`, `status`.

use std::process::ExitCode;

use linerate_cli::{eprint_line, print};
use linerate_control::interface::InterfaceName;
use linerate_control::printable::printable;
use linerate_host::plan::messages;
use linerate_host::spec::Compat;
use linerate_host::step::{Implementation, Step};
use linerate_tunnel::status::Status;
use linerate_tunnel::{self as tunnel, ConfigFile, Context, Options, resolver, status, supervise};

use crate::cli::{CliError, Output, interruption};
use crate::status::render;

/// The arguments that the commands for one tunnel have in common.
#[derive(clap::Args)]
pub(super) struct TunnelArguments {
    /// Interface with the file /etc/wireguard/NAME.conf, or the path of another file NAME.conf
    #[arg(value_name = "NAME")]
    name: String,

    /// Do not run the hooks of the file (PreUp, PostUp, PreDown, PostDown)
    #[arg(long)]
    no_hooks: bool,

    /// Print every step as an equivalent command
    #[arg(short, long)]
    verbose: bool,
}

#[derive(clap::Args)]
pub(super) struct FirewallArguments {
    /// Open ways in firewalls of others (Docker, ufw, firewalld, iptables, nft) that drop what the gateway needs
    ///
    /// `down` closes them. The same as `#! FixFirewall = true` in the file, until `down`.
    #[arg(long)]
    fix_firewall: bool,
}

#[derive(clap::Args)]
pub(super) struct ReloadArguments {
    #[command(flatten)]
    tunnel: TunnelArguments,

    #[command(flatten)]
    firewall: FirewallArguments,
}

#[derive(clap::Args)]
pub(super) struct UpArguments {
    #[command(flatten)]
    tunnel: TunnelArguments,

    /// Run the tunnel in the kernel module (default: in linerated)
    #[arg(long)]
    kernel: bool,

    /// Run linerated as this user once the tunnel is set up
    ///
    /// The default is LINERATE_USER in the environment, then `#! User = NAME` in the file, then root. Hooks always run
    /// as root.
    #[arg(long, value_name = "NAME", conflicts_with = "kernel")]
    user: Option<String>,

    /// Stay in the foreground, supervise the tunnel, and take it down on exit (for service managers)
    #[arg(long)]
    supervise: bool,

    #[command(flatten)]
    firewall: FirewallArguments,
}

#[derive(clap::Args)]
pub(super) struct PlanArguments {
    /// Interface with the file /etc/wireguard/NAME.conf, or the path of another file NAME.conf
    #[arg(value_name = "NAME")]
    name: String,

    /// Plan for the kernel module (default: for linerated)
    #[arg(long)]
    kernel: bool,

    #[command(flatten)]
    firewall: FirewallArguments,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(super) struct StatusArguments {
    /// Tunnel to show (default: all)
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print as JSON
    #[arg(long)]
    json: bool,

    /// Exit with 1 if a tunnel does not work, or with 2 if it cannot be queried
    ///
    /// A tunnel works if it is running, its interface is up, it has a private key and its UDP port, no hook failed, and
    /// every peer with an endpoint had a handshake in the last three minutes.
    #[arg(long)]
    check: bool,
}

type Outcome = Result<ExitCode, CliError>;

pub(super) fn up(arguments: &UpArguments) -> Outcome {
    let mut options = options(&arguments.tunnel, tunnel::implementation(arguments.kernel)?);
    options.supervised = arguments.supervise;
    options.fix_firewall = arguments.firewall.fix_firewall;
    options.user.clone_from(&arguments.user);
    let file = read(&arguments.tunnel.name)?;
    let interface = file.interface.clone();
    tunnel::up(file, &options, context(&arguments.tunnel, &interruption()?))?;
    if !arguments.supervise {
        eprint_line(&format!("{interface} is up; `linerate status` shows its state"));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn down(arguments: &TunnelArguments) -> Outcome {
    let options = options(arguments, tunnel::implementation(false)?);
    let interruption = interruption()?;
    let (interface, file) = tunnel::find(&arguments.name)?;
    tunnel::down(&interface, file.as_ref(), &options, context(arguments, &interruption))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn reload(ReloadArguments { tunnel: arguments, firewall }: &ReloadArguments) -> Outcome {
    let mut options = options(arguments, tunnel::implementation(false)?);
    options.fix_firewall = firewall.fix_firewall;
    let file = read(&arguments.name)?;
    let done = tunnel::reload(&file, &options, context(arguments, &interruption()?))?;
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (peers, steps) = (count(done.peers, "peer"), count(done.steps, "step"));
    let mut messages = done.messages;
    if (done.peers, done.steps) != (0, 0) {
        messages.insert(0, format!("{peers} changed, {steps} taken on the host"));
    } else if messages.is_empty() {
        messages.push("nothing has changed".to_owned());
    }
    eprint_line(&format!("{}: {}", file.interface, messages.join("; ")));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn save(name: &str) -> Outcome {
    tunnel::save(&read(name)?, Context { reporter: &Output::QUIET, interruption: &interruption()? })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn plan(arguments: &PlanArguments) -> Outcome {
    let file = read(&arguments.name)?;
    let options = Options {
        compat: Compat::Native,
        implementation: tunnel::implementation(arguments.kernel)?,
        user: None,
        hooks: true,
        fix_firewall: arguments.firewall.fix_firewall,
        supervised: false,
    };
    let plan = tunnel::plan(&file, &options)?;
    if arguments.json {
        let mut text = serde_json::to_vec_pretty(&plan).map_err(|error| format!("cannot write JSON: {error}"))?;
        text.push(b'\n');
        return Ok(print(&text)?);
    }
    let mut text = format!("To bring {} up, in this order:\n", file.interface);
    for (number, step) in plan.steps.iter().enumerate() {
        text.push_str(&format!("{:>4}. {}\n", number + 1, printable(&messages::describe(step))));
        if matches!(step, Step::AddGateway(_) | Step::HoldSysctl { .. } | Step::Open(_)) {
            let commands = messages::as_commands(std::slice::from_ref(step));
            commands.iter().for_each(|command| text.push_str(&format!("      {}\n", printable(command))));
        }
    }
    for warning in &plan.warnings {
        text.push_str(&format!("\nWarning: {}\n", printable(&warning.to_string())));
    }
    Ok(print(text.as_bytes())?)
}

pub(super) fn status(arguments: &StatusArguments) -> Outcome {
    let all = match status::status(arguments.name.as_deref()).map_err(CliError::from) {
        Err(failed) if arguments.check => {
            eprint_line(&format!("linerate: {}", failed.message));
            return Ok(ExitCode::from(failed.exit_code));
        }
        all => all?,
    };
    if arguments.json {
        let mut text = serde_json::to_vec_pretty(&all).map_err(|error| format!("cannot write JSON: {error}"))?;
        text.push(b'\n');
        print(&text)?;
    } else if all.is_empty() {
        eprint_line("there are no tunnels; `linerate up NAME` brings one up");
    } else {
        print(render(&all).as_bytes())?;
    }
    let unknown = all.iter().any(Status::is_unknown);
    if unknown && arguments.check {
        return Ok(ExitCode::from(tunnel::CANNOT_QUERY));
    }
    let not_running = arguments.name.is_some() && !all.iter().all(Status::is_running);
    let failed = unknown || not_running || (arguments.check && !all.iter().all(Status::is_healthy));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

pub(super) fn supervise(interface: &InterfaceName) -> Outcome {
    supervise::in_background(interface, Context { reporter: &Output::QUIET, interruption: &interruption()? })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn resolve() -> Result<ExitCode, String> {
    resolver::process::answer().map_err(|error| format!("cannot look up names: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

fn options(arguments: &TunnelArguments, implementation: Implementation) -> Options {
    Options {
        compat: Compat::Native,
        implementation,
        user: None,
        hooks: !arguments.no_hooks,
        fix_firewall: false,
        supervised: false,
    }
}

fn context<'a>(arguments: &TunnelArguments, interruption: &'a tunnel::Interruption) -> Context<'a> {
    Context { reporter: if arguments.verbose { &Output::VERBOSE } else { &Output::QUIET }, interruption }
}

/// Reads the file of `name`, and reports its warnings.
fn read(name: &str) -> Result<ConfigFile, CliError> {
    let file = ConfigFile::open(name)?;
    report_warnings(&file)?;
    Ok(file)
}

/// Reports the warnings about a file, unless it has errors.
pub(super) fn report_warnings(file: &ConfigFile) -> Result<(), CliError> {
    for path in file.world_accessible() {
        eprint_line(&format!("Warning: every user can read {}; run chmod 600 {0}", path.display()));
    }
    file.check()?.iter().for_each(|warning| eprint_line(warning));
    Ok(())
}
