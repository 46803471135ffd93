//! `server init`.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};
use linerate_cli::{eprint_line, print};
use linerate_control::document::{Document, Setting};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::SecretKey;
use linerate_control::printable::printable;
use linerate_control::tunnel_file::{PublicEndpoint, settings};
use linerate_host::plan::{Plan, messages};
use linerate_netio::random;
use linerate_server::init::{self, Chance, Facts, InitError, NewServer, Wishes, list};
use linerate_tunnel::Interruption;
use linerate_tunnel::server::{self, Made, Runs};
use linerate_wg::keys;
use serde::{Deserialize, Serialize};

use super::{Verbosity, ask, json, options, somebody_is_there};
use crate::cli::{CliError, interruption};

pub(super) const HELP: &str = "EXAMPLES\n\
    \x20 A server on this host, and its first client:\n\
    \x20   sudo linerate server init\n\
    \x20   sudo linerate client add laptop\n\n\
    \x20 At home, behind a router that forwards UDP port 51820 to this host:\n\
    \x20   sudo linerate server init --endpoint home.example.com\n\n\
    \x20 What it would do, without doing it:\n\
    \x20   sudo linerate server init --dry-run\n\n\
    ANSWERS\n\
    --answers takes a file of JSON with any of these, named as the options; options take precedence:\n\n\
    \x20 {\n\
    \x20   \"endpoint\": \"vpn.example.com:51820\",\n\
    \x20   \"port\": 51820,\n\
    \x20   \"pool\": \"10.83.12.0/24\",\n\
    \x20   \"prefix6\": \"2001:db8:5:1::/64\",\n\
    \x20   \"ipv6\": true,\n\
    \x20   \"masquerade\": \"ipv4\",\n\
    \x20   \"fixFirewall\": true,\n\
    \x20   \"dns\": [\"9.9.9.9\", \"2620:fe::fe\"],\n\
    \x20   \"clientAllowedIps\": [\"0.0.0.0/0\", \"::/0\"],\n\
    \x20   \"clientMtu\": 1380,\n\
    \x20   \"clientKeepalive\": 25,\n\
    \x20   \"start\": true\n\
    \x20 }\n\n\
    FILES\n\
    \x20 /etc/wireguard/NAME.conf               the server and its clients\n\
    \x20 /var/lib/linerate/NAME.server.json     what `init` or `import` made, for `remove`\n\
    \x20 /var/lib/linerate/local-prefix         this host's unique local prefix, as long as there is a server";

#[derive(clap::Args)]
pub(crate) struct InitArguments {
    /// Interface of the server; its file is /etc/wireguard/NAME.conf
    #[arg(default_value = "wg0")]
    name: InterfaceName,

    /// Where clients reach this host: a name or an address, with a port if a router forwards another one
    #[arg(long, value_name = "HOST[:PORT]")]
    endpoint: Option<PublicEndpoint>,

    /// UDP port to listen on (default: 51820, or the next one that is free)
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Network for the clients' IPv4 addresses (default: a random free /24 of 10.0.0.0/8)
    #[arg(long, value_name = "NETWORK")]
    pool: Option<Ipv4Net>,

    /// Network for the clients' IPv6 addresses, or one to take a /64 of (default: see above)
    #[arg(long, value_name = "NETWORK", conflicts_with = "no_ipv6")]
    prefix6: Option<Ipv6Net>,

    /// No IPv6 in the tunnel
    #[arg(long)]
    no_ipv6: bool,

    /// The families whose addresses are translated (default: those whose networks are private)
    #[arg(long, value_parser = ["ipv4", "ipv6", "both", "off"])]
    masquerade: Option<String>,

    /// Open ways in firewalls of others (Docker, ufw, firewalld, iptables, nft) that drop what the server needs
    ///
    /// They are opened whenever the tunnel is up, and closed when it is not.
    #[arg(long)]
    fix_firewall: bool,

    #[command(flatten)]
    clients: ClientDefaults,

    /// Take what is not given as an option from a file of JSON, or with - from standard input
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,

