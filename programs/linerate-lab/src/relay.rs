//! A simulated bad network: relays UDP datagrams between clients and one address, and loses, duplicates, delays and
//! reorders them, or drops those that are too big. For kernels without netem, and for repeatable tests.
//!
//! Every client gets a socket of its own towards the address, so that the far side tells them apart and a
//! client that moves to another port is a new client, as behind a NAT. `impairments.rs` decides, this file moves
//! bytes. It does not carry the ECN and DSCP bits over.

mod impairments;

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Result;
use crate::error::Doing;
use crate::load::wait;
use impairments::Line;
pub use impairments::{Counts, Impairments};

/// Clients that are served; datagrams of more are not.
const CLIENTS: usize = 1024;

/// Datagrams read from one socket before the next is polled.
const BATCH: usize = 64;

/// Bytes of a socket's buffers, as far as the kernel grants them.
const SOCKET_BUFFER: usize = 4 << 20;

/// What to relay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Where clients send to.
    pub listen: SocketAddr,
    /// Where their datagrams go.
    pub to: SocketAddr,
    /// What happens on the way, in either direction.
    pub impairments: Impairments,
    /// What the random numbers start from; the same seed gives the same datagrams the same fate.
    pub seed: u64,
}

/// What became of the datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// From the clients to the address.
    pub forth: Counts,
    /// From the address to the clients.
    pub back: Counts,
    /// Clients that were served.
    pub clients: usize,
}

/// Relays until SIGTERM or SIGINT. Prints its address to standard error as soon as it listens.
///
/// # Errors
///
/// When a socket cannot be opened or fails for another reason than an unreachable far side.
pub fn run(options: &Options) -> Result<Report> {
    let (stop, stopped) = UnixStream::pair().doing(|| "preparing to be stopped".into())?;
    for signal in [SIGTERM, SIGINT] {
        let stop = stop.try_clone().doing(|| "preparing to be stopped".into())?;
        signal_hook::low_level::pipe::register(signal, stop).doing(|| "preparing to be stopped".into())?;
    }
    let relay = Relay::open(options)?;
    let at = relay.listener.local_addr().unwrap_or(options.listen);
    let _ = writeln!(io::stderr(), "relaying from {at} to {}", options.to);
    relay.serve(&stopped)
}

/// A datagram and the index of its client.
type Datagram = (usize, Vec<u8>);

/// A relay that listens.
pub struct Relay {
    options: Options,
    start: Instant,
    /// Where clients send to.
    listener: UdpSocket,
    clients: Vec<Client>,
    forth: Line<Datagram>,
    back: Line<Datagram>,
}

struct Client {
    address: SocketAddr,
    /// Connected to the address, for this client alone.
    socket: UdpSocket,
}

impl Relay {
    /// Listens; what comes meanwhile waits for [`Relay::serve`].
    ///
    /// # Errors
    ///
    /// When the address is not there or the port is in use.
    pub fn open(options: &Options) -> Result<Self> {
        let listener = bind(options.listen).doing(|| format!("listening on {}", options.listen))?;
        Ok(Self {
            options: *options,
            start: Instant::now(),
            listener,
            clients: Vec::new(),
            forth: Line::new(options.impairments, options.seed),
            back: Line::new(options.impairments, !options.seed),
        })
    }

    /// Relays until something comes on `stopped` or its other end is closed. The sockets towards the far side
    /// are opened in the host of the calling thread.
    ///
    /// # Errors
    ///
    /// When a socket fails for another reason than an unreachable far side.
    pub fn serve(mut self, stopped: &UnixStream) -> Result<Report> {
        while !self.wait(stopped)? {
            self.take_in()?;
            self.deliver();
        }
        Ok(Report { forth: self.forth.counts(), back: self.back.counts(), clients: self.clients.len() })
    }

    /// Waits until there is something to do. True when it is to stop.
    fn wait(&self, stopped: &UnixStream) -> Result<bool> {
        let sockets = std::iter::once(&self.listener).chain(self.clients.iter().map(|client| &client.socket));
        let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
        fds.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let due = [self.forth.next_due(), self.back.next_due()].into_iter().flatten().min();
        let time = due.map_or(Duration::from_secs(3600), |due| due.saturating_sub(self.start.elapsed()));
        wait(&mut fds, time).doing(|| "waiting for datagrams".into())?;
        Ok(!fds[0].revents().is_empty())
    }

