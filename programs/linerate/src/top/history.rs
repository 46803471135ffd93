//! The last rates of the peers that have had any.

use std::collections::HashMap;

use linerate_control::keys::PublicKey;
use linerate_watch::View;

/// How many are kept.
pub(super) const LENGTH: usize = 32;

/// Of each peer, and of each tunnel under no key. Peers at rest for that long are not in it.
#[derive(Default)]
pub(super) struct History {
    /// By the tunnel's instance, which no other daemon has.
    rates: HashMap<(u64, Option<PublicKey>), Rates>,
    round: u64,
}

struct Rates {
    /// A ring: the one of a round is at its number modulo the length.
    values: [f32; LENGTH],
    /// The last round with traffic.
    last: u64,
}

impl History {
    /// Takes over the rates of a view.
    pub(super) fn add(&mut self, view: &View) {
        self.round += 1;
        for tunnel in &view.tunnels {
            let mut all = 0.0;
            for peer in &tunnel.peers {
                let rate = peer.rates.map_or(0.0, |rates| rates.received + rates.sent);
                if rate > 0.0 {
                    self.set((tunnel.instance, Some(peer.settings.public_key)), rate);
                    all += rate;
                }
            }
            if all > 0.0 {
                self.set((tunnel.instance, None), all);
            }
        }
        let round = self.round;
        self.rates.retain(|_, rates| rates.last + (LENGTH as u64) > round);
    }

    fn set(&mut self, key: (u64, Option<PublicKey>), rate: f64) {
        let round = self.round;
        let rates = self.rates.entry(key).or_insert(Rates { values: [0.0; LENGTH], last: round });
        // The rounds without traffic since.
        for missed in (rates.last + 1..round).rev().take(LENGTH) {
            rates.values[missed as usize % LENGTH] = 0.0;
        }
        rates.values[round as usize % LENGTH] = rate as f32;
        rates.last = round;
    }

    /// The last rates of a peer, or of the tunnel, the newest last.
    pub(super) fn of(&self, tunnel: u64, peer: Option<PublicKey>) -> [f32; LENGTH] {
        let Some(rates) = self.rates.get(&(tunnel, peer)) else { return [0.0; LENGTH] };
        std::array::from_fn(|at| {
            let round = (self.round + 1 + at as u64).saturating_sub(LENGTH as u64);
            if round == 0 || round > rates.last { 0.0 } else { rates.values[round as usize % LENGTH] }
        })
    }
}