    /// Write the file, and do not bring the tunnel up
    #[arg(long)]
    no_start: bool,

    /// Print the file and what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// Print the new server as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// Defaults of client files.
#[derive(clap::Args)]
pub(super) struct ClientDefaults {
    /// Name servers, and search domains, in client files; none: clients keep their own (default of `init`: those of this host)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    dns: Option<Vec<String>>,

    /// Networks that clients send into the tunnel (default: everything)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    client_allowed_ips: Option<Vec<String>>,

    /// MTU in client files (default: the client finds its own)
    #[arg(long, value_name = "BYTES")]
    client_mtu: Option<String>,

    /// Keepalive interval in client files
    #[arg(long, value_name = "SECONDS")]
    client_keepalive: Option<String>,
}

impl ClientDefaults {
    /// The settings that were given, with their values.
    pub(super) fn settings(&self) -> Vec<(Setting, String)> {
        let lists = [(settings::CLIENT_DNS, &self.dns), (settings::CLIENT_ALLOWED_IPS, &self.client_allowed_ips)];
        let lists = lists.into_iter().filter_map(|(setting, values)| Some((setting, list(values.as_deref()?))));
        let words = [(settings::CLIENT_MTU, &self.client_mtu), (settings::CLIENT_KEEPALIVE, &self.client_keepalive)];
        lists.chain(words.into_iter().filter_map(|(setting, word)| Some((setting, word.clone()?)))).collect()
    }

    fn or(self, other: Self) -> Self {
        Self {
            dns: self.dns.or(other.dns),
            client_allowed_ips: self.client_allowed_ips.or(other.client_allowed_ips),
            client_mtu: self.client_mtu.or(other.client_mtu),
            client_keepalive: self.client_keepalive.or(other.client_keepalive),
        }
    }
}

/// The file of `--answers`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Answers {
    endpoint: Option<String>,
    port: Option<u16>,
    pool: Option<String>,
    prefix6: Option<String>,
    ipv6: Option<bool>,
    masquerade: Option<String>,
    fix_firewall: Option<bool>,
    dns: Option<Vec<String>>,
    client_allowed_ips: Option<Vec<String>>,
    client_mtu: Option<u32>,
    client_keepalive: Option<u16>,
    start: Option<bool>,
}

pub(super) fn run(arguments: &InitArguments) -> Result<ExitCode, CliError> {
    let answers = arguments.answers.as_ref().map_or_else(|| Ok(Answers::default()), read_answers)?;
    let start = !arguments.no_start && answers.start != Some(false);
    let wishes = wishes(arguments, answers)?;
    let interruption = interruption()?;
    let context = arguments.verbosity.context(&interruption);
    let options = options()?;
    if !arguments.dry_run && server::clean_up(&arguments.name, keys::public_key, &options, context)? {
        eprint_line(&format!("{}: an interrupted command had left something; it is removed", arguments.name));
    }
    server::check_absent(&arguments.name)?;
    let server = decide(&arguments.name, wishes, &server::facts(&arguments.name)?, &interruption)?;
    let key = SecretKey::from_bytes(keys::private_key().as_bytes());
    let document = server.file(&key).map_err(|error| error.to_string())?;
    let plan = start.then(|| server::plan(&server, &document, &options)).transpose()?;
    if arguments.dry_run {
        return dry_run(&server, &document, plan.as_ref(), arguments.json);
    }
    let made = server::init(&server, &key, keys::public_key, start, &options, context)?;
    if let (Runs::Service(_), Some(plan)) = (&made.runs, &plan) {
        // The service has said so to its log.
        plan.warnings.iter().for_each(|warning| eprint_line(&format!("Warning: {warning}")));
    }
    let public_key = keys::public_key(&key).to_string();
    let view = View::new(&server, &public_key, &made);
    match arguments.json {
        true => Ok(print(&json(&view)?)?),
        false => Ok(print(view.text().as_bytes())?),
    }
}

