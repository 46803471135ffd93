//! Reads wireproxy's file, and a tunnel file that has the same sections behind `#!`.
//!
//! wireproxy reads it by go-ini: names of sections and keys in any case, `=` or `:` between key and value, comments from
//! `#` or `;`, quotes around a value, and `$NAME` for the environment's. What is about the tunnel goes on to
//! [`linerate_control::tunnel_file`], line by line, so that each line is read by one reader and complaints have the
//! right numbers.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use linerate_control::characters::wide_encoding;
use linerate_control::tunnel_file::{Diagnostic, Severity, name_odd_characters};
use linerate_control::wg_config::is_typo_of;
use linerate_control::zeroizing::Buffer;
use zeroize::Zeroizing;

use super::{Local, Login, Names, ProxyFile, Resolve, Service, Settings, Stack};
use crate::target::{self, Target};

/// What a value may be made of: the environment.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The keys of a wg-quick file that are about the host, which the proxy leaves alone.
const OF_THE_HOST: [&str; 7] = ["PreUp", "PostUp", "PreDown", "PostDown", "Table", "FwMark", "SaveConfig"];

/// U+FEFF in UTF-8, which some editors write before the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A kind of section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Before the first header.
    Start,
    Interface,
    Peer,
    TcpClient,
    TcpServer,
    UdpProxy,
    UdpServer,
    Stdio,
    Socks,
    Http,
    Sni,
    Resolve,
    Proxy,
    Unknown,
}

/// Headers, and the keys below them. [UDPServerTunnel] and [Proxy] are ours, the others wireproxy's.
static SECTIONS: [(&str, Kind, &[&str]); 14] = [
    ("Interface", Kind::Interface, &["CheckAlive", "CheckAliveInterval"]),
    ("Peer", Kind::Peer, &[]),
    ("TCPClientTunnel", Kind::TcpClient, &["BindAddress", "Target"]),
    ("TCPServerTunnel", Kind::TcpServer, &["ListenPort", "Target"]),
    ("UDPProxyTunnel", Kind::UdpProxy, &["BindAddress", "Target", "InactivityTimeout"]),
    ("UDPServerTunnel", Kind::UdpServer, &["ListenPort", "Target", "InactivityTimeout"]),
    ("STDIOTunnel", Kind::Stdio, &["Target"]),
    ("STDIO", Kind::Stdio, &["Target"]),
    ("Socks5", Kind::Socks, &["BindAddress", "Username", "Password"]),
    ("http", Kind::Http, &["BindAddress", "Username", "Password", "CertFile", "KeyFile"]),
    ("SNI", Kind::Sni, &["BindAddress"]),
    ("Resolve", Kind::Resolve, &["ResolveStrategy"]),
    ("Proxy", Kind::Proxy, &["Stack", "Congestion", "Names", "Info", "CheckAlive", "CheckAliveInterval"]),
    ("", Kind::Start, &["WGConfig"]),
];

/// A section of the proxy, with what was found below it.
struct Section {
    name: &'static str,
    kind: Kind,
    line: usize,
    fields: Vec<Field>,
    /// A setting is there that cannot be used, which has been said.
    has_wrong: bool,
}

/// A key and its value.
struct Field {
    key: &'static str,
    value: Zeroizing<String>,
    line: usize,
    column: usize,
}

/// Reads a file. The diagnostics are in the order of its lines; they are about the proxy alone, and those about the
/// tunnel come from reading [`ProxyFile::tunnel`].
pub fn read(bytes: &[u8], environment: Environment<'_>) -> (ProxyFile, Vec<Diagnostic>) {
    let mut reader = Reader {
        environment,
        file: ProxyFile {
            settings: Settings::default(),
            tunnel_file: None,
            tunnel: Buffer::with_capacity(bytes.len()),
        },
        sections: vec![section(13, 1)],
        diagnostics: Vec::new(),
    };
    if let Some(encoding) = wide_encoding(bytes) {
        reader.error(1, 1, format!("the file seems to be {encoding}, and cannot be read"), "save it as UTF-8");
        return (reader.file, reader.diagnostics);
    }
    let mut place = Place { kind: Kind::Start, marked: None };
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    for (line, text) in (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
        let (content, end) = match text {
            [content @ .., b'\r', b'\n'] | [content @ .., b'\n'] => (content, &b"\n"[..]),
            content => (content, &b""[..]),
        };
        match std::str::from_utf8(content) {
            Ok(content) => reader.line(&mut place, line, content),
            Err(_) => reader.error(line, 1, "this line is not UTF-8", "save the file as UTF-8"),
        }
        reader.file.tunnel.extend(end);
    }
    for section in std::mem::take(&mut reader.sections) {
        reader.section(section);
    }
    if reader.file.settings.check_alive.is_empty()
        && let Some(interval) = reader.file.settings.check_alive_interval.take()
    {
        let message = format!("CheckAliveInterval is {} and there is nothing to check", interval.as_secs());
        reader.error(1, 1, message, "set CheckAlive");
    }
    reader.diagnostics.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
    name_odd_characters(bytes.split_inclusive(|&byte| byte == b'\n'), &mut reader.diagnostics);
    (reader.file, reader.diagnostics)
}

