//! The mesh: a tunnel among the gateways with a file of its own, which is brought up, kept in step with the members and taken
//! down by the program `linerate`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use linerate_control::atomic_file;
use linerate_control::interface::InterfaceName;
use linerate_control::zeroizing::Buffer;
use linerate_host::program;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::{Config, Members};

const AGAIN_AFTER: Duration = Duration::from_secs(1);
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// What the interface's name begins with.
const PREFIX: &str = "lm-";
/// IFNAMSIZ without its zero.
const NAME_MAX: usize = 15;

/// The interface of the mesh of a tunnel's gateways.
pub(super) fn interface(config: &Config) -> Result<InterfaceName, String> {
    let name = name_beside(&config.interface.to_string());
    name.parse().map_err(|error| format!("no name for the mesh's interface: {error}"))
}

/// Of a long name the end stays: numbered tunnels of one host differ there.
fn name_beside(tunnel: &str) -> String {
    let start = tunnel.len().saturating_sub(NAME_MAX - PREFIX.len());
    format!("{PREFIX}{}", tunnel.get(start..).unwrap_or_default())
}

/// Keeps the mesh up until `ends` is true. `trouble` receives the reason of each failure.
pub(super) async fn keep(
    config: Config,
    mut members: watch::Receiver<Members>,
    mut ends: watch::Receiver<bool>,
    trouble: watch::Sender<Option<String>>,
) {
    while !*ends.borrow() {
        // It ends by itself, and takes the mesh down: it may not be dropped.
        match up(&config, &mut members, ends.clone()).await {
            Ok(()) => return,
            Err(error) => {
                let said = format!("the mesh of the gateways is down: {error}; linerate-fleet tries again");
                eprintln!("linerate-fleet: {}: {said}", config.fleet);
                trouble.send_replace(Some(said));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN_AFTER) => {}
            () = is_true(&mut ends) => return,
        }
    }
}

async fn up(
    config: &Config,
    members: &mut watch::Receiver<Members>,
    mut ends: watch::Receiver<bool>,
) -> io::Result<()> {
    let file = file(config)?;
    let linerate = linerate().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "linerate is not installed"))?;
    // What an earlier run left that was killed.
    let _ = command(&linerate, "down", &[], &file).stderr(Stdio::null()).status().await;
    let mut written = text(config, &members.borrow_and_update());
    write(&file, &written)?;
    let mut child = command(&linerate, "up", &["--supervise"], &file).spawn()?;
    loop {
        tokio::select! {
            status = child.wait() => return Err(io::Error::other(format!("`linerate up` ended: {}", status?))),
            changed = members.changed() => {
                if changed.is_err() {
                    break;
                }
                let new = text(config, &members.borrow_and_update());
                if *new != *written {
                    written = new;
                    write(&file, &written)?;
                    let status = command(&linerate, "reload", &[], &file).status().await?;
                    if !status.success() {
                        eprintln!("linerate-fleet: {}: the mesh was not reloaded: {status}", config.fleet);
                    }
                }
            }
            () = is_true(&mut ends) => break,
        }
    }
    down(&mut child).await;
    let _ = fs::remove_file(&file);
    Ok(())
}

/// Waits for the end, or for nobody to be left who could say so.
pub(super) async fn is_true(ends: &mut watch::Receiver<bool>) {
    let _ = ends.wait_for(|ends| *ends).await;
}

async fn down(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let _ = tokio::time::timeout(ENDS_WITHIN, child.wait()).await;
}

fn command(linerate: &Path, what: &str, options: &[&str], file: &Path) -> Command {
    let mut command = Command::new(linerate);
    command.arg(what).args(options).arg(file).stdin(Stdio::null());
    // The service's own manager is told by the service.
    command.env_remove("NOTIFY_SOCKET");
    command
}

/// The program beside this one, or else in PATH.
fn linerate() -> Option<PathBuf> {
    let beside = std::env::current_exe().map(|program| program.with_file_name("linerate")).ok();
    beside.filter(|file| file.is_file()).or_else(|| program::find("linerate"))
}

fn file(config: &Config) -> io::Result<PathBuf> {
    let name = interface(config).map_err(io::Error::other)?;
    Ok(Path::new("/run/linerate/fleet").join(&config.fleet).join(format!("{name}.conf")))
}

fn write(file: &Path, text: &Buffer) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let temporary = format!(".{}.new", file.file_name().unwrap_or_default().display());
    atomic_file::replace(file, temporary, text, Some(0o600), None)
}

/// The tunnel's file: all members but this one. Who is none any more is no peer any more.
fn text(config: &Config, members: &Members) -> Buffer {
    let mut text = Buffer::new();
    let mut write = || {
        writeln!(text, "# Made by linerate-fleet for the fleet {}; changes are lost.", config.fleet)?;
        writeln!(text, "[Interface]\nPrivateKey = {}", config.mesh_key.to_base64().as_str())?;
        writeln!(text, "ListenPort = {}", config.mesh_endpoint.port())?;
        writeln!(text, "Address = {}/128", config.mesh_address(config.number))?;
        for (&gateway, member) in members.iter().filter(|(gateway, _)| **gateway != config.number) {
            writeln!(text, "\n[Peer]\nPublicKey = {}", member.mesh_key)?;
            writeln!(text, "AllowedIPs = {}/128", config.mesh_address(gateway))?;
            writeln!(text, "Endpoint = {}", member.mesh_endpoint)?;
        }
        std::fmt::Result::Ok(())
    };
    write().expect("a Buffer takes every write");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_with_long_names_have_meshes_of_their_own() {
        assert_eq!(name_beside("wg0"), "lm-wg0");
        assert_eq!(name_beside("wg-customers-1"), "lm--customers-1");
        assert_eq!(name_beside("wg-customers-10").len(), NAME_MAX);
    }
}
