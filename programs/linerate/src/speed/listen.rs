//! The other end of a measurement: opens its sockets in the tunnel, gives up its rights, answers for some minutes.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use linerate_cli::eprint_line;
use linerate_control::interface::InterfaceName;
use linerate_privileges::confine_reader;
use linerate_probe::speed::responder::{self, Bounds, End, MOST_CONNECTIONS, Sockets, answer};
use linerate_tunnel::status::{PeerStatus, status};
use rustix::net::netdevice::name_to_index;
use rustix::thread::capabilities;

use super::SpeedArguments;
use crate::cli::{CliError, interruption};
use crate::doctor::daemon;
use crate::target::networks;

const MINUTE: Duration = Duration::from_secs(60);

/// Bytes per second in a Mbit/s.
const MEGABIT: u64 = 125_000;

pub(super) fn main(interface: &InterfaceName, arguments: &SpeedArguments) -> Result<ExitCode, CliError> {
    let name = interface.as_str();
    let all = status(Some(name))?;
    let tunnel = all.iter().find(|tunnel| tunnel.is_running());
    let tunnel = tunnel.ok_or_else(|| format!("{name} is not running; `linerate up {name}` brings it up"))?;
    let is_usable = |address: &IpAddr| !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    let addresses: Vec<IpAddr> = tunnel.addresses.iter().map(ipnet::IpNet::addr).filter(is_usable).collect();
    if addresses.is_empty() {
        return Err(format!("{name} has no address to answer on; give it one (Address in its file)").into());
    }
    let bind = |address: &IpAddr| {
        let address = SocketAddr::new(*address, arguments.port);
        Sockets::bind(address, name).map_err(|error| refusal(address, name, &error))
    };
    let sockets = addresses.iter().map(bind).collect::<Result<Vec<Sockets>, String>>()?;
    let watched = (daemon(name), tunnel.listen_port);
    let listening = Listening::begin(name, addresses, &tunnel.peers)?;
    let interruption = interruption()?;
    confine_reader();
    if !capabilities(None).is_ok_and(|capabilities| capabilities.permitted.is_empty()) {
        let why =
            "cannot give up its capabilities, and answers nobody with them; start it as root, not with a part of that";
        return Err(why.to_owned().into());
    }

    let places: Vec<String> = listening.addresses.iter().map(ToString::to_string).collect();
    let (port, minutes, rate) = (arguments.port, arguments.minutes, arguments.rate);
    eprint_line(&format!(
        "answering peers of {name} on {}, TCP and UDP port {port}, for {minutes} min, up to {rate} Mbit/s and \
         {MOST_CONNECTIONS} connections; Ctrl-C ends it",
        places.join(" and ")
    ));
    let bounds = Bounds { rate: u64::from(rate) * MEGABIT, until: Instant::now() + MINUTE * minutes.into() };
    let end = answer(&sockets, bounds, watched, interruption.as_fd(), &listening);
    match end.map_err(|error| format!("cannot wait for measurements: {error}"))? {
        End::Time => eprint_line(&format!("its {minutes} min are over")),
        End::Stopped => {}
        End::Gone if listening.has_interface() => {
            return Err(format!("the addresses of {name} have changed; start this again").into());
        }
        End::Gone => return Err(format!("{name} has gone; start this again when it is back").into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The tunnel that is listened in.
struct Listening {
    interface: String,
    index: u32,
    addresses: Vec<IpAddr>,
    /// In whose network namespace the interface is, which the one of /sys need not be.
    socket: UdpSocket,
    /// Which peer has which allowed IP, when it began: later nobody can be asked without rights.
    peers: HashMap<IpNet, usize>,
}

impl Listening {
    fn begin(interface: &str, addresses: Vec<IpAddr>, peers: &[PeerStatus]) -> Result<Self, String> {
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(|error| format!("cannot open a socket: {error}"))?;
        let index =
            name_to_index(&socket, interface).map_err(|error| format!("cannot look for {interface}: {error}"))?;
        Ok(Self { interface: interface.to_owned(), index, addresses, socket, peers: by_allowed_ip(peers) })
    }

    fn has_interface(&self) -> bool {
        name_to_index(&self.socket, &self.interface) == Ok(self.index)
    }
}

impl responder::Tunnel for Listening {
    fn is_there(&self) -> bool {
        // A socket cannot be bound to an address that has gone.
        let has_gone = |address: &IpAddr| {
            let bound = UdpSocket::bind(SocketAddr::new(*address, 0));
            bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
        };
        self.has_interface() && !self.addresses.iter().any(has_gone)
    }

    fn peer(&self, address: IpAddr) -> Option<usize> {
        peer_of(&self.peers, address)
    }
}

fn by_allowed_ip(peers: &[PeerStatus]) -> HashMap<IpNet, usize> {
    let networks = |(number, peer)| networks(peer).map(move |network| (network.trunc(), number));
    peers.iter().enumerate().flat_map(networks).collect()
}

/// The peer whose allowed IP with that address is the longest.
fn peer_of(peers: &HashMap<IpNet, usize>, address: IpAddr) -> Option<usize> {
    let longest = IpNet::from(address).max_prefix_len();
    let within = |length| IpNet::new(address, length).ok().map(|network| network.trunc());
    (0..=longest).rev().filter_map(within).find_map(|network| peers.get(&network).copied())
}

fn refusal(address: SocketAddr, name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "listening in a tunnel needs root; try again with sudo".to_owned(),
        io::ErrorKind::AddrInUse => {
            format!(
                "{address} is in use, perhaps by another `linerate speed --listen`; choose another --port, here and there"
            )
        }
        _ => format!("cannot listen on {address} of {name}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests::peer;

    #[test]
    fn all_addresses_of_a_peer_are_its() {
        let peers =
            by_allowed_ip(&[peer("a", &["10.0.0.2/32", "fd00::2/128", "10.9.0.0/16"]), peer("b", &["10.9.9.0/24"])]);
        let of = |address: &str| peer_of(&peers, address.parse().unwrap());
        assert_eq!(["10.0.0.2", "fd00::2", "10.9.1.1", "10.9.255.255"].map(of), [Some(0); 4]);
        assert_eq!((of("10.9.9.9"), of("10.0.0.3"), of("fd00::3")), (Some(1), None, None));
        let all = by_allowed_ip(&[peer("a", &["0.0.0.0/0", "::/0"]), peer("b", &["10.0.0.2/32"])]);
        let of = |address: &str| peer_of(&all, address.parse().unwrap());
        assert_eq!((of("192.0.2.1"), of("2001:db8::1"), of("10.0.0.2")), (Some(0), Some(0), Some(1)));
    }
}
