//! What any bytes are as a file of `wg`: the same with white space in it, and if it is taken, an update that the UAPI
//! carries.

use std::net::SocketAddr;

use linerate_control::config::{BadConfig, BadValue, Manner, Surroundings, parse};
use linerate_control::uapi::request::{self, DeviceUpdate, Request};

pub fn check(input: &[u8]) {
    for manner in [Manner::Replace, Manner::Append] {
        let read = parsed(input, manner);
        assert!(parsed(&spaced(input), manner) == read, "white space does not count");
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

fn parsed(text: &[u8], manner: Manner) -> Result<DeviceUpdate, BadConfig> {
    parse(text, manner, &mut Numeric)
}

fn spaced(text: &[u8]) -> Vec<u8> {
    text.iter().flat_map(|&byte| [byte, b" \t\r"[usize::from(byte % 3)]]).collect()
}

/// Surroundings without names.
struct Numeric;

impl Surroundings for Numeric {
    fn resolve(&mut self, text: &str, _: &str, _: &str) -> Result<SocketAddr, BadValue> {
        let refused = || BadValue::Value(text.to_owned());
        // The UAPI has no IPv4 address in the form of an IPv6 one, nor has the system's resolver.
        let is_of_its_family = |address: &SocketAddr| address.ip().to_canonical() == address.ip();
        text.parse().ok().filter(is_of_its_family).ok_or_else(refused)
    }

    fn port(&mut self, service: &str) -> Result<u16, BadValue> {
        service.parse().map_err(|_| BadValue::Value(service.to_owned()))
    }

    fn warn(&mut self, warning: &str) {
        assert!(!warning.is_empty());
    }
}
