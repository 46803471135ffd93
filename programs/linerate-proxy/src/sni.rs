//! A transparent TLS proxy: the first message of a client names the server (SNI), and all of it goes there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use linerate_sockets::Stream;
use rustls::server::Acceptor;
use tokio::time::timeout;

use crate::relay::relay;
use crate::server::Server;
use crate::target::{Host, Target};
use crate::wait;

/// Where TLS is spoken.
const PORT: u16 = 443;

/// How long the first message may take, and how long it may be; a record has 16 KiB at most.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: usize = 20 << 10;

/// Serves a client.
pub async fn serve(server: Arc<Server>, mut client: Box<dyn Stream>) {
    let Ok(Some((name, first))) = timeout(PATIENCE, Box::pin(hello(&mut *client))).await else { return };
    let Some(host @ Host::Name(_)) = Host::parse(&name) else { return };
    if let Ok(inside) = server.connect(&Target { host, port: PORT }).await {
        let _ = relay(client, first, inside, &server.memory).await;
    }
}

/// The name in the first message, and all that was read.
async fn hello(client: &mut dyn Stream) -> Option<(String, Vec<u8>)> {
    let mut reader = Reader::default();
    let mut piece = vec![0; 4096];
    while reader.bytes.len() < LONGEST {
        let count = wait::read(client, &mut piece).await.ok().filter(|&count| count > 0)?;
        match reader.add(&piece[..count]) {
            Ok(Some(name)) => return Some((name, reader.bytes)),
            Ok(None) => {}
            Err(NoName) => return None,
        }
    }
    None
}

/// The message has no name, or is none.
#[derive(Debug, PartialEq, Eq)]
pub struct NoName;

/// Reads the first message of a client.
#[derive(Default)]
pub struct Reader {
    acceptor: Acceptor,
    bytes: Vec<u8>,
}

impl Reader {
    /// Takes more of it; the server's name once it is all there.
    ///
    /// # Errors
    /// If there will be no name.
    pub fn add(&mut self, bytes: &[u8]) -> Result<Option<String>, NoName> {
        self.bytes.extend(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.acceptor.read_tls(&mut rest as &mut dyn io::Read) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(NoName),
            }
            if let Some(accepted) = self.acceptor.accept().map_err(|_| NoName)? {
                return accepted.client_hello().server_name().map(|name| Some(name.to_owned())).ok_or(NoName);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first message of a client of rustls.
    fn client_hello(name: &str) -> Vec<u8> {
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_name_is_found_however_the_message_is_cut() {
        let hello = client_hello("www.example.org");
        for piece in [1, 7, 100, hello.len()] {
            let mut reader = Reader::default();
            let found = hello.chunks(piece).find_map(|piece| reader.add(piece).unwrap());
            assert_eq!(found.as_deref(), Some("www.example.org"));
            assert!(hello.starts_with(&reader.bytes));
        }
    }

    #[test]
    fn a_message_without_a_name_has_none() {
        assert_eq!(Reader::default().add(&client_hello("192.0.2.1")), Err(NoName));
        assert_eq!(Reader::default().add(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), Err(NoName));
    }
}
