//! A peer, and what can be done with it if it is a client.

use form_urlencoded::byte_serialize;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use linerate_page::{Client, Peer, State, Tunnel};
use linerate_server::QrCode;
use maud::{Markup, html};

use super::tunnel::{short, state};
use super::{Viewer, page, secret};
use crate::routes::{Form, key_in_path};
use crate::units;

/// What is said above the page of a peer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shown<'a> {
    pub(crate) done: Option<&'a str>,
    pub(crate) refusal: Option<&'a str>,
}

/// Maximum length of a name in UTF-16 units, which browsers count: 64 characters of up to two units.
const MAX_NAME_UTF16_UNITS: usize = 128;

fn path_of(tunnel: &Tunnel, peer: &Peer) -> String {
    format!("/tunnels/{}/peers/{}", tunnel.name, key_in_path(&peer.key))
}

fn title_of(peer: &Peer) -> String {
    peer.name.clone().unwrap_or_else(|| short(&peer.key))
}

fn crumbs(tunnel: &Tunnel, peer: Option<&Peer>) -> Markup {
    html! {
        p.crumbs {
            a href="/" { "Tunnels" } " › " a href={ "/tunnels/" (tunnel.name) } { (tunnel.name) }
            @if let Some(peer) = peer { " › " a href=(path_of(tunnel, peer)) { bdi { (title_of(peer)) } } }
        }
    }
}

/// The page of a peer.
pub(crate) fn peer(
    viewer: &Viewer,
    tunnel: &Tunnel,
    peer: &Peer,
    shown: Shown<'_>,
    write: bool,
    zone: &TimeZone,
) -> Markup {
    let client = peer.client.as_ref();
    page(
        &title_of(peer),
        Some(viewer),
        "",
        &html! {
            (crumbs(tunnel, None))
            h1 { bdi { (title_of(peer)) } }
            @if let Some(done) = shown.done { p.notice role="status" { (done) } }
            @if let Some(refusal) = shown.refusal { p.refusal role="alert" { (refusal) } }
            div.columns {
                div { div #peer data-live { (details(peer, zone)) } }
                @if let (Some(client), Some(_)) = (client, &peer.name) {
                    div { (actions(viewer, tunnel, peer, client, write)) }
                }
            }
        },
    )
}

fn details(peer: &Peer, zone: &TimeZone) -> Markup {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), units::rate);
    html! {
        p.rates {
            span { "receiving " b { (rate(peer.receive_rate)) } }
            span { "sending " b { (rate(peer.send_rate)) } }
        }
        dl.details {
            dt { "State" } dd { (state(peer.state)) }
            dt { "Last handshake" } dd { (peer.seen.map_or_else(|| "never".to_owned(), units::ago)) }
            dt { "Endpoint" } dd { (peer.endpoint.as_deref().unwrap_or("none yet")) }
            dt { "Addresses" } dd { (peer.addresses.join(", ")) }
            dt { "Received" } dd { (units::bytes(peer.received)) }
            dt { "Sent" } dd { (units::bytes(peer.sent)) }
            @if let Some(quota) = peer.quota {
                dt { "Quota" }
                dd {
                    (units::bytes(peer.quota_used)) " of " (units::bytes(quota)) " used"
                    @if peer.client.as_ref().is_some_and(|client| client.monthly) { ", anew each month" }
                }
            }
            @if let Some(rate) = &peer.rate { dt { "Rate" } dd { (rate) "bit/s" @if rate.contains('/') { " (down/up)" } } }
            @if let Some(client) = &peer.client {
                dt { "Expires" }
                dd { (client.expires.as_deref().map_or_else(|| "never".to_owned(), |at| time(at, zone))) }
                @if let Some(created) = &client.created { dt { "Created" } dd { (time(created, zone)) } }
                @if let Some(note) = &client.note { dt { "Note" } dd { (note) } }
            }
            dt { "Public key" } dd.key { (peer.key) }
        }
    }
}

fn actions(viewer: &Viewer, tunnel: &Tunnel, peer: &Peer, client: &Client, write: bool) -> Markup {
    let path = path_of(tunnel, peer);
    let name = title_of(peer);
    html! {
        @if viewer.role == crate::sessions::Role::Writer {
            h2 { "Its file" }
            @if client.key_kept {
                p.row {
                    a.button href={ (path) "/code" } { "Show the QR code" }
                    a.button href={ (path) "/file" } download={ (client.file_name) ".conf" } { "Download" }
                }
            } @else {
                p {
                    "Only the client has its private key. " code { "sudo linerate client rekey " (client.file_name) }
                    " makes a new one."
                }
            }
        }
        @if viewer.may_change(write) {
            h2 { "Change" }
            @if peer.state != State::Expired {
                @let (verb, word) = match peer.state {
                    State::Disabled => ("enable", "Enable"),
                    _ => ("disable", "Disable"),
                };
                form.row method="post" action={ (path) "/" (verb) } { (secret(viewer)) button { (word) } }
            }
            form.row method="post" action={ (path) "/renew" } {
                (secret(viewer))
                label { "Let in until" input name="expires" required placeholder="30d, 2030-01-31 or never" size="22"; }
                button { "Renew" }
            }
            form.row method="post" action={ (path) "/rename" } {
                (secret(viewer))
                label { "Name" input name="name" required value=(name) maxlength=(MAX_NAME_UTF16_UNITS) size="16"; }
                button { "Rename" }
            }
            form.row method="post" action={ (path) "/set" } {
                (secret(viewer))
                label { "Quota" input name="quota" value=(quota(peer)) placeholder="50G or none" size="12"; }
                label.box { input type="checkbox" name="monthly" checked[client.monthly]; "each month" }
                label { "Rate" input name="rate" value=(peer.rate.as_deref().unwrap_or("")) placeholder="20M/5M or none" size="12"; }
                label { "Note" input name="note" value=(client.note.as_deref().unwrap_or("")) size="20"; }
                button { "Save" }
            }
            p.row { a.button.danger href={ (path) "/remove" } { "Remove" } }
        }
    }
}

