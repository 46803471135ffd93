//! Asks the helper, which has the rights: one request and one reply for each connection.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use linerate_page::{LONGEST_REPLY, MOST_REQUESTS, Reply, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// Timeout for the helper's answer: the doctor probes the network, and a change runs the hooks of the tunnel's file.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The way to the helper.
#[derive(Clone)]
pub(crate) struct Helper {
    socket: PathBuf,
    /// Half of what the helper answers at a time: it may still be working for those who went away.
    asks: Arc<Semaphore>,
}

impl Helper {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), asks: Arc::new(Semaphore::new(MOST_REQUESTS / 2)) }
    }

    /// Its answer; or what to do for there to be one.
    pub(crate) async fn ask(&self, request: &Request) -> Result<Reply, String> {
        let answer = timeout(ANSWER_TIMEOUT, self.exchange(request)).await;
        answer.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())).map_err(|error| advice(&self.socket, &error))
    }

    async fn exchange(&self, request: &Request) -> io::Result<Reply> {
        let _one = self.asks.acquire().await.map_err(io::Error::other)?;
        let mut stream = UnixStream::connect(&self.socket).await?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        // One that does not want to read has an answer, too.
        let written = stream.write_all(&line).await;
        // It closes the connection after its line.
        let mut text = Zeroizing::new(Vec::with_capacity(64 << 10));
        let read = stream.take(LONGEST_REPLY as u64).read_to_end(&mut text).await;
        if text.is_empty() {
            return Err(written.and(read).err().unwrap_or(ErrorKind::UnexpectedEof.into()));
        }
        Ok(serde_json::from_slice(&text)?)
    }
}

/// What a person can do about a helper that does not answer.
fn advice(socket: &Path, error: &io::Error) -> String {
    let socket = socket.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!(
            "This page's helper, which has the rights to look at tunnels, does not run: nothing listens on {socket}. \
             On the server, `sudo systemctl restart linerate-web-helper.socket' starts it; without systemd, `sudo \
             linerate web-helper' does."
        ),
        ErrorKind::PermissionDenied => format!(
            "This page's helper runs, but the page's user may not open {socket}, which belongs to root and the group \
             linerate-web. On the server, run linerate-web by `sudo systemctl start linerate-web', or start the helper \
             with --user and the page's user."
        ),
        ErrorKind::TimedOut => format!(
            "This page's helper did not answer within {} seconds. On the server, `sudo systemctl status \
             linerate-web-helper' shows what it does, and `sudo journalctl -u linerate-web-helper' what it says.",
            ANSWER_TIMEOUT.as_secs()
        ),
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            let advice = "This page's helper closed the connection without an answer. On the server, `sudo journalctl \
                          -u linerate-web-helper' says why; it answers root and the page's user alone.";
            advice.to_owned()
        }
        _ => format!(
            "The answer of this page's helper was not understood ({error}). On the server, `sudo systemctl restart \
             linerate-web-helper linerate-web' has both of the same version."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_fail_has_a_remedy() {
        let socket = Path::new("/run/x.sock");
        let said = |kind: ErrorKind| advice(socket, &kind.into());
        assert!(said(ErrorKind::NotFound).contains("restart linerate-web-helper.socket'"));
        assert!(said(ErrorKind::ConnectionRefused).contains("/run/x.sock"));
        assert!(said(ErrorKind::PermissionDenied).contains("--user"));
        assert!(said(ErrorKind::TimedOut).contains("60 seconds"));
        assert!(said(ErrorKind::UnexpectedEof).contains("journalctl"));
        assert!(said(ErrorKind::InvalidData).contains("same version"));
    }
}
