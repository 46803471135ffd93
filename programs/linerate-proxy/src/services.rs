//! What a configuration asks for: opened outside, then in the tunnel, and then served.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_cli::eprint_line;
use linerate_sockets::{Datagrams, Listener, Sockets};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::config::{self, CHECK_ALIVE_INTERVAL, Local, Service, Settings};
use crate::dial::Dialer;
use crate::health::{Health, Report};
use crate::http::Http;
use crate::kernel::{Listening, Udp, unspecified};
use crate::names::{Families, Names, Source};
use crate::resolver::Resolver;
use crate::server::{self, Server, complain};
use crate::socks::Socks;
use crate::stdio::StandardStreams;
use crate::target::Target;
use crate::udp::{Forward, Side, forward};
use crate::{sni, stdio, tls};

/// So many watch the proxy at a time. They have places of their own: a proxy with much to do is alive.
const MOST_WATCHERS: usize = 64;

/// What there is of a tunnel.
pub struct Tunnel {
    /// Its TCP/IP.
    pub sockets: Arc<dyn Sockets>,
    /// `Address`.
    pub addresses: Vec<IpAddr>,
    /// `AllowedIPs` of all peers.
    pub routes: Vec<IpNet>,
    /// The servers in `DNS`.
    pub name_servers: Vec<IpAddr>,
    /// The domains in `DNS`.
    pub search_domains: Vec<String>,
    /// This host's resolver, with `Names = system`.
    pub resolver: Option<Resolver>,
    /// What it says of itself.
    pub report: Report,
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes the tasks of a service once there is a tunnel.
type Later = Box<dyn FnOnce(&Inside) -> Result<Vec<Task>, String>>;

/// What services are served by.
struct Inside {
    server: Arc<Server>,
    sockets: Arc<dyn Sockets>,
    addresses: Vec<IpAddr>,
}

/// What clients on this host's side come by, and the files of services. They are opened before there is a tunnel: who
/// enters a user namespace for one loses the right to ports below 1024 and to files of others.
pub struct Doors {
    /// What is not about services.
    settings: Settings,
    later: Vec<Later>,
    info: Vec<Listening>,
    standard_streams: Option<(StandardStreams, Target)>,
    listening: Vec<SocketAddr>,
}

/// Services that are open and not served yet.
pub struct Services {
    server: Arc<Server>,
    tasks: Vec<Task>,
    standard_streams: Option<(StandardStreams, Target)>,
    listening: Vec<SocketAddr>,
}

impl Doors {
    /// Opens what `settings` ask for outside of the tunnel. Within a runtime.
    ///
    /// # Errors
    /// A sentence about what cannot be opened.
    pub fn open(mut settings: Settings) -> Result<Self, String> {
        open_doors(&settings).iter().for_each(|sentence| eprint_line(&format!("linerate-proxy: {sentence}")));
        let services = std::mem::take(&mut settings.services);
        let info = settings.info.take();
        let (later, listening) = (Vec::new(), Vec::new());
        let mut this = Self { settings, later, info: Vec::new(), standard_streams: None, listening };
        for service in services {
            this.add(service)?;
        }
        this.info = info.map(|info| this.bind(&info)).transpose()?.unwrap_or_default();
        Ok(this)
    }

    /// Opens the rest, in the tunnel. Within a runtime.
    ///
    /// # Errors
    /// A sentence about what cannot be opened.
    pub fn lead_into(self, tunnel: Tunnel) -> Result<Services, String> {
        let settings = self.settings;
        let families = Families::of(&tunnel.addresses, settings.resolve);
        let source = match settings.names {
            config::Names::Tunnel => {
                let mut domains = tunnel.search_domains;
                // Those with ~ say which names to ask of these servers, which is all of them.
                domains.retain(|domain| !domain.starts_with('~'));
                Source::Tunnel(tunnel.name_servers, domains)
            }
            config::Names::System => {
                Source::System(tunnel.resolver.ok_or("Names = system: there is no resolver of this host")?)
            }
        };
        let names = Names::new(source, tunnel.sockets.clone(), families);
        let dialer = Dialer::new(tunnel.sockets.clone(), names, tunnel.addresses.clone(), tunnel.routes);
        let server = Arc::new(Server::new(dialer));
        let inside = Inside { server: server.clone(), sockets: tunnel.sockets, addresses: tunnel.addresses };
        let mut tasks = Vec::new();
        for later in self.later {
            tasks.extend(later(&inside)?);
        }
        let interval = settings.check_alive_interval.unwrap_or(CHECK_ALIVE_INTERVAL);
        let report = tunnel.report.clone();
        let health = Arc::new(Health::new(server.clone(), tunnel.report, &settings.check_alive, interval));
        for address in settings.check_alive {
            tasks.push(Box::pin(health.clone().check(inside.sockets.clone(), address)));
        }
        let places = Arc::new(Semaphore::new(MOST_WATCHERS));
        let watch = move |_, client| health.clone().serve(client);
        for listening in self.info {
            tasks.push(Box::pin(server.clone().accept(Box::new(listening), places.clone(), watch.clone())));
        }
        if !tasks.is_empty() {
            tasks.push(Box::pin(tell_of_silence(server.clone(), report)));
        }
        Ok(Services { server, tasks, standard_streams: self.standard_streams, listening: self.listening })
    }

