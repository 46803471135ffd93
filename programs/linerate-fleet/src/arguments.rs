//! The command line.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use linerate_cli::documents;
use linerate_control::interface::InterfaceName;
use linerate_control::tunnel_file::FleetName;

use crate::gateway::GATEWAYS_MAX;
use crate::local::StoreArguments;

/// The arguments of `linerate-fleet`.
#[derive(Parser)]
#[command(
    name = "linerate-fleet",
    version,
    about = "Gateways that share one set of peers and take over from each other.",
    long_about = "Several gateways have one private key, one address and one set of peers. The peers are in etcd; each gateway's \
        file follows them, and `linerate client add' on any gateway adds a client to all. When a gateway dies, the others \
        take its clients over in less than a second.\n\n\
        Each gateway needs the tunnel's file with the shared private key, a clock that is kept right (NTP), and `linerate \
        fleet run' as a service beside the tunnel.",
    after_long_help = "EXAMPLES\n\
        \x20 On the first gateway, whose tunnel wg0 exists, with its peers:\n\
        \x20   linerate fleet init berlin wg0 --store http://10.0.0.1:2379 \\\n\
        \x20     --address 203.0.113.5:51820 --mesh-endpoint 10.0.0.11:51821\n\
        \x20   linerate fleet run berlin\n\
        \x20 On each other one, to which the file of wg0 without peers was copied:\n\
        \x20   linerate fleet join berlin wg0 --store http://10.0.0.1:2379 --mesh-endpoint 10.0.0.12:51821\n\
        \x20   linerate fleet run berlin\n\
        \x20 Anywhere in the fleet:\n\
        \x20   linerate client add laptop    # is on all gateways\n\
        \x20   linerate fleet status\n\
        \x20   linerate fleet drain          # before maintenance: clients move away without a gap\n\
        \x20   linerate fleet leave 2        # gateway 2 was stolen, or will not come back\n\n\
        FILES\n\
        \x20 /etc/linerate/fleet/NAME.json      where the store is, and which gateway this is\n\
        \x20 /etc/linerate/fleet/NAME.key       this gateway's key in the mesh of gateways\n\
        \x20 /var/lib/linerate/fleet/NAME.json  the last view of the store, for a start without it\n\
        \x20 /run/linerate/fleet/NAME/status.json  what the service sees\n\n\
        EXIT STATUS\n\
        \x20 0 if it is done; 1 if not, with the reason; 75 of commit, if the file has to follow the store first.\n\n\
        SEE ALSO\n\
        linerate(1), linerate.conf(5), linerated(8)"
)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Write the manual pages into this directory, and do nothing else
    #[arg(long, value_name = "DIRECTORY", exclusive = true, hide = true)]
    man: Option<PathBuf>,

    /// Print the completions for this shell, and do nothing else
    #[arg(long, value_name = "SHELL", exclusive = true, hide = true)]
    completions: Option<Shell>,
}

/// The commands.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a fleet of this gateway: its peers become the fleet's
    ///
    /// The tunnel's file stays what it is and says `#! Fleet = NAME' from now on. Its private key is the one that all gateways
    /// have; it never goes into the store, which has its public half, and the peers' preshared keys sealed under it.
    Init(Init),

    /// Make this host a gateway of a fleet
    ///
    /// Copy the tunnel's file with its private key, and no peers, from another gateway first. This gateway gets the lowest
    /// number that is free, and the file the fleet's peers.
    Join(Join),

    /// Remove a gateway from its fleet: this one, or another by its number
    ///
    /// The other gateways stop speaking with it at once. Whoever has its disk still has the shared private key: after a theft
    /// make a new key (docs/fleet.md).
    Leave(Which),

    /// Show the gateways: who is alive, how far they follow, whose clocks differ
    Status(Status),

    /// Move clients away from a gateway before maintenance
    ///
    /// The service hands them over to the others; `linerate fleet status' tells when none is left.
    Drain(Which),

    /// End a drain: the gateway takes clients again
    Undrain(Which),

    /// Confirm that most of the peers are to go
    ///
    /// If more than half of the peers vanish from the store at once, and no command of linerate did that, gateways keep them and
    /// warn. This says that it was meant. If it was not, restore the store instead: the hold ends by itself.
    Accept(OfFleet),

    /// Follow the store and the other gateways, as a service
    ///
    /// Runs in the foreground until a signal comes. The tunnel itself is another service and may start before or after;
    /// without the store it goes on with the peers that the file has.
    Run {
        /// The fleet
        name: FleetName,
    },

    /// Take a change of a tunnel's file to the store; run by linerate
    #[command(hide = true)]
    Commit {
        /// The tunnel
        interface: InterfaceName,
    },

    /// What the library of tunnels starts in the background
    #[command(hide = true)]
    Supervise {
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },

    /// Look names up for the library of tunnels
    #[command(hide = true)]
    Resolve,
}

/// Which fleet.
#[derive(clap::Args)]
pub struct OfFleet {
    /// The fleet, if this host belongs to several
    #[arg(long, value_name = "NAME")]
    pub fleet: Option<FleetName>,
}

/// Which gateway of which fleet.
#[derive(clap::Args)]
pub struct Which {
    /// The number of another gateway; else it is this one
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u8).range(..i64::from(GATEWAYS_MAX)))]
    pub gateway: Option<u8>,

    /// The fleet
    #[command(flatten)]
    pub of: OfFleet,
}

