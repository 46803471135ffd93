//! Any bytes as the head of a request to the HTTP proxy, as httparse reads it: what is passed on has nothing that is for
//! the proxy, and goes where the URL says.

use hyper::header::{HOST, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use hyper::{Method, Request, Uri};
use linerate_proxy::config::Login;
use linerate_proxy::http::head::{Wanted, is_admitted, pass_on, wanted};

pub fn check(bytes: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut parsed = httparse::Request::new(&mut headers);
    if !matches!(parsed.parse(bytes), Ok(httparse::Status::Complete(_))) {
        return;
    }
    let (Some(method), Some(path)) = (parsed.method, parsed.path) else { return };
    let (Ok(method), Ok(uri)) = (Method::from_bytes(method.as_bytes()), path.parse::<Uri>()) else { return };
    let mut head = Request::builder().method(method).uri(uri).body(()).expect("it has both").into_parts().0;
    for header in parsed.headers.iter() {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(header.name), HeaderValue::from_bytes(header.value)) {
            head.headers.append(name, value);
        }
    }
    // Nobody guesses this one.
    assert!(!is_admitted(&head.headers, &Login::new("\u{1}\u{2}:", "\u{3}\u{4}")));
    match wanted(&head.method, &head.uri) {
        Ok(Wanted::Tunnel(target)) => assert!(head.method == Method::CONNECT && target.port != 0),
        Ok(Wanted::Request(target)) => {
            pass_on(&mut head, &target);
            assert!(head.uri.authority().is_none() && head.uri.path().starts_with('/'));
            assert_eq!(head.headers.get_all(HOST).iter().count(), 1);
            for name in ["connection", "proxy-connection", "keep-alive", "te", "upgrade", "transfer-encoding"] {
                assert!(!head.headers.contains_key(name), "{name}");
            }
            assert!(!head.headers.contains_key(PROXY_AUTHORIZATION));
        }
        Err(sentence) => assert!(!sentence.is_empty()),
    }
}
