//! The subjects of measurement: who they are, where they are found, and how to get those that are missing.
//!
//! A daemon follows wireguard-go's conventions: `COMMAND -f IFACE` stays in the foreground, answers on
//! `/var/run/wireguard/IFACE.sock`, and ends on SIGTERM, taking its interface along. Any other program is
//! described by a file ([`commands`](crate::commands)). `tunnel.rs` brings them up.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_control::keys::{PublicKey, SecretKey};

use crate::commands::CommandSet;
use crate::kernel;
pub use crate::kernel::EspSuite;
use crate::{Error, Result};

/// The MTU of every tunnel: what wg-quick gives one over Ethernet.
pub const MTU: u32 = 1420;

/// The port of both ends.
pub const LISTEN_PORT: u16 = 51820;

/// Where a command wants the interface's name, when it is not last.
const INTERFACE: &str = "{iface}";

/// Our daemon, and the tool that brings its tunnels up.
const PROGRAM: &str = "linerated";
const TOOL: &str = "linerate";

/// Our daemon, built so that it can do without a cipher, and the line that builds it.
const PROGRAM_NO_CIPHER: &str = "linerated-no-cipher";
const BUILD_NO_CIPHER: &str =
    "cargo build --release -p linerated --features no-cipher --bin linerated-no-cipher, in linerate's source";

/// Tailscale's fork of wireguard-go: the subject, its program, and the line that gets it.
const TAILSCALE: &str = "wireguard-go-tailscale";
const INSTALL_TAILSCALE: &str = "go install github.com/tailscale/wireguard-go@v0.0.0-20260928213032-417aef361226 \
    && mv ~/go/bin/wireguard-go ~/go/bin/wireguard-go-tailscale";

/// How long a program may take to print its version.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A host's keys, made for one run and worthless outside the lab.
#[derive(Clone)]
pub struct KeyPair {
    /// The private key.
    pub private: SecretKey,
    /// The public key that belongs to it.
    pub public: PublicKey,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// What it is called in the tables.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// The kinds of subjects, by what brings them up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// No tunnel: the load goes by the cable.
    Wire,
    /// A WireGuard daemon with a configuration socket.
    Daemon {
        /// Its command without the interface; that goes where `{iface}` stands, or else `-f IFACE` is added.
        command: Vec<String>,
    },
    /// The kernel's own WireGuard.
    KernelWireGuard,
    /// The kernel's IPsec in tunnel mode, with keys that are given to it by hand.
    Esp(EspSuite),
    /// A tunnel that a file describes.
    Commands(CommandSet),
}

/// A subject that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It can be measured on this machine.
    Here(Subject),
    /// It cannot.
    Missing {
        /// What it is called in the tables.
        name: String,
        /// Why, and the line that gets it: `not on PATH: cargo install boringtun-cli`.
        how: String,
    },
}

impl Found {
    /// What it is called in the tables.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Here(subject) => &subject.name,
            Self::Missing { name, .. } => name,
        }
    }
}

/// All subjects in the order of measurement, then the `given` ones. A given subject replaces one of
/// the same name.
#[must_use]
pub fn catalogue(linerated: &Path, given: &[Subject]) -> Vec<Found> {
    let ours = Subject::file(Subject::OURS, linerated);
    let no_cipher = format!("not built: {BUILD_NO_CIPHER}");
    let go = "not on PATH: apt-get install wireguard-go, or go install golang.zx2c4.com/wireguard@latest";
    let tailscale = format!("not on PATH: {INSTALL_TAILSCALE}");
    let mut all = vec![
        Found::Here(Subject::wire()),
        ours.look(),
        or_missing(Subject::no_cipher(linerated), Subject::NO_CIPHER, &no_cipher),
        or_missing(Subject::wireguard_go(), Subject::WIREGUARD_GO, go),
        or_missing(Subject::tailscale(), TAILSCALE, &tailscale),
        or_missing(Subject::boringtun(), "boringtun", "not on PATH: cargo install boringtun-cli"),
        or_missing(Subject::gotatun(), "gotatun", "not on PATH: cargo install gotatun-cli"),
        Subject { name: "kernel WireGuard".into(), kind: Kind::KernelWireGuard }.look(),
        Subject { name: "ESP AES-GCM".into(), kind: Kind::Esp(EspSuite::AesGcm) }.look(),
        Subject { name: "ESP ChaCha20-Poly1305".into(), kind: Kind::Esp(EspSuite::ChaCha20Poly1305) }.look(),
    ];
    for found in given.iter().map(Subject::look) {
        match all.iter_mut().find(|other| other.name() == found.name()) {
            Some(place) => *place = found,
            None => all.push(found),
        }
    }
    all
}

