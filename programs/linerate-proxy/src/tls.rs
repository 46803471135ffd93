//! TLS between a client and the HTTP proxy.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use linerate_sockets::Stream;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::wait::Io;

/// Serves the certificates of a file with the key of another.
///
/// # Errors
/// A sentence about the file.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let read = |path: &Path| fs::read(path).map(zeroize::Zeroizing::new).map_err(|error| unreadable(path, &error));
    let chain = CertificateDer::pem_slice_iter(&read(certificate)?).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| unreadable(certificate, &error))?;
    if chain.is_empty() {
        return Err(format!("{} has no certificate in PEM", certificate.display()));
    }
    let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| unreadable(key, &error))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, private);
    let mut config = config.map_err(|error| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("cannot serve the first certificate of {certificate} with the key in {key}: {error}")
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // AWS-LC looks for a device (/dev/sysgenid) when it first makes random numbers: once it is confined it may not.
    let random = config.crypto_provider().secure_random.fill(&mut [0]);
    random.map_err(|_| "the system has no random numbers".to_owned())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("cannot read {}: {error}", path.display())
}

/// Shakes hands with a client.
pub(crate) async fn accept(acceptor: &TlsAcceptor, client: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
    let (local, peer) = (client.local(), client.peer());
    Ok(Box::new(Tls { stream: acceptor.accept(Io::new(client)).await?, unflushed: 0, local, peer }))
}

struct Tls {
    stream: TlsStream<Io>,
    /// How much of the last write is encrypted and waits for the connection.
    unflushed: usize,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Stream for Tls {
    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        match ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer)) {
            // The client has ended the connection below TLS, as many do. What is inside knows whether all of it came.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(0)),
            outcome => Poll::Ready(outcome.map(|()| buffer.filled().len())),
        }
    }

    // What is written is told to be taken once it has left: nobody would come back to flush it. Until then the caller
    // offers the same bytes again.
    fn poll_write(&mut self, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if self.unflushed == 0 {
            self.unflushed = ready!(Pin::new(&mut self.stream).poll_write(context, from))?;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        Poll::Ready(Ok(std::mem::take(&mut self.unflushed)))
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn reset(&mut self) {
        self.stream.get_mut().0.reset();
    }

    fn has_failed(&mut self) -> bool {
        self.stream.get_mut().0.has_failed()
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&self) -> SocketAddr {
        self.local
    }
}
