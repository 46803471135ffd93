//! The files of a proxy, from their paths to what they say.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use linerate_cli::eprint_line;
use linerate_control::atomic_file;
use linerate_control::characters::decoded;
use linerate_control::document::Document;
use linerate_control::interface::InterfaceName;
use linerate_control::tunnel_file::{Diagnostic, KeyDirectories, NoNames, Severity, TunnelFile, settings};
use linerate_control::zeroizing::Buffer;
use linerate_tunnel::isolated;

use crate::config::{self, ProxyFile, Service, Settings};

/// The interface of a tunnel, which nobody outside of the proxy sees.
const INTERFACE: &str = "wg0";

/// What the files of a proxy say. It holds secrets, so it has no `Debug`.
pub struct Loaded {
    /// What is to be done.
    pub settings: Settings,
    /// The tunnel. Names of endpoints are not looked up yet.
    pub tunnel: TunnelFile,
}

/// Reads a proxy's file, the tunnel's if that is another one, and the keys that are in files of their own. Warnings go to
/// standard error.
///
/// # Errors
/// What is wrong, a line for each mistake.
pub fn load(path: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, String> {
    let mut mistakes = Vec::new();
    let mut file = read_one(path, environment, &mut mistakes)?;
    let (tunnel_path, text) = match file.tunnel_file.take() {
        None => (path.to_owned(), file.tunnel),
        Some(other) => {
            let other = beside(path, &other);
            let there = read_one(&other, environment, &mut mistakes)?;
            if there.tunnel_file.is_some() {
                mistakes.push(format!("{}: WGConfig leads here, and on: it may lead once", other.display()));
            }
            if !file.tunnel.trim_ascii().is_empty() {
                let (here, there) = (path.display(), other.display());
                eprint_line(&format!(
                    "linerate-proxy: {here}: [Interface] and [Peer] are ignored: WGConfig has those of {there} count"
                ));
            }
            file.settings.add(there.settings);
            (other, there.tunnel)
        }
    };
    let document = Document::of(Arc::new(text));
    let interface: InterfaceName = INTERFACE.parse().map_err(|_| format!("{INTERFACE} is not a name"))?;
    let (mut tunnel, diagnostics) = TunnelFile::read(&document, &interface, &NoNames);
    mistakes.extend(told(&tunnel_path, &diagnostics));
    let missing = match (tunnel.has_private_key(), tunnel.peers.is_empty()) {
        (false, true) => "there is no tunnel: add [Interface] and [Peer], or WGConfig = FILE before the first section",
        (false, false) => "there is no PrivateKey in [Interface]",
        (true, true) => "there is no [Peer]",
        (true, false) => "",
    };
    if !missing.is_empty() {
        mistakes.push(format!("{}: {missing}", tunnel_path.display()));
    }
    if mistakes.is_empty() {
        everywhere(&document, &mut tunnel);
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        let configuration = tunnel_path.parent().unwrap_or(Path::new("/"));
        let folders = KeyDirectories { configuration, credentials: credentials.as_deref() };
        tunnel.load_keys(folders).unwrap_or_else(|sentences| mistakes.extend(sentences));
    }
    let ignored = isolated::ignored(&tunnel);
    if !ignored.is_empty() {
        let (file, ignored) = (tunnel_path.display(), ignored.join(", "));
        eprint_line(&format!(
            "linerate-proxy: {file}: the proxy ignores {ignored}: all that it is asked for uses the tunnel"
        ));
    }
    match mistakes.is_empty() {
        true => Ok(Loaded { settings: file.settings, tunnel }),
        false => Err(mistakes.join("\n")),
    }
}

/// Reads one file, whose relative paths are then those of files beside it.
fn read_one(
    path: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
    mistakes: &mut Vec<String>,
) -> Result<ProxyFile, String> {
    let (mut file, diagnostics) = config::read(&read(path)?, environment);
    for service in &mut file.settings.services {
        if let Service::Http { tls: Some((certificate, key)), .. } = service {
            (*certificate, *key) = (beside(path, certificate), beside(path, key));
        }
    }
    mistakes.extend(told(path, &diagnostics));
    Ok(file)
}

/// A name without a folder is beside the file that has it, and so is any other relative path: where the proxy was started
/// from does not matter.
fn beside(file: &Path, other: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(other)
}

fn read(path: &Path) -> Result<Buffer, String> {
    let failed = |error| format!("cannot read {}: {error}{}", path.display(), hint(path, &error));
    Ok(decoded(atomic_file::read(path).map_err(failed)?))
}

/// For who writes a tunnel's name, as for `linerate run`.
fn hint(path: &Path, error: &io::Error) -> &'static str {
    let is_name = path.to_str().is_some_and(|path| path.parse::<InterfaceName>().is_ok() && !path.contains('.'));
    if is_name && error.kind() == io::ErrorKind::NotFound {
        "; give the path of the file, as in ./NAME.conf"
    } else {
        ""
    }
}

