//! From a connection to an answer: limits, then who asks, from where, and whether they may, then the page.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use jiff::tz::TimeZone;
use linerate_cli::eprint_line;
use linerate_page::{Change, Peer, Reply, Request as Ask, Sort, Tunnel};
use linerate_server::ClientName;
use maud::Markup;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::connections::Place;
use crate::guard::Guard;
use crate::helper::Helper;
use crate::history::Window;
use crate::mount::Mount;
use crate::origin::{self, Hosts, Source};
use crate::pages::{self, Selection, Shown, Traffic, Viewer};
use crate::recorder::Recorder;
use crate::routes::{self, Form, Page, Route, Verb, key_of_path};
use crate::sessions::{Copied, Found, Role, Sessions, form_secret, label, wall};

const LONGEST_FORM: usize = 8 << 10;

const FORM_TIMEOUT: Duration = Duration::from_secs(10);

/// The name of the session's cookie; over TLS one that no other host and no page without TLS can set.
const COOKIE: &str = "linerate-session";
const COOKIE_OVER_TLS: &str = "__Host-linerate-session";
/// Browsers accept `__Host-` only for the path `/`, and below a path the host's other pages must not get the cookie.
const COOKIE_BELOW_A_PATH: &str = "__Secure-linerate-session";

/// Nothing from elsewhere, and no script or style but ours.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(crate) type Answer = Response<Full<Bytes>>;

/// The page's program.
pub(crate) struct Server {
    pub(crate) helper: Helper,
    pub(crate) sessions: Mutex<Sessions>,
    pub(crate) guard: Mutex<Guard>,
    pub(crate) recorder: Mutex<Recorder>,
    pub(crate) hosts: Hosts,
    pub(crate) proxy: Option<IpAddr>,
    pub(crate) mount: Mount,
    pub(crate) zone: TimeZone,
}

/// A request of somebody who may make it.
struct Asked<'a> {
    names: Vec<&'a str>,
    query: Form,
    form: Form,
    viewer: Viewer,
    /// Who, for the audit.
    who: String,
}

/// An answer that is no page of a tunnel.
enum Failure {
    NotFound(String),
    Refused(String),
    Helper(String),
}

impl Server {
    /// The answer to a request from `peer`.
    pub(crate) async fn answer<B>(&self, request: Request<B>, peer: Option<IpAddr>, is_tls: bool) -> Answer
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let source = origin::source(&parts.headers, peer, is_tls, self.proxy);
        let found = self.session(&parts.headers, source);
        if let (Some(found), Some(place)) = (&found, parts.extensions.get::<Arc<Place>>()) {
            place.keep(&found.id);
        }
        let mut answer = match self.dispatch(&parts, body, source, found.as_ref()).await {
            Ok(answer) | Err(answer) => answer,
        };
        // An answer that logs in or out sets the cookie itself.
        let replacement = found.and_then(|found| found.replacement);
        if let Some((secret, seconds)) = replacement.filter(|_| !answer.headers().contains_key(header::SET_COOKIE)) {
            self.set_cookie(&mut answer, &secret, seconds, source.is_tls);
        }
        let mut answer = self.mount.outside(answer).await;
        let headers = answer.headers_mut();
        let fixed = [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    fn cookie_name(&self, is_tls: bool) -> &'static str {
        match is_tls {
            true if self.mount.is_root() => COOKIE_OVER_TLS,
            true => COOKIE_BELOW_A_PATH,
            false => COOKIE,
        }
    }

