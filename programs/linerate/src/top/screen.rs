//! Draws the state: a headline, the tunnels, what they drop, the peers, and the keys.

use std::env;

use linerate_control::endpoint;
use linerate_control::printable::printable;
use linerate_tunnel::status::RunBy;
use linerate_watch::{Peer, Rates, Tunnel};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use super::format::{age, bars, rate, scaled};
use super::history::LENGTH;
use super::state::State;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colours: bool,
    pub(super) utf8: bool,
}

impl Look {
    /// By NO_COLOR (<https://no-color.org>), TERM and the locale.
    pub(super) fn from_environment() -> Self {
        let variable = |name| env::var(name).unwrap_or_default();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable).into_iter().find(|value| !value.is_empty());
        let locale = locale.unwrap_or_default().to_lowercase();
        Self {
            colours: variable("NO_COLOR").is_empty() && variable("TERM") != "dumb",
            utf8: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    fn of(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BAR: Style = Style::new().add_modifier(Modifier::REVERSED);

/// The least that anything fits in.
const SMALLEST: (u16, u16) = (40, 8);

/// A column of the peers.
struct Column {
    head: &'static str,
    width: u16,
    right: bool,
    cell: Cell,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Name,
    Tunnel,
    Endpoint,
    Heard,
    Handshake,
    Received,
    Sent,
    History,
}

/// Draws everything; keeps `state` within what there is to scroll.
pub(super) fn draw(buffer: &mut Buffer, state: &mut State, look: Look) {
    let area = buffer.area;
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        write(buffer, 0, 0, "The window is too small.", Style::new());
        return;
    }
    if state.help {
        return help(buffer, look);
    }
    headline(buffer, state);
    let mut row = 1 + tunnels(buffer, 1, state, look);
    row += drops(buffer, row, state, look);
    peers(buffer, row + u16::from(area.height > 16), state, look);
    footer(buffer, state, look);
}

fn write(buffer: &mut Buffer, x: u16, y: u16, text: &str, style: Style) -> u16 {
    let left = buffer.area.width.saturating_sub(x);
    if left == 0 || y >= buffer.area.height {
        return x;
    }
    buffer.set_stringn(x, y, text, left.into(), style).0
}

/// At most `width` columns wide; what is longer ends in a dot or an ellipsis.
fn fit(text: &str, width: u16, look: Look) -> String {
    let mut measure = Buffer::empty(Rect::new(0, 0, width + 1, 1));
    if measure.set_stringn(0, 0, text, usize::from(width) + 1, Style::new()).0 <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        let longer = format!("{short}{c}");
        if measure.set_stringn(0, 0, &longer, usize::from(width) + 1, Style::new()).0 >= width {
            break;
        }
        short = longer;
    }
    short + if look.utf8 { "…" } else { "." }
}

fn headline(buffer: &mut Buffer, state: &State) {
    let all = state.view.tunnels.iter().flat_map(|tunnel| &tunnel.peers);
    let (mut count, mut connected, mut silent, mut suspended) = (0, 0, 0, 0);
    for peer in all {
        count += 1;
        connected += usize::from(is_connected(peer, state));
        silent += usize::from(peer.is_silent(state.view.time));
        suspended += usize::from(peer.suspended.is_some());
    }
    let clock = state.view.time.to_string();
    let clock = clock.get(11..19).unwrap_or_default();
    let name = if buffer.area.width < 60 { "" } else { "linerate top  " };
    let mut text = format!("{name}{clock}Z  {}, {connected} connected", of(count, "peer"));
    for (number, what) in [(silent, "silent"), (suspended, "not let in")] {
        if number > 0 {
            text.push_str(&format!(", {number} {what}"));
        }
    }
    let width = buffer.area.width;
    let end = if state.paused { "PAUSED".to_owned() } else { format!("every {} s", state.delay.as_secs_f64()) };
    write(buffer, 0, 0, &text, BOLD);
    let at = width.saturating_sub(u16::try_from(end.len()).unwrap_or(width));
    if usize::from(at) > text.len() + 1 || state.paused {
        write(buffer, at, 0, &end, if state.paused { BAR } else { DIM });
    }
}

fn of(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn is_connected(peer: &Peer, state: &State) -> bool {
    // REJECT_AFTER_TIME.
    peer.suspended.is_none() && peer.last_handshake.is_some_and(|then| then.until(state.view.time).as_secs() < 180)
}

/// A line for each tunnel, as far as there is room; returns how many lines were drawn.
fn tunnels(buffer: &mut Buffer, y: u16, state: &State, look: Look) -> u16 {
    let room = usize::from(buffer.area.height / 4).max(1);
    let all = &state.view.tunnels;
    if all.is_empty() {
        write(buffer, 0, y, "There is no tunnel. `linerate up NAME` brings one up.", Style::new());
        return 1;
    }
    let shown = if all.len() > room { room - 1 } else { all.len() };
    for (tunnel, line) in all.iter().take(shown).zip(y..) {
        one_tunnel(buffer, line, tunnel, state, look);
    }
    let mut lines = u16::try_from(shown).unwrap_or(u16::MAX);
    if shown < all.len() {
        let rest = all[shown..].iter().filter_map(Tunnel::rates).fold(Rates::default(), |sum, rates| Rates {
            received: sum.received + rates.received,
            sent: sum.sent + rates.sent,
        });
        let [received, sent] = [rest.received, rest.sent].map(|bytes| rate(Some(bytes)));
        let more = of(all.len() - shown, "more tunnel");
        write(buffer, 0, y + lines, &format!("{more}: received {received}, sent {sent} bit/s"), DIM);
        lines += 1;
    }
    lines
}

fn one_tunnel(buffer: &mut Buffer, y: u16, tunnel: &Tunnel, state: &State, look: Look) {
    let x = write(buffer, 0, y, &format!("{:<9}", fit(&tunnel.interface, 15, look)), BOLD) + 1;
    let bad = look.of(Color::Red).add_modifier(Modifier::BOLD);
    if let Some(problem) = &tunnel.problem {
        write(buffer, x, y, &printable(problem), bad);
        return;
    }
    if tunnel.implementation == RunBy::Gone {
        write(buffer, x, y, "its daemon has died", bad);
        return;
    }
    // In the place of its rates, which are in the rows of its peers. A hook may have moved it on purpose.
    if let Some(place) = &tunnel.place {
        write(buffer, x, y, &format!("it {}", printable(place)), look.of(Color::Yellow));
        return;
    }
    let rates = tunnel.rates();
    let [received, sent] = [rates.map(|rates| rates.received), rates.map(|rates| rates.sent)].map(rate);
    let cpu = match tunnel.daemon {
        Some(daemon) => {
            format!("CPU {:>5}", daemon.cpu.map_or("-".to_owned(), |share| format!("{:.1}%", share * 100.0)))
        }
        None if tunnel.implementation == RunBy::Kernel => "kernel   ".to_owned(),
        None => "         ".to_owned(),
    };
    let lost: f64 = tunnel.drops().filter_map(|(_, counter)| counter.per_second).sum();
    let [received, sent] = [format!("rx {received:>5}bit/s"), format!("tx {sent:>5}bit/s")];
    let first = if buffer.area.width < 60 { [received, sent, cpu] } else { [cpu, received, sent] };
    let mut parts: Vec<_> =
        first.into_iter().chain([of(tunnel.peers.len(), "peer")]).map(|text| (text, Style::new())).collect();
    if lost >= 0.5 {
        parts.push((format!("{}/s dropped", scaled(lost)), look.of(Color::Yellow)));
    }
    let mut x = x;
    for (text, style) in parts {
        // Half a number would be a wrong one.
        if usize::from(x) + text.len() > buffer.area.width.into() {
            break;
        }
        x = write(buffer, x, y, &text, style) + 2;
    }
    let history = bars(&state.history.of(tunnel.instance, None), look.utf8);
    let left = usize::from(buffer.area.width.saturating_sub(x));
    if left >= 8 {
        let newest = history.chars().skip(LENGTH.saturating_sub(left)).collect::<String>();
        let at = buffer.area.width - newest.chars().count() as u16;
        write(buffer, at, y, &newest, look.of(Color::Cyan));
    }
}

/// The reasons for which packets are dropped, the most frequent first; returns how many lines were drawn.
fn drops(buffer: &mut Buffer, y: u16, state: &State, look: Look) -> u16 {
    let several = state.view.tunnels.len() > 1;
    let mut reasons = Vec::new();
    for tunnel in &state.view.tunnels {
        for (reason, counter) in tunnel.drops().filter(|(_, counter)| counter.value > 0) {
            let of_tunnel = if several { format!("{} ", tunnel.interface) } else { String::new() };
            let name = format!("{of_tunnel}{}", reason.replace('_', " "));
            reasons.push((counter.per_second.unwrap_or(0.0), counter.value, name));
        }
    }
    if reasons.is_empty() || buffer.area.height < 12 {
        return 0;
    }
    reasons.sort_by(|one, other| other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)));
    let mut x = write(buffer, 0, y, "dropped  ", BOLD) + 1;
    for (per_second, total, name) in reasons {
        let text = match per_second {
            0.0 => format!("{name} {}", scaled(total as f64)),
            per_second => format!("{name} {} ({}/s)", scaled(total as f64), scaled(per_second)),
        };
        if usize::from(x) + text.len() > buffer.area.width.into() {
            break;
        }
        let style = if per_second > 0.0 { look.of(Color::Yellow) } else { DIM };
        x = write(buffer, x, y, &text, style) + 2;
    }
    1
}