fn read_answers(path: &PathBuf) -> Result<Answers, CliError> {
    let name = if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() };
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().read_to_string(&mut text),
        false => std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.map_err(|error| format!("cannot read {name}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{name}: {error}").into())
}

/// What the options say, else the answers.
fn wishes(arguments: &InitArguments, answers: Answers) -> Result<Wishes, CliError> {
    let number = |value: Option<u32>| value.map(|value| value.to_string());
    let of_answers = ClientDefaults {
        dns: answers.dns,
        client_allowed_ips: answers.client_allowed_ips,
        client_mtu: number(answers.client_mtu),
        client_keepalive: number(answers.client_keepalive.map(u32::from)),
    };
    let given = &arguments.clients;
    let clients = ClientDefaults {
        dns: given.dns.clone(),
        client_allowed_ips: given.client_allowed_ips.clone(),
        client_mtu: given.client_mtu.clone(),
        client_keepalive: given.client_keepalive.clone(),
    };
    let known = |word: &String| ["ipv4", "ipv6", "both", "off"].contains(&&**word);
    if let Some(other) = answers.masquerade.as_ref().filter(|word| !known(word)) {
        return Err(format!("masquerade is {other:?}; use ipv4, ipv6, both or off").into());
    }
    if answers.port == Some(0) {
        return Err("port is 0; use 1 to 65535".to_owned().into());
    }
    Ok(Wishes {
        endpoint: arguments.endpoint.clone().map_or_else(|| parsed("endpoint", answers.endpoint), |it| Ok(Some(it)))?,
        port: arguments.port.or(answers.port),
        pool: arguments.pool.map_or_else(|| parsed("pool", answers.pool), |it| Ok(Some(it)))?,
        prefix6: match arguments.no_ipv6 {
            true => None,
            false => arguments.prefix6.map_or_else(|| parsed("prefix6", answers.prefix6), |it| Ok(Some(it)))?,
        },
        ipv6: if arguments.no_ipv6 { Some(false) } else { answers.ipv6 },
        masquerade: arguments.masquerade.clone().or(answers.masquerade),
        fix_firewall: arguments.fix_firewall || answers.fix_firewall == Some(true),
        client_defaults: clients.or(of_answers).settings(),
    })
}

fn parsed<T: FromStr>(name: &str, text: Option<String>) -> Result<Option<T>, CliError>
where
    T::Err: std::fmt::Display,
{
    text.map(|text| text.parse().map_err(|error| format!("{name} is {text:?}: {error}").into())).transpose()
}

/// What the server is; the endpoint is asked for if it cannot be found and somebody is there.
fn decide(
    name: &InterfaceName,
    mut wishes: Wishes,
    facts: &Facts,
    interruption: &Interruption,
) -> Result<NewServer, CliError> {
    let chance = Chance::new(random::fill);
    match init::decide(name, &wishes, facts, chance) {
        Err(unknown @ InitError::NoPublicAddress { .. }) if somebody_is_there() => {
            eprint_line(&unknown.reason());
            wishes.endpoint = Some(ask_endpoint(interruption)?);
            init::decide(name, &wishes, facts, chance).map_err(|error| error.to_string().into())
        }
        decided => decided.map_err(|error| error.to_string().into()),
    }
}

fn ask_endpoint(interruption: &Interruption) -> Result<PublicEndpoint, CliError> {
    loop {
        let answer = ask("Name or address by which clients reach this host: ", interruption)?;
        match answer.as_deref().map(str::parse) {
            Some(Ok(endpoint)) => return Ok(endpoint),
            Some(Err(error)) => eprint_line(&format!("{error}")),
            None => return Err("no endpoint was given; nothing was done".to_owned().into()),
        }
    }
}

