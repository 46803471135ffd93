//! `init`: the peers of a tunnel become those of a fleet, and this host its gateway 0.

use std::process::ExitCode;

use linerate_cli::eprint_line;
use linerate_control::tunnel_file::{FleetName, settings};
use linerate_tunnel::ConfigFile;
use rustix::system::uname;

use super::followed;
use crate::arguments::Init;
use crate::edit::{self, first};
use crate::file;
use crate::local::{self, Local, Saved, StoreArguments};
use crate::peers::{self, Sections};
use crate::seal::Seal;
use crate::store::layout::{self, Config, Keys, Member, Next};
use crate::store::{Compare, StoreError, Transaction};

/// The first epoch of receiver indices.
const EPOCH: u32 = 1;

pub(super) async fn run(arguments: &Init) -> Result<ExitCode, String> {
    let Init { name, tunnel, address, mesh_endpoint, store, .. } = arguments;
    let (file, key) = local::tunnel(tunnel)?;
    check_alone(&file, name)?;
    check_port(&file, address.port())?;
    let sections = peers::sections(&file.document, &file.interface)?;
    let (keys, seal) = (Keys::of(name), Seal::new(&key, name));
    let (transactions, numbers) = first(&sections, &keys, &seal, &file.interface)?;

    let client = store.client()?;
    let said = |error: StoreError| error.to_string();
    let exists = || {
        format!(
            "the store has a fleet {name} already: `linerate fleet join {name} {tunnel}' makes this host a gateway of it"
        )
    };
    if client.get(&keys.config()).await.map_err(said)?.1.is_some() {
        return Err(exists());
    }
    for transaction in &transactions {
        if !client.transact(transaction).await.map_err(said)?.is_done {
            return Err(exists());
        }
    }
    let config = Config {
        public_key: local::public_key(&key)?.to_string(),
        address: *address,
        mesh: random_network()?,
        epoch: EPOCH,
        max_stale: arguments.max_stale,
        skew_max: arguments.skew_max,
    };
    let mesh_key = local::new_key()?;
    let member = member(&mesh_key, *mesh_endpoint)?;
    let next = Next { number: numbers.len() as u32, peers: numbers.len() as u64, edit: edit::name()? };
    // The fleet is there with this one, or not at all.
    let operations = vec![
        layout::put(&seal, keys.config(), &config),
        layout::put(&seal, keys.next(), &next),
        layout::put(&seal, keys.member(0), &member),
    ];
    let made = Transaction { compares: vec![Compare::Absent(keys.config())], operations };
    let made = client.transact(&made).await.map_err(said)?;
    if !made.is_done {
        return Err(exists());
    }
    let local = Local {
        file: file.called.clone(),
        gateway: 0,
        store: store.absolute(),
        mesh_endpoint: *mesh_endpoint,
        route_table: None,
    };
    local::save(name, &local, &mesh_key)?;
    let unmet = write_fleet(&file, name, None)?;
    let saved = Saved {
        revision: made.revision,
        digest: peers::digest(&sections),
        config,
        members: [(0, member)].into(),
        numbers,
    };
    local::save_view(name, &saved)?;
    eprint_line(&format!(
        "the fleet {name} has {} peers, and this host is its gateway 0. `linerate fleet run {name}' follows it, as a service",
        sections.len()
    ));
    warn_of_plain(store);
    warn_of_missing(*address);
    Ok(followed(&unmet))
}

/// Checks that neither the tunnel nor the host's files belong to a fleet.
pub(super) fn check_alone(file: &ConfigFile, name: &FleetName) -> Result<(), String> {
    if let Some(fleet) = &file.contents.fleet {
        return Err(format!("{} belongs to the fleet {fleet} already: `linerate fleet leave' first", file.interface));
    }
    match local::is_here(name) {
        true => {
            Err(format!("this host belongs to a fleet {name} already: `linerate fleet leave --fleet {name}' first"))
        }
        false => Ok(()),
    }
}

/// Checks that the tunnel listens where clients come: what another gateway passes on is given to that port, too.
pub(super) fn check_port(file: &ConfigFile, port: u16) -> Result<(), String> {
    match wrong_port(file.contents.listen_port, port) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "{} {wrong}, and clients come to port {port} of every gateway: write ListenPort = {port} into it, and `linerate \
             reload {}' if the tunnel runs",
            file.path.display(),
            file.interface
        )),
    }
}

