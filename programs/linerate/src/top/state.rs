//! What is shown, and what keys change of it.

use std::cmp::Ordering;
use std::time::Duration;

use linerate_control::endpoint;
use linerate_server::searchable;
use linerate_watch::{Peer, Tunnel, View};

use super::history::History;

/// A key, as far as it means anything here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Control(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Backspace,
    Escape,
}

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Goes,
    Redraw,
    Suspend,
    Quit,
}

/// By what peers are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Rate,
    Heard,
    Handshake,
    Name,
    Total,
}

impl Sort {
    const ALL: [Self; 5] = [Self::Rate, Self::Heard, Self::Handshake, Self::Name, Self::Total];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Heard => "heard",
            Self::Handshake => "handshake",
            Self::Name => "name",
            Self::Total => "bytes",
        }
    }
}

/// What is shown.
pub(super) struct State {
    pub(super) view: View,
    pub(super) history: History,
    pub(super) delay: Duration,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    /// Only peers that have this in their name, key, endpoint or tunnel.
    pub(super) filter: String,
    /// The filter is being typed; what it was before.
    pub(super) typing: Option<String>,
    /// Whether peers without traffic are left out.
    pub(super) busy_only: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// The first row that is shown, and how many fit: `screen` keeps them within bounds.
    pub(super) top: usize,
    pub(super) page: usize,
}

impl State {
    pub(super) fn new(delay: Duration) -> Self {
        Self {
            view: View::default(),
            history: History::default(),
            delay,
            sort: Sort::Rate,
            reversed: false,
            filter: String::new(),
            typing: None,
            busy_only: false,
            paused: false,
            help: false,
            top: 0,
            page: 1,
        }
    }

    /// Takes over what was read, unless it is paused: the rates of that time are remembered in any case.
    pub(super) fn update(&mut self, view: View) {
        self.history.add(&view);
        if !self.paused {
            self.view = view;
        }
    }

    pub(super) fn press(&mut self, key: Key) -> Outcome {
        match key {
            Key::Control('c') => return Outcome::Quit,
            Key::Control('z') => return Outcome::Suspend,
            Key::Control('l') => return Outcome::Redraw,
            _ if self.typing.is_some() => self.type_filter(key),
            // Any key ends the help.
            _ if self.help => self.help = false,
            Key::Char('q') => return Outcome::Quit,
            Key::Char('h' | '?') => self.help = true,
            Key::Char('/') => self.typing = Some(self.filter.clone()),
            Key::Escape => self.filter.clear(),
            Key::Char('s') => {
                let at = Sort::ALL.iter().position(|sort| *sort == self.sort).unwrap_or(0);
                (self.sort, self.top) = (Sort::ALL[(at + 1) % Sort::ALL.len()], 0);
            }
            Key::Char('r') => self.reversed = !self.reversed,
            Key::Char('i') => (self.busy_only, self.top) = (!self.busy_only, 0),
            Key::Char('p' | ' ') => self.paused = !self.paused,
            Key::Up | Key::Char('k') => self.top = self.top.saturating_sub(1),
            Key::Down | Key::Char('j') => self.top = self.top.saturating_add(1),
            Key::PageUp => self.top = self.top.saturating_sub(self.page),
            Key::PageDown => self.top = self.top.saturating_add(self.page),
            Key::Home => self.top = 0,
            Key::End => self.top = usize::MAX,
            _ => {}
        }
        Outcome::Goes
    }

    fn type_filter(&mut self, key: Key) {
        self.top = 0;
        match key {
            Key::Enter => self.typing = None,
            Key::Escape => self.filter = self.typing.take().unwrap_or_default(),
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(c) if !c.is_control() => self.filter.push(c),
            _ => {}
        }
    }

    /// The peers that are shown, in their order.
    pub(super) fn rows(&self) -> Vec<(&Tunnel, &Peer)> {
        let filter = searchable(&self.filter);
        let all = self.view.tunnels.iter().flat_map(|tunnel| tunnel.peers.iter().map(move |peer| (tunnel, peer)));
        let mut rows: Vec<_> = all
            .filter(|(_, peer)| !self.busy_only || rate(peer) > 0.0)
            .filter(|(tunnel, peer)| filter.is_empty() || matches(&filter, tunnel, peer))
            .collect();
        rows.sort_by(|one, other| {
            let order = self.compare(one.1, other.1);
            if self.reversed { order.reverse() } else { order }
        });
        rows
    }

    /// What is looked for comes first: the busiest, the ones heard last, the first of the alphabet.
    fn compare(&self, one: &Peer, other: &Peer) -> Ordering {
        let by_name = || {
            let (one, other) = (&one.settings, &other.settings);
            let unnamed_last = one.name.is_none().cmp(&other.name.is_none());
            unnamed_last.then_with(|| one.name.cmp(&other.name)).then_with(|| one.public_key.cmp(&other.public_key))
        };
        match self.sort {
            Sort::Rate => rate(other).total_cmp(&rate(one)).then(other.last_received.cmp(&one.last_received)),
            Sort::Heard => other.last_received.cmp(&one.last_received),
            Sort::Handshake => other.last_handshake.cmp(&one.last_handshake),
            Sort::Name => by_name(),
            Sort::Total => (other.received.saturating_add(other.sent)).cmp(&one.received.saturating_add(one.sent)),
        }
        .then_with(by_name)
    }
}

fn rate(peer: &Peer) -> f64 {
    peer.rates.map_or(0.0, |rates| rates.received + rates.sent)
}

fn matches(filter: &str, tunnel: &Tunnel, peer: &Peer) -> bool {
    let has = |text: &str| searchable(text).contains(filter);
    has(&tunnel.interface)
        || peer.settings.name.as_deref().is_some_and(has)
        || has(&peer.settings.public_key.to_string())
        || peer.endpoint.as_ref().is_some_and(|address| has(&endpoint::text(address)))
        || peer.settings.allowed_ips.iter().any(|(address, _)| has(&address.to_string()))
}
