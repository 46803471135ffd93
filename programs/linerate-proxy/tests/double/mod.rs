//! A tunnel that is none: a table of targets, each of which is a socket of this host. Only for tests: what a stack does
//! with packets is not in it.

#![allow(dead_code, reason = "each test needs a part of it")]

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use linerate_proxy::config::Settings;
use linerate_proxy::kernel::{Kernel, SocketThread};
use linerate_proxy::server::Server;
use linerate_proxy::services::{Doors, Tunnel};
use linerate_sockets::{Datagrams, Listener, Pending, Sockets, Stream};

/// The name server of the tunnel.
pub const NAME_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 53));

/// The tunnel's own address.
pub const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1));

/// That of the other family, of a tunnel that has both.
pub const OWN_IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1));

/// No step of a test takes so long, however slow the machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The table.
pub struct Double {
    kernel: Kernel<SocketThread>,
    targets: Arc<HashMap<SocketAddr, SocketAddr>>,
    /// Where listeners of the tunnel really listen, by their ports.
    pub listening: Mutex<HashMap<u16, SocketAddr>>,
}

impl Double {
    pub fn new(targets: &[(SocketAddr, SocketAddr)]) -> Arc<Self> {
        let targets = Arc::new(targets.iter().copied().collect());
        Arc::new(Self {
            kernel: Kernel::new(SocketThread::start(|| Ok(())).unwrap()),
            targets,
            listening: Mutex::default(),
        })
    }

    /// What there is of this tunnel.
    pub fn tunnel(self: &Arc<Self>) -> Tunnel {
        Tunnel {
            sockets: self.clone(),
            addresses: vec![OWN],
            routes: vec!["10.99.0.0/16".parse().unwrap()],
            name_servers: vec![NAME_SERVER],
            search_domains: vec!["~routed.example".to_owned(), "corp.example".to_owned()],
            resolver: None,
            report: Arc::new(|| "public_key=00\n".to_owned()),
        }
    }

    /// Serves `settings`; where it listens, in their order.
    pub fn serve(self: &Arc<Self>, settings: Settings) -> (Vec<SocketAddr>, Arc<Server>) {
        Self::serve_by(settings, self.tunnel())
    }

    /// The same for a tunnel with addresses of both families.
    pub fn serve_both_families(self: &Arc<Self>, settings: Settings) -> (Vec<SocketAddr>, Arc<Server>) {
        Self::serve_by(settings, Tunnel { addresses: vec![OWN, OWN_IPV6], ..self.tunnel() })
    }

    fn serve_by(settings: Settings, tunnel: Tunnel) -> (Vec<SocketAddr>, Arc<Server>) {
        let services = Doors::open(settings).unwrap().lead_into(tunnel).unwrap();
        let (listening, server) = (services.listening().to_vec(), services.server().clone());
        tokio::spawn(services.serve());
        (listening, server)
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Sockets for Double {
    fn connect(&self, to: SocketAddr) -> Pending<Box<dyn Stream>> {
        match self.targets.get(&to) {
            Some(target) => self.kernel.connect(*target),
            None => Box::pin(async { Err(io::ErrorKind::HostUnreachable.into()) }),
        }
    }

    fn listen(&self, local: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let listener = self.kernel.listen(loopback())?;
        self.listening.lock().unwrap().insert(local.port(), listener.local());
        Ok(listener)
    }

    fn bind(&self, local: SocketAddr) -> io::Result<Box<dyn Datagrams>> {
        let socket = self.kernel.bind(loopback())?;
        self.listening.lock().unwrap().insert(local.port(), socket.local());
        Ok(Box::new(Translated { socket, targets: self.targets.clone() }))
    }

    fn ping(&self, to: IpAddr) -> Pending<()> {
        let answers = to == NAME_SERVER;
        Box::pin(async move {
            match answers {
                true => Ok(()),
                false => std::future::pending().await,
            }
        })
    }
}

struct Translated {
    socket: Box<dyn Datagrams>,
    targets: Arc<HashMap<SocketAddr, SocketAddr>>,
}

impl Datagrams for Translated {
    fn poll_receive(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        let (count, from) = ready!(self.socket.poll_receive(context, into))?;
        let named = self.targets.iter().find(|(_, real)| **real == from).map_or(from, |(named, _)| *named);
        Poll::Ready(Ok((count, named)))
    }

    fn poll_send(&mut self, context: &mut Context<'_>, from: &[u8], to: SocketAddr) -> Poll<io::Result<()>> {
        let to = self.targets.get(&to).copied().unwrap_or(to);
        self.socket.poll_send(context, from, to)
    }

    fn local(&self) -> SocketAddr {
        self.socket.local()
    }
}
