//! Asks the helper, which has the rights: one request and one reply for each connection.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use linerate_page::{LONGEST_REPLY, Reply, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// How long an answer may take: the doctor probes, and a change runs the hooks of the tunnel's file.
const PATIENCE: Duration = Duration::from_secs(60);

/// The way to the helper.
pub(crate) struct Helper(pub(crate) PathBuf);

impl Helper {
    /// Its answer; or what to do for there to be one.
    pub(crate) async fn ask(&self, request: &Request) -> Result<Reply, String> {
        let answer = timeout(PATIENCE, self.exchange(request)).await;
        answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
            let socket = self.0.display();
            format!("The helper does not answer at {socket}: {error}. `systemctl start linerate-web-helper.socket' starts it.")
        })
    }

    async fn exchange(&self, request: &Request) -> io::Result<Reply> {
        let mut stream = UnixStream::connect(&self.0).await?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        // It closes the connection after its line.
        let mut text = Zeroizing::new(Vec::with_capacity(64 << 10));
        stream.take(LONGEST_REPLY as u64).read_to_end(&mut text).await?;
        if text.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection; its journal says why"));
        }
        Ok(serde_json::from_slice(&text)?)
    }
}
