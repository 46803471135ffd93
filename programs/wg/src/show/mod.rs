//! `show`: the state of running tunnels, in the exact format of `wg show`, which uses this module, too.
//!
//! Never changes anything. [`human`] is for people, [`fields`] for scripts, [`json`] for programs; [`counters`] shows
//! those of linerated.

mod counters;
mod fields;
pub mod human;
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
use linerate_cli::{eprint_line, print};

/// One value of each tunnel or peer. The variants have no comments, because clap would print them.
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

/// Which tunnels to show, and how.
pub struct Selection {
    /// The tunnels.
    pub which: Which,
    /// The form.
    pub form: Form,
}

/// Which tunnels.
pub enum Which {
    /// All tunnels.
    All,
    /// Only the names of all tunnels.
    Names,
    /// The tunnel with this name.
    One(String),
}

/// The output format.
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

impl Selection {
    /// The selection by the arguments of `linerate show`.
    ///
    /// # Errors
    /// The interface name is not valid, or names are requested in a form that has none.
    pub fn new(which: &str, field: Option<Field>, json: bool, stats: bool) -> Result<Self, String> {
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
            "interfaces" => return Err("`show interfaces` prints only names and takes no other option".into()),
            name => {
                let name: InterfaceName = name.parse().map_err(|error| format!("{error}"))?;
                Which::One(name.to_string())
            }
        };
        Ok(Self { which, form })
    }
}

/// How to print, and where the tunnels are.
pub struct View<'a> {
    /// The directory of the sockets.
    pub directory: &'a Path,
    /// Lists the names of all tunnels.
    pub names: fn(&Path) -> Result<Vec<String>, ClientError>,
    /// Seconds since 1970.
    pub now: u64,
    /// Whether to use colours.
    pub colour: bool,
    /// Whether to show private and preshared keys to people and programs.
    pub keys: bool,
    /// Whether to try linerated's own `activity` request first; `wg` sends only the original's requests.
    pub activity: bool,
}

impl View<'_> {
    /// The tunnels of this machine, with WG_COLOR_MODE and WG_HIDE_KEYS applied.
    pub fn from_environment() -> Self {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        let colour = match variable("WG_COLOR_MODE") {
            mode if mode == "always" => true,
            mode if mode == "never" => false,
            _ => io::IsTerminal::is_terminal(&io::stdout()),
        };
        Self {
            directory: Path::new(socket::DIRECTORY),
            names: client::interfaces,
            now: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            colour,
            keys: variable("WG_HIDE_KEYS") == "never",
            activity: false,
        }
    }
}

/// Prints the selection of the tunnels of this machine.
pub fn main(selection: &Selection) -> Result<ExitCode, String> {
    let view = View { activity: true, ..View::from_environment() };
    let Shown { text, failures, any } = show(selection, &view).map_err(|error| match error {
        ShowError::Listing(error) => format!("Unable to list interfaces: {error}"),
        ShowError::Tunnel(name, error) => inaccessible(&name, &error),
    })?;
    for (name, error) in &failures {
        eprint_line(&format!("Unable to access interface {name}: {}", reason(name, error)));
    }
    let printed = print(&text)?;
    Ok(if any || failures.is_empty() { printed } else { ExitCode::FAILURE })
}

/// The output of `show`.
pub struct Shown {
    /// For standard output.
    pub text: Buffer,
    /// Tunnels that could not be queried, and why.
    pub failures: Vec<(String, ClientError)>,
    /// Whether any tunnel was queried.
    pub any: bool,
}

/// Why nothing can be shown.
pub enum ShowError {
    /// The tunnels cannot be listed.
    Listing(ClientError),
    /// The requested tunnel could not be queried.
    Tunnel(String, ClientError),
}

/// Queries the tunnels and writes their state.
///
/// # Errors
/// See [`ShowError`].
pub fn show(selection: &Selection, view: &View<'_>) -> Result<Shown, ShowError> {
    let mut shown = Shown { text: Buffer::new(), failures: Vec::new(), any: false };
    let mut replies = Vec::new();
    let names = match &selection.which {
        Which::One(name) => vec![name.clone()],
        Which::All | Which::Names => (view.names)(view.directory).map_err(ShowError::Listing)?,
    };
    if let Which::Names = selection.which {
        if !names.is_empty() {
            shown.text.extend(names.join(" ").as_bytes());
            shown.text.extend(b"\n");
        }
        return Ok(shown);
    }
    let all = matches!(selection.which, Which::All);
    let count = names.len();
    for (name, number) in names.into_iter().zip(1..) {
        match Answer::ask(view, &name, selection.form) {
            Ok(answer) => replies.push(Reply { name, answer, more: number < count }),
            Err(error) if all => shown.failures.push((name, error)),
            Err(error) => return Err(ShowError::Tunnel(name, error)),
        }
    }
    shown.any = !replies.is_empty();
    write(&mut shown.text, selection.form, replies, all, view);
    Ok(shown)
}

/// The answer of one tunnel, and whether another was queried after it.
struct Reply {
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
        let mut tunnel = TunnelClient::of_interface(view.directory, name)?;
        if view.activity
            && matches!(form, Form::Field(Field::Endpoints | Field::LatestHandshakes | Field::Transfer))
            && let TunnelClient::Daemon(daemon) = &mut tunnel
        {
            // Scripts poll these every second, and linerated can answer without its whole state.
            match daemon.activity(0) {
                Ok(Activity { peers, .. }) => return Ok(Self::State(DeviceState { peers, ..DeviceState::default() })),
                Err(ClientError::Io(error)) if error.kind() == io::ErrorKind::TimedOut => return Err(error.into()),
                Err(_) => {}
            }
            // Other daemons have closed the connection.
            tunnel = TunnelClient::of_interface(view.directory, name)?;
        }
        match form {
            Form::Counters | Form::CountersJson => tunnel.stats().map(Self::Counters),
            Form::Human | Form::Field(_) | Form::Json => tunnel.get().map(Self::State),
        }
    }
}

fn write(text: &mut Buffer, form: Form, replies: Vec<Reply>, all: bool, view: &View<'_>) {
    let (mut states, mut counts) = (Vec::new(), Vec::new());
    for Reply { name, answer, more } in replies {
        match answer {
            Answer::State(state) if form == Form::Human => {
                human::write(text, &name, state, view).expect("a Buffer takes every write");
                // As in wg, also before a tunnel that then fails.
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

/// Why the requested tunnel could not be queried, and what to do.
pub fn inaccessible(name: &str, error: &ClientError) -> String {
    match error.as_io().and_then(Errno::from_io_error) {
        Some(Errno::NODEV | Errno::PROTONOSUPPORT | Errno::OPNOTSUPP) => {
            format!("there is no tunnel {name}; `linerate show interfaces` lists all tunnels")
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            format!("permission denied for {name}: try again as root (sudo), or as the user that runs it")
        }
        _ => format!("Unable to access interface {name}: {}", reason(name, error)),
    }
}

fn reason(name: &str, error: &ClientError) -> String {
    match error {
        ClientError::Reply(ReplyError::Truncated) => {
            format!(
                "the daemon of {name} closed the connection: it may have exited, or it does not support counters (only linerated does)"
            )
        }
        error => error.to_string(),
    }
}

/// The device's own public key, if it has a key at all.
fn own_public_key(state: &DeviceState) -> Option<String> {
    state.private_key.as_ref().map(|key| keys::public_key(key).to_string())
}

#[cfg(test)]
mod tests;