/// The columns that fit, the most important ones first.
fn columns(width: u16, several: bool) -> Vec<Column> {
    let column = |head, width, right, cell| Column { head, width, right, cell };
    let mut columns = vec![
        column("PEER", 16, false, Cell::Name),
        column("HEARD", 5, true, Cell::Heard),
        column("RX", 5, true, Cell::Received),
        column("TX", 5, true, Cell::Sent),
    ];
    let mut left = width.saturating_sub(columns.iter().map(|column| column.width + 1).sum::<u16>());
    let mut add = |at: usize, new: Column| {
        if left > new.width {
            left -= new.width + 1;
            columns.insert(at.min(columns.len()), new);
        }
    };
    // Each at its place from the left, as the columns are then.
    add(1, column("ENDPOINT", 21, false, Cell::Endpoint));
    let after_heard = if width >= 57 { 3 } else { 2 };
    add(after_heard, column("SHAKE", 5, true, Cell::Handshake));
    if several {
        add(1, column("TUNNEL", 8, false, Cell::Tunnel));
    }
    // The last seconds; names get what is left, then IPv6 addresses, and then the seconds before.
    let history = left.saturating_sub(1).min(LENGTH as u16 / 2);
    if history >= 5 {
        left -= history + 1;
        columns.push(column("HISTORY", history, false, Cell::History));
    }
    let more = [(Cell::Name, 28), (Cell::Endpoint, 26), (Cell::History, LENGTH as u16 / 2)];
    for (cell, most) in more {
        let Some(column) = columns.iter_mut().find(|column| column.cell == cell) else { continue };
        let more = left.min(most);
        column.width += more;
        left -= more;
    }
    columns
}

