//! Connections: how many there are, how long they last, and how little somebody who says or reads nothing keeps.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::guard::network;
use crate::server::{Server, locked};
use crate::sessions::Hash;

/// Maximum number of connections. Any user of this host can open many, so a further connection replaces one of the session
/// with the most connections; connections without a session count as one session.
const MAX_CONNECTIONS: usize = 512;

/// Maximum number of connections from one remote source; a browser opens six.
const MAX_CONNECTIONS_PER_SOURCE: usize = 32;

/// Timeout for a request's head, and for a TLS handshake.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Age at which a connection accepts no further request. A browser opens another connection.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60);

/// Time after that at which the connection is closed, even if the last answer was not read. Longer than the helper's timeout.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(90);

/// The connections that are open, the oldest first.
#[derive(Default)]
struct Places(Mutex<Vec<Arc<Place>>>);

/// The place of one connection. Each of its requests carries it as an extension.
#[derive(Default)]
pub(crate) struct Place {
    /// The session whose cookie a request on this connection has carried.
    session: Mutex<Option<Hash>>,
    /// Wakes the connection to close, once another one has taken its place.
    is_taken: Notify,
}

impl Place {
    /// Assigns the place to a session. This happens before the request is answered: an attacker could open `MAX_CONNECTIONS`
    /// connections faster than the helper answers.
    pub(crate) fn keep(&self, session: &Hash) {
        *locked(&self.session) = Some(session.clone());
    }

    fn session(&self) -> Option<Hash> {
        locked(&self.session).clone()
    }
}

impl Places {
    /// Takes a place for a new connection; if none is free, that of the least entitled one.
    fn take(&self) -> Arc<Place> {
        let mut places = locked(&self.0);
        if places.len() >= MAX_CONNECTIONS {
            let taken = least_entitled(&places);
            places.remove(taken).is_taken.notify_one();
        }
        let place = Arc::<Place>::default();
        places.push(place.clone());
        place
    }

    fn give_back(&self, place: &Arc<Place>) {
        locked(&self.0).retain(|other| !Arc::ptr_eq(other, place));
    }
}

/// Picks the place to give up: the oldest of the session with the most places. Connections without a session count as one
/// session: a new connection has none until its cookie is read, and must not be closed while a session has hundreds.
fn least_entitled(places: &[Arc<Place>]) -> usize {
    let sessions: Vec<Option<Hash>> = places.iter().map(|place| place.session()).collect();
    let mut counts: HashMap<Option<&Hash>, usize> = HashMap::new();
    sessions.iter().for_each(|session| *counts.entry(session.as_ref()).or_default() += 1);
    let busiest = counts.into_iter().max_by_key(|(session, count)| (*count, session.is_none()));
    let oldest = |session: Option<&Hash>| sessions.iter().position(|other| other.as_ref() == session);
    busiest.and_then(|(session, _)| oldest(session)).unwrap_or(0)
}

/// How many connections each source has.
#[derive(Default)]
struct Sources(Mutex<HashMap<IpAddr, usize>>);

/// One of the connections of a source.
struct Share {
    sources: Arc<Sources>,
    source: Option<IpAddr>,
}

impl Sources {
    /// One connection more, unless `source` has enough. Who is on this host, or behind the proxy, shares an address
    /// with others.
    fn share(self: &Arc<Self>, source: IpAddr, is_shared: bool) -> Option<Share> {
        let source = Some(network(source)).filter(|_| !is_shared && !source.is_loopback());
        if let Some(source) = source {
            let mut known = locked(&self.0);
            let count = known.entry(source).or_default();
            if *count >= MAX_CONNECTIONS_PER_SOURCE {
                return None;
            }
            *count += 1;
        }
        Some(Share { sources: self.clone(), source })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut known = locked(&self.sources.0);
        let Some(source) = self.source else { return };
        if let Some(count) = known.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                known.remove(&source);
            }
        }
    }
}

pub(crate) async fn accept_tcp(listener: &TcpListener, server: Arc<Server>, tls: Option<TlsAcceptor>) -> ! {
    let (places, sources) = (Arc::<Places>::default(), Arc::<Sources>::default());
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // Out of descriptors, most likely.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let peer = from.ip().to_canonical();
        if server.proxy.is_some_and(|proxy| proxy != peer) {
            continue;
        }
        let Some(share) = sources.share(peer, server.proxy.is_some()) else { continue };
        let place = places.take();
        let (server, tls, places) = (server.clone(), tls.clone(), places.clone());
        tokio::spawn(async move {
            let talk = async {
                match tls {
                    None => converse(stream, server, Some(peer), false, &place).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
                            converse(stream, server, Some(peer), true, &place).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = talk => {}
                () = place.is_taken.notified() => {}
            }
            places.give_back(&place);
            drop(share);
        });
        // Lets the new connection's task read a request before the next connection is accepted. Otherwise, in a flood,
        // each would lose its place before it could send its cookie.
        yield_now().await;
    }
}

/// Accepts connections on a Unix socket. Only this user and root can open it, so others cannot take its places.
pub(crate) async fn accept_unix(listener: &UnixListener, server: Arc<Server>) -> ! {
    let places = Arc::<Places>::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let place = places.take();
        let (server, places) = (server.clone(), places.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = converse(stream, server, None, false, &place) => {}
                () = place.is_taken.notified() => {}
            }
            places.give_back(&place);
        });
        yield_now().await;
    }
}

