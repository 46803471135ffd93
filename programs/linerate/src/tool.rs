//! `linerate`, the tool: its arguments and the dispatch of its commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use linerate_cli::{documents, print};
use linerate_control::interface::InterfaceName;
use linerate_wg::keys;
use linerate_wg::show::{self, Field};

use crate::cli::CliError;
use crate::{client, events, metrics, names, top, tunnels};
#[cfg(target_os = "linux")]
use crate::{
    doctor,
    other_program::{self, FLEET, LAB, PROXY},
    ping, run, server, speed, web_helper,
};

/// The arguments of `linerate`.
#[derive(Parser)]
#[command(
    name = "linerate",
    version,
    about = "Bring up, inspect and measure WireGuard tunnels in user space.",
    long_about = "Bring up, inspect and measure WireGuard tunnels in user space.\n\n\
        `linerate up` starts the daemon linerated, which runs the tunnel. Its control socket is where \
        other WireGuard daemons have theirs and speaks the same protocol, so `wg` and `wg-quick` work with it.",
    after_long_help = "EXAMPLES\n\
        \x20 Generate a key pair that only you can read:\n\
        \x20   umask 077\n\
        \x20   linerate genkey > private.key\n\
        \x20   linerate pubkey < private.key > public.key\n\n\
        \x20 Bring up /etc/wireguard/wg0.conf, check it, apply changes of the file, take it down:\n\
        \x20   sudo linerate up wg0\n\
        \x20   sudo linerate status\n\
        \x20   sudo linerate reload wg0\n\
        \x20   sudo linerate down wg0\n\n\
        \x20 Try it on this machine alone (package linerate-lab):\n\
        \x20   linerate demo\n\n\
        \x20 Compare the WireGuard implementations on this machine (package linerate-lab):\n\
        \x20   linerate lab run --quick"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Add, change and remove the clients of a server
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate client add laptop phone --output /root/clients/\n\
        \x20 sudo linerate client list\n\
        \x20 sudo linerate client disable laptop\n\n\
        The server is that of the only file in /etc/wireguard with `#! PublicEndpoint`, or the one that --server names. \
        A change reaches the running tunnel at once, and disturbs nobody else.")]
    Client(client::ClientArguments),

    #[cfg(target_os = "linux")]
    /// Run a tunnel on this machine and show how fast it is (package linerate-lab)
    ///
    /// Runs `linerate-lab demo`.
    #[command(disable_help_flag = true)]
    Demo {
        /// The options of `linerate-lab demo`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },

    /// Follow what happens to tunnels and peers
    ///
    /// Prints a line for each handshake, for each peer that moves to another address, does not answer or answers again,
    /// expires, reaches its quota or is let in again, is added or removed, and for each tunnel that comes up, goes, or
    /// runs in another daemon. Asks the daemons every second which peers were active, and costs them nothing else.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate events\n\
        \x20 sudo linerate events wg0 --json | jq 'select(.event == \"silent\")'\n\n\
        JSON\n\
        \x20 Each line is an object with `time` (RFC 3339), `tunnel`, `event`, and of a peer its `publicKey` and its\n\
        \x20 `name`, if the tunnel's file has one. Events are:\n\
        \x20   handshake    `endpoint`\n\
        \x20   roam         `from`, `to`\n\
        \x20   silent       nothing has answered for 20 s what was sent; `lastReceived`\n\
        \x20   back         a silent peer is heard again, after `seconds`\n\
        \x20   expired, quota, letIn\n\
        \x20   added, removed\n\
        \x20   up, down     a tunnel came, or was taken down\n\
        \x20   died         its daemon has died, and nothing took the tunnel down\n\
        \x20   restarted    another daemon runs it\n\
        \x20   unreadable   `reason`")]
    Events(events::EventsArguments),

    /// Generate a private key
    ///
    /// Prints a new private key in base64. Warns if standard output is a file that everyone can read.
    #[command(after_long_help = "EXAMPLE\n  umask 077; linerate genkey > private.key")]
    Genkey,

    /// Generate a preshared key
    ///
    /// Prints 32 random bytes in base64. Both peers of a pair use the same preshared key; it protects today's
    /// traffic from future quantum computers.
    #[command(after_long_help = "EXAMPLE\n  umask 077; linerate genpsk > preshared.key")]
    Genpsk,

    /// Print the public key of the private key on standard input
    #[command(after_long_help = "EXAMPLE\n  linerate pubkey < private.key")]
    Pubkey,

    /// Show tunnels: peers, handshakes, traffic
    ///
    /// Prints the same as `wg show`, for tunnels of the kernel module and of user-space daemons (linerated,
    /// wireguard-go and others).
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate show                    all tunnels, for people\n\
        \x20 linerate show interfaces         their names on one line\n\
        \x20 linerate show wg0 transfer       one value per peer, for scripts\n\
        \x20 linerate show wg0 --json         everything, for programs\n\
        \x20 linerate show wg0 --stats        reasons of dropped packets, and other counters\n\n\
        ENVIRONMENT\n\
        \x20 WG_COLOR_MODE   always or never (default: colours on terminals only)\n\
        \x20 WG_HIDE_KEYS    never: show private and preshared keys (default: hidden, also in --json)")]
    Show(ShowArguments),

    /// Write what runs for Prometheus: once, to a file, or served
    ///
    /// Prints the metrics of all tunnels, in the names of prometheus_wireguard_exporter, for which most dashboards are
    /// made, and in our own: drops by reason, handshakes, wake-ups, offloads in use, quotas, ends.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate metrics\n\
        \x20 sudo linerate metrics --output /var/lib/prometheus/node-exporter/linerate.prom\n\
        \x20 sudo linerate metrics --listen 127.0.0.1:9586\n\
        \x20 sudo linerate metrics --listen unix:/run/linerate/metrics.sock\n\
        \x20 sudo linerate metrics --dialect mdlayher,linerate --no-peers\n\n\
        The units linerate-metrics.service (served) and linerate-metrics-file.timer (a file every 15 seconds) do that. \
        A dashboard for Grafana is in /usr/share/linerate/grafana.")]
    Metrics(metrics::MetricsArguments),

    /// Run a command of wg
    ///
    /// Supports all commands of `wg` (wireguard-tools 1.0.20260223), for tunnels of user-space daemons and of the
    /// kernel module. A link to linerate named `wg` does the same. `linerate wg help` lists the commands.
    #[command(
        disable_help_flag = true,
        after_long_help = "EXAMPLES\n\
        \x20 linerate wg set wg0 peer KEY allowed-ips +10.0.0.7/32\n\
        \x20 linerate wg syncconf wg0 wg0.conf\n\
        \x20 linerate wg show all --json\n\n\
        ENVIRONMENT\n\
        \x20 WG_COLOR_MODE   always or never (default: colours on terminals only)\n\
        \x20 WG_HIDE_KEYS    never: show private and preshared keys (default: hidden)\n\
        \x20 WG_ENDPOINT_RESOLUTION_RETRIES\n\
        \x20                 how often to retry a failed lookup: a number or infinity (default: 15)"
    )]
    Wg {
        /// The command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },

    #[cfg(target_os = "linux")]
    /// Run a command of wg-quick
    ///
    /// Supports all commands of `wg-quick` (wireguard-tools 1.0.20260223) with the same files, and runs tunnels in
    /// linerated. A link to linerate named `wg-quick` does the same.
    #[command(
        disable_help_flag = true,
        after_long_help = "EXAMPLES\n\
        \x20 linerate wg-quick up wg0\n\
        \x20 linerate wg-quick --kernel up ./wg0.conf\n\n\
        ENVIRONMENT\n\
        \x20 WG_QUICK_BACKEND   where to run tunnels: kernel for the kernel module, or user for linerated (the default)\n\
        \x20 WG_QUICK_USERSPACE_IMPLEMENTATION\n\
        \x20                    daemon to start (default: the linerated beside this program)\n\
        \x20 LINERATE_USER      user to run linerated as once the tunnel is set up\n\
        \x20 LINERATE_SPIN      how long linerated looks for packets before it sleeps, see linerated(8)"
    )]
    WgQuick {
        /// The command and its file
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },

    /// Bring a tunnel up
    ///
    /// Either the tunnel comes up, or the host is left as it was. It also comes up when a route exists already or a
    /// host name does not resolve yet.
    ///
    /// Each tunnel needs a name of its own, also among network namespaces that share /run.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate plan wg0            what it would do, and conflicts\n\
        \x20 linerate up wg0              /etc/wireguard/wg0.conf\n\
        \x20 linerate up ./home.conf      another file; the interface is `home`\n\n\
        linerate.conf(5) describes the file: the format of wg-quick with additional settings.")]
    Up(tunnels::UpArguments),

    /// Take a tunnel down
    ///
    /// Undoes `up`, even if the file was changed or removed, or the interface was renamed or moved to another network
    /// namespace. Leaves a daemon alone that `up` did not start, unless it has the private key of the file.
    Down(tunnels::TunnelArguments),

    /// Apply a changed file to a running tunnel without dropping sessions
    ///
    /// Compares the file with its last applied version and applies only the difference: peers, addresses, routes,
    /// name servers, MTU. Changes made by hand, and settings that the file does not contain, stay. No hooks are run.
    ///
    /// Changes of hooks, User and Spin take effect at the next `up`, and `reload` says so. A tunnel that gets its first
    /// quota by `reload` forgets what clients have used when its daemon restarts, until the next `up`.
    Reload(tunnels::ReloadArguments),

    /// Save the running state of a tunnel to its file
    ///
    /// Comments, names, the order of lines and everything else that only the file contains stay.
    Save {
        /// Interface with the file /etc/wireguard/NAME.conf, or the path of another file NAME.conf
        #[arg(value_name = "NAME")]
        name: String,
    },

    #[cfg(target_os = "linux")]
    /// Run a command in a tunnel and nowhere else, without root
    ///
    /// The command has a network of its own, in which there is the tunnel alone: what the tunnel does not carry goes nowhere,
    /// also while the peer is silent and after the tunnel's daemon has died. Names are looked up by the servers of the file
    /// (DNS), or not at all. The host's own network, its interfaces, routes and name servers stay as they are.
    ///
    /// The command has the user, the files, the environment and the terminal that it has elsewhere. The tunnel ends with it,
    /// and leaves nothing.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate run work -- curl https://intranet.example/\n\
        \x20 linerate run ./work.conf -- ssh host.internal\n\
        \x20 linerate run work -- bash              a shell, all of whose programs are in the tunnel\n\n\
        WHAT IT NEEDS\n\
        User namespaces for ordinary users, and /dev/net/tun for them. Where a system forbids one, it says so, and what to \
        do. docs/no-root.md has the systems.\n\n\
        WHAT IS DIFFERENT IN THERE\n\
        Files of other users belong to nobody, and programs that become another user (sudo, su) do not work. Services \
        of the host are reached over sockets that are files (D-Bus, a running browser), and what they do for the command is \
        not in the tunnel: start a browser with a profile of its own. Ports of the host's 127.0.0.1 are not reached.\n\n\
        What the command leaves running when it ends has no network any more.\n\n\
        EXIT STATUS\n\
        That of the command; 125 if there is no tunnel, 126 if the command cannot be executed, 127 if it is not found.\n\n\
        ENVIRONMENT\n\
        \x20 XDG_CONFIG_HOME   where linerate/NAME.conf is looked for (default: ~/.config)\n\
        \x20 LINERATE_LOG_LEVEL\n\
        \x20                   error, info or debug: the daemon logs to standard error, beside the command;\n\
        \x20                   debug says whether the peer answers, where nothing gets through\n\
        \x20 WG_QUICK_USERSPACE_IMPLEMENTATION\n\
        \x20                   the linerated to start (default: the one beside this program)\n\n\
        SEE ALSO\n\
        linerate.conf(5), linerated(8)")]
    Run(run::RunArguments),

    /// Show what `up` would do, including conflicts, without changing anything
    Plan(tunnels::PlanArguments),

    /// Show whether tunnels and their peers work
    ///
    /// Exits with 1 if a tunnel is named and not running, or if a tunnel cannot be queried; see also --check.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 linerate status\n\
        \x20 linerate status wg0 --check || echo 'wg0 needs help'\n\
        \x20 linerate status --json")]
    Status(tunnels::StatusArguments),

    #[cfg(target_os = "linux")]
    /// Make, show, change and remove a server for WireGuard clients
    #[command(
        subcommand_required = true,
        arg_required_else_help = true,
        after_long_help = "EXAMPLES\n\
        \x20 sudo linerate server init        a server on this host, from nothing\n\
        \x20 sudo linerate client add NAME    its clients\n\
        \x20 sudo linerate server show        how it is"
    )]
    Server {
        #[command(subcommand)]
        command: server::Command,
    },

    #[cfg(target_os = "linux")]
    /// Measure the handshake with a peer, and round trips through the tunnel
    ///
    /// Sends ICMP echo requests through the tunnel of the peer, whatever the routes say, and prints with each answer
    /// which endpoint the peer has. Exits with 1 if there was no answer.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate ping laptop\n\
        \x20 sudo linerate ping 10.0.0.1 --count 0 --interval 0.2\n\
        \x20 sudo linerate ping laptop --json")]
    Ping(ping::PingArguments),

    #[cfg(target_os = "linux")]
    /// Measure how fast the tunnel to a peer is, and say what bounds it
    ///
    /// Loads the tunnel for some seconds each way, with one TCP stream, and prints the throughput, what was lost and sent
    /// again, round trips at rest and under load, the largest packet that passes, and in one sentence what bounds it,
    /// with the figures behind it. The other end has to answer: with this command and --listen, or else iperf3.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 At the other end, whose interface is wg0; or `iperf3 -s` there:\n\
        \x20   sudo linerate speed --listen wg0\n\
        \x20 Here:\n\
        \x20   sudo linerate speed server\n\
        \x20   sudo linerate speed 10.0.0.1 --seconds 8 --json\n\n\
        THE OTHER END\n\
        With --listen it answers for ten minutes, only through the tunnel, on the tunnel's own addresses, TCP and UDP port \
        5282, up to 4 connections of at most 10 seconds, all together no faster than --rate. It keeps no rights but to \
        answer and to read what the machine does. iperf3 does not tell what the machine there does, so the verdict is \
        about this end and the way between.\n\n\
        JSON\n\
        An object with `tunnel`, `peer`, `address`, `by` (linerate, iperf3), `mtu` (`interface`, `passes` in bytes), \
        `atRest` (milliseconds), `send` and `receive`, and `verdict`. Each way has `megabitsPerSecond`, `bytes`, `seconds`, \
        `segments`, `retransmitted`, `lost` (share of datagrams), `underLoad` (milliseconds), `here` and `there` (what the \
        machines did) and `bottleneck` (`says`, `because`). What is not known is null.")]
    Speed(speed::SpeedArguments),

    #[cfg(target_os = "linux")]
    /// Say what is wrong with tunnels, why, and what mends it
    ///
    /// Looks for the causes of missing handshakes, of traffic that does not pass and of slowness: in the daemon's counters,
    /// in the host's routes, firewall and settings, and by echo requests through the tunnel. Changes nothing. Exits with 1
    /// if a finding is an error. With --security, shows how far the daemon and the supervisor are confined (user,
    /// capabilities, system calls, files and memory), and whether a kill switch and a gateway's rules are in force.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate doctor\n\
        \x20 sudo linerate doctor wg0 --json\n\
        \x20 sudo linerate doctor --bundle report.tar.gz\n\
        \x20 sudo linerate doctor --security wg0\n\n\
        FINDINGS\n\
        Each has an identifier that never changes, such as no-handshake-nothing-arrives, and a severity: error, \
        warning or note. docs/doctor.md lists them with their evidence. The JSON is an object with `tunnels` (names) \
        and `findings`, each with `id`, `severity`, `tunnel`, `peer`, `what`, `why` and `remedy`.")]
    Doctor(doctor::DoctorArguments),

    /// Supervise a tunnel in the background (started by `up`)
    #[command(hide = true)]
    Supervise {
        /// Interface to supervise
        interface: InterfaceName,
    },

    /// Resolve host names from standard input, without privileges
    #[command(hide = true)]
    Resolve,

    /// Watch tunnels and peers live
    ///
    /// Shows tunnels and peers on the whole terminal: who has traffic and how much, when each peer was last heard, what
    /// is dropped and why, and the processor time of the daemons. Reads what has changed, every second.
    #[command(after_long_help = "EXAMPLES\n\
        \x20 sudo linerate top\n\
        \x20 sudo linerate top wg0 --delay 5\n\
        \x20 sudo linerate top --batch -n 2      two updates: only the second one has rates\n\
        \x20 sudo linerate top --json | jq '.tunnels[].peers[] | select(.rates.received > 1e6) | .name'\n\n\
        KEYS\n\
        \x20 q            quit\n\
        \x20 h            help\n\
        \x20 arrows, PgUp, PgDn, Home, End\n\
        \x20 /            only peers with this in their name, key, address or tunnel\n\
        \x20 s, r         sort by another column; reverse\n\
        \x20 i            leave out peers without traffic\n\
        \x20 p            pause\n\
        \x20 Ctrl-L, Ctrl-Z\n\n\
        RX and TX are bits per second, with what WireGuard adds to packets. A peer in red does not answer what is sent \
        to it; one in magenta is not let in.\n\n\
        JSON\n\
        \x20 Each update is an object on a line, with `time` and `tunnels`. A tunnel has `interface`,\n\
        \x20 `implementation` (daemon, kernel, gone, unknown), `problem`, `file`, `publicKey`, `listenPort`,\n\
        \x20 `fwmark`, `daemon` (`pid`, `cpuTime` in seconds, `cpu` as the share of a core since the last update),\n\
        \x20 `counters` (`name`, `value`, `perSecond`) and `peers`. A peer has `publicKey`, `name`, `allowedIps`,\n\
        \x20 `persistentKeepalive`, `endpoint`, `lastHandshake`, `lastReceived`, `unansweredSince`, `received` and\n\
        \x20 `sent` in bytes, `rates` (`received`, `sent`, in bytes per second), `expires`, `quota`, `quotaUsed`,\n\
        \x20 `rate` (`down`, `up`, in bits per second) and `suspended` (expired, quota). Times are those of RFC 3339; what is not\n\
        \x20 known or not set is left out.\n\n\
        ENVIRONMENT\n\
        \x20 NO_COLOR     no colours, whatever its value")]
    Top(top::TopArguments),

    #[cfg(target_os = "linux")]
    /// Answer the page's questions (for linerate-web)
    #[command(hide = true)]
    WebHelper(web_helper::HelperArguments),

    /// Print the version
    Version,

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

    /// Print the names that shells complete, one on each line, or nothing
    #[command(hide = true)]
    Names {
        /// Whose names
        what: names::What,

        /// The server of the clients (default: the only one)
        server: Option<String>,
    },

    #[cfg(target_os = "linux")]
    /// Measure and compare the WireGuard implementations on this machine (package linerate-lab)
    ///
    /// Runs `linerate-lab`. `linerate lab help` lists its commands.
    #[command(disable_help_flag = true)]
    Lab {
        /// The command of linerate-lab and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },

    #[cfg(target_os = "linux")]
    /// Share one set of peers among gateways, which take over from each other (package linerate-fleet)
    ///
    /// Runs `linerate-fleet`. `linerate fleet --help` has its commands.
    #[command(disable_help_flag = true)]
    Fleet {
        /// The command of linerate-fleet and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },

    #[cfg(target_os = "linux")]
    /// Use a tunnel without root: SOCKS5, HTTP, forwards (package linerate-proxy)
    ///
    /// Runs `linerate-proxy`. `linerate proxy --help` has its options.
    #[command(disable_help_flag = true)]
    Proxy {
        /// The tunnel's file and the options of linerate-proxy
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
}

#[derive(clap::Args)]
struct ShowArguments {
    /// Interface, `all`, or `interfaces` for only the names
    #[arg(default_value = "all")]
    interface: String,

    /// Print only this value, tab-separated, for scripts
    #[arg(conflicts_with_all = ["json", "stats"])]
    field: Option<Field>,

    /// Print as JSON, with the fields of wg-json (contrib/json of wireguard-tools)
    #[arg(long)]
    json: bool,

    /// Print the daemon's counters (linerated only)
    #[arg(long)]
    stats: bool,
}

/// Runs the tool on this process's arguments.
pub fn main() -> ExitCode {
    match Arguments::try_parse() {
        Ok(arguments) => linerate_cli::exit("linerate", run(arguments)),
        Err(error) => linerate_cli::refuse_arguments(&error),
    }
}

fn run(arguments: Arguments) -> Result<ExitCode, String> {
    let Some(command) = arguments.command else {
        let help = Arguments::command().render_long_help();
        return print(help.to_string().as_bytes());
    };
    match command {
        Command::Client(arguments) => without_code(client::main(&arguments)),
        #[cfg(target_os = "linux")]
        Command::Demo { arguments } => other_program::run(LAB, std::iter::once("demo".into()).chain(arguments)),
        Command::Events(arguments) => events::main(&arguments),
        Command::Genkey => keys::genkey(),
        Command::Genpsk => keys::genpsk(),
        Command::Pubkey => keys::pubkey(),
        Command::Show(options) => {
            let selection = show::Selection::new(&options.interface, options.field, options.json, options.stats)?;
            show::main(&selection)
        }
        Command::Metrics(arguments) => metrics::main(&arguments),
        Command::Wg { arguments } => Ok(linerate_wg::wg::main("linerate wg", &arguments)),
        #[cfg(target_os = "linux")]
        Command::WgQuick { arguments } => Ok(crate::wg_quick::main("linerate wg-quick", &arguments)),
        Command::Up(arguments) => without_code(tunnels::up(&arguments)),
        Command::Down(arguments) => without_code(tunnels::down(&arguments)),
        Command::Reload(arguments) => without_code(tunnels::reload(&arguments)),
        Command::Save { name } => without_code(tunnels::save(&name)),
        #[cfg(target_os = "linux")]
        Command::Run(arguments) => Ok(run::main(&arguments)),
        Command::Plan(arguments) => without_code(tunnels::plan(&arguments)),
        Command::Status(arguments) => without_code(tunnels::status(&arguments)),
        #[cfg(target_os = "linux")]
        Command::Server { command } => without_code(server::run(&command)),
        #[cfg(target_os = "linux")]
        Command::Ping(arguments) => without_code(ping::main(&arguments)),
        #[cfg(target_os = "linux")]
        Command::Speed(arguments) => without_code(speed::main(&arguments)),
        #[cfg(target_os = "linux")]
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Supervise { interface } => without_code(tunnels::supervise(&interface)),
        Command::Resolve => tunnels::resolve(),
        Command::Top(arguments) => top::main(&arguments),
        #[cfg(target_os = "linux")]
        Command::WebHelper(arguments) => web_helper::main(&arguments),
        Command::Version => print(concat!("linerate ", env!("CARGO_PKG_VERSION"), "\n").as_bytes()),
        Command::Man { directory } => {
            documents::write_pages(Arguments::command(), "1", &directory).map(|()| ExitCode::SUCCESS)
        }
        Command::Completions { shell } => documents::print_completions(Arguments::command(), shell),
        Command::Names { what, server } => names::main(what, server.as_deref()),
        #[cfg(target_os = "linux")]
        Command::Lab { arguments } => other_program::run(LAB, arguments),
        #[cfg(target_os = "linux")]
        Command::Fleet { arguments } => other_program::run(FLEET, arguments),
        #[cfg(target_os = "linux")]
        Command::Proxy { arguments } => other_program::run(PROXY, arguments),
    }
}

/// Drops the exit code: only wg-quick exits with other codes than 1 after an error.
fn without_code(outcome: Result<ExitCode, CliError>) -> Result<ExitCode, String> {
    outcome.map_err(|error| error.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_and_command_has_help() {
        documents::assert_documented(Arguments::command());
    }

    #[test]
    fn every_command_that_is_not_hidden_has_a_manual_page() {
        let directory = std::env::temp_dir().join(format!("linerate-man-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        documents::write_pages(Arguments::command(), "1", &directory).unwrap();
        let entries = std::fs::read_dir(&directory).unwrap();
        let mut pages: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        pages.sort();
        std::fs::remove_dir_all(&directory).unwrap();
        let tunnels = ["down", "plan", "reload", "run", "save", "status", "up", "wg-quick"];
        let others = [
            "demo", "doctor", "events", "fleet", "genkey", "genpsk", "lab", "metrics", "ping", "proxy", "pubkey",
            "show", "speed", "top", "version", "wg",
        ];
        let servers = ["server", "server-import", "server-init", "server-remove", "server-set", "server-show"];
        let commands = tunnels.into_iter().chain(others).chain(servers);
        let mut expected: Vec<_> = commands.map(|name| format!("linerate-{name}.1")).collect();
        let of_client =
            ["add", "disable", "enable", "export", "list", "qr", "rekey", "remove", "rename", "renew", "set", "show"];
        expected.extend(of_client.map(|name| format!("linerate-client-{name}.1")));
        expected.push("linerate-client.1".into());
        expected.push("linerate.1".into());
        expected.sort();
        assert_eq!(pages, expected);
    }
}
