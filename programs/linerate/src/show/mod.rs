//! `show`: what running tunnels say of themselves, in the exact form of `wg show`, whose work is done
//! here, too.
//!
//! Never changes anything. [`human`] is for people, [`fields`] for scripts, [`json`] for programs;
//! [`counters`] is what only linerated tells.

mod counters;
mod fields;
pub(crate) mod human;
mod json;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_control::client::{self, TunnelClient};
use linerate_control::interface::InterfaceName;
use linerate_control::uapi::client::ClientError;
use linerate_control::uapi::response::{Activity, DeviceState, ReplyError};
use linerate_control::uapi::socket;
use linerate_control::zeroizing::Buffer;
use rustix::io::Errno;

use crate::keys;
use linerate_program::print;
use linerate_program::{Complaint, complain};

/// One value of each tunnel or of each of its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
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
    /// Whose.
    pub which: Which,
    /// In which form.
    pub form: Form,
}

/// Which tunnels.
pub enum Which {
    /// All there are.
    All,
    /// All there are, but only their names.
    Names,
    /// The one of this name.
    One(String),
}

/// In which form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Human,
    /// One value, for scripts.
    Field(Field),
    /// Everything, for programs.
    Json,
    /// The counters, for people.
    Counters,
    /// The counters, for programs.
    CountersJson,
}

impl Wanted {
    /// What the arguments of `linerate show` ask for.
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
            "interfaces" if form == Form::Human => Which::Names,
            "interfaces" => return Err("`show interfaces` takes nothing else: it prints the names".into()),
            name => {
                let name: InterfaceName = name.parse().map_err(|error| format!("{error}"))?;
                Which::One(name.to_string())
            }
        };
        Ok(Self { which, form })
    }
}

/// How to print, and whose tunnels.
pub struct View<'a> {
    /// Where the sockets are.
    pub directory: &'a Path,
    /// Lists the names of all tunnels.
    pub names: fn(&Path) -> io::Result<Vec<String>>,
    /// Seconds since 1970.
    pub now: u64,
    /// Whether people see colours.
    pub colour: bool,
    /// Whether people and programs see private and preshared keys.
    pub keys: bool,
    /// Whether a daemon is asked linerated's own question about activity first; `wg` asks what the original asks.
    pub activity: bool,
}

impl View<'_> {
    /// The tunnels of this machine, printed as WG_COLOR_MODE and WG_HIDE_KEYS ask for.
    pub fn from_environment() -> Self {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        let colour = match variable("WG_COLOR_MODE") {
            mode if mode == "always" => true,
            mode if mode == "never" => false,
            _ => io::IsTerminal::is_terminal(&io::stdout()),
        };
        Self {
            directory: Path::new(socket::DIRECTORY),
            names: client::names,
            now: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            colour,
            keys: variable("WG_HIDE_KEYS") == "never",
            activity: false,
        }
    }
}

/// Prints what is wanted of the tunnels of this machine.
pub(super) fn main(wanted: &Wanted) -> Result<ExitCode, Complaint> {
    let view = View { activity: true, ..View::from_environment() };
    let Shown { text, failures, any } = show(wanted, &view).map_err(|failure| match failure {
        Failure::Listing(error) => format!("Unable to list interfaces: {error}"),
        Failure::Tunnel(name, error) => inaccessible(&name, &error),
    })?;
    for (name, error) in &failures {
        complain(&format!("Unable to access interface {name}: {}", reason(name, error)));
    }
    let printed = print(&text)?;
    Ok(if any || failures.is_empty() { printed } else { ExitCode::FAILURE })
}

/// What `show` has to say.
pub struct Shown {
    /// For standard output.
    pub text: Buffer,
    /// Tunnels of all that did not answer, and why.
    pub failures: Vec<(String, ClientError)>,
    /// Whether any tunnel did.
    pub any: bool,
}

/// Why there is nothing to show.
pub enum Failure {
    /// The tunnels cannot be listed.
    Listing(io::Error),
    /// The one tunnel that was asked for did not answer.
    Tunnel(String, ClientError),
}

