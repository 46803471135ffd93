//! A tunnel's traffic of the last minutes, hour, day and month: a file of fixed size for each, three rings of steps of
//! 5 seconds, a minute and a quarter of an hour.
//!
//! A slot says which step it is of, so that nothing has to be cleared, and a clock that jumps only leaves gaps. A step
//! of 5 seconds without traffic is not written: that its minute is there says that nothing is missing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What a file starts with.
const MAGIC: [u8; 16] = *b"linerate ring 1\n";

/// A slot: the number of its step since 1970, bytes received, bytes sent.
const SLOT: usize = 24;

/// Seconds of a step, and how many there are.
const RINGS: [(u64, u64); 3] = [(5, 720), (60, 1440), (900, 2880)];

/// All slots are read at once.
const BYTES: usize = MAGIC.len() + SLOT * (RINGS[0].1 + RINGS[1].1 + RINGS[2].1) as usize;
const _: () = assert!(BYTES < 128 << 10);

/// So many tunnels have a history; those that were not there for longest lose theirs.
pub(crate) const MOST_TUNNELS: usize = 64;

/// What was not written for so long is over.
const OVER: Duration = Duration::from_secs(31 * 86_400);

/// How much of the past is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Minutes,
    Hour,
    Day,
    Month,
}

impl Window {
    pub(crate) const ALL: [Self; 4] = [Self::Minutes, Self::Hour, Self::Day, Self::Month];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Minutes => "minutes",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// Seconds of it, and of a point in its plot.
    fn seconds(self) -> (u64, u64) {
        match self {
            Self::Minutes => (600, 5),
            Self::Hour => (3600, 10),
            Self::Day => (86_400, 300),
            Self::Month => (30 * 86_400, 7200),
        }
    }
}

/// Traffic over a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) window: Window,
    /// When it begins and ends, in seconds since 1970.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Bytes received and sent in a second, at equal distances; none where nobody looked.
    pub(crate) points: Vec<Option<(f64, f64)>>,
}

/// The folder of all histories.
pub(crate) struct Histories(PathBuf);

impl Histories {
    /// Makes the folder, and removes what is over.
    pub(crate) fn open(state: &Path) -> io::Result<Self> {
        let folder = state.join("history");
        fs::create_dir_all(&folder)?;
        let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort();
        let too_many = files.len().saturating_sub(MOST_TUNNELS);
        for (index, (modified, path)) in files.iter().enumerate() {
            if index < too_many || modified.elapsed().is_ok_and(|age| age > OVER) {
                fs::remove_file(path)?;
            }
        }
        Ok(Self(folder))
    }

    /// The history of a tunnel, to write.
    pub(crate) fn ring(&self, tunnel: &str) -> io::Result<Ring> {
        let path = self.path(tunnel);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut start = [0; MAGIC.len()];
        if file.read_exact_at(&mut start, 0).is_err() || start != MAGIC || file.metadata()?.len() != BYTES as u64 {
            file.set_len(0)?;
            file.set_len(BYTES as u64)?;
            file.write_all_at(&MAGIC, 0)?;
        }
        Ok(Ring { file, written: [0; 3] })
    }

    /// The traffic of a tunnel over a window that ends `now`; without a history all of it is missing.
    pub(crate) fn series(&self, tunnel: &str, window: Window, now: u64) -> Series {
        let bytes = fs::read(self.path(tunnel)).ok();
        series(bytes.as_deref().filter(|bytes| bytes.len() == BYTES && bytes.starts_with(&MAGIC)), window, now)
    }

    fn path(&self, tunnel: &str) -> PathBuf {
        self.0.join(format!("{tunnel}.ring"))
    }
}

/// A tunnel's file.
pub(crate) struct Ring {
    file: File,
    /// The latest step of each ring that is known to be in the file.
    written: [u64; 3],
}

impl Ring {
    /// Adds what was received and sent until `now`.
    pub(crate) fn add(&mut self, now: u64, received: u64, sent: u64) -> io::Result<()> {
        let is_silent = received == 0 && sent == 0;
        for (ring, (step, _)) in RINGS.into_iter().enumerate() {
            let number = now / step;
            if is_silent && (ring == 0 || self.written[ring] == number) {
                continue;
            }
            let offset = offset(ring, number) as u64;
            let mut slot = [0; SLOT];
            self.file.read_exact_at(&mut slot, offset)?;
            let (known, was_received, was_sent) = decode(&slot);
            let (received, sent) = match known == number {
                true => (was_received.saturating_add(received), was_sent.saturating_add(sent)),
                false => (received, sent),
            };
            let slot = [number, received, sent].map(u64::to_le_bytes).concat();
            self.file.write_all_at(&slot, offset)?;
            self.written[ring] = number;
        }
        Ok(())
    }
}

/// Where the slot of a step is.
fn offset(ring: usize, number: u64) -> usize {
    let before: u64 = RINGS[..ring].iter().map(|(_, count)| count).sum();
    MAGIC.len() + SLOT * (before + number % RINGS[ring].1) as usize
}

fn decode(slot: &[u8]) -> (u64, u64, u64) {
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| slot[8 * at + byte]));
    (word(0), word(1), word(2))
}

