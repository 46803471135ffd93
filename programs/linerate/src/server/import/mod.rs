//! `server import`: reads what another tool has left, says what becomes of it, and writes the tunnel's file.
//!
//! The work is in `linerate_server::import`. This reads the files ([`sources`]), looks at the host ([`host`]), and
//! writes only after everything is read and valid.

mod host;
mod sources;
mod sqlite;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::builder::PossibleValuesParser;
use linerate_cli::print;
use linerate_control::interface::InterfaceName;
use linerate_control::printable::for_people;
use linerate_control::tunnel_file::PublicEndpoint;
use linerate_server::import::leftovers::Leftover;
use linerate_server::import::{self, Context, Import, Kind, Options, Remark, Remarks};
use linerate_tunnel::{Context as Tool, server};
use linerate_wg::keys;
use serde::Serialize;

use crate::cli::{CliError, Output, interruption};

pub(super) const HELP: &str = "KINDS AND WHAT TO NAME\n\
    \x20 angristan        /etc/wireguard\n\
    \x20 hwdsl2           /etc/wireguard, and the folder with the clients' files (also Nyr's script)\n\
    \x20 pivpn            /etc/wireguard /etc/pivpn/wireguard\n\
    \x20 wg-easy-14       its folder with wg0.json, and its environment:\n\
    \x20                  docker inspect -f '{{range .Config.Env}}{{println .}}{{end}}' wg-easy > wg-easy.env\n\
    \x20 wg-easy-15       its folder with wg-easy.db (needs the program sqlite3)\n\
    \x20 wireguard-ui     its folder db\n\
    \x20 wgdashboard      wg-dashboard.ini, its folder db and /etc/wireguard/wg0.conf (needs the program sqlite3)\n\
    \x20 wg-quick         /etc/wireguard/wg0.conf, and the clients' files\n\
    \x20 networkd         /etc/systemd/network, and the clients' files\n\
    \x20 networkmanager   /etc/NetworkManager/system-connections, and the clients' files\n\n\
    EXAMPLES\n\
    \x20 sudo linerate server import /etc/wireguard --dry-run\n\
    \x20 sudo systemctl disable --now wg-quick@wg0\n\
    \x20 sudo linerate server import /etc/wireguard\n\
    \x20 sudo systemctl enable --now linerate@wg0";

