//! The pages, as HTML that is made here and can be read without a script. maud escapes every text, so that a name is
//! never more than a name.

mod overview;
mod peer;
mod tunnel;

pub(crate) use overview::overview;
pub(crate) use peer::{NewFile, Shown, add_form, code, new_file, peer, remove_form};
pub(crate) use tunnel::{List, ON_A_PAGE, Selection, tunnel};

use linerate_page::Finding;
use maud::{DOCTYPE, Markup, html};

use crate::history::Series;
use crate::plot::plot;
use crate::sessions::{Hash, Role, Session, label};
use crate::units;

/// Who looks, and what they may do.
pub(crate) struct Viewer {
    pub(crate) role: Role,
    /// The secret of their forms.
    pub(crate) form: String,
}

impl Viewer {
    /// Whether to offer changes: also the helper has to take them.
    fn may_change(&self, write: bool) -> bool {
        write && self.role == Role::Writer
    }
}

/// A tunnel's traffic.
pub(crate) struct Traffic {
    pub(crate) rates: Option<(f64, f64)>,
    pub(crate) series: Series,
}

/// A whole page.
fn page(title: &str, viewer: Option<&Viewer>, here: &str, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – linerate" }
                link rel="stylesheet" href="/style.css";
                link rel="icon" href="/icon.svg";
                @if viewer.is_some() { script src="/page.js" defer {} }
            }
            body {
                @if let Some(viewer) = viewer {
                    a.skip href="#main" { "To the content" }
                    header {
                        a.home href="/" { "linerate" }
                        nav aria-label="Pages" {
                            a href="/" aria-current=[(here == "/").then_some("page")] { "Tunnels" }
                            a href="/findings" aria-current=[(here == "/findings").then_some("page")] { "Findings" }
                            @if viewer.role == Role::Writer {
                                a href="/sessions" aria-current=[(here == "/sessions").then_some("page")] { "Sessions" }
                            }
                        }
                        form method="post" action="/logout" { (secret(viewer)) button { "Log out" } }
                    }
                    p #stale role="status" hidden {
                        "This page is no longer kept up to date. Load it again to see why."
                    }
                }
                main #main { (main) }
            }
        }
    }
}

/// What shows that a form is ours.
fn secret(viewer: &Viewer) -> Markup {
    html! { input type="hidden" name="form" value=(viewer.form); }
}

/// The page for logging in.
pub(crate) fn log_in(refusal: Option<&str>) -> Markup {
    page(
        "Log in",
        None,
        "",
        &html! {
            div.login {
                h1 { "linerate" }
                @if let Some(refusal) = refusal { p.refusal role="alert" { (refusal) } }
                form.fields method="post" action="/login" {
                    label {
                        "Token"
                        input.key name="token" type="password" autocomplete="off" required autofocus spellcheck="false";
                        small { "On the server, " code { "sudo linerate-web token" } " prints one. It is good once." }
                    }
                    label.box {
                        input type="checkbox" name="keep";
                        "Keep me logged in on this browser for 30 days"
                    }
                    div { button.main { "Log in" } }
                }
            }
        },
    )
}

/// The page of sessions. `own` is the label of the viewer's session.
pub(crate) fn sessions(viewer: &Viewer, all: &[(Hash, Session)], own: &str, now: u64) -> Markup {
    let end = |value: &str, text: &str| {
        html! {
            form method="post" action="/sessions" {
                (secret(viewer))
                button name="session" value=(value) { (text) }
            }
        }
    };
    page(
        "Sessions",
        Some(viewer),
        "/sessions",
        &html! {
            h1 { "Sessions" }
            p.soft { "The sessions of this page. " code { "sudo linerate-web logout --all" } " ends all of them." }
            table.peers {
                thead { tr { th { "Session" } th { "Can" } th { "Logged in" } th { "Last used" } th { "Ends" } th {} } }
                tbody {
                    @for (id, session) in all {
                        @let name = label(id);
                        tr {
                            th scope="row" { code { (name) } @if name == own { " (this one)" } }
                            td data-label="Can" { @if session.role == Role::Writer { "change" } @else { "look" } }
                            td data-label="Logged in" { (units::ago(now.saturating_sub(session.begun))) }
                            td data-label="Last used" { (units::ago(now.saturating_sub(session.used))) }
                            td data-label="Ends" {
                                "in " (units::span(session.end.saturating_sub(now)))
                                @if session.kept.is_some() { ", kept on its browser" }
                            }
                            td { @if name != own { (end(&name, "End")) } }
                        }
                    }
                }
            }
            @if all.len() > 1 { (end("others", "End all others")) }
        },
    )
}

