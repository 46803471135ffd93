//! Connections to targets: in the tunnel, and, for what comes out of it, outside.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ipnet::IpNet;
use linerate_host::ranges::is_machine_service;
use linerate_sockets::{Datagrams, Pending, Sockets, Stream};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::failure::Failure;
use crate::kernel::{Connection, unspecified};
use crate::names::Names;
use crate::target::{Host, Target};

/// How long a target may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// After how long the next address of a name is tried beside the others (RFC 8305).
const NEXT: Duration = Duration::from_millis(250);

/// So many UDP sockets in the tunnel have all clients together. The stack in the process has 1,024; names need two for
/// each that is looked up ([`crate::names::MOST_LOOKUPS`]), and the others are those of forwards into the host.
const MOST_PORTS: usize = 704;
const _: () = assert!(MOST_PORTS + 2 * crate::names::MOST_LOOKUPS <= 1024 - 64);

/// Connects into the tunnel.
pub struct Dialer {
    sockets: Arc<dyn Sockets>,
    names: Names,
    own: Vec<IpAddr>,
    /// What peers have in `AllowedIPs`.
    routes: Vec<IpNet>,
    ports: Arc<Semaphore>,
}

/// A client's UDP socket in the tunnel, which counts.
struct Port {
    socket: Box<dyn Datagrams>,
    _permit: OwnedSemaphorePermit,
}

impl Datagrams for Port {
    fn poll_receive(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.socket.poll_receive(context, into)
    }

    fn poll_send(&mut self, context: &mut Context<'_>, from: &[u8], to: SocketAddr) -> Poll<io::Result<()>> {
        self.socket.poll_send(context, from, to)
    }

    fn local(&self) -> SocketAddr {
        self.socket.local()
    }
}

impl Dialer {
    /// Connects by the tunnel's stack, to what `names` say; `own` are the tunnel's addresses, `routes` what it leads to.
    pub fn new(sockets: Arc<dyn Sockets>, names: Names, own: Vec<IpAddr>, routes: Vec<IpNet>) -> Self {
        Self { sockets, names, own, routes, ports: Arc::new(Semaphore::new(MOST_PORTS)) }
    }

    /// A UDP socket in the tunnel for a client.
    ///
    /// # Errors
    /// [`Failure::Busy`] if clients have as many as there may be, or what the stack says.
    pub fn bind(&self, is_ipv6: bool) -> Result<Box<dyn Datagrams>, Failure> {
        let permit = self.ports.clone().try_acquire_owned().map_err(|_| Failure::Busy)?;
        let socket = self.sockets.bind(unspecified(is_ipv6, 0))?;
        Ok(Box::new(Port { socket, _permit: permit }))
    }

    /// Whether another client gets a UDP socket only if one of those that there are ends.
    pub fn is_out_of_ports(&self) -> bool {
        self.ports.available_permits() == 0
    }

    /// A connection in the tunnel.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self, target: &Target) -> Result<Box<dyn Stream>, Failure> {
        let attempt = async {
            let addresses = self.addresses(&target.host).await?;
            let to = addresses.into_iter().map(|address| SocketAddr::new(address, target.port));
            first(to.map(|to| self.sockets.connect(to))).await
        };
        timeout(PATIENCE, attempt).await.unwrap_or(Err(Failure::TimedOut))
    }

    /// The addresses of a host that a tunnel may lead to, best first: datagrams go to the first one. Those that no peer has
    /// among its `AllowedIPs` come last.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn addresses(&self, host: &Host) -> Result<Vec<IpAddr>, Failure> {
        let found = match host {
            Host::Address(address) if !self.names.families().have(*address) => {
                return Err(Failure::NoFamily(host.clone()));
            }
            Host::Address(address) => vec![*address],
            // Whoever asks for it means this host (RFC 6761, 6.3).
            Host::Name(name) if is_localhost(name) => Vec::new(),
            Host::Name(name) => self.names.look_up(name).await?,
        };
        let is_allowed =
            |address: &IpAddr| leads_into_a_tunnel(*address) && !self.own.contains(&address.to_canonical());
        let mut allowed: Vec<_> = found.into_iter().filter(is_allowed).collect();
        allowed.sort_by_key(|address| !self.routes.iter().any(|route| route.contains(address)));
        if allowed.is_empty() { Err(Failure::Forbidden(host.clone())) } else { Ok(allowed) }
    }

    /// A connection outside of the tunnel, for somebody who came in by it.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect_outside(&self, target: &Target) -> Result<Box<dyn Stream>, Failure> {
        let attempt = async {
            let addresses = self.outside(&target.host).await?;
            let to = addresses.into_iter().map(|address| SocketAddr::new(address, target.port));
            let connect = |to| -> Pending<Box<dyn Stream>> {
                Box::pin(
                    async move { Ok(Box::new(Connection::new(TcpStream::connect(to).await?)?) as Box<dyn Stream>) },
                )
            };
            first(to.map(connect)).await
        };
        timeout(PATIENCE, attempt).await.unwrap_or(Err(Failure::TimedOut))
    }

    /// The addresses of a host outside. `localhost` is this host, whoever is asked for names; no other name leads to it, or
    /// to what is beside it alone, such as a cloud's metadata: the tunnel's name server is somebody else's.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn outside(&self, host: &Host) -> Result<Vec<IpAddr>, Failure> {
        match host {
            Host::Address(address) => Ok(vec![*address]),
            Host::Name(name) if is_localhost(name) => Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
            Host::Name(name) => {
                let found = self.names.look_up(name).await?;
                let allowed: Vec<_> = found.into_iter().filter(|address| may_have_a_name(*address)).collect();
                if allowed.is_empty() { Err(Failure::Forbidden(host.clone())) } else { Ok(allowed) }
            }
        }
    }
}

