//! The other end of a measurement: opens its sockets in the tunnel, gives up its rights, answers for some minutes.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use linerate_cli::eprint_line;
use linerate_control::interface::InterfaceName;
use linerate_privileges::confine_reader;
use linerate_probe::speed::responder::{Bounds, End, MOST_CONNECTIONS, Sockets, answer};
use linerate_tunnel::status::status;
use rustix::net::netdevice::name_to_index;
use rustix::thread::capabilities;

use super::SpeedArguments;
use crate::cli::{CliError, interruption};
use crate::doctor::daemon;

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
    // In this socket's network namespace, which the one of /sys need not be.
    let any = UdpSocket::bind("0.0.0.0:0").map_err(|error| format!("cannot open a socket: {error}"))?;
    let index = name_to_index(&any, name).map_err(|error| format!("cannot look for {name}: {error}"))?;
    // A socket cannot be bound to an address that has gone.
    let has_gone = |address: &IpAddr| {
        let bound = UdpSocket::bind(SocketAddr::new(*address, 0));
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
    };
    let are_there = || !addresses.iter().any(has_gone);
    let is_there = || name_to_index(&any, name) == Ok(index) && are_there();
    let interruption = interruption()?;
    confine_reader();
    if !capabilities(None).is_ok_and(|capabilities| capabilities.permitted.is_empty()) {
        let why =
            "cannot give up its capabilities, and answers nobody with them; start it as root, not with a part of that";
        return Err(why.to_owned().into());
    }

    let places: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let (port, minutes, rate) = (arguments.port, arguments.minutes, arguments.rate);
    eprint_line(&format!(
        "answering peers of {name} on {}, TCP and UDP port {port}, for {minutes} min, up to {rate} Mbit/s and \
         {MOST_CONNECTIONS} connections; Ctrl-C ends it",
        places.join(" and ")
    ));
    let bounds = Bounds { rate: u64::from(rate) * MEGABIT, until: Instant::now() + MINUTE * minutes.into() };
    let end = answer(&sockets, bounds, watched, interruption.as_fd(), &is_there);
    match end.map_err(|error| format!("cannot wait for measurements: {error}"))? {
        End::Time => eprint_line(&format!("its {minutes} min are over")),
        End::Stopped => {}
        End::Gone if name_to_index(&any, name) == Ok(index) => {
            return Err(format!("the addresses of {name} have changed; start this again").into());
        }
        End::Gone => return Err(format!("{name} has gone; start this again when it is back").into()),
    }
    Ok(ExitCode::SUCCESS)
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
