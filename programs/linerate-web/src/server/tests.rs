use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::history::Histories;
use crate::routes::ROUTES;
use crate::sessions::make_token;

/// A page, and a helper that counts what it is asked and answers with a tunnel of one client.
pub(crate) struct Host {
    pub(crate) server: Arc<Server>,
    state: tempfile::TempDir,
    asked: Arc<AtomicUsize>,
}

const KEY: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZ+/+DU=";
const NAME: &str = "<script>alert(1)</script>";
const FILE: &str = "script-al-x7k2m";

fn reply(line: &str) -> Reply {
    let tunnel = Tunnel { name: "wg0".into(), is_server: true, peers: 1, ..Tunnel::default() };
    let client = linerate_page::Client { key_kept: true, file_name: FILE.into(), ..Default::default() };
    let peer = Peer { name: Some(NAME.into()), key: KEY.into(), client: Some(client), ..Peer::default() };
    match serde_json::from_str(line).unwrap() {
        Ask::Tunnels => Reply::Tunnels { tunnels: vec![tunnel], write: true },
        Ask::Peers { .. } => Reply::Peers { tunnel, peers: vec![peer], found: 1, write: true },
        Ask::Peer { .. } => Reply::Peer { tunnel, peer: Box::new(peer), write: true },
        Ask::Findings => Reply::Findings { findings: Vec::new() },
        Ask::File { .. } | Ask::Change { change: Change::Add { .. }, .. } => {
            let notes = vec!["<b>the name server</b> is out of its reach".to_owned()];
            Reply::File { file_name: FILE.into(), text: Zeroizing::new("[Interface]\n".into()), notes }
        }
        Ask::Change { .. } => Reply::Done,
    }
}

fn helper(socket: &Path) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let (listener, count) = (UnixListener::bind(socket).unwrap(), asked.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let text = serde_json::to_string(&reply(&line)).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
        }
    });
    asked
}

pub(crate) fn host() -> Host {
    let state = tempfile::tempdir().unwrap();
    let asked = helper(&state.path().join("helper.sock"));
    let server = Server {
        helper: Helper::new(&state.path().join("helper.sock")),
        sessions: Mutex::new(Sessions::open(state.path(), wall()).unwrap()),
        guard: Mutex::default(),
        recorder: Mutex::new(Recorder::new(Path::new("/nonexistent"), Histories::open(state.path()).unwrap())),
        hosts: Hosts::new("127.0.0.1:7789".parse().ok(), &[]),
        proxy: None,
        mount: Mount::default(),
        zone: TimeZone::UTC,
    };
    Host { server: Arc::new(server), state, asked }
}

type Headers<'a> = &'a [(&'a str, &'a str)];

/// The status, the headers and the text of an answer.
struct Answered {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Host {
    fn ask(&self, method: &Method, path: &str, headers: Headers<'_>, form: &str) -> Answered {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "localhost:7789");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::<Bytes>::from(form.to_owned())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let answer = self.server.answer(request, Some([127, 0, 0, 1].into()), false).await;
            let (parts, body) = answer.into_parts();
            let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
            Answered { status: parts.status.as_u16(), headers: parts.headers, text }
        })
    }

    /// A session's cookie, and the secret of its forms.
    pub(crate) fn log_in(&self, role: Role) -> (String, String) {
        let token = make_token(self.state.path(), role, wall()).unwrap();
        let answered = self.ask(&Method::POST, "/login", &[], &format!("token={}", *token));
        assert_eq!(answered.status, 303);
        let cookie = answered.headers["set-cookie"].to_str().unwrap();
        for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(word), "{cookie}");
        }
        let pair = cookie.split(';').next().unwrap().to_owned();
        let found = locked(&self.server.sessions).find(pair.split_once('=').unwrap().1, wall()).unwrap().unwrap();
        (pair, form_secret(&found.id))
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn example(path: &str) -> String {
    path.replacen('*', "wg0", 1).replacen('*', &routes::key_in_path(KEY), 1)
}

#[test]
fn without_a_session_every_route_but_the_open_ones_is_refused_and_nobody_asks_the_helper() {
    let host = host();
    let stranger = format!("{COOKIE}={}", "0".repeat(40));
    for headers in [&[][..], &[("cookie", stranger.as_str())], &[("cookie", "linerate-session="), ("x-token", "x")]] {
        for route in ROUTES {
            let answered = host.ask(&route.method, &example(route.path), headers, "name=x");
            match (route.role, &route.method) {
                (Role::Nobody, _) => assert_ne!(answered.status, 303, "{}", route.path),
                (_, &Method::POST) => assert_eq!(answered.status, 403, "{}", route.path),
                _ => {
                    assert_eq!((answered.status, answered.headers["location"].to_str().unwrap()), (303, "/login"))
                }
            }
        }
        // Nor does it say what does not exist.
        for path in
            ["/nothing", "/login/", "/style.css/..", "/tunnels", "//", "/api/clients", "/tunnels/wg0/peers/x/y/z"]
        {
            assert_eq!(host.ask(&Method::GET, path, headers, "").status, 303, "{path}");
        }
    }
    assert_eq!(host.asked(), 0);
}

