//! Every path that the page has, and who may ask for it. What is not here does not exist, and nobody without a session
//! learns even that.

use form_urlencoded::parse;
use hyper::Method;

use crate::sessions::Role;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Style,
    Script,
    Icon,
    LogInForm,
    LogIn,
    LogOut,
    Sessions,
    EndSessions,
    Overview,
    Findings,
    Tunnel,
    Peer,
    Code,
    File,
    AddForm,
    Add,
    RemoveForm,
    Change(Verb),
}

/// A change of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Disable,
    Enable,
    Renew,
    Rename,
    Set,
    Remove,
}

/// A path with its role; `*` is a name of a tunnel or a key.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) role: Role,
    pub(crate) page: Page,
}

const fn get(path: &'static str, role: Role, page: Page) -> Route {
    Route { method: Method::GET, path, role, page }
}

const fn post(path: &'static str, role: Role, page: Page) -> Route {
    Route { method: Method::POST, path, role, page }
}

/// All of them.
pub(crate) const ROUTES: &[Route] = &[
    get("/style.css", Role::Nobody, Page::Style),
    get("/page.js", Role::Nobody, Page::Script),
    get("/icon.svg", Role::Nobody, Page::Icon),
    get("/login", Role::Nobody, Page::LogInForm),
    post("/login", Role::Nobody, Page::LogIn),
    post("/logout", Role::Reader, Page::LogOut),
    get("/sessions", Role::Writer, Page::Sessions),
    post("/sessions", Role::Writer, Page::EndSessions),
    get("/", Role::Reader, Page::Overview),
    get("/findings", Role::Reader, Page::Findings),
    get("/tunnels/*", Role::Reader, Page::Tunnel),
    get("/tunnels/*/peers/*", Role::Reader, Page::Peer),
    get("/tunnels/*/peers/*/code", Role::Writer, Page::Code),
    get("/tunnels/*/peers/*/file", Role::Writer, Page::File),
    get("/tunnels/*/add", Role::Writer, Page::AddForm),
    post("/tunnels/*/add", Role::Writer, Page::Add),
    get("/tunnels/*/peers/*/remove", Role::Writer, Page::RemoveForm),
    post("/tunnels/*/peers/*/remove", Role::Writer, Page::Change(Verb::Remove)),
    post("/tunnels/*/peers/*/disable", Role::Writer, Page::Change(Verb::Disable)),
    post("/tunnels/*/peers/*/enable", Role::Writer, Page::Change(Verb::Enable)),
    post("/tunnels/*/peers/*/renew", Role::Writer, Page::Change(Verb::Renew)),
    post("/tunnels/*/peers/*/rename", Role::Writer, Page::Change(Verb::Rename)),
    post("/tunnels/*/peers/*/set", Role::Writer, Page::Change(Verb::Set)),
];

/// The route of a request, and the texts in the place of `*`.
pub(crate) fn route<'a>(method: &Method, path: &'a str) -> Option<(&'static Route, Vec<&'a str>)> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    ROUTES.iter().find_map(|route| {
        let names = names(route.path, path).filter(|_| route.method == *method)?;
        Some((route, names))
    })
}

/// Whether a path of the page begins with `part`.
pub(crate) fn begin_with(part: &str) -> bool {
    !part.is_empty() && ROUTES.iter().any(|route| route.path.split('/').nth(1) == Some(part))
}

fn names<'a>(pattern: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let mut names = Vec::new();
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(names),
            // Names of tunnels and keys need no `%`, so there is nothing to decode.
            (Some("*"), Some(name)) if !name.is_empty() && !name.contains('%') => names.push(name),
            (Some(word), Some(same)) if word == same => {}
            _ => return None,
        }
    }
}

/// A public key in a path: base64 with letters that a path takes.
pub(crate) fn key_in_path(key: &str) -> String {
    key.trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// The public key of a path.
pub(crate) fn key_of_path(text: &str) -> String {
    format!("{}=", text.replace('-', "+").replace('_', "/"))
}

/// The values of a form or a query.
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    pub(crate) fn read(text: &str) -> Self {
        Self(parse(text.as_bytes()).into_owned().collect())
    }

    /// The value of a field; empty if it is not there.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.trim())
    }

    /// Whether a box is ticked.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Whether a value has what no text here needs.
    pub(crate) fn has_control_characters(&self) -> bool {
        self.0.iter().any(|(name, value)| name.contains(char::is_control) || value.contains(char::is_control))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_route_and_a_prefix_or_a_detour_has_none() {
        let page = |method, path| route(&method, path).map(|(route, names)| (route.page, names));
        assert_eq!(page(Method::GET, "/"), Some((Page::Overview, vec![])));
        assert_eq!(page(Method::HEAD, "/findings"), Some((Page::Findings, vec![])));
        assert_eq!(page(Method::GET, "/tunnels/wg0/peers/abc"), Some((Page::Peer, vec!["wg0", "abc"])));
        assert_eq!(page(Method::POST, "/tunnels/wg0/add"), Some((Page::Add, vec!["wg0"])));
        for path in [
            "",
            "//",
            "/login/",
            "/login/x",
            "/tunnels",
            "/tunnels/",
            "/tunnels//peers/x",
            "/tunnels/a%2fb",
            "/../",
            "/style.css/",
            "/LOGIN",
            "/tunnels/wg0/peers/abc/",
        ] {
            assert_eq!(page(Method::GET, path), None, "{path}");
        }
        for method in [Method::PUT, Method::DELETE, Method::OPTIONS, Method::TRACE] {
            assert_eq!(page(method, "/"), None);
        }
        assert_eq!(page(Method::POST, "/"), None);
    }

    #[test]
    fn only_what_everybody_may_see_needs_no_session() {
        let open: Vec<_> = ROUTES.iter().filter(|route| route.role == Role::Nobody).map(|route| route.path).collect();
        assert_eq!(open, ["/style.css", "/page.js", "/icon.svg", "/login", "/login"]);
        let looks = |page| matches!(page, Page::Overview | Page::Findings | Page::Tunnel | Page::Peer | Page::LogOut);
        for route in ROUTES.iter().filter(|route| route.role == Role::Reader) {
            assert!(looks(route.page), "{}", route.path);
        }
    }

    #[test]
    fn a_key_survives_a_path() {
        let key = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZ+/+DU=";
        assert_eq!(key_in_path(key), "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZ-_-DU");
        assert_eq!(key_of_path(&key_in_path(key)), key);
    }
}
