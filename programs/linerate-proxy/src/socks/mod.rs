//! SOCKS5 (RFC 1928): CONNECT and UDP ASSOCIATE, with a password (RFC 1929) if there is one. BIND is refused.

mod associate;
pub mod message;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_sockets::Stream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use self::message::{Command, Method, Parsed, Reply, Request};
use crate::config::Login;
use crate::failure::Failure;
use crate::relay::relay;
use crate::server::Server;
use crate::target::Target;
use crate::wait;

/// How long a client may take until its request is there.
const PATIENCE: Duration = Duration::from_secs(10);

/// A SOCKS5 proxy.
pub struct Socks {
    login: Option<Login>,
    associations: Mutex<HashMap<IpAddr, usize>>,
}

impl Socks {
    /// A proxy for those who know `login`.
    pub fn new(login: Option<Login>) -> Self {
        Self { login, associations: Mutex::default() }
    }

    /// Serves a client.
    pub async fn serve(self: Arc<Self>, server: Arc<Server>, mut client: Box<dyn Stream>) {
        // A password is in there: it is wiped, and was copied nowhere, because there is room for all at once.
        let mut bytes = Zeroizing::new(Vec::with_capacity(4 * message::LONGEST));
        let request = match timeout(PATIENCE, Box::pin(self.negotiate(&mut *client, &mut bytes))).await {
            Ok(Ok(request)) => request,
            Ok(Err(Ended::Refused)) => return wait::close(client).await,
            Ok(Err(Ended::Gone)) | Err(_) => return,
        };
        let target = match &request {
            Request { command: Command::Connect, target: Some(_) } => request.target.and_then(|target| target.target()),
            Request { command: Command::Associate, target: Some(named) } => {
                return Box::pin(associate::serve(self, server, client, named)).await;
            }
            Request { command: Command::Other, .. } => return refuse(client, Reply::NoSuchCommand).await,
            Request { target: None, .. } => return refuse(client, Reply::NoSuchAddress).await,
        };
        let Some(target) = target else { return refuse(client, Reply::HostUnreachable).await };
        let first = bytes.to_vec();
        drop(bytes);
        connect(server, client, target, first).await;
    }

    /// Everything before the request, and that. What the client has sent behind it stays in `bytes`.
    async fn negotiate(&self, client: &mut dyn Stream, bytes: &mut Vec<u8>) -> Result<Request, Ended> {
        let method = next(client, bytes, |bytes| message::greeting(bytes, self.login.is_some())).await?;
        write(client, &message::chosen(method)).await?;
        match (method, &self.login) {
            (Method::None, None) => {}
            (Method::Password, Some(login)) => {
                let admits = |bytes: &[u8]| {
                    let parsed = message::login(bytes)?;
                    Ok(parsed.map(|((name, password), used)| (login.admits(name, password), used)))
                };
                let is_right = next(client, bytes, admits).await?;
                write(client, &message::logged_in(is_right)).await?;
                if !is_right {
                    return Err(Ended::Refused);
                }
            }
            _ => return Err(Ended::Refused),
        }
        next(client, bytes, message::request).await
    }
}

/// Why there is no request.
enum Ended {
    /// The client was told so.
    Refused,
    /// It went away, or speaks something else.
    Gone,
}

/// Reads until a message is there, and takes it out of `bytes`.
async fn next<T>(client: &mut dyn Stream, bytes: &mut Vec<u8>, parse: impl Fn(&[u8]) -> Parsed<T>) -> Result<T, Ended> {
    loop {
        if let Some((message, used)) = parse(bytes).map_err(|_| Ended::Gone)? {
            bytes.drain(..used);
            return Ok(message);
        }
        let mut piece = Zeroizing::new([0; message::LONGEST]);
        match wait::read(client, &mut *piece).await {
            Ok(count @ 1..) => bytes.extend(&piece[..count]),
            _ => return Err(Ended::Gone),
        }
    }
}

async fn write(client: &mut dyn Stream, bytes: &[u8]) -> Result<(), Ended> {
    wait::write_all(client, bytes).await.map_err(|_| Ended::Gone)
}

async fn connect(server: Arc<Server>, mut client: Box<dyn Stream>, target: Target, first: Vec<u8>) {
    match server.connect(&target).await {
        Ok(inside) => {
            let reply = message::reply(Reply::Succeeded, inside.local());
            if wait::write_all(&mut *client, &reply).await.is_ok() {
                let _ = relay(client, first, inside, &server.memory).await;
            }
        }
        Err(failure) => refuse(client, reply_to(&failure)).await,
    }
}

async fn refuse(mut client: Box<dyn Stream>, reply: Reply) {
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    if wait::write_all(&mut *client, &message::reply(reply, nowhere)).await.is_ok() {
        wait::close(client).await;
    }
}

fn reply_to(failure: &Failure) -> Reply {
    match failure {
        Failure::Refused => Reply::Refused,
        Failure::TimedOut => Reply::TimedOut,
        Failure::NoFamily(_) => Reply::NetworkUnreachable,
        Failure::NoSuchName(_) | Failure::NoNameServer(_) | Failure::NoAnswer(_) | Failure::Unreachable => {
            Reply::HostUnreachable
        }
        Failure::Forbidden(_) => Reply::NotAllowed,
        Failure::Busy | Failure::Io(_) => Reply::Failure,
    }
}