    fn set_cookie(&self, answer: &mut Answer, secret: &str, seconds: u64, is_tls: bool) {
        let (name, path) = (self.cookie_name(is_tls), self.mount.cookie_path());
        let secure = if is_tls { "; Secure" } else { "" };
        let text = format!("{name}={secret}; Path={path}; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
        let text = Zeroizing::new(text);
        if let Ok(mut value) = HeaderValue::from_str(&text) {
            value.set_sensitive(true);
            answer.headers_mut().insert(header::SET_COOKIE, value);
        }
    }

    /// Finds the session of a request by its cookie.
    fn session(&self, headers: &HeaderMap, source: Source) -> Option<Found> {
        let secret = cookie(headers, self.cookie_name(source.is_tls))?;
        locked(&self.sessions).find(secret, wall()).unwrap_or_else(|Copied(label)| {
            let what =
                format!("session {label} has ended: an old cookie was used after the new one, so somebody has a copy");
            audit(&address(source.address), &what);
            None
        })
    }

    async fn dispatch<B>(
        &self,
        parts: &Parts,
        body: B,
        source: Source,
        session: Option<&Found>,
    ) -> Result<Answer, Answer>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let headers = &parts.headers;
        let host = origin::host(headers).filter(|host| self.hosts.have(host)).ok_or_else(|| {
            let message = "This page does not answer to that name. linerate-web takes others by --name.";
            failed(None, StatusCode::MISDIRECTED_REQUEST, "Another host", message)
        })?;
        let is_post = parts.method == Method::POST;
        if is_post && !origin::is_own(headers, host, source.is_tls) {
            return Err(failed(None, StatusCode::FORBIDDEN, "Refused", "The form was not sent by this page."));
        }
        let role = session.map_or(Role::Nobody, |session| session.role);
        let route = routes::route(&parts.method, self.mount.inside(parts.uri.path()));
        // Nobody learns which paths there are.
        if role == Role::Nobody && route.as_ref().is_none_or(|(route, _)| route.role > Role::Nobody) {
            return Err(if is_post {
                failed(None, StatusCode::FORBIDDEN, "Not logged in", "The session is over: log in again.")
            } else {
                redirect("/login")
            });
        }
        let id = session.map(|session| &*session.id);
        let viewer = Viewer { role, form: id.map(form_secret).unwrap_or_default() };
        let somebody = (role > Role::Nobody).then_some(&viewer);
        let Some((route, names)) = route else {
            return Err(failed(somebody, StatusCode::NOT_FOUND, "Not found", "There is no such page."));
        };
        if route.role > role {
            let message =
                "This session may only look. `linerate-web token' without --read-only makes one that may more.";
            return Err(failed(somebody, StatusCode::FORBIDDEN, "Refused", message));
        }
        let form = if is_post { Form::read(&read(body).await?) } else { Form::read("") };
        if form.has_control_characters() {
            return Err(failed(somebody, StatusCode::BAD_REQUEST, "Refused", "A text has control characters."));
        }
        if is_post && route.role > Role::Nobody && !is_same(form.get("form"), &viewer.form) {
            return Err(failed(somebody, StatusCode::FORBIDDEN, "Refused", "The form was not made by this page."));
        }
        let who = format!("{} session {}", address(source.address), id.map(label).unwrap_or_default());
        let query = Form::read(parts.uri.query().unwrap_or_default());
        self.page(route, Asked { names, query, form, viewer, who }, id, source).await
    }

    async fn page(
        &self,
        route: &Route,
        asked: Asked<'_>,
        session: Option<&str>,
        source: Source,
    ) -> Result<Answer, Answer> {
        let markup = match route.page {
            Page::Style => return Ok(file("text/css; charset=utf-8", include_str!("style.css"))),
            Page::Script => return Ok(file("text/javascript; charset=utf-8", include_str!("page.js"))),
            Page::Icon => return Ok(file("image/svg+xml", include_str!("icon.svg"))),
            Page::LogInForm if asked.viewer.role > Role::Nobody => return Ok(redirect("/")),
            Page::LogInForm => return Ok(html(StatusCode::OK, pages::log_in(None))),
            Page::LogIn => return Ok(self.log_in(asked.form.get("token"), asked.form.has("keep"), source)),
            Page::LogOut => {
                session.into_iter().for_each(|id| locked(&self.sessions).end(id));
                audit(&asked.who, "logged out");
                let mut answer = redirect("/login");
                self.set_cookie(&mut answer, "", 0, source.is_tls);
                return Ok(answer);
            }
            Page::Sessions => {
                let all = locked(&self.sessions).all(wall());
                let own = session.map(label).unwrap_or_default();
                return Ok(html(StatusCode::OK, pages::sessions(&asked.viewer, &all, &own, wall())));
            }
            Page::EndSessions => {
                self.end_sessions(&asked, session.unwrap_or_default());
                return Ok(redirect("/sessions"));
            }
            Page::File => return self.file(&asked).await.map_err(|failure| failure.answer(&asked.viewer)),
            Page::Change(verb) => {
                return self.change(&asked, verb).await.map_err(|failure| failure.answer(&asked.viewer));
            }
            Page::Overview => self.overview(&asked).await,
            Page::Findings => self.findings(&asked).await,
            Page::Tunnel => self.tunnel(&asked).await,
            Page::Peer => self.peer(&asked, Shown { done: done(asked.query.get("done")), refusal: None }).await,
            Page::Code => self.code(&asked).await,
            Page::AddForm => {
                self.server_of(&asked).await.map(|tunnel| pages::add_form(&asked.viewer, &tunnel, &asked.form, None))
            }
            Page::Add => self.add(&asked).await,
            Page::RemoveForm => {
                self.client(&asked).await.map(|(tunnel, peer, _)| pages::remove_form(&asked.viewer, &tunnel, &peer))
            }
        };
        match markup {
            Ok(markup) => Ok(html(StatusCode::OK, markup)),
            Err(failure) => Err(failure.answer(&asked.viewer)),
        }
    }

