//! `show`: what running tunnels say of themselves, in the exact form of `wg show`.
//!
//! Asks through the UAPI, never changes anything. [`human`] is for people, [`fields`] for scripts,
//! [`json`] for programs; [`counters`] is what only linerated tells.

mod counters;
mod fields;
mod human;
mod json;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_control::client::{AskError, Client};
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::response::{BadReply, DeviceState};
use linerate_control::uapi::socket;
use linerate_control::wiped::Buffer;

use super::{keys, print};
use crate::{Complaint, complain};

/// One value of each tunnel or of each of its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "each is named after the value")]
pub enum Field {
    PublicKey,
    PrivateKey,
    ListenPort,
    Fwmark,
    Peers,
    PresharedKeys,
    Endpoints,
    AllowedIps,
    LatestHandshakes,
    Transfer,
    PersistentKeepalive,
    Dump,
}

/// Which tunnels, and what of them.
pub struct Wanted {
    which: Which,
    form: Form,
}

enum Which {
    All,
    Names,
    One(InterfaceName),
}

enum Form {
    Human,
    Field(Field),
    Json,
    Counters,
    CountersJson,
}

impl Wanted {
    /// What the arguments of `show` ask for.
    ///
    /// # Errors
    /// The interface's name is none, or only the names are wanted but in a form that has no names.
    pub fn new(which: &str, field: Option<Field>, json: bool, stats: bool) -> Result<Self, Complaint> {
        let form = match field {
            Some(field) => Form::Field(field),
            None if stats && json => Form::CountersJson,
            None if stats => Form::Counters,
            None if json => Form::Json,
            None => Form::Human,
        };
        let which = match which {
            "all" => Which::All,
            "interfaces" if matches!(form, Form::Human) => Which::Names,
            "interfaces" => return Err("`show interfaces` takes nothing else: it prints the names".into()),
            name => Which::One(name.parse().map_err(|error| format!("{error}"))?),
        };
        Ok(Self { which, form })
    }
}

/// How to print, and whose tunnels.
pub struct View<'a> {
    /// Where the sockets are.
    pub directory: &'a Path,
    /// Seconds since 1970.
    pub now: u64,
    /// Whether people see colours.
    pub colour: bool,
    /// Whether people and programs see private and preshared keys.
    pub keys: bool,
}

