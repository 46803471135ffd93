//! Endpoints that are names: asked for without making anybody wait, again and again until there is an answer.
//!
//! The C library asks, with whatever plug-ins nsswitch.conf names, and what they read comes from the network. So that is
//! done by a process of its own ([`answer`]), which has no keys and no capabilities, is nobody's where it can be, and ends
//! when its time is over.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use linerate_control::keys::PublicKey;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::resolver::addresses;
use linerate_privileges::give_up_as_resolver;

/// A peer whose endpoint is a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Which peer.
    pub peer: PublicKey,
    /// The host.
    pub host: String,
    /// The port, or the name of a service.
    pub service: String,
}

/// As the file has it.
impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.service)
    }
}

/// How long a tunnel that comes up waits for answers. A resolver that has the name at hand answers within.
const PATIENCE: Duration = Duration::from_millis(800);

/// The addresses of those names that are known within [`PATIENCE`], in the order of `names`; empty where there is no
/// answer yet.
pub fn at_hand(names: &[Named]) -> Vec<Vec<SocketAddr>> {
    resolve(names, PATIENCE)
}

/// As [`at_hand`], with another patience.
pub fn resolve(names: &[Named], patience: Duration) -> Vec<Vec<SocketAddr>> {
    let mut found = vec![Vec::new(); names.len()];
    if names.is_empty() {
        return found;
    }
    let until = Instant::now() + patience;
    // Without a process there is no answer, as without a resolver.
    let Ok(mut child) = start(names) else { return found };
    let (answers, answered) = mpsc::channel();
    let output = child.stdout.take();
    let reader = thread::Builder::new().name("answers".into()).spawn(move || {
        for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
            let answer = line.ok().and_then(|line| serde_json::from_str::<Answer>(&line).ok());
            // The process ends when its time is over, and with it the last line perhaps.
            let Some(answer) = answer else { break };
            if answers.send(answer).is_err() {
                break;
            }
        }
    });
    while let Ok((index, addresses)) = answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if let Some(place) = found.get_mut(index) {
            *place = addresses;
        }
    }
    end(&mut child);
    drop(reader);
    found
}

/// A host and a service.
type Question = (String, String);

/// The number of a question, and the addresses.
type Answer = (usize, Vec<SocketAddr>);

/// Starts a process that answers for `names`.
fn start(names: &[Named]) -> io::Result<Child> {
    let questions: Vec<Question> = names.iter().map(|named| (named.host.clone(), named.service.clone())).collect();
    // By this name it is there though a newer version has taken its place.
    let mut child = Command::new("/proc/self/exe")
        .arg0("linerate")
        .arg("resolve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Ctrl-C is for the one who asks.
        .process_group(0)
        .spawn()?;
    let asked = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(&serde_json::to_vec(&questions)?));
    if let Err(error) = asked {
        end(&mut child);
        return Err(error);
    }
    Ok(child)
}

/// Ends the process and what its plug-ins have started: that may hold its output open.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
}

/// How many questions are open at once: a file may have thousands of names.
const AT_ONCE: usize = 16;

/// Answers the questions on standard input, as a process of its own. What the answers come from, plug-ins included, can
/// do no more than this process.
///
/// # Errors
/// The questions are none, or nobody reads the answers.
pub fn answer() -> io::Result<()> {
    give_up_as_resolver();
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    let questions: Vec<Question> = serde_json::from_slice(&text)?;
    let count = AT_ONCE.min(questions.len());
    let questions = Mutex::new(questions.into_iter().enumerate());
    let next = || questions.lock().ok()?.next();
    let work = || -> io::Result<()> {
        while let Some((index, (host, service))) = next() {
            let answer: Answer = (index, addresses(&host, &service));
            let mut line = serde_json::to_vec(&answer)?;
            line.push(b'\n');
            io::stdout().lock().write_all(&line)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..count).filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a look-up panicked"))?)
    })
}
