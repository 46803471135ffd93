//! `linerate-web`: a page about the tunnels of this host and their clients.
//!
//! It has no rights of its own: what it shows, and changes where that is allowed, it asks `linerate web-helper` for
//! ([`helper`], crate `linerate-page`). A request comes by one of a few [`connections`], passes [`server`] (limits,
//! host, origin, session) and [`routes`] (who may ask for what), and becomes HTML in [`pages`]. The only other things it
//! does are to read the interfaces' counters ([`recorder`]) and to keep them for a month ([`history`]).

#![forbid(unsafe_code)]

mod connections;
mod guard;
mod helper;
mod history;
mod listen;
mod mount;
mod origin;
mod pages;
mod plot;
mod recorder;
mod routes;
mod server;
mod sessions;
mod units;

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::{Args, CommandFactory, Parser, Subcommand};
use jiff::tz::TimeZone;
use linerate_cli::{documents, eprint_line, print};
use linerate_page::{Reply, Request, SOCKET};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::connections::{accept_tcp, accept_unix};
use crate::guard::Guard;
use crate::helper::Helper;
use crate::history::Histories;
use crate::listen::Listen;
use crate::mount::Mount;
use crate::origin::Hosts;
use crate::recorder::{EVERY, INTERFACES, Recorder};
use crate::server::{Server, locked};
use crate::sessions::{Role, Sessions, TOKEN_LIFE, make_token, no_state, wall};

/// How long to wait for a helper that did not answer.
const RETRY: Duration = Duration::from_secs(60);

/// The arguments of `linerate-web`.
#[derive(Parser)]
#[command(
    name = "linerate-web",
    version,
    about = "A page about the WireGuard tunnels of this host and their clients.",
    long_about = "A page about the WireGuard tunnels of this host and their clients: live rates, a month of history, \
        what `linerate doctor` finds, QR codes, and, where that is allowed, all changes of clients.\n\n\
        It runs as a user of its own and asks `linerate web-helper`, which runs as root, for the little that it may \
        know. It is off until somebody starts it, listens on this host only, and has no password: `linerate-web token` \
        prints a token that is good for one log-in.",
    after_long_help = "EXAMPLES\n\
        \x20 sudo systemctl enable --now linerate-web    http://127.0.0.1:7789\n\
        \x20 sudo linerate-web token                     a token to log in with\n\
        \x20 ssh -L 7789:127.0.0.1:7789 SERVER           the page of a server, on this machine\n\n\
        /usr/share/doc/linerate-web/web.md.gz has more: TLS, proxies, the page inside the tunnel."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the page
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate-web serve\n\
        \x20 linerate-web serve --listen 10.0.0.1:7789\n\
        \x20 linerate-web serve --behind-proxy 127.0.0.1 --name www.example.org --path /wg/\n\
        \x20 linerate-web serve --listen 0.0.0.0:443 --name vpn.example.org --tls-certificate CERT --tls-key KEY")]
    Serve(Serve),

    /// Print a token to log in with
    ///
    /// The token works once, within a quarter of an hour. Its session lasts twelve hours, or 30 days if the browser
    /// keeps it.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate-web token\n\
        \x20 sudo linerate-web token --read-only")]
    Token {
        /// Only to look: not to change clients nor to see their keys
        #[arg(long)]
        read_only: bool,

        #[command(flatten)]
        state: State,
    },

    /// End all sessions, including those kept on browsers
    ///
    /// To use the page again, log in with a new token.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate-web logout --all")]
    Logout {
        /// All of them; the page can end single ones
        #[arg(long, required = true)]
        all: bool,

        #[command(flatten)]
        state: State,
    },

    /// Write the manual pages to a directory
    #[command(hide = true)]
    Man {
        /// Existing directory
        directory: PathBuf,
    },

    /// Print the completions of a shell
    #[command(hide = true)]
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
}

#[derive(Args)]
struct State {
    /// Folder of sessions and history
    #[arg(long = "state", value_name = "FOLDER", default_value = "/var/lib/linerate-web")]
    folder: PathBuf,
}

#[derive(Args)]
struct Serve {
    /// Address and port, or unix:/PATH for a socket that only this user may use
    ///
    /// An address that is neither of this host's loopback nor of a running tunnel needs TLS or --behind-proxy.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7789")]
    listen: Listen,

    /// Another host name that the page answers to
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,

    /// Certificates in PEM, the server's first
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// Private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Address of the proxy in front of this: it alone is served, and believed in X-Forwarded-For and X-Forwarded-Proto
    #[arg(long, value_name = "ADDRESS", conflicts_with = "tls_key")]
    behind_proxy: Option<IpAddr>,

    /// Path below which a proxy has the page, as in /wg/
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: Mount,

    /// Socket of the helper
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    helper: PathBuf,

    #[command(flatten)]
    state: State,
}

fn main() -> ExitCode {
    linerate_cli::begin();
    match Arguments::try_parse() {
        Ok(arguments) => linerate_cli::exit("linerate-web", run(arguments.command)),
        Err(error) => linerate_cli::refuse_arguments(&error),
    }
}

