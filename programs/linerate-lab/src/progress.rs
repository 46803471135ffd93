//! Reports progress and the remaining time on standard error: one line that is overwritten on a terminal, a line per
//! subject and round elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use crate::sentences::duration;

pub(crate) struct Progress {
    is_terminal: bool,
    start: Instant,
    /// The sum of all steps' expected seconds, and of those done.
    expected: f64,
    done: f64,
    last_chapter: String,
}

impl Progress {
    pub(crate) fn new(expected_seconds: f64) -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
            start: Instant::now(),
            expected: expected_seconds,
            done: 0.0,
            last_chapter: String::new(),
        }
    }

    /// A step begins that should take `seconds`.
    pub(crate) fn step(&mut self, chapter: &str, what: &str, seconds: f64) {
        let left = duration(self.left());
        if self.is_terminal {
            let share = self.share();
            let bar: String = (0..20).map(|place| if f64::from(place) < share * 20.0 { '=' } else { ' ' }).collect();
            let _ = write!(io::stderr(), "\r\x1b[K[{bar}] {chapter}: {what} ({left} left)");
        } else if chapter != self.last_chapter {
            let _ = writeln!(io::stderr(), "{chapter} ({left} left)");
            self.last_chapter = chapter.into();
        }
        self.done += seconds;
    }

    /// Removes the line, so that others can write.
    pub(crate) fn clear(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn share(&self) -> f64 {
        (self.done / self.expected).clamp(0.0, 1.0)
    }

    /// The seconds that are left: as expected at first, by the pace so far towards the end.
    fn left(&self) -> f64 {
        let share = self.share();
        let at_this_pace = self.start.elapsed().as_secs_f64() / share.max(0.01);
        (share * at_this_pace + (1.0 - share) * self.expected) * (1.0 - share)
    }
}
