//! Serves the page below a path such as `/wg/`, behind a proxy whose host has other pages.

use std::str::FromStr;

use http_body_util::{BodyExt, Full};
use hyper::header::{self, HeaderValue};

use crate::server::Answer;

/// The path of the page, without a `/` at its end; empty if the page has the whole host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mount(String);

impl FromStr for Mount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = text.strip_suffix('/').unwrap_or(text);
        let is_plain = |part: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !["", ".", ".."].contains(&part) && part.bytes().all(allowed)
        };
        let is_path = path.is_empty() || path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_plain));
        let first = path.split('/').nth(1).unwrap_or_default();
        if crate::routes::begin_with(first) {
            return Err(format!("the page has a /{first} of its own: choose another path"));
        }
        let hint = "write a path as in /wg/, of letters, digits, `-`, `.`, `_` and `~`";
        if is_path { Ok(Self(path.to_owned())) } else { Err(hint.to_owned()) }
    }
}

impl Mount {
    /// Whether the page has the whole host.
    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the `Path` of cookies.
    pub(crate) fn cookie_path(&self) -> String {
        format!("{}/", self.0)
    }

    /// Removes the mount's path from a request's path. Some proxies have removed it already.
    pub(crate) fn inside<'a>(&self, path: &'a str) -> &'a str {
        match path.strip_prefix(&*self.0) {
            Some("") => "/",
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }

    /// Adds the mount's path to the links and redirects of an answer.
    pub(crate) async fn outside(&self, answer: Answer) -> Answer {
        if self.is_root() {
            return answer;
        }
        let (mut head, body) = answer.into_parts();
        let leads_to = |to: &HeaderValue| HeaderValue::from_str(&format!("{}{}", self.0, to.to_str().ok()?)).ok();
        if let Some(to) = head.headers.get(header::LOCATION).and_then(leads_to) {
            head.headers.insert(header::LOCATION, to);
        }
        let is_page =
            head.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
        if !is_page {
            return Answer::from_parts(head, body);
        }
        let Ok(body) = body.collect().await;
        let text = String::from_utf8_lossy(&body.to_bytes()).replace(LINK_PREFIX, &format!("=\"{}/", self.0));
        Answer::from_parts(head, Full::from(text))
    }
}

/// The text before the path of each link on a page, and nowhere else: in other text `"` is `&quot;`.
const LINK_PREFIX: &str = "=\"/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_plain_and_none_of_the_pages_own() {
        let mount = |text: &str| text.parse::<Mount>();
        assert_eq!(mount("/wg/"), mount("/wg"));
        assert!(mount("/").unwrap().is_root() && !mount("/a/b-c.d/").unwrap().is_root());
        for text in ["wg", "//", "/wg//", "/../", "/a b/", "/a\"b/", "/a?b", "/tunnels/", "/login/x", "/style.css"] {
            assert!(mount(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_page_is_found_with_and_without_the_beginning() {
        let mount: Mount = "/wg/".parse().unwrap();
        for (path, inside) in
            [("/wg/login", "/login"), ("/login", "/login"), ("/wg", "/"), ("/wg/", "/"), ("/wgx", "/wgx"), ("/", "/")]
        {
            assert_eq!(mount.inside(path), inside);
        }
        assert_eq!(Mount::default().inside("/wg/login"), "/wg/login");
        assert_eq!((Mount::default().cookie_path(), mount.cookie_path()), ("/".to_owned(), "/wg/".to_owned()));
    }
}
