//! The addresses of names: asked of the tunnel's name servers, through the tunnel. The host's resolver is asked only by
//! those who have said so (`Names = system`), because what is asked there can be seen outside of the tunnel.

pub mod message;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use linerate_sockets::Sockets;
use tokio::time::{Instant, timeout};

use self::message::{Answer, NOTHING};
use crate::config::Resolve;
use crate::failure::Failure;
use crate::kernel::unspecified;
use crate::resolver::Resolver;
use crate::wait;

/// The port of name servers.
const PORT: u16 = 53;

/// How long to wait for an answer of a server before the next one is asked, and how often each is asked.
const PATIENCE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 2;

/// So many names are remembered.
const MOST_NAMES: usize = 4096;

/// So many names are looked up at a time, each by a UDP socket in the tunnel for each family; others wait.
pub(crate) const MOST_LOOKUPS: usize = 128;

/// Who is asked.
pub enum Source {
    /// These servers, through the tunnel, with the domains that names without a dot are searched in.
    Tunnel(Vec<IpAddr>, Vec<String>),
    /// The host's resolver.
    System(Resolver),
}

/// Looks names up.
pub struct Names {
    source: Source,
    sockets: Arc<dyn Sockets>,
    families: Families,
    cache: Mutex<HashMap<String, Remembered>>,
    lookups: tokio::sync::Semaphore,
}

/// Which families the tunnel has addresses of, and which one is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    has_ipv4: bool,
    has_ipv6: bool,
    prefers_ipv6: bool,
}

/// Addresses, perhaps none, and for how long that is so.
type Found = (Vec<IpAddr>, Duration);

struct Remembered {
    addresses: Vec<IpAddr>,
    until: Instant,
}

impl Families {
    /// Those of a tunnel with these addresses.
    pub fn of(addresses: &[IpAddr], resolve: Resolve) -> Self {
        let has_ipv4 = addresses.iter().any(IpAddr::is_ipv4);
        let has_ipv6 = addresses.iter().any(IpAddr::is_ipv6);
        let prefers_ipv6 = match resolve {
            Resolve::Auto | Resolve::Ipv6 => has_ipv6,
            Resolve::Ipv4 => !has_ipv4,
        };
        Self { has_ipv4, has_ipv6, prefers_ipv6 }
    }

    /// Whether the tunnel has an address of this one's family.
    pub fn have(self, address: IpAddr) -> bool {
        if address.is_ipv6() { self.has_ipv6 } else { self.has_ipv4 }
    }

    /// Those that can be reached, in the order in which to try them: the families take turns (RFC 8305).
    fn order(self, addresses: Vec<IpAddr>) -> Vec<IpAddr> {
        let (mut first, mut second): (Vec<_>, Vec<_>) = addresses
            .into_iter()
            .filter(|address| self.have(*address))
            .partition(|address| address.is_ipv6() == self.prefers_ipv6);
        first.reverse();
        second.reverse();
        let mut ordered = Vec::new();
        while !first.is_empty() || !second.is_empty() {
            ordered.extend(first.pop());
            ordered.extend(second.pop());
        }
        ordered
    }
}

impl Names {
    /// Asks `source`.
    pub fn new(source: Source, sockets: Arc<dyn Sockets>, families: Families) -> Self {
        let lookups = tokio::sync::Semaphore::new(MOST_LOOKUPS);
        Self { source, sockets, families, cache: Mutex::default(), lookups }
    }

    /// The families that addresses are of.
    pub fn families(&self) -> Families {
        self.families
    }

    /// The addresses of a name, best first.
    ///
    /// # Errors
    /// [`Failure::NoSuchName`], [`Failure::NoNameServer`], [`Failure::NoAnswer`] if no server answers, [`Failure::Busy`].
    pub async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, Failure> {
        let addresses = match self.remembered(name) {
            Some(addresses) => addresses,
            None => {
                let Ok(Ok(_permit)) = timeout(PATIENCE, self.lookups.acquire()).await else {
                    return Err(Failure::Busy);
                };
                let (addresses, life) = self.ask(name).await?;
                self.remember(name, addresses.clone(), life);
                addresses
            }
        };
        let ordered = self.families.order(addresses);
        if ordered.is_empty() { Err(Failure::NoSuchName(name.to_owned())) } else { Ok(ordered) }
    }

    async fn ask(&self, name: &str) -> Result<Found, Failure> {
        match &self.source {
            Source::System(resolver) => {
                let found = resolver.addresses(name, "0").await?;
                Ok((found.iter().map(|address| address.ip().to_canonical()).collect(), NOTHING))
            }
            Source::Tunnel(servers, _) if servers.is_empty() => Err(Failure::NoNameServer(name.to_owned())),
            Source::Tunnel(servers, domains) => {
                let searched = if name.contains('.') { &[][..] } else { domains };
                for domain in searched {
                    // Where nobody answers for a domain, the next one, or the name as it is, may still be known.
                    let found = self.ask_servers(servers, &format!("{name}.{domain}")).await;
                    if let Some(found) = found.ok().filter(|(addresses, _)| !addresses.is_empty()) {
                        return Ok(found);
                    }
                }
                self.ask_servers(servers, name).await
            }
        }
    }

    /// Asks one server after the other, for both families at once. No addresses are an answer.
    async fn ask_servers(&self, servers: &[IpAddr], name: &str) -> Result<Found, Failure> {
        let reachable: Vec<IpAddr> = servers.iter().copied().filter(|server| self.families.have(*server)).collect();
        for server in reachable.repeat(ROUNDS) {
            let four = self.ask_server(server, name, false);
            let six = self.ask_server(server, name, true);
            let (four, six) = tokio::join!(four, six);
            if let Some(found) = joined(four, six) {
                return Ok(found);
            }
        }
        Err(Failure::NoAnswer(name.to_owned()))
    }

