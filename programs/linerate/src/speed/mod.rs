//! `linerate speed`: how fast the tunnel to a peer is, and what bounds it; with `--listen` the other end of that.
//!
//! [`measure`] loads the tunnel, by our own responder or by [`iperf3`]; [`verdict`] is the lab's, over what both machines
//! saw; [`report`] prints.

mod iperf3;
mod listen;
mod measure;
mod report;
mod verdict;

use std::process::ExitCode;

use linerate_cli::print;
use linerate_control::interface::InterfaceName;
use linerate_probe::speed::PORT;
use linerate_tunnel::status::status;

use crate::cli::CliError;
use crate::target::find;

#[derive(clap::Args)]
pub(crate) struct SpeedArguments {
    /// A peer by its name in the file or its public key, or an address behind it
    #[arg(value_name = "PEER", required_unless_present = "listen")]
    peer: Option<String>,

    /// Tunnel of the peer (default: the one that has it)
    #[arg(long, value_name = "IFACE", conflicts_with = "listen")]
    tunnel: Option<InterfaceName>,

    /// Seconds of load each way
    #[arg(short, long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with = "listen")]
    seconds: u8,

    /// Print as JSON
    #[arg(long, conflicts_with = "listen")]
    json: bool,

    /// Be the other end: answer the measurements of the peers of this tunnel
    #[arg(long, value_name = "IFACE", conflicts_with = "peer")]
    listen: Option<InterfaceName>,

    /// With --listen: end after so many minutes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1440), requires = "listen")]
    minutes: u16,

    /// With --listen: most Mbit/s, for all measurements together
    #[arg(
        long,
        value_name = "MBITS",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000),
        requires = "listen"
    )]
    rate: u32,

    /// Port of the responder, TCP and UDP, the same at both ends
    #[arg(long, default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
}

/// Measures, or answers.
pub(crate) fn main(arguments: &SpeedArguments) -> Result<ExitCode, CliError> {
    if let Some(interface) = &arguments.listen {
        return listen::main(interface, arguments);
    }
    let all = status(arguments.tunnel.as_ref().map(InterfaceName::as_str))?;
    let target = find(&all, arguments.peer.as_deref().unwrap_or_default())?;
    let tunnel = all.iter().find(|tunnel| tunnel.interface == target.tunnel).ok_or("the tunnel has gone".to_owned())?;
    let speed = measure::measure(tunnel, &target, arguments.seconds, arguments.port)?;
    let text = if arguments.json { report::json(&speed)? } else { report::text(&speed) };
    Ok(print(text.as_bytes())?)
}
