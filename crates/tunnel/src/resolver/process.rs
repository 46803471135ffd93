//! The process that resolves names: the program that this library is in, anew, `linerate resolve` for one.
//!
//! The C library resolves names with the plug-ins of nsswitch.conf, which parse data from the network. So a process of
//! its own does it ([`answer`]), without keys and capabilities, as nobody where possible. `linerate` starts one for each
//! look-up, and kills it after a time limit; `linerate-proxy` starts one before it confines itself, and keeps it.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use linerate_control::resolver::addresses;
use linerate_netio::process::{Terminal, detach};
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
    let Ok((mut child, input)) = ask(names) else { return found };
    let (answers, answered) = mpsc::channel();
    let output = child.stdout.take();
    let reader = thread::Builder::new().name("answers".into()).spawn(move || {
        for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
            let answer = line.ok().and_then(|line| read_answer(&line));
            // The process is killed at the end, and may cut its last line short.
            let Some(answer) = answer else { break };
            if answers.send(answer).is_err() {
                break;
            }
        }
    });
    for _ in names {
        let left = until.saturating_duration_since(Instant::now());
        let Ok((number, addresses)) = answered.recv_timeout(left) else { break };
        if let Some(slot) = found.get_mut(number) {
            *slot = addresses;
        }
    }
    end(&mut child);
    drop((input, reader));
    found
}

/// A host and a service.
type Question = (String, String);

/// The number of a question, from 0 in the order in which they were asked, and the addresses: none if there is no answer.
pub type Answer = (usize, Vec<SocketAddr>);

/// The line that asks for the addresses of a host with the port of a service.
pub fn question(host: &str, service: &str) -> String {
    let question: Question = (host.to_owned(), service.to_owned());
    serde_json::to_string(&question).expect("text is JSON") + "\n"
}

/// What a line of the process says; nothing if it is cut short.
pub fn read_answer(line: &str) -> Option<Answer> {
    serde_json::from_str(line).ok()
}

/// What the C library's resolver knows by the environment (resolv.conf(5), hostname(7)).
const ENVIRONMENT: [&str; 3] = ["LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES"];

/// Starts this program anew as the process, with the arguments that have it call [`answer`].
///
/// # Errors
/// It cannot be started.
pub fn start(arguments: &[&str], input: Stdio, output: Stdio) -> io::Result<Child> {
    // On Linux this finds the running program also after an update has replaced its file.
    let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { env::current_exe()? };
    let mut command = Command::new(program);
    command.arg0("linerate").args(arguments).stdin(input).stdout(output).stderr(Stdio::null());
    // There may be keys and passwords among the others.
    let is_needed =
        |name: &OsStr| name.as_bytes().starts_with(b"LD_") || ENVIRONMENT.iter().any(|known| name == *known);
    command.env_clear().envs(env::vars_os().filter(|(name, _)| is_needed(name)));
    // On Ctrl-C the asking process ends the resolver by its process group; a new session is a process group as well.
    detach(&mut command, Vec::new(), Terminal::None);
    command.spawn()
}

/// Starts the process, and writes `names` to it. It answers for as long as its input is open.
fn ask(names: &[NamedEndpoint]) -> io::Result<(Child, ChildStdin)> {
    let mut child = start(&["resolve"], Stdio::piped(), Stdio::piped())?;
    let mut input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let questions: String = names.iter().map(|named| question(&named.host, &named.service)).collect();
    if let Err(error) = input.write_all(questions.as_bytes()) {
        end(&mut child);
        return Err(error);
    }
    Ok((child, input))
}

/// Kills the process and the children of its plug-ins, which may hold its output open.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
}

/// How many names are resolved in parallel: a file may have thousands, and so may the clients of a proxy.
const PARALLEL_MAX: usize = 32;

/// What the process does: gives up its privileges, then answers the questions on standard input, each once and in any
/// order, until that ends.
///
/// # Errors
/// Something else stands on standard input, or there cannot be another thread.
pub fn answer() -> io::Result<()> {
    confine_reader();
    let (questions, asked) = mpsc::channel();
    let asked = Arc::new(Mutex::new(asked));
    for (number, line) in io::stdin().lines().enumerate() {
        let question: Question = serde_json::from_str(&line?)?;
        if number < PARALLEL_MAX {
            let asked = asked.clone();
            thread::Builder::new().spawn(move || work(&asked))?;
        }
        // It is read at once, so that nobody waits who asks.
        questions.send((number, question)).map_err(io::Error::other)?;
    }
    Ok(())
}

fn work(asked: &Mutex<mpsc::Receiver<(usize, Question)>>) {
    let next = || asked.lock().ok()?.recv().ok();
    while let Some((number, (host, service))) = next() {
        let answer: Answer = (number, addresses(&host, &service));
        let line = serde_json::to_string(&answer).expect("addresses are JSON") + "\n";
        if io::stdout().lock().write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}
