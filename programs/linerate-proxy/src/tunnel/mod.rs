//! Makes a tunnel without privileges: an engine in this process, and one of two TCP/IP stacks at its other end. Which one
//! is decided once, at the start.
//!
//! The kernel's stack is in a network namespace of its own ([`isolated`]); where a system does not allow that, the stack
//! is in this process ([`embedded`]). The engine's UDP sockets are the host's in both cases.

mod embedded;
pub mod endpoints;
mod isolated;

use std::fmt::Write as _;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_configure::{to_device_change, to_device_state};
use linerate_control::tunnel_file::{NameServer, TunnelFile};
use linerate_engine::device::Device;
use linerate_engine::{Engine, Handle, Options, Prepared};
use linerate_host::spec::HostSpec;
use linerate_isolation::set_congestion_control;
use linerate_netio::namespace::NetworkNamespace;
use linerate_sockets::Sockets;
use linerate_stack::Stack as Embedded;

use crate::config::Stack;
use crate::kernel::{Kernel, SocketThread};
use crate::resolver::Resolver;
use crate::sandbox::Sandbox;
use crate::services::Tunnel;
use endpoints::Endpoints;

/// A tunnel whose engine has no threads yet: privileges can be given up now.
pub struct Ready {
    engine: Prepared,
    inside: Inside,
    addresses: Vec<IpNet>,
    routes: Vec<IpNet>,
    name_servers: Vec<NameServer>,
    search_domains: Vec<String>,
    /// Whose TCP/IP it has, and why: the end of a sentence.
    pub said: String,
}

/// What is at the tunnel's other end.
enum Inside {
    Kernel(NetworkNamespace),
    Embedded(Embedded),
}

/// Makes the tunnel of `file`, whose endpoints that are names were looked up. TCP that is the kernel's has this `congestion`
/// control, or the host's. To be called before there is another thread.
///
/// # Errors
/// A sentence about what cannot be had.
pub fn prepare(
    file: &TunnelFile,
    endpoints: &Endpoints,
    wanted: Stack,
    congestion: Option<&str>,
) -> Result<Ready, String> {
    let mut device = file.initial_changes().update;
    // A mark is for the host's routes, and takes privileges.
    device.fwmark = None;
    endpoints.fill_in(&mut device);
    let routes: Vec<IpNet> = file.peers.iter().flat_map(|peer| peer.allowed_ips.clone()).collect();
    let spec = HostSpec {
        interface: file.interface.to_string(),
        addresses: file.addresses.clone(),
        mtu: file.mtu,
        allowed_ips: routes.clone(),
        endpoints: device.peers.iter().filter_map(|peer| peer.endpoint).collect(),
        ..HostSpec::default()
    };
    let (tun, mtu, inside, said) = match kernel(&spec, wanted)? {
        Ok((tun, network)) => {
            congestion.map_or(Ok(()), |name| set_congestion_control(&network, name))?;
            (tun.into(), None, Inside::Kernel(network), "the kernel's, in a network namespace of its own".to_owned())
        }
        Err(why) if congestion.is_some() => {
            return Err(format!("Congestion needs the kernel's stack, which cannot be had: {why}"));
        }
        Err(why) => {
            let (stack, mtu) = embedded::open(&spec)?;
            let tun = Device::InProcess(Box::new(stack.tun()));
            (tun, Some(mtu), Inside::Embedded(stack), format!("that of this process, smoltcp ({why})"))
        }
    };
    let options = Options { mtu, is_private: true, ..Options::default() };
    let mut engine = Engine::prepare(tun, &options).map_err(|error| error.to_string())?;
    engine.configure(to_device_change(&device)).map_err(|error| error.to_string())?;
    let (name_servers, search_domains) = (file.dns_servers.clone(), file.search_domains.clone());
    let addresses = file.addresses.clone();
    Ok(Ready { engine, inside, addresses, routes, name_servers, search_domains, said })
}

/// The kernel's stack, or why there is another one.
fn kernel(spec: &HostSpec, wanted: Stack) -> Result<Result<isolated::Opened, String>, String> {
    if wanted == Stack::Embedded {
        return Ok(Err("Stack = embedded".to_owned()));
    }
    match isolated::open(spec, Options::default().queues()) {
        Err(why) if wanted == Stack::Kernel => {
            Err(format!("there cannot be a network namespace, which Stack = kernel asks for: {why}"))
        }
        opened => Ok(opened),
    }
}

impl Ready {
    /// Whether its TCP/IP is the kernel's.
    pub fn has_kernel_stack(&self) -> bool {
        matches!(self.inside, Inside::Kernel(_))
    }

    /// The engine, to be started, and what services are opened by; `resolver` is this host's. Within a runtime. What runs from here on confines
    /// itself.
    ///
    /// # Errors
    /// The system has no threads or descriptors left.
    pub fn open(self, sandbox: Sandbox, resolver: Option<Resolver>) -> Result<(Prepared, Tunnel), String> {
        let sockets: Arc<dyn Sockets> = match self.inside {
            Inside::Kernel(network) => {
                let source = SocketThread::start(move || {
                    network.enter()?;
                    sandbox.confine_thread();
                    Ok(())
                });
                Arc::new(Kernel::new(source.map_err(|error| format!("cannot enter the tunnel's network: {error}"))?))
            }
            Inside::Embedded(stack) => {
                tokio::spawn(embedded::drive(stack.clone()));
                Arc::new(stack)
            }
        };
        let handle = self.engine.handle();
        let tunnel = Tunnel {
            sockets,
            addresses: self.addresses.iter().map(IpNet::addr).collect(),
            routes: self.routes,
            name_servers: self.name_servers.iter().map(NameServer::address).collect(),
            search_domains: self.search_domains,
            resolver,
            report: Arc::new(move || report(&handle)),
        };
        Ok((self.engine, tunnel))
    }
}

/// What the UAPI says, without what is secret.
fn report(engine: &Handle) -> String {
    let Some(report) = engine.get() else { return String::new() };
    let text = to_device_state(&report).render();
    let mut told = String::new();
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"errno=")) {
        let line = String::from_utf8_lossy(line);
        let _ = match line.split_once('=') {
            Some((key @ ("private_key" | "preshared_key"), _)) => writeln!(told, "{key}=REDACTED"),
            _ => writeln!(told, "{line}"),
        };
    }
    told
}
