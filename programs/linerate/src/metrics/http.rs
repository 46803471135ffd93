//! As much of HTTP/1.1 as a scrape needs: one GET for each connection.
//!
//! A request is read by httparse. Its size, its time, and the number of connections are bounded, so whoever can connect
//! can neither hold memory nor keep others waiting for long.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_tunnel::Interruption;
use linerate_watch::metrics::Format;
use rustix::fs::Mode;

/// The longest request in bytes. One of Prometheus has 300.
const REQUEST_MAX: usize = 8192;

/// The most headers of a request.
const HEADERS_MAX: usize = 64;

/// How long a request may take to arrive, and how long a response to leave.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The most connections at a time. Others are closed at once.
const CONNECTIONS_MAX: usize = 16;

/// A listening socket; that of a path is removed on drop.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(super) fn tcp(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    /// Replaces a socket on which nobody answers.
    pub(super) fn unix(path: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
                _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers there")),
            }
        }
        // No thread that creates files has been started yet.
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = listener?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener, path.to_owned()))
    }

    fn accept(&self) -> io::Result<Stream> {
        let stream = match self {
            Self::Tcp(listener) => Stream::Tcp(listener.accept()?.0),
            Self::Unix(listener, _) => Stream::Unix(listener.accept()?.0),
        };
        stream.set_blocking()?;
        Ok(stream)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_blocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(false),
            Self::Unix(stream) => stream.set_nonblocking(false),
        }
    }

    /// Limits the next call. Zero would mean no limit.
    fn limit(&self, end: Instant) -> io::Result<()> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(left)).and(stream.set_write_timeout(Some(left))),
            Self::Unix(stream) => stream.set_read_timeout(Some(left)).and(stream.set_write_timeout(Some(left))),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }
}

/// Answers requests with what `answer` returns, until a signal comes.
pub(super) fn serve(
    listener: &Listener,
    interruption: &Interruption,
    answer: &(impl Fn(Format) -> Result<String, String> + Sync),
) -> io::Result<()> {
    let connections = AtomicUsize::new(0);
    thread::scope(|scope| {
        while !interruption.came() {
            interruption.pause(&[listener.as_fd()], None)?;
            let Ok(mut stream) = listener.accept() else { continue };
            if connections.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
                connections.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let connections = &connections;
            let talk = move || {
                // Whoever asked has gone, or was too slow.
                let _ = respond(&mut stream, answer);
                connections.fetch_sub(1, Ordering::SeqCst);
            };
            if thread::Builder::new().spawn_scoped(scope, talk).is_err() {
                connections.fetch_sub(1, Ordering::SeqCst);
            }
        }
        Ok(())
    })
}

fn respond(stream: &mut Stream, answer: &impl Fn(Format) -> Result<String, String>) -> io::Result<()> {
    let request = read(stream)?;
    let response = match parse(&request) {
        Ok(Request { format, head }) => match answer(format) {
            Ok(text) => response("200 OK", format.content_type(), "", &text, head),
            Err(error) => response("500 Internal Server Error", PLAIN, "", &format!("{error}\n"), head),
        },
        Err(Refusal::Path) => response("404 Not Found", PLAIN, "", "The metrics are at /metrics.\n", false),
        Err(Refusal::Method) => response("405 Method Not Allowed", PLAIN, "Allow: GET, HEAD\r\n", "", false),
        Err(Refusal::Invalid) => response("400 Bad Request", PLAIN, "", "This is not an HTTP request.\n", false),
    };
    let end = Instant::now() + TIME_MAX;
    let mut rest = &response[..];
    while !rest.is_empty() {
        stream.limit(end)?;
        let written = stream.write(rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Reads a request up to its empty line, or as much as is too much.
fn read(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + TIME_MAX;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while request.len() < REQUEST_MAX && !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        stream.limit(end)?;
        match stream.read(&mut buffer)? {
            0 => break,
            length => request.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(request)
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    format: Format,
    /// Only the head of the response is wanted.
    head: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Invalid,
    Method,
    Path,
}

fn parse(bytes: &[u8]) -> Result<Request, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    if !request.parse(bytes).is_ok_and(|status| status.is_complete()) {
        return Err(Refusal::Invalid);
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Refusal::Method),
    };
    let path = request.path.unwrap_or_default();
    if path.split('?').next() != Some("/metrics") {
        return Err(Refusal::Path);
    }
    let accepts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let accepts: Vec<_> = accepts.map(|header| String::from_utf8_lossy(header.value)).collect();
    Ok(Request { format: Format::accepted(&accepts.join(",")), head })
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn response(status: &str, content_type: &str, more: &str, body: &str, head: bool) -> Vec<u8> {
    let length = body.len();
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\n{more}Connection: close\r\n\r\n"
    );
    if !head {
        response.push_str(body);
    }
    response.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_is_read_and_everything_else_refused() {
        let get = |format, head| Ok(Request { format, head });
        for (text, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", get(Format::Classic, false)),
            ("HEAD /metrics?x=y HTTP/1.0\r\n\r\n", get(Format::Classic, true)),
            (
                "GET /metrics HTTP/1.1\r\naccept: text/plain\r\nAccept: application/openmetrics-text\r\n\r\n",
                get(Format::OpenMetrics, false),
            ),
            ("GET / HTTP/1.1\r\n\r\n", Err(Refusal::Path)),
            ("GET /metrics/../x HTTP/1.1\r\n\r\n", Err(Refusal::Path)),
            ("POST /metrics HTTP/1.1\r\n\r\n", Err(Refusal::Method)),
            ("", Err(Refusal::Invalid)),
            ("GET /metrics HTTP/1.1\r\n", Err(Refusal::Invalid)),
            ("\u{ff}\u{ff}\r\n\r\n", Err(Refusal::Invalid)),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(parse(many.as_bytes()), Err(Refusal::Invalid));
    }

    #[test]
    fn a_request_without_an_end_is_not_read_for_ever() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let writer = thread::spawn(move || {
            let bytes = [b'x'; 4 * REQUEST_MAX];
            let _ = theirs.write_all(&bytes);
            let mut reply = Vec::new();
            let _ = theirs.read_to_end(&mut reply);
            reply
        });
        respond(&mut Stream::Unix(ours), &|_| Ok("secret".to_owned())).unwrap();
        let reply = String::from_utf8(writer.join().unwrap()).unwrap();
        assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 400 "), "{reply}");
    }

    #[test]
    fn the_head_alone_has_the_length_of_the_whole() {
        let text = |head| String::from_utf8(response("200 OK", PLAIN, "", "body", head)).unwrap();
        assert!(text(true).ends_with("\r\n\r\n") && text(true).contains("Content-Length: 4\r\n"));
        assert_eq!(text(true) + "body", text(false));
    }
}