    /// Ends the session whose label the form contains, or all except the viewer's own.
    fn end_sessions(&self, asked: &Asked<'_>, own: &str) {
        let mut sessions = locked(&self.sessions);
        let chosen = asked.form.get("session");
        let is_meant = |id: &str| if chosen == "others" { id != own } else { label(id) == chosen };
        let ended: Vec<String> = sessions.all(wall()).into_iter().map(|(id, _)| id).filter(|id| is_meant(id)).collect();
        for id in ended {
            sessions.end(&id);
            audit(&asked.who, &format!("ended session {}", label(&id)));
        }
    }

    /// Logs in with a token. Failed guesses of others never delay a right token: it has 160 bits, so it suffices to
    /// limit failures.
    fn log_in(&self, token: &str, kept: bool, source: Source) -> Answer {
        let now = Instant::now();
        let begun = locked(&self.sessions).log_in(token, kept, wall());
        let mut guard = locked(&self.guard);
        match begun {
            Ok(Some((secret, role, seconds))) => {
                guard.succeeded(source.address);
                let what = if role == Role::Writer { "change" } else { "look" };
                audit(&address(source.address), &format!("logged in to {what}"));
                let mut answer = redirect("/");
                self.set_cookie(&mut answer, &secret, seconds, source.is_tls);
                answer
            }
            Ok(None) => {
                if let Err(wait) = guard.admit(source.address, now) {
                    return too_many(&mut guard, source, now, wait);
                }
                let admitted = guard.admit_failure(now);
                guard.failed(source.address, now);
                if let Err(wait) = admitted {
                    return too_many(&mut guard, source, now, wait);
                }
                audit_refusal(&mut guard, source, now, "no such token");
                let message = "This is no token, or it was used already, or it is older than a quarter of an hour.";
                html(StatusCode::FORBIDDEN, pages::log_in(Some(message)))
            }
            Err(message) => html(StatusCode::INTERNAL_SERVER_ERROR, pages::log_in(Some(&message))),
        }
    }

    async fn overview(&self, asked: &Asked<'_>) -> Result<Markup, Failure> {
        let tunnels = match self.ask(&Ask::Tunnels).await? {
            Reply::Tunnels { tunnels, .. } => tunnels,
            _ => return Err(unexpected()),
        };
        self.follow(&tunnels);
        let all: Vec<(Tunnel, Traffic)> = tunnels
            .into_iter()
            .map(|tunnel| {
                let traffic = self.traffic(&tunnel.name, Window::Hour);
                (tunnel, traffic)
            })
            .collect();
        Ok(pages::overview(&asked.viewer, &all, &self.zone))
    }

    /// Has these tunnels recorded.
    pub(crate) fn follow(&self, tunnels: &[Tunnel]) {
        let names: Vec<&str> = tunnels.iter().map(|tunnel| tunnel.name.as_str()).collect();
        locked(&self.recorder).follow(&names, Instant::now());
    }

    fn traffic(&self, tunnel: &str, window: Window) -> Traffic {
        let mut recorder = locked(&self.recorder);
        let now = wall();
        recorder.read(Instant::now(), now);
        Traffic { rates: recorder.rates(tunnel), series: recorder.histories.series(tunnel, window, now) }
    }

