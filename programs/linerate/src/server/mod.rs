//! `server`: makes a server for WireGuard clients of this host, shows it, changes it, removes it.

mod import;
mod init;
mod pool;
mod remove;
mod set;
mod show;

use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use linerate_host::spec::Compat;
use linerate_tunnel::{self as tunnel, Context, Error, Interruption, Options};

use crate::cli::{CliError, Output};

/// The commands.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Make a server: keys, addresses, file, service
    ///
    /// Writes /etc/wireguard/NAME.conf and brings the tunnel up, as a service where there is a service manager. Either
    /// the server is complete, or the host is left as it was. What is not given is found or chosen: the endpoint is the
    /// address of the default route's interface if that is public, the port 51820 or the next free one, the clients'
    /// networks a random /24 of 10.0.0.0/8 and, if the host has IPv6, a /64 of a prefix that is routed to it or of its
    /// own random unique local prefix (RFC 4193). The server forwards for its clients and translates their private
    /// addresses. Only an endpoint that cannot be found is asked for, and only on a terminal.
    #[command(after_long_help = init::HELP)]
    Init(Box<init::InitArguments>),

    /// Take over the server of another tool, with its clients
    ///
    /// Reads what wireguard-install, PiVPN, wg-easy, wireguard-ui, WGDashboard, wg-quick, systemd-networkd or
    /// NetworkManager has left, and writes /etc/wireguard/NAME.conf. Keys and addresses stay, so the clients' files stay
    /// valid. Says of each client what was taken, changed and dropped, replaces the old tool's address translation and
    /// forwarding by settings of the file, and names what of the old tool remains on the host. Nothing is written before
    /// everything is read and valid; a file that is replaced is kept beside the new one.
    #[command(after_long_help = import::HELP)]
    Import(Box<import::ImportArguments>),

    /// Show servers: endpoint, networks, clients, service
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate server show\n\
        \x20 sudo linerate server show wg0 --json")]
    Show(show::ShowArguments),

    /// Change a server: endpoint, port, size of its networks, ways in firewalls, defaults of client files
    ///
    /// Edits the file, and the running tunnel follows without dropping a session. If the tunnel refuses the change, the
    /// file is as it was. `none` removes a default. After a change of port or endpoint it names the clients whose files
    /// have to change. Other settings are changed in the file, see linerate.conf(5) and linerate-reload(1).
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate server set --endpoint vpn.example.com\n\
        \x20 sudo linerate server set --port 443\n\
        \x20 sudo linerate server set --dns 9.9.9.9,2620:fe::fe --client-mtu none\n\
        \x20 sudo linerate server set --pool 10.83.0.0/16\n\
        \x20 sudo linerate server set --fix-firewall")]
    Set(Box<set::SetArguments>),

    /// Remove a server: exactly what `init` or `import` made
    ///
    /// Stops the service, takes the tunnel down and removes its file, keys included. The file that an import had replaced
    /// comes back; nothing else of the old tool is touched. Asks first on a terminal. A server with clients is only
    /// removed with --yes or after an answer.
    #[command(after_long_help = "EXAMPLE\n  sudo linerate server remove wg0")]
    Remove(remove::RemoveArguments),
}

pub(crate) fn run(command: &Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Init(arguments) => init::run(arguments),
        Command::Import(arguments) => import::run(arguments),
        Command::Show(arguments) => show::run(arguments),
        Command::Set(arguments) => set::run(arguments),
        Command::Remove(arguments) => remove::run(arguments),
    }
}

/// Whether steps are printed.
#[derive(clap::Args)]
struct Verbosity {
    /// Print every step as an equivalent command
    #[arg(short, long)]
    verbose: bool,
}

impl Verbosity {
    fn context<'a>(&self, interruption: &'a Interruption) -> Context<'a> {
        Context { reporter: if self.verbose { &Output::VERBOSE } else { &Output::QUIET }, interruption }
    }
}

fn options() -> Result<Options, CliError> {
    let implementation = tunnel::implementation(false)?;
    Ok(Options {
        compat: Compat::Native,
        implementation,
        user: None,
        hooks: true,
        fix_firewall: false,
        supervised: false,
    })
}

/// A value for programs.
fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, CliError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| format!("cannot write JSON: {error}"))?;
    text.push(b'\n');
    Ok(text)
}

/// Whether somebody can be asked: sees the question, and can answer.
fn somebody_is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The answer of whoever sits at the terminal, or none if that was Ctrl-D.
///
/// # Errors
/// A signal has come, such as that of Ctrl-C.
fn ask(question: &str, interruption: &Interruption) -> Result<Option<String>, CliError> {
    let cannot = |error: io::Error| CliError::from(format!("cannot ask: {error}"));
    let mut terminal = io::stderr();
    terminal.write_all(question.as_bytes()).and_then(|()| terminal.flush()).map_err(cannot)?;
    let stdin = io::stdin();
    interruption.pause(&[stdin.as_fd()], None).map_err(cannot)?;
    let mut answer = String::new();
    let interrupted = interruption.came();
    let length = if interrupted { 0 } else { stdin.lock().read_line(&mut answer).map_err(cannot)? };
    if length == 0 {
        // The question stays without the end of its line.
        terminal.write_all(b"\n").map_err(cannot)?;
    }
    if interrupted {
        return Err(Error::Interrupted.into());
    }
    Ok((length > 0).then(|| answer.trim().to_owned()))
}
