//! This host's resolver: for the tunnel's endpoints, and, with `Names = system`, for all names.
//!
//! The C library reads files for that, loads plug-ins and parses what strangers send. A process of its own does it
//! ([`process`]), which has no keys and is started before this one confines itself. It is asked and answers by a socket,
//! for as long as this process runs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use linerate_tunnel::resolver::process;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::server::complain;

/// The argument with which this program is that process.
pub const ARGUMENT: &str = "--resolve";

/// So many questions wait for their answers, whether or not somebody still waits for these.
const MOST_QUESTIONS: usize = 128;

/// How long to wait for a place among them.
const PATIENCE: Duration = Duration::from_secs(2);

/// No line of the process is longer.
const LONGEST_LINE: usize = 64 << 10;

/// Asks the process.
#[derive(Clone)]
pub struct Resolver {
    questions: UnboundedSender<Asked>,
    places: Arc<Semaphore>,
}

struct Asked {
    question: String,
    answer: oneshot::Sender<Vec<SocketAddr>>,
    _place: OwnedSemaphorePermit,
}

impl Resolver {
    /// Starts the process. Within a runtime.
    ///
    /// # Errors
    /// A sentence about what the system does not allow.
    pub fn start() -> Result<Self, String> {
        let start = || {
            let (here, there) = UnixStream::pair()?;
            here.set_nonblocking(true)?;
            let there = OwnedFd::from(there);
            process::start(&[ARGUMENT], Stdio::from(there.try_clone()?), Stdio::from(there))?;
            tokio::net::UnixStream::from_std(here)
        };
        let stream = start().map_err(|error| format!("cannot start the process that looks names up: {error}"))?;
        Ok(Self::over(stream))
    }

    fn over(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (questions, asked) = unbounded_channel();
        tokio::spawn(async move {
            converse(stream, asked).await;
            complain("names", &"the process that asks this host's resolver has ended; start the proxy anew");
        });
        Self { questions, places: Arc::new(Semaphore::new(MOST_QUESTIONS)) }
    }

    /// The addresses of a host with the port of a service; none if the resolver has no answer.
    ///
    /// # Errors
    /// [`Failure::Busy`] if too many wait, [`Failure::NoAnswer`] if the process has ended.
    pub async fn addresses(&self, host: &str, service: &str) -> Result<Vec<SocketAddr>, Failure> {
        let place = timeout(PATIENCE, self.places.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(Failure::Busy) };
        let (answer, answered) = oneshot::channel();
        let asked = Asked { question: process::question(host, service), answer, _place: place };
        self.questions.send(asked).map_err(|_| Failure::NoAnswer(host.to_owned()))?;
        answered.await.map_err(|_| Failure::NoAnswer(host.to_owned()))
    }
}

/// Passes on questions and answers, until the process ends or nobody can ask any more.
async fn converse(stream: impl AsyncRead + AsyncWrite, mut questions: UnboundedReceiver<Asked>) {
    let (mut answers, mut input) = split(stream);
    let mut waiting = HashMap::new();
    let mut bytes = Vec::new();
    for number in 0.. {
        // The question that is numbered so, and the answers that come before it.
        let asked: Asked = loop {
            tokio::select! {
                asked = questions.recv() => match asked {
                    Some(asked) => break asked,
                    None => return,
                },
                count = answers.read_buf(&mut bytes) => {
                    if !matches!(count, Ok(1..)) || !pass_on(&mut bytes, &mut waiting) {
                        return;
                    }
                }
            }
        };
        // It reads at once.
        if input.write_all(asked.question.as_bytes()).await.is_err() {
            return;
        }
        waiting.insert(number, asked);
    }
}

/// Passes on the answers in `bytes`; false if there is no end of one.
fn pass_on(bytes: &mut Vec<u8>, waiting: &mut HashMap<usize, Asked>) -> bool {
    while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
        let line: Vec<u8> = bytes.drain(..=end).collect();
        let answer = std::str::from_utf8(&line).ok().and_then(process::read_answer);
        if let Some((number, addresses)) = answer
            && let Some(asked) = waiting.remove(&number)
        {
            // Who asked may have gone.
            let _ = asked.answer.send(addresses);
        }
    }
    bytes.len() <= LONGEST_LINE
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(test);
    }

    fn pair() -> (Resolver, DuplexStream) {
        let (here, there) = duplex(1 << 20);
        (Resolver::over(here), there)
    }

    async fn read_line(there: &mut DuplexStream) -> String {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(there.read_u8().await.unwrap());
        }
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn answers_come_in_any_order_and_in_pieces() {
        run(async {
            let (resolver, mut there) = pair();
            let answer = async {
                assert_eq!(read_line(&mut there).await, "[\"a.example\",\"1\"]\n");
                assert_eq!(read_line(&mut there).await, "[\"b.example\",\"2\"]\n");
                there.write_all(b"[1,[\"192.0.2.2:2\"]]\n[0,[\"192.0").await.unwrap();
                there.write_all(b".2.1:1\"]]\n").await.unwrap();
            };
            let (first, second) = (resolver.addresses("a.example", "1"), resolver.addresses("b.example", "2"));
            let (first, second, ()) = tokio::join!(first, second, answer);
            assert_eq!(first.unwrap(), ["192.0.2.1:1".parse().unwrap()]);
            assert_eq!(second.unwrap(), ["192.0.2.2:2".parse().unwrap()]);
        });
    }

    #[test]
    fn who_does_not_wait_for_answers_fills_no_queue() {
        run(async {
            let (resolver, mut there) = pair();
            for _ in 0..MOST_QUESTIONS {
                let gone = timeout(Duration::from_millis(1), resolver.addresses("slow.example", "1")).await;
                assert!(gone.is_err());
            }
            let one_more = resolver.addresses("a.example", "1").await;
            assert!(matches!(one_more, Err(Failure::Busy)));
            there.write_all(b"[7,[]]\n").await.unwrap();
            let one_more = timeout(Duration::from_millis(1), resolver.addresses("a.example", "1")).await;
            assert!(one_more.is_err(), "it waits for its answer");
        });
    }

    #[test]
    fn a_process_that_ends_or_babbles_has_no_answer() {
        run(async {
            let (resolver, there) = pair();
            drop(there);
            assert!(matches!(resolver.addresses("a.example", "1").await, Err(Failure::NoAnswer(_))));
            let (resolver, mut there) = pair();
            there.write_all(&vec![b'x'; LONGEST_LINE + 1]).await.unwrap();
            assert!(matches!(resolver.addresses("a.example", "1").await, Err(Failure::NoAnswer(_))));
        });
    }
}