fn run(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::Serve(arguments) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| format!("cannot start: {error}"))?.block_on(serve(&arguments))
        }
        Command::Token { read_only, state } => token(&state.folder, read_only),
        Command::Logout { state, .. } => {
            become_owner(&state.folder)?;
            let ended = sessions::end_all(&state.folder, wall())?;
            eprint_line(&format!("{ended} session{} ended", if ended == 1 { "" } else { "s" }));
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { directory } => {
            documents::write_pages(Arguments::command(), "1", &directory).map(|()| ExitCode::SUCCESS)
        }
        Command::Completions { shell } => documents::print_completions(Arguments::command(), shell),
    }
}

fn token(state: &Path, read_only: bool) -> Result<ExitCode, String> {
    let role = if read_only { Role::Reader } else { Role::Writer };
    become_owner(state)?;
    let token = make_token(state, role, wall())?;
    let minutes = TOKEN_LIFE.as_secs() / 60;
    eprint_line(&format!("good for one log-in within {minutes} minutes:"));
    print(zeroize::Zeroizing::new(format!("{}\n", *token)).as_bytes())
}

/// Root becomes the user of the page: what that user has put into its folder, such as a link to elsewhere, is followed
/// with its rights, not with root's.
fn become_owner(state: &Path) -> Result<(), String> {
    let owner = fs::metadata(state).map_err(|error| no_state(state, &error))?;
    if owner.uid() == 0 || !geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
    // There is one thread.
    set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid))
        .map_err(|error| format!("cannot become user {}, whose {} is: {error}", owner.uid(), state.display()))
}

async fn serve(arguments: &Serve) -> Result<ExitCode, String> {
    let state = &arguments.state.folder;
    let sessions = Sessions::open(state, wall())?;
    let histories = Histories::open(state).map_err(|error| format!("cannot use {}: {error}", state.display()))?;
    let tls = match (&arguments.tls_certificate, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(tls(certificate, key)?),
        _ => None,
    };
    let address = match &arguments.listen {
        Listen::Tcp(address) => Some(*address),
        Listen::Unix(_) => None,
    };
    let server = Arc::new(Server {
        helper: Helper::new(&arguments.helper),
        sessions: Mutex::new(sessions),
        guard: Mutex::new(Guard::default()),
        recorder: Mutex::new(Recorder::new(Path::new(INTERFACES), histories)),
        hosts: Hosts::new(address, &arguments.names),
        proxy: arguments.behind_proxy,
        mount: arguments.path.clone(),
        zone: TimeZone::system(),
    });
    if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
        let tunnels = match tls.is_some() || arguments.behind_proxy.is_some() {
            true => Vec::new(),
            false => addresses_of_tunnels(&server.helper).await?,
        };
        listen::check(address.ip(), tls.is_some(), arguments.behind_proxy, &tunnels)?;
    }
    match &arguments.listen {
        Listen::Tcp(address) => {
            let failed = |error| format!("cannot listen on {address}: {error}");
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let scheme = if tls.is_some() { "https" } else { "http" };
            eprint_line(&format!(
                "linerate-web: {scheme}://{address}/ (`linerate-web token' prints a token to log in)"
            ));
            tokio::spawn(record(server.clone()));
            accept_tcp(&listener, server, tls).await
        }
        Listen::Unix(path) => {
            let failed = |error| format!("cannot listen on {}: {error}", path.display());
            let listener = bind(path).map_err(failed)?;
            eprint_line(&format!("linerate-web: {}", path.display()));
            tokio::spawn(record(server.clone()));
            accept_unix(&listener, server).await
        }
    }
}

fn tls(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let unreadable = |path: &Path| {
        let path = path.display().to_string();
        move |error| format!("cannot read {path}: {error}")
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(unreadable(certificate))?;
    if chain.is_empty() {
        return Err(format!("{} has no certificate in PEM", certificate.display()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable(key))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, private);
    let mut config = config.map_err(|error| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("cannot serve the first certificate of {certificate} with the key in {key}: {error}")
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The addresses of tunnels, where what is sent is encrypted already.
async fn addresses_of_tunnels(helper: &Helper) -> Result<Vec<IpAddr>, String> {
    match helper.ask(&Request::Tunnels).await? {
        Reply::Tunnels { tunnels, .. } => {
            let all = tunnels.iter().flat_map(|tunnel| &tunnel.addresses);
            Ok(all.filter_map(|address| address.split('/').next()?.parse().ok()).collect())
        }
        Reply::Refused { message } => Err(message),
        _ => Err("the helper is of another version: restart it".to_owned()),
    }
}

/// A socket for this user alone. One that an earlier run left is replaced.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(std::io::ErrorKind::AddrInUse.into());
    }
    if fs::symlink_metadata(path).is_ok_and(|there| std::os::unix::fs::FileTypeExt::is_socket(&there.file_type())) {
        fs::remove_file(path)?;
    }
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener
}

/// Writes the histories. The helper is asked only when interfaces come or go.
async fn record(server: Arc<Server>) {
    let mut asked: Option<Instant> = None;
    let mut is_known = false;
    loop {
        let has_changed = locked(&server.recorder).has_changed();
        is_known &= !has_changed;
        if !is_known && (has_changed || asked.is_none_or(|then| then.elapsed() >= RETRY)) {
            asked = Some(Instant::now());
            if let Ok(Reply::Tunnels { tunnels, .. }) = server.helper.ask(&Request::Tunnels).await {
                server.follow(&tunnels);
                is_known = true;
            }
        }
        locked(&server.recorder).read(Instant::now(), wall());
        sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_and_command_has_help() {
        documents::assert_documented(Arguments::command());
    }
}
