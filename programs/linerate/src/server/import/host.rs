//! Looks at what the old tool has left on the host. It changes nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use linerate_server::import::leftovers::{self, Leftover};
use linerate_server::import::{Import, Input};
use linerate_tunnel::server;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use super::sources;
use crate::cli::CliError;

/// Whether a chain of iptables drops packets that no rule accepts.
pub(super) fn drops_unless_accepted(chain: &str) -> bool {
    let rules = printed("iptables-save", "filter").unwrap_or_default();
    let mut lines = rules.lines();
    let (policy, drop, reject) =
        (format!(":{chain} DROP"), format!("-A {chain} -j DROP"), format!("-A {chain} -j REJECT"));
    lines.any(|line| line.starts_with(&policy) || line == drop || line.starts_with(&reject))
}

/// Returns the interfaces of the default routes, and the other interfaces that have addresses, without `own`.
pub(super) fn interfaces(own: Option<&str>) -> Result<(Vec<String>, Vec<String>), CliError> {
    let (uplinks, mut networks) = server::interfaces()?;
    networks.retain(|name| Some(name.as_str()) != own);
    Ok((uplinks, networks))
}

/// Whether there is an interface of that name.
pub(super) fn has_link(name: &str) -> bool {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    socket.is_ok_and(|socket| netdevice::name_to_index(socket, name).is_ok())
}

/// What remains of the old tool.
pub(super) fn leftovers(import: &Import, input: &Input) -> Vec<Leftover> {
    let mut found: Vec<(&str, Vec<u8>)> = Vec::new();
    for path in leftovers::PATHS {
        let content = match path {
            leftovers::SAVED_IPV4 | leftovers::SAVED_IPV6 => printed(path, "nat").map(String::into_bytes),
            _ => sources::contents(Path::new(path)).ok().map(|content| content.to_vec()),
        };
        found.extend(content.map(|content| (path, content)));
    }
    let found: Vec<(&str, &[u8])> = found.iter().map(|(path, content)| (*path, &**content)).collect();
    let unit = format!("wg-quick@{}.service", import.interface);
    leftovers::find(import, input, &found, is_enabled(&unit))
}

/// What `iptables-save` prints of a table.
fn printed(program: &str, table: &str) -> Option<String> {
    let output = Command::new(program).args(["-t", table]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

/// Whether systemd starts a unit with any target.
fn is_enabled(unit: &str) -> bool {
    let Ok(entries) = fs::read_dir("/etc/systemd/system") else { return false };
    let targets =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "wants"));
    targets.into_iter().any(|target| target.join(unit).symlink_metadata().is_ok())
}
