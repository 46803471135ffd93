//! Endpoints that are names: asked for without making anybody wait, again and again until there is an answer.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use linerate_control::keys::PublicKey;

use crate::wg::surroundings::addresses;

/// A peer whose endpoint is a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Which peer.
    pub(crate) peer: PublicKey,
    /// The host.
    pub(crate) host: String,
    /// The port, or the name of a service.
    pub(crate) service: String,
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
/// answer yet. The questions go on in threads that nobody waits for.
pub(crate) fn at_hand(names: &[Named]) -> Vec<Vec<SocketAddr>> {
    resolve(names, PATIENCE)
}

/// How many questions are open at once: a file may have thousands of names.
const AT_ONCE: usize = 16;

/// As [`at_hand`], with another patience.
pub(crate) fn resolve(names: &[Named], patience: Duration) -> Vec<Vec<SocketAddr>> {
    let (answers, answered) = mpsc::channel();
    let questions: Vec<(usize, Named)> = names.iter().cloned().enumerate().collect();
    let questions = Arc::new(Mutex::new(questions.into_iter()));
    for _ in 0..AT_ONCE.min(names.len()) {
        let (answers, questions) = (answers.clone(), Arc::clone(&questions));
        // Without a thread there is no answer, as without a resolver.
        let _ = thread::Builder::new().name("resolve".into()).spawn(move || {
            let next = || questions.lock().ok()?.next();
            while let Some((index, named)) = next() {
                // Nobody may be waiting any more.
                if answers.send((index, addresses(&named.host, &named.service))).is_err() {
                    break;
                }
            }
        });
    }
    drop(answers);
    let mut found = vec![Vec::new(); names.len()];
    let until = Instant::now() + patience;
    while let Ok((index, addresses)) = answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
        found[index] = addresses;
    }
    found
}
