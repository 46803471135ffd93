//! The messages of SOCKS5 (RFC 1928) and of its login (RFC 1929), as bytes.
//!
//! A message may come in pieces, and the next one may come with it: a parser returns nothing until all of it is there,
//! and how many bytes it was.

use std::net::{IpAddr, SocketAddr};

use crate::target::{Host, Target};

const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;

/// The longest message: a login with a name and a password of 255 bytes.
pub const LONGEST: usize = 3 + 2 * 255;

/// The head of a datagram to a client: an IPv6 address at most.
pub const LONGEST_HEAD: usize = 4 + 16 + 2;

/// How a client may log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Without a password.
    None = 0,
    /// By name and password.
    Password = 2,
    /// None of those that the client offers.
    Unacceptable = 0xff,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A TCP connection.
    Connect,
    /// To send and receive datagrams.
    Associate,
    /// Anything else, BIND among it.
    Other,
}

/// A request; the target of an association is where the client will send from, if it knows that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is wanted.
    pub command: Command,
    /// Where to; none if it is of a kind that is unknown.
    pub target: Option<Destination>,
}

/// A host and a port, which may be 0 and the name of which may be none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    host: Option<Host>,
    port: u16,
}

impl Destination {
    /// The target, if one can connect there.
    pub fn target(self) -> Option<Target> {
        let port = Some(self.port).filter(|&port| port != 0)?;
        Some(Target { host: self.host?, port })
    }

    /// The port that `client` will send datagrams from, if it says so.
    pub(super) fn port_of(&self, client: IpAddr) -> Option<u16> {
        let Some(Host::Address(address)) = self.host else { return None };
        let is_client = address.is_unspecified() || address == client;
        Some(self.port).filter(|&port| is_client && port != 0)
    }
}

/// What a reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Succeeded = 0,
    /// Something is wrong that has no number of its own.
    Failure = 1,
    /// Rules forbid it.
    NotAllowed = 2,
    /// There is no way to the network.
    NetworkUnreachable = 3,
    /// There is no such host, or no way to it.
    HostUnreachable = 4,
    /// The target refused.
    Refused = 5,
    /// Nobody answered.
    TimedOut = 6,
    /// No such command.
    NoSuchCommand = 7,
    /// No such kind of address.
    NoSuchAddress = 8,
}

/// These bytes are not SOCKS5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSocks;

/// A message and how many bytes it was; none if some are missing.
pub type Parsed<T> = Result<Option<(T, usize)>, NotSocks>;

/// The first message: how a client offers to log in. What is chosen of it depends on whether a password is wanted.
pub fn greeting(bytes: &[u8], wants_password: bool) -> Parsed<Method> {
    let wanted = if wants_password { Method::Password } else { Method::None };
    match bytes {
        [] | [VERSION] => Ok(None),
        [VERSION, count, rest @ ..] => Ok(rest.get(..usize::from(*count)).map(|methods| {
            let method = if methods.contains(&(wanted as u8)) { wanted } else { Method::Unacceptable };
            (method, 2 + methods.len())
        })),
        _ => Err(NotSocks),
    }
}

/// A name and a password.
pub fn login(bytes: &[u8]) -> Parsed<(&[u8], &[u8])> {
    match bytes {
        [] => Ok(None),
        [LOGIN_VERSION, rest @ ..] => Ok(counted(rest).and_then(|(name, rest)| {
            let (password, _) = counted(rest)?;
            Some(((name, password), 3 + name.len() + password.len()))
        })),
        _ => Err(NotSocks),
    }
}

/// A request.
pub fn request(bytes: &[u8]) -> Parsed<Request> {
    match bytes {
        [] | [VERSION] | [VERSION, _] => Ok(None),
        [VERSION, command, 0, rest @ ..] => {
            let command = match command {
                1 => Command::Connect,
                3 => Command::Associate,
                _ => Command::Other,
            };
            match destination(rest) {
                Address::Missing => Ok(None),
                Address::Unknown => Ok(Some((Request { command, target: None }, bytes.len()))),
                Address::Known(target, length) => Ok(Some((Request { command, target: Some(target) }, 3 + length))),
            }
        }
        _ => Err(NotSocks),
    }
}

/// A datagram of a client: where to, and what. None if it is a fragment, or none at all.
pub fn datagram(bytes: &[u8]) -> Option<(Target, &[u8])> {
    let [0, 0, 0, rest @ ..] = bytes else { return None };
    match destination(rest) {
        Address::Known(destination, length) => Some((destination.target()?, &rest[length..])),
        Address::Missing | Address::Unknown => None,
    }
}

/// The head of a datagram from `from` to a client.
pub fn datagram_head(from: SocketAddr) -> Vec<u8> {
    let mut head = vec![0, 0, 0];
    address(&mut head, from);
    head
}

/// The answer to a greeting.
pub fn chosen(method: Method) -> [u8; 2] {
    [VERSION, method as u8]
}

/// The answer to a login.
pub fn logged_in(is_right: bool) -> [u8; 2] {
    [LOGIN_VERSION, u8::from(!is_right)]
}

/// The answer to a request; `bound` is where the connection comes from, or where to send datagrams.
pub fn reply(reply: Reply, bound: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![VERSION, reply as u8, 0];
    address(&mut bytes, bound);
    bytes
}

enum Address {
    /// Bytes of it are still to come.
    Missing,
    /// It is of a kind that does not exist.
    Unknown,
    Known(Destination, usize),
}

