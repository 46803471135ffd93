//! `linerate client`: the clients of a server. Each command is one edit of the tunnel's file for any number of names: all
//! of them or none.

mod arguments;
mod output;
mod show;

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use linerate_cli::{eprint_line, print};
use linerate_control::keys::{PublicKey, SecretKey};
use linerate_control::tunnel_file::PublicEndpoint;
use linerate_control::zeroizing::Buffer;
use linerate_host::spec::Compat;
use linerate_netio::random;
use linerate_server::init::{Chance, NAME_SERVERS};
use linerate_server::{
    Client, ClientName, NewClient, Properties, QrCode, Roster, allowed_ips, client_file, dns, expiry, families, folded,
    searchable,
};
use linerate_tunnel::{self as tunnel, ConfigFile, Context, Error, Options};
use linerate_wg::keys;
use rustix::termios::tcgetwinsize;
use serde_json::json;
use zeroize::Zeroizing;

pub(super) use self::arguments::ClientArguments;
use self::arguments::{Add, Command, Export, List, Named, Qr, Rekey, Rename, Renew, Set, Which};
use self::output::Files;
use crate::cli::{CliError, Output, interruption};

/// Runs a command on clients.
pub(super) fn main(arguments: &ClientArguments) -> Result<ExitCode, CliError> {
    if let Some(name) = repeated(arguments.command.names()) {
        return Err(format!("{name} is named twice; nothing was done").into());
    }
    match &arguments.command {
        Command::Add(arguments) => add(arguments),
        Command::List(which) => list(which),
        Command::Show(named) => show(named),
        Command::Disable(named) => disable(named),
        Command::Enable(named) => enable(named),
        Command::Renew(arguments) => renew(arguments),
        Command::Rekey(arguments) => rekey(arguments),
        Command::Rename(arguments) => rename(arguments),
        Command::Set(arguments) => set(arguments),
        Command::Remove(named) => remove(named),
        Command::Export(arguments) => export(arguments),
        Command::Qr(arguments) => qr(arguments),
    }
}

/// Returns the names of a server's clients for completions. Replaces a name that a shell would take for an option, a
/// variable or a command, even quoted, by that of the client's file.
pub(super) fn names(server: Option<&str>) -> Result<Vec<String>, CliError> {
    let (_, roster) = read(server)?;
    let name = |client: &Client| {
        let name = client.name.as_str();
        let is_quotable = !name.starts_with(['-', '~', '=']) && !name.contains(['$', '`', '\\', '!']);
        if is_quotable { name.to_owned() } else { client.file_name.clone() }
    };
    Ok(roster.clients().iter().map(name).collect())
}

/// A key pair for a client, or only the public half.
struct KeyPair {
    public: PublicKey,
    private: Option<SecretKey>,
}

impl KeyPair {
    fn new() -> Self {
        let private = keys::private_key();
        let private = SecretKey::from_bytes(private.as_bytes());
        Self { public: keys::public_key(&private), private: Some(private) }
    }

    /// The client's own, of which only the public half is known; else a new one.
    fn of(public: Option<PublicKey>) -> Self {
        public.map_or_else(Self::new, |public| Self { public, private: None })
    }
}

