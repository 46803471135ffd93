//! The verbs for whole tunnels: `up`, `down`, `reload`, `save`, `plan`, `status`.

use std::process::ExitCode;

use linerate_control::interface::InterfaceName;
use linerate_control::printable::printable;
use linerate_host::plan::messages;
use linerate_host::wanted::Compat;

use crate::status::render;
use linerate_program::print;
use linerate_program::{Complaint, complain};
use linerate_tunnel::status::Status;
use linerate_tunnel::{self as tunnel, Failed, Interruption, Options, Source, status, supervise as keep};

/// What the verbs for one tunnel have in common.
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
pub(super) struct UpArguments {
    #[command(flatten)]
    tunnel: TunnelArguments,

    /// Run the tunnel in the kernel module (default: in linerated)
    #[arg(long)]
    kernel: bool,

    /// Run linerated as this user once the tunnel is set up
    ///
    /// The default is LINERATE_USER in the environment, then `#! User = NAME` in the file, then root. Hooks always run as
    /// root.
    #[arg(long, value_name = "NAME", conflicts_with = "kernel")]
    user: Option<String>,

    /// Stay in the foreground, supervise the tunnel, and take it down on exit (for service managers)
    #[arg(long)]
    supervise: bool,
}

#[derive(clap::Args)]
pub(super) struct PlanArguments {
    /// Interface with the file /etc/wireguard/NAME.conf, or the path of another file NAME.conf
    #[arg(value_name = "NAME")]
    name: String,