    async fn findings(&self, asked: &Asked<'_>) -> Result<Markup, Failure> {
        match self.ask(&Ask::Findings).await? {
            Reply::Findings { findings } => Ok(pages::findings(&asked.viewer, &findings)),
            _ => Err(unexpected()),
        }
    }

    async fn tunnel(&self, asked: &Asked<'_>) -> Result<Markup, Failure> {
        let selection = Selection::read(&asked.query);
        let request = Ask::Peers {
            tunnel: asked.names[0].to_owned(),
            sort: selection.sort,
            reverse: selection.reverse,
            filter: selection.filter.clone(),
            offset: (selection.page - 1) * pages::ON_A_PAGE,
            count: pages::ON_A_PAGE,
        };
        let Reply::Peers { tunnel, peers, found, write } = self.ask(&request).await? else { return Err(unexpected()) };
        let word = asked.query.get("window");
        let window = Window::ALL.into_iter().find(|window| window.word() == word).unwrap_or(Window::Hour);
        let traffic = self.traffic(&tunnel.name, window);
        let list = pages::List { peers: &peers, found, selection: &selection };
        Ok(pages::tunnel(&asked.viewer, &tunnel, &traffic, &list, write, &self.zone))
    }

    async fn peer(&self, asked: &Asked<'_>, shown: Shown<'_>) -> Result<Markup, Failure> {
        let (tunnel, peer, write) = self.found(asked).await?;
        Ok(pages::peer(&asked.viewer, &tunnel, &peer, shown, write, &self.zone))
    }

    /// The peer that a path names.
    async fn found(&self, asked: &Asked<'_>) -> Result<(Tunnel, Peer, bool), Failure> {
        let request = Ask::Peer { tunnel: asked.names[0].to_owned(), key: key_of_path(asked.names[1]) };
        match self.ask(&request).await? {
            Reply::Peer { tunnel, peer, write } => Ok((tunnel, *peer, write)),
            _ => Err(unexpected()),
        }
    }

    /// The client that a path names.
    async fn client(&self, asked: &Asked<'_>) -> Result<(Tunnel, Peer, String), Failure> {
        let (tunnel, peer, _) = self.found(asked).await?;
        let name = peer.name.clone().filter(|_| peer.client.is_some());
        let name =
            name.ok_or_else(|| Failure::Refused("This peer was not made by `linerate client add'.".to_owned()))?;
        Ok((tunnel, peer, name))
    }

    /// The server that a path names.
    async fn server_of(&self, asked: &Asked<'_>) -> Result<Tunnel, Failure> {
        let (tunnel, filter) = (asked.names[0].to_owned(), String::new());
        let request = Ask::Peers { tunnel, sort: Sort::Name, reverse: false, filter, offset: 0, count: 0 };
        match self.ask(&request).await? {
            Reply::Peers { tunnel, .. } if tunnel.is_server => Ok(tunnel),
            Reply::Peers { .. } => {
                Err(Failure::Refused("This tunnel is no server: its file has no `#! PublicEndpoint'.".to_owned()))
            }
            _ => Err(unexpected()),
        }
    }

    /// The file of the client that a path names, whose key is kept.
    async fn kept(&self, asked: &Asked<'_>) -> Result<(Tunnel, Peer, String, Zeroizing<String>), Failure> {
        let (tunnel, peer, name) = self.client(asked).await?;
        let request = Ask::File { tunnel: tunnel.name.clone(), client: name.clone() };
        let Reply::File { file_name, text, .. } = self.ask(&request).await? else { return Err(unexpected()) };
        audit(&asked.who, &format!("saw the file of {} of {}", quoted(&name), tunnel.name));
        Ok((tunnel, peer, file_name, text))
    }

    async fn code(&self, asked: &Asked<'_>) -> Result<Markup, Failure> {
        let (tunnel, peer, _, text) = self.kept(asked).await?;
        Ok(pages::code(&asked.viewer, &tunnel, &peer, &text))
    }

