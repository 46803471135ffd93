//! Keeps what peers with limits have used across restarts, and begins their periods anew.
//!
//! The files are opened before the daemon gives up its privileges, and the host's time zone is read then. They are
//! written when a peer is suspended, let in again or replaced, within a minute of its traffic, and at the end.

use std::collections::{BTreeSet, HashMap};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use linerate_control::interface::InterfaceName;
use linerate_control::keys::PublicKey;
use linerate_control::uapi::limits::LimitUpdate;
use linerate_control::uapi::request::DeviceUpdate;
use linerate_control::usage::{Usage, UsageRecord, file_names};
use linerate_engine::Handle;
use linerate_engine::config::{DeviceChange, LimitChange, PeerChange, UsageReport};
use linerate_netio::clock::{self, Timer};
use rustix::fs::{FlockOperation, OFlags, flock};

/// The most that is read of a file: some 120 bytes for each of the most peers that a device may have.
const FILE_MAX: u64 = 128 << 20;

/// Peers that have had no limits for this long are forgotten at the start.
const KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

/// How often another daemon's lock is tried, with a [`PAUSE`] in between: it may be about to end.
const LOCK_ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// How long what a change of the configuration has ended is not written.
const WRITE_AFTER: Duration = Duration::from_secs(45);

/// The two files of a tunnel, open and locked.
pub(super) struct UsageFiles {
    files: [File; 2],
    /// Which one is the newer.
    newer: usize,
    record: UsageRecord,
}

impl UsageFiles {
    /// Opens the files of `interface` in `directory`, and makes what is missing.
    pub(super) fn open(directory: &Path, interface: &InterfaceName) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let [first, second] = file_names(interface.as_str()).map(|name| open(&directory.join(name)));
        let ((first, first_content), (second, second_content)) = (first?, second?);
        let (mut record, newer) = UsageRecord::newest([&first_content, &second_content]);
        if record.generation == 0 && !(first_content.is_empty() && second_content.is_empty()) {
            tracing::warn!("{interface}: the files in {} are not whole: all peers begin anew", directory.display());
        }
        let time = record.time.as_secs();
        record.peers.retain(|_, usage| usage.last + KEPT.as_secs() >= time);
        Ok(Self { files: [first, second], newer, record })
    }

    fn write(&mut self, record: &mut UsageRecord) -> io::Result<()> {
        record.generation += 1;
        let older = &self.files[1 - self.newer];
        older.write_all_at(&record.render(), 0)?;
        older.sync_data()?;
        self.newer = 1 - self.newer;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<(File, Vec<u8>)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)?;
    let mut attempts = 0;
    while let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        attempts += 1;
        if errno != rustix::io::Errno::AGAIN || attempts == LOCK_ATTEMPTS {
            return Err(errno.into());
        }
        thread::sleep(PAUSE);
    }
    let mut content = Vec::new();
    (&file).take(FILE_MAX).read_to_end(&mut content)?;
    Ok((file, content))
}

/// The usage of one tunnel's peers.
pub(super) struct UsageKeeper {
    engine: Handle,
    files: Option<UsageFiles>,
    record: UsageRecord,
    /// The peers that were suspended at the last report.
    suspended: BTreeSet<PublicKey>,
    /// The days on which the periods of peers begin, in the host's zone.
    days: HashMap<PublicKey, u8>,
    zone: TimeZone,
    /// Fires when a period begins, or when the files are to be written.
    timer: Rc<Timer>,
    /// Since when the files lack something, in nanoseconds since boot.
    unwritten_since: Option<u64>,
    /// Whether that is to be written at once: a peer was suspended, let in again or replaced.
    is_urgent: bool,
    /// Whether a problem was logged that is still there.
    reported: bool,
}

impl UsageKeeper {
    /// Keeps the usage of the peers of `engine`, from that in `files` on.
    pub(super) fn new(engine: Handle, mut files: Option<UsageFiles>, zone: TimeZone, timer: Rc<Timer>) -> Self {
        let record = files.as_mut().map(|files| std::mem::take(&mut files.record)).unwrap_or_default();
        // Fails only if the engine has ended.
        let _ = engine.set(DeviceChange { earliest_time: Some(record.time), ..DeviceChange::default() });
        Self {
            engine,
            files,
            record,
            suspended: BTreeSet::new(),
            days: HashMap::new(),
            zone,
            timer,
            unwritten_since: None,
            is_urgent: false,
            reported: false,
        }
    }

