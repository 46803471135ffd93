//! What goes through the tunnels, from the counters of their interfaces, which anybody may read: every five seconds
//! into their histories, and at each look for the rates.
//!
//! Nobody is asked for that. Only when an interface comes or goes, the helper is asked which of them are tunnels.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linerate_cli::eprint_line;

use crate::history::{Histories, MOST_TUNNELS, Ring};

/// Where interfaces and their counters are.
pub(crate) const INTERFACES: &str = "/sys/class/net";

/// How often histories are written.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// Two looks within this time see the same rates.
const FRESH: Duration = Duration::from_millis(900);

/// The tunnels' counters.
pub(crate) struct Recorder {
    interfaces: PathBuf,
    pub(crate) histories: Histories,
    /// Interfaces that may be tunnels.
    candidates: BTreeSet<String>,
    tunnels: HashMap<String, Counted>,
    failed: bool,
}

struct Counted {
    ring: Ring,
    at: Instant,
    received: u64,
    sent: u64,
    rates: Option<(f64, f64)>,
}

impl Recorder {
    pub(crate) fn new(interfaces: &Path, histories: Histories) -> Self {
        let (candidates, tunnels) = Default::default();
        Self { interfaces: interfaces.to_owned(), histories, candidates, tunnels, failed: false }
    }

    /// Whether interfaces that may be tunnels have come or gone.
    pub(crate) fn has_changed(&mut self) -> bool {
        let entries = fs::read_dir(&self.interfaces).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let candidates = names.filter(|name| self.candidates.contains(name) || self.is_candidate(name)).collect();
        let has_changed = candidates != self.candidates;
        self.candidates = candidates;
        has_changed
    }

    /// A TUN device, or a tunnel of the kernel's.
    fn is_candidate(&self, name: &str) -> bool {
        let folder = self.interfaces.join(name);
        let uevent = || fs::read_to_string(folder.join("uevent")).unwrap_or_default();
        folder.join("tun_flags").exists() || uevent().lines().any(|line| line == "DEVTYPE=wireguard")
    }

    /// Has these tunnels recorded, or as many of them as have a history, and no others.
    pub(crate) fn follow(&mut self, names: &[&str], now: Instant) {
        self.tunnels.retain(|name, _| names.contains(&name.as_str()));
        for name in names {
            let is_name = name.parse::<linerate_control::interface::InterfaceName>().is_ok();
            if self.tunnels.contains_key(*name) || !is_name || self.tunnels.len() >= MOST_TUNNELS {
                continue;
            }
            let Some((received, sent)) = self.counters(name) else { continue };
            match self.histories.ring(name) {
                Ok(ring) => {
                    let counted = Counted { ring, at: now, received, sent, rates: None };
                    self.tunnels.insert((*name).to_owned(), counted);
                }
                Err(error) => self.complain(name, &error),
            }
        }
    }

    /// Reads the counters, unless that was just done.
    pub(crate) fn read(&mut self, now: Instant, wall: u64) {
        let names: Vec<String> = self.tunnels.keys().cloned().collect();
        for name in names {
            let Some((received, sent)) = self.counters(&name) else { continue };
            let Some(counted) = self.tunnels.get_mut(&name) else { continue };
            let passed = now.duration_since(counted.at);
            if passed < FRESH {
                continue;
            }
            // An interface that was made anew counts from nothing.
            let more = (received.saturating_sub(counted.received), sent.saturating_sub(counted.sent));
            let seconds = passed.as_secs_f64();
            counted.rates = Some((more.0 as f64 / seconds, more.1 as f64 / seconds));
            (counted.at, counted.received, counted.sent) = (now, received, sent);
            if let Err(error) = counted.ring.add(wall, more.0, more.1) {
                self.complain(&name, &error);
            }
        }
    }

    /// Bytes received and sent in a second, by the last two looks.
    pub(crate) fn rates(&self, name: &str) -> Option<(f64, f64)> {
        self.tunnels.get(name)?.rates
    }

    fn counters(&self, name: &str) -> Option<(u64, u64)> {
        let folder = self.interfaces.join(name).join("statistics");
        let number = |of: &str| fs::read_to_string(folder.join(of)).ok()?.trim().parse().ok();
        Some((number("rx_bytes")?, number("tx_bytes")?))
    }

    /// Says once that there will be no history: the page works without.
    fn complain(&mut self, name: &str, error: &std::io::Error) {
        if !self.failed {
            eprint_line(&format!("linerate-web: cannot write the history of {name}: {error}"));
        }
        self.failed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Window;

    fn interface(folder: &Path, name: &str, received: u64) {
        let statistics = folder.join(name).join("statistics");
        fs::create_dir_all(&statistics).unwrap();
        fs::write(statistics.join("rx_bytes"), format!("{received}\n")).unwrap();
        fs::write(statistics.join("tx_bytes"), "0\n").unwrap();
    }

    #[test]
    fn only_tunnels_are_followed_and_rates_are_those_of_the_last_two_looks() {
        let (interfaces, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = interfaces.path();
        let mut recorder = Recorder::new(folder, Histories::open(state.path()).unwrap());
        interface(folder, "eth0", 5);
        assert!(!recorder.has_changed());
        interface(folder, "wg0", 1000);
        fs::write(folder.join("wg0/tun_flags"), "").unwrap();
        interface(folder, "wg1", 1000);
        fs::write(folder.join("wg1/uevent"), "DEVTYPE=wireguard\nINTERFACE=wg1\n").unwrap();
        assert!(recorder.has_changed());
        assert!(!recorder.has_changed());

        let (start, wall) = (Instant::now(), 1_795_435_200);
        recorder.follow(&["wg0", "../eth0"], start);
        assert_eq!(recorder.rates("wg0"), None);
        interface(folder, "wg0", 6000);
        recorder.read(start + Duration::from_secs(5), wall);
        assert_eq!(recorder.rates("wg0"), Some((1000.0, 0.0)));
        assert_eq!(recorder.rates("wg1"), None);
        // Made anew.
        interface(folder, "wg0", 100);
        recorder.read(start + Duration::from_secs(10), wall + 5);
        assert_eq!(recorder.rates("wg0"), Some((0.0, 0.0)));
        let series = recorder.histories.series("wg0", Window::Hour, wall + 10);
        assert_eq!(series.points.last(), Some(&Some((500.0, 0.0))));
        assert_eq!(fs::read_dir(state.path().join("history")).unwrap().count(), 1);
    }
}
