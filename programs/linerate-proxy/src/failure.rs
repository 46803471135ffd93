//! Why a connection into the tunnel was not made, for the client that asked for it.

use std::fmt;
use std::io;

use crate::target::Host;

/// Why there is no connection.
#[derive(Debug)]
pub enum Failure {
    /// The name has no addresses, or none of a family that the tunnel has.
    NoSuchName(String),
    /// The name cannot be asked for: the file has no name server.
    NoNameServer(String),
    /// No name server answered.
    NoAnswer(String),
    /// No connection may go there.
    Forbidden(Host),
    /// The tunnel has no address of this one's family.
    NoFamily(Host),
    /// The target refused.
    Refused,
    /// There is no way to the target.
    Unreachable,
    /// The target did not answer in time.
    TimedOut,
    /// The proxy, or the tunnel's stack, has too much to do.
    Busy,
    /// Something else.
    Io(io::Error),
}

impl Failure {
    /// What it is called in metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::NoSuchName(_) => "no_such_name",
            Self::NoNameServer(_) => "no_name_server",
            Self::NoAnswer(_) => "no_answer",
            Self::Forbidden(_) => "forbidden",
            Self::NoFamily(_) => "no_family",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::Busy => "busy",
            Self::Io(_) => "other",
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Self::Refused,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            io::ErrorKind::TimedOut => Self::TimedOut,
            io::ErrorKind::QuotaExceeded => Self::Busy,
            // What the kernel says of an address of a family that the namespace has no address of.
            io::ErrorKind::AddrNotAvailable => Self::Unreachable,
            _ => Self::Io(error),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchName(name) => write!(f, "{name} has no address that the tunnel reaches"),
            Self::NoNameServer(name) => write!(
                f,
                "{name} cannot be looked up: the tunnel's file has no name server; add DNS = ADDRESS to [Interface], or \
                 Names = system to [Proxy] to ask this host's resolver outside of the tunnel"
            ),
            Self::NoAnswer(name) => write!(f, "no name server of the tunnel answered for {name}"),
            Self::Forbidden(host) => write!(f, "{host} is not an address that a tunnel leads to"),
            Self::NoFamily(host) => write!(f, "the tunnel has no address of the family of {host}"),
            Self::Refused => f.write_str("the target refused the connection"),
            Self::Unreachable => f.write_str("the tunnel does not lead to the target"),
            Self::TimedOut => f.write_str("the target does not answer"),
            Self::Busy => f.write_str("the proxy has too many connections"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}
