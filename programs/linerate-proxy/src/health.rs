//! `/livez`, `/readyz` and `/metrics`, for whoever watches the proxy; and the checks that `/readyz` tells of.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use linerate_sockets::{Sockets, Stream};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::server::{Server, locked};
use crate::wait::Io;

/// How long a request may take, and after how long a connection is over.
const PATIENCE: Duration = Duration::from_secs(10);
const LIFE: Duration = Duration::from_secs(300);

/// How much later than its interval an answer may come.
const LEEWAY: Duration = Duration::from_secs(2);

/// What the tunnel says of itself: the UAPI's text, without keys that are secret.
pub type Report = Arc<dyn Fn() -> String + Send + Sync>;

/// What is told.
pub struct Health {
    server: Arc<Server>,
    report: Report,
    interval: Duration,
    /// When each address has last answered, in seconds since 1970; 0 if it never has.
    answered: Mutex<BTreeMap<IpAddr, u64>>,
}

impl Health {
    /// Tells of `server`, its tunnel, and of `addresses`, which are asked every `interval`.
    pub fn new(server: Arc<Server>, report: Report, addresses: &[IpAddr], interval: Duration) -> Self {
        let answered = Mutex::new(addresses.iter().map(|address| (*address, 0)).collect());
        Self { server, report, interval, answered }
    }

    /// Asks an address for ever. One echo may be lost: what answers the second is as recent as [`LEEWAY`] allows.
    pub async fn check(self: Arc<Self>, sockets: Arc<dyn Sockets>, address: IpAddr) {
        let first = (LEEWAY / 2).min(self.interval / 2);
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for patience in [first, self.interval - first] {
                if let Ok(Ok(())) = timeout(patience, sockets.ping(address)).await {
                    locked(&self.answered).insert(address, now());
                    break;
                }
            }
        }
    }

    /// Serves a client.
    pub async fn serve(self: Arc<Self>, client: Box<dyn Stream>) {
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = self.answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        let mut connection = http1::Builder::new();
        connection.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(16 << 10);
        let _ = timeout(LIFE, connection.serve_connection(TokioIo::new(Io::new(client)), service)).await;
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return told(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET is all there is\n".to_owned());
        }
        match request.uri().path() {
            "/livez" => told(StatusCode::OK, "text/plain", "ok\n".to_owned()),
            "/readyz" => self.readiness(now()),
            "/metrics" => {
                let accepts = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
                // Prometheus asks for its format; whoever does not gets what wireproxy tells.
                if accepts.is_some_and(|accepts| accepts.contains("version=0.0.4") || accepts.contains("openmetrics")) {
                    told(StatusCode::OK, "text/plain; version=0.0.4", self.metrics())
                } else {
                    told(StatusCode::OK, "text/plain", (self.report)())
                }
            }
            _ => told(StatusCode::NOT_FOUND, "text/plain", "there are /livez, /readyz and /metrics\n".to_owned()),
        }
    }

    /// As wireproxy's: when each address has last answered, and whether that is recent for all of them.
    fn readiness(&self, now: u64) -> Response<Full<Bytes>> {
        let answered = locked(&self.answered);
        let oldest = now.saturating_sub((self.interval + LEEWAY).as_secs());
        let is_ready = answered.values().all(|&last| last >= oldest);
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let json = serde_json::to_string(&*answered).unwrap_or_default();
        told(status, "application/json", json + "\n")
    }

    fn metrics(&self) -> String {
        let (counters, memory) = (&self.server.counters, &self.server.memory);
        let mut text = String::new();
        let mut tell = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let one = |value: u64| [(String::new(), value)];
        let open = counters.open.load(Ordering::Relaxed) as u64;
        tell("linerate_proxy_connections", "gauge", "Connections that are open.", &one(open));
        let accepted = counters.accepted.load(Ordering::Relaxed);
        tell("linerate_proxy_connections_total", "counter", "Connections that were taken in.", &one(accepted));
        let sent = memory.sent.load(Ordering::Relaxed);
        tell("linerate_proxy_sent_bytes_total", "counter", "Bytes passed into the tunnel.", &one(sent));
        let received = memory.received.load(Ordering::Relaxed);
        tell("linerate_proxy_received_bytes_total", "counter", "Bytes passed out of the tunnel.", &one(received));
        let kept = memory.kept() as u64;
        tell("linerate_proxy_waiting_bytes", "gauge", "Bytes that wait for slow readers.", &one(kept));
        let dropped = counters.datagrams_dropped.load(Ordering::Relaxed);
        let help = "Datagrams that were dropped for want of room.";
        tell("linerate_proxy_datagrams_dropped_total", "counter", help, &one(dropped));
        let refused = linerate_privileges::calls_refused();
        let help = "System calls that were refused because the proxy does not need them.";
        tell("linerate_proxy_system_calls_refused_total", "counter", help, &one(refused));
        let failures = counters.failures();
        let failures: Vec<_> =
            failures.into_iter().map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), count)).collect();
        tell("linerate_proxy_failures_total", "counter", "Connections that could not be made.", &failures);
        text
    }
}

fn told(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;

    use linerate_sockets::{Datagrams, Listener, Pending};
    use tokio::time::Instant;

    use super::*;
    use crate::config::Resolve;
    use crate::dial::Dialer;
    use crate::names::{Families, Names, Source};

    /// A tunnel that loses the first echo.
    #[derive(Default)]
    struct Lossy(Mutex<Vec<Instant>>);

    impl Sockets for Lossy {
        fn connect(&self, _: SocketAddr) -> Pending<Box<dyn Stream>> {
            Box::pin(std::future::pending())
        }

        fn listen(&self, _: SocketAddr) -> io::Result<Box<dyn Listener>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn bind(&self, _: SocketAddr) -> io::Result<Box<dyn Datagrams>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn ping(&self, _: IpAddr) -> Pending<()> {
            let mut asked = locked(&self.0);
            asked.push(Instant::now());
            if asked.len() == 1 { Box::pin(std::future::pending()) } else { Box::pin(async { Ok(()) }) }
        }
    }

    #[test]
    fn a_lost_echo_is_asked_for_again_before_its_time_is_over() {
        let tunnel = Arc::new(Lossy::default());
        let names =
            Names::new(Source::Tunnel(Vec::new(), Vec::new()), tunnel.clone(), Families::of(&[], Resolve::Auto));
        let server = Arc::new(Server::new(Dialer::new(tunnel.clone(), names, Vec::new(), Vec::new())));
        let address = IpAddr::from([10, 0, 0, 1]);
        let health = Health::new(server, Arc::new(String::new), &[address], Duration::from_secs(5));
        let health = Arc::new(health);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let begin = runtime.block_on(async {
            let begin = Instant::now();
            let _ = timeout(Duration::from_secs(11), health.clone().check(tunnel.clone(), address)).await;
            begin
        });
        let asked: Vec<_> = locked(&tunnel.0).iter().map(|at| at.duration_since(begin).as_secs()).collect();
        assert_eq!(asked, [0, 1, 5, 10]);
        assert_eq!(health.readiness(now()).status(), StatusCode::OK);
    }
}
