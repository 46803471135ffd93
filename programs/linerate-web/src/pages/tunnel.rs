//! A tunnel and its peers, a page at a time.

use form_urlencoded::Serializer;
use jiff::tz::TimeZone;
use linerate_page::{Peer, Sort, State, Tunnel};
use maud::{Markup, html};

use super::overview::facts;
use super::{Traffic, Viewer, counted, page, traffic, windows};
use crate::routes::{Form, key_in_path};
use crate::units;

/// How many peers a page has.
pub(crate) const ON_A_PAGE: usize = 50;

/// Which peers are shown, and in which order.
pub(crate) struct Selection {
    pub(crate) sort: Sort,
    pub(crate) reverse: bool,
    pub(crate) filter: String,
    pub(crate) page: usize,
}

const SORTS: [(Sort, &str); 6] = [
    (Sort::Name, "name"),
    (Sort::State, "state"),
    (Sort::Address, "address"),
    (Sort::Seen, "seen"),
    (Sort::Rate, "rate"),
    (Sort::Bytes, "bytes"),
];

impl Selection {
    /// What a query asks for; nonsense is left out.
    pub(crate) fn read(query: &Form) -> Self {
        let sort = SORTS.iter().find(|(_, word)| *word == query.get("sort")).map_or(Sort::Name, |(sort, _)| *sort);
        Self {
            sort,
            reverse: query.has("reverse"),
            filter: query.get("filter").chars().filter(|c| !c.is_control()).take(100).collect(),
            page: query.get("page").parse::<usize>().ok().filter(|page| (1..=1_000_000).contains(page)).unwrap_or(1),
        }
    }

    /// The order, and its arrow. What is fastest, most or latest is first unless it is reversed.
    fn order(&self) -> (&'static str, &'static str) {
        match self.reverse != matches!(self.sort, Sort::Seen | Sort::Rate | Sort::Bytes) {
            true => ("descending", " ↓"),
            false => ("ascending", " ↑"),
        }
    }

    fn query(&self, sort: Sort, reverse: bool, page: usize) -> String {
        let mut query = Serializer::for_suffix("?".to_owned(), 1);
        let word = SORTS.iter().find(|(known, _)| *known == sort).map_or("name", |(_, word)| word);
        query.append_pair("sort", word);
        if reverse {
            query.append_key_only("reverse");
        }
        if !self.filter.is_empty() {
            query.append_pair("filter", &self.filter);
        }
        if page > 1 {
            query.append_pair("page", &page.to_string());
        }
        query.finish()
    }
}

/// The peers that are shown, and how many the selection has.
pub(crate) struct List<'a> {
    pub(crate) peers: &'a [Peer],
    pub(crate) found: usize,
    pub(crate) selection: &'a Selection,
}

/// The page of a tunnel.
pub(crate) fn tunnel(
    viewer: &Viewer,
    tunnel: &Tunnel,
    of: &Traffic,
    list: &List<'_>,
    write: bool,
    zone: &TimeZone,
) -> Markup {
    let List { peers, found, selection } = *list;
    let path = format!("/tunnels/{}", tunnel.name);
    page(
        &tunnel.name,
        Some(viewer),
        "",
        &html! {
            p.crumbs { a href="/" { "Tunnels" } }
            h1 { (tunnel.name) }
            div #facts data-live { (facts(tunnel)) }
            (windows(&path, of.series.window))
            section.wide aria-label="Traffic" { div #traffic data-live { (traffic(&tunnel.name, of, zone)) } }
            h2 #list { (if tunnel.is_server { "Clients and other peers" } else { "Peers" }) }
            form.search method="get" action=(path) role="search" {
                input type="search" name="filter" value=(selection.filter) aria-label="Name, note, address or key"
                    placeholder="Name, address or key";
                button { "Search" }
                @if tunnel.is_server && viewer.may_change(write) {
                    a.button.main href={ (path) "/add" } { "Add a client" }
                }
            }
            div #peers data-live {
                p.soft {
                    (counted(found, "peer"))
                    @if !selection.filter.is_empty() { " with “" (selection.filter) "” · " a href=(path) { "all" } }
                }
                @if found > 0 { (table(&path, peers, selection)) (pages(found, selection)) }
            }
        },
    )
}

