//! Sets name servers with what manages them on this host: systemd-resolved, a `resolvconf`, or the file
//! /etc/resolv.conf. An error here is a warning for the caller: the tunnel works without its name servers.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use linerate_control::atomic_file;
use linerate_control::interface::operands;

use crate::program::{self, WaitLimit};
use crate::spec::Dns;
use crate::state::Link;
use crate::step::DnsManager;

pub mod resolv_conf;

/// What manages name servers on this host.
pub fn detect() -> DnsManager {
    if program::find("resolvectl").is_some() && resolved_manages_the_file() {
        return DnsManager::Resolved;
    }
    match program::find("resolvconf") {
        Some(resolvconf) if !is_resolveds(&resolvconf) => {
            DnsManager::Resolvconf { prefix: prefix(&resolvconf).unwrap_or_default() }
        }
        _ => DnsManager::File,
    }
}

/// Returns the interfaces of `links` whose name servers `manager` has; `None` if that is unknown.
pub fn interfaces_with_dns(manager: &DnsManager, links: &[Link]) -> Option<Vec<String>> {
    let has_file = |folders: &[&str], name: &str| folders.iter().any(|folder| Path::new(folder).join(name).exists());
    let of_links = |is_known: &dyn Fn(&Link) -> bool| {
        Some(links.iter().filter(|link| is_known(link)).map(|link| link.name.clone()).collect())
    };
    match manager {
        DnsManager::File => Some(resolv_conf::interfaces(&read(&file().ok()?).ok()?)),
        // systemd-resolved restores its links' settings from these files when it restarts.
        DnsManager::Resolved if !Path::new(RESOLVED_LINKS).is_dir() => None,
        DnsManager::Resolved => of_links(&|link| {
            let state = fs::read_to_string(Path::new(RESOLVED_LINKS).join(link.index.to_string())).unwrap_or_default();
            state.lines().any(|line| line.starts_with("SERVERS="))
        }),
        DnsManager::Resolvconf { .. } if !RECORDS.iter().any(|folder| Path::new(folder).is_dir()) => None,
        DnsManager::Resolvconf { prefix } => of_links(&|link| has_file(&RECORDS, &format!("{prefix}{}", link.name))),
    }
}

/// systemd-resolved's folder with a file for each link that has settings.
const RESOLVED_LINKS: &str = "/run/systemd/resolve/netif";

/// The record folders of Debian's resolvconf, of openresolv before 3.13, and since.
const RECORDS: [&str; 3] = ["/run/resolvconf/interface", "/run/resolvconf/interfaces", "/run/resolvconf/keys"];

/// Sets the name servers of an interface, replacing those that it has. `exclusive` sends all queries to them. The
/// previous /etc/resolv.conf is kept in `run`, a directory that is emptied at boot.
///
/// # Errors
/// One sentence about what failed; only name resolution is affected. Interrupted if a program was.
pub fn set(
    manager: &DnsManager,
    interface: &str,
    dns: &Dns,
    exclusive: bool,
    run: &Path,
    wait: &WaitLimit<'_>,
) -> io::Result<()> {
    match manager {
        DnsManager::Resolved => set_resolved(interface, dns, exclusive, wait),
        DnsManager::Resolvconf { prefix } => set_resolvconf(&format!("{prefix}{interface}"), dns, exclusive, wait),
        DnsManager::File => set_file(interface, dns, exclusive, run),
    }
}

/// Removes the name servers of an interface, if they are set.
///
/// # Errors
/// As [`set`].
pub fn unset(manager: &DnsManager, interface: &str, run: &Path, wait: &WaitLimit<'_>) -> io::Result<()> {
    match manager {
        DnsManager::Resolved => unset_resolved(interface, wait),
        DnsManager::Resolvconf { prefix } => {
            let record = format!("{prefix}{interface}");
            run_program("resolvconf", &["-d", &record, "-f"], b"", wait)
        }
        DnsManager::File => unset_file(interface, run),
    }
}

