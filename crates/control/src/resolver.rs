//! Looks up names of hosts and services with the C library.

use std::net::SocketAddr;

use dns_lookup::{AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};

/// All addresses of `host` with the port of `service`, without a retry; none if there is no answer.
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
/// Why there is none, in the words of [`message`].
pub fn port(service: &str) -> Result<u16, String> {
    match first_address(None, service) {
        Ok(Some(address)) => Ok(address.port()),
        Ok(None) => Err(format!("Neither IPv4 nor IPv6 address found: `{service}'")),
        Err(error) => Err(format!("{}: `{service}'", message(error))),
    }
}

/// Whether a retry cannot succeed. An unknown service is a final error, too: no resolver is involved.
pub fn is_final(error: &LookupError) -> bool {
    use LookupErrorKind::{Fail, NoData, NoName, Service};
    matches!(error.kind(), NoName | NoData | Fail | Service)
}

/// The message of gai_strerror(3) or strerror(3), without the prefix of dns-lookup.
pub fn message(error: LookupError) -> String {
    let text = std::io::Error::from(error).to_string();
    text.strip_prefix("failed to lookup address information: ").unwrap_or(&text).to_owned()
}