fn dry_run(server: &NewServer, document: &Document, plan: Option<&Plan>, as_json: bool) -> Result<ExitCode, CliError> {
    #[derive(Serialize)]
    struct DryRun<'a> {
        path: String,
        file: String,
        plan: Option<&'a Plan>,
        notes: &'a [String],
    }
    let mut document = document.clone();
    let section = document.interface();
    document.set(section, &settings::PRIVATE_KEY, "(a new key)")?;
    let path = format!("/etc/wireguard/{}.conf", server.interface);
    let file = String::from_utf8_lossy(&document.to_bytes()).into_owned();
    if as_json {
        return Ok(print(&json(&DryRun { path, file, plan, notes: &server.notes })?)?);
    }
    let mut text = format!("{path} would be:\n\n");
    for line in file.lines() {
        let _ = writeln!(text, "    {}", printable(line));
    }
    if let Some(plan) = plan {
        let _ = writeln!(text, "\nThen, to bring {} up:\n", server.interface);
        for (number, step) in plan.steps.iter().enumerate() {
            let _ = writeln!(text, "{:>4}. {}", number + 1, printable(&messages::describe(step)));
        }
        for warning in &plan.warnings {
            let _ = writeln!(text, "\nWarning: {}", printable(&warning.to_string()));
        }
    }
    for note in &server.notes {
        let _ = writeln!(text, "\nNote: {note}");
    }
    Ok(print(text.as_bytes())?)
}

/// The new server, as in the output of `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    name: &'a str,
    file: String,
    public_key: &'a str,
    endpoint: String,
    listen_port: u16,
    addresses: Vec<String>,
    pools: Vec<String>,
    client_dns: Option<String>,
    masquerade: &'a str,
    running: bool,
    service: Option<String>,
    notes: Vec<String>,
}

impl<'a> View<'a> {
    fn new(server: &'a NewServer, public_key: &'a str, made: &Made) -> Self {
        let name = server.interface.as_str();
        let mut notes = server.notes.clone();
        match &made.runs {
            Runs::Service(_) => {}
            Runs::Nothing => notes.push(format!("the tunnel is not up; `linerate up {name}' brings it up")),
            Runs::Daemon(missing) => {
                let why = missing.as_deref().unwrap_or("there is no service manager here");
                notes.push(format!(
                    "nothing starts the tunnel at boot: {why}. Have a start script run `linerate up {name}', or a \
                     supervisor `linerate up --supervise {name}'"
                ));
            }
        }
        Self {
            name,
            file: made.file.display().to_string(),
            public_key,
            endpoint: server.endpoint.with_port(server.port),
            listen_port: server.port,
            addresses: server.addresses().iter().map(ToString::to_string).collect(),
            pools: server.pools().iter().map(ToString::to_string).collect(),
            client_dns: server.name_servers().map(str::to_owned),
            masquerade: &server.masquerade,
            running: !matches!(made.runs, Runs::Nothing),
            service: if let Runs::Service(service) = &made.runs { Some(service.to_string()) } else { None },
            notes,
        }
    }

    fn text(&self) -> String {
        let Self { name, file, public_key, endpoint, .. } = self;
        let state = if self.running { "is up" } else { "is made" };
        let nat = match self.masquerade {
            "off" => "no address is translated".to_owned(),
            "both" => "their addresses are translated".to_owned(),
            family => format!("their {} addresses are translated", if family == "ipv6" { "IPv6" } else { "IPv4" }),
        };
        let mut text = format!("{name} {state}: clients reach it at {endpoint}\n\n");
        let rows = [
            ("file", file.clone()),
            ("public key", (*public_key).to_owned()),
            ("addresses", self.addresses.join(", ")),
            ("clients", format!("{}; {nat}", self.pools.join(", "))),
            ("their DNS", self.client_dns.clone().unwrap_or_else(|| "their own".to_owned())),
            (
                "run by",
                self.service.clone().unwrap_or_else(|| match self.running {
                    true => "a daemon".to_owned(),
                    false => "nothing yet".to_owned(),
                }),
            ),
        ];
        for (what, value) in rows {
            let _ = writeln!(text, "  {what:<12}{value}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nNote: {note}.");
        }
        let port = self.listen_port;
        let _ = writeln!(text, "\nIf a firewall filters what reaches this host, it has to let UDP port {port} in.");
        text.push_str("`linerate client add NAME' adds a client.\n");
        text
    }
}