fn peers(buffer: &mut Buffer, y: u16, state: &mut State, look: Look) {
    let height = buffer.area.height;
    let page = usize::from(height.saturating_sub(y + 2));
    let rows = state.rows();
    let total = rows.len();
    let top = state.top.min(total.saturating_sub(page));
    let several = state.view.tunnels.len() > 1;
    let columns = columns(buffer.area.width, several);
    buffer.set_style(Rect::new(0, y, buffer.area.width, 1), BAR);
    let mut x = 0;
    for column in &columns {
        cell(buffer, x, y, column, column.head, BAR.add_modifier(Modifier::BOLD), look);
        x += column.width + 1;
    }
    for ((tunnel, peer), line) in rows.into_iter().skip(top).take(page).zip(y + 1..) {
        let mut x = 0;
        for column in &columns {
            let (text, style) = text(column.cell, column.width, tunnel, peer, state, look);
            cell(buffer, x, line, column, &text, style, look);
            x += column.width + 1;
        }
    }
    if total == 0 && !state.view.tunnels.is_empty() {
        let why = match (state.filter.is_empty(), state.busy_only) {
            (false, _) => "No peer matches the filter.",
            (true, true) => "No peer has traffic. `i` shows those at rest, too.",
            (true, false) => "No peers.",
        };
        write(buffer, 0, y + 1, why, DIM);
    }
    (state.top, state.page) = (top, page.max(1));
}

fn cell(buffer: &mut Buffer, x: u16, y: u16, column: &Column, text: &str, style: Style, look: Look) {
    let text = fit(text, column.width, look);
    let width = u16::try_from(text.width()).unwrap_or(column.width);
    let indent = if column.right { column.width.saturating_sub(width) } else { 0 };
    buffer.set_stringn(x + indent, y, &text, (column.width - indent).into(), style);
}