/// An instant by the clock on the server's wall.
fn time(text: &str, zone: &TimeZone) -> String {
    let at = text.parse::<Timestamp>().map(|at| at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M %Z").to_string());
    at.unwrap_or_else(|_| text.to_owned())
}

/// A quota as it can be typed.
fn quota(peer: &Peer) -> String {
    peer.quota.map_or_else(String::new, |quota| quota.to_string())
}

/// Asks whether to remove a client.
pub(crate) fn remove_form(viewer: &Viewer, tunnel: &Tunnel, peer: &Peer) -> Markup {
    let path = path_of(tunnel, peer);
    page(
        &format!("Remove {}", title_of(peer)),
        Some(viewer),
        "",
        &html! {
            (crumbs(tunnel, Some(peer)))
            h1 { "Remove " bdi { (title_of(peer)) } "?" }
            p {
                "It is no longer let in, and its addresses are given to no other client for a day. "
                "It cannot be undone."
            }
            form.row method="post" action={ (path) "/remove" } {
                (secret(viewer))
                button.danger { "Remove" }
                a.button href=(path) { "Keep" }
            }
        },
    )
}

/// The form of a new client, with what was typed.
pub(crate) fn add_form(viewer: &Viewer, tunnel: &Tunnel, typed: &Form, refusal: Option<&str>) -> Markup {
    page(
        "Add a client",
        Some(viewer),
        "",
        &html! {
            (crumbs(tunnel, None))
            h1 { "Add a client" }
            @if let Some(refusal) = refusal { p.refusal role="alert" { (refusal) } }
            form.fields method="post" action={ "/tunnels/" (tunnel.name) "/add" } {
                (secret(viewer))
                label {
                    "Name"
                    input name="name" required maxlength=(MAX_NAME_UTF16_UNITS) autofocus
                        value=(typed.get("name"));
                    small { "Any text of up to 64 characters" }
                }
                label { "Let in until" input name="expires" value=(typed.get("expires")) placeholder="for ever";
                    small { "30d, 2030-01-31 or 2030-01-31T18:00" } }
                label {
                    "Quota" input name="quota" value=(typed.get("quota")) placeholder="none";
                    small { "50G or 50Gi" }
                }
                label {
                    input type="checkbox" name="monthly" checked[typed.has("monthly")];
                    "The quota begins anew each month"
                }
                label {
                    "Rate" input name="rate" value=(typed.get("rate")) placeholder="none";
                    small { "20M, or 20M/5M (down/up), in bits per second" }
                }
                label { "Note" input name="note" value=(typed.get("note")); }
                label { input type="checkbox" name="split" checked[typed.has("split")];
                    "Send only the server's networks through the tunnel" }
                label {
                    input type="checkbox" name="keep" checked[typed.has("keep")];
                    "Keep its private key on the server"
                    small { "Its QR code can be shown again then; else only now." }
                }
                div { button.main { "Add" } }
            }
        },
    )
}

/// A client that was just added.
pub(crate) struct NewFile<'a> {
    pub(crate) name: &'a str,
    pub(crate) file_name: &'a str,
    pub(crate) text: &'a str,
    pub(crate) notes: &'a [String],
}

/// The file of a client that was just added, with the warnings about it.
pub(crate) fn new_file(viewer: &Viewer, tunnel: &Tunnel, client: &NewFile<'_>, is_kept: bool) -> Markup {
    let NewFile { name, file_name, text, notes } = *client;
    let filter: String = byte_serialize(name.as_bytes()).collect();
    page(
        name,
        Some(viewer),
        "",
        &html! {
            (crumbs(tunnel, None))
            h1 { bdi { (name) } " was added" }
            @if !is_kept { p.notice { "This is the only time that its private key is shown." } }
            @for note in notes { p.notice { (note) } }
            div.columns {
                div { (picture(name, text)) }
                div {
                    pre #file { (text) }
                    p.row {
                        button type="button" data-save={ (file_name) ".conf" } hidden { "Save as a file" }
                        a.button href={ "/tunnels/" (tunnel.name) "?filter=" (filter) } { "Done" }
                    }
                }
            }
        },
    )
}

/// The QR code of a client's file.
pub(crate) fn code(viewer: &Viewer, tunnel: &Tunnel, peer: &Peer, text: &str) -> Markup {
    page(
        &format!("{}: QR code", title_of(peer)),
        Some(viewer),
        "",
        &html! {
            (crumbs(tunnel, Some(peer)))
            h1 { bdi { (title_of(peer)) } ": QR code" }
            p { "Who sees it can use the tunnel as this client." }
            (picture(&title_of(peer), text))
        },
    )
}

fn picture(name: &str, text: &str) -> Markup {
    match QrCode::new(text.as_bytes()) {
        Ok(code) => {
            let (side, path) = code.path();
            html! {
                svg.code role="img" aria-label={ "QR code of the file of " (name) } viewBox={ "0 0 " (side) " " (side) }
                    shape-rendering="crispEdges" {
                    path d=(path) {}
                }
                @if code.is_dense() { p { "It is so dense that phones may not read it: hand over the file." } }
            }
        }
        Err(error) => html! { p.refusal { (error) } },
    }
}