fn or_missing(found: Option<Subject>, name: &str, how: &str) -> Found {
    found.map_or_else(|| Found::Missing { name: name.into(), how: how.into() }, Found::Here)
}

impl Subject {
    /// The name of our own daemon.
    pub const OURS: &str = "linerate";
    /// The name of our own daemon without a cipher. It takes part only if it is named: it is of no use as a tunnel, and
    /// makes a run longer.
    pub const NO_CIPHER: &str = "no cipher";
    /// The name of wireguard-go.
    pub const WIREGUARD_GO: &str = "wireguard-go";

    /// No tunnel.
    #[must_use]
    pub fn wire() -> Self {
        Self { name: "no tunnel".into(), kind: Kind::Wire }
    }

    /// A daemon by its command, words separated by blanks. The interface goes where `{iface}` stands; without
    /// that, `-f IFACE` is added.
    #[must_use]
    pub fn daemon(name: &str, command: &str) -> Self {
        let command = command.split_whitespace().map(str::to_owned).collect();
        Self { name: name.into(), kind: Kind::Daemon { command } }
    }

    /// The daemon in a file.
    #[must_use]
    pub fn file(name: &str, file: &Path) -> Self {
        Self { name: name.into(), kind: Kind::Daemon { command: vec![file.to_string_lossy().into_owned()] } }
    }

    /// Our own daemon without a cipher, beside `linerated` or on PATH. It does all that `linerate` does but seal and
    /// open, and so shows how fast this way of talking to the kernel can be at best.
    #[must_use]
    pub fn no_cipher(linerated: &Path) -> Option<Self> {
        let beside = Some(linerated.with_file_name(PROGRAM_NO_CIPHER)).filter(|file| file.is_file());
        let file = beside.or_else(|| installed(PROGRAM_NO_CIPHER))?;
        let command = vec!["env".into(), "LINERATE_AEAD=none".into(), file.to_string_lossy().into_owned()];
        Some(Self { name: Self::NO_CIPHER.into(), kind: Kind::Daemon { command } })
    }

    /// The newest wireguard-go on PATH or in `~/go/bin`, where `go install` puts it under the name
    /// `wireguard`.
    #[must_use]
    pub fn wireguard_go() -> Option<Self> {
        let found = places().flat_map(|place| ["wireguard-go", "wireguard"].map(|name| place.join(name)));
        let versions = found.filter_map(|file| {
            let version = first_line(Command::new(&file).arg("--version"))?;
            // Versions are v0.0.DATE: the greatest text is the newest.
            version.starts_with("wireguard-go ").then_some((version, file))
        });
        versions.max().map(|(_, file)| Self::file(Self::WIREGUARD_GO, &file))
    }

    /// Tailscale's fork of wireguard-go on PATH or in `~/go/bin`. Both call themselves wireguard-go, so it is known
    /// by another name.
    fn tailscale() -> Option<Self> {
        installed(TAILSCALE).map(|file| Self::file(TAILSCALE, &file))
    }

    /// boringtun-cli on PATH or in `~/.cargo/bin`.
    #[must_use]
    pub fn boringtun() -> Option<Self> {
        Self::keeping_rights("boringtun", "boringtun-cli")
    }

    /// gotatun on PATH or in `~/.cargo/bin`.
    #[must_use]
    pub fn gotatun() -> Option<Self> {
        Self::keeping_rights("gotatun", "gotatun")
    }

    /// A daemon that, started as root, would give up the right to its own interface.
    fn keeping_rights(name: &str, program: &str) -> Option<Self> {
        let file = installed(program)?;
        Some(Self::daemon(name, &format!("{} --disable-drop-privileges", file.display())))
    }

    /// The `linerate` that brings this subject's tunnels up, if it is a linerated: the one beside it, or else on PATH.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when there is none.
    pub(crate) fn tool(&self) -> Result<Option<PathBuf>> {
        let Some(daemon) = self.daemon_program().map(Path::new) else { return Ok(None) };
        let is_ours = |name: &OsStr| [PROGRAM, PROGRAM_NO_CIPHER].iter().any(|own| name == *own);
        if !daemon.file_name().is_some_and(is_ours) {
            return Ok(None);
        }
        let beside = resolve(&daemon.to_string_lossy()).map(|file| file.with_file_name(TOOL));
        let found = beside.filter(|file| file.is_file()).or_else(|| installed(TOOL));
        let missing = || format!("there is no `{TOOL}` beside {} or on PATH to make its gateway", daemon.display());
        found.map(Some).ok_or_else(|| Error::Refused(missing()))
    }