/// Removes from /etc/resolv.conf what tunnels of an earlier boot left there: those servers are reachable only through
/// the tunnel, so its endpoint could not be resolved. Call it before names are resolved.
///
/// # Errors
/// One sentence about what failed.
pub fn remove_stale(run: &Path) -> io::Result<()> {
    // If the file is not ours to change, nothing is touched, /run included.
    let Ok(file) = file() else { return Ok(()) };
    if read(&file).is_ok_and(|text| resolv_conf::interfaces(&text).is_empty()) {
        return Ok(());
    }
    edit(run, |text| Ok(text.to_vec()))
}

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Whether /etc/resolv.conf leads to systemd-resolved (the ways are in systemd-resolved.service(8)), and it has run
/// since boot.
fn resolved_manages_the_file() -> bool {
    let state = Path::new("/run/systemd/resolve");
    let target = fs::canonicalize(RESOLV_CONF).unwrap_or_default();
    let is_linked = target.starts_with(state) || target.ends_with("lib/systemd/resolv.conf");
    state.is_dir() && (is_linked || names_the_stub(&fs::read(RESOLV_CONF).unwrap_or_default()))
}

/// Whether all servers are addresses of systemd-resolved.
fn names_the_stub(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut servers = text.lines().filter_map(|line| line.strip_prefix("nameserver")).map(str::trim).peekable();
    servers.peek().is_some() && servers.all(|server| matches!(server, "127.0.0.53" | "127.0.0.54"))
}

/// systemd has a `resolvconf` that is a link to `resolvectl`.
fn is_resolveds(resolvconf: &Path) -> bool {
    let target = fs::canonicalize(resolvconf).unwrap_or_default();
    target.file_name().is_some_and(|name| name == "resolvectl" || name == "systemd-resolve")
}

/// The record-name prefix that Debian's resolvconf ranks first: the first literal `NAME*` line of interface-order. A
/// symbolic link is another implementation, which keeps no such order.
fn prefix(resolvconf: &Path) -> Option<String> {
    if resolvconf.is_symlink() {
        return None;
    }
    let order = fs::read_to_string("/etc/resolvconf/interface-order").ok()?;
    let is_plain =
        |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let name = order.lines().filter_map(|line| line.strip_suffix('*')).find(is_plain)?;
    Some(format!("{name}."))
}

fn set_resolved(interface: &str, dns: &Dns, exclusive: bool, wait: &WaitLimit<'_>) -> io::Result<()> {
    let has_servers = !dns.servers.is_empty();
    let servers: Vec<String> = dns.servers.iter().map(ToString::to_string).collect();
    // Without servers all queries would be lost.
    let all = (exclusive && has_servers).then_some("~.");
    let domains: Vec<&str> = all.into_iter().chain(dns.search.iter().map(String::as_str)).collect();
    let is_default = has_servers && (domains.is_empty() || domains.contains(&"~."));
    resolvectl("dns", interface, servers.iter().map(String::as_str), wait)?;
    resolvectl("domain", interface, domains, wait)?;
    resolvectl("default-route", interface, [if is_default { "yes" } else { "no" }], wait)
}

/// Runs resolvectl; again, while systemd-resolved does not know the link yet: it learns of new links asynchronously.
fn resolvectl<'a>(
    verb: &'a str,
    interface: &'a str,
    values: impl IntoIterator<Item = &'a str>,
    wait: &WaitLimit<'_>,
) -> io::Result<()> {
    let mut arguments = vec![verb, interface];
    arguments.extend(values);
    if arguments.len() == 2 {
        // An empty list is one empty value (resolvectl(1)).
        arguments.push("");
    }
    if arguments.iter().any(|word| word.starts_with('-')) {
        arguments.insert(0, "--");
    }
    for _ in 0..LINK_TRIES {
        match run_program("resolvectl", &arguments, b"", wait) {
            Err(error) if error.to_string().ends_with("not known") => thread::sleep(LINK_PAUSE),
            result => return result,
        }
    }
    run_program("resolvectl", &arguments, b"", wait)
}

const LINK_TRIES: u32 = 20;
const LINK_PAUSE: Duration = Duration::from_millis(20);

fn unset_resolved(interface: &str, wait: &WaitLimit<'_>) -> io::Result<()> {
    // It forgets the servers of a link with the link.
    if !Path::new("/sys/class/net").join(interface).exists() {
        return Ok(());
    }
    let arguments: Vec<&str> = ["revert"].into_iter().chain(operands(interface)).collect();
    run_program("resolvectl", &arguments, b"", wait)
}