/// The mistakes; warnings are printed.
fn told(path: &Path, diagnostics: &[Diagnostic]) -> Vec<String> {
    let (errors, warnings): (Vec<_>, Vec<_>) =
        diagnostics.iter().partition(|diagnostic| diagnostic.severity == Severity::Error);
    warnings.iter().for_each(|warning| eprint_line(&format!("linerate-proxy: {}", warning.in_file(path))));
    errors.iter().map(|error| error.in_file(path).to_string()).collect()
}

/// A peer without `AllowedIPs` is the way to everywhere, as for wireproxy.
fn everywhere(document: &Document, tunnel: &mut TunnelFile) {
    for peer in &mut tunnel.peers {
        let says = document.sections()[peer.section].entries().any(|entry| entry.is(&settings::ALLOWED_IPS));
        if !says {
            let all = ["0.0.0.0/0", "::/0"].map(|prefix| prefix.parse::<IpNet>().expect("it is a prefix"));
            Arc::make_mut(peer).allowed_ips.extend(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::fs;

    use super::*;
    use crate::config::{Names, Stack};

    const KEY: &str = "uCTIK+56CPyCvwJxmU5dBfuyJvPuSXAq1FzHdnIxe1Q=";

    fn load_text(text: &str) -> Result<Loaded, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.conf");
        fs::write(&path, text).unwrap();
        load(&path, &|_| None).map_err(|said| said.replace(folder.path().to_str().unwrap(), ""))
    }

    #[test]
    fn a_peer_without_allowed_ips_is_the_way_to_everywhere() {
        let text = format!("[Interface]\nPrivateKey = {KEY}\nAddress = 10.0.0.2\n[Peer]\nPublicKey = {KEY}\n");
        let loaded = load_text(&text).unwrap_or_else(|said| panic!("{said}"));
        let allowed: Vec<_> = loaded.tunnel.peers[0].allowed_ips.iter().map(ToString::to_string).collect();
        assert_eq!(allowed, ["0.0.0.0/0", "::/0"]);
        let loaded = load_text(&(text + "AllowedIPs = 10.0.0.0/24\n")).unwrap_or_else(|said| panic!("{said}"));
        assert_eq!(loaded.tunnel.peers[0].allowed_ips.len(), 1);
    }

    #[test]
    fn other_files_are_beside() {
        let folder = tempfile::tempdir().unwrap();
        let tunnel = format!("[Interface]\nPrivateKey = {KEY}\n[Peer]\nPublicKey = {KEY}\n");
        fs::write(folder.path().join("wg.conf"), tunnel).unwrap();
        let path = folder.path().join("proxy.conf");
        let text = "WGConfig = wg.conf\n[http]\nBindAddress = :1080\nCertFile = a.pem\nKeyFile = /etc/a.key\n";
        fs::write(&path, text).unwrap();
        let loaded = load(&path, &|_| None).unwrap_or_else(|said| panic!("{said}"));
        assert_eq!((loaded.settings.services.len(), loaded.tunnel.peers.len()), (1, 1));
        let Service::Http { tls: Some((certificate, key)), .. } = &loaded.settings.services[0] else { panic!() };
        assert_eq!((certificate, key), (&folder.path().join("a.pem"), &PathBuf::from("/etc/a.key")));
    }

    #[test]
    fn a_tunnels_file_is_read_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let beside = folder.path().join("tunnels");
        fs::create_dir(&beside).unwrap();
        let tunnel = format!(
            "[Interface]\nPrivateKey = {KEY}\nCheckAlive = 10.0.0.1\nCheckAliveInterval = 7\n[Peer]\nPublicKey = {KEY}\n\
             #! [http]\n#! BindAddress = :8080\n#! CertFile = a.pem\n#! KeyFile = a.key\n\
             #! [Proxy]\n#! Stack = embedded\n#! Names = system\n"
        );
        fs::write(beside.join("wg.conf"), tunnel).unwrap();
        let path = folder.path().join("proxy.conf");
        let load_beside = |text: &str| {
            fs::write(&path, text).unwrap();
            load(&path, &|_| None)
        };
        let start = "WGConfig = tunnels/wg.conf\n[Socks5]\nBindAddress = :1080\n";
        let Settings { services, check_alive, check_alive_interval, stack, names, .. } =
            load_beside(start).unwrap_or_else(|said| panic!("{said}")).settings;
        assert_eq!(check_alive, ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(check_alive_interval, Some(Duration::from_secs(7)));
        assert!(stack == Stack::Embedded && names == Names::System);
        let [Service::Socks { .. }, Service::Http { tls: Some((certificate, _)), .. }] = &services[..] else {
            panic!()
        };
        assert_eq!(*certificate, beside.join("a.pem"));

        // What the file with WGConfig says itself counts.
        let own = "[Proxy]\nStack = kernel\nCheckAlive = 10.0.0.9\nCheckAliveInterval = 3\n";
        let settings = load_beside(&(start.to_owned() + own)).unwrap_or_else(|said| panic!("{said}")).settings;
        assert_eq!(settings.check_alive, ["10.0.0.9".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(settings.check_alive_interval, Some(Duration::from_secs(3)));
        assert!(settings.stack == Stack::Kernel);

        fs::write(beside.join("wg.conf"), "WGConfig = other.conf\n").unwrap();
        assert!(load_beside(start).is_err_and(|said| said.contains("WGConfig leads here, and on")));
    }

    #[test]
    fn all_mistakes_are_told_at_once_with_their_files() {
        let said = load_text("[Interface]\nMTU = a\n[Sock5]\n").err().unwrap();
        let lines: Vec<_> = said.lines().collect();
        assert!(lines[0].starts_with("/proxy.conf:3:1: unknown section"), "{said}");
        assert!(lines[1].starts_with("/proxy.conf:2:7: "), "{said}");
        assert!(lines.len() == 3 && lines[2].starts_with("/proxy.conf: there is no tunnel: add "), "{said}");
        let keyless = load_text(&format!("[Peer]\nPublicKey = {KEY}\n")).err().unwrap();
        assert_eq!(keyless, "/proxy.conf: there is no PrivateKey in [Interface]");
        let alone = load_text(&format!("[Interface]\nPrivateKey = {KEY}\n")).err().unwrap();
        assert_eq!(alone, "/proxy.conf: there is no [Peer]");
        assert!(
            load(Path::new("/nowhere/a"), &|_| None).is_err_and(|said| said.starts_with("cannot read /nowhere/a: "))
        );
        let named = load(Path::new("no-such-tunnel"), &|_| None).err().unwrap();
        assert!(named.ends_with("; give the path of the file, as in ./NAME.conf"), "{named}");
    }
}