    fn take_in(&mut self) -> Result<()> {
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..BATCH {
            let Some((length, from)) = received(self.listener.recv_from(&mut buffer))? else {
                break;
            };
            let Some(client) = self.client(from)? else {
                continue;
            };
            let size = length + headers(from);
            self.forth.take(self.start.elapsed(), size, (client, buffer[..length].to_vec()));
        }
        for (number, client) in self.clients.iter().enumerate() {
            for _ in 0..BATCH {
                let Some(length) = received(client.socket.recv(&mut buffer))? else {
                    break;
                };
                let size = length + headers(self.options.to);
                self.back.take(self.start.elapsed(), size, (number, buffer[..length].to_vec()));
            }
        }
        Ok(())
    }

    /// Sends what is due. What a socket does not take is lost, as on any network.
    fn deliver(&mut self) {
        while let Some((client, datagram)) = self.forth.deliver(self.start.elapsed()) {
            let _ = self.clients[client].socket.send(&datagram);
        }
        while let Some((client, datagram)) = self.back.deliver(self.start.elapsed()) {
            let _ = self.listener.send_to(&datagram, self.clients[client].address);
        }
    }

    /// The index of the client at `address`, which is added if it is new; nothing when there are too many.
    fn client(&mut self, address: SocketAddr) -> Result<Option<usize>> {
        if let Some(known) = self.clients.iter().position(|client| client.address == address) {
            return Ok(Some(known));
        }
        if self.clients.len() == CLIENTS {
            return Ok(None);
        }
        let any = match self.options.to {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let opening = || format!("opening a socket to {}", self.options.to);
        let socket = bind(any).doing(opening)?;
        socket.connect(self.options.to).doing(opening)?;
        self.clients.push(Client { address, socket });
        Ok(Some(self.clients.len() - 1))
    }
}

fn bind(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    // As far as net.core.rmem_max allows; a smaller buffer only loses more.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
    Ok(socket)
}

/// What a receive brought, if anything.
fn received<T>(outcome: io::Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(received) => Ok(Some(received)),
        // The far side does not listen yet, or there is no route to it: losses like any other.
        Err(error) if is_transient(error.kind()) => Ok(None),
        Err(error) => Err(crate::Error::system("receiving datagrams", error)),
    }
}

fn is_transient(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, WouldBlock};
    matches!(kind, ConnectionRefused | HostUnreachable | Interrupted | NetworkUnreachable | WouldBlock)
}

/// Bytes of the IP and UDP headers of a datagram to or from `address`.
fn headers(address: SocketAddr) -> usize {
    8 + if address.is_ipv4() { 20 } else { 40 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clients_get_their_own_answers() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let options = Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            to: far.local_addr().unwrap(),
            impairments: Impairments::default(),
            seed: 1,
        };
        let mut relay = Relay::open(&options).unwrap();
        let (_keep, stopped) = UnixStream::pair().unwrap();
        let clients = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for client in &clients {
            client.connect(relay.listener.local_addr().unwrap()).unwrap();
            client.send(client.local_addr().unwrap().to_string().as_bytes()).unwrap();
        }
        // What both sent may come one after the other.
        let pass_both = |relay: &mut Relay, delivered: fn(&Relay) -> u64| {
            while delivered(relay) < 2 {
                assert!(!relay.wait(&stopped).unwrap());
                relay.take_in().unwrap();
                relay.deliver();
            }
        };
        let mut buffer = [0; 100];
        pass_both(&mut relay, |relay| relay.forth.counts().delivered);
        for _ in &clients {
            let (length, from) = far.recv_from(&mut buffer).unwrap();
            far.send_to(&buffer[..length], from).unwrap();
        }
        pass_both(&mut relay, |relay| relay.back.counts().delivered);
        for client in &clients {
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], client.local_addr().unwrap().to_string().as_bytes());
        }
        assert_eq!((relay.forth.counts().delivered, relay.back.counts().delivered), (2, 2));
        assert_eq!(relay.clients.len(), 2);
    }
}
