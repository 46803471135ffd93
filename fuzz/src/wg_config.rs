//! Any bytes as a file for `wg`: white space does not matter, and an accepted file is an update that the UAPI can
//! carry.

use std::net::SocketAddr;

use linerate_control::uapi::request::{self, DeviceUpdate, Request};
use linerate_control::wg_config::{Mode, ParseError, Resolver, ValueError, parse};

pub fn check(input: &[u8]) {
    for mode in [Mode::Replace, Mode::Append] {
        let read = parsed(input, mode);
        assert!(parsed(&spaced(input), mode) == read, "white space does not matter");
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

fn parsed(text: &[u8], mode: Mode) -> Result<DeviceUpdate, ParseError> {
    parse(text, mode, &mut Numeric)
}

fn spaced(text: &[u8]) -> Vec<u8> {
    text.iter().flat_map(|&byte| [byte, b" \t\r"[usize::from(byte % 3)]]).collect()
}

/// A resolver that knows no names.
struct Numeric;

impl Resolver for Numeric {
    fn resolve(&mut self, text: &str, _: &str, _: &str) -> Result<SocketAddr, ValueError> {
        let refused = || ValueError::Value(text.to_owned());
        // Neither the UAPI nor the system's resolver has IPv4-mapped IPv6 addresses.
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