    /// The program of a daemon, without `env` and what it sets.
    pub(crate) fn daemon_program(&self) -> Option<&str> {
        match &self.kind {
            Kind::Daemon { command } => program(command),
            _ => None,
        }
    }

    /// What `env` sets for a daemon.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        let command = match &self.kind {
            Kind::Daemon { command } => &command[..],
            _ => &[],
        };
        let set = command.iter().skip(1).map_while(|word| word.split_once('='));
        set.filter(move |_| command[0] == "env")
    }

    /// Reads a subject's file, whose form `docs/lab.md` explains.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] that names the line and the column.
    pub fn from_toml(text: &str) -> Result<Self> {
        let (name, commands) = CommandSet::parse(text).map_err(Error::Refused)?;
        Ok(Self { name, kind: Kind::Commands(commands) })
    }

    /// Its command, words apart; empty where the kernel itself is the subject or there is no tunnel.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        match &self.kind {
            Kind::Daemon { command } => command.clone(),
            Kind::Commands(commands) => vec!["sh".into(), "-c".into(), commands.ends[0].clone()],
            Kind::Wire | Kind::KernelWireGuard | Kind::Esp(_) => Vec::new(),
        }
    }

    /// Its version: the first line of a daemon's `--version`, with the distribution's package that it came in, or the
    /// first line of a file's `version`. A distribution's may be years older than upstream's, and its speed another.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        match &self.kind {
            Kind::Daemon { command } => {
                let file = resolve(program(command)?)?;
                let version = first_line(Command::new(&file).arg("--version"));
                match (version, package(&file)) {
                    (Some(version), Some(package)) => Some(format!("{version} ({package})")),
                    (version, package) => version.or(package),
                }
            }
            Kind::Commands(commands) => first_line(Command::new("sh").arg("-c").arg(commands.version.as_ref()?)),
            Kind::KernelWireGuard => {
                let version = fs::read_to_string("/sys/module/wireguard/version").ok()?;
                Some(version.trim().to_owned()).filter(|version| !version.is_empty())
            }
            Kind::Wire | Kind::Esp(_) => None,
        }
    }

    /// Whether it can be measured here.
    fn look(&self) -> Found {
        match self.obstacle() {
            None => Found::Here(self.clone()),
            Some(how) => Found::Missing { name: self.name.clone(), how },
        }
    }

    fn obstacle(&self) -> Option<String> {
        match &self.kind {
            Kind::Wire => None,
            Kind::Daemon { command } => {
                let program = program(command).unwrap_or("");
                (!is_program(program)).then(|| match program.contains('/') {
                    true => format!("there is no program {program}"),
                    false => format!("there is no `{program}` on PATH"),
                })
            }
            Kind::KernelWireGuard => kernel::wireguard_obstacle(),
            Kind::Esp(suite) => kernel::esp_obstacle(*suite),
            Kind::Commands(commands) => {
                let missing = commands.needs.iter().find(|program| !is_program(program))?;
                let get = commands.get.as_ref().map(|get| format!(": {get}")).unwrap_or_default();
                Some(format!("there is no `{missing}` on PATH{get}"))
            }
        }
    }

    /// The command line of a daemon for `interface`; none for other subjects.
    pub(crate) fn command_line(&self, interface: &str) -> Option<Vec<String>> {
        let Kind::Daemon { command } = &self.kind else { return None };
        let mut line: Vec<_> = command.iter().map(|word| word.replace(INTERFACE, interface)).collect();
        if line == *command {
            line.extend(["-f".into(), interface.into()]);
        }
        Some(line)
    }
}

/// The program of a command, which may be started by `env NAME=VALUE...`.
fn program(command: &[String]) -> Option<&str> {
    let started_by_env = command.first().is_some_and(|word| word == "env");
    let mut words = command.iter().skip(usize::from(started_by_env));
    words.find(|word| !(started_by_env && word.contains('='))).map(String::as_str)
}

/// A well-known program's file.
fn installed(program: &str) -> Option<PathBuf> {
    places().map(|place| place.join(program)).find(|file| file.is_file())
}

/// The folders in which well-known programs are looked for.
fn places() -> impl Iterator<Item = PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    search_path().chain(home.into_iter().flat_map(|home| [home.join("go/bin"), home.join(".cargo/bin")]))
}

fn search_path() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect::<Vec<_>>().into_iter()
}

/// Whether `program` is a file, by its path or on PATH.
fn is_program(program: &str) -> bool {
    resolve(program).is_some()
}

/// The file of a program, by its path or on PATH.
fn resolve(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|file| file.is_file());
    }
    search_path().map(|place| place.join(program)).find(|file| !program.is_empty() && file.is_file())
}

