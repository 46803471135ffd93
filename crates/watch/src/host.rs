//! Where tunnels are found and asked: this host, or in tests a simulated one.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_control::client::TunnelClient;
use linerate_control::kernel;
use linerate_control::keys::PublicKey;
use linerate_control::uapi::client::{ClientError, DaemonClient};
use linerate_control::uapi::response::{Activity, DeviceState};
use linerate_control::uapi::socket;
use linerate_netio::clock::boottime;
use linerate_netio::process::peer;
use linerate_tunnel::status::Whereabouts;
use linerate_tunnel::{ledger, status};
use std::os::fd::AsFd;

use crate::{Daemon, Time};

/// What a [`Watcher`](crate::Watcher) reads of a host.
pub trait Host {
    /// A connection to what runs a tunnel.
    type Connection: Connection;

    /// The time.
    fn now(&mut self) -> Now;

    /// The tunnels that there may be.
    ///
    /// # Errors
    /// They cannot be listed.
    fn tunnels(&mut self) -> Result<Vec<Found>, ClientError>;

    /// Connects to what runs the tunnel.
    ///
    /// # Errors
    /// There is no such tunnel ([`status::is_absence`]), or it cannot be queried.
    fn connect(&mut self, tunnel: &str) -> Result<Self::Connection, ClientError>;

    /// The file of a tunnel, which may not exist.
    fn file(&mut self, tunnel: &str) -> PathBuf;

    /// Where a tunnel is, if it is not here under its name; `known` is what was read of it before.
    fn place(&mut self, tunnel: &str, known: &mut Whereabouts) -> Option<String>;

    /// What changes whenever the file does.
    fn stamp(&mut self, file: &Path) -> Option<Stamp>;

    /// The names that it gives peers.
    fn names(&mut self, tunnel: &str, file: &Path) -> HashMap<PublicKey, String>;

    /// What a process has used, without its share.
    fn process(&mut self, pid: u32) -> Option<Daemon>;
}

/// A connection to what runs a tunnel; see [`DaemonClient`]. It fails once that has ended.
#[expect(missing_docs, reason = "they are those of the client")]
#[expect(clippy::missing_errors_doc, reason = "they are those of the client")]
pub trait Connection {
    fn is_kernel(&self) -> bool;
    fn pid(&self) -> Option<u32>;
    fn get(&mut self) -> Result<DeviceState, ClientError>;
    fn activity(&mut self, since: u64) -> Result<Activity, ClientError>;
    fn stats(&mut self) -> Result<Vec<(String, u64)>, ClientError>;
}

/// The time by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Since 1970.
    pub wall: Time,
    /// By a clock that is never set.
    pub monotonic: Duration,
}

/// A tunnel that there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub interface: String,
    /// Whether `up` brought it up, and nothing has taken it down since.
    pub recorded: bool,
}

/// Device, inode, size, and the time of the last change in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub [i128; 4]);

