//! The service manager of this host, as far as a tunnel needs one: it starts the tunnel at boot and starts its daemon
//! again. Services are those of docs/services.md.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linerate_control::interface::InterfaceName;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::error::Error;
use crate::program::{how_it_ended, in_path};
use crate::server::record::remove_file;

/// A tunnel as a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// What manages it.
    pub manager: Manager,
    /// Its name there.
    pub name: String,
}

/// A service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    /// systemd, with the unit linerate@.
    Systemd,
    /// OpenRC, with the script linerate.
    OpenRc,
}

/// What there is for a tunnel.
pub enum Found {
    Service(Service),
    /// A service manager without our service: what is missing.
    Incomplete(String),
    /// No service manager.
    Nothing,
}

/// The folder that exists while systemd runs the host (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";
/// The folder that exists while OpenRC runs the host.
const OPENRC: &str = "/run/openrc";
/// Where OpenRC's services are.
const INIT_D: &str = "/etc/init.d";

/// What there is on this host for the tunnel of `interface`.
///
/// # Errors
/// A program cannot be run.
pub fn find(interface: &InterfaceName, context: Context<'_>) -> Result<Found, Error> {
    if Path::new(SYSTEMD).is_dir() && in_path("systemctl").is_some() {
        let name = format!("linerate@{interface}.service");
        let known = run("systemctl", &["cat", &name], context)?.is_ok();
        return Ok(match known {
            true => Found::Service(Service { manager: Manager::Systemd, name }),
            false => Found::Incomplete("systemd has no unit linerate@.service (the package brings it)".to_owned()),
        });
    }
    if Path::new(OPENRC).is_dir() && in_path("rc-service").is_some() {
        return Ok(match Path::new(INIT_D).join("linerate").exists() {
            true => Found::Service(Service { manager: Manager::OpenRc, name: format!("linerate.{interface}") }),
            false => Found::Incomplete(format!("OpenRC has no {INIT_D}/linerate (packaging/openrc/linerate)")),
        });
    }
    Ok(Found::Nothing)
}

impl Service {
    /// Starts the tunnel, now and at boot.
    pub(super) fn start(&self, context: Context<'_>) -> Result<(), Error> {
        let name = &*self.name;
        match self.manager {
            Manager::Systemd => done("systemctl", &["enable", "--now", name], context),
            Manager::OpenRc => {
                let link = self.link();
                match symlink("linerate", &link) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(Error::inaccessible(&link)(error));
                    }
                    _ => {}
                }
                done("rc-update", &["add", name, "default"], context)?;
                done("rc-service", &[name, "start"], context)
            }
        }
    }

    /// Stops the tunnel, and has it not start at boot.
    pub(super) fn stop(&self, context: Context<'_>) -> Result<(), Error> {
        let name = &*self.name;
        match self.manager {
            Manager::Systemd => {
                done("systemctl", &["disable", "--now", name], context)?;
                // One that failed is remembered otherwise. There need not be one.
                run("systemctl", &["reset-failed", name], context).map(drop)
            }
            Manager::OpenRc if !self.link().is_symlink() => Ok(()),
            Manager::OpenRc => {
                done("rc-service", &["--ifstarted", name, "stop"], context)?;
                // It need not be in a runlevel.
                drop(run("rc-update", &["delete", name], context)?);
                remove_file(&self.link())
            }
        }
    }

    /// Whether the service is active, and whether it starts at boot, each in the manager's word.
    ///
    /// # Errors
    /// The manager cannot be asked.
    pub fn state(&self, context: Context<'_>) -> Result<ServiceState, Error> {
        let word = |output: Result<String, String>| {
            output.unwrap_or_else(|said| said).lines().next().unwrap_or("unknown").trim().to_owned()
        };
        let name = &*self.name;
        Ok(match self.manager {
            Manager::Systemd => ServiceState {
                active: word(run("systemctl", &["is-active", name], context)?),
                enabled: word(run("systemctl", &["is-enabled", name], context)?),
            },
            Manager::OpenRc => {
                let started = run("rc-service", &["--quiet", name, "status"], context)?.is_ok();
                let added = Path::new("/etc/runlevels/default").join(name).is_symlink();
                ServiceState {
                    active: if started { "started" } else { "stopped" }.to_owned(),
                    enabled: if added { "default" } else { "no runlevel" }.to_owned(),
                }
            }
        })
    }

    /// Where to read why it does not start.
    fn log(&self) -> String {
        match self.manager {
            Manager::Systemd => format!("; see journalctl -u {}", self.name),
            Manager::OpenRc => String::new(),
        }
    }

    fn link(&self) -> PathBuf {
        Path::new(INIT_D).join(&self.name)
    }

    /// `error` of this service, with the place of its log.
    pub(super) fn explained(&self, error: Error) -> Error {
        match error {
            Error::State(why) => Error::State(format!("{why}{}", self.log())),
            error => error,
        }
    }
}

/// As people call it.
impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.manager {
            Manager::Systemd => write!(f, "systemd service {}", self.name.trim_end_matches(".service")),
            Manager::OpenRc => write!(f, "OpenRC service {}", self.name),
        }
    }
}

/// The state of a service.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceState {
    pub active: String,
    /// Whether it starts at boot.
    pub enabled: String,
}

/// Runs a program that has to succeed.
fn done(program: &str, arguments: &[&str], context: Context<'_>) -> Result<(), Error> {
    context.reporter.step(&format!("{program} {}", arguments.join(" ")));
    let failed = |why: String| Error::State(format!("`{program} {}' failed: {why}", arguments.join(" ")));
    run(program, arguments, context)?.map(drop).map_err(failed)
}

/// Runs a program: what it prints, or why it failed.
///
/// # Errors
/// It cannot be started, or a signal has come.
fn run(program: &str, arguments: &[&str], context: Context<'_>) -> Result<Result<String, String>, Error> {
    let cannot = |error| Error::System(format!("cannot run {program}"), error);
    // Not a pipe: a daemon that the program starts may keep it open.
    let mut output = output_file().map_err(cannot)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(cannot)?)
        .stderr(output.try_clone().map_err(cannot)?)
        .spawn()
        .map_err(cannot)?;
    let status = context.interruption.wait(&mut child).map_err(cannot)?;
    if context.interruption.came() {
        return Err(Error::Interrupted);
    }
    let mut said = Vec::new();
    output.seek(SeekFrom::Start(0)).and_then(|_| output.read_to_end(&mut said)).map_err(cannot)?;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    Ok(match status.success() {
        true => Ok(said),
        false if said.is_empty() => Err(format!("it {}", how_it_ended(status))),
        false => Err(said),
    })
}

fn output_file() -> io::Result<File> {
    Ok(memfd_create("output", MemfdFlags::CLOEXEC)?.into())
}