#[derive(clap::Args)]
pub(crate) struct ImportArguments {
    /// Folders and files of the other tool
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Kind of the files (default: recognised)
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::as_str)))]
    from: Option<String>,

    /// Say what would become of everything, and write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Interface of the server (default: that of the other tool); its file is /etc/wireguard/NAME.conf
    #[arg(long, value_name = "NAME")]
    name: Option<InterfaceName>,

    /// Where clients reach the server, if the files do not say it
    #[arg(long, value_name = "HOST[:PORT]")]
    endpoint: Option<PublicEndpoint>,

    /// Keep the clients' private keys, so that their files and QR codes can be made again
    #[arg(long)]
    keep_keys: bool,

    /// Leave address translation to the rules of the other tool that are still there
    #[arg(long)]
    keep_nat: bool,

    /// Open ways in firewalls of others (Docker, ufw, firewalld, iptables, nft) that drop what the server needs
    ///
    /// They are opened whenever the tunnel is up, and closed when it is not.
    #[arg(long)]
    fix_firewall: bool,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &ImportArguments) -> Result<ExitCode, CliError> {
    let interruption = interruption()?;
    let mut input = sources::read(&arguments.paths, &interruption)?;
    sources::add_key_files(&mut input);
    let error = |error: import::Error| error.to_string();
    let kind = match &arguments.from {
        Some(kind) => kind.parse().map_err(error)?,
        None => import::recognise(&input).map_err(error)?,
    };
    let own = arguments.name.as_ref().map(InterfaceName::as_str);
    let (uplinks, networks) = host::interfaces(own)?;
    let context = Context {
        public_key: &keys::public_key,
        input_is_closed: host::drops_unless_accepted("INPUT"),
        forward_is_closed: host::drops_unless_accepted("FORWARD"),
        uplinks: &uplinks,
        networks: &networks,
    };
    let mut import = import::read(kind, &input, &context).map_err(error)?;
    if arguments.endpoint.is_some() {
        import.endpoint.clone_from(&arguments.endpoint);
    }
    let leftovers = host::leftovers(&import, &input);
    if arguments.keep_nat {
        import.masquerade = [false; 2];
    }
    let interface = match &arguments.name {
        Some(name) => name.clone(),
        None => import.interface.parse().map_err(|error| format!("{error}; give it another with --name"))?,
    };
    let options =
        Options { now: SystemTime::now(), keep_keys: arguments.keep_keys, fix_firewall: arguments.fix_firewall };
    let text = import.to_bytes(&interface, &options).map_err(error)?;
    let target = PathBuf::from(format!("/etc/wireguard/{interface}.conf"));
    let report = Report::new(&import, &target, arguments, &leftovers);
    if !arguments.json {
        print(for_people(&report.for_people()).as_bytes())?;
    }
    let is_own = replaces_itself(&target, &input)?;
    if arguments.dry_run {
        return finish(arguments, &report, "Nothing was written (--dry-run).\n");
    }
    refuse_while_in_use(&interface, &import, &leftovers, arguments)?;
    let replaced = if is_own { Some(content_of(&target, &input)?) } else { None };
    let own_key = keys::public_key(&import.private_key);
    let tool = Tool { reporter: &Output::QUIET, interruption: &interruption };
    let kept = server::import(&interface, &text, &own_key, replaced, keys::public_key, tool)?;
    let mut said = format!("{} is written", target.display());
    if let Some(kept) = &kept {
        let _ = write!(said, ", and what was there is in {}", kept.display());
    }
    let _ = writeln!(
        said,
        ".\nNext: sudo systemctl enable --now linerate@{interface}   # or: sudo linerate up {interface}"
    );
    finish(arguments, &report, &said)
}

fn finish(arguments: &ImportArguments, report: &Report<'_>, said: &str) -> Result<ExitCode, CliError> {
    Ok(if arguments.json { print(&super::json(report)?)? } else { print(said.as_bytes())? })
}

/// Whether the file that would be written is one of those that are imported; another one is not overwritten.
fn replaces_itself(target: &Path, input: &import::Input) -> Result<bool, String> {
    let there = match fs::symlink_metadata(target) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(format!("{}: {error}", target.display())),
    };
    let same = |path: &str| fs::metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == (there.dev(), there.ino()));
    if there.is_file() && input.files.iter().any(|file| same(&file.path)) {
        return Ok(true);
    }
    Err(format!(
        "{} is there already and is none of the files that are imported; move it away, or choose another interface \
         with --name",
        target.display()
    ))
}

/// While the old tool runs the tunnel, only it can take down what it has set up; a rule of its own that stays would
/// translate addresses that the gateway translates, too.
fn refuse_while_in_use(
    interface: &InterfaceName,
    import: &Import,
    leftovers: &[Leftover],
    arguments: &ImportArguments,
) -> Result<(), String> {
    let mut names = vec![interface.as_str()];
    if !import.kind.is_in_container() && import.interface != interface.as_str() {
        names.push(&import.interface);
    }
    for name in names {
        if host::has_link(name) {
            return Err(format!(
                "{name} is up: take it down with the tool that brought it up, so that it also removes its rules (for \
                 example `systemctl disable --now wg-quick@{name}` or `wg-quick down {name}`), then import again"
            ));
        }
    }
    let nat: Vec<&Leftover> = leftovers.iter().filter(|leftover| leftover.is_nat).collect();
    if nat.is_empty() || arguments.keep_nat || import.gateway.is_none() {
        return Ok(());
    }
    let mut message =
        "addresses would be translated twice, because the old tool's rules are still there. Remove them:\n".to_owned();
    for leftover in nat {
        let _ = writeln!(message, "  # {}", leftover.what);
        for command in &leftover.commands {
            let _ = writeln!(message, "  {command}");
        }
    }
    message.push_str("Then import again; or add --keep-nat to leave the translation to them.");
    Err(message)
}