    /// Plan for the kernel module (default: for linerated)
    #[arg(long)]
    kernel: bool,

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

type Outcome = Result<ExitCode, Failed>;

pub(super) fn up(arguments: &UpArguments) -> Outcome {
    let mut options = options(&arguments.tunnel, tunnel::backend(arguments.kernel)?);
    options.supervised = arguments.supervise;
    options.user.clone_from(&arguments.user);
    let source = read(&arguments.tunnel.name)?;
    let interruption = interruption()?;
    tunnel::up(&source, &options, &interruption)?;
    if arguments.supervise {
        return supervise(&arguments.tunnel.name, source, &options, &interruption);
    }
    tunnel::leave_keeper(&source);
    complain(&format!("{} is up; `linerate status` shows its state", source.interface));
    Ok(ExitCode::SUCCESS)
}

/// `name` is what the user calls the tunnel of `source`.
fn supervise(name: &str, mut source: Source, options: &Options, interruption: &Interruption) -> Outcome {
    let interface = source.interface.clone();
    let ended = keep::supervise(&interface, interruption);
    interruption.forget();
    match ended {
        Ok(true) => {}
        // As `linerate down`, by the file as it is now: with SaveConfig the state is saved there. Without that, by the file
        // as it was read, over which nothing is saved.
        Ok(false) => {
            source.file.save_config = false;
            let now = tunnel::find(name).ok().and_then(|(_, now)| now);
            tunnel::down(&interface, Some(now.as_ref().unwrap_or(&source)), options, interruption)?;
        }
        // Without a daemon that stays alive a kill switch still holds: rules and firewall stay for the next start.
        Err(_) if source.file.kill_switch => {}
        Err(_) => {
            // Where the ledger cannot be used, by the file as it was read. That may have been changed since, so nothing is
            // saved over it.
            source.file.save_config = false;
            tunnel::down(&interface, Some(&source), options, interruption)?;
        }
    }
    ended.map(|_| ExitCode::SUCCESS)
}

pub(super) fn down(arguments: &TunnelArguments) -> Outcome {
    let options = options(arguments, tunnel::backend(false)?);
    let interruption = interruption()?;
    let (interface, source) = tunnel::find(&arguments.name)?;
    tunnel::down(&interface, source.as_ref(), &options, &interruption)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn reload(arguments: &TunnelArguments) -> Outcome {
    let options = options(arguments, tunnel::backend(false)?);
    let source = read(&arguments.name)?;
    let done = tunnel::reload(&source, &options, &interruption()?)?;
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    if done.needs_keeper {
        tunnel::leave_keeper(&source);
    }
    let (peers, steps) = (count(done.peers, "peer"), count(done.steps, "step"));
    let mut sentences = done.sentences;
    if (done.peers, done.steps) != (0, 0) {
        sentences.insert(0, format!("{peers} changed, {steps} taken on the host"));
    } else if sentences.is_empty() {
        sentences.push("nothing has changed".to_owned());
    }
    complain(&format!("{}: {}", source.interface, sentences.join("; ")));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn save(name: &str) -> Outcome {
    tunnel::save(&read(name)?, false, &interruption()?)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn plan(arguments: &PlanArguments) -> Outcome {
    let source = read(&arguments.name)?;
    let options = Options {
        compat: Compat::Native,
        backend: tunnel::backend(arguments.kernel)?,
        user: None,
        hooks: true,
        echo: false,
        supervised: false,
    };
    let plan = tunnel::planned(&source, &options, tunnel::at_hand(&source))?.plan;
    if arguments.json {
        let mut text = serde_json::to_vec_pretty(&plan).map_err(|error| format!("cannot write JSON: {error}"))?;
        text.push(b'\n');
        return Ok(print(&text)?);
    }
    let mut text = format!("To bring {} up, in this order:\n", source.interface);
    for (number, step) in plan.steps.iter().enumerate() {
        text.push_str(&format!("{:>4}. {}\n", number + 1, printable(&messages::describe(step))));
    }
    for warning in &plan.warnings {
        text.push_str(&format!("\nWarning: {}\n", printable(&warning.to_string())));
    }
    Ok(print(text.as_bytes())?)
}

pub(super) fn status(arguments: &StatusArguments) -> Outcome {
    let all = match status::status(arguments.name.as_deref()) {
        Err(failed) if arguments.check => {
            complain(&format!("linerate: {}", failed.complaint));
            return Ok(ExitCode::from(failed.code));
        }
        all => all?,
    };
    if arguments.json {
        let mut text = serde_json::to_vec_pretty(&all).map_err(|error| format!("cannot write JSON: {error}"))?;
        text.push(b'\n');
        print(&text)?;
    } else if all.is_empty() {
        complain("there are no tunnels; `linerate up NAME` brings one up");
    } else {
        print(render(&all).as_bytes())?;
    }
    let unknown = all.iter().any(Status::is_unknown);
    if unknown && arguments.check {
        return Ok(ExitCode::from(status::CANNOT_QUERY));
    }
    let not_running = arguments.name.is_some() && !all.iter().all(Status::is_run);
    let failed = unknown || not_running || (arguments.check && !all.iter().all(Status::is_well));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

pub(super) fn keep(interface: &InterfaceName) -> Outcome {
    keep::keep(interface, &interruption()?)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn resolve() -> Result<ExitCode, Complaint> {
    tunnel::answer_names().map_err(|error| format!("cannot look up names: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

fn options(arguments: &TunnelArguments, backend: linerate_host::step::Backend) -> Options {
    Options {
        compat: Compat::Native,
        backend,
        user: None,
        hooks: !arguments.no_hooks,
        echo: arguments.verbose,
        supervised: false,
    }
}

fn interruption() -> Result<Interruption, Failed> {
    Interruption::listen().map_err(|error| format!("cannot handle signals: {error}").into())
}

/// Reads the file of `name`, and says what is not right with it.
fn read(name: &str) -> Result<Source, Failed> {
    let (path, interface) = tunnel::locate(name)?;
    let source = Source::read(path, interface)?.called_as(name);
    for path in source.world_accessible() {
        complain(&format!("Warning: everybody can read {}: chmod 600 {0}", path.display()));
    }
    source.check()?.iter().for_each(|warning| complain(warning));
    Ok(source)
}