    /// The day of the month on which the usage of a peer begins anew.
    pub(super) fn day(&self, key: PublicKey) -> Option<u8> {
        self.days.get(&key).copied()
    }

    /// Completes a change with what its peers have used before. What it removes is counted up to here.
    pub(super) fn complete(&mut self, update: &DeviceUpdate, change: &mut DeviceChange) {
        let has_limits = update.peers.iter().any(|peer| peer.limits != LimitUpdate::default());
        if self.record.peers.is_empty() && !has_limits {
            return;
        }
        let Some(time) = self.read() else { return };
        if has_limits && self.files.is_none() && !std::mem::replace(&mut self.reported, true) {
            tracing::info!("what peers have used of their quotas is not kept when this daemon ends");
        }
        if update.replace_peers {
            self.days.clear();
        }
        let removed = update.removed_keys();
        for (update, change) in update.peers.iter().zip(&mut change.peers) {
            let key = update.public_key;
            if let (Some(old), Some(limits)) = (update.limits.replaces, &mut change.limits)
                && removed.contains(&old)
            {
                // Nothing is left to wait for.
                limits.replaces = Some(None);
                if let Some(usage) = self.record.peers.remove(&old) {
                    self.record.peers.insert(key, usage);
                }
            }
            let day = if update.remove { Some(0) } else { update.limits.quota_day };
            match day {
                Some(0) => drop(self.days.remove(&key)),
                Some(day) => drop(self.days.insert(key, day)),
                None => {}
            }
            if let Some(limits) = change.limits.as_mut().filter(|_| !update.remove) {
                let usage = self.record.peers.entry(key).or_insert(Usage { last: time.as_secs(), ..Usage::default() });
                begin_period(usage, self.days.get(&key), time, &self.zone);
                limits.used = Some(usage.used);
                self.unwritten_since.get_or_insert_with(clock::boottime);
            }
        }
        // The engine's event, which this has taken, would have had it written.
        if self.is_urgent {
            self.write();
        }
        self.arm(time);
    }

    /// Reads from the engine what was used, begins periods that are due, and writes the files if they lack something.
    pub(super) fn refresh(&mut self) {
        self.timer.drain();
        let time = self.read();
        if self.unwritten_since.is_some() {
            self.write();
        }
        if let Some(time) = time {
            self.arm(time);
        }
    }

    /// Reads from the engine what was used, and begins periods that are due; returns the time.
    fn read(&mut self) -> Option<Duration> {
        let report = self.engine.usage()?;
        let time = report.time;
        self.note(report);
        let mut begun = Vec::new();
        for (key, day) in &self.days {
            let usage = self.record.peers.entry(*key).or_default();
            if begin_period(usage, Some(day), time, &self.zone) {
                let limits = Some(LimitChange { used: Some(usage.used), ..LimitChange::default() });
                let key = linerate_protocol::PublicKey(key.0);
                begun.push(PeerChange { update_only: true, limits, ..PeerChange::new(key) });
            }
        }
        if !begun.is_empty() {
            self.unwritten_since.get_or_insert_with(clock::boottime);
            // Fails only if the engine has ended.
            let _ = self.engine.set(DeviceChange { peers: begun, ..DeviceChange::default() });
        }
        Some(time)
    }

    fn note(&mut self, report: UsageReport) {
        self.is_urgent |= !report.replaced.is_empty();
        let mut changed = false;
        for replaced in report.replaced {
            let [old, new] = [replaced.old, replaced.new].map(|key| PublicKey(key.0));
            self.days.remove(&old);
            if let Some(usage) = self.record.peers.remove(&old) {
                self.record.peers.insert(new, usage);
            }
        }
        let mut suspended = BTreeSet::new();
        for peer in report.peers {
            let key = PublicKey(peer.public_key.0);
            let usage = self.record.peers.entry(key).or_default();
            changed |= note_used(usage, peer.used, report.time);
            suspended.extend(peer.suspended.map(|_| key));
        }
        self.is_urgent |= suspended != self.suspended;
        self.suspended = suspended;
        self.record.time = Duration::from_secs(report.time.as_secs());
        if changed || self.is_urgent {
            self.unwritten_since.get_or_insert_with(clock::boottime);
        }
    }