    fn add(&mut self, service: Service) -> Result<(), String> {
        match service {
            Service::TcpOut { local, target } => {
                let target = Arc::new(target);
                self.listen(&local, move |server, client| server.forward_out(client, target.clone()))
            }
            Service::TcpIn { port, target } => {
                let target = Arc::new(target);
                self.inside(port, move |inside, local| {
                    let listener = inside.sockets.listen(local)?;
                    let (server, target) = (inside.server.clone(), target.clone());
                    let serve = move |server: Arc<Server>, client| server.forward_in(client, target.clone());
                    let places = server.from_tunnel.clone();
                    Ok(Box::pin(server.accept(listener, places, serve)))
                });
                Ok(())
            }
            Service::UdpOut { local, target, timeout } => {
                let sockets = server::each_address(&local, Udp::bind)?;
                self.listening.extend(sockets.iter().map(Datagrams::local));
                self.later.push(Box::new(move |inside| {
                    let way = |target| Forward { target, side: Side::Inside, timeout };
                    let task = |socket| -> Task {
                        Box::pin(forward(inside.server.clone(), Box::new(socket), way(target.clone())))
                    };
                    Ok(sockets.into_iter().map(task).collect())
                }));
                Ok(())
            }
            Service::UdpIn { port, target, timeout } => {
                self.inside(port, move |inside, local| {
                    let socket = inside.sockets.bind(local)?;
                    let way = Forward { target: target.clone(), side: Side::Outside, timeout };
                    Ok(Box::pin(forward(inside.server.clone(), socket, way)))
                });
                Ok(())
            }
            Service::Stdio { target } => {
                let streams = StandardStreams::open().map_err(|error| format!("cannot open /dev/null: {error}"))?;
                match self.standard_streams.replace((streams, target)) {
                    None => Ok(()),
                    Some(_) => Err("standard input and output can be connected to one target only".to_owned()),
                }
            }
            Service::Socks { local, login } => {
                let socks = Arc::new(Socks::new(login));
                self.listen(&local, move |server, client| socks.clone().serve(server, client))
            }
            Service::Http { local, login, tls } => {
                let tls = tls.map(|(certificate, key)| tls::acceptor(&certificate, &key)).transpose()?;
                let http = Arc::new(Http { login, tls });
                self.listen(&local, move |server, client| http.clone().serve(server, client))
            }
            Service::Sni { local } => self.listen(&local, sni::serve),
        }
    }

    fn bind(&mut self, local: &Local) -> Result<Vec<Listening>, String> {
        let opened = server::listen(local)?;
        self.listening.extend(opened.iter().map(Listener::local));
        Ok(opened)
    }

    /// Serves those who come to `local` on this host.
    fn listen<S, F>(&mut self, local: &Local, serve: S) -> Result<(), String>
    where
        S: Fn(Arc<Server>, Box<dyn linerate_sockets::Stream>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let opened = self.bind(local)?;
        self.later.push(Box::new(move |inside| {
            let task = |listening| -> Task {
                let server = inside.server.clone();
                let places = server.connections.clone();
                Box::pin(server.accept(Box::new(listening), places, serve.clone()))
            };
            Ok(opened.into_iter().map(task).collect())
        }));
        Ok(())
    }

    /// Serves those who come to `port` in the tunnel, at each address that `open` is called with.
    fn inside(&mut self, port: u16, open: impl Fn(&Inside, SocketAddr) -> io::Result<Task> + 'static) {
        self.later.push(Box::new(move |inside| {
            let open = |local| open(inside, local).map_err(|error| not_in_tunnel(local, &error));
            in_tunnel(&inside.addresses, port).map(open).collect()
        }));
    }
}

impl Services {
    /// Where clients are waited for on this host.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.listening
    }