/// Where in the file a line is: below a header, and perhaps below a header behind `#!` further down.
struct Place {
    kind: Kind,
    marked: Option<Kind>,
}

struct Reader<'a> {
    environment: Environment<'a>,
    file: ProxyFile,
    sections: Vec<Section>,
    diagnostics: Vec<Diagnostic>,
}

/// A line that says something.
struct Entry<'a> {
    key: &'a str,
    value: &'a str,
    /// The bytes before key and value.
    key_at: usize,
    value_at: usize,
}

impl Reader<'_> {
    /// Reads a line, and passes it on if it is about the tunnel.
    fn line(&mut self, place: &mut Place, line: usize, text: &str) {
        let body = text.trim_start();
        if let Some(marked) = body.strip_prefix("#!") {
            return self.marked_line(place, line, text, marked);
        }
        if body.is_empty() || body.starts_with(['#', ';']) {
            return;
        }
        if body.starts_with('[') {
            place.marked = None;
            place.kind = self.header(line, body, text.len() - body.len());
            if matches!(place.kind, Kind::Interface | Kind::Peer) {
                self.pass_on(text);
            }
            return;
        }
        let Some(entry) = entry(text, 0) else {
            let hint = "write KEY = VALUE, or # before a comment";
            return self.error(line, 1, "this line is neither a section nor a setting", hint);
        };
        match place.kind {
            Kind::Unknown => {}
            Kind::Interface if is_of_the_proxy(&entry) => self.field(line, text, &entry, Kind::Interface),
            Kind::Interface | Kind::Peer => self.tunnel_line(line, text, &entry),
            kind => self.field(line, text, &entry, kind),
        }
    }

    /// A line behind `#!`: of the proxy below a header behind `#!`, else one of the tunnel's.
    fn marked_line(&mut self, place: &mut Place, line: usize, text: &str, marked: &str) {
        let body = marked.trim_start();
        if body.starts_with('[') {
            let kind = self.header(line, body, text.len() - body.len());
            if matches!(kind, Kind::Interface | Kind::Peer) {
                self.error(line, 1, "a section of the tunnel is behind `#!`", "remove `#!`");
            }
            place.marked = Some(kind);
            return;
        }
        let Some(kind) = place.marked else { return self.pass_on(text) };
        match entry(text, text.len() - marked.len()) {
            Some(entry) if kind != Kind::Unknown => self.field(line, text, &entry, kind),
            Some(_) => {}
            None if body.is_empty() => {}
            None => self.error(line, 1, "this line is neither a section nor a setting", "write #! KEY = VALUE"),
        }
    }

    /// The kind of section that a header begins; `indent` bytes are before it.
    fn header(&mut self, line: usize, text: &str, indent: usize) -> Kind {
        let inner = text[1..].split(']').next().unwrap_or_default().trim();
        let is_closed = text.contains(']');
        let known = SECTIONS.iter().position(|(name, ..)| !name.is_empty() && name.eq_ignore_ascii_case(inner));
        match known.filter(|_| is_closed) {
            Some(known) => {
                // [Interface] has two keys that are the proxy's.
                if SECTIONS[known].1 != Kind::Peer {
                    self.sections.push(section(known, line));
                }
                SECTIONS[known].1
            }
            None => {
                let names = SECTIONS[..13].iter().map(|(name, ..)| name);
                let hint = match names.clone().find(|name| is_typo_of(inner, name)) {
                    Some(name) => format!("did you mean [{name}]?"),
                    None => {
                        format!("there are {}", names.map(|name| format!("[{name}]")).collect::<Vec<_>>().join(", "))
                    }
                };
                self.error(line, indent + 1, "unknown section", hint);
                Kind::Unknown
            }
        }
    }

    /// A setting of the proxy, below the last header of its kind.
    fn field(&mut self, line: usize, text: &str, entry: &Entry<'_>, kind: Kind) {
        let column = column(text, entry.key_at);
        let Some(section) = self.sections.iter().rposition(|section| section.kind == kind) else { return };
        let keys = SECTIONS.iter().find(|(_, of, _)| *of == kind).map_or(&[][..], |(_, _, keys)| *keys);
        let Some(key) = keys.iter().copied().find(|key| key.eq_ignore_ascii_case(entry.key)) else {
            let name = self.sections[section].name;
            let place = if name.is_empty() { "before the first section".to_owned() } else { format!("in [{name}]") };
            let meant = keys.iter().find(|key| is_typo_of(entry.key, key));
            // Then it is not missed as well.
            self.sections[section].has_wrong |= meant.is_some();
            let hint = meant.map_or(format!("there are {}", keys.join(", ")), |key| format!("did you mean {key}?"));
            return self.error(line, column, format!("unknown setting {place}"), hint);
        };
        if self.sections[section].fields.iter().any(|field| field.key == key) {
            return self.error(line, column, format!("{key} is set twice"), "remove one of them");
        }
        let value_column = self::column(text, entry.value_at);
        let Some(value) = self.value(line, value_column, key, entry.value) else {
            self.sections[section].has_wrong = true;
            return;
        };
        self.sections[section].fields.push(Field { key, value, line, column: value_column });
    }

    /// A setting of the tunnel, as wg-quick writes it.
    fn tunnel_line(&mut self, line: usize, text: &str, entry: &Entry<'_>) {
        if let Some(key) = OF_THE_HOST.iter().find(|key| key.eq_ignore_ascii_case(entry.key)) {
            let message = format!("{key} is about the host, which the proxy leaves alone");
            return self.warn(line, column(text, entry.key_at), message, "the line is ignored");
        }
        if entry.value.is_empty() {
            return self.pass_on(text);
        }
        let Some(value) = self.value(line, column(text, entry.value_at), entry.key, entry.value) else { return };
        // A line that says the same to wg-quick stays as it is, so that columns are those of the file.
        if text.contains([';', '"', '\'', '`', '$']) || text[entry.key_at..entry.value_at].contains(':') {
            self.pass_on(entry.key);
            self.pass_on(" = ");
            self.pass_on(&value);
        } else {
            self.pass_on(text);
        }
    }

    fn pass_on(&mut self, text: &str) {
        self.file.tunnel.extend(text.as_bytes());
    }

    /// A value without its quotes and the comment behind it, that of the environment if it is `$NAME`.
    fn value(&mut self, line: usize, column: usize, key: &str, text: &str) -> Option<Zeroizing<String>> {
        let plain = unquoted(text);
        let value = match plain.strip_prefix('$') {
            None => Zeroizing::new(plain.to_owned()),
            Some(rest) if rest.starts_with('$') => Zeroizing::new(rest.to_owned()),
            Some(name) => match (self.environment)(name) {
                Some(value) => Zeroizing::new(value.trim().to_owned()),
                None => {
                    let message = format!("{key} is the value of an environment variable that is not set");
                    self.error(line, column, message, "set it, or write $$ for a dollar sign");
                    return None;
                }
            },
        };
        if value.chars().any(char::is_control) {
            self.error(line, column, format!("the value of {key} has control characters"), "remove them");
            return None;
        }
        if value.is_empty() {
            self.error(line, column, format!("{key} has no value"), "add one or remove the line");
            return None;
        }
        Some(value)
    }

    /// What a section asks for.
    fn section(&mut self, mut section: Section) {
        let service = match section.kind {
            Kind::TcpClient => self
                .local(&mut section)
                .zip(self.target(&mut section))
                .map(|(local, target)| Service::TcpOut { local, target }),
            Kind::TcpServer => self
                .listen_port(&mut section)
                .zip(self.target(&mut section))
                .map(|(port, target)| Service::TcpIn { port, target }),
            Kind::UdpProxy => {
                let timeout = self.timeout(&mut section);
                let ends = self.local(&mut section).zip(self.target(&mut section));
                ends.map(|(local, target)| Service::UdpOut { local, target, timeout })
            }
            Kind::UdpServer => {
                let timeout = self.timeout(&mut section);
                let ends = self.listen_port(&mut section).zip(self.target(&mut section));
                ends.map(|(port, target)| Service::UdpIn { port, target, timeout })
            }
            Kind::Stdio => self.target(&mut section).map(|target| Service::Stdio { target }),
            Kind::Socks => {
                let login = self.login(&mut section);
                self.local(&mut section).zip(login).map(|(local, login)| Service::Socks { local, login })
            }
            Kind::Http => {
                let (login, tls) = (self.login(&mut section), self.tls(&mut section));
                let parts = self.local(&mut section).zip(login).zip(tls);
                parts.map(|((local, login), tls)| Service::Http { local, login, tls })
            }
            Kind::Sni => self.local(&mut section).map(|local| Service::Sni { local }),
            Kind::Start | Kind::Interface | Kind::Peer | Kind::Resolve | Kind::Proxy | Kind::Unknown => {
                return self.setting(&mut section);
            }
        };
        self.file.settings.services.extend(service);
    }

    /// The settings of sections that are no service.
    fn setting(&mut self, section: &mut Section) {
        if let Some(field) = section.take("WGConfig") {
            self.file.tunnel_file = Some(PathBuf::from(&*field.value));
        }
        if let Some(field) = section.take("ResolveStrategy") {
            let words = [("auto", Resolve::Auto), ("ipv4", Resolve::Ipv4), ("ipv6", Resolve::Ipv6)];
            self.file.settings.resolve = self.word(&field, &words).unwrap_or_default();
        }
        if let Some(field) = section.take("Stack") {
            let words = [("auto", Stack::Auto), ("kernel", Stack::Kernel), ("embedded", Stack::Embedded)];
            self.file.settings.stack = self.word(&field, &words).unwrap_or_default();
        }
        if let Some(field) = section.take("Congestion") {
            // It becomes a line of a file of the kernel's.
            if field.value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !field.value.is_empty() {
                self.file.settings.congestion = Some(field.value.to_string());
            } else {
                let hint = "write a name of /proc/sys/net/ipv4/tcp_allowed_congestion_control";
                self.error(field.line, field.column, "Congestion is not the name of a congestion control", hint);
            }
        }
        if let Some(field) = section.take("Names") {
            let words = [("tunnel", Names::Tunnel), ("system", Names::System)];
            self.file.settings.names = self.word(&field, &words).unwrap_or_default();
        }
        if let Some(field) = section.take("Info") {
            self.file.settings.info = self.local_of(&field);
        }
        if let Some(field) = section.take("CheckAlive") {
            for text in field.value.split(',').map(str::trim).filter(|text| !text.is_empty()) {
                match text.parse::<IpAddr>() {
                    Ok(address) => self.file.settings.check_alive.push(address.to_canonical()),
                    Err(_) => {
                        let message = "CheckAlive has something that is not an address";
                        self.error(field.line, field.column, message, "write addresses, separated by commas");
                    }
                }
            }
        }
        if let Some(field) = section.take("CheckAliveInterval") {
            self.file.settings.check_alive_interval = self.seconds(&field).map(Duration::from_secs);
            if self.file.settings.check_alive_interval == Some(Duration::ZERO) {
                self.error(field.line, field.column, "CheckAliveInterval is 0", "write seconds, at least 1");
            }
        }
    }

    fn local(&mut self, section: &mut Section) -> Option<Local> {
        let field = self.required(section, "BindAddress")?;
        self.local_of(&field)
    }

    fn local_of(&mut self, field: &Field) -> Option<Local> {
        let local = field.value.parse().ok();
        if local.is_none() {
            let message = format!("{} is not a local address with a port", field.key);
            let hint = "write 127.0.0.1:PORT, localhost:PORT, or :PORT for all addresses";
            self.error(field.line, field.column, message, hint);
        }
        local
    }

    fn target(&mut self, section: &mut Section) -> Option<Target> {
        let field = self.required(section, "Target")?;
        let target = field.value.parse().ok();
        if target.is_none() {
            let message = "Target is not an address or a name with a port";
            self.error(field.line, field.column, message, "write HOST:PORT, with brackets around an IPv6 address");
        }
        target
    }

    fn listen_port(&mut self, section: &mut Section) -> Option<u16> {
        let field = self.required(section, "ListenPort")?;
        let port = target::port(&field.value);
        if port.is_none() {
            self.error(field.line, field.column, "ListenPort is not a port", "write a number from 1 to 65535");
        }
        port
    }

    fn timeout(&mut self, section: &mut Section) -> Option<Duration> {
        let field = section.take("InactivityTimeout")?;
        self.seconds(&field).filter(|&seconds| seconds > 0).map(Duration::from_secs)
    }

    fn seconds(&mut self, field: &Field) -> Option<u64> {
        let seconds = field.value.parse::<u32>().ok();
        if seconds.is_none() {
            self.error(field.line, field.column, format!("{} is not a number of seconds", field.key), "write digits");
        }
        seconds.map(u64::from)
    }

    /// The outer option is whether what is there is right.
    #[allow(clippy::option_option, reason = "none is right, and is what most files have")]
    fn login(&mut self, section: &mut Section) -> Option<Option<Login>> {
        match (section.take("Username"), section.take("Password")) {
            (None, None) => Some(None),
            (Some(name), Some(password)) => {
                for field in [&name, &password] {
                    // RFC 1929: a byte has the length.
                    if field.value.len() > 255 {
                        self.error(field.line, field.column, format!("{} is too long", field.key), "255 bytes at most");
                    }
                }
                Some(Some(Login::new(&name.value, &password.value)))
            }
            // The other one is there and wrong, which has been said.
            _ if section.has_wrong => None,
            (Some(name), None) => self.alone(&name, "Password"),
            (None, Some(password)) => self.alone(&password, "Username"),
        }
    }

    #[allow(clippy::option_option, reason = "as for the login")]
    fn tls(&mut self, section: &mut Section) -> Option<Option<(PathBuf, PathBuf)>> {
        match (section.take("CertFile"), section.take("KeyFile")) {
            (None, None) => Some(None),
            (Some(certificate), Some(key)) => {
                Some(Some((PathBuf::from(&*certificate.value), PathBuf::from(&*key.value))))
            }
            // The other one is there and wrong, which has been said.
            _ if section.has_wrong => None,
            (Some(certificate), None) => self.alone(&certificate, "KeyFile"),
            (None, Some(key)) => self.alone(&key, "CertFile"),
        }
    }

    /// Two keys belong together, and there is no `other`.
    fn alone<T>(&mut self, field: &Field, other: &str) -> Option<T> {
        self.error(field.line, field.column, format!("{} is set without {other}", field.key), "set both or none");
        None
    }

    fn required(&mut self, section: &mut Section, key: &'static str) -> Option<Field> {
        let field = section.take(key);
        if field.is_none() && !section.has_wrong {
            self.error(section.line, 1, format!("[{}] has no {key}", section.name), format!("add {key} = …"));
        }
        field
    }

    fn word<T: Copy>(&mut self, field: &Field, words: &[(&str, T)]) -> Option<T> {
        let known = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(&field.value));
        if known.is_none() {
            let words = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            self.error(field.line, field.column, format!("unknown {}", field.key), format!("there are {words}"));
        }
        known.map(|(_, value)| *value)
    }

    fn error(&mut self, line: usize, column: usize, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Error, line, column, message.into(), hint.into());
    }

    fn warn(&mut self, line: usize, column: usize, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Severity::Warning, line, column, message.into(), hint.into());
    }

    fn add(&mut self, severity: Severity, line: usize, column: usize, message: String, hint: String) {
        self.diagnostics.push(Diagnostic { severity, line, column, message, hint: Some(hint) });
    }
}