    async fn file(&self, asked: &Asked<'_>) -> Result<Answer, Failure> {
        let (_, _, file_name, text) = self.kept(asked).await?;
        let mut answer = file("application/octet-stream", &text);
        // The client's name is not offered in `filename*`: apps name the tunnel after the file, and refuse most names.
        let disposition = HeaderValue::try_from(format!("attachment; filename=\"{file_name}.conf\""));
        answer.headers_mut().insert(header::CONTENT_DISPOSITION, disposition.map_err(|_| unexpected())?);
        Ok(answer)
    }

    async fn add(&self, asked: &Asked<'_>) -> Result<Markup, Failure> {
        let tunnel = self.server_of(asked).await?;
        let (form, text) = (&asked.form, |name: &str| asked.form.get(name).to_owned());
        let change = Change::Add {
            name: text("name"),
            expires: text("expires"),
            quota: text("quota"),
            rate: text("rate"),
            monthly: form.has("monthly"),
            note: text("note"),
            split: form.has("split"),
            keep_key: form.has("keep"),
        };
        let name = text("name");
        let line = format!("added {} to {}", quoted(&name), tunnel.name);
        match self.carry_out(&tunnel, change, &asked.who, line).await {
            Ok(Reply::File { file_name, text, notes }) => {
                let client = pages::NewFile { name: &name, file_name: &file_name, text: &text, notes: &notes };
                Ok(pages::new_file(&asked.viewer, &tunnel, &client, form.has("keep")))
            }
            Ok(_) => Err(unexpected()),
            Err(Failure::Refused(refusal)) => Ok(pages::add_form(&asked.viewer, &tunnel, &asked.form, Some(&refusal))),
            Err(failure) => Err(failure),
        }
    }