/// Answers the requests of a connection.
async fn converse<S>(stream: S, server: Arc<Server>, peer: Option<IpAddr>, is_tls: bool, place: &Arc<Place>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let service = service_fn(|mut request: Request<Incoming>| {
        let server = server.clone();
        request.extensions_mut().insert(place.clone());
        async move { Ok::<_, std::convert::Infallible>(server.answer(request, peer, is_tls).await) }
    });
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(16 << 10).max_headers(64);
    let mut connection = std::pin::pin!(connection.serve_connection(TokioIo::new(stream), service));
    // What goes wrong here is that somebody went away.
    if timeout(CONNECTION_LIFETIME, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(CLOSE_TIMEOUT, connection).await;
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use hyper::body::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;
    use crate::server::tests::host;
    use crate::sessions::Role;

    const REQUEST: &[u8] = b"GET /style.css HTTP/1.1\r\nHost: localhost:7789\r\n\r\n";

    fn source(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// Time passes only while everybody waits.
    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(test)
    }

    #[test]
    fn who_says_nothing_or_only_the_beginning_is_cut_off() {
        let host = host();
        for said in [&b""[..], b"G", b"GET / HTTP/1.1\r\nHost: localhost:7789\r\n"] {
            run(async {
                let (mut client, stream) = duplex(64 << 10);
                client.write_all(said).await.unwrap();
                let started = Instant::now();
                let place = Arc::default();
                let conversation = converse(stream, host.server.clone(), None, false, &place);
                timeout(Duration::from_secs(3600), conversation).await.expect("it never ends");
                assert!(started.elapsed() <= HEAD_TIMEOUT + Duration::from_secs(1), "{:?}", started.elapsed());
            });
        }
    }

    #[test]
    fn who_asks_and_does_not_read_is_cut_off() {
        let host = host();
        run(async {
            let (mut client, stream) = duplex(1 << 10);
            // As many requests as are taken, and nothing is read.
            tokio::spawn(async move { while client.write_all(REQUEST).await.is_ok() {} });
            let started = Instant::now();
            let place = Arc::default();
            let conversation = converse(stream, host.server.clone(), None, false, &place);
            timeout(Duration::from_secs(3600), conversation).await.expect("it never ends");
            assert!(
                started.elapsed() <= CONNECTION_LIFETIME + CLOSE_TIMEOUT + Duration::from_secs(1),
                "{:?}",
                started.elapsed()
            );
        });
    }

    #[test]
    fn who_goes_on_asking_has_a_new_connection_now_and_then() {
        let host = host();
        run(async {
            let (mut client, stream) = duplex(64 << 10);
            let server = host.server.clone();
            tokio::spawn(async move { converse(stream, server, None, false, &Arc::default()).await });
            let (mut answers, mut some) = (0, [0; 64 << 10]);
            while client.write_all(REQUEST).await.is_ok() && client.read(&mut some).await.unwrap_or(0) > 0 {
                answers += 1;
                sleep(Duration::from_secs(2)).await;
            }
            assert!((29..=33).contains(&answers), "{answers}");
        });
    }

    #[test]
    fn one_more_connection_takes_the_place_of_the_least_entitled() {
        let places = Places::default();
        let has = |place: &Arc<Place>| locked(&places.0).iter().any(|other| Arc::ptr_eq(other, place));
        let strangers: Vec<_> = (0..MAX_CONNECTIONS).map(|_| places.take()).collect();
        strangers[0].keep(&"writer".to_owned());
        let readers: Vec<_> = (0..MAX_CONNECTIONS - 1).map(|_| places.take()).collect();
        assert!(has(&strangers[0]), "a connection with a session stays");
        assert!(!strangers[1..].iter().any(has));
        // All places have a session: one session has all but one of them.
        readers.iter().for_each(|place| place.keep(&"reader".to_owned()));
        for round in 0..10 {
            places.take().keep(&"writer".to_owned());
            assert!(has(&strangers[0]) && !has(&readers[round]) && has(&readers[round + 1]), "{round}");
        }
        // A connection that has not sent its cookie yet is not closed first.
        let silent = places.take();
        places.take().keep(&"writer".to_owned());
        assert!(has(&silent) && !has(&readers[11]));
        places.give_back(&strangers[0]);
        assert_eq!(locked(&places.0).len(), MAX_CONNECTIONS - 1);
    }

    #[test]
    fn a_place_is_kept_once_a_session_is_shown_however_long_the_answer_takes() {
        let host = host();
        let (cookie, _) = host.log_in(Role::Reader);
        for (cookie, is_kept) in [(cookie.as_str(), true), ("linerate-session=0", false)] {
            let request = Request::builder().uri("/").header("host", "localhost:7789").header("cookie", cookie);
            let mut request = request.body(Full::<Bytes>::default()).unwrap();
            let place = Arc::<Place>::default();
            request.extensions_mut().insert(place.clone());
            // The request is dropped before it is answered.
            run(async { drop(timeout(Duration::ZERO, host.server.answer(request, None, false)).await) });
            assert_eq!(place.session().is_some(), is_kept, "{cookie}");
        }
    }

    #[test]
    fn a_source_has_a_share_of_the_connections() {
        let sources = Arc::<Sources>::default();
        let all: Vec<_> = (0..MAX_CONNECTIONS_PER_SOURCE).map(|_| sources.share(source(1), false).unwrap()).collect();
        assert!(sources.share(source(1), false).is_none());
        assert!(sources.share(source(2), false).is_some());
        assert!(sources.share(source(1), true).is_some(), "behind a proxy");
        drop(all);
        assert!(sources.share(source(1), false).is_some());
        assert!(locked(&sources.0).is_empty());
        let local: Vec<_> = (0..MAX_CONNECTIONS).map(|_| sources.share([127, 0, 0, 1].into(), false)).collect();
        assert!(local.iter().all(Option::is_some));
    }
}