fn text(cell: Cell, width: u16, tunnel: &Tunnel, peer: &Peer, state: &State, look: Look) -> (String, Style) {
    let now = state.view.time;
    let idle = peer.rates.is_none_or(|rates| rates.received + rates.sent == 0.0);
    let plain = if idle { DIM } else { Style::new() };
    let moving = |bytes: Option<f64>| {
        let is_moving = bytes.is_some_and(|bytes| bytes > 0.0);
        (rate(bytes), if is_moving { look.of(Color::Green) } else { DIM })
    };
    match cell {
        Cell::Name => {
            let style = match (peer.suspended, peer.is_silent(now)) {
                (Some(_), _) => look.of(Color::Magenta),
                (None, true) => look.of(Color::Red),
                (None, false) if is_connected(peer, state) => Style::new(),
                (None, false) => DIM,
            };
            (printable(&peer.label()).into_owned(), style)
        }
        Cell::Tunnel => (tunnel.interface.clone(), plain),
        Cell::Endpoint => match (peer.suspended, &peer.endpoint) {
            (Some(reason), _) => (format!("not let in: {}", reason.name()), look.of(Color::Magenta)),
            (None, Some(address)) => (endpoint::text(address), plain),
            (None, None) => ("-".to_owned(), DIM),
        },
        Cell::Heard if peer.is_silent(now) => {
            (age(peer.last_received, now), look.of(Color::Red).add_modifier(Modifier::BOLD))
        }
        // Whoever has had a handshake was heard then.
        Cell::Heard => (age(peer.last_received.max(peer.last_handshake), now), plain),
        Cell::Handshake => (age(peer.last_handshake, now), plain),
        Cell::Received => moving(peer.rates.map(|rates| rates.received)),
        Cell::Sent => moving(peer.rates.map(|rates| rates.sent)),
        Cell::History => {
            let history = state.history.of(tunnel.instance, Some(peer.settings.public_key));
            let newest = &history[LENGTH.saturating_sub(width.into())..];
            (bars(newest, look.utf8), look.of(Color::Cyan))
        }
    }
}

fn footer(buffer: &mut Buffer, state: &State, look: Look) {
    let y = buffer.area.height - 1;
    if state.typing.is_some() {
        let x = write(buffer, 0, y, &format!("/{}", printable(&state.filter)), BOLD);
        let x = write(buffer, x, y, " ", BAR);
        write(buffer, x + 2, y, "Enter keeps it, Esc drops it", DIM);
        return;
    }
    let direction = if state.reversed { ", reversed" } else { "" };
    let mut said = format!("sorted by {}{direction}", state.sort.name());
    if state.busy_only {
        said.push_str(", only with traffic");
    }
    if !state.filter.is_empty() {
        said.push_str(&format!(", only /{}", printable(&state.filter)));
    }
    let keys = "q quit  h help  / filter  s sort  r reverse  i idle  p pause";
    let x = write(buffer, 0, y, &fit(&said, buffer.area.width, look), Style::new());
    let at = buffer.area.width.saturating_sub(keys.len() as u16);
    if at > x + 1 {
        write(buffer, at, y, keys, DIM);
    } else if buffer.area.width > x + 8 {
        write(buffer, buffer.area.width - 6, y, "h help", DIM);
    }
}

fn help(buffer: &mut Buffer, look: Look) {
    let lines = [
        ("q, Ctrl-C", "quit"),
        ("h, ?", "this help; any key ends it"),
        ("arrows, PgUp, PgDn, Home, End", "scroll"),
        ("/", "only peers with this in name, key, address or tunnel; Esc: all"),
        ("s", "sort by rate, heard, handshake, name, bytes"),
        ("r", "reverse the order"),
        ("i", "leave out peers without traffic, or not"),
        ("p, space", "pause"),
        ("Ctrl-L", "draw everything anew"),
        ("Ctrl-Z", "suspend"),
    ];
    write(buffer, 0, 0, "linerate top: keys", BOLD);
    for ((key, what), y) in lines.iter().zip(2..) {
        write(buffer, 0, y, key, look.of(Color::Cyan));
        write(buffer, 31, y, what, Style::new());
    }
    let rest = [
        "RX and TX: bits per second, with everything WireGuard adds.",
        "HEARD: the last authentic packet. SHAKE: the last handshake.",
        "A peer in red does not answer; one in magenta is not let in.",
    ];
    for (text, y) in rest.iter().zip(lines.len() as u16 + 3..) {
        write(buffer, 0, y, text, DIM);
    }
}

#[cfg(test)]
mod tests;
