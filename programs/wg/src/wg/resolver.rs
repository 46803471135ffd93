//! Resolves host and service names with the system's resolver, and prints warnings to standard error.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use linerate_cli::eprint_line;
use linerate_control::resolver;
use linerate_control::wg_config::{Resolver, ValueError};

/// The system's resolver.
pub struct System;

impl Resolver for System {
    /// Retries a failed lookup as often as WG_ENDPOINT_RESOLUTION_RETRIES says.
    fn resolve(&mut self, text: &str, host: &str, service: &str) -> Result<SocketAddr, ValueError> {
        let mut retries = retries()?;
        let mut wait = FIRST_WAIT;
        loop {
            let error = match resolver::first_address(Some(host), service) {
                Ok(Some(address)) => return Ok(address),
                Ok(None) => return Err(ValueError::Value(format!("Neither IPv4 nor IPv6 address found: `{text}'"))),
                Err(error) => error,
            };
            if resolver::is_final(&error) || retries == Some(0) {
                return Err(ValueError::Value(format!("{}: `{text}'", resolver::message(error))));
            }
            let seconds = wait.as_secs_f64();
            eprint_line(&format!("{}: `{text}'. Trying again in {seconds:.2} seconds...", resolver::message(error)));
            thread::sleep(wait);
            wait = (wait * 6 / 5).min(LONGEST_WAIT);
            retries = retries.map(|left| left - 1);
        }
    }

    fn port(&mut self, service: &str) -> Result<u16, ValueError> {
        resolver::port(service).map_err(ValueError::Value)
    }

    fn warn(&mut self, warning: &str) {
        eprint_line(warning);
    }
}

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// How often to retry a lookup; `None` for ever.
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