/// Prints what is wanted of the tunnels of this machine.
pub(super) fn main(wanted: &Wanted) -> Result<ExitCode, Complaint> {
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    let colour = match variable("WG_COLOR_MODE") {
        mode if mode == "always" => true,
        mode if mode == "never" => false,
        _ => io::IsTerminal::is_terminal(&io::stdout()),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let view = View { directory: Path::new(socket::DIRECTORY), now, colour, keys: variable("WG_HIDE_KEYS") == "never" };
    let Shown { text, failures, any } = show(wanted, &view)?;
    failures.iter().for_each(|failure| complain(failure));
    let printed = print(&text)?;
    Ok(if any || failures.is_empty() { printed } else { ExitCode::FAILURE })
}

/// What `show` has to say.
pub struct Shown {
    /// For standard output.
    pub text: Buffer,
    /// For standard error: tunnels of `all` that did not answer.
    pub failures: Vec<Complaint>,
    /// Whether any tunnel did.
    pub any: bool,
}

/// Asks the tunnels and writes down what they say.
///
/// # Errors
/// The one tunnel that was asked for did not answer, or the sockets cannot be listed.
pub fn show(wanted: &Wanted, view: &View<'_>) -> Result<Shown, Complaint> {
    let mut shown = Shown { text: Buffer::new(), failures: Vec::new(), any: false };
    match &wanted.which {
        Which::Names => {
            let names: Vec<_> = running(view)?.into_iter().map(|(name, _)| name.to_string()).collect();
            if !names.is_empty() {
                shown.text.extend(names.join(" ").as_bytes());
                shown.text.extend(b"\n");
            }
        }
        Which::One(name) => {
            let client = Client::connect(view.directory, name).map_err(AskError::Io);
            let answer = client.and_then(|client| Answer::ask(client, &wanted.form));
            let answer = answer.map_err(|error| inaccessible(name, view.directory, error))?;
            shown.any = true;
            write(&mut shown.text, &wanted.form, vec![(name.clone(), answer)], false, view);
        }
        Which::All => {
            let mut answers = Vec::new();
            for (name, client) in running(view)? {
                let answer = client.map_err(AskError::Io);
                match answer.and_then(|client| Answer::ask(client, &wanted.form)) {
                    Ok(answer) => answers.push((name, answer)),
                    Err(error) => {
                        shown.failures.push(format!("Unable to access interface {name}: {}", reason(&name, error)))
                    }
                }
            }
            shown.any = !answers.is_empty();
            write(&mut shown.text, &wanted.form, answers, true, view);
        }
    }
    Ok(shown)
}

type Connection = io::Result<Client>;

/// The tunnels that have a daemon, in the directory's order; sockets that a dead one left behind are
/// passed over.
fn running(view: &View<'_>) -> Result<Vec<(InterfaceName, Connection)>, Complaint> {
    let directory = view.directory;
    let names = socket::interfaces(directory)
        .map_err(|error| format!("Unable to list interfaces: cannot read {}: {error}", directory.display()))?;
    let connected = names.into_iter().map(|name| {
        let client = Client::connect(directory, &name);
        (name, client)
    });
    let is_left_over = |client: &Connection| {
        let kind = client.as_ref().err().map(io::Error::kind);
        matches!(kind, Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
    };
    Ok(connected.filter(|(_, client)| !is_left_over(client)).collect())
}

enum Answer {
    State(DeviceState),
    Counters(Vec<(String, u64)>),
}

impl Answer {
    fn ask(mut client: Client, form: &Form) -> Result<Self, AskError> {
        match form {
            Form::Counters | Form::CountersJson => client.stats().map(Self::Counters),
            Form::Human | Form::Field(_) | Form::Json => client.get().map(Self::State),
        }
    }
}

fn write(text: &mut Buffer, form: &Form, answers: Vec<(InterfaceName, Answer)>, all: bool, view: &View<'_>) {
    let (mut states, mut counts) = (Vec::new(), Vec::new());
    for (name, answer) in answers {
        match answer {
            Answer::State(state) => states.push((name, state)),
            Answer::Counters(counters) => counts.push((name, counters)),
        }
    }
    let written = match form {
        Form::Human => human::write(text, &mut states, view),
        Form::Field(field) => fields::write(text, &states, *field, all),
        Form::Json => json::write(text, &states, view.keys),
        Form::Counters => counters::write(text, &counts),
        Form::CountersJson => counters::write_json(text, counts),
    };
    written.expect("a Buffer takes every write");
}

fn inaccessible(name: &InterfaceName, directory: &Path, error: AskError) -> Complaint {
    let kind = match &error {
        AskError::Io(error) => Some(error.kind()),
        AskError::Reply(_) => None,
    };
    let file = socket::path(directory, name);
    let file = file.display();
    match kind {
        Some(io::ErrorKind::NotFound) if Path::new("/sys/class/net").join(name.as_str()).exists() => {
            format!(
                "{name} has no daemon: there is no {file}. If it is a tunnel of the kernel's, use `wg show {name}`."
            )
        }
        Some(io::ErrorKind::NotFound) => {
            format!("there is no tunnel {name}. `linerate show interfaces` lists those there are.")
        }
        Some(io::ErrorKind::ConnectionRefused) => {
            format!("the daemon of {name} has ended and left {file} behind. Starting it again replaces the file.")
        }
        Some(io::ErrorKind::PermissionDenied) => {
            format!("not allowed to ask {name}: only the user who runs the daemon may. Try again as root (sudo).")
        }
        _ => format!("Unable to access interface {name}: {}", reason(name, error)),
    }
}

fn reason(name: &InterfaceName, error: AskError) -> String {
    match error {
        AskError::Reply(BadReply::Truncated) => {
            format!(
                "the daemon of {name} hung up. It may have ended, or not know the question (only linerated has counters)."
            )
        }
        AskError::Reply(bad) => bad.to_string(),
        AskError::Io(error) => error.to_string(),
    }
}

/// An endpoint as getnameinfo writes it: the zone by its interface's name.
fn endpoint(endpoint: &SocketAddr) -> String {
    match endpoint {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            let index = v6.scope_id();
            let zone = interface_name(index).unwrap_or_else(|| index.to_string());
            format!("[{}%{zone}]:{}", v6.ip(), v6.port())
        }
        _ => endpoint.to_string(),
    }
}

fn interface_name(index: u32) -> Option<String> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
    let any = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    netdevice::index_to_name(any, index).ok()
}

/// The device's own public key, if it has a key at all.
fn own_public_key(state: &DeviceState) -> Option<String> {
    state.private_key.as_ref().map(|key| keys::public_key(key).to_string())
}

#[cfg(test)]
mod tests;
