//! One POST of JSON to one endpoint of the store, over TCP or TLS. A connection serves one request: requests are rare, and
//! what has gone wrong with one is over with it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use super::StoreError;

/// How long making a connection may take, and how long an answer. Another endpoint is tried after that.
const CONNECT_TIME: Duration = Duration::from_secs(1);
const ANSWER_TIME: Duration = Duration::from_secs(4);

/// The largest answer in bytes: a page of peers is far below.
const ANSWER_MAX: usize = 64 << 20;

/// The port of etcd's clients.
const PORT: u16 = 2379;

/// Where a member of the store listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    is_tls: bool,
    host: String,
    port: u16,
}

impl std::str::FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}' is not the URL of a store, such as https://store1.example:2379");
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').or(port.is_empty().then_some(""))),
            None => authority.split_once(':').map_or((authority, Some("")), |(host, port)| (host, Some(port))),
        };
        let port = match port.ok_or_else(wrong)? {
            "" => PORT,
            port => port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?,
        };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
        match !host.is_empty() && host.bytes().all(is_host) {
            true => Ok(Self { is_tls, host: host.to_owned(), port }),
            false => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.is_tls { "https" } else { "http" }, self.authority())
    }
}

impl Endpoint {
    /// Whether it speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// The client's side of TLS: the store's authority, and our own certificate with its key, if the store asks for one.
///
/// # Errors
/// A sentence about the file that cannot be used.
pub fn tls(authority: &Path, own: Option<(&Path, &Path)>) -> Result<TlsConnector, String> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
    let read = |path: &Path| fs::read(path).map(Zeroizing::new).map_err(|error| unreadable(path, &error));
    let chain = |path: &Path| {
        let chain = CertificateDer::pem_slice_iter(&read(path)?).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| unreadable(path, &error))?;
        if chain.is_empty() { Err(format!("{} has no certificate in PEM", path.display())) } else { Ok(chain) }
    };
    let mut roots = RootCertStore::empty();
    for certificate in chain(authority)? {
        roots.add(certificate).map_err(|error| unreadable(authority, &error))?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| unreadable(key, &error))?;
            config.with_client_auth_cert(chain(certificate)?, private).map_err(|error| {
                let (certificate, key) = (certificate.display(), key.display());
                format!("cannot use the first certificate of {certificate} with the key in {key}: {error}")
            })?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// An answer that is read piece by piece. The connection ends with it.
pub(super) struct Stream {
    body: Incoming,
    connection: JoinHandle<()>,
}

impl Stream {
    /// The next piece; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error.to_string()),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Posts `body` to `path` at `endpoint`. The answer's head has come, with success.
pub(super) async fn post(
    endpoint: &Endpoint,
    tls: Option<&TlsConnector>,
    token: Option<&str>,
    path: &str,
    body: Bytes,
) -> Result<Stream, StoreError> {
    let silent = |what: &str| StoreError::Silent(format!("{endpoint}: {what}"));
    let stream = timeout(CONNECT_TIME, TcpStream::connect(endpoint.authority_for_look_up())).await;
    let stream = stream.map_err(|_| silent("no connection in time"))?.map_err(|error| silent(&error.to_string()))?;
    // A watch says nothing for long: this tells whether the other end is still there.
    let alive = TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(2));
    let _ = SockRef::from(&stream).set_tcp_keepalive(&alive.with_retries(3));
    let _ = stream.set_nodelay(true);
    let mut request = Request::post(path).header(header::HOST, endpoint.authority());
    request = request.header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, token);
    }
    let request = request.body(Full::new(body)).map_err(|error| silent(&error.to_string()))?;
    let sent = async {
        match tls.filter(|_| endpoint.is_tls) {
            None if endpoint.is_tls => Err("it speaks TLS, and no authority was given (--store-ca)".to_owned()),
            None => send(stream, request).await,
            Some(tls) => {
                let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| error.to_string())?;
                let stream = tls.connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
                send(stream, request).await
            }
        }
    };
    let answered = timeout(ANSWER_TIME, sent).await.map_err(|_| silent("no answer in time"))?;
    let (answer, connection) = answered.map_err(|error| silent(&error))?;
    let is_success = answer.status().is_success();
    let status = answer.status();
    let stream = Stream { body: answer.into_body(), connection };
    match is_success {
        true => Ok(stream),
        false => {
            let text = collect(stream).await.map_err(|error| silent(&error))?;
            Err(StoreError::of_answer(&endpoint.to_string(), status.as_u16(), &text))
        }
    }
}

impl Endpoint {
    fn authority_for_look_up(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(Response<Incoming>, JoinHandle<()>), String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(async move { drop(connection.await) });
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    Ok((answer, connection))
}

/// All of an answer.
pub(super) async fn collect(mut stream: Stream) -> Result<Bytes, String> {
    let body = Limited::new(&mut stream.body, ANSWER_MAX).collect();
    let body = timeout(ANSWER_TIME, body).await.map_err(|_| "the answer did not end in time".to_owned())?;
    Ok(body.map_err(|error| error.to_string())?.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_without_a_path() {
        let shown = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.to_string());
        assert_eq!(shown("http://10.0.0.1:2379").unwrap(), "http://10.0.0.1:2379");
        assert_eq!(shown("https://store.example/").unwrap(), "https://store.example:2379");
        assert_eq!(shown("http://[2001:db8::1]:1").unwrap(), "http://[2001:db8::1]:1");
        assert_eq!(shown("http://[::1]").unwrap(), "http://[::1]:2379");
        for wrong in
            ["", "10.0.0.1:2379", "ftp://a", "http://", "http://a:0", "http://a:x", "http://a/b", "http://[::1]x"]
        {
            assert!(shown(wrong).is_err_and(|said| said.contains("https://")), "{wrong}");
        }
    }
}
