//! `linerate web-helper`: what `linerate-web` may ask of root, and nothing else (`linerate-page` has all of it).
//!
//! It listens on a Unix socket, answers one request for each connection, and does nothing in between. Only root and
//! the user of the page are answered. Changes are made by `linerate client` itself, in a process of its own for each:
//! arguments are passed as they are, and no shell is anywhere.

mod change;
mod findings;
mod tunnels;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use linerate_cli::eprint_line;
use linerate_control::interface::InterfaceName;
use linerate_netio::process::take_inherited;
use linerate_page::{LONGEST_REQUEST, MOST_REQUESTS, Reply, Request, SOCKET, USER};
use linerate_privileges::user::User;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, umask};
use serde_json::Value;
use zeroize::Zeroizing;

use self::tunnels::Tunnels;
use crate::client;

/// Timeout for reading a request, and for writing its answer.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle time after which a helper that systemd started for a request ends.
const IDLE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

#[derive(clap::Args)]
pub(super) struct HelperArguments {
    /// Socket to make, unless systemd passes one
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,

    /// User that is answered besides root
    #[arg(long, value_name = "NAME", default_value = USER)]
    user: String,

    /// Also accept changes of clients, and give out their files with kept keys
    #[arg(long)]
    write: bool,

    /// Give out clients' files with kept keys, but accept no changes
    #[arg(long)]
    secrets: bool,
}

struct Helper {
    user: User,
    write: bool,
    gives_secrets: bool,
    tunnels: Mutex<Tunnels>,
    /// The doctor examines for one at a time.
    findings: Mutex<findings::Latest>,
    connections: AtomicUsize,
}

/// Answers until it is ended, or started by systemd, until nobody asks.
pub(super) fn main(arguments: &HelperArguments) -> Result<ExitCode, String> {
    let helper = Helper {
        user: User::find(&arguments.user)?,
        write: arguments.write,
        gives_secrets: arguments.write || arguments.secrets,
        tunnels: Mutex::default(),
        findings: Mutex::default(),
        connections: AtomicUsize::new(0),
    };
    let inherited = inherited().map_err(|error| format!("cannot take systemd's socket: {error}"))?;
    let is_inherited = inherited.is_some();
    let listener = match inherited {
        Some(socket) => UnixListener::from(socket),
        None => bind(&arguments.socket, &helper.user)
            .map_err(|error| format!("cannot listen on {}: {error}", arguments.socket.display()))?,
    };
    thread::scope(|scope| {
        loop {
            let idle = is_inherited.then_some(&IDLE);
            let ready = retry_on_intr(|| poll(&mut [PollFd::new(&listener, PollFlags::IN)], idle));
            if matches!(ready, Ok(0)) && helper.connections.load(Ordering::Relaxed) == 0 {
                return Ok(ExitCode::SUCCESS);
            }
            if !matches!(ready, Ok(1..)) {
                ready.map_err(|error| format!("cannot wait for requests: {error}"))?;
                continue;
            }
            let Ok((stream, _)) = listener.accept() else {
                // Out of descriptors, most likely.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if helper.connections.fetch_add(1, Ordering::Relaxed) >= MOST_REQUESTS {
                helper.connections.fetch_sub(1, Ordering::Relaxed);
                eprint_line("web-helper: too many requests at a time: one is not answered");
                continue;
            }
            let helper = &helper;
            scope.spawn(move || {
                if let Err(error) = helper.serve(&stream) {
                    eprint_line(&format!("web-helper: {error}"));
                }
                helper.connections.fetch_sub(1, Ordering::Relaxed);
            });
        }
    })
}

/// The listening socket that systemd passes (sd_listen_fds(3)), if it is for this process.
fn inherited() -> io::Result<Option<OwnedFd>> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(pid), Some(1..)) if pid == std::process::id() => {
            // SD_LISTEN_FDS_START
            let socket = take_inherited(3)?;
            Ok(Some(socket))
        }
        _ => Ok(None),
    }
}

