//! `metrics`: what runs, as text for Prometheus: once, into a file, or served.

mod http;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use linerate_cli::print;
use linerate_control::atomic_file;
use linerate_control::interface::InterfaceName;
use linerate_watch::metrics::{Content, Dialect, Format, write};
use linerate_watch::{Ask, WatchError, Watchers};

/// What is read for metrics.
const EVERYTHING: Ask = Ask { counters: true, processes: true };

/// Time that a scrape waits for a daemon's answer, until it was late once. Prometheus waits 10 s by default.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
pub(super) struct MetricsArguments {
    /// Tunnel (default: all)
    #[arg(value_name = "IFACE")]
    interface: Option<InterfaceName>,

    /// Write to this file, whole or not at all, for the textfile collector of node_exporter
    ///
    /// The name must end in .prom there. The file is readable by everybody.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "open_metrics"])]
    output: Option<PathBuf>,

    /// Serve on a Unix socket (unix:/PATH) or on a TCP port (ADDRESS:PORT)
    ///
    /// The path is /metrics. The socket is root's alone. Names and addresses of clients are nobody else's business, and
    /// there is neither a password nor encryption: an address other than that of this host (127.0.0.1, [::1]) also
    /// needs --beyond-this-host.
    #[arg(long, value_name = "WHERE")]
    listen: Option<Listen>,

    /// Allow --listen with an address that other hosts may reach
    #[arg(long, requires = "listen")]
    beyond_this_host: bool,

    /// Whose names and labels to use
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = ["mindflavor", "linerate"])]
    dialect: Vec<DialectArgument>,

    /// Leave out the families of single peers: with 10,000 clients they are megabytes
    #[arg(long)]
    no_peers: bool,

    /// Print in the format of OpenMetrics (served, whoever asks for it gets it)
    #[arg(long, conflicts_with = "listen")]
    open_metrics: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DialectArgument {
    /// Those of prometheus_wireguard_exporter, which most dashboards expect
    Mindflavor,
    /// Those of wireguard_exporter
    Mdlayher,
    /// What only linerate knows: drops by reason, wake-ups, quotas and more
    Linerate,
}

/// Where to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Listen {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(_) => {
                Err("the path of a Unix socket begins with /, such as unix:/run/linerate/metrics.sock".to_owned())
            }
            None => text
                .parse()
                .map(Self::Tcp)
                .map_err(|_| "expected unix:/PATH or ADDRESS:PORT, such as 127.0.0.1:9586 or [::1]:9586".to_owned()),
        }
    }
}

/// Prints, writes or serves.
pub(super) fn main(arguments: &MetricsArguments) -> Result<ExitCode, String> {
    let mut watcher = Watchers::new(arguments.interface.as_ref().map(InterfaceName::as_str));
    let mut dialects = Vec::new();
    for dialect in &arguments.dialect {
        let dialect = match dialect {
            DialectArgument::Mindflavor => Dialect::MindFlavor,
            DialectArgument::Mdlayher => Dialect::Mdlayher,
            DialectArgument::Linerate => Dialect::Linerate,
        };
        if !dialects.contains(&dialect) {
            dialects.push(dialect);
        }
    }
    let content = Content { dialects, peers: !arguments.no_peers, version: env!("CARGO_PKG_VERSION") };
    if let Some(listen) = &arguments.listen {
        return serve(listen, arguments.beyond_this_host, watcher, &content);
    }
    let format = if arguments.open_metrics { Format::OpenMetrics } else { Format::Classic };
    let text = read(&mut watcher, None, &content, format).map_err(|error| error.to_string())?;
    match &arguments.output {
        Some(file) => replace(file, &text).map(|()| ExitCode::SUCCESS),
        None => print(text.as_bytes()),
    }
}

fn read(
    watcher: &mut Watchers,
    patience: Option<Duration>,
    content: &Content,
    format: Format,
) -> Result<String, WatchError> {
    Ok(write(&watcher.poll(EVERYTHING, patience)?, content, format))
}

fn replace(file: &Path, text: &str) -> Result<(), String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // node_exporter reads what ends in .prom.
    let temporary = format!(".{name}.new");
    let mode = file.metadata().map_or(0o644, |data| data.permissions().mode() & 0o777);
    atomic_file::replace(file, temporary, text.as_bytes(), Some(mode), None)
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn serve(listen: &Listen, beyond_this_host: bool, watcher: Watchers, content: &Content) -> Result<ExitCode, String> {
    let listener = match listen {
        Listen::Tcp(address) if !address.ip().is_loopback() && !beyond_this_host => {
            return Err(format!(
                "other hosts may reach {address}, without a password and unencrypted; \
                 with --beyond-this-host it is served nevertheless"
            ));
        }
        Listen::Tcp(address) => http::Listener::tcp(*address),
        Listen::Unix(path) => http::Listener::unix(path),
    };
    let where_ = match listen {
        Listen::Tcp(address) => address.to_string(),
        Listen::Unix(path) => path.display().to_string(),
    };
    let listener = listener.map_err(|error| format!("cannot listen on {where_}: {error}"))?;
    let watcher = Mutex::new(watcher);
    let answer = |format| {
        let mut watcher = watcher.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        read(&mut watcher, Some(DAEMON_TIMEOUT), content, format).map_err(|error| error.to_string())
    };
    let interruption = crate::cli::interruption().map_err(|error| error.message)?;
    http::serve(&listener, &interruption, &answer).map_err(|error| format!("cannot serve {where_}: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_to_listen_is_a_path_or_an_address_with_a_port() {
        let parse = |text: &str| text.parse::<Listen>();
        assert_eq!(parse("unix:/run/x.sock"), Ok(Listen::Unix("/run/x.sock".into())));
        assert_eq!(parse("[::1]:9586"), Ok(Listen::Tcp("[::1]:9586".parse().unwrap())));
        for other in ["", "unix:", "unix:x", "localhost:9586", "9586", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(parse(other).is_err(), "{other}");
        }
    }

    #[test]
    fn other_hosts_are_only_served_if_that_is_said() {
        let content = Content { dialects: Vec::new(), peers: false, version: "" };
        let listen = Listen::Tcp("192.0.2.1:9586".parse().unwrap());
        let refused = serve(&listen, false, Watchers::new(None), &content).unwrap_err();
        assert!(refused.contains("--beyond-this-host"), "{refused}");
    }
}
