//! Waits for streams, listeners and sockets of [`linerate_sockets`].

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use linerate_sockets::{Datagrams, Listener, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Reads what has come.
pub(crate) async fn read(stream: &mut dyn Stream, into: &mut [u8]) -> io::Result<usize> {
    poll_fn(|context| stream.poll_read(context, into)).await
}

/// Writes all of it.
pub(crate) async fn write_all(stream: &mut dyn Stream, mut from: &[u8]) -> io::Result<()> {
    while !from.is_empty() {
        let count = poll_fn(|context| stream.poll_write(context, from)).await?;
        from = &from[count..];
    }
    Ok(())
}

/// The next connection.
pub(crate) async fn accept(listener: &mut dyn Listener) -> io::Result<Box<dyn Stream>> {
    poll_fn(|context| listener.poll_accept(context)).await
}

/// The next datagram.
pub(crate) async fn receive(socket: &mut dyn Datagrams, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    poll_fn(|context| socket.poll_receive(context, into)).await
}

/// Sends a datagram.
pub(crate) async fn send(socket: &mut dyn Datagrams, from: &[u8], to: SocketAddr) -> io::Result<()> {
    poll_fn(|context| socket.poll_send(context, from, to)).await
}

/// A stream for hyper and rustls, which know tokio's traits.
///
/// They drop a connection once they have shut it down, without waiting for the other end: a reset would overtake what was
/// written last, so it is then [closed](close) in the background.
pub(crate) struct Io {
    stream: Option<Box<dyn Stream>>,
    is_finished: bool,
}

impl Io {
    pub(crate) fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream: Some(stream), is_finished: false }
    }

    /// The stream; none if it was reset.
    pub(crate) fn into_inner(mut self) -> Option<Box<dyn Stream>> {
        self.stream.take()
    }

    pub(crate) fn reset(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            stream.reset();
        }
    }

    pub(crate) fn has_failed(&mut self) -> bool {
        self.stream.as_mut().is_none_or(|stream| stream.has_failed())
    }

    fn stream(&mut self) -> io::Result<&mut dyn Stream> {
        match &mut self.stream {
            Some(stream) => Ok(&mut **stream),
            None => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        if let (Some(stream), true, Ok(runtime)) = (self.stream.take(), self.is_finished, Handle::try_current()) {
            runtime.spawn(close(stream));
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = ready!(self.stream()?.poll_read(context, into.initialize_unfilled()))?;
        into.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(context, from)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream()?.poll_finish(context))?;
        self.is_finished = true;
        Poll::Ready(Ok(()))
    }
}

/// The longest datagram.
pub(crate) const LONGEST_DATAGRAM: usize = 65_535;

/// The buffer of [`with_buffer`].
pub(crate) const BUFFER: usize = LONGEST_DATAGRAM + 1 + 64;

/// How long a client may take to read why it was refused, and how much more it may send meanwhile.
const LINGER: Duration = Duration::from_secs(5);

/// So many clients do that at a time: they do not count as connections any more.
static LINGERING: Semaphore = Semaphore::const_new(1024);
const MOST_REST: usize = 256 << 10;

thread_local! {
    static DATAGRAM: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// Does something with a buffer of this thread; nothing in it is kept.
pub(crate) fn with_buffer<T>(use_it: impl FnOnce(&mut [u8]) -> T) -> T {
    DATAGRAM.with_borrow_mut(|buffer| use_it(buffer))
}

/// The next datagram, in a buffer of its length.
pub(crate) async fn receive_one(socket: &mut dyn Datagrams) -> io::Result<(Vec<u8>, SocketAddr)> {
    poll_fn(|context| {
        with_buffer(|buffer| {
            let (count, from) = ready!(socket.poll_receive(context, buffer))?;
            Poll::Ready(Ok((buffer[..count].to_vec(), from)))
        })
    })
    .await
}

/// Ends a connection so that the client can read what was written last: a reset would overtake it.
pub(crate) async fn close(mut stream: Box<dyn Stream>) {
    let Ok(_permit) = LINGERING.try_acquire() else { return };
    let ending = async {
        poll_fn(|context| stream.poll_finish(context)).await?;
        let (mut rest, mut buffer) = (MOST_REST, vec![0; 4096]);
        while rest > 0 {
            match read(&mut *stream, &mut buffer).await? {
                0 => break,
                count => rest = rest.saturating_sub(count),
            }
        }
        io::Result::Ok(())
    };
    let _ = timeout(LINGER, ending).await;
}