impl Section {
    fn take(&mut self, key: &str) -> Option<Field> {
        let at = self.fields.iter().position(|field| field.key == key)?;
        Some(self.fields.remove(at))
    }
}

fn section(known: usize, line: usize) -> Section {
    let (name, kind, _) = SECTIONS[known];
    Section { name, kind, line, fields: Vec::new(), has_wrong: false }
}

fn is_of_the_proxy(entry: &Entry<'_>) -> bool {
    ["CheckAlive", "CheckAliveInterval"].iter().any(|key| key.eq_ignore_ascii_case(entry.key))
}

/// The key and the value of a line, from `start` on.
fn entry(line: &str, start: usize) -> Option<Entry<'_>> {
    let delimiter = start + line[start..].find(['=', ':'])?;
    let key = line[start..delimiter].trim();
    let value = line[delimiter + 1..].trim();
    let at = |part: &str| part.as_ptr() as usize - line.as_ptr() as usize;
    (!key.is_empty()).then(|| Entry { key, value, key_at: at(key), value_at: at(value) })
}

/// What is between quotes, or else what stands before a comment.
fn unquoted(text: &str) -> &str {
    let quote = text.chars().next().filter(|first| ['"', '\'', '`'].contains(first));
    if let Some(inner) = quote.and_then(|quote| text[1..].split_once(quote)).map(|(inner, _)| inner) {
        return inner;
    }
    text.split(['#', ';']).next().unwrap_or_default().trim_end()
}

/// The column in characters, from 1, of a byte of a line.
fn column(line: &str, at: usize) -> usize {
    1 + line[..at].chars().count()
}
