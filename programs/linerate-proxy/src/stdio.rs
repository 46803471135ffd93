//! Standard input and output as one end of a connection (`[STDIOTunnel]`, `-W`): for ssh's ProxyCommand.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use linerate_sockets::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, Stdin, Stdout, stdin, stdout};

use crate::relay::relay;
use crate::server::Server;
use crate::target::Target;

/// Passes standard input and output on until both ends are through.
///
/// # Errors
/// A sentence about why there is no connection, or what ended it before it was through.
pub async fn serve(server: Arc<Server>, streams: StandardStreams, target: &Target) -> Result<(), String> {
    let inside = server.connect(target).await;
    let inside = inside.map_err(|failure| format!("cannot connect to {target}: {failure}"))?;
    relay(Box::new(streams), Vec::new(), inside, &server.memory).await.or_else(|error| match error.kind() {
        // Whoever read our output has gone, which is no news to anybody.
        io::ErrorKind::BrokenPipe => Ok(()),
        io::ErrorKind::ConnectionReset => Err(format!("the connection to {target} was reset")),
        _ => Err(format!("the connection to {target} has ended: {error}")),
    })
}

/// Standard input and output.
pub struct StandardStreams {
    /// What takes the place of standard output once that is over.
    nowhere: File,
    input: Stdin,
    output: Stdout,
    /// How much of the last write is on its way.
    unflushed: usize,
}

impl StandardStreams {
    /// Those of this process. Within a runtime.
    ///
    /// # Errors
    /// There is no /dev/null.
    pub fn open() -> io::Result<Self> {
        let nowhere = File::options().write(true).open("/dev/null")?;
        Ok(Self { nowhere, input: stdin(), output: stdout(), unflushed: 0 })
    }
}

impl Stream for StandardStreams {
    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        ready!(Pin::new(&mut self.input).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    // Flushed each time, as in `tls`: nobody would come back for it.
    fn poll_write(&mut self, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if self.unflushed == 0 {
            self.unflushed = ready!(Pin::new(&mut self.output).poll_write(context, from))?;
        }
        ready!(Pin::new(&mut self.output).poll_flush(context))?;
        Poll::Ready(Ok(std::mem::take(&mut self.unflushed)))
    }

    /// Whoever reads our output learns of its end although this process goes on.
    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.output).poll_flush(context))?;
        rustix::stdio::dup2_stdout(&self.nowhere)?;
        Poll::Ready(Ok(()))
    }

    /// There is none: whoever reads our output learns of its end.
    fn reset(&mut self) {
        let _ = rustix::stdio::dup2_stdout(&self.nowhere);
    }

    /// What is read has no reset.
    fn has_failed(&mut self) -> bool {
        false
    }

    fn peer(&self) -> SocketAddr {
        self.local()
    }

    fn local(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
    }
}