fn set_resolvconf(record: &str, dns: &Dns, exclusive: bool, wait: &WaitLimit<'_>) -> io::Result<()> {
    let mut lines: String = dns.servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    // resolvconf does not support routing-only domains.
    let search: Vec<&str> = dns.search.iter().map(String::as_str).filter(|domain| !domain.starts_with('~')).collect();
    if !search.is_empty() {
        lines += &format!("search {}\n", search.join(" "));
    }
    if lines.is_empty() {
        return Ok(());
    }
    let mut arguments = vec!["-a", record, "-m", "0"];
    // Exclusive mode without servers would leave no resolver.
    if exclusive && !dns.servers.is_empty() {
        arguments.push("-x");
    }
    run_program("resolvconf", &arguments, lines.as_bytes(), wait)
}

fn run_program(name: &str, arguments: &[&str], input: &[u8], wait: &WaitLimit<'_>) -> io::Result<()> {
    let program =
        program::find(name).ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("`{name}` is not in PATH")))?;
    program::run(&program, arguments, input, wait)
}

fn set_file(interface: &str, dns: &Dns, exclusive: bool, run: &Path) -> io::Result<()> {
    let mut is_new = false;
    let result = edit(run, |text| {
        is_new = !resolv_conf::interfaces(text).iter().any(|there| there == interface);
        if is_new {
            fs::write(backup(run, interface), text)?;
        }
        Ok(resolv_conf::add(text, interface, dns, exclusive))
    });
    if result.is_err() && is_new {
        forget(run, interface)?;
    }
    result
}

fn unset_file(interface: &str, run: &Path) -> io::Result<()> {
    edit(run, |text| Ok(resolv_conf::remove(text, interface)))?;
    forget(run, interface)
}

/// The text from before the tunnel, for people who look for it. It is gone after a boot, so it also distinguishes
/// tunnels of this boot from those of an earlier one.
fn backup(run: &Path, interface: &str) -> PathBuf {
    folder(run).join(format!("resolv.conf.{interface}"))
}

/// A directory of its own: the files next to it are named after interfaces, which may have any name.
fn folder(run: &Path) -> PathBuf {
    run.join("dns")
}

fn forget(run: &Path, interface: &str) -> io::Result<()> {
    match fs::remove_file(backup(run, interface)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Changes /etc/resolv.conf, and removes what an earlier boot left there.
fn edit(run: &Path, change: impl FnOnce(&[u8]) -> io::Result<Vec<u8>>) -> io::Result<()> {
    let edit = || {
        fs::create_dir_all(folder(run))?;
        // Serializes tunnels that come up at the same time, until the file is closed.
        let lock = File::create(folder(run).join("lock"))?;
        lock.lock()?;
        let file = file()?;
        let text = read(&file)?;
        let left_behind = resolv_conf::interfaces(&text).into_iter().filter(|there| !backup(run, there).exists());
        let cleaned = left_behind.fold(text.clone(), |text, interface| resolv_conf::remove(&text, &interface));
        let changed = change(&cleaned)?;
        if changed == text { Ok(()) } else { write(&file, &changed) }
    };
    edit().map_err(|error: io::Error| io::Error::new(error.kind(), format!("cannot change {RESOLV_CONF}: {error}")))
}

/// The file that /etc/resolv.conf leads to, whether or not it exists. A symbolic link of another user, as in a
/// directory of systemd-resolved, is not followed: that user could make us write anywhere.
fn file() -> io::Result<PathBuf> {
    let mut path = PathBuf::from(RESOLV_CONF);
    for _ in 0..LINKS {
        let link = match fs::symlink_metadata(&path) {
            Ok(there) if there.is_symlink() => there,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => return Ok(path),
        };
        if link.uid() != 0 && link.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!(
                "{} is a symbolic link owned by user {}",
                path.display(),
                link.uid()
            )));
        }
        let target = fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// The kernel follows as many links (path_resolution(7)).
const LINKS: usize = 40;

/// Without the file, the host has no name servers yet.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    match atomic_file::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => Ok(read?.to_vec()),
    }
}

/// Replaces the file, or writes it in place, as where it is a mount in a container.
fn write(file: &Path, text: &[u8]) -> io::Result<()> {
    let (mode, owner) = match fs::symlink_metadata(file) {
        Ok(before) => (before.permissions().mode() & 0o7777, Some((before.uid(), before.gid()))),
        Err(error) if error.kind() == ErrorKind::NotFound => (0o644, None),
        Err(error) => return Err(error),
    };
    atomic_file::replace(file, ".resolv.conf.linerate", text, Some(mode), owner)
}