fn table(path: &str, peers: &[Peer], selection: &Selection) -> Markup {
    let columns = [
        ("Name", Some(Sort::Name), false),
        ("State", Some(Sort::State), false),
        ("Addresses", Some(Sort::Address), false),
        ("Last handshake", Some(Sort::Seen), false),
        ("Receiving", Some(Sort::Rate), true),
        ("Sending", None, true),
        ("Received", Some(Sort::Bytes), true),
        ("Sent", None, true),
    ];
    html! {
        table.peers role="table" {
            thead role="rowgroup" {
                tr role="row" {
                    @for (title, sort, is_number) in columns {
                        @let here = sort == Some(selection.sort);
                        @let (order, arrow) = selection.order();
                        @let order = here.then_some(order);
                        th scope="col" role="columnheader" class=[is_number.then_some("number")] aria-sort=[order] {
                            @if let Some(sort) = sort {
                                a href=(selection.query(sort, here && !selection.reverse, 1)) {
                                    (title) @if here { (arrow) }
                                }
                            } @else { (title) }
                        }
                    }
                }
            }
            tbody role="rowgroup" { @for peer in peers { (row(path, peer)) } }
        }
    }
}

fn row(path: &str, peer: &Peer) -> Markup {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), units::rate);
    let addresses = peer.addresses.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    let seen = peer.seen.map_or_else(|| "never".to_owned(), units::ago);
    html! {
        tr role="row" {
            th scope="row" role="rowheader" {
                a href={ (path) "/peers/" (key_in_path(&peer.key)) } {
                    @if let Some(name) = &peer.name { bdi { (name) } } @else { span.key { (short(&peer.key)) } }
                }
            }
            td role="cell" data-label="State" { (state(peer.state)) }
            td role="cell" data-label="Addresses" { (addresses) @if peer.addresses.len() > 3 { ", …" } }
            td.one-line role="cell" data-label="Last handshake" { (seen) }
            td.number role="cell" data-label="Receiving" { (rate(peer.receive_rate)) }
            td.number role="cell" data-label="Sending" { (rate(peer.send_rate)) }
            td.number role="cell" data-label="Received" { (units::bytes(peer.received)) }
            td.number role="cell" data-label="Sent" { (units::bytes(peer.sent)) }
        }
    }
}

/// A state as a word, and a mark.
pub(super) fn state(state: State) -> Markup {
    let (class, word) = match state {
        State::Online => ("state online", "online"),
        State::Silent => ("state", "silent"),
        State::Never => ("state", "never seen"),
        State::QuotaUsed => ("state out", "quota used up"),
        State::Expired => ("state out", "expired"),
        State::Disabled => ("state out", "disabled"),
    };
    html! { span class=(class) { (word) } }
}

/// The beginning of a key.
pub(super) fn short(key: &str) -> String {
    format!("{}…", key.chars().take(12).collect::<String>())
}

fn pages(found: usize, selection: &Selection) -> Markup {
    let last = found.div_ceil(ON_A_PAGE);
    let to = |page: usize| selection.query(selection.sort, selection.reverse, page);
    html! {
        @if last > 1 {
            nav.pages aria-label="Pages of peers" {
                @if selection.page > 1 {
                    a href=(to(1)) { "First" }
                    a rel="prev" href=(to(selection.page - 1)) { "Previous" }
                }
                span { "Page " (selection.page) " of " (last) }
                @if selection.page < last {
                    a rel="next" href=(to(selection.page + 1)) { "Next" }
                    a href=(to(last)) { "Last" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_survives_its_link_and_nonsense_is_left_out() {
        let selection = Selection::read(&Form::read("sort=rate&reverse&filter=a+%26b&page=7"));
        assert_eq!(
            (selection.sort, selection.reverse, &*selection.filter, selection.page),
            (Sort::Rate, true, "a &b", 7)
        );
        assert_eq!(selection.query(Sort::Rate, true, 7), "?sort=rate&reverse&filter=a+%26b&page=7");
        assert_eq!(selection.order().0, "ascending", "the slowest first");
        let nonsense = Selection::read(&Form::read("sort=x&page=-1&filter=%00%0a"));
        assert_eq!((nonsense.sort, nonsense.reverse, &*nonsense.filter, nonsense.page), (Sort::Name, false, "", 1));
    }

    #[test]
    fn a_hostile_name_is_a_text() {
        let peer = Peer { name: Some("<script>alert(1)</script>\"'".into()), key: "k".into(), ..Peer::default() };
        let text = row("/tunnels/wg0", &peer).into_string();
        assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{text}");
        assert!(!text.contains("<script"), "{text}");
    }
}