/// Of `init`.
#[derive(clap::Args)]
pub struct Init {
    /// The fleet: lower-case letters, digits, hyphens
    pub name: FleetName,

    /// The tunnel: its interface, or its file
    #[arg(value_name = "IFACE")]
    pub tunnel: String,

    /// Where clients reach all gateways, by anycast, ECMP or an address that moves
    #[arg(long, value_name = "IP:PORT", value_parser = AddressAndPort)]
    pub address: SocketAddr,

    /// Where other gateways reach this one, for the mesh between them
    #[arg(long, value_name = "IP:PORT", value_parser = AddressAndPort)]
    pub mesh_endpoint: SocketAddr,

    /// For so many seconds without the store gateways let clients in
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(10..))]
    pub max_stale: u64,

    /// A gateway whose clock is further from the others' leaves
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub skew_max: u64,

    /// Where the store is
    #[command(flatten)]
    pub store: StoreArguments,
}

/// Of `join`.
#[derive(clap::Args)]
pub struct Join {
    /// The fleet
    pub name: FleetName,

    /// The tunnel: its interface, or its file
    #[arg(value_name = "IFACE")]
    pub tunnel: String,

    /// Where other gateways reach this one, for the mesh between them
    #[arg(long, value_name = "IP:PORT", value_parser = AddressAndPort)]
    pub mesh_endpoint: SocketAddr,

    /// Where the store is
    #[command(flatten)]
    pub store: StoreArguments,
}

/// Of `status`.
#[derive(clap::Args)]
pub struct Status {
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,

    /// The fleet
    #[command(flatten)]
    pub of: OfFleet,
}

/// Reads an address and a port, and says what is missing.
#[derive(Clone)]
struct AddressAndPort;

impl TypedValueParser for AddressAndPort {
    type Value = SocketAddr;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<SocketAddr, clap::Error> {
        let text = value.to_string_lossy();
        address_and_port(&text).map_err(|why| {
            let option = argument.and_then(clap::Arg::get_long).unwrap_or_default();
            clap::Error::raw(ErrorKind::ValueValidation, format!("--{option} {text}: {why}\n")).with_cmd(command)
        })
    }
}

fn address_and_port(text: &str) -> Result<SocketAddr, String> {
    const PORT: u16 = 51820;
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() == 0 { Err("0 is no port".to_owned()) } else { Ok(address) };
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    Err(match bare.strip_suffix(':').unwrap_or(bare).parse::<IpAddr>().or_else(|_| bare.parse()) {
        Ok(address) => format!("a port is missing, for example {}", SocketAddr::new(address, PORT)),
        Err(_) => "it is not an address and a port, such as 203.0.113.5:51820 or [2001:db8::5]:51820".to_owned(),
    })
}

impl Arguments {
    /// Writes the manual pages or the completions, if that is what is asked for.
    pub fn documents(&self) -> Option<Result<ExitCode, String>> {
        let page = |folder: &PathBuf| documents::write_pages(Self::command(), "1", folder).map(|()| ExitCode::SUCCESS);
        let completions = || self.completions.map(|shell| documents::print_completions(Self::command(), shell));
        self.man.as_ref().map(page).or_else(completions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_has_help() {
        documents::assert_documented(Arguments::command());
    }

    #[test]
    fn a_gateway_that_cannot_be_is_refused() {
        let parsed = |arguments: &[&str]| Arguments::try_parse_from([&["linerate-fleet"], arguments].concat()).is_ok();
        assert!(parsed(&["leave"]) && parsed(&["leave", "63"]) && !parsed(&["leave", "64"]));
        assert!(!parsed(&["run", "Berlin"]) && !parsed(&["run", "../x"]) && parsed(&["run", "berlin"]));
        assert!(!parsed(&["join", "berlin", "wg0", "--mesh-endpoint", "10.0.0.1:1"]), "no store");
    }
    #[test]
    fn an_address_without_a_port_is_told_what_is_missing() {
        let init = |address: &str, mesh: &str| {
            let arguments = ["linerate-fleet", "init", "berlin", "wg0", "--store", "http://a", "--address", address];
            let parsed = Arguments::try_parse_from([&arguments[..], &["--mesh-endpoint", mesh]].concat());
            parsed.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let good = "203.0.113.5:51820";
        assert_eq!(init(good, "[2001:db8::5]:51821"), "");
        let said = init("203.0.113.5", good);
        assert!(said.contains("--address 203.0.113.5: a port is missing, for example 203.0.113.5:51820"), "{said}");
        let said = init(good, "2001:db8::5");
        assert!(
            said.contains("--mesh-endpoint 2001:db8::5: a port is missing, for example [2001:db8::5]:51820"),
            "{said}"
        );
        for missing in ["[2001:db8::5]", "203.0.113.5:"] {
            assert!(init(missing, good).contains("a port is missing"), "{missing}");
        }
        for wrong in ["vpn.example", "203.0.113.5:0", "203.0.113.5:99999", ""] {
            let said = init(wrong, good);
            assert!(said.contains("--address") && !said.contains("missing") && !said.is_empty(), "{wrong}: {said}");
        }
    }
}
