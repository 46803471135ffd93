//! Passes bytes between two connections, both ways: back-pressure, half-closes and resets pass as well.
//!
//! An idle connection holds no buffer. What one end has sent is read into a buffer of the thread and written to the other
//! end at once; only what that does not take is kept, and while it is, nothing more is read, so the sender's window
//! closes. How much is read at a time depends on how much is kept in all ([`Memory`]), which bounds the sum:
//! [`MOST_KEPT`] and two small pieces for each connection. Between two connections of the kernel's, large pieces go
//! through a [`Pipe`].

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use linerate_sockets::Stream;
use tokio::time::{Sleep, sleep};

use crate::pipe::{MOST_IN_PIPE, MOST_PIPES, Pipe};
use crate::server::{MOST_CONNECTIONS, MOST_FROM_TUNNEL};

/// So much is read at a time,
const PIECE: usize = 64 << 10;

/// or so much while slow readers keep a lot waiting.
const SMALL_PIECE: usize = 4 << 10;

/// From so many bytes on that wait for slow readers, small pieces are read.
const MOST_KEPT: usize = 32 << 20;

// Besides, each connection may keep a small piece for each direction.
const _: () = assert!(
    MOST_KEPT + MOST_PIPES * MOST_IN_PIPE + (MOST_CONNECTIONS + MOST_FROM_TUNNEL) * 2 * SMALL_PIECE <= 224 << 20
);

/// From so many bytes on that come at once, a copy costs more than the calls that avoid it.
const BULK: usize = 32 << 10;

/// So many pieces are passed on before other connections have their turn.
const TURN: usize = 8;

/// How long a connection of which one half has ended may be silent.
const HALF_CLOSED: Duration = Duration::from_secs(300);

/// How often it is looked whether an end was reset that is not read, because the other one takes nothing.
const STALLED: Duration = Duration::from_secs(5);

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// What all connections keep for slow readers, and what they have passed on.
#[derive(Default)]
pub struct Memory {
    pub(crate) kept: AtomicUsize,
    pub(crate) pipes: AtomicUsize,
    /// Bytes from outside into the tunnel.
    pub sent: AtomicU64,
    /// Bytes from the tunnel.
    pub received: AtomicU64,
}

impl Memory {
    /// Bytes that wait for slow readers.
    pub fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    fn piece(&self) -> usize {
        if self.kept() < MOST_KEPT { PIECE } else { SMALL_PIECE }
    }
}

/// Bytes that one end has sent and the other has not taken.
struct Kept {
    bytes: Vec<u8>,
    at: usize,
    memory: Arc<Memory>,
}

