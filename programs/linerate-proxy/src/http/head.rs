//! What a proxy takes from the head of a request, and what it leaves out of what it passes on.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method, Uri, Version};
use zeroize::Zeroizing;

use crate::config::Login;
use crate::target::Target;

/// What a request asks of the proxy.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// CONNECT: a connection.
    Tunnel(Target),
    /// An absolute form: the request is passed on.
    Request(Target),
}

/// Headers that are for the next hop alone (RFC 9110, 7.6.1), beside those that `Connection` names. `Expect` has been
/// answered by the server.
const FOR_ONE_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
];
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What a request asks for.
///
/// # Errors
/// A sentence for who sent it.
pub fn wanted(method: &Method, uri: &Uri) -> Result<Wanted, &'static str> {
    if method == Method::CONNECT {
        let target = uri.authority().and_then(|authority| Target::parse(authority.as_str(), Some(443)));
        return target.map(Wanted::Tunnel).ok_or("CONNECT takes HOST:PORT");
    }
    let authority = uri.authority().map(|authority| authority.as_str());
    match (uri.scheme_str(), authority) {
        (Some(scheme), Some(authority)) if scheme.eq_ignore_ascii_case("http") => {
            // A name and a password in it are for the target, which gets them otherwise or not at all.
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            Target::parse(host, Some(80))
                .map(Wanted::Request)
                .ok_or("the host in the URL is neither an address nor a name")
        }
        (Some(_), Some(_)) => Err("only http:// URLs can be asked for; for all others use CONNECT"),
        _ => Err("this is an HTTP proxy: ask for an absolute URL, or use CONNECT"),
    }
}

/// Makes the head of a request that of one to the target itself.
pub fn pass_on(head: &mut Parts, target: &Target) {
    let protocol = upgrade(&head.headers).filter(|_| head.version == Version::HTTP_11);
    strip(&mut head.headers);
    if let Some(protocol) = protocol {
        ask_for(&mut head.headers, protocol);
    }
    let path = head.uri.path_and_query().filter(|path| path.as_str().starts_with('/')).cloned();
    let path = path.or_else(|| {
        // `http://host?query` has no path.
        head.uri.query().and_then(|query| PathAndQuery::try_from(format!("/?{query}")).ok())
    });
    head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    head.version = Version::HTTP_11;
    // The URL counts, whatever the client says in Host (RFC 9112, 3.2.2).
    let host = if target.port == 80 { target.host.to_string() } else { target.to_string() };
    if let Ok(host) = HeaderValue::try_from(host) {
        head.headers.insert(header::HOST, host);
    }
}

/// The protocol that a request asks to go on with on its connection, or an answer agrees to (`Upgrade`).
pub fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_asked = |value: &HeaderValue| {
        value.to_str().is_ok_and(|value| value.split(',').any(|name| name.trim().eq_ignore_ascii_case("upgrade")))
    };
    let protocol = headers.get(header::UPGRADE)?;
    headers.get_all(header::CONNECTION).iter().any(is_asked).then(|| protocol.clone())
}