#[test]
fn who_may_look_sees_no_keys_and_changes_nothing() {
    let host = host();
    let (cookie, form) = host.log_in(Role::Reader);
    for route in ROUTES.iter().filter(|route| route.role > Role::Nobody && route.page != Page::LogOut) {
        let text = format!("form={form}&name=x&expires=1d");
        let before = host.asked();
        let answered = host.ask(&route.method, &example(route.path), &[("cookie", &cookie)], &text);
        let expected = if route.role == Role::Reader { 200 } else { 403 };
        assert_eq!(answered.status, expected, "{} {}", route.method, route.path);
        assert!(
            !answered.text.contains("/code\"") && !answered.text.contains("method=\"post\" action=\"/t"),
            "{}",
            route.path
        );
        assert!(route.role == Role::Reader || host.asked() == before, "{}", route.path);
    }
}

#[test]
fn who_may_change_reaches_everything_and_is_gone_after_logging_out() {
    let host = host();
    let (cookie, form) = host.log_in(Role::Writer);
    for route in ROUTES.iter().filter(|route| route.role > Role::Nobody && route.page != Page::LogOut) {
        let text = format!("form={form}&name=x&expires=1d&quota=1G");
        let answered = host.ask(&route.method, &example(route.path), &[("cookie", &cookie)], &text);
        let expected = if matches!(route.page, Page::Change(_) | Page::EndSessions) { 303 } else { 200 };
        assert_eq!(answered.status, expected, "{} {}: {}", route.method, route.path, answered.text);
        // The name of the client is a text wherever it is.
        assert!(!answered.text.contains(NAME), "{}", route.path);
    }
    let answered = host.ask(&Method::POST, "/logout", &[("cookie", &cookie)], &format!("form={form}"));
    assert_eq!(answered.status, 303);
    assert!(answered.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(host.ask(&Method::GET, "/", &[("cookie", &cookie)], "").status, 303);
}

#[test]
fn a_form_of_another_page_or_session_is_refused() {
    let host = host();
    let (cookie, form) = host.log_in(Role::Writer);
    let (_, other) = host.log_in(Role::Writer);
    let path = example("/tunnels/*/peers/*/disable");
    let post = |headers: &[(&str, &str)], form: &str| {
        let headers = [&[("cookie", cookie.as_str())], headers].concat();
        host.ask(&Method::POST, &path, &headers, form).status
    };
    let before = host.asked();
    assert_eq!(post(&[], ""), 403);
    assert_eq!(post(&[], "form="), 403);
    assert_eq!(post(&[], &format!("form={other}")), 403);
    let own = format!("form={form}");
    assert_eq!(post(&[("origin", "http://evil.example")], &own), 403);
    assert_eq!(post(&[("sec-fetch-site", "cross-site")], &own), 403);
    assert_eq!(post(&[("host", "evil.example")], &own), 421);
    assert_eq!(host.asked(), before);
    assert_eq!(post(&[("origin", "null"), ("sec-fetch-site", "same-origin")], &own), 303);
}

#[test]
fn another_host_is_not_answered_whatever_is_asked() {
    let host = host();
    let (cookie, _) = host.log_in(Role::Writer);
    for route in ROUTES {
        let headers = [("host", "rebound.example:7789"), ("cookie", cookie.as_str())];
        assert_eq!(host.ask(&route.method, &example(route.path), &headers, "").status, 421, "{}", route.path);
    }
}

#[test]
fn every_answer_has_the_headers() {
    let host = host();
    let (cookie, _) = host.log_in(Role::Writer);
    for (path, cookie) in
        [("/", cookie.as_str()), ("/", ""), ("/login", ""), ("/style.css", ""), ("/none", cookie.as_str())]
    {
        let headers = host.ask(&Method::GET, path, &[("cookie", cookie)], "").headers;
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("-inline") && !policy.contains("-eval"), "{policy}");
        for (name, value) in
            [("cache-control", "no-store"), ("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer")]
        {
            assert_eq!(headers[name], value, "{path}");
        }
    }
}

