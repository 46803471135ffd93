//! Forwards and proxies as ssh's users write them: `-L`, `-R`, `-D`, and `--http`.

use std::time::Duration;

use super::{Local, Service};
use crate::target::{self, Host, Target};

/// After how long of silence a client's UDP forward from the command line is forgotten.
const UDP_TIMEOUT: Duration = Duration::from_secs(180);

/// `-L [BIND:]PORT:HOST:PORT[/udp]`.
///
/// # Errors
/// A sentence about what was meant.
pub fn forward_out(text: &str) -> Result<Service, String> {
    let (body, is_udp) = protocol(text);
    let forward = parse(body).ok_or_else(|| {
        format!("`{text}' is not [BIND_ADDRESS:]PORT:HOST:HOSTPORT[/udp], such as 5432:db.example:5432 or 53:[fd00::1]:53/udp")
    })?;
    let local = local(forward.bind, forward.port).ok_or_else(|| {
        format!(
            "`{text}' does not begin with an address of this host: write an address, localhost or * before the port"
        )
    })?;
    let target = forward.target;
    Ok(match is_udp {
        true => Service::UdpOut { local, target, timeout: Some(UDP_TIMEOUT) },
        false => Service::TcpOut { local, target },
    })
}

/// `-R PORT:HOST:PORT[/udp]`.
///
/// # Errors
/// A sentence about what was meant.
pub fn forward_in(text: &str) -> Result<Service, String> {
    let (body, is_udp) = protocol(text);
    let forward = parse(body).ok_or_else(|| {
        format!("`{text}' is not PORT:HOST:HOSTPORT[/udp], such as 80:localhost:8080 or 80:[::1]:8080")
    })?;
    if forward.bind.is_some_and(|bind| !bind.is_empty() && bind != "*") {
        return Err(format!("`{text}' has an address before the port: the port is that of all the tunnel's addresses"));
    }
    let (port, target) = (forward.port, forward.target);
    Ok(match is_udp {
        true => Service::UdpIn { port, target, timeout: Some(UDP_TIMEOUT) },
        false => Service::TcpIn { port, target },
    })
}

/// `[BIND:]PORT` of `-D` and `--http`.
///
/// # Errors
/// A sentence about what was meant.
pub fn listener(text: &str) -> Result<Local, String> {
    let parts = split(text).unwrap_or_default();
    let found = match *parts {
        [port] => target::port(port).and_then(|port| local(None, port)),
        [bind, port] => target::port(port).and_then(|port| local(Some(bind), port)),
        _ => None,
    };
    found.ok_or_else(|| format!("`{text}' is not [BIND_ADDRESS:]PORT, such as 1080, 192.0.2.1:1080 or [::1]:1080"))
}

struct Forward<'a> {
    bind: Option<&'a str>,
    port: u16,
    target: Target,
}

fn protocol(text: &str) -> (&str, bool) {
    match text.strip_suffix("/udp") {
        Some(body) => (body, true),
        None => (text.strip_suffix("/tcp").unwrap_or(text), false),
    }
}

fn parse(text: &str) -> Option<Forward<'_>> {
    let parts = split(text)?;
    let (bind, port, host, host_port) = match *parts {
        [port, host, host_port] => (None, port, host, host_port),
        [bind, port, host, host_port] => (Some(bind), port, host, host_port),
        _ => return None,
    };
    let target = Target { host: Host::parse(host)?, port: target::port(host_port)? };
    Some(Forward { bind, port: target::port(port)?, target })
}

/// As ssh: this host alone, unless something else is said.
fn local(bind: Option<&str>, port: u16) -> Option<Local> {
    bind.map_or_else(|| Some(Local::loopback(port)), |bind| Local::new(bind, port).ok())
}

/// The parts between colons; one in brackets may have colons.
fn split(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (part, after) = match rest.strip_prefix('[') {
            Some(inner) => {
                let (part, after) = inner.split_once(']')?;
                (part, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
            }
            None => rest.split_once(':').map_or((rest, None), |(part, after)| (part, Some(after))),
        };
        parts.push(part);
        match after {
            Some(after) => rest = after,
            None => return Some(parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_written_as_for_ssh() {
        let Ok(Service::TcpOut { local, target }) = forward_out("8080:example.org:80") else { panic!() };
        assert_eq!((local.to_string(), target.to_string()), ("localhost:8080".into(), "example.org:80".into()));
        let Ok(Service::TcpOut { local, target }) = forward_out("[::1]:8080:[2001:db8::1]:80") else { panic!() };
        assert_eq!((local.to_string(), target.to_string()), ("[::1]:8080".into(), "[2001:db8::1]:80".into()));
        let Ok(Service::UdpOut { local, target, timeout }) = forward_out("*:53:192.0.2.1:53/udp") else { panic!() };
        assert_eq!((local.to_string(), target.to_string()), ("*:53".into(), "192.0.2.1:53".into()));
        assert!(timeout.is_some());
        let Ok(Service::TcpIn { port, target }) = forward_in("80:localhost:8080") else { panic!() };
        assert_eq!((port, target.to_string()), (80, "localhost:8080".into()));
        assert!(matches!(forward_in("53:192.0.2.1:53/udp"), Ok(Service::UdpIn { port: 53, .. })));
        assert_eq!(listener("1080").unwrap().to_string(), "localhost:1080");
        assert_eq!(listener(":1080").unwrap().to_string(), "*:1080");
        assert_eq!(listener("192.0.2.1:1080").unwrap().to_string(), "192.0.2.1:1080");
    }

    #[test]
    fn what_is_no_forward_is_refused_with_the_form_that_is() {
        for text in
            ["", "80", "80:a", "a:80:b", "0:a:80", "80:a:0", "80:a:80:90:1", "[::1:80:a:80", "80:::1:80", "80:a b:80"]
        {
            assert!(forward_out(text).is_err_and(|said| said.contains("PORT:HOST:HOSTPORT")), "{text}");
            assert!(forward_in(text).is_err_and(|said| said.contains("PORT:HOST:HOSTPORT")), "{text}");
        }
        assert!(forward_out("proxy.lan:80:a:80").is_err());
        assert!(forward_in("192.0.2.1:80:a:80").is_err());
        assert!(listener("a").is_err() && listener("1:2:3").is_err() && listener("").is_err());
    }
}