/// Says on the next hop, too, that the connection goes on with `protocol`.
pub fn ask_for(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// Removes headers that are for one hop alone.
pub fn strip(headers: &mut HeaderMap) {
    // Who sends both wants somebody behind us to see another end of the message than we do (RFC 9112, 6.3).
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named.iter().chain(&FOR_ONE_HOP).chain([&PROXY_CONNECTION]) {
        // Bodies end where these say; hyper has checked them, and removing them would make one message two.
        if *name != header::CONTENT_LENGTH && *name != header::HOST {
            headers.remove(name);
        }
    }
}

/// Whether the request comes from somebody who knows `login` (RFC 7617).
pub fn is_admitted(headers: &HeaderMap, login: &Login) -> bool {
    let admits = |value: &HeaderValue| {
        let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
        let decoded = STANDARD.decode(encoded.trim()).ok().map(Zeroizing::new)?;
        let colon = decoded.iter().position(|&byte| byte == b':')?;
        let is_right = login.admits(&decoded[..colon], &decoded[colon + 1..]);
        Some(scheme.eq_ignore_ascii_case("basic") && is_right)
    };
    headers.get(header::PROXY_AUTHORIZATION).and_then(admits) == Some(true)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn asked(method: Method, uri: &str) -> Result<Wanted, &'static str> {
        wanted(&method, &uri.parse().unwrap())
    }

    #[test]
    fn a_request_has_a_target() {
        let target = |text: &str| text.parse::<Target>().unwrap();
        assert_eq!(asked(Method::CONNECT, "example.org:443"), Ok(Wanted::Tunnel(target("example.org:443"))));
        assert_eq!(asked(Method::CONNECT, "[2001:db8::1]:22"), Ok(Wanted::Tunnel(target("[2001:db8::1]:22"))));
        assert_eq!(asked(Method::GET, "http://Example.org/a?b"), Ok(Wanted::Request(target("example.org:80"))));
        assert_eq!(asked(Method::PUT, "HTTP://u:p@example.org:8080"), Ok(Wanted::Request(target("example.org:8080"))));
        assert!(asked(Method::GET, "/").is_err_and(|said| said.contains("proxy")));
        assert!(asked(Method::GET, "https://example.org/").is_err_and(|said| said.contains("CONNECT")));
        assert!(asked(Method::GET, "http://127.1/").is_err());
        assert!(asked(Method::CONNECT, "/").is_err());
    }

    #[test]
    fn what_is_for_the_proxy_is_not_passed_on() {
        let request = Request::get("http://example.org:8080/a?b=c")
            .header("Host", "elsewhere.example")
            .header("Connection", "close, X-Hop, Content-Length")
            .header("X-Hop", "1")
            .header("Proxy-Authorization", "Basic dTpw")
            .header("Proxy-Connection", "keep-alive")
            .header("Content-Length", "0")
            .header("Cookie", "a=b");
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        pass_on(&mut head, &"example.org:8080".parse().unwrap());
        assert_eq!(head.uri, "/a?b=c");
        let mut left: Vec<_> =
            head.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        left.sort();
        assert_eq!(left, ["content-length: 0", "cookie: a=b", "host: example.org:8080"]);
    }

    #[test]
    fn what_a_connection_is_to_become_is_passed_on() {
        let passed = |version: Version, connection: &str| {
            let request = Request::get("http://example.org/chat").version(version).header("Upgrade", "websocket");
            let request = request.header("Connection", connection).header("Sec-WebSocket-Key", "x").body(()).unwrap();
            let (mut head, ()) = request.into_parts();
            pass_on(&mut head, &"example.org:80".parse().unwrap());
            assert!(head.headers.contains_key("sec-websocket-key"));
            [header::CONNECTION, header::UPGRADE].map(|name| head.headers.get(name).cloned())
        };
        let both = ["upgrade", "websocket"].map(|value| Some(HeaderValue::from_static(value)));
        assert_eq!(passed(Version::HTTP_11, "Upgrade"), both);
        assert_eq!(passed(Version::HTTP_11, "keep-alive, upgrade"), both);
        assert_eq!(passed(Version::HTTP_11, "keep-alive"), [None, None], "it is for the proxy");
        assert_eq!(passed(Version::HTTP_10, "Upgrade"), [None, None], "RFC 9110, 7.8");
    }

    #[test]
    fn a_length_beside_chunks_is_not_passed_on() {
        let mut headers = HeaderMap::from_iter([
            (header::CONTENT_LENGTH, HeaderValue::from_static("5")),
            (header::TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
        ]);
        strip(&mut headers);
        assert!(headers.is_empty(), "{headers:?}");
    }

    #[test]
    fn a_url_without_a_path_asks_for_the_root() {
        for (url, path) in
            [("http://example.org", "/"), ("http://example.org?a=b", "/?a=b"), ("http://example.org/", "/")]
        {
            let (mut head, ()) = Request::get(url).body(()).unwrap().into_parts();
            pass_on(&mut head, &"example.org:80".parse().unwrap());
            assert_eq!(head.uri, path, "{url}");
            assert_eq!(head.headers[header::HOST], "example.org");
        }
    }

    #[test]
    fn only_name_and_password_are_admitted() {
        let admitted = |value: &str| {
            let headers = HeaderMap::from_iter([(header::PROXY_AUTHORIZATION, value.parse().unwrap())]);
            is_admitted(&headers, &Login::new("peter", "hunter:123"))
        };
        assert!(admitted("Basic cGV0ZXI6aHVudGVyOjEyMw==") && admitted("basic  cGV0ZXI6aHVudGVyOjEyMw=="));
        for wrong in [
            "Basic cGV0ZXI6aHVudGVy",
            "Bearer cGV0ZXI6aHVudGVyOjEyMw==",
            "Basic",
            "Basic !",
            "cGV0ZXI6aHVudGVyOjEyMw==",
        ] {
            assert!(!admitted(wrong), "{wrong}");
        }
        assert!(!is_admitted(&HeaderMap::new(), &Login::new("a", "b")));
    }
}