/// What the doctor finds.
pub(crate) fn findings(viewer: &Viewer, findings: &[Finding]) -> Markup {
    page(
        "Findings",
        Some(viewer),
        "/findings",
        &html! {
            h1 { "Findings" }
            p.soft { "What " code { "linerate doctor" } " says of this host and its tunnels." }
            @if findings.is_empty() { p.notice { "Nothing is wrong." } }
            @for finding in findings {
                section class={ "finding " (finding.severity) } {
                    h2 { (finding.what) }
                    p.soft {
                        (finding.severity)
                        @if let Some(tunnel) = &finding.tunnel { " · " (tunnel) }
                        @if let Some(peer) = &finding.peer { " · " (peer) }
                        " · " code { (finding.id) }
                    }
                    @if !finding.why.is_empty() { p { (finding.why) } }
                    @if !finding.remedy.is_empty() { p { strong { "What to do: " } (with_commands(&finding.remedy)) } }
                }
            }
        },
    )
}

/// Something went wrong.
pub(crate) fn error(viewer: Option<&Viewer>, title: &str, message: &str) -> Markup {
    page(
        title,
        viewer,
        "",
        &html! {
            h1 { (title) }
            p { (with_commands(message)) }
            p { a href="/" { "To the tunnels" } }
        },
    )
}

/// A text whose commands are in quotation marks, `thus` or `thus'.
fn with_commands(text: &str) -> Markup {
    let Some((before, rest)) = text.split_once('`') else { return html! { (text) } };
    let is_end = |(at, mark): &(usize, char)| {
        *mark == '`' || *mark == '\'' && !rest[at + 1..].starts_with(char::is_alphanumeric)
    };
    let Some((end, _)) = rest.char_indices().find(is_end) else { return html! { (text) } };
    html! { (before) code { (&rest[..end]) } (with_commands(&rest[end + 1..])) }
}

/// Rates and a plot.
fn traffic(name: &str, traffic: &Traffic, zone: &jiff::tz::TimeZone) -> Markup {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), units::rate);
    html! {
        p.rates {
            span { span.swatch.c0 {} "received " b { (rate(traffic.rates.map(|(received, _)| received))) } }
            span { span.swatch.c1 {} "sent " b { (rate(traffic.rates.map(|(_, sent)| sent))) } }
        }
        (plot(name, &traffic.series, zone))
    }
}

/// The links to other windows of time.
fn windows(path: &str, here: crate::history::Window) -> Markup {
    html! {
        nav.windows aria-label="Time" {
            @for window in crate::history::Window::ALL {
                @let current = (window == here).then_some("true");
                a href={ (path) "?window=" (window.word()) } aria-current=[current] { (window.word()) }
            }
        }
    }
}

/// A count and its noun.
fn counted(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_a_text_look_like_commands() {
        let shown = |text: &str| with_commands(text).into_string();
        assert_eq!(shown("run `ip a` or `b c', then"), "run <code>ip a</code> or <code>b c</code>, then");
        assert_eq!(shown("it's <b>; `x"), "it's &lt;b&gt;; `x");
        assert_eq!(shown("`a'b'"), "<code>a'b</code>");
        assert_eq!(shown("``"), "<code></code>");
    }
}