/// This host.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Host for System {
    type Connection = TunnelClient;

    fn now(&mut self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { wall: Time(wall), monotonic: Duration::from_nanos(boottime()) }
    }

    fn tunnels(&mut self) -> Result<Vec<Found>, ClientError> {
        let recorded = match ledger::interfaces(Path::new(ledger::DIRECTORY)) {
            Ok(recorded) => recorded,
            // Users other than root see the daemons only.
            Err(ledger::LedgerError::Io { error, .. }) if error.kind() == io::ErrorKind::PermissionDenied => Vec::new(),
            Err(error) => return Err(io::Error::other(error.to_string()).into()),
        };
        let mut names = kernel::interfaces()?;
        names.extend(socket::interfaces(Path::new(socket::DIRECTORY))?.iter().map(ToString::to_string));
        names.extend(recorded.iter().map(ToString::to_string));
        names.sort_unstable();
        names.dedup();
        let is_recorded = |name: &str| recorded.iter().any(|recorded| recorded.as_str() == name);
        Ok(names.into_iter().map(|name| Found { recorded: is_recorded(&name), interface: name }).collect())
    }

    fn connect(&mut self, tunnel: &str) -> Result<TunnelClient, ClientError> {
        let directory = Path::new(socket::DIRECTORY);
        if let Ok(name) = tunnel.parse() {
            // Not `TunnelClient::open`, which removes a socket that nobody answers on.
            match DaemonClient::connect(directory, &name) {
                Ok(daemon) => return Ok(TunnelClient::Daemon(daemon)),
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(TunnelClient::Kernel(kernel::KernelClient::open(tunnel)?))
    }

    fn file(&mut self, tunnel: &str) -> PathBuf {
        tunnel.parse().map(|tunnel| status::file(&tunnel)).unwrap_or_default()
    }

    fn place(&mut self, tunnel: &str, known: &mut Whereabouts) -> Option<String> {
        known.of(&tunnel.parse().ok()?)
    }

    fn stamp(&mut self, file: &Path) -> Option<Stamp> {
        let data = fs::metadata(file).ok()?;
        let changed = i128::from(data.ctime()) * 1_000_000_000 + i128::from(data.ctime_nsec());
        Some(Stamp([data.dev().into(), data.ino().into(), data.size().into(), changed]))
    }

    fn names(&mut self, tunnel: &str, file: &Path) -> HashMap<PublicKey, String> {
        tunnel.parse().map(|tunnel| status::names(file, &tunnel)).unwrap_or_default()
    }

    fn process(&mut self, pid: u32) -> Option<Daemon> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        of_stat(pid, &stat, rustix::param::clock_ticks_per_second())
    }
}

/// A line of /proc/PID/stat (proc_pid_stat(5)).
fn of_stat(pid: u32, stat: &str, ticks_per_second: u64) -> Option<Daemon> {
    // The name of the program, in parentheses, may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // utime, stime and starttime are the fields 14, 15 and 22; the first one here is field 3.
    let [user, system, started] = [14, 15, 22].map(|number| fields.get(number - 3)?.parse::<u64>().ok());
    let ticks = user?.checked_add(system?)?;
    let cpu_time = Duration::from_secs_f64(ticks as f64 / ticks_per_second.max(1) as f64);
    Some(Daemon { pid, started: started?, cpu_time, cpu: None })
}

impl Connection for TunnelClient {
    fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    fn pid(&self) -> Option<u32> {
        match self {
            Self::Daemon(client) => peer(client.as_fd()).ok().flatten(),
            Self::Kernel(_) => None,
        }
    }

    fn get(&mut self) -> Result<DeviceState, ClientError> {
        self.get()
    }

    fn activity(&mut self, since: u64) -> Result<Activity, ClientError> {
        match self {
            Self::Daemon(client) => client.activity(since),
            Self::Kernel(_) => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
        }
    }

    fn stats(&mut self) -> Result<Vec<(String, u64)>, ClientError> {
        match self {
            Self::Daemon(client) => client.stats(),
            Self::Kernel(_) => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_is_read_whatever_its_name() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 211 0 0 0 150 50 0 0 20 0 3 0 12345 2703360 900 1";
        let daemon = of_stat(77, stat, 100).unwrap();
        assert_eq!((daemon.cpu_time, daemon.started, daemon.pid), (Duration::from_secs(2), 12345, 77));
        for hostile in
            ["", "1", ")", "1 (x) S 1 2", &stat.replace("150", "-1"), &stat.replace(" 50 ", &format!(" {} ", u64::MAX))]
        {
            assert_eq!(of_stat(77, hostile, 100), None, "{hostile}");
        }
        assert!(System.process(std::process::id()).is_some());
    }

    #[test]
    fn a_file_that_is_replaced_has_another_stamp() {
        let path = std::env::temp_dir().join(format!("linerate-watch-{}", std::process::id()));
        fs::write(&path, "a").unwrap();
        let first = System.stamp(&path);
        assert_eq!(first, System.stamp(&path));
        fs::write(&path, "ab").unwrap();
        assert_ne!(first, System.stamp(&path));
        fs::remove_file(&path).unwrap();
        assert_eq!(System.stamp(&path), None);
    }
}
