//! An HTTP proxy: CONNECT, and requests of all methods in absolute form. hyper reads and writes HTTP/1; here is what
//! makes a proxy of it.

pub mod head;

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1 as http_server;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use linerate_sockets::Stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use self::head::Wanted;
use crate::config::Login;
use crate::failure::Failure;
use crate::relay::relay;
use crate::server::{Server, locked};
use crate::target::Target;
use crate::tls;
use crate::wait::{self, Io};

/// How long the head of a request, and a TLS handshake, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a target may do nothing about a request, neither take more of it nor answer.
const SILENCE: Duration = Duration::from_secs(300);

/// The longest head, which is also how much of a body is read ahead.
const LONGEST_HEAD: usize = 32 << 10;

/// The most headers.
const MOST_HEADERS: usize = 128;

/// A body of ours, or one that is passed on.
type Body = Either<Full<Bytes>, Incoming>;

/// What a client's connection is about, beside the request that is answered.
#[derive(Default)]
struct State {
    /// What becomes of it once hyper is through with it.
    handover: Option<Handover>,
    /// Its place among those that have buffers of hyper on both sides.
    buffered: Option<OwnedSemaphorePermit>,
}

/// What becomes of a client's connection once hyper is through with it, which is so after every CONNECT. It is served
/// to its end where it was taken in, so that the bounds and counts of connections hold for it.
struct Handover {
    upgraded: OnUpgrade,
    /// What it is connected to. A refused one has nothing: dropped at once it would be reset, and the answer lost.
    inside: Option<Inside>,
}

/// A connection in the tunnel.
enum Inside {
    /// By CONNECT.
    Connected(Box<dyn Stream>),
    /// That of a request, which goes on with another protocol, as a WebSocket does.
    Upgraded(OnUpgrade),
}

/// An HTTP proxy.
pub struct Http {
    /// Who is served; everybody if there is none.
    pub login: Option<Login>,
    /// Clients speak TLS to the proxy.
    pub tls: Option<TlsAcceptor>,
}

impl Http {
    /// Serves a client's requests, one after the other.
    pub async fn serve(self: Arc<Self>, server: Arc<Server>, client: Box<dyn Stream>) {
        let client = match &self.tls {
            None => client,
            Some(acceptor) => match timeout(PATIENCE, Box::pin(tls::accept(acceptor, client))).await {
                Ok(Ok(client)) => client,
                _ => return,
            },
        };
        let state = Arc::new(Mutex::new(State::default()));
        let service = service_fn(|request: Request<Incoming>| {
            let (this, server, state) = (self.clone(), server.clone(), state.clone());
            async move { Ok::<_, Infallible>(this.answer(&server, request, &state).await) }
        });
        let mut connection = http_server::Builder::new();
        connection
            .timer(TokioTimer::new())
            // Whoever has sent all requests may end that half, as in every other protocol here.
            .half_close(true)
            .header_read_timeout(PATIENCE)
            .max_buf_size(LONGEST_HEAD)
            .max_headers(MOST_HEADERS)
            .preserve_header_case(true);
        // What goes wrong here is that somebody went away.
        let _ = Box::pin(connection.serve_connection(TokioIo::new(Io::new(client)), service).with_upgrades()).await;
        let State { handover, buffered } = std::mem::take(&mut *locked(&state));
        drop(buffered);
        if let Some(Handover { upgraded, inside }) = handover
            && let Some((client, first)) = handed_over(upgraded).await
        {
            match inside {
                Some(inside) => join(client, first, inside, &server).await,
                None => wait::close(client).await,
            }
        }
    }

    async fn answer(
        &self,
        server: &Arc<Server>,
        mut request: Request<Incoming>,
        state: &Mutex<State>,
    ) -> Response<Body> {
        let upgraded = request.extensions_mut().remove::<OnUpgrade>();
        // What an earlier request left here stays: it is the connection's all the same.
        let hand_over = |inside| {
            if let Some(upgraded) = upgraded {
                locked(state).handover = Some(Handover { upgraded, inside });
            }
        };
        let answer = match self.refusal(&request) {
            Some(refusal) => refusal,
            None => match head::wanted(request.method(), request.uri()) {
                Ok(Wanted::Tunnel(target)) => match server.connect(&target).await {
                    Ok(inside) => {
                        hand_over(Some(Inside::Connected(inside)));
                        return Response::new(Either::Left(Full::default()));
                    }
                    Err(failure) => failed(&failure),
                },
                Ok(Wanted::Request(_)) if !has_place(server, state) => failed(&Failure::Busy),
                Ok(Wanted::Request(target)) => {
                    let mut answer = pass_on(server, request, target).await;
                    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                        hand_over(Some(Inside::Upgraded(hyper::upgrade::on(&mut answer))));
                    }
                    return answer;
                }
                Err(sentence) => text(StatusCode::BAD_REQUEST, sentence),
            },
        };
        hand_over(None);
        answer
    }

    fn refusal(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        if self.login.as_ref().is_some_and(|login| !head::is_admitted(request.headers(), login)) {
            let mut refusal = text(StatusCode::PROXY_AUTHENTICATION_REQUIRED, "a name and a password are needed");
            let challenge = HeaderValue::from_static("Basic realm=\"linerate\", charset=\"UTF-8\"");
            refusal.headers_mut().insert(header::PROXY_AUTHENTICATE, challenge);
            return Some(refusal);
        }
        None
    }
}

