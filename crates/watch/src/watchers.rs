//! Reads tunnels side by side: one whose daemon does not respond holds up none of the others.
//!
//! Each tunnel has a thread with a [`Watcher`] of its own. One that is late is shown as it was, and asked again once it
//! has answered.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use linerate_control::keys::PublicKey;
use linerate_control::uapi::client::ClientError;
use linerate_tunnel::status::Whereabouts;

use crate::host::{Found, Host, Now, Stamp, System};
use crate::{Ask, Daemon, Tunnel, View, WatchError, Watcher};

/// Time to wait for a tunnel that was late before or could not be read.
const LATE_TUNNEL_TIMEOUT: Duration = Duration::from_millis(20);

/// Reads the tunnels of a host, each in a thread of its own.
pub struct Watchers<H = System> {
    host: H,
    /// The interface that is wanted; `None`: all.
    only: Option<String>,
    readers: BTreeMap<String, Reader>,
}

/// The thread of a tunnel.
struct Reader {
    questions: Sender<(Found, Ask)>,
    answers: Receiver<Result<Option<Tunnel>, WatchError>>,
    /// An answer is due.
    is_asked: bool,
    /// The last answer.
    tunnel: Option<Tunnel>,
}

impl Watchers {
    /// Of this host, all tunnels or only one; nothing is read yet.
    pub fn new(only: Option<&str>) -> Self {
        Self::of(System, only)
    }
}

impl<H: Host + Clone + Send + 'static> Watchers<H> {
    /// Of any host.
    pub fn of(host: H, only: Option<&str>) -> Self {
        Self { host, only: only.map(str::to_owned), readers: BTreeMap::new() }
    }

    /// Reads what has changed, and returns everything. Tunnels that do not answer within `patience` are returned as
    /// they were read last; without one, all are waited for.
    ///
    /// # Errors
    /// The tunnels cannot be listed. One that cannot be read is in the view, with its problem.
    pub fn poll(&mut self, ask: Ask, patience: Option<Duration>) -> Result<View, WatchError> {
        let mut found = self.host.tunnels()?;
        found.retain(|found| self.only.as_ref().is_none_or(|only| *only == found.interface));
        self.readers.retain(|name, _| found.iter().any(|found| found.interface == *name));
        let begin = Instant::now();
        let mut ends = BTreeMap::new();
        for found in found {
            let name = found.interface.clone();
            if !self.readers.contains_key(&name) {
                self.readers.insert(name.clone(), Reader::start(self.host.clone(), &name)?);
            }
            let Some(reader) = self.readers.get_mut(&name) else { continue };
            let was_late = !reader.take(Duration::ZERO)? || reader.is_unreadable();
            reader.ask(found, ask);
            ends.insert(
                name,
                patience.map(|patience| begin + if was_late { LATE_TUNNEL_TIMEOUT.min(patience) } else { patience }),
            );
        }
        for (name, reader) in &mut self.readers {
            match ends.get(name).copied().flatten() {
                Some(end) => reader.take(end.saturating_duration_since(Instant::now()))?,
                None => reader.take(Duration::MAX)?,
            };
        }
        let tunnels = self.readers.values().filter_map(|reader| reader.tunnel.clone()).collect();
        Ok(View { time: self.host.now().wall, tunnels })
    }
}

impl Reader {
    fn start<H: Host + Send + 'static>(host: H, name: &str) -> Result<Self, WatchError> {
        let (questions, asked) = channel::<(Found, Ask)>();
        let (answer, answers) = channel();
        let read = move || {
            let mut watcher = Watcher::of(One { host, found: None }, None);
            while let Ok((found, ask)) = asked.recv() {
                watcher.host_mut().found = Some(found);
                let read = watcher.poll(ask).map(|mut view| view.tunnels.pop());
                if answer.send(read).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("reader".into()).spawn(read).map_err(ClientError::from)?;
        let problem = Some("its daemon has not answered yet".into());
        let tunnel = Tunnel { problem, is_awaited: true, ..Tunnel::unread(name) };
        Ok(Self { questions, answers, is_asked: false, tunnel: Some(tunnel) })
    }

    /// Whether the last answer was that it cannot be read. One that was never asked has not given any.
    fn is_unreadable(&self) -> bool {
        self.tunnel.as_ref().is_some_and(|tunnel| tunnel.problem.is_some() && !tunnel.is_awaited)
    }

    fn ask(&mut self, found: Found, ask: Ask) {
        if !self.is_asked {
            // Whether the thread has ended is seen when its answer is taken.
            let _ = self.questions.send((found, ask));
            self.is_asked = true;
        }
    }

    /// Takes an answer that is due, and says whether none is any more.
    fn take(&mut self, patience: Duration) -> Result<bool, WatchError> {
        if !self.is_asked {
            return Ok(true);
        }
        match self.answers.recv_timeout(patience) {
            Ok(tunnel) => {
                self.is_asked = false;
                self.tunnel = tunnel?;
                Ok(true)
            }
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => {
                Err(ClientError::from(std::io::Error::other("a part of this program ended unexpectedly")).into())
            }
        }
    }
}

/// A host with only the tunnel that was found.
struct One<H> {
    host: H,
    found: Option<Found>,
}

impl<H: Host> Host for One<H> {
    type Connection = H::Connection;

    fn now(&mut self) -> Now {
        self.host.now()
    }

    fn tunnels(&mut self) -> Result<Vec<Found>, ClientError> {
        Ok(self.found.iter().cloned().collect())
    }

    fn connect(&mut self, tunnel: &str) -> Result<Self::Connection, ClientError> {
        self.host.connect(tunnel)
    }

    fn file(&mut self, tunnel: &str) -> PathBuf {
        self.host.file(tunnel)
    }

    fn place(&mut self, tunnel: &str, known: &mut Whereabouts) -> Option<String> {
        self.host.place(tunnel, known)
    }

    fn stamp(&mut self, file: &Path) -> Option<Stamp> {
        self.host.stamp(file)
    }

    fn names(&mut self, tunnel: &str, file: &Path) -> HashMap<PublicKey, String> {
        self.host.names(tunnel, file)
    }

    fn process(&mut self, pid: u32) -> Option<Daemon> {
        self.host.process(pid)
    }
}
