//! The processors: what they and the daemon's threads did meanwhile, and what limits them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use linerate_doctor::evidence::{CoreUse, CpuLimit, Machine};

/// The times of the processors and of the threads of a daemon, at one moment.
pub(super) struct Times {
    at: Instant,
    cores: Vec<Vec<u64>>,
    threads: BTreeMap<u32, (String, u64)>,
}

impl Times {
    /// As of now; of the threads of the daemon `pid`, if there is one.
    pub(super) fn read(pid: Option<u32>) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self { at: Instant::now(), cores: cores(&stat), threads: pid.map(threads).unwrap_or_default() }
    }
}

/// What happened from `before` until `after`.
pub(super) fn machine(before: &Times, after: &Times, pid: Option<u32>, cipher: Option<String>) -> Machine {
    let elapsed = after.at.duration_since(before.at).as_secs_f64();
    let share = |(number, (name, end)): (&u32, &(String, u64))| {
        let (_, begin) = before.threads.get(number)?;
        Some((name.clone(), end.saturating_sub(*begin) as f64 / 1e9 / elapsed))
    };
    Machine {
        // Not those that this process may use, which are as limited as the daemon's.
        processors: match after.cores.len() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            all => all,
        },
        cores: before.cores.iter().zip(&after.cores).filter_map(|(before, after)| core_use(before, after)).collect(),
        threads: after.threads.iter().filter_map(share).collect(),
        cipher,
        best_cipher: Some(linerate_aead::choose::Choice::best().name().to_owned()),
        limit: pid.and_then(limit),
        governor: governor(),
    }
}

/// The lines `cpuN` of /proc/stat (proc_stat(5)).
fn cores(stat: &str) -> Vec<Vec<u64>> {
    let is_core =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let numbers = |line: &str| line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    stat.lines().filter(is_core).map(numbers).collect()
}

fn core_use(before: &[u64], after: &[u64]) -> Option<CoreUse> {
    // user nice system idle iowait irq softirq steal; what follows is part of the first two.
    let spent: Vec<u64> =
        before.iter().zip(after).take(8).map(|(before, after)| after.saturating_sub(*before)).collect();
    let total = spent.iter().sum::<u64>();
    let share = |index: usize| spent.get(index).map_or(0.0, |time| *time as f64 / total as f64);
    (total > 0).then(|| CoreUse {
        ticks: total,
        idle: share(3) + share(4),
        softirq: share(5) + share(6),
        steal: share(7),
    })
}

/// Each thread's name and its time on a processor in nanoseconds.
fn threads(pid: u32) -> BTreeMap<u32, (String, u64)> {
    let folder = fs::read_dir(format!("/proc/{pid}/task"));
    let thread = |path: PathBuf| {
        let number = path.file_name()?.to_str()?.parse().ok()?;
        let name = fs::read_to_string(path.join("comm")).ok()?.trim().to_owned();
        let time = fs::read_to_string(path.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()?;
        Some((number, (name, time)))
    };
    folder.into_iter().flatten().flatten().filter_map(|entry| thread(entry.path())).collect()
}

/// The narrowest limit of the process's control group and of those above it (cgroups(7), versions 1 and 2).
fn limit(pid: u32) -> Option<CpuLimit> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let paths = groups.lines().filter_map(group);
    let above = paths.flat_map(|(root, group)| {
        let levels: Vec<PathBuf> = Path::new(&group).ancestors().map(Path::to_owned).collect();
        levels.into_iter().map(move |level| (root.clone(), level))
    });
    above
        .filter_map(|(root, group)| limit_of(&root, &group))
        .min_by(|one, other| one.processors.total_cmp(&other.processors))
}

/// Where the group of a line of /proc/PID/cgroup is: the mount point and the path below.
fn group(line: &str) -> Option<(PathBuf, String)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/').to_owned());
    let root = Path::new("/sys/fs/cgroup");
    match controllers {
        "" => Some((root.to_owned(), path)),
        list if list.split(',').any(|controller| controller == "cpu") => {
            // It is mounted under the name of all of its controllers, with a link for each.
            Some((root.join("cpu"), path))
        }
        _ => None,
    }
}

fn limit_of(root: &Path, group: &Path) -> Option<CpuLimit> {
    let folder = root.join(group);
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let processors = match read("cpu.max") {
        Some(text) => quota(&text),
        None => quota(&format!("{} {}", read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())),
    }?;
    let throttled = read("cpu.stat").unwrap_or_default();
    let throttled = throttled.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse().ok());
    Some(CpuLimit { group: format!("/{}", group.display()), processors, throttled: throttled.unwrap_or(0) })
}

/// `QUOTA PERIOD` in microseconds; none without a limit (`max`, or -1).
fn quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

fn governor() -> Option<(String, String)> {
    let read = |name: &str| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cpufreq/{name}")).ok();
    Some((read("scaling_governor")?.trim().to_owned(), read("scaling_driver")?.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_core_are_read_without_the_line_of_all() {
        let before = cores("cpu  9 9 9 9 9 9 9 9\ncpu0 0 0 0 100 0 0 0 0 0 0\nintr 1\n");
        let after = cores("cpu  9 9 9 9 9 9 9 9\ncpu0 10 0 0 150 0 0 30 10 0 0\nintr 1\n");
        assert_eq!(before.len(), 1);
        let expected = CoreUse { ticks: 100, idle: 0.5, softirq: 0.3, steal: 0.1 };
        assert_eq!(core_use(&before[0], &after[0]), Some(expected));
        assert_eq!(core_use(&before[0], &before[0]), None, "no time has passed");
    }

    #[test]
    fn limits_of_both_versions_are_read() {
        assert_eq!((quota("50000 100000\n"), quota("max 100000"), quota("-1 100000")), (Some(0.5), None, None));
        assert_eq!(group("0::/a/b").unwrap(), (PathBuf::from("/sys/fs/cgroup"), "a/b".to_owned()));
        assert_eq!(group("4:cpu,cpuacct:/a").unwrap(), (PathBuf::from("/sys/fs/cgroup/cpu"), "a".to_owned()));
        assert_eq!(group("4:memory:/a"), None);
    }
}