/// Passes on what a client and the other end say to each other after HTTP.
async fn join(mut client: Box<dyn Stream>, first: Vec<u8>, inside: Inside, server: &Server) {
    let inside = match inside {
        Inside::Connected(inside) => inside,
        Inside::Upgraded(upgraded) => {
            let Some((inside, said)) = handed_over(upgraded).await else { return wait::close(client).await };
            if wait::write_all(&mut *client, &said).await.is_err() {
                return;
            }
            inside
        }
    };
    let _ = relay(client, first, inside, &server.memory).await;
}

/// A connection without HTTP, and what it has sent already.
async fn handed_over(upgraded: OnUpgrade) -> Option<(Box<dyn Stream>, Vec<u8>)> {
    let parts = upgraded.await.ok()?.downcast::<TokioIo<Io>>().ok()?;
    Some((parts.io.into_inner().into_inner()?, parts.read_buf.to_vec()))
}

/// Whether a connection is, or now becomes, one of those whose requests are passed on.
fn has_place(server: &Server, state: &Mutex<State>) -> bool {
    let mut state = locked(state);
    if state.buffered.is_none() {
        state.buffered = server.counted(server.buffered.clone().try_acquire_owned().map_err(|_| Failure::Busy)).ok();
    }
    state.buffered.is_some()
}

/// Passes a request on, and its answer back.
async fn pass_on(server: &Arc<Server>, request: Request<Incoming>, target: Target) -> Response<Body> {
    let inside = match server.connect(&target).await {
        Ok(inside) => inside,
        Err(failure) => return failed(&failure),
    };
    let (mut head, body) = request.into_parts();
    head::pass_on(&mut head, &target);
    let asks_for_upgrade = head.headers.contains_key(header::UPGRADE);
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(LONGEST_HEAD).max_headers(MOST_HEADERS).preserve_header_case(true);
    let taken = Arc::new(AtomicU64::new(0));
    let counted = taken.clone();
    let body = body.map_frame(move |frame| {
        counted.fetch_add(1, Ordering::Relaxed);
        frame
    });
    let outcome = async {
        let (mut sender, connection) = builder.handshake(TokioIo::new(Io::new(inside))).await?;
        tokio::spawn(connection.with_upgrades());
        sender.send_request(Request::from_parts(head, body)).await
    };
    match unless_silent(outcome, &taken, SILENCE).await {
        None => failed(&server.counted::<()>(Err(Failure::TimedOut)).unwrap_err()),
        Some(Ok(answer)) if answer.status() == StatusCode::SWITCHING_PROTOCOLS && !asks_for_upgrade => {
            text(StatusCode::BAD_GATEWAY, &format!("{target} goes on with another protocol, which nobody asked for"))
        }
        Some(Ok(mut answer)) => {
            let is_agreed = matches!(answer.status(), StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED);
            let protocol = head::upgrade(answer.headers()).filter(|_| is_agreed);
            head::strip(answer.headers_mut());
            if let Some(protocol) = protocol {
                head::ask_for(answer.headers_mut(), protocol);
            }
            *answer.version_mut() = hyper::Version::HTTP_11;
            answer.map(Either::Right)
        }
        Some(Err(error)) => text(StatusCode::BAD_GATEWAY, &format!("{target} did not answer the request: {error}")),
    }
}

/// What `answer` gives; none if for so long `progress` has not changed and there is nothing.
async fn unless_silent<T>(answer: impl Future<Output = T>, progress: &AtomicU64, patience: Duration) -> Option<T> {
    let mut answer = pin!(answer);
    loop {
        let before = progress.load(Ordering::Relaxed);
        match timeout(patience, answer.as_mut()).await {
            Ok(answer) => return Some(answer),
            Err(_) if progress.load(Ordering::Relaxed) == before => return None,
            Err(_) => {}
        }
    }
}

fn failed(failure: &Failure) -> Response<Body> {
    let status = match failure {
        Failure::TimedOut | Failure::NoAnswer(_) => StatusCode::GATEWAY_TIMEOUT,
        Failure::Forbidden(_) => StatusCode::FORBIDDEN,
        Failure::Busy => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    };
    text(status, &failure.to_string())
}

fn text(status: StatusCode, sentence: &str) -> Response<Body> {
    let mut answer = Response::new(Either::Left(Full::from(format!("linerate-proxy: {sentence}\n"))));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[test]
    fn only_who_does_nothing_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let taken = AtomicU64::new(0);
        runtime.block_on(async {
            let begin = Instant::now();
            let uploads = async {
                for _ in 0..5 {
                    sleep(SILENCE * 2 / 3).await;
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            };
            assert_eq!(unless_silent(uploads, &taken, SILENCE).await, Some(()));
            assert!(begin.elapsed() > 3 * SILENCE);
            assert_eq!(unless_silent(std::future::pending::<()>(), &taken, SILENCE).await, None);
        });
    }
}