fn series(bytes: Option<&[u8]>, window: Window, now: u64) -> Series {
    let (length, point) = window.seconds();
    // The step that is going on is not whole yet.
    let (ring, step) = match window {
        Window::Minutes | Window::Hour => (0, RINGS[0].0),
        Window::Day => (1, RINGS[1].0),
        Window::Month => (2, RINGS[2].0),
    };
    let end = now / step * step;
    let start = end.saturating_sub(length);
    let slot = |ring: usize, number: u64| {
        let bytes = bytes?.get(offset(ring, number)..)?.get(..SLOT)?;
        Some(decode(bytes)).filter(|(known, ..)| *known == number).map(|(_, received, sent)| (received, sent))
    };
    let at = |time: u64| {
        let minute = || slot(1, time / RINGS[1].0).map(|_| (0, 0));
        slot(ring, time / step).or_else(|| if ring == 0 { minute() } else { None })
    };
    let points = (start..end).step_by(point as usize).map(|from| {
        let steps: Vec<(u64, u64)> = (from..end.min(from + point)).step_by(step as usize).filter_map(at).collect();
        let seconds = (steps.len() as u64 * step) as f64;
        let sum = |value: fn(&(u64, u64)) -> u64| steps.iter().map(|step| value(step) as f64).sum::<f64>();
        (!steps.is_empty()).then(|| (sum(|(received, _)| *received) / seconds, sum(|(_, sent)| *sent) / seconds))
    });
    Series { window, start, end, points: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A Monday at noon.
    const NOW: u64 = 1_795_435_200;

    #[test]
    fn traffic_is_where_and_as_much_as_it_was_and_a_gap_is_no_silence() {
        let state = tempfile::tempdir().unwrap();
        let histories = Histories::open(state.path()).unwrap();
        let mut ring = histories.ring("wg0").unwrap();
        for second in (NOW - 600..NOW).step_by(5) {
            let is_busy = second >= NOW - 60;
            ring.add(second, if is_busy { 5000 } else { 0 }, 0).unwrap();
        }
        let hour = histories.series("wg0", Window::Hour, NOW);
        assert_eq!((hour.points.len(), hour.start, hour.end), (360, NOW - 3600, NOW));
        assert_eq!(hour.points[0], None);
        assert_eq!(hour.points[359], Some((1000.0, 0.0)));
        assert_eq!(hour.points[353], Some((0.0, 0.0)));
        assert_eq!(hour.points.iter().flatten().count(), 60);
        let day = histories.series("wg0", Window::Day, NOW);
        assert_eq!(day.points.len(), 288);
        assert_eq!(day.points[287], Some((200.0, 0.0)));
        let month = histories.series("wg0", Window::Month, NOW + 900);
        assert_eq!(month.points.iter().flatten().count(), 1);
        assert_eq!(histories.series("other", Window::Hour, NOW).points, vec![None; 360]);
    }

    #[test]
    fn what_is_older_than_a_ring_is_overwritten_and_the_file_does_not_grow() {
        let state = tempfile::tempdir().unwrap();
        let histories = Histories::open(state.path()).unwrap();
        let mut ring = histories.ring("wg0").unwrap();
        ring.add(NOW, 7, 7).unwrap();
        ring.add(NOW + 3600, 50, 5).unwrap();
        let hour = histories.series("wg0", Window::Hour, NOW + 3605);
        assert_eq!(hour.points.last(), Some(&Some((10.0, 1.0))));
        assert_eq!(fs::metadata(histories.path("wg0")).unwrap().len(), BYTES as u64);
    }

    #[test]
    fn a_file_that_is_none_is_begun_anew() {
        let state = tempfile::tempdir().unwrap();
        let histories = Histories::open(state.path()).unwrap();
        for content in [&b""[..], b"nonsense", &[255; BYTES]] {
            fs::write(histories.path("wg0"), content).unwrap();
            assert_eq!(histories.series("wg0", Window::Day, NOW).points, vec![None; 288]);
            histories.ring("wg0").unwrap().add(NOW, 60, 0).unwrap();
            assert_eq!(histories.series("wg0", Window::Day, NOW + 60).points[287], Some((1.0, 0.0)));
        }
    }

    #[test]
    fn histories_are_bounded() {
        let state = tempfile::tempdir().unwrap();
        let histories = Histories::open(state.path()).unwrap();
        (0..MOST_TUNNELS + 3).for_each(|number| drop(histories.ring(&format!("wg{number}")).unwrap()));
        Histories::open(state.path()).unwrap();
        assert_eq!(fs::read_dir(state.path().join("history")).unwrap().count(), MOST_TUNNELS);
    }

    proptest! {
        #[test]
        fn any_file_and_any_time_make_a_series(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            now in any::<u64>(),
        ) {
            let mut whole = bytes.repeat(BYTES / bytes.len().max(1) + 1);
            whole.resize(BYTES, 0);
            for window in Window::ALL {
                prop_assert!(series(Some(&whole), window, now).points.len() <= 360);
                prop_assert!(series(Some(&bytes), window, now).points.iter().all(Option::is_none));
            }
        }
    }
}
