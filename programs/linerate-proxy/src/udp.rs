//! Forwards of datagrams, in both directions: each client gets a socket of its own on the other side, and what comes
//! back by it goes to that client.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linerate_sockets::Datagrams;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep, sleep_until};

use crate::failure::Failure;
use crate::kernel::{Udp, unspecified};
use crate::server::{Server, complain};
use crate::target::Target;
use crate::wait;

/// So many clients has a forward at most; another one takes the place of the one that was silent longest.
const MOST_CLIENTS: usize = 512;

/// So many datagrams of a client wait, and so many for all clients.
const MOST_WAITING: usize = 64;
const MOST_GOING_BACK: usize = 256;

/// So many bytes of all datagrams of a forward wait.
const MOST_BYTES: usize = 8 << 20;

/// After an error of a socket.
const PAUSE: Duration = Duration::from_millis(100);

/// Which side a forward's target is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// In the tunnel.
    Inside,
    /// Outside of the tunnel.
    Outside,
}

/// A forward.
pub struct Forward {
    /// Where datagrams go to.
    pub target: Target,
    /// Where that is.
    pub side: Side,
    /// After how long of silence a client is forgotten.
    pub timeout: Option<Duration>,
}

/// A datagram that waits, with its share of what may wait.
struct Waiting {
    bytes: Vec<u8>,
    _share: OwnedSemaphorePermit,
}

struct Client {
    queue: mpsc::Sender<Waiting>,
    active: Instant,
    /// Which of several clients with the same address it is.
    number: u64,
}

/// What the tasks of clients tell.
enum News {
    Reply(SocketAddr, Waiting),
    Ended(SocketAddr, u64),
}

/// Forwards what `socket` receives, for ever.
pub async fn forward(server: Arc<Server>, mut socket: Box<dyn Datagrams>, forward: Forward) {
    let forward = Arc::new(forward);
    let bytes = Arc::new(Semaphore::new(MOST_BYTES));
    let (news, mut from_clients) = mpsc::channel(MOST_GOING_BACK);
    let mut clients: HashMap<SocketAddr, Client> = HashMap::new();
    let mut number = 0;
    loop {
        tokio::select! {
            received = wait::receive_one(&mut *socket) => {
                let Ok((datagram, from)) = received else {
                    sleep(PAUSE).await;
                    continue;
                };
                if !clients.contains_key(&from) {
                    let is_full = clients.len() >= MOST_CLIENTS
                        || forward.side == Side::Inside && server.dialer.is_out_of_ports();
                    if is_full {
                        forget_oldest(&mut clients);
                    }
                    number += 1;
                    let (queue, queued) = mpsc::channel(MOST_WAITING);
                    let task = client(server.clone(), forward.clone(), bytes.clone(), from, number, queued, news.clone());
                    tokio::spawn(task);
                    clients.insert(from, Client { queue, active: Instant::now(), number });
                }
                let is_queued = clients.get_mut(&from).is_some_and(|client| {
                    client.active = Instant::now();
                    share(&bytes, datagram).is_some_and(|waiting| client.queue.try_send(waiting).is_ok())
                });
                if !is_queued {
                    server.counters.datagrams_dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
            Some(told) = from_clients.recv() => match told {
                News::Reply(to, waiting) => {
                    if let Some(client) = clients.get_mut(&to) {
                        client.active = Instant::now();
                    }
                    let _ = wait::send(&mut *socket, &waiting.bytes, to).await;
                }
                News::Ended(from, number) => {
                    if clients.get(&from).is_some_and(|client| client.number == number) {
                        clients.remove(&from);
                    }
                }
            }
        }
    }
}

fn share(bytes: &Arc<Semaphore>, datagram: Vec<u8>) -> Option<Waiting> {
    let length = u32::try_from(datagram.len()).ok()?;
    let share = bytes.clone().try_acquire_many_owned(length).ok()?;
    Some(Waiting { bytes: datagram, _share: share })
}

fn forget_oldest(clients: &mut HashMap<SocketAddr, Client>) {
    if let Some(oldest) = clients.iter().min_by_key(|(_, client)| client.active).map(|(address, _)| *address) {
        clients.remove(&oldest);
    }
}

/// The other side of a client, until it is silent or forgotten.
async fn client(
    server: Arc<Server>,
    forward: Arc<Forward>,
    bytes: Arc<Semaphore>,
    from: SocketAddr,
    number: u64,
    queued: mpsc::Receiver<Waiting>,
    news: mpsc::Sender<News>,
) {
    match server.counted(open(&server, &forward).await) {
        Ok((socket, to)) => converse(&server, &forward, &bytes, from, socket, to, queued, &news).await,
        Err(failure) => complain(&format!("UDP forward to {}", forward.target), &failure),
    }
    let _ = news.send(News::Ended(from, number)).await;
}

async fn open(server: &Server, forward: &Forward) -> Result<(Box<dyn Datagrams>, SocketAddr), Failure> {
    let addresses = match forward.side {
        Side::Inside => server.dialer.addresses(&forward.target.host).await?,
        Side::Outside => server.dialer.outside(&forward.target.host).await?,
    };
    let to = SocketAddr::new(*addresses.first().ok_or(Failure::Unreachable)?, forward.target.port);
    let socket: Box<dyn Datagrams> = match forward.side {
        Side::Inside => server.dialer.bind(to.is_ipv6())?,
        Side::Outside => Box::new(Udp::bind(unspecified(to.is_ipv6(), 0))?),
    };
    Ok((socket, to))
}

#[allow(clippy::too_many_arguments, reason = "the state of a client's task")]
async fn converse(
    server: &Server,
    forward: &Forward,
    bytes: &Arc<Semaphore>,
    from: SocketAddr,
    mut socket: Box<dyn Datagrams>,
    to: SocketAddr,
    mut queued: mpsc::Receiver<Waiting>,
    news: &mpsc::Sender<News>,
) {
    let (into_tunnel, out_of_tunnel) = match forward.side {
        Side::Inside => (&server.memory.sent, &server.memory.received),
        Side::Outside => (&server.memory.received, &server.memory.sent),
    };
    let mut active = Instant::now();
    loop {
        let end = forward.timeout.map(|timeout| active + timeout);
        tokio::select! {
            next = queued.recv() => {
                let Some(waiting) = next else { return };
                active = Instant::now();
                // A datagram that is too long, or an ICMP error for the one before, concerns this one alone.
                if wait::send(&mut *socket, &waiting.bytes, to).await.is_ok() {
                    into_tunnel.fetch_add(waiting.bytes.len() as u64, Ordering::Relaxed);
                }
            }
            received = wait::receive_one(&mut *socket) => {
                let Ok((datagram, sender)) = received else {
                    sleep(PAUSE).await;
                    continue;
                };
                // Strangers, and errors, are no reason to stay.
                if sender != to {
                    continue;
                }
                active = Instant::now();
                out_of_tunnel.fetch_add(datagram.len() as u64, Ordering::Relaxed);
                match share(bytes, datagram) {
                    Some(waiting) => drop(news.send(News::Reply(from, waiting)).await),
                    None => {
                        server.counters.datagrams_dropped.fetch_add(1, Ordering::Relaxed);
                    },
                }
            }
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => return,
        }
    }
}