impl Kept {
    fn new(bytes: Vec<u8>, memory: &Arc<Memory>) -> Self {
        memory.kept.fetch_add(bytes.len(), Ordering::Relaxed);
        Self { bytes, at: 0, memory: memory.clone() }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.memory.kept.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// One direction.
struct Half {
    kept: Option<Kept>,
    /// What holds the bytes of two connections of the kernel's that `to` has not taken, or is empty.
    pipe: Option<Pipe>,
    /// The last piece was large, so the next one may be worth more calls.
    is_bulk: bool,
    has_read_end: bool,
    is_finished: bool,
    passed: u64,
}

impl Half {
    fn new(first: Vec<u8>, memory: &Arc<Memory>) -> Self {
        let kept = (!first.is_empty()).then(|| Kept::new(first, memory));
        Self { kept, pipe: None, is_bulk: false, has_read_end: false, is_finished: false, passed: 0 }
    }

    /// Whether `to` has not taken all that was read.
    fn is_stalled(&self) -> bool {
        self.kept.is_some() || self.pipe.as_ref().is_some_and(Pipe::holds_any)
    }

    /// Passes on what has come from `from`, until there is nothing or `to` takes nothing. Ready is the end of this half.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        from: &mut dyn Stream,
        to: &mut dyn Stream,
        memory: &Arc<Memory>,
    ) -> Poll<io::Result<()>> {
        if self.is_finished {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..TURN {
            if let Some(kept) = &mut self.kept {
                ready!(write(context, to, &kept.bytes, &mut kept.at, &mut self.passed))?;
                self.kept = None;
            }
            if let Some(pipe) = &mut self.pipe {
                ready!(pipe.drain(context, to, &mut self.passed))?;
            }
            if self.has_read_end {
                ready!(to.poll_finish(context))?;
                self.is_finished = true;
                return Poll::Ready(Ok(()));
            }
            if self.is_bulk && Pipe::connects(from, to) {
                self.pipe = self.pipe.take().or_else(|| Pipe::new(memory));
            }
            if let Some(pipe) = &mut self.pipe {
                let Poll::Ready(count) = pipe.fill(context, from)? else {
                    self.pipe = None;
                    return Poll::Pending;
                };
                self.has_read_end = count == 0;
                self.is_bulk = count >= BULK;
                ready!(pipe.drain(context, to, &mut self.passed))?;
                if !self.is_bulk {
                    self.pipe = None;
                }
                continue;
            }
            ready!(BUFFER.with_borrow_mut(|buffer| {
                let count = ready!(from.poll_read(context, &mut buffer[..memory.piece()]))?;
                self.has_read_end = count == 0;
                self.is_bulk = count >= BULK;
                let mut at = 0;
                if write(context, to, &buffer[..count], &mut at, &mut self.passed)?.is_pending() {
                    self.kept = Some(Kept::new(buffer[at..count].to_vec(), memory));
                }
                Poll::Ready(io::Result::Ok(()))
            }))?;
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Writes what is left of `bytes` from `at` on, and counts what was taken.
fn write(
    context: &mut Context<'_>,
    to: &mut dyn Stream,
    bytes: &[u8],
    at: &mut usize,
    passed: &mut u64,
) -> Poll<io::Result<()>> {
    while *at < bytes.len() {
        match ready!(to.poll_write(context, &bytes[*at..]))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            count => {
                *at += count;
                *passed += count as u64;
            }
        }
    }
    Poll::Ready(Ok(()))
}

/// Passes bytes between a client outside and the tunnel until both halves have ended; `first` was read from the client
/// already. If one of the two is reset, so is the other.
///
/// # Errors
/// What ended one of the two; both are reset.
pub async fn relay(
    mut outside: Box<dyn Stream>,
    first: Vec<u8>,
    mut inside: Box<dyn Stream>,
    memory: &Arc<Memory>,
) -> io::Result<()> {
    let (mut out, mut back) = (Half::new(first, memory), Half::new(Vec::new(), memory));
    let mut silence: Option<(Pin<Box<Sleep>>, u64)> = None;
    let mut stalled: Option<Pin<Box<Sleep>>> = None;
    let (mut counted_out, mut counted_back) = (0, 0);
    let outcome = poll_fn(|context| {
        let there = out.poll(context, &mut *outside, &mut *inside, memory)?;
        let here = back.poll(context, &mut *inside, &mut *outside, memory)?;
        memory.sent.fetch_add(out.passed - counted_out, Ordering::Relaxed);
        memory.received.fetch_add(back.passed - counted_back, Ordering::Relaxed);
        (counted_out, counted_back) = (out.passed, back.passed);
        if there.is_ready() && here.is_ready() {
            return Poll::Ready(io::Result::Ok(()));
        }
        if there.is_ready() || here.is_ready() {
            let passed = out.passed + back.passed;
            let (timer, then) = silence.get_or_insert_with(|| (Box::pin(sleep(HALF_CLOSED)), passed));
            while timer.as_mut().poll(context).is_ready() {
                if *then == passed {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                *then = passed;
                timer.as_mut().reset(tokio::time::Instant::now() + HALF_CLOSED);
            }
        }
        let is_stalled = out.is_stalled() || back.is_stalled();
        // It stays where an end stalls every moment, as that of a fast stream does.
        if is_stalled && stalled.is_none() {
            stalled = Some(Box::pin(sleep(STALLED)));
        }
        while let Some(timer) = &mut stalled
            && timer.as_mut().poll(context).is_ready()
        {
            if !is_stalled {
                stalled = None;
            } else if outside.has_failed() || inside.has_failed() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            } else {
                timer.as_mut().reset(tokio::time::Instant::now() + STALLED);
            }
        }
        Poll::Pending
    })
    .await;
    if outcome.is_err() {
        outside.reset();
        inside.reset();
    }
    outcome
}