/// Asks the tunnels and writes down what they say.
///
/// # Errors
/// See [`Failure`].
pub fn show(wanted: &Wanted, view: &View<'_>) -> Result<Shown, Failure> {
    let mut shown = Shown { text: Buffer::new(), failures: Vec::new(), any: false };
    let mut answers = Vec::new();
    let names = match &wanted.which {
        Which::One(name) => vec![name.clone()],
        Which::All | Which::Names => (view.names)(view.directory).map_err(Failure::Listing)?,
    };
    if let Which::Names = wanted.which {
        if !names.is_empty() {
            shown.text.extend(names.join(" ").as_bytes());
            shown.text.extend(b"\n");
        }
        return Ok(shown);
    }
    let all = matches!(wanted.which, Which::All);
    let count = names.len();
    for (name, number) in names.into_iter().zip(1..) {
        match Answer::ask(view, &name, wanted.form) {
            Ok(answer) => answers.push(Told { name, answer, more: number < count }),
            Err(error) if all => shown.failures.push((name, error)),
            Err(error) => return Err(Failure::Tunnel(name, error)),
        }
    }
    shown.any = !answers.is_empty();
    write(&mut shown.text, wanted.form, answers, all, view);
    Ok(shown)
}

/// What one tunnel told, and whether another was asked after it.
struct Told {
    name: String,
    answer: Answer,
    more: bool,
}

enum Answer {
    State(DeviceState),
    Counters(Vec<(String, u64)>),
}

impl Answer {
    fn ask(view: &View<'_>, name: &str, form: Form) -> Result<Self, ClientError> {
        let mut tunnel = TunnelClient::open(view.directory, name)?;
        if view.activity
            && matches!(form, Form::Field(Field::Endpoints | Field::LatestHandshakes | Field::Transfer))
            && let TunnelClient::Daemon(daemon) = &mut tunnel
        {
            // Who asks for these does it every second, and linerated need not tell all that it has for it.
            match daemon.activity(0) {
                Ok(Activity { peers, .. }) => return Ok(Self::State(DeviceState { peers, ..DeviceState::default() })),
                Err(ClientError::Io(error)) if error.kind() == io::ErrorKind::TimedOut => return Err(error.into()),
                Err(_) => {}
            }
            // Others have closed the connection.
            tunnel = TunnelClient::open(view.directory, name)?;
        }
        match form {
            Form::Counters | Form::CountersJson => tunnel.stats().map(Self::Counters),
            Form::Human | Form::Field(_) | Form::Json => tunnel.get().map(Self::State),
        }
    }
}

fn write(text: &mut Buffer, form: Form, told: Vec<Told>, all: bool, view: &View<'_>) {
    let (mut states, mut counts) = (Vec::new(), Vec::new());
    for Told { name, answer, more } in told {
        match answer {
            Answer::State(state) if form == Form::Human => {
                human::write(text, &name, state, view).expect("a Buffer takes every write");
                // As wg does, also before one that then does not answer.
                text.extend(if more { b"\n" } else { b"" });
            }
            Answer::State(state) => states.push((name, state)),
            Answer::Counters(counters) => counts.push((name, counters)),
        }
    }
    let written = match form {
        Form::Human => Ok(()),
        Form::Field(field) => fields::write(text, &states, field, all),
        Form::Json => json::write(text, &states, view.keys),
        Form::Counters => counters::write(text, &counts),
        Form::CountersJson => counters::write_json(text, counts),
    };
    written.expect("a Buffer takes every write");
}

/// Why the one tunnel that was asked for does not answer, and what to do.
pub(super) fn inaccessible(name: &str, error: &ClientError) -> Complaint {
    let errno = match error {
        ClientError::Io(error) => Errno::from_io_error(error),
        ClientError::Reply(_) => None,
    };
    match errno {
        Some(Errno::NODEV | Errno::PROTONOSUPPORT | Errno::OPNOTSUPP) => {
            format!("there is no tunnel {name}. `linerate show interfaces` lists those there are.")
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            format!("not allowed to ask {name}: only the user who runs it may. Try again as root (sudo).")
        }
        _ => format!("Unable to access interface {name}: {}", reason(name, error)),
    }
}

fn reason(name: &str, error: &ClientError) -> String {
    match error {
        ClientError::Reply(ReplyError::Truncated) => {
            format!(
                "the daemon of {name} hung up. It may have ended, or not know the question (only linerated has counters)."
            )
        }
        ClientError::Reply(bad) => bad.to_string(),
        ClientError::Io(error) => error.to_string(),
    }
}

/// The device's own public key, if it has a key at all.
fn own_public_key(state: &DeviceState) -> Option<String> {
    state.private_key.as_ref().map(|key| keys::public_key(key).to_string())
}

#[cfg(test)]
mod tests;