/// What was read of the file.
fn content_of<'a>(target: &Path, input: &'a import::Input) -> Result<&'a [u8], String> {
    let content = sources::contents(target)?;
    let read = input.files.iter().find(|file| file.bytes[..] == content[..]);
    read.map(|file| &file.bytes[..]).ok_or_else(|| format!("{} was changed meanwhile; import again", target.display()))
}

/// What is told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    kind: &'static str,
    #[serde(skip)]
    title: &'static str,
    interface: &'a str,
    file: String,
    dry_run: bool,
    addresses: Vec<String>,
    listen_port: Option<u16>,
    endpoint: Option<String>,
    #[serde(flatten)]
    server: Sentences<'a>,
    clients: Vec<ClientReport<'a>>,
    leftovers: Vec<LeftoverReport<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientReport<'a> {
    name: &'a str,
    old_name: &'a str,
    public_key: String,
    addresses: Vec<String>,
    enabled: bool,
    #[serde(flatten)]
    sentences: Sentences<'a>,
}

#[derive(Serialize)]
struct Sentences<'a> {
    taken: Vec<&'a str>,
    changed: Vec<&'a str>,
    dropped: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LeftoverReport<'a> {
    what: &'a str,
    commands: &'a [String],
    is_nat: bool,
}

impl<'a> Report<'a> {
    fn new(import: &'a Import, target: &Path, arguments: &ImportArguments, leftovers: &'a [Leftover]) -> Self {
        let texts = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect();
        let mut server = Sentences::new(&import.remarks);
        if !arguments.keep_keys && import.clients.iter().any(|client| client.private_key.is_some()) {
            server.dropped.push("the clients' private keys (--keep-keys keeps them)");
        }
        let client = |client: &'a import::Client| ClientReport {
            name: &client.name,
            old_name: &client.old_name,
            public_key: client.public_key.to_string(),
            addresses: texts(&client.allowed_ips),
            enabled: client.enabled,
            sentences: Sentences::new(&client.remarks),
        };
        let left =
            |left: &'a Leftover| LeftoverReport { what: &left.what, commands: &left.commands, is_nat: left.is_nat };
        Self {
            kind: import.kind.as_str(),
            title: import.kind.title(),
            interface: &import.interface,
            file: target.display().to_string(),
            dry_run: arguments.dry_run,
            addresses: texts(&import.addresses),
            listen_port: import.listen_port,
            endpoint: import.endpoint.as_ref().map(ToString::to_string),
            server,
            clients: import.clients.iter().map(client).collect(),
            leftovers: leftovers.iter().map(left).collect(),
        }
    }

    fn for_people(&self) -> String {
        let mut text = format!("From {}: {}, {}", self.title, self.interface, self.addresses.join(", "));
        if let Some(endpoint) = &self.endpoint {
            let _ = write!(text, ", reached at {endpoint}");
        }
        text.push('\n');
        self.server.write("  ", &mut text);
        let count = self.clients.len();
        let _ = writeln!(text, "\n{count} client{}:", if count == 1 { "" } else { "s" });
        for client in &self.clients {
            let _ = writeln!(text, "  {}{}", client.name, if client.enabled { "" } else { " (disabled)" });
            client.sentences.write("    ", &mut text);
        }
        if !self.leftovers.is_empty() {
            text.push_str("\nOf the old tool remains on this host:\n");
        }
        for leftover in &self.leftovers {
            let _ = writeln!(text, "  {}", leftover.what);
            for command in leftover.commands {
                let _ = writeln!(text, "    {command}");
            }
        }
        text.push('\n');
        text
    }
}

impl<'a> Sentences<'a> {
    fn new(remarks: &'a Remarks) -> Self {
        let of = |remark| remarks.of(remark).collect();
        Self { taken: of(Remark::Taken), changed: of(Remark::Changed), dropped: of(Remark::Dropped) }
    }

    fn write(&self, indent: &str, text: &mut String) {
        for (word, sentences) in [("taken", &self.taken), ("changed", &self.changed), ("dropped", &self.dropped)] {
            for sentence in sentences {
                let _ = writeln!(text, "{indent}{word:<7}  {sentence}");
            }
        }
    }
}
