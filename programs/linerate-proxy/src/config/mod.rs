//! What the proxy is to do: by a file ([`read()`]) and by the command line ([`command_line`]).

pub mod command_line;
mod local;
mod read;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use linerate_control::zeroizing::Buffer;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use local::{Local, NotLocal};
pub use read::read;

use crate::target::Target;

/// How often addresses are checked if the file does not say.
pub const CHECK_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// A file of the proxy.
pub struct ProxyFile {
    /// What it says of the proxy.
    pub settings: Settings,
    /// `WGConfig`: the file with the tunnel, as it is written.
    pub tunnel_file: Option<PathBuf>,
    /// What it says of the tunnel: a tunnel file with the same line numbers, in which the rest is empty lines.
    pub tunnel: Buffer,
}

/// What the proxy does.
#[derive(Default)]
pub struct Settings {
    /// The forwards and proxies, in the order of the file.
    pub services: Vec<Service>,
    /// `CheckAlive`: addresses in the tunnel that have to answer.
    pub check_alive: Vec<IpAddr>,
    /// `CheckAliveInterval`.
    pub check_alive_interval: Option<Duration>,
    /// `ResolveStrategy`.
    pub resolve: Resolve,
    /// `Names`.
    pub names: Names,
    /// `Stack`.
    pub stack: Stack,
    /// `Congestion`: the congestion control of the kernel's stack, if it is not to be the host's.
    pub congestion: Option<String>,
    /// `Info`: where health and metrics are told.
    pub info: Option<Local>,
}

impl Settings {
    /// Adds what the tunnel's file says. Services add up; of other settings those that are here already count.
    pub(crate) fn add(&mut self, other: Self) {
        self.services.extend(other.services);
        if self.check_alive.is_empty() {
            (self.check_alive, self.check_alive_interval) = (other.check_alive, other.check_alive_interval);
        }
        if self.resolve == Resolve::default() {
            self.resolve = other.resolve;
        }
        if self.names == Names::default() {
            self.names = other.names;
        }
        if self.stack == Stack::default() {
            self.stack = other.stack;
        }
        self.congestion = self.congestion.take().or(other.congestion);
        self.info = self.info.take().or(other.info);
    }
}

/// Something that the proxy does for clients.
pub enum Service {
    /// `[TCPClientTunnel]`: connections to a local address go to a target in the tunnel.
    TcpOut {
        /// Where it listens.
        local: Local,
        /// Where connections go to.
        target: Target,
    },
    /// `[TCPServerTunnel]`: connections to a port in the tunnel go to a target outside.
    TcpIn {
        /// The port of all the tunnel's addresses.
        port: u16,
        /// Where connections go to.
        target: Target,
    },
    /// `[UDPProxyTunnel]`: datagrams to a local address go to a target in the tunnel.
    UdpOut {
        /// Where it listens.
        local: Local,
        /// Where datagrams go to.
        target: Target,
        /// After how long of silence a client is forgotten; never if there is none.
        timeout: Option<Duration>,
    },
    /// `[UDPServerTunnel]`: datagrams to a port in the tunnel go to a target outside.
    UdpIn {
        /// The port of all the tunnel's addresses.
        port: u16,
        /// Where datagrams go to.
        target: Target,
        /// After how long of silence a client is forgotten; never if there is none.
        timeout: Option<Duration>,
    },
    /// `[STDIOTunnel]`: standard input and output are a connection to a target in the tunnel.
    Stdio {
        /// Where it goes to.
        target: Target,
    },
    /// `[Socks5]`.
    Socks {
        /// Where it listens.
        local: Local,
        /// What clients have to know.
        login: Option<Login>,
    },
    /// `[http]`.
    Http {
        /// Where it listens.
        local: Local,
        /// What clients have to know.
        login: Option<Login>,
        /// `CertFile` and `KeyFile`: clients speak TLS.
        tls: Option<(PathBuf, PathBuf)>,
    },
    /// `[SNI]`: TLS goes to the server that its first message names.
    Sni {
        /// Where it listens.
        local: Local,
    },
}

impl Service {
    /// Where it listens on this host, and what stands between anybody there and the tunnel.
    pub fn local(&self) -> Option<(&Local, Option<&Login>)> {
        match self {
            Self::Socks { local, login } | Self::Http { local, login, .. } => Some((local, login.as_ref())),
            Self::TcpOut { local, .. } | Self::UdpOut { local, .. } | Self::Sni { local } => Some((local, None)),
            Self::TcpIn { .. } | Self::UdpIn { .. } | Self::Stdio { .. } => None,
        }
    }
}

/// A user's name and password.
pub struct Login {
    name: String,
    password: Zeroizing<String>,
}

impl Login {
    /// What a client has to say.
    pub fn new(name: &str, password: &str) -> Self {
        Self { name: name.to_owned(), password: Zeroizing::new(password.to_owned()) }
    }

    /// Whether this is the name and the password. It takes the same time however much of them is right.
    pub fn admits(&self, name: &[u8], password: &[u8]) -> bool {
        (self.name.as_bytes().ct_eq(name) & self.password.as_bytes().ct_eq(password)).into()
    }
}

/// `ResolveStrategy`: which addresses of a name are tried first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resolve {
    /// IPv6, if the tunnel has an IPv6 address.
    #[default]
    Auto,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// `Names`: who is asked for the addresses of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// The servers of `DNS`, through the tunnel.
    #[default]
    Tunnel,
    /// The host's resolver: what is asked there does not travel through the tunnel.
    System,
}

/// `Stack`: whose TCP/IP there is in the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// The kernel's where that is allowed.
    #[default]
    Auto,
    /// The kernel's, in namespaces of its own.
    Kernel,
    /// One in this process.
    Embedded,
}