    fn write(&mut self) {
        (self.unwritten_since, self.is_urgent) = (None, false);
        let Some(files) = &mut self.files else { return };
        match files.write(&mut self.record) {
            Ok(()) => self.reported = false,
            Err(error) => {
                if !std::mem::replace(&mut self.reported, true) {
                    tracing::warn!(
                        "cannot keep what peers have used of their quotas: {error}; trying again each minute"
                    );
                }
                self.unwritten_since = Some(clock::boottime());
            }
        }
    }

    /// Sets the timer for the next period, and for the files.
    fn arm(&self, time: Duration) {
        let days: BTreeSet<u8> = self.days.values().copied().collect();
        let period = days.into_iter().map(|day| periods(time, day, &self.zone).1).min();
        let now = clock::boottime();
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let period = period.map(|at| {
            let after = Duration::from_secs(at).saturating_sub(time);
            now.saturating_add(nanoseconds(after))
        });
        let files = self.unwritten_since.map(|since| since.saturating_add(nanoseconds(WRITE_AFTER)));
        if let Err(error) = self.timer.set([period, files].into_iter().flatten().min()) {
            tracing::error!("cannot set the timer, so quotas begin anew late: {error}");
        }
    }
}

/// Notes that a peer with limits has used so much; true if that has changed. Otherwise it need not be written: a file
/// has its own time, too.
fn note_used(usage: &mut Usage, used: u64, time: Duration) -> bool {
    usage.last = time.as_secs();
    std::mem::replace(&mut usage.used, used) != used
}

/// A period that begins this soon after another is the same one, in another time zone or from another day on.
const SAME_PERIOD: u64 = 2 * 24 * 3600;

/// Begins the period of a peer that has one on this day of the month, if it is due; true if that was its first or the
/// next one.
fn begin_period(usage: &mut Usage, day: Option<&u8>, time: Duration, zone: &TimeZone) -> bool {
    let start = day.map_or(0, |day| periods(time, *day, zone).0);
    let has_begun = usage.period > 0;
    if start <= usage.period || (has_begun && start - usage.period < SAME_PERIOD) {
        return false;
    }
    if has_begun {
        usage.used = 0;
    }
    usage.period = start;
    true
}