fn wrong_port(listen_port: Option<u16>, port: u16) -> Option<String> {
    match listen_port {
        Some(own) if own == port => None,
        Some(own) => Some(format!("says ListenPort = {own}")),
        None => Some("has no ListenPort".to_owned()),
    }
}

/// Without the address the daemon cannot send from it, nor be given what others pass on.
pub(super) fn warn_of_missing(address: std::net::SocketAddr) {
    if !is_here(address.ip()) {
        eprint_line(&missing_text(address.ip()));
    }
}

fn missing_text(address: std::net::IpAddr) -> String {
    let length = if address.is_ipv4() { 32 } else { 128 };
    format!(
        "Warning: {address} is no address of this host, and a gateway needs it to begin handshakes, and for clients whose \
         datagrams come by another gateway: `ip addr add {address}/{length} dev lo'"
    )
}

/// Whether an address is one of this host's, on whatever interface, or can be used as one (ip_nonlocal_bind).
fn is_here(address: std::net::IpAddr) -> bool {
    let bound = std::net::UdpSocket::bind((address, 0));
    !bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrNotAvailable)
}

/// This host as a member.
pub(super) fn member(
    mesh_key: &linerate_control::keys::SecretKey,
    mesh_endpoint: std::net::SocketAddr,
) -> Result<Member, String> {
    let name = uname().nodename().to_string_lossy().into_owned();
    Ok(Member { name, mesh_key: local::public_key(mesh_key)?.to_string(), mesh_endpoint, draining: false })
}

/// Writes into the tunnel's file that it belongs to the fleet, and that these are its peers. Returns what the tunnel does
/// not do of that.
pub(super) fn write_fleet(
    file: &ConfigFile,
    name: &FleetName,
    peers: Option<&Sections>,
) -> Result<Vec<String>, String> {
    file::follow(&file.called, |document| {
        let mut document = match peers {
            Some(peers) => linerate_control::document::Document::of(peers::with_peers(document, peers.iter()).into()),
            None => document.clone(),
        };
        let interface = document.interface();
        document.set(interface, &settings::FLEET, name.as_str()).expect("the name of a fleet is a value");
        document
    })
}

/// Without TLS, whoever is on the way sees peers and can change them.
pub(super) fn warn_of_plain(store: &StoreArguments) {
    let is_local =
        |url: &str| ["http://127.", "http://[::1]", "http://localhost"].iter().any(|local| url.starts_with(local));
    if store.stores.iter().any(|url| url.starts_with("http://") && !is_local(url)) {
        eprint_line("Warning: the store is asked without TLS: whoever is on the way can change the fleet's peers");
    }
}

/// A random /64 of unique local addresses (RFC 4193).
fn random_network() -> Result<String, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes[1..6]).map_err(|error| format!("the system has no random numbers: {error}"))?;
    bytes[0] = 0xfd;
    Ok(format!("{}/64", std::net::Ipv6Addr::from(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_missing_or_another_is_told() {
        assert_eq!(wrong_port(Some(51820), 51820), None);
        assert_eq!(wrong_port(Some(1), 51820).unwrap(), "says ListenPort = 1");
        assert_eq!(wrong_port(None, 51820).unwrap(), "has no ListenPort");
    }

    #[test]
    fn an_address_of_nobody_is_not_here() {
        assert!(is_here("127.0.0.1".parse().unwrap()));
        // For documentation (RFC 5737): no host has it, and only some let it be used.
        let may_be_used =
            std::fs::read_to_string("/proc/sys/net/ipv4/ip_nonlocal_bind").is_ok_and(|set| set.trim() == "1");
        assert_eq!(is_here("203.0.113.5".parse().unwrap()), may_be_used);
        assert!(missing_text("203.0.113.5".parse().unwrap()).contains("ip addr add 203.0.113.5/32 dev lo"));
        assert!(missing_text("2001:db8::5".parse().unwrap()).contains("ip addr add 2001:db8::5/128 dev lo"));
    }
}