    /// The state of the proxy.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Serves. It ends when standard input and output were all that there is to serve, and are through.
    ///
    /// # Errors
    /// A sentence about the connection of standard input and output.
    pub async fn serve(self) -> Result<(), String> {
        let mut tasks: JoinSet<()> = self.tasks.into_iter().collect();
        if let Some((streams, target)) = self.standard_streams {
            let outcome = stdio::serve(self.server, streams, &target).await;
            if tasks.is_empty() {
                return outcome;
            }
            outcome.unwrap_or_else(|sentence| complain("standard input and output", &sentence));
        }
        // Those of health never end either.
        while tasks.join_next().await.is_some() {}
        Ok(())
    }
}

/// Says, when the first target was not reached, that no peer has answered so far: then it is the tunnel's fault.
async fn tell_of_silence(server: Arc<Server>, report: Report) {
    server.counters.unanswered.notified().await;
    let is_answer = |line: &str| line.strip_prefix("last_handshake_time_sec=").is_some_and(|time| time != "0");
    if !report().lines().any(is_answer) {
        eprint_line(
            "linerate-proxy: no peer of the tunnel has answered so far: are its Endpoint and the keys right, and does it know \
             the public key of this end?",
        );
    }
}

/// All addresses of the families that a tunnel has addresses of.
fn in_tunnel(addresses: &[IpAddr], port: u16) -> impl Iterator<Item = SocketAddr> {
    let has = |is_ipv6| addresses.iter().any(|address| address.is_ipv6() == is_ipv6);
    [false, true].map(|is_ipv6| has(is_ipv6).then(|| unspecified(is_ipv6, port))).into_iter().flatten()
}

fn not_in_tunnel(local: SocketAddr, error: &io::Error) -> String {
    format!("cannot listen on port {} in the tunnel: {error}", local.port())
}

/// What can be used without a password and should perhaps not be: a sentence for each.
fn open_doors(settings: &Settings) -> Vec<String> {
    let is_proxy = |service: &&Service| matches!(service, Service::Socks { .. } | Service::Http { .. });
    let has_login = settings.services.iter().filter_map(Service::local).any(|(_, login)| login.is_some());
    let of_others = settings
        .services
        .iter()
        .filter_map(Service::local)
        .filter(|(local, login)| login.is_none() && !local.is_loopback());
    let of_others = of_others.map(|(local, _)| {
        format!(
            "whoever reaches {local} can use the tunnel: no password is needed there. 127.0.0.1 is for this host alone"
        )
    });
    let beside = settings.services.iter().filter(is_proxy).filter_map(Service::local);
    let beside = beside.filter(|(_, login)| has_login && login.is_none()).map(|(local, _)| {
        format!(
            "the proxy on {local} needs no password, and another one does: -D and --http add proxies, and change none \
             of the file's; leave them away, or set Username and Password there"
        )
    });
    of_others.chain(beside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Login;

    #[test]
    fn what_needs_no_password_is_told_where_others_reach_it_or_another_proxy_needs_one() {
        let socks = |address: &str, login| Service::Socks { local: address.parse().unwrap(), login };
        let doors = |services| open_doors(&Settings { services, ..Settings::default() });
        let login = || Some(Login::new("peter", "hunter123"));
        assert_eq!(doors(vec![socks("127.0.0.1:1", None)]), [""; 0]);
        assert_eq!(doors(vec![socks(":1", login()), socks("127.0.0.1:2", login())]), [""; 0]);
        let open = doors(vec![socks(":1", None)]);
        assert!(open.len() == 1 && open[0].starts_with("whoever reaches *:1 "), "{open:?}");
        let beside = doors(vec![socks(":1", login()), socks("127.0.0.1:2", None)]);
        assert!(beside.len() == 1 && beside[0].starts_with("the proxy on 127.0.0.1:2 needs no password"), "{beside:?}");
        // A forward has no password, whatever a proxy has.
        let target = "192.0.2.1:80".parse().unwrap();
        let forward = Service::TcpOut { local: "127.0.0.1:3".parse().unwrap(), target };
        assert_eq!(doors(vec![socks(":1", login()), forward]), [""; 0]);
    }
}