/// When the present period began and when the next one will, in seconds since 1970: at midnight of that day of the
/// month, or of the last day of a shorter month.
fn periods(time: Duration, day: u8, zone: &TimeZone) -> (u64, u64) {
    let now = i64::try_from(time.as_secs()).ok().and_then(|secs| Timestamp::from_second(secs).ok());
    let now = now.unwrap_or(Timestamp::MAX);
    let first = now.to_zoned(zone.clone()).date().first_of_month();
    let begin = |months: i32| {
        let month = first.checked_add(months.months()).ok()?;
        let day = i8::try_from(day).ok()?.clamp(1, month.days_in_month());
        let start = month.with().day(day).build().ok()?.to_zoned(zone.clone()).ok()?;
        u64::try_from(start.timestamp().as_second()).ok()
    };
    let starts = [-1, 0, 1].map(|months| begin(months).unwrap_or(if months < 1 { 0 } else { u64::MAX }));
    let secs = time.as_secs();
    if starts[1] <= secs { (starts[1], starts[2]) } else { (starts[0], starts[1]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_second().cast_unsigned()
    }

    fn of(time: &str, day: u8, zone: &TimeZone) -> (u64, u64) {
        periods(Duration::from_secs(secs(time)), day, zone)
    }

    #[test]
    fn a_period_begins_on_its_day_or_on_the_last_of_a_shorter_month() {
        let utc = TimeZone::UTC;
        let cases = [
            ("2027-01-30T23:59:59Z", "2026-12-31T00:00:00Z", "2027-01-31T00:00:00Z"),
            ("2027-01-31T00:00:00Z", "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z"),
            ("2027-02-27T12:00:00Z", "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z"),
            ("2027-02-28T00:00:00Z", "2027-02-28T00:00:00Z", "2027-03-31T00:00:00Z"),
            ("2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"),
        ];
        for (time, start, next) in cases {
            assert_eq!(of(time, 31, &utc), (secs(start), secs(next)), "{time}");
        }
    }

    #[test]
    fn a_period_begins_at_midnight_of_the_hosts_zone() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(of("2027-05-09T21:59:59Z", 10, &zone).1, secs("2027-05-09T22:00:00Z"));
        assert_eq!(of("2027-05-09T22:00:00Z", 10, &zone).0, secs("2027-05-09T22:00:00Z"));
    }

    #[test]
    fn periods_follow_each_other_without_a_gap_at_any_time() {
        for time in [0, 1, 1_800_000_000, 253_402_300_799] {
            for day in 1..=31 {
                let (start, next) = periods(Duration::from_secs(time), day, &TimeZone::UTC);
                assert!(start <= time && time < next, "{time} {day}: {start} {next}");
                if next < 253_000_000_000 {
                    assert_eq!(periods(Duration::from_secs(next), day, &TimeZone::UTC).0, next);
                }
            }
        }
    }

    #[test]
    fn usage_begins_anew_once_in_a_period_and_never_by_a_clock_that_was_set_back() {
        let (utc, day) = (TimeZone::UTC, Some(&15));
        let at = |text: &str| Duration::from_secs(secs(text));
        let mut usage = Usage { used: 5, ..Usage::default() };
        assert!(begin_period(&mut usage, day, at("2027-03-20T00:00:00Z"), &utc));
        assert_eq!(usage.used, 5, "the first period has what was used before");
        assert!(!begin_period(&mut usage, day, at("2027-04-14T23:59:59Z"), &utc));
        assert!(begin_period(&mut usage, day, at("2027-04-15T00:00:00Z"), &utc));
        assert_eq!(usage.used, 0);
        usage.used = 7;
        assert!(!begin_period(&mut usage, day, at("2027-03-01T00:00:00Z"), &utc));
        assert!(!begin_period(&mut usage, day, at("2027-04-16T00:00:00Z"), &utc));
        assert!(!begin_period(&mut usage, None, at("2029-01-01T00:00:00Z"), &utc));
        assert_eq!(usage.used, 7);
    }

    #[test]
    fn a_period_does_not_begin_again_in_another_time_zone() {
        let [east, west] = [14, -12].map(|hours| TimeZone::fixed(jiff::tz::offset(hours)));
        let at = |text: &str| Duration::from_secs(secs(text));
        let mut usage = Usage::default();
        assert!(begin_period(&mut usage, Some(&15), at("2027-03-20T00:00:00Z"), &east));
        usage.used = 7;
        assert!(!begin_period(&mut usage, Some(&15), at("2027-03-20T00:00:00Z"), &west));
        assert_eq!(usage.used, 7);
        assert!(begin_period(&mut usage, Some(&15), at("2027-04-20T00:00:00Z"), &west));
        assert_eq!(usage.used, 0);
    }

    #[test]
    fn what_was_written_is_read_again_and_the_older_file_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, name) = (folder.path().join("linerate"), "wg0".parse().unwrap());
        let key = PublicKey([7; 32]);
        for used in 0..5 {
            let mut files = UsageFiles::open(&directory, &name).unwrap();
            assert_eq!(files.record.peers.get(&key).map(|usage| usage.used), (used > 0).then_some(used));
            let mut record = std::mem::take(&mut files.record);
            record.peers.insert(key, Usage { used: used + 1, ..Usage::default() });
            files.write(&mut record).unwrap();
            assert_eq!(record.generation, used + 1);
        }
        let [first, _] = file_names("wg0");
        std::fs::write(directory.join(first), "spoilt").unwrap();
        let files = UsageFiles::open(&directory, &name).unwrap();
        assert!([4, 5].contains(&files.record.generation));
    }

    #[test]
    fn a_peer_with_limits_is_remembered_however_long_it_uses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let name = "wg0".parse().unwrap();
        let [idle, removed] = [7, 8].map(|byte| PublicKey([byte; 32]));
        let mut usage = Usage { used: 5, ..Usage::default() };
        // Or the clock was wrong for a moment.
        let time = KEPT * 2;
        assert!(!note_used(&mut usage, 5, time));
        let record = UsageRecord { time, ..UsageRecord::default() };
        let mut record = UsageRecord { peers: [(idle, usage), (removed, Usage::default())].into(), ..record };
        UsageFiles::open(folder.path(), &name).unwrap().write(&mut record).unwrap();
        let files = UsageFiles::open(folder.path(), &name).unwrap();
        assert_eq!(files.record.peers, [(idle, usage)].into());
        assert!(note_used(&mut usage, 6, time));
    }

    #[test]
    fn files_are_locked_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let name = "wg0".parse().unwrap();
        let open = UsageFiles::open(folder.path(), &name).unwrap();
        assert_eq!(UsageFiles::open(folder.path(), &name).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(open);
        let [first, _] = file_names("wg0").map(|name| folder.path().join(name));
        std::fs::remove_file(&first).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &first).unwrap();
        assert!(UsageFiles::open(folder.path(), &name).is_err());
    }
}
