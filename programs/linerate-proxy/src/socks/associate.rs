//! UDP ASSOCIATE: datagrams of a client, by a port of its own outside and one of each family in the tunnel.
//!
//! The port in the tunnel stays the same whatever the client sends to, and takes datagrams from everybody (RFC 4787's
//! endpoint-independent mapping and filtering): QUIC and games need that. Nothing waits here: what cannot be sent at once
//! is dropped and counted, as a network would.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use linerate_sockets::{Datagrams, Stream};
use tokio::time::{Instant, Sleep, sleep};

use super::message::{self, Destination, Reply};
use super::{Socks, refuse};
use crate::kernel::Udp;
use crate::server::{Server, locked};
use crate::target::Target;
use crate::wait::{self, LONGEST_DATAGRAM, with_buffer};

/// An association that is silent for so long ends.
const SILENCE: Duration = Duration::from_secs(300);

/// So many associations may a client's address have.
const MOST_OF_A_CLIENT: usize = 256;

/// So many datagrams wait for the address of a name.
const MOST_LOOKUPS: usize = 16;

/// So many datagrams are passed on before others have their turn.
const TURN: usize = 32;

/// So many errors of a socket in a row end an association.
const MOST_ERRORS: usize = 16;

/// Serves an association until its connection ends.
///
/// `named` is where the client says that it will send from.
pub(super) async fn serve(socks: Arc<Socks>, server: Arc<Server>, mut client: Box<dyn Stream>, named: &Destination) {
    let Some(_share) = Share::new(&socks, client.peer().ip()) else { return refuse(client, Reply::NotAllowed).await };
    let Ok(outside) = Udp::bind(SocketAddr::new(client.local().ip(), 0)) else {
        return refuse(client, Reply::Failure).await;
    };
    let reply = message::reply(Reply::Succeeded, outside.local());
    if wait::write_all(&mut *client, &reply).await.is_err() {
        return;
    }
    let mut association = Association {
        server,
        sender: Sender::new(client.peer(), client.local(), named),
        outside,
        inside: [None, None],
        lookups: Vec::new(),
        active: Instant::now(),
        errors: 0,
    };
    let mut silence = Box::pin(sleep(SILENCE));
    poll_fn(|context| association.poll(context, &mut *client, silence.as_mut())).await;
    wait::close(client).await;
}

/// One of the associations of a client.
struct Share {
    socks: Arc<Socks>,
    client: IpAddr,
}

impl Share {
    fn new(socks: &Arc<Socks>, client: IpAddr) -> Option<Self> {
        let mut known = locked(&socks.associations);
        let count = known.entry(client).or_default();
        if *count >= MOST_OF_A_CLIENT {
            return None;
        }
        *count += 1;
        Some(Self { socks: socks.clone(), client })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut known = locked(&self.socks.associations);
        if let Some(count) = known.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                known.remove(&self.client);
            }
        }
    }
}

/// A datagram whose target is a name.
type Lookup = Pin<Box<dyn Future<Output = Option<(SocketAddr, Vec<u8>)>> + Send>>;

struct Association {
    server: Arc<Server>,
    sender: Sender,
    outside: Udp,
    /// The sockets of IPv4 and IPv6, once they are needed.
    inside: [Option<Box<dyn Datagrams>>; 2],
    lookups: Vec<Lookup>,
    active: Instant,
    errors: usize,
}

