//! Names of hosts and services, as the C library resolves them; for commands on whole tunnels, in a [`process`] of its own.

pub mod process;

use std::net::SocketAddr;

use dns_lookup::{AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};

/// All addresses of `host` with the port of `service`, asked for once; none if there is no answer.
pub fn addresses(host: &str, service: &str) -> Vec<SocketAddr> {
    let found = getaddrinfo(Some(host), Some(service), Some(datagrams()));
    let mut addresses: Vec<SocketAddr> =
        found.into_iter().flatten().filter_map(Result::ok).map(|found| found.sockaddr).collect();
    addresses.dedup();
    addresses
}

/// The first address, of either family; without `host`, one of this host with the port of `service`.
///
/// # Errors
/// See [`LookupError`].
pub fn first_address(host: Option<&str>, service: &str) -> Result<Option<SocketAddr>, LookupError> {
    let mut found = getaddrinfo(host, Some(service), Some(datagrams()))?;
    Ok(found.find_map(Result::ok).map(|found| found.sockaddr))
}

fn datagrams() -> AddrInfoHints {
    const UDP: i32 = 17;
    AddrInfoHints { socktype: SockType::DGram.into(), protocol: UDP, ..AddrInfoHints::default() }
}

/// The port of `service`.
///
/// # Errors
/// Why there is none, as [`message`] has it.
pub fn port(service: &str) -> Result<u16, String> {
    match first_address(None, service) {
        Ok(Some(address)) => Ok(address.port()),
        Ok(None) => Err(format!("Neither IPv4 nor IPv6 address found: `{service}'")),
        Err(error) => Err(format!("{}: `{service}'", message(error))),
    }
}

/// Whether asking again would not help. A port that is neither a number nor a service's name is found out without any
/// resolver.
pub fn is_final(error: &LookupError) -> bool {
    use LookupErrorKind::{Fail, NoData, NoName, Service};
    matches!(error.kind(), NoName | NoData | Fail | Service)
}

/// What gai_strerror or strerror says, without what dns-lookup says before it.
pub fn message(error: LookupError) -> String {
    let text = std::io::Error::from(error).to_string();
    text.strip_prefix("failed to lookup address information: ").unwrap_or(&text).to_owned()
}