fn add(arguments: &Add) -> Result<ExitCode, CliError> {
    let names = client_names(&arguments.names)?;
    let has_key = arguments.pubkey.is_some();
    if has_key && names.len() > 1 {
        return Err("a key belongs to one client: with --pubkey give one name".to_owned().into());
    }
    let to_files = Files::check(arguments.output.as_deref(), names.len(), arguments.which.json)?;
    let now = now();
    let mut properties = arguments.properties.read(now)?;
    let mut clients = Vec::new();
    for name in names {
        let keys = KeyPair::of(arguments.pubkey);
        clients.push((name, keys));
    }
    let edited = edit(&arguments.which, now, |file, roster| {
        arguments.properties.narrow(&mut properties, roster)?;
        let server_key = server_key(file)?;
        let mut added = Vec::new();
        for (name, keys) in &clients {
            let preshared_key = Some(preshared_key());
            let mut properties = properties.clone();
            properties.private_key = arguments.keep_key.then(|| keys.private.clone());
            let new = NewClient { name: name.clone(), public_key: keys.public, preshared_key, properties };
            roster.add(&new, now).map_err(refusal(file))?;
            let client = roster.client(name.as_str()).map_err(refusal(file))?.clone();
            let text = client_file(roster.file(), &server_key, &client, keys.private.as_ref());
            added.push(Exported { client, text: text.map_err(state)?, has_key: keys.private.is_some() });
        }
        let files = to_files.write(added.iter().map(|added| (&added.client, &*added.text)))?;
        let mut notes = notes(roster, &properties, now);
        if let Some(client) = roster.clients().last() {
            notes.extend(of_host(file, roster, client)?);
        }
        let missing = tunnel::server::missing_uplinks(file)?;
        if !missing.is_empty() {
            notes.push(format!(
                "Warning: this host has no interface {}, which {} names as its Gateway, so clients reach nothing behind \
                 it: write `#! Gateway = auto` there, then `linerate reload {}`",
                missing.join(", "),
                file.path.display(),
                file.interface
            ));
        }
        Ok((added, files, notes))
    })?;
    let Done { file, value: (added, files, notes), unmet } = edited;
    files.keep();
    notes.iter().for_each(|note| eprint_line(note));
    if arguments.which.json {
        print_exported(&added, &files)?;
        return Ok(unmet.exit_code());
    }
    for Exported { client, text, has_key } in &added {
        eprint_line(&format!("added {}{} with {}", client.name, unmet.place(&file), addresses(client)));
        match files.path(client) {
            Some(path) => eprint_line(&format!("its file is {}", path.display())),
            None => print_once(text, *has_key)?,
        }
    }
    if !has_key && !arguments.keep_key && files.are_none() {
        eprint_line("this is the only time that the private key is shown; --keep-key keeps it in the server's file");
    }
    Ok(unmet.exit_code())
}

/// A client and its file.
struct Exported {
    client: Client,
    text: Buffer,
    has_key: bool,
}

impl Exported {
    fn json(&self, path: Option<&Path>) -> serde_json::Value {
        let mut value = show::json(&self.client, None);
        match path {
            Some(path) => value["path"] = json!(path),
            None => value["file"] = json!(String::from_utf8_lossy(&self.text)),
        }
        value
    }
}

fn print_exported(exported: &[Exported], files: &output::Outcome) -> Result<ExitCode, CliError> {
    if files.are_none() && exported.iter().any(|one| one.has_key) {
        keys::warn_if_world_accessible();
    }
    let list: Vec<_> = exported.iter().map(|one| one.json(files.path(&one.client))).collect();
    print_json(&json!(list))
}

