//! How much processor time a process may use: the limits of control groups (cgroups(7), versions 1 and 2).

use std::fs;
use std::path::{Path, PathBuf};

/// The limit of a control group.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// The group's path.
    pub group: String,
    /// So many processors' worth of time.
    pub processors: f64,
    /// For how many periods the limit has been looked after.
    pub periods: u64,
    /// In how many of them the group had used up its time.
    pub throttled: u64,
}

/// The narrowest limit of the group of the process `pid` and of those above it.
#[must_use]
pub fn of(pid: u32) -> Option<Limit> {
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

fn limit_of(root: &Path, group: &Path) -> Option<Limit> {
    let folder = root.join(group);
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let processors = match read("cpu.max") {
        Some(text) => quota(&text),
        None => quota(&format!("{} {}", read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim())),
    }?;
    let stat = read("cpu.stat").unwrap_or_default();
    let count = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        stat.lines().find_map(value).unwrap_or(0)
    };
    let (periods, throttled) = (count("nr_periods"), count("nr_throttled"));
    Some(Limit { group: format!("/{}", group.display()), processors, periods, throttled })
}

/// `QUOTA PERIOD` in microseconds; none without a limit (`max`, or -1).
fn quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_both_versions_are_read() {
        assert_eq!((quota("50000 100000\n"), quota("max 100000"), quota("-1 100000")), (Some(0.5), None, None));
        assert_eq!(group("0::/a/b").unwrap(), (PathBuf::from("/sys/fs/cgroup"), "a/b".to_owned()));
        assert_eq!(group("4:cpu,cpuacct:/a").unwrap(), (PathBuf::from("/sys/fs/cgroup/cpu"), "a".to_owned()));
        assert_eq!(group("4:memory:/a"), None);
    }
}