/// The first of several attempts that succeeds; each begins a little after the one before, or once that has failed.
async fn first(mut attempts: impl Iterator<Item = Pending<Box<dyn Stream>>>) -> Result<Box<dyn Stream>, Failure> {
    let mut running = JoinSet::new();
    let mut failure = Failure::Unreachable;
    loop {
        let next = attempts.next();
        let is_last = next.is_none();
        if let Some(attempt) = next {
            running.spawn(attempt);
        }
        loop {
            let ended = tokio::select! {
                ended = running.join_next() => ended,
                () = sleep(NEXT), if !is_last => break,
            };
            match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => failure = error.into(),
                Some(Err(_)) => {}
                None if is_last => return Err(failure),
                None => break,
            }
            if !is_last {
                break;
            }
        }
    }
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether a name server may say that something outside of the tunnel has this address.
fn may_have_a_name(address: IpAddr) -> bool {
    leads_into_a_tunnel(address) && !is_machine_service(address)
}

/// Whether a tunnel can lead to an address: not back to this host, not to nobody or everybody. `::ffff:127.0.0.1` is
/// 127.0.0.1 to a kernel.
fn leads_into_a_tunnel(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_broadcast)
}

#[cfg(test)]
mod tests {
    use linerate_sockets::Listener;

    use super::*;
    use crate::config::Resolve;
    use crate::names::{Families, Source};

    /// A tunnel in which sockets can be had.
    struct Idle;

    impl Sockets for Idle {
        fn connect(&self, _: SocketAddr) -> Pending<Box<dyn Stream>> {
            Box::pin(std::future::pending())
        }

        fn listen(&self, _: SocketAddr) -> io::Result<Box<dyn Listener>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn bind(&self, local: SocketAddr) -> io::Result<Box<dyn Datagrams>> {
            Ok(Box::new(Silent(local)))
        }

        fn ping(&self, _: IpAddr) -> Pending<()> {
            Box::pin(std::future::pending())
        }
    }

    struct Silent(SocketAddr);

    impl Datagrams for Silent {
        fn poll_receive(&mut self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
            Poll::Pending
        }

        fn poll_send(&mut self, _: &mut Context<'_>, _: &[u8], _: SocketAddr) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn local(&self) -> SocketAddr {
            self.0
        }
    }

    #[test]
    fn clients_leave_udp_sockets_to_names() {
        let own = vec!["10.0.0.2".parse().unwrap()];
        let names =
            Names::new(Source::Tunnel(Vec::new(), Vec::new()), Arc::new(Idle), Families::of(&own, Resolve::Auto));
        let dialer = Dialer::new(Arc::new(Idle), names, own, Vec::new());
        let mut all: Vec<_> = (0..MOST_PORTS).map(|_| dialer.bind(false).unwrap_or_else(|_| panic!())).collect();
        assert!(dialer.is_out_of_ports());
        assert!(matches!(dialer.bind(false).err(), Some(Failure::Busy)));
        all.pop();
        assert!(!dialer.is_out_of_ports() && dialer.bind(true).is_ok());
    }

    #[test]
    fn no_name_and_no_tunnel_leads_to_this_host_however_its_address_is_written() {
        for text in
            ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "::ffff:0.0.0.0", "::ffff:255.255.255.255"]
        {
            let address = text.parse().unwrap();
            assert!(!leads_into_a_tunnel(address) && !may_have_a_name(address), "{text}");
        }
        for text in ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "::ffff:100.100.100.200"]
        {
            let address = text.parse().unwrap();
            assert!(leads_into_a_tunnel(address) && !may_have_a_name(address), "{text}");
        }
        for text in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "fd00::1", "10.0.0.1"] {
            assert!(may_have_a_name(text.parse().unwrap()), "{text}");
        }
    }
}