/// A socket for root and the user's group. One that an earlier helper left is replaced; one that answers is not.
fn bind(path: &Path, user: &User) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another helper listens there"));
    }
    if fs::symlink_metadata(path).is_ok_and(|there| std::os::unix::fs::FileTypeExt::is_socket(&there.file_type())) {
        fs::remove_file(path)?;
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let before = umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    let listener = listener?;
    chown(path, Some(0), Some(user.gid()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

impl Helper {
    /// Answers a connection's request.
    fn serve(&self, stream: &UnixStream) -> Result<(), String> {
        let failed = |error: io::Error| format!("a connection failed: {error}");
        let from = socket_peercred(stream.as_fd()).map_err(|error| failed(error.into()))?;
        if from.uid != Uid::ROOT && from.uid.as_raw() != self.user.uid() {
            return Err(format!("user {} is not answered", from.uid.as_raw()));
        }
        stream
            .set_read_timeout(Some(LINE_TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(LINE_TIMEOUT)))
            .map_err(failed)?;
        let mut line = String::new();
        let most = u64::try_from(LONGEST_REQUEST).unwrap_or(u64::MAX);
        BufReader::new(stream.take(most)).read_line(&mut line).map_err(failed)?;
        let reply = match read(&line) {
            Ok(request) => self.answer(request),
            Err(message) => Reply::Refused { message },
        };
        let mut text = Zeroizing::new(serde_json::to_vec(&reply).map_err(|error| failed(error.into()))?);
        text.push(b'\n');
        let mut stream = stream;
        stream.write_all(&text).map_err(failed)
    }

    fn answer(&self, request: Request) -> Reply {
        let now = Instant::now();
        match request {
            Request::Tunnels => self.tunnels().all(now, self.write),
            Request::Peers { tunnel, sort, reverse, filter, offset, count } => {
                let order = tunnels::Order { sort, reverse, filter: &filter, offset, count };
                self.tunnels().peers(&tunnel, &order, now, self.write)
            }
            Request::Peer { tunnel, key } => self.tunnels().peer(&tunnel, &key, now, self.write),
            Request::Findings => findings::findings(&mut locked(&self.findings), now),
            Request::File { .. } if !self.gives_secrets => Reply::Refused {
                message: "the page may not see keys: its helper was not started with --write or --secrets".to_owned(),
            },
            Request::File { tunnel, client } => match client::kept_file(Some(&tunnel), &client) {
                Ok((file_name, text)) => {
                    let text = Zeroizing::new(String::from_utf8_lossy(&text).into_owned());
                    Reply::File { file_name, text, notes: Vec::new() }
                }
                Err(error) => Reply::Refused { message: error.message },
            },
            Request::Change { .. } if !self.write => {
                Reply::Refused { message: "the page may only look: its helper was not started with --write".to_owned() }
            }
            Request::Change { tunnel, change } => {
                let reply = change::change(&tunnel, &change);
                self.tunnels().forget(&tunnel);
                reply
            }
        }
    }

    fn tunnels(&self) -> MutexGuard<'_, Tunnels> {
        locked(&self.tunnels)
    }
}

/// Everything behind a mutex here is a cache, which is right or is read again.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request, without control characters in any of its texts, and about a tunnel by its name: not by a file.
fn read(line: &str) -> Result<Request, String> {
    let invalid = |error: serde_json::Error| format!("this is no request: {error}");
    let value: Value = serde_json::from_str(line).map_err(invalid)?;
    if has_control_characters(&value) {
        return Err("a text has control characters".to_owned());
    }
    let request: Request = serde_json::from_value(value).map_err(invalid)?;
    if let Some(Err(error)) = request.tunnel().map(str::parse::<InterfaceName>) {
        return Err(error.to_string());
    }
    Ok(request)
}

fn has_control_characters(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(char::is_control),
        Value::Array(values) => values.iter().any(has_control_characters),
        Value::Object(members) => {
            members.iter().any(|(name, value)| name.contains(char::is_control) || has_control_characters(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_refused_in_every_text() {
        assert!(read(r#"{"ask":"peer","tunnel":"wg0","key":"a"}"#).is_ok());
        for text in [r#"{"ask":"peer","tunnel":"wg0","key":"a\n"}"#, r#"{"ask":"peer","tunnel":"w\u0000","key":"a"}"#] {
            assert_eq!(read(text).err().as_deref(), Some("a text has control characters"));
        }
        let nested = r#"{"ask":"change","tunnel":"wg0","change":{"do":"renew","client":"a","expires":"1d\r\n"}}"#;
        assert_eq!(read(nested).err().as_deref(), Some("a text has control characters"));
        assert!(read("").is_err());
    }

    #[test]
    fn a_tunnel_is_named_and_never_by_a_path() {
        for path in ["/tmp/wg0.conf", "./wg0", "../wg0", "", "a b", "-x/y"] {
            assert!(read(&format!(r#"{{"ask":"file","tunnel":"{path}","client":"a"}}"#)).is_err(), "{path}");
        }
    }
}