fn list(arguments: &List) -> Result<ExitCode, CliError> {
    let List { part, which } = arguments;
    let (file, roster) = read(which.server.as_deref())?;
    let running = tunnel::running(&file.interface);
    let searched = part.as_deref().map(searchable).unwrap_or_default();
    let clients: Vec<&Client> = roster.clients().iter().filter(|client| client.has(&searched)).collect();
    if which.json {
        return print_json(&show::json_list(&clients, running.as_ref()));
    }
    if roster.clients().is_empty() {
        eprint_line(&format!("{} has no clients; `linerate client add NAME` adds one", file.interface));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(part) = part.as_ref().filter(|_| clients.is_empty()) {
        return Err(format!("{}: no client has `{part}' in its name, addresses or note", file.interface).into());
    }
    Ok(print(show::table(&clients, running.as_ref(), now()).as_bytes())?)
}

fn show(named: &Named) -> Result<ExitCode, CliError> {
    let (file, roster) = read(named.which.server.as_deref())?;
    let running = tunnel::running(&file.interface);
    let clients = selected(&roster, &named.names, &file)?;
    if named.which.json {
        return print_json(&show::json_list(&clients, running.as_ref()));
    }
    let zone = TimeZone::system();
    let allowed: Vec<_> = clients.iter().map(|client| allowed_ips(roster.file(), client)).collect();
    let texts = clients
        .iter()
        .zip(&allowed)
        .map(|(client, allowed)| show::details(client, allowed, running.as_ref(), now(), &zone));
    Ok(print(texts.collect::<Vec<String>>().join("\n").as_bytes())?)
}

fn disable(named: &Named) -> Result<ExitCode, CliError> {
    let now = now();
    change(named, "disabled", |roster, name| roster.disable(name, now))
}

fn enable(named: &Named) -> Result<ExitCode, CliError> {
    change(named, "enabled", Roster::enable)
}

fn renew(arguments: &Renew) -> Result<ExitCode, CliError> {
    let zone = TimeZone::system();
    let expires = expiry::parse(&arguments.expires, now(), &zone).map_err(|error| error.to_string())?;
    let until = show::until(expires, &zone);
    change(&arguments.named, &format!("renewed: {until}"), |roster, name| roster.renew(name, expires))
}

fn set(arguments: &Set) -> Result<ExitCode, CliError> {
    let now = now();
    let given = arguments.properties.read(now)?;
    let properties = &arguments.properties;
    if !properties.has_any() {
        return Err("nothing to set: see `linerate client set --help`".to_owned().into());
    }
    change(&arguments.named, "changed", |roster, name| {
        let mut given: Properties = given.clone();
        properties.narrow(&mut given, roster)?;
        roster.set(name, &given).map_err(state)
    })
}

/// Changes each of the named clients.
fn change<E: std::fmt::Display>(
    named: &Named,
    done: &str,
    mut change: impl FnMut(&mut Roster, &str) -> Result<(), E>,
) -> Result<ExitCode, CliError> {
    let edited = edit(&named.which, now(), |file, roster| {
        distinct(roster, &named.names)?;
        for name in &named.names {
            change(roster, name).map_err(refusal(file))?;
        }
        Ok(())
    })?;
    report(&named.which, &named.names, done, &edited)
}

fn remove(named: &Named) -> Result<ExitCode, CliError> {
    let now = now();
    let edited = edit(&named.which, now, |file, roster| {
        distinct(roster, &named.names)?;
        roster.remove(&named.names, now).map_err(refusal(file))
    })?;
    report(&named.which, &named.names, "removed", &edited)
}

fn rename(arguments: &Rename) -> Result<ExitCode, CliError> {
    let new: ClientName = arguments.new.parse().map_err(|error| format!("{error}"))?;
    let edited =
        edit(&arguments.which, now(), |file, roster| roster.rename(&arguments.old, &new).map_err(refusal(file)))?;
    report(&arguments.which, std::slice::from_ref(&arguments.new), "renamed", &edited)
}

fn rekey(arguments: &Rekey) -> Result<ExitCode, CliError> {
    let Named { names, which } = &arguments.named;
    if arguments.pubkey.is_some() && names.len() > 1 {
        return Err("a key belongs to one client: with --pubkey give one name".to_owned().into());
    }
    let to_files = Files::check(arguments.output.as_deref(), names.len(), which.json)?;
    let pairs: Vec<KeyPair> = names.iter().map(|_| KeyPair::of(arguments.pubkey)).collect();
    let edited = edit(which, now(), |file, roster| {
        distinct(roster, names)?;
        let server_key = server_key(file)?;
        let mut exported = Vec::new();
        for (name, keys) in names.iter().zip(&pairs) {
            let mut client = roster.client(name).map_err(refusal(file))?.clone();
            let keep = (arguments.keep_key || client.peer.client.private_key.is_some()).then(|| keys.private.clone());
            let preshared = arguments.now.then(preshared_key);
            let peer = Arc::make_mut(&mut client.peer);
            peer.preshared_key = preshared.clone().or(peer.preshared_key.take());
            match arguments.now {
                true => (peer.public_key, peer.client.next_public_key) = (keys.public, None),
                false => peer.client.next_public_key = Some(keys.public),
            }
            let keep = keep.flatten();
            peer.client.private_key.clone_from(&keep);
            roster.rekey(name, keys.public, keep, preshared).map_err(refusal(file))?;
            let text = client_file(roster.file(), &server_key, &client, keys.private.as_ref()).map_err(state)?;
            exported.push(Exported { client, text, has_key: keys.private.is_some() });
        }
        let files = to_files.write(exported.iter().map(|one| (&one.client, &*one.text)))?;
        Ok((exported, files))
    })?;
    let Done { file, value: (exported, files), unmet } = edited;
    files.keep();
    if which.json {
        print_exported(&exported, &files)?;
        return Ok(unmet.exit_code());
    }
    for Exported { client, text, has_key } in &exported {
        let old = match arguments.now {
            _ if !unmet.0.is_empty() => "",
            true => "; the old key is no longer valid",
            false => "; the old key is valid until it is used",
        };
        eprint_line(&format!("{} has a new key{}{old}", client.name, unmet.place(&file)));
        match files.path(client) {
            Some(path) => eprint_line(&format!("its file is {}", path.display())),
            None => print_once(text, *has_key)?,
        }
    }
    Ok(unmet.exit_code())
}

fn export(arguments: &Export) -> Result<ExitCode, CliError> {
    let Named { names, which } = &arguments.named;
    let to_files = Files::check(arguments.output.as_deref(), names.len(), which.json)?;
    let (file, roster) = read(which.server.as_deref())?;
    let server_key = server_key(&file)?;
    let mut exported = Vec::new();
    for client in selected(&roster, names, &file)? {
        let key = client.peer.client.private_key.as_ref();
        let text = client_file(roster.file(), &server_key, client, key).map_err(|error| error.to_string())?;
        exported.push(Exported { client: client.clone(), text, has_key: key.is_some() });
    }
    let files = to_files.write(exported.iter().map(|one| (&one.client, &*one.text)))?;
    files.keep();
    for one in exported.iter().filter(|one| !one.has_key) {
        eprint_line(&format!("{}: {NO_KEY}", one.client.name));
    }
    if which.json {
        return print_exported(&exported, &files);
    }
    if files.are_none() {
        for one in &exported {
            if one.has_key {
                keys::warn_if_world_accessible();
            }
            print(&one.text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is missing in a file, and how to get one.
const NO_KEY: &str = "only the client has its private key, so its file has a comment in its place; \
    `linerate client rekey` makes a new key and shows it";

/// The file of a client whose private key is kept, and its name without `.conf`.
pub(super) fn kept_file(server: Option<&str>, name: &str) -> Result<(String, Buffer), CliError> {
    let (file, roster) = read(server)?;
    let client = roster.client(name).map_err(refusal(&file))?;
    let Some(key) = &client.peer.client.private_key else {
        return Err(format!("{}: {NO_KEY}", client.name).into());
    };
    let text = client_file(roster.file(), &server_key(&file)?, client, Some(key));
    Ok((client.file_name.clone(), text.map_err(|error| error.to_string())?))
}

fn qr(arguments: &Qr) -> Result<ExitCode, CliError> {
    let (_, text) = kept_file(arguments.server.as_deref(), &arguments.name)?;
    let code = code(&text)?;
    let Some(path) = &arguments.output else {
        print_code(&code)?;
        return Ok(ExitCode::SUCCESS);
    };
    let picture = match path.extension().and_then(|extension| extension.to_str()) {
        Some("png") => Zeroizing::new(code.png().map_err(|error| format!("cannot make the picture: {error}"))?),
        Some("svg") => Zeroizing::new(code.svg().into_bytes()),
        _ => return Err(format!("{}: name it .png or .svg", path.display()).into()),
    };
    output::create(path, &picture)?;
    Ok(ExitCode::SUCCESS)
}

fn code(text: &[u8]) -> Result<QrCode, String> {
    let code = QrCode::new(text).map_err(|error| error.to_string())?;
    if code.is_dense() {
        eprint_line("Warning: this code has so many modules that phones may not read it: hand over the file");
    }
    Ok(code)
}

/// Prints a client's file, and on a terminal its code.
fn print_once(text: &[u8], has_key: bool) -> Result<(), String> {
    if has_key {
        keys::warn_if_world_accessible();
    }
    print(text)?;
    if has_key && std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        print(b"\n")?;
        print_code(&code(text)?)?;
    }
    Ok(())
}

/// Prints a code, and says so if the terminal cannot show all of it at once: nobody can scan it then.
fn print_code(code: &QrCode) -> Result<(), String> {
    let text = code.terminal();
    print(&text)?;
    let lines = text.split(|byte| *byte == b'\n').count();
    let Ok(terminal) = tcgetwinsize(std::io::stdout()) else { return Ok(()) };
    // The line after it takes one more, which `split` has counted. A terminal without a size says 0.
    if (1..lines).contains(&usize::from(terminal.ws_row)) {
        eprint_line(&format!(
            "to scan the code, make the window {lines} lines high, or its font smaller: it has {} now",
            terminal.ws_row
        ));
    }
    Ok(())
}

/// An edit of a server's file.
struct Done<T> {
    file: ConfigFile,
    value: T,
    unmet: Unmet,
}

/// Edits the file of a server, and applies the edit to the tunnel if it runs. Clients whose time has come are marked as
/// expired on the way.
fn edit<T>(
    which: &Which,
    now: Timestamp,
    mut change: impl FnMut(&ConfigFile, &mut Roster) -> Result<T, Error>,
) -> Result<Done<T>, CliError> {
    let file = tunnel::server::find(which.server.as_deref())?;
    let options = Options {
        compat: Compat::Native,
        implementation: tunnel::implementation(false)?,
        user: None,
        hooks: true,
        fix_firewall: false,
        supervised: false,
    };
    let context = Context { reporter: &Output::QUIET, interruption: &interruption()? };
    let outcome = tunnel::edit(&file, &options, context, |file| {
        let mut roster = roster(file, now)?;
        roster.expire(now).map_err(refusal(file))?;
        let value = change(file, &mut roster)?;
        Ok((roster.into_document(), value))
    })?;
    Ok(Done { file, unmet: Unmet(outcome.unmet), value: outcome.value })
}

/// Settings of the file that the running tunnel does not follow.
struct Unmet(Vec<String>);

impl Unmet {
    /// Where a change was made.
    fn place(&self, file: &ConfigFile) -> String {
        if self.0.is_empty() { String::new() } else { format!(" in {}", file.path.display()) }
    }

    /// Says so, and fails: the change is in the file and does not hold for the tunnel that runs.
    fn exit_code(&self) -> ExitCode {
        self.0.iter().for_each(|sentence| eprint_line(sentence));
        if self.0.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn read(server: Option<&str>) -> Result<(ConfigFile, Roster), CliError> {
    let file = tunnel::server::find(server)?;
    file.check()?;
    let roster = roster(&file, now())?;
    Ok((file, roster))
}

fn roster(file: &ConfigFile, now: Timestamp) -> Result<Roster, Error> {
    Roster::of(file.document.clone(), file.with_disabled(), now).map_err(refusal(file))
}

fn selected<'a>(roster: &'a Roster, names: &[String], file: &ConfigFile) -> Result<Vec<&'a Client>, CliError> {
    distinct(roster, names)?;
    let clients = names.iter().map(|name| roster.client(name).map_err(refusal(file)));
    Ok(clients.collect::<Result<_, Error>>()?)
}

fn refusal<E: std::fmt::Display>(file: &ConfigFile) -> impl Fn(E) -> Error {
    let interface = file.interface.clone();
    move |error| Error::State(format!("{interface}: {error}"))
}

fn state(error: impl std::fmt::Display) -> Error {
    Error::State(error.to_string())
}

fn server_key(file: &ConfigFile) -> Result<PublicKey, Error> {
    let private = file.loaded()?.private_key.clone();
    let missing = || {
        let (path, remedy) = (file.path.display(), file.contents.missing_key());
        Error::State(format!("{path} has no PrivateKey, and clients have to know its public half: {remedy}"))
    };
    Ok(keys::public_key(&private.ok_or_else(missing)?))
}

/// What a person should know about new clients.
fn notes(roster: &mut Roster, properties: &Properties, now: Timestamp) -> Vec<String> {
    let mut notes = Vec::new();
    if let Ok(pool) = roster.pool(now)
        && pool.is_nearly_full()
    {
        let (used, size) = pool.usage();
        notes.push(format!(
            "Warning: {used} of the {size} addresses of the pool are taken; `linerate server set --pool` widens it"
        ));
    }
    if let Some(Some(expires)) = properties.expires {
        notes.push(show::until(Some(expires), &TimeZone::system()));
    }
    let is_full = roster
        .clients()
        .last()
        .is_some_and(|client| allowed_ips(roster.file(), client).iter().any(|net| net.prefix_len() == 0));
    let names_none = roster.clients().last().is_some_and(|client| dns(roster.file(), client).is_empty());
    if is_full && names_none {
        notes.push(format!(
            "Warning: all goes through the tunnel and no name server is named, so a name server in the client's own \
             network is out of its reach, as that of most phones: {NAME_SERVERS}; then export the file again"
        ));
    }
    notes
}

/// Returns warnings about the host's IP families, and about the endpoint in files of clients like this one.
fn of_host(file: &ConfigFile, roster: &Roster, client: &Client) -> Result<Vec<String>, Error> {
    let (sent, dns) = (allowed_ips(roster.file(), client), dns(roster.file(), client));
    let facts = tunnel::server::facts(&file.interface)?;
    let endpoint = file.contents.public_endpoint.as_ref().and_then(PublicEndpoint::address);
    let notes = families::notes(&sent, &roster.networks(), facts.families(), facts.free(Chance::new(random::fill)));
    let lost = families::lost_name_servers(&dns, &sent, facts.families());
    let moved = families::moved(endpoint, &facts.public_addresses());
    Ok(notes.into_iter().chain(lost).chain(moved).map(|note| format!("Warning: {note}")).collect())
}

fn report<T>(which: &Which, names: &[String], done: &str, edited: &Done<T>) -> Result<ExitCode, CliError> {
    if which.json {
        let file = edited.file.reopen()?;
        let roster = roster(&file, now())?;
        let left: Vec<&Client> = names.iter().filter_map(|name| roster.client(name).ok()).collect();
        print_json(&show::json_list(&left, None))?;
        return Ok(edited.unmet.exit_code());
    }
    eprint_line(&format!("{}: {done}{}", names.join(", "), edited.unmet.place(&edited.file)));
    Ok(edited.unmet.exit_code())
}

/// A name that is there twice, in any case.
fn repeated(names: &[String]) -> Option<&String> {
    let mut before = HashSet::new();
    names.iter().find(|name| !before.insert(folded(name)))
}

/// Checks that no client is named twice, by its name and by that of its file.
fn distinct(roster: &Roster, names: &[String]) -> Result<(), Error> {
    let mut before = HashSet::new();
    let is_again = |name: &&String| roster.client(name).is_ok_and(|client| !before.insert(&client.file_name));
    match names.iter().find(is_again) {
        Some(name) => Err(Error::State(format!("{name} is named twice; nothing was done"))),
        None => Ok(()),
    }
}

fn client_names(names: &[String]) -> Result<Vec<ClientName>, String> {
    names.iter().map(|name| name.parse().map_err(|error| format!("{error}"))).collect()
}

fn addresses(client: &Client) -> String {
    let addresses: Vec<String> = client.addresses().map(|net| net.addr().to_string()).collect();
    addresses.join(", ")
}

fn preshared_key() -> SecretKey {
    let mut key = Zeroizing::new([0; 32]);
    random::fill(&mut *key);
    SecretKey::from_bytes(&key)
}

fn now() -> Timestamp {
    expiry::whole_seconds(Timestamp::now())
}

fn print_json(value: &serde_json::Value) -> Result<ExitCode, CliError> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| format!("cannot write JSON: {error}"))?;
    let mut text = Zeroizing::new(text);
    text.push(b'\n');
    Ok(print(&text)?)
}