#[test]
fn a_file_is_saved_under_a_name_that_apps_take_and_a_name_is_searched_as_it_is() {
    let host = host();
    let (cookie, form) = host.log_in(Role::Writer);
    let answered = host.ask(&Method::GET, &example("/tunnels/*/peers/*/file"), &[("cookie", &cookie)], "");
    assert_eq!(answered.headers["content-disposition"], "attachment; filename=\"script-al-x7k2m.conf\"");
    let text = format!("form={form}&name=M%C3%BCller+%26+%22S%C3%B6hne%22+%F0%9F%93%B1");
    let answered = host.ask(&Method::POST, &example("/tunnels/*/add"), &[("cookie", &cookie)], &text);
    for part in [
        "<bdi>Müller &amp; &quot;Söhne&quot; 📱</bdi> was added",
        "data-save=\"script-al-x7k2m.conf\"",
        "<p class=\"notice\">&lt;b&gt;the name server&lt;/b&gt; is out of its reach</p>",
        "?filter=M%C3%BCller+%26+%22S%C3%B6hne%22+%F0%9F%93%B1\"",
    ] {
        assert!(answered.text.contains(part), "{part}: {}", answered.text);
    }
}

#[test]
fn a_name_is_one_word_of_the_audit() {
    assert_eq!(quoted("laptop"), "laptop");
    assert_eq!(quoted("x of wg0; \"y"), r#""x of wg0; \"y""#);
}

#[test]
fn pages_have_no_script_style_or_address_of_their_own() {
    let host = host();
    let (cookie, _) = host.log_in(Role::Writer);
    for route in ROUTES.iter().filter(|route| route.method == Method::GET) {
        let answered = host.ask(&Method::GET, &example(route.path), &[("cookie", &cookie)], "");
        if answered.headers.get("content-type").is_none_or(|kind| kind != "text/html; charset=utf-8") {
            continue;
        }
        for word in ["style=\"", " onclick", "<style", "http://", "https://", "<script>"] {
            assert!(!answered.text.contains(word), "{}: {word}", route.path);
        }
    }
}

#[test]
fn guessing_is_slowed_down_and_a_token_is_good_once() {
    let host = host();
    let token = make_token(host.state.path(), Role::Reader, wall()).unwrap();
    let log_in = |token: &str| host.ask(&Method::POST, "/login", &[], &format!("token={token}"));
    assert_eq!(log_in(&token).status, 303);
    assert_eq!(log_in(&token).status, 403);
    // More of them, so that the wait is longer than this test.
    (0..10).for_each(|_| locked(&host.server.guard).failed(Some([127, 0, 0, 1].into()), Instant::now()));
    let answered = log_in("guess");
    assert_eq!(answered.status, 429);
    assert!(answered.headers.contains_key("retry-after"));
    assert!(answered.headers.get("set-cookie").is_none());
}

#[test]
fn who_has_a_token_is_let_in_while_others_guess() {
    let host = host();
    for source in 0..1000u32 {
        locked(&host.server.guard).failed(Some(IpAddr::V4(source.into())), Instant::now());
    }
    assert_eq!(host.ask(&Method::POST, "/login", &[], "token=guess").status, 429);
    host.log_in(Role::Reader);
}

#[test]
fn over_tls_the_cookie_is_one_that_nobody_else_can_set() {
    let mut host = host();
    let proxy = IpAddr::from([127, 0, 0, 1]);
    Arc::get_mut(&mut host.server).unwrap().proxy = Some(proxy);
    let tls = ("x-forwarded-proto", "https");
    let token = make_token(host.state.path(), Role::Reader, wall()).unwrap();
    let answered = host.ask(&Method::POST, "/login", &[tls], &format!("token={}", *token));
    let cookie = answered.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-") && cookie.ends_with("; Secure") && !cookie.contains("Domain"), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    assert_eq!(host.ask(&Method::GET, "/", &[tls, ("cookie", pair)], "").status, 200);
    let tossed = format!("{pair}; linerate-session=x");
    assert_eq!(host.ask(&Method::GET, "/", &[tls, ("cookie", &tossed)], "").status, 200, "beside one of another host");
    let plain = pair.trim_start_matches("__Host-");
    assert_eq!(host.ask(&Method::GET, "/", &[tls, ("cookie", plain)], "").status, 303, "one that anybody could set");
}

#[test]
fn a_form_that_is_too_long_or_has_control_characters_is_refused() {
    let host = host();
    let (cookie, form) = host.log_in(Role::Writer);
    let before = host.asked();
    let post = |form: &str| host.ask(&Method::POST, "/tunnels/wg0/add", &[("cookie", &cookie)], form).status;
    assert_eq!(post(&format!("form={form}&name=a%0a")), 400);
    assert_eq!(post(&format!("form={form}&note={}", "x".repeat(LONGEST_FORM))), 413);
    assert_eq!(host.asked(), before);
}

#[test]
fn a_helper_that_is_not_there_is_an_answer_that_says_so() {
    let mut host = host();
    let (cookie, _) = host.log_in(Role::Writer);
    let none = Helper::new(&host.state.path().join("none"));
    Arc::get_mut(&mut host.server).unwrap().helper = none;
    let answered = host.ask(&Method::GET, "/", &[("cookie", &cookie)], "");
    assert_eq!(answered.status, 503);
    assert!(answered.text.contains("systemctl restart linerate-web-helper.socket"), "{}", answered.text);
}