    async fn change(&self, asked: &Asked<'_>, verb: Verb) -> Result<Answer, Failure> {
        let (tunnel, _, client) = self.client(asked).await?;
        let text = |name: &str| asked.form.get(name).to_owned();
        let (word, change) = match verb {
            Verb::Disable => ("disabled", Change::Disable { client: client.clone() }),
            Verb::Enable => ("enabled", Change::Enable { client: client.clone() }),
            Verb::Renew => ("renewed", Change::Renew { client: client.clone(), expires: text("expires") }),
            Verb::Rename => ("renamed", Change::Rename { client: client.clone(), name: text("name") }),
            Verb::Set => {
                let (quota, rate, note) = (text("quota"), text("rate"), text("note"));
                let monthly = asked.form.has("monthly");
                ("changed", Change::Set { client: client.clone(), quota, rate, monthly, note })
            }
            Verb::Remove => ("removed", Change::Remove { client: client.clone() }),
        };
        let line = format!("{word} {} of {}", quoted(&client), tunnel.name);
        match self.carry_out(&tunnel, change, &asked.who, line).await {
            Ok(_) => {
                let list = format!("/tunnels/{}", tunnel.name);
                Ok(redirect(&match verb {
                    Verb::Remove => list,
                    _ => format!("{list}/peers/{}?done={word}", asked.names[1]),
                }))
            }
            Err(Failure::Refused(refusal)) => {
                let shown = Shown { done: None, refusal: Some(&refusal) };
                Ok(html(StatusCode::CONFLICT, self.peer(asked, shown).await?))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Makes a change, and writes its line also if whoever asked for it is gone by then.
    async fn carry_out(&self, tunnel: &Tunnel, change: Change, who: &str, line: String) -> Result<Reply, Failure> {
        let (helper, who) = (self.helper.clone(), who.to_owned());
        let request = Ask::Change { tunnel: tunnel.name.clone(), change };
        let made = tokio::spawn(async move {
            let reply = helper.ask(&request).await;
            match &reply {
                Ok(Reply::Done | Reply::File { .. }) => audit(&who, &line),
                Ok(_) => {}
                Err(_) => audit(&who, &format!("{line}, perhaps: the helper did not answer")),
            }
            reply
        });
        understood(made.await.map_err(|_| unexpected())?)
    }

    async fn ask(&self, request: &Ask) -> Result<Reply, Failure> {
        understood(self.helper.ask(request).await)
    }
}

fn understood(reply: Result<Reply, String>) -> Result<Reply, Failure> {
    match reply.map_err(Failure::Helper)? {
        Reply::Unknown { message } => Err(Failure::NotFound(message)),
        Reply::Refused { message } => Err(Failure::Refused(message)),
        reply => Ok(reply),
    }
}

impl Failure {
    fn answer(&self, viewer: &Viewer) -> Answer {
        let (status, title, message) = match self {
            Self::NotFound(message) => (StatusCode::NOT_FOUND, "Not found", message),
            Self::Refused(message) => (StatusCode::CONFLICT, "Refused", message),
            Self::Helper(message) => (StatusCode::SERVICE_UNAVAILABLE, "Nothing is known of the tunnels", message),
        };
        failed(Some(viewer), status, title, message)
    }
}

fn unexpected() -> Failure {
    Failure::Helper("The helper is of another version than linerate-web: restart both.".to_owned())
}

/// What a change was, from the query of the page that it leads to.
fn done(word: &str) -> Option<&'static str> {
    match word {
        "disabled" => Some("It is disabled."),
        "enabled" => Some("It is enabled."),
        "renewed" => Some("It is renewed."),
        "renamed" => Some("It is renamed."),
        "changed" => Some("It is changed."),
        _ => None,
    }
}

/// The answer to who tried too often.
fn too_many(guard: &mut Guard, source: Source, now: Instant, wait: Duration) -> Answer {
    audit_refusal(guard, source, now, "too many attempts");
    let seconds = wait.as_secs() + 1;
    let message = format!("Too many attempts: try again in {seconds} seconds.");
    let mut answer = html(StatusCode::TOO_MANY_REQUESTS, pages::log_in(Some(&message)));
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    answer
}

fn audit_refusal(guard: &mut Guard, source: Source, now: Instant, why: &str) {
    match guard.line(now) {
        Some(0) => audit(&address(source.address), &format!("log-in refused: {why}")),
        Some(more) => audit(&address(source.address), &format!("log-in refused: {why}; and {more} before this one")),
        None => {}
    }
}

/// A line about who did what.
fn audit(who: &str, what: &str) {
    eprint_line(&format!("audit: {who}: {what}"));
}

/// Quotes a client's name for the audit log, unless it is plain: no name may look like the rest of a line.
fn quoted(name: &str) -> String {
    let is_plain = name.parse().is_ok_and(|name: ClientName| name.is_plain());
    if is_plain { name.to_owned() } else { format!("{name:?}") }
}

/// Compares secrets in constant time.
fn is_same(given: &str, known: &str) -> bool {
    verify_slices_are_equal(given.as_bytes(), known.as_bytes()).is_ok()
}

fn address(source: Option<IpAddr>) -> String {
    source.map_or_else(|| "a local socket".to_owned(), |address| address.to_string())
}

/// The session's secret, if the request has one cookie of that name.
fn cookie<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value);
    values.next().filter(|value| !value.is_empty() && values.next().is_none())
}

/// A form's text.
async fn read<B>(body: B) -> Result<String, Answer>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let refused = |status, message| failed(None, status, "Refused", message);
    let body = timeout(FORM_TIMEOUT, Limited::new(body, LONGEST_FORM).collect()).await;
    let body = body.map_err(|_| refused(StatusCode::REQUEST_TIMEOUT, "The form did not come in time."))?;
    let body = body.map_err(|_| refused(StatusCode::PAYLOAD_TOO_LARGE, "The form is too long."))?;
    String::from_utf8(body.to_bytes().to_vec()).map_err(|_| refused(StatusCode::BAD_REQUEST, "The form is no text."))
}

fn html(status: StatusCode, markup: Markup) -> Answer {
    let mut answer = file("text/html; charset=utf-8", &markup.into_string());
    *answer.status_mut() = status;
    answer
}

fn file(kind: &'static str, text: &str) -> Answer {
    let mut answer = Response::new(Full::from(text.to_owned()));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn failed(viewer: Option<&Viewer>, status: StatusCode, title: &str, message: &str) -> Answer {
    html(status, pages::error(viewer, title, message))
}

fn redirect(path: &str) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(path) = HeaderValue::from_str(path) {
        answer.headers_mut().insert(header::LOCATION, path);
    }
    answer
}

/// Nothing here is half-changed when a thread panics: a panic ends the program.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests;