    /// What a server says; none if it says nothing of use in time. It is not asked for a family that the tunnel has no
    /// address of.
    async fn ask_server(&self, server: IpAddr, name: &str, is_ipv6: bool) -> Option<Found> {
        if !if is_ipv6 { self.families.has_ipv6 } else { self.families.has_ipv4 } {
            return Some((Vec::new(), NOTHING));
        }
        let server = SocketAddr::new(server, PORT);
        // A number that strangers cannot predict.
        let id = (getrandom::u32().ok()? >> 16) as u16;
        let question = message::question(id, name, is_ipv6)?;
        let mut answer = timeout(PATIENCE, self.by_datagram(server, &question, is_ipv6)).await.ok()?.ok()?;
        if answer == Answer::Truncated {
            answer = timeout(2 * PATIENCE, self.by_stream(server, &question, is_ipv6)).await.ok()?.ok()?;
        }
        match answer {
            Answer::Addresses(addresses, life) => Some((addresses, life)),
            Answer::NoSuchName => Some((Vec::new(), NOTHING)),
            Answer::Truncated | Answer::Failed | Answer::Strange => None,
        }
    }

    async fn by_datagram(&self, server: SocketAddr, question: &[u8], is_ipv6: bool) -> io::Result<Answer> {
        let mut socket = self.sockets.bind(unspecified(server.is_ipv6(), 0))?;
        wait::send(&mut *socket, question, server).await?;
        let mut buffer = vec![0; 4096];
        loop {
            let (count, from) = wait::receive(&mut *socket, &mut buffer).await?;
            let answer = message::answer(question, &buffer[..count], is_ipv6);
            if from == server && answer != Answer::Strange {
                return Ok(answer);
            }
        }
    }

    async fn by_stream(&self, server: SocketAddr, question: &[u8], is_ipv6: bool) -> io::Result<Answer> {
        let mut stream = self.sockets.connect(server).await?;
        let length = u16::try_from(question.len()).map_err(io::Error::other)?;
        wait::write_all(&mut *stream, &[&length.to_be_bytes()[..], question].concat()).await?;
        let mut reply = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            if let Some((&length, message)) = reply.split_first_chunk()
                && let Some(message) = message.get(..usize::from(u16::from_be_bytes(length)))
            {
                return Ok(message::answer(question, message, is_ipv6));
            }
            match wait::read(&mut *stream, &mut buffer).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => reply.extend(&buffer[..count]),
            }
        }
    }

    fn remembered(&self, name: &str) -> Option<Vec<IpAddr>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(name).filter(|known| known.until > Instant::now()).map(|known| known.addresses.clone())
    }

    fn remember(&self, name: &str, addresses: Vec<IpAddr>, life: Duration) {
        let now = Instant::now();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MOST_NAMES {
            cache.retain(|_, known| known.until > now);
        }
        if cache.len() >= MOST_NAMES {
            cache.clear();
        }
        cache.insert(name.to_owned(), Remembered { addresses, until: now + life });
    }
}

/// What a server says of both families. One of them suffices if it has addresses, and is then soon asked again; that
/// there are none is known only if both say so.
fn joined(four: Option<Found>, six: Option<Found>) -> Option<Found> {
    match (four, six) {
        (Some((mut addresses, life)), Some((others, other_life))) => {
            let life = match (addresses.is_empty(), others.is_empty()) {
                (false, true) => life,
                (true, false) => other_life,
                _ => life.min(other_life),
            };
            addresses.extend(others);
            Some((addresses, life))
        }
        (Some((addresses, life)), None) | (None, Some((addresses, life))) if !addresses.is_empty() => {
            Some((addresses, life.min(NOTHING)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_family_suffices_and_nothing_needs_both() {
        let found = |last: u8, seconds| (vec![IpAddr::from([192, 0, 2, last])], Duration::from_secs(seconds));
        let nothing = || Some((Vec::new(), NOTHING));
        assert_eq!(joined(Some(found(1, 60)), None), Some(found(1, 10)));
        assert_eq!(joined(None, Some(found(1, 5))), Some(found(1, 5)));
        assert_eq!(joined(Some(found(1, 60)), nothing()), Some(found(1, 60)));
        let (both, life) = joined(Some(found(1, 60)), Some(found(2, 30))).unwrap();
        assert_eq!((both.len(), life), (2, Duration::from_secs(30)));
        assert_eq!(joined(nothing(), None), None);
        assert_eq!(joined(nothing(), nothing()), nothing());
        assert_eq!(joined(None, None), None);
    }

    #[test]
    fn families_take_turns_and_those_without_an_address_are_left_out() {
        let of = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let found = of(&["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
        let both = of(&["10.0.0.2", "fd00::2"]);
        let order = |addresses: &[IpAddr], resolve| Families::of(addresses, resolve).order(found.clone());
        assert_eq!(order(&both, Resolve::Auto), of(&["2001:db8::1", "192.0.2.1", "192.0.2.2"]));
        assert_eq!(order(&both, Resolve::Ipv4), of(&["192.0.2.1", "2001:db8::1", "192.0.2.2"]));
        assert_eq!(order(&both[..1], Resolve::Auto), of(&["192.0.2.1", "192.0.2.2"]));
        assert_eq!(order(&both[..1], Resolve::Ipv6), of(&["192.0.2.1", "192.0.2.2"]));
        assert_eq!(order(&both[1..], Resolve::Ipv4), of(&["2001:db8::1"]));
    }
}