fn destination(bytes: &[u8]) -> Address {
    let (host, length) = match bytes {
        [] | [3] => return Address::Missing,
        [1, rest @ ..] => match rest.first_chunk::<4>() {
            Some(address) => (Some(Host::Address(IpAddr::from(*address))), 5),
            None => return Address::Missing,
        },
        [4, rest @ ..] => match rest.first_chunk::<16>() {
            Some(address) => (Some(Host::Address(IpAddr::from(*address).to_canonical())), 17),
            None => return Address::Missing,
        },
        [3, rest @ ..] => match counted(rest) {
            // Many clients send an address as if it were a name.
            Some((name, _)) => (std::str::from_utf8(name).ok().and_then(Host::parse), 2 + name.len()),
            None => return Address::Missing,
        },
        _ => return Address::Unknown,
    };
    match bytes.get(length..length + 2) {
        Some(&[high, low]) => Address::Known(Destination { host, port: u16::from_be_bytes([high, low]) }, length + 2),
        _ => Address::Missing,
    }
}

/// Bytes with their number before them, and what follows.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&count, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(count))
}

fn address(bytes: &mut Vec<u8>, address: SocketAddr) {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => bytes.extend([&[1][..], &ip.octets()].concat()),
        IpAddr::V6(ip) => bytes.extend([&[4][..], &ip.octets()].concat()),
    }
    bytes.extend(address.port().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_client_chooses_its_login_from_what_it_offers() {
        assert_eq!(greeting(&[5, 2, 0, 2, 9], false), Ok(Some((Method::None, 4))));
        assert_eq!(greeting(&[5, 2, 0, 2], true), Ok(Some((Method::Password, 4))));
        assert_eq!(greeting(&[5, 1, 0], true), Ok(Some((Method::Unacceptable, 3))));
        assert_eq!(greeting(&[5, 0], false), Ok(Some((Method::Unacceptable, 2))));
        assert_eq!(greeting(&[4, 1], false), Err(NotSocks));
        assert_eq!(greeting(b"GET / HTTP/1.1", false), Err(NotSocks));
    }

    #[test]
    fn a_request_names_a_target() {
        let text = |bytes: &[u8]| match request(bytes) {
            Ok(Some((request, _))) => request.target.and_then(Destination::target).map(|target| target.to_string()),
            other => panic!("{other:?}"),
        };
        assert_eq!(text(&[5, 1, 0, 1, 192, 0, 2, 1, 0, 80]).unwrap(), "192.0.2.1:80");
        assert_eq!(text(b"\x05\x01\x00\x03\x0bexample.org\x01\xbb").unwrap(), "example.org:443");
        assert_eq!(text(b"\x05\x01\x00\x03\x09192.0.2.1\x01\xbb").unwrap(), "192.0.2.1:443");
        let six = [&[5, 1, 0, 4][..], &[0xfd; 16], &[0, 22]].concat();
        assert!(text(&six).unwrap().starts_with("[fdfd:"));
        // What cannot be connected to.
        assert_eq!(text(&[5, 1, 0, 1, 192, 0, 2, 1, 0, 0]), None);
        assert_eq!(text(b"\x05\x01\x00\x03\x01 \x01\xbb"), None);
        assert_eq!(text(b"\x05\x01\x00\x03\x00\x01\xbb"), None);
        assert_eq!(text(&[5, 1, 0, 9]), None);
        assert_eq!(request(&[5, 2, 0, 1, 1, 1, 1, 1, 0, 1]).unwrap().unwrap().0.command, Command::Other);
        assert_eq!(request(&[5, 1, 1, 1]), Err(NotSocks));
    }

    #[test]
    fn a_fragment_is_no_datagram() {
        let whole = [0, 0, 0, 1, 192, 0, 2, 1, 0, 53, 7, 8];
        assert_eq!(
            datagram(&whole).map(|(to, payload)| (to.to_string(), payload)),
            Some(("192.0.2.1:53".into(), &[7, 8][..]))
        );
        assert_eq!(datagram(&[&[0, 0, 1], &whole[3..]].concat()), None);
        assert_eq!(datagram(&whole[..9]), None);
    }

    proptest! {
        #[test]
        fn a_message_ends_where_it_ends(bytes in proptest::collection::vec(any::<u8>(), 0..600), head in 0usize..4) {
            let mut bytes = bytes;
            let heads: [&[u8]; 4] = [&[5], &[1], &[5, 1, 0, 3], &[5, 3, 0, 1]];
            bytes.splice(0..0, heads[head].iter().copied());
            for parse in [
                |bytes: &[u8]| greeting(bytes, true).map(|parsed| parsed.map(|(method, used)| (format!("{method:?}"), used))),
                |bytes: &[u8]| login(bytes).map(|parsed| parsed.map(|(login, used)| (format!("{login:?}"), used))),
                |bytes: &[u8]| request(bytes).map(|parsed| parsed.map(|(request, used)| (format!("{request:?}"), used))),
            ] {
                if let Ok(Some((message, used))) = parse(&bytes) {
                    prop_assert!(used <= bytes.len());
                    prop_assert_eq!(parse(&bytes[..used]), Ok(Some((message.clone(), used))));
                    if !message.contains("target: None") {
                        prop_assert_eq!(parse(&bytes[..used - 1]), Ok(None));
                    }
                }
            }
        }

        #[test]
        fn a_datagram_comes_back_with_its_head(ip: std::net::IpAddr, port in 1u16.., payload in proptest::collection::vec(any::<u8>(), 0..50)) {
            let from = SocketAddr::new(ip.to_canonical(), port);
            let head = datagram_head(from);
            prop_assert!(head.len() <= LONGEST_HEAD);
            let bytes = [head, payload.clone()].concat();
            prop_assert_eq!(datagram(&bytes), Some((Target::from(from), &payload[..])));
        }
    }
}