impl Association {
    /// Passes datagrams on. Ready is the end.
    fn poll(&mut self, context: &mut Context<'_>, client: &mut dyn Stream, mut silence: Pin<&mut Sleep>) -> Poll<()> {
        let mut rest = [0; 64];
        match client.poll_read(context, &mut rest) {
            Poll::Pending => {}
            Poll::Ready(Ok(1..)) => context.waker().wake_by_ref(),
            Poll::Ready(_) => return Poll::Ready(()),
        }
        while silence.as_mut().poll(context).is_ready() {
            let end = self.active + SILENCE;
            if end <= Instant::now() {
                return Poll::Ready(());
            }
            silence.as_mut().reset(end);
        }
        self.poll_lookups(context);
        let mut left = TURN;
        while left > 0 {
            let mut is_idle = true;
            for way in [Way::Out, Way::Back(0), Way::Back(1)] {
                match self.poll_one(context, way) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(())) => {
                        (is_idle, self.errors) = (false, 0);
                        left = left.saturating_sub(1);
                    }
                    Poll::Ready(Err(_)) if self.errors < MOST_ERRORS => {
                        (is_idle, self.errors) = (false, self.errors + 1);
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                }
            }
            if is_idle {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes a datagram on, if there is one.
    fn poll_one(&mut self, context: &mut Context<'_>, way: Way) -> Poll<io::Result<()>> {
        with_buffer(|buffer| match way {
            Way::Out => match self.outside.poll_receive(context, buffer) {
                Poll::Ready(Ok((count, from))) => {
                    // Strangers may send here; they are nobody.
                    if self.sender.may_be(from)
                        && let Some((to, payload)) = message::datagram(&buffer[..count])
                    {
                        self.sender.last = Some(from);
                        self.active = Instant::now();
                        self.send_to(context, to, payload);
                    }
                    Poll::Ready(Ok(()))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            },
            Way::Back(family) => {
                let Some(inside) = &mut self.inside[family] else { return Poll::Pending };
                // The head is written before the payload once it is known how long it is.
                let room = message::LONGEST_HEAD;
                match inside.poll_receive(context, &mut buffer[room..]) {
                    Poll::Ready(Ok((count, from))) => {
                        let head = message::datagram_head(from);
                        let start = room - head.len();
                        buffer[start..room].copy_from_slice(&head);
                        self.active = Instant::now();
                        self.send_back(context, &buffer[start..room + count]);
                        Poll::Ready(Ok(()))
                    }
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Pending => Poll::Pending,
                }
            }
        })
    }

    fn poll_lookups(&mut self, context: &mut Context<'_>) {
        let mut found = Vec::new();
        self.lookups.retain_mut(|lookup| match lookup.as_mut().poll(context) {
            Poll::Ready(outcome) => {
                found.extend(outcome);
                false
            }
            Poll::Pending => true,
        });
        for (to, payload) in found {
            self.send_in(context, to, &payload);
        }
    }

    /// Sends a client's datagram, once the address of its target is known.
    fn send_to(&mut self, context: &mut Context<'_>, to: Target, payload: &[u8]) {
        let server = self.server.clone();
        let payload = payload.to_vec();
        let mut lookup: Lookup = Box::pin(async move {
            let addresses = server.counted(server.dialer.addresses(&to.host).await).ok()?;
            Some((SocketAddr::new(*addresses.first()?, to.port), payload))
        });
        // Addresses, and names that are remembered, are there at once.
        match lookup.as_mut().poll(context) {
            Poll::Ready(Some((to, payload))) => self.send_in(context, to, &payload),
            Poll::Ready(None) => {}
            Poll::Pending if self.lookups.len() < MOST_LOOKUPS => self.lookups.push(lookup),
            Poll::Pending => self.drop_one(),
        }
    }

    fn send_in(&mut self, context: &mut Context<'_>, to: SocketAddr, payload: &[u8]) {
        let inside = &mut self.inside[usize::from(to.is_ipv6())];
        if inside.is_none() {
            *inside = self.server.dialer.bind(to.is_ipv6()).ok();
            // It has to be polled for what comes back.
            context.waker().wake_by_ref();
        }
        let sent = inside.as_mut().map(|inside| inside.poll_send(context, payload, to));
        match sent {
            Some(Poll::Ready(Ok(()))) => {
                self.server.memory.sent.fetch_add(payload.len() as u64, Ordering::Relaxed);
            }
            _ => self.drop_one(),
        }
    }

    fn send_back(&mut self, context: &mut Context<'_>, bytes: &[u8]) {
        let sent = self.sender.last.map(|sender| self.outside.poll_send(context, bytes, sender));
        match sent {
            Some(Poll::Ready(Ok(()))) => {
                self.server.memory.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            _ => self.drop_one(),
        }
    }

    fn drop_one(&self) {
        self.server.counters.datagrams_dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Who may use an association.
struct Sender {
    /// The address that has asked for it.
    client: IpAddr,
    /// It is one of this host, where all users have it: another one could take the association over, so it is for the port
    /// that it is first used from.
    is_here: bool,
    /// The port that the client has named.
    port: Option<u16>,
    /// Where the client has last sent from, and is sent to.
    last: Option<SocketAddr>,
}

impl Sender {
    fn new(client: SocketAddr, local: SocketAddr, named: &Destination) -> Self {
        let is_here = client.ip() == local.ip() || client.ip().is_loopback();
        Self { client: client.ip(), is_here, port: named.port_of(client.ip()), last: None }
    }

    fn may_be(&self, from: SocketAddr) -> bool {
        from.ip().to_canonical() == self.client
            && self.port.is_none_or(|port| port == from.port())
            && (!self.is_here || self.last.is_none_or(|last| last == from))
    }
}

/// Which socket a datagram is read from.
#[derive(Clone, Copy)]
enum Way {
    Out,
    Back(usize),
}

// A datagram from the tunnel has its head before it, in the same buffer.
const _: () = assert!(LONGEST_DATAGRAM + message::LONGEST_HEAD <= wait::BUFFER);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn sender(client: &str, local: &str, named: &[u8]) -> Sender {
        let request = [&[5, 3, 0][..], named].concat();
        let (request, _) = message::request(&request).unwrap().unwrap();
        Sender::new(address(client), address(local), &request.target.unwrap())
    }

    #[test]
    fn on_this_host_an_association_is_for_the_port_that_first_uses_it() {
        let any = [1, 0, 0, 0, 0, 0, 0];
        for (client, local) in [("127.0.0.1:5", "127.0.0.1:1080"), ("192.0.2.1:5", "192.0.2.1:1080")] {
            let mut sender = sender(client, local, &any);
            let mut other = address(client);
            assert!(sender.may_be(other) && !sender.may_be(address("192.0.2.9:5")));
            sender.last = Some(other);
            other.set_port(6);
            assert!(sender.may_be(address(client)) && !sender.may_be(other), "{client}");
        }
        let mut away = sender("192.0.2.2:5", "192.0.2.1:1080", &any);
        away.last = Some(address("192.0.2.2:6"));
        assert!(away.may_be(address("192.0.2.2:7")), "its NAT may have given it another port");
    }

    #[test]
    fn a_port_that_was_named_is_the_only_one() {
        for named in [[1, 0, 0, 0, 0, 0, 7], [1, 127, 0, 0, 1, 0, 7]] {
            let sender = sender("127.0.0.1:5", "127.0.0.1:1080", &named);
            assert!(sender.may_be(address("127.0.0.1:7")) && !sender.may_be(address("127.0.0.1:8")));
        }
        // Some name what they will send to, or what they are behind a NAT.
        let other = sender("127.0.0.1:5", "127.0.0.1:1080", &[1, 192, 0, 2, 1, 0, 7]);
        assert!(other.may_be(address("127.0.0.1:8")));
    }
}