/// The distribution's package that `file` came in and its version: `Debian wireguard-go 0.0.20220316-1`. None where
/// there is no dpkg, or it does not know the file.
fn package(file: &Path) -> Option<String> {
    let owner = first_line(Command::new("dpkg-query").arg("--search").arg(file))?;
    let name = owner.split_once(": ")?.0;
    let version = first_line(Command::new("dpkg-query").args(["--show", "--showformat=${Version}", name]))?;
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let distribution = release.lines().find_map(|line| line.strip_prefix("NAME="))?.trim_matches('"');
    let distribution = distribution.split(' ').next()?;
    Some(format!("{distribution} {} {version}", name.split(':').next()?))
}

/// The first line with something in it that a command writes to its standard output. A command that does not
/// end by itself is ended: a daemon that knows no `--version` may just start.
fn first_line(command: &mut Command) -> Option<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let end = Instant::now() + TIMEOUT;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_goes_last_unless_the_command_says_where() {
        let line = |command| Subject::daemon("x", command).command_line("wg-client").unwrap();
        assert_eq!(line("wireguard-go"), ["wireguard-go", "-f", "wg-client"]);
        assert_eq!(line("run --dev={iface} -v"), ["run", "--dev=wg-client", "-v"]);
        assert_eq!(Subject::wire().command_line("wg-client"), None);
    }

    #[test]
    fn a_program_that_is_not_there_has_no_version() {
        assert_eq!(Subject::daemon("x", "/nonexistent/wireguard-go").version(), None);
        assert_eq!(Subject::wire().version(), None);
    }

    #[test]
    fn env_and_what_it_sets_are_not_the_program() {
        for (command, expected) in [
            ("daemon -f", Some("daemon")),
            ("env A=1 B=2 /opt/daemon --c=3", Some("/opt/daemon")),
            ("env daemon", Some("daemon")),
            ("/opt/a=b {iface}", Some("/opt/a=b")),
            ("env A=1", None),
            ("", None),
        ] {
            let words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
            assert_eq!(program(&words), expected, "{command}");
        }
        let missing = Subject::daemon("x", "env A=1 /nonexistent/daemon").look();
        let how = "there is no program /nonexistent/daemon".into();
        assert_eq!(missing, Found::Missing { name: "x".into(), how });
    }

    #[test]
    fn the_daemon_without_a_cipher_is_the_one_beside_linerated_and_is_told_to_do_without() {
        let place = std::env::temp_dir().join(format!("linerate-no-cipher-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let file = place.join(PROGRAM_NO_CIPHER);
        fs::write(&file, "").unwrap();
        let found = Subject::no_cipher(&place.join("linerated"));
        fs::remove_dir_all(&place).unwrap();
        let line = found.unwrap().command_line("wg-client").unwrap();
        assert_eq!(line, ["env", "LINERATE_AEAD=none", &file.to_string_lossy(), "-f", "wg-client"]);
    }

    #[test]
    fn only_a_linerated_has_a_tool_which_is_the_one_beside_it() {
        let place = std::env::temp_dir().join(format!("linerate-tool-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        for name in [PROGRAM, TOOL, "wireguard-go"] {
            fs::write(place.join(name), "").unwrap();
        }
        let tool =
            |command: &str| Subject::daemon("x", &command.replace("HERE", &place.to_string_lossy())).tool().unwrap();
        let found = [tool("HERE/linerated"), tool("env LINERATE_AEAD=avx2 HERE/linerated"), tool("HERE/wireguard-go")];
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(found, [Some(place.join(TOOL)), Some(place.join(TOOL)), None]);
        assert_eq!(Subject::wire().tool().unwrap(), None);
    }

    #[test]
    fn the_catalogue_lists_everyone_and_says_how_to_get_the_missing() {
        let all = catalogue(Path::new("/nonexistent/linerated"), &[Subject::daemon("other", "/nonexistent/other")]);
        let names: Vec<_> = all.iter().map(Found::name).collect();
        assert_eq!(names[..2], ["no tunnel", "linerate"]);
        assert_eq!(names.last(), Some(&"other"));
        let missing =
            Found::Missing { name: "linerate".into(), how: "there is no program /nonexistent/linerated".into() };
        assert_eq!(all[1], missing);
    }

    #[test]
    fn a_given_subject_takes_the_place_of_one_of_its_name() {
        let given = Subject::daemon("boringtun", "/bin/sh -c true");
        let all = catalogue(Path::new("/nonexistent/linerated"), std::slice::from_ref(&given));
        let same: Vec<_> = all.iter().filter(|found| found.name() == "boringtun").collect();
        assert_eq!(same, [&Found::Here(given)]);
    }
}
