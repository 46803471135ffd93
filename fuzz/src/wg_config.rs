//! What any bytes are as a file of `wg`: the same with white space in it, and if it is taken, an update that the UAPI
//! carries.

use std::net::SocketAddr;

use linerate_control::uapi::request::{self, DeviceUpdate, Request};
use linerate_control::wg_config::{ConfigError, Mode, Resolver, ValueError, parse};

pub fn check(input: &[u8]) {
    for mode in [Mode::Replace, Mode::Append] {
        let read = parsed(input, mode);
        assert!(parsed(&spaced(input), mode) == read, "white space does not count");
        match read {
            Ok(update) => assert!(request::parse(&update.render()) == Ok(Request::Set(update))),
            Err(wrong) => {
                let lines = input.split(|&byte| byte == b'\n').count();
                assert!(wrong.line().is_none_or(|line| (1..=lines).contains(&line)));
                let _ = (wrong.hint(), wrong.to_string());
            }
        }
    }
}

fn parsed(text: &[u8], mode: Mode) -> Result<DeviceUpdate, ConfigError> {
    parse(text, mode, &mut Numeric)
}

fn spaced(text: &[u8]) -> Vec<u8> {
    text.iter().flat_map(|&byte| [byte, b" \t\r"[usize::from(byte % 3)]]).collect()
}

/// Resolver without names.
struct Numeric;

impl Resolver for Numeric {
    fn resolve(&mut self, text: &str, _: &str, _: &str) -> Result<SocketAddr, ValueError> {
        let refused = || ValueError::Value(text.to_owned());
        // The UAPI has no IPv4 address in the form of an IPv6 one, nor has the system's resolver.
        let is_of_its_family = |address: &SocketAddr| address.ip().to_canonical() == address.ip();
        text.parse().ok().filter(is_of_its_family).ok_or_else(refused)
    }

    fn port(&mut self, service: &str) -> Result<u16, ValueError> {
        service.parse().map_err(|_| ValueError::Value(service.to_owned()))
    }

    fn warn(&mut self, warning: &str) {
        assert!(!warning.is_empty());
    }
}
