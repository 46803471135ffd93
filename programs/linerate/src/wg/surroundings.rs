//! Names of hosts and services, as the system resolves them, and warnings on standard error.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use dns_lookup::{AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};
use linerate_control::wg_config::{Resolver, ValueError};

use linerate_program::complain;

/// The system that this process runs on.
pub(crate) struct System;

impl Resolver for System {
    /// Waits for a resolver that has no answer yet, as often as WG_ENDPOINT_RESOLUTION_RETRIES says.
    fn resolve(&mut self, text: &str, host: &str, service: &str) -> Result<SocketAddr, ValueError> {
        let mut retries = retries()?;
        let mut wait = FIRST_WAIT;
        loop {
            let error = match look_up(Some(host), service) {
                Ok(Some(address)) => return Ok(address),
                Ok(None) => return Err(ValueError::Value(format!("Neither IPv4 nor IPv6 address found: `{text}'"))),
                Err(error) => error,
            };
            if is_final(&error) || retries == Some(0) {
                return Err(ValueError::Value(format!("{}: `{text}'", words(error))));
            }
            let seconds = wait.as_secs_f64();
            complain(&format!("{}: `{text}'. Trying again in {seconds:.2} seconds...", words(error)));
            thread::sleep(wait);
            wait = (wait * 6 / 5).min(LONGEST_WAIT);
            retries = retries.map(|left| left - 1);
        }
    }

    fn port(&mut self, service: &str) -> Result<u16, ValueError> {
        match look_up(None, service) {
            Ok(Some(address)) => Ok(address.port()),
            Ok(None) => Err(ValueError::Value(format!("Neither IPv4 nor IPv6 address found: `{service}'"))),
            Err(error) => Err(ValueError::Value(format!("{}: `{service}'", words(error)))),
        }
    }

    fn warn(&mut self, warning: &str) {
        complain(warning);
    }
}

/// All addresses of `host` with the port of `service`, asked for once; none if there is no answer.
pub(crate) fn addresses(host: &str, service: &str) -> Vec<SocketAddr> {
    let found = getaddrinfo(Some(host), Some(service), Some(datagrams()));
    let mut addresses: Vec<SocketAddr> =
        found.into_iter().flatten().filter_map(Result::ok).map(|found| found.sockaddr).collect();
    addresses.dedup();
    addresses
}

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// How often a lookup is repeated; `None` is for ever.
fn retries() -> Result<Option<u32>, ValueError> {
    const DEFAULT: u32 = 15;
    let Some(text) = std::env::var_os("WG_ENDPOINT_RESOLUTION_RETRIES") else { return Ok(Some(DEFAULT)) };
    let text = text.to_string_lossy();
    match &*text {
        "infinity" => Ok(None),
        "" => Ok(Some(0)),
        number => match number.trim_start().parse::<u32>() {
            Ok(count) if i32::try_from(count).is_ok() => Ok(Some(count)),
            _ => Err(ValueError::Environment(format!("Unable to parse WG_ENDPOINT_RESOLUTION_RETRIES: `{text}'"))),
        },
    }
}

/// The first address, of either family.
fn look_up(host: Option<&str>, service: &str) -> Result<Option<SocketAddr>, LookupError> {
    let mut found = getaddrinfo(host, Some(service), Some(datagrams()))?;
    Ok(found.find_map(Result::ok).map(|found| found.sockaddr))
}

fn datagrams() -> AddrInfoHints {
    const UDP: i32 = 17;
    AddrInfoHints { socktype: SockType::DGram.into(), protocol: UDP, ..AddrInfoHints::default() }
}

/// Whether asking again would not help. A port that is neither a number nor a service's name is found out without any
/// resolver.
fn is_final(error: &LookupError) -> bool {
    use LookupErrorKind::{Fail, NoData, NoName, Service};
    matches!(error.kind(), NoName | NoData | Fail | Service)
}

/// What gai_strerror or strerror says, without what dns-lookup says before it.
fn words(error: LookupError) -> String {
    let text = std::io::Error::from(error).to_string();
    text.strip_prefix("failed to lookup address information: ").unwrap_or(&text).to_owned()
}
