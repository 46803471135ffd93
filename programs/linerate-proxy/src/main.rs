//! `linerate-proxy`: a tunnel without root, as proxies and forwards.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;
use linerate_cli::standard_error::Lossy;
use linerate_cli::{eprint_line, exit, print, refuse_arguments};
use linerate_control::tunnel_file::TunnelFile;
use linerate_proxy::arguments::Arguments;
use linerate_proxy::config::{Names, Service, Settings};
use linerate_proxy::load::{Loaded, load};
use linerate_proxy::resolver::Resolver;
use linerate_proxy::sandbox::Sandbox;
use linerate_proxy::services::Doors;
use linerate_proxy::tunnel::{self, endpoints::Endpoints};
use linerate_tunnel::resolver;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;

fn main() -> ExitCode {
    linerate_cli::begin();
    match Arguments::try_parse() {
        Ok(arguments) => exit("linerate-proxy", run(arguments)),
        Err(error) => refuse_arguments(&error),
    }
}

fn run(arguments: Arguments) -> Result<ExitCode, String> {
    if arguments.resolves {
        let answered = resolver::process::answer().map_err(|error| format!("cannot look up names: {error}"));
        return answered.map(|()| ExitCode::SUCCESS);
    }
    if let Some(written) = arguments.documents() {
        return written;
    }
    let environment = |name: &str| std::env::var(name).ok();
    let Loaded { mut settings, tunnel: file } = load(&arguments.file(), &environment)?;
    let only_check = arguments.only_check;
    arguments.add_to(&mut settings)?;
    if only_check {
        return print(b"Config OK\n");
    }
    set_limits()?;
    start_log()?;
    let aead = linerate_aead::choose::from_environment().map_err(|error| error.to_string())?;
    aead.warning().iter().for_each(|warning| eprint_line(&format!("linerate-proxy: {warning}")));
    serve(settings, &file)
}

/// No core file, which would hold the keys; and two descriptors for each connection.
fn set_limits() -> Result<(), String> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(|error| format!("cannot turn core dumps off: {error}"))?;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(|error| format!("cannot raise the limit of open files: {error}"))
}

/// What the engine says: on standard error, as far as it asks for somebody to do something.
fn start_log() -> Result<(), String> {
    let level = match std::env::var("LOG_LEVEL").as_deref() {
        Err(_) | Ok("") => LevelFilter::WARN,
        Ok("silent") => LevelFilter::OFF,
        Ok("error") => LevelFilter::ERROR,
        Ok("info") => LevelFilter::INFO,
        Ok("debug") => LevelFilter::DEBUG,
        Ok(level) => return Err(format!("LOG_LEVEL={level} is not silent, error, info or debug")),
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(Mutex::new(Lossy));
    log.with_ansi(false).with_target(false).without_time().log_internal_errors(false).init();
    Ok(())
}

/// The ports of the tunnel's addresses that lead to this host.
fn ports_inside(settings: &Settings) -> Vec<u16> {
    let port = |service: &Service| match service {
        Service::TcpIn { port, .. } | Service::UdpIn { port, .. } => Some(*port),
        _ => None,
    };
    settings.services.iter().filter_map(port).collect()
}

/// Whether clients may name targets, which the tunnel's servers are asked for.
fn is_asked_for_names(settings: &Settings) -> bool {
    let takes_names =
        |service: &Service| matches!(service, Service::Socks { .. } | Service::Http { .. } | Service::Sni { .. });
    settings.names == Names::Tunnel && settings.services.iter().any(takes_names)
}

fn serve(settings: Settings, file: &TunnelFile) -> Result<ExitCode, String> {
    // Who runs it as ssh's ProxyCommand expects no words but those of errors.
    let is_quiet = settings.services.iter().all(|service| matches!(service, Service::Stdio { .. }));
    let say = |sentence: &str| {
        if !is_quiet {
            eprint_line(&format!("linerate-proxy: {sentence}"));
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(async {
        let catch = |kind| signal(kind).map_err(|error| format!("cannot handle signals: {error}"));
        let (mut interrupt, mut terminate) = (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
        let sandbox = Sandbox::new(&settings)?;
        let (stack, congestion) = (settings.stack, settings.congestion.clone());
        let ports = ports_inside(&settings);
        if file.dns_servers.is_empty() && is_asked_for_names(&settings) {
            say(
                "the file has no DNS, so names are refused; add DNS = ADDRESS of a server in the tunnel to [Interface], or \
                 Names = system to [Proxy] to ask this host's resolver outside of the tunnel",
            );
        }
        let asks = settings.names == Names::System || Endpoints::are_in(file);
        let resolver = asks.then(Resolver::start).transpose()?;
        let doors = Doors::open(settings)?;
        let endpoints = Endpoints::look_up(file, resolver.clone()).await;
        for named in endpoints.unanswered() {
            // Who waits for the one connection can repeat it; a service goes on.
            if is_quiet {
                return Err(format!("Endpoint = {named} has no address; is this host connected, and the name right?"));
            }
            say(&format!("Endpoint = {named} has no address yet; it is looked up again until it has one"));
        }
        // There is no other thread yet: who has some cannot enter a user namespace.
        let ready = tunnel::prepare(file, &endpoints, stack, congestion.as_deref())?;
        say(&format!("the TCP/IP in the tunnel is {}", ready.said));
        let sandbox = sandbox.beside_a_stack(ready.has_kernel_stack());
        let (engine, tunnel) = ready.open(sandbox, resolver)?;
        let services = doors.lead_into(tunnel)?;
        sandbox.confine();
        let engine = engine.start().map_err(|error| error.to_string())?;
        tokio::spawn(endpoints.keep(engine.handle()));
        services.listening().iter().for_each(|address| say(&format!("listening on {address}")));
        ports.iter().for_each(|port| say(&format!("listening on port {port} in the tunnel")));
        #[expect(deprecated, reason = "what is handed over could lie about its descriptor; a borrowed one cannot")]
        let ended = AsyncFd::with_interest(engine.ended(), Interest::READABLE);
        let ended = ended.map_err(|error| format!("cannot watch the tunnel's engine: {error}"))?;
        let outcome = tokio::select! {
            outcome = services.serve() => outcome,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
            _ = ended.readable() => Err("the tunnel's engine has ended".to_owned()),
        };
        drop(ended);
        engine.stop();
        outcome.map(|()| ExitCode::SUCCESS)
    });
    // A read of standard input that blocks must not hold the end up.
    runtime.shutdown_background();
    outcome
}
