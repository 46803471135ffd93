//! The process that resolves names: `PROGRAM resolve`, where PROGRAM is the one that this library is in.
//!
//! The C library resolves names with the plug-ins of nsswitch.conf, which parse data from the network. So a process of
//! its own does it ([`answer`]), without keys and capabilities, as nobody where possible. It is killed after a time
//! limit.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use linerate_control::resolver::addresses;
use linerate_privileges::confine_reader;
use rustix::process::{Pid, Signal, kill_process_group};

use super::NamedEndpoint;

/// The addresses of `names`, in the same order; none for a name without an answer within `timeout`.
pub(crate) fn look_up(names: &[NamedEndpoint], timeout: Duration) -> Vec<Vec<SocketAddr>> {
    let mut found = vec![Vec::new(); names.len()];
    if names.is_empty() {
        return found;
    }
    let until = Instant::now() + timeout;
    // If the process cannot be started, every lookup counts as unanswered.
    let Ok(mut child) = start(names) else { return found };
    let (answers, answered) = mpsc::channel();
    let output = child.stdout.take();
    let reader = thread::Builder::new().name("answers".into()).spawn(move || {
        for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
            let answer = line.ok().and_then(|line| serde_json::from_str::<Answer>(&line).ok());
            // The process is killed at the end, and may cut its last line short.
            let Some(answer) = answer else { break };
            if answers.send(answer).is_err() {
                break;
            }
        }
    });
    while let Ok((index, addresses)) = answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if let Some(slot) = found.get_mut(index) {
            *slot = addresses;
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

/// Starts the process, and writes `names` to it.
fn start(names: &[NamedEndpoint]) -> io::Result<Child> {
    let questions: Vec<Question> = names.iter().map(|named| (named.host.clone(), named.service.clone())).collect();
    // Also finds the running program after an update has replaced its file.
    let mut child = Command::new("/proc/self/exe")
        .arg0("linerate")
        .arg("resolve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // On Ctrl-C we kill it ourselves.
        .process_group(0)
        .spawn()?;
    let asked = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(&serde_json::to_vec(&questions)?));
    if let Err(error) = asked {
        end(&mut child);
        return Err(error);
    }
    Ok(child)
}

/// Kills the process and the children of its plug-ins, which may hold its output open.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
}

/// How many names are resolved in parallel: a file may have thousands.
const PARALLEL_MAX: usize = 16;

/// The command `resolve`: gives up the privileges of the process, then reads questions from standard input and writes
/// the answers to standard output.
///
/// # Errors
/// Standard input has no questions, or the answers cannot be written.
pub fn answer() -> io::Result<()> {
    confine_reader();
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    let questions: Vec<Question> = serde_json::from_slice(&text)?;
    let count = PARALLEL_MAX.min(questions.len());
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
