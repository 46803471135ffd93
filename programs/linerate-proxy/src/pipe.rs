//! Pipes through which the kernel passes bytes from one of its connections to another without copying them (splice(2)).
//!
//! A pipe belongs to one direction of a connection while there is something in it, and waits for the next one after
//! that. There are few of them: a pipe may hold memory of the kernel's far beyond its bytes.

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use linerate_sockets::Stream;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::kernel::Connection;
use crate::relay::Memory;

/// So many pipes there are at most; further connections copy.
pub(crate) const MOST_PIPES: usize = 64;

/// So much a pipe takes at a time: what the kernel's buffers for one hold that are 32 KiB each, as those of large
/// packets are.
pub(crate) const MOST_IN_PIPE: usize = 512 << 10;

thread_local! {
    static SPARE: Cell<Option<Ends>> = const { Cell::new(None) };
}

struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

/// A pipe in use.
pub(crate) struct Pipe {
    /// None only while it is dropped.
    ends: Option<Ends>,
    held: usize,
    memory: Arc<Memory>,
}

impl Pipe {
    /// A pipe that is empty, if there may be another one.
    pub(crate) fn new(memory: &Arc<Memory>) -> Option<Self> {
        if memory.pipes.fetch_add(1, Ordering::Relaxed) >= MOST_PIPES {
            memory.pipes.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let made =
            || pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok().map(|(read, write)| Ends { read, write });
        // Without any, it is given back when this is dropped.
        let this = Self { ends: SPARE.take().or_else(made), held: 0, memory: memory.clone() };
        this.ends.is_some().then_some(this)
    }

    /// Whether both connections are the kernel's.
    pub(crate) fn connects(from: &dyn Stream, to: &dyn Stream) -> bool {
        let is_kernels = |stream: &dyn Any| stream.is::<Connection>();
        is_kernels(from) && is_kernels(to)
    }

    /// Whether there is anything in it.
    pub(crate) fn holds_any(&self) -> bool {
        self.held > 0
    }

    /// Takes what has come from `from`; 0 is the end of that half. The pipe is empty.
    pub(crate) fn fill(&mut self, context: &mut Context<'_>, from: &mut dyn Stream) -> Poll<io::Result<usize>> {
        let count = ready!(connection(from)?.poll_fill(context, &self.ends()?.write, MOST_IN_PIPE))?;
        self.held = count;
        self.memory.kept.fetch_add(count, Ordering::Relaxed);
        Poll::Ready(Ok(count))
    }

    /// Gives all that it holds to `to`, and adds to `passed` what was taken.
    pub(crate) fn drain(
        &mut self,
        context: &mut Context<'_>,
        to: &mut dyn Stream,
        passed: &mut u64,
    ) -> Poll<io::Result<()>> {
        let connection = connection(to)?;
        while self.held > 0 {
            let count = ready!(connection.poll_drain(context, &self.ends()?.read, self.held))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held -= count;
            self.memory.kept.fetch_sub(count, Ordering::Relaxed);
            *passed += count as u64;
        }
        Poll::Ready(Ok(()))
    }

    fn ends(&self) -> io::Result<&Ends> {
        self.ends.as_ref().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.memory.pipes.fetch_sub(1, Ordering::Relaxed);
        self.memory.kept.fetch_sub(self.held, Ordering::Relaxed);
        if self.held == 0 {
            SPARE.set(self.ends.take());
        }
    }
}

fn connection(stream: &mut dyn Stream) -> io::Result<&mut Connection> {
    let stream: &mut dyn Any = stream;
    stream.downcast_mut().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn there_are_few_of_them_and_one_that_is_given_back_is_there_again() {
        let memory = Arc::new(Memory::default());
        let mut pipes: Vec<_> = (0..MOST_PIPES).map(|_| Pipe::new(&memory).unwrap()).collect();
        assert!(Pipe::new(&memory).is_none());
        pipes.pop();
        assert!(Pipe::new(&memory).is_some());
    }

    /// A connection as the proxy has it, and its other end.
    async fn pair() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Connection::new(listener.accept().await.unwrap().0).unwrap(), there)
    }

    #[test]
    fn what_a_pipe_still_holds_reaches_nobody_else() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let memory = Arc::new(Memory::default());
            let ((mut from, mut sender), (mut to, mut receiver)) = (pair().await, pair().await);
            for (said, is_passed_on) in [(b"a", true), (b"b", false), (b"c", true)] {
                sender.write_all(said).await.unwrap();
                let mut pipe = Pipe::new(&memory).unwrap();
                assert_eq!(poll_fn(|context| pipe.fill(context, &mut from)).await.unwrap(), 1);
                assert_eq!(memory.kept(), 1);
                if is_passed_on {
                    let mut passed = 0;
                    poll_fn(|context| pipe.drain(context, &mut to, &mut passed)).await.unwrap();
                    assert_eq!(passed, 1);
                }
            }
            assert_eq!(memory.kept(), 0);
            let mut heard = [0; 2];
            receiver.read_exact(&mut heard).await.unwrap();
            assert_eq!(&heard, b"ac");
        });
    }
}
