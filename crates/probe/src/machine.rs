//! The time of the processors that this process may use, from `/proc/stat`: those of a `taskset`, or all of the machine.

use std::fs;
use std::io::{self, ErrorKind};

use rustix::thread::sched_getaffinity;

/// Clock ticks of the processors since the machine started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Each processor's, in their order.
    processors: Vec<Times>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Times {
    user: u64,
    /// Without what follows.
    system: u64,
    interrupts: u64,
    steal: u64,
    idle: u64,
}

/// A processor's time between two moments, as shares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Processor {
    /// Its clock ticks, which the shares are of.
    pub ticks: u64,
    /// At rest.
    pub idle: f64,
    /// In interrupts and soft interrupts, such as the kernel's network code.
    pub interrupts: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

/// How the machine's time was divided between two moments; the three add up to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// In user space, guests of this machine included.
    pub user: f64,
    /// In the kernel, including interrupts and what a hypervisor gave to others ("steal"): all that is neither user
    /// space nor idle.
    pub system: f64,
    /// At rest, waiting for disks included.
    pub idle: f64,
    /// The idle share of the busiest processor.
    pub least_idle: f64,
}

impl Machine {
    /// Reads the time used so far.
    ///
    /// # Errors
    ///
    /// When `/proc/stat` cannot be read.
    pub fn now() -> io::Result<Self> {
        let allowed = sched_getaffinity(None).ok();
        Self::read(|number| allowed.is_none_or(|allowed| allowed.is_set(number)))
    }

    /// Likewise, of all processors of the machine.
    ///
    /// # Errors
    ///
    /// When `/proc/stat` cannot be read.
    pub fn whole() -> io::Result<Self> {
        Self::read(|_| true)
    }

    fn read(is_ours: impl Fn(usize) -> bool) -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let unreadable = || io::Error::new(ErrorKind::InvalidData, "/proc/stat is not as proc(5) describes it");
        Self::parse(&stat, is_ours).ok_or_else(unreadable)
    }

    /// What became of the time since `earlier`. Without a tick between the two, the machine counts as idle.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Shares {
        let [user, system, interrupts, steal, idle] =
            self.sum().since(&earlier.sum()).map_or([0.0, 0.0, 0.0, 0.0, 1.0], |(_, shares)| shares);
        let least_idle = self.each_since(earlier).iter().map(|processor| processor.idle).fold(1.0, f64::min);
        Shares { user, system: system + interrupts + steal, idle, least_idle }
    }

    /// What became of each processor's time since `earlier`; those without a tick between the two are left out.
    #[must_use]
    pub fn each_since(&self, earlier: &Self) -> Vec<Processor> {
        let each = self.processors.iter().zip(&earlier.processors).filter_map(|(now, before)| now.since(before));
        each.map(|(ticks, [_, _, interrupts, steal, idle])| Processor { ticks, idle, interrupts, steal }).collect()
    }

    /// How many processors there are.
    #[must_use]
    pub fn processors(&self) -> usize {
        self.processors.len()
    }

    /// Reads the lines of the processors that are ours; `None` if there are none.
    fn parse(stat: &str, is_ours: impl Fn(usize) -> bool) -> Option<Self> {
        let of_processor = |line: &str| {
            let (number, times) = line.strip_prefix("cpu")?.split_once(' ')?;
            Some((number.parse().ok()?, Times::parse(times)?))
        };
        // The first line is the sum of all.
        let each = stat.lines().skip(1).map_while(of_processor);
        let processors: Vec<Times> = each.filter(|(number, _)| is_ours(*number)).map(|(_, times)| times).collect();
        (!processors.is_empty()).then_some(Self { processors })
    }

    fn sum(&self) -> Times {
        self.processors.iter().fold(Times::default(), |sum, times| Times {
            user: sum.user + times.user,
            system: sum.system + times.system,
            interrupts: sum.interrupts + times.interrupts,
            steal: sum.steal + times.steal,
            idle: sum.idle + times.idle,
        })
    }
}

impl Times {
    /// The ticks, and the shares of user, system, interrupts, steal and idle; none without a tick.
    fn since(&self, earlier: &Self) -> Option<(u64, [f64; 5])> {
        let all = |times: &Self| [times.user, times.system, times.interrupts, times.steal, times.idle];
        let (now, before) = (all(self), all(earlier));
        let spent: [u64; 5] = std::array::from_fn(|kind| now[kind].saturating_sub(before[kind]));
        let sum: u64 = spent.iter().sum();
        (sum > 0).then(|| (sum, spent.map(|ticks| ticks as f64 / sum as f64)))
    }

    /// Reads what stands behind the name in a line.
    fn parse(line: &str) -> Option<Self> {
        // The time of guests, behind these eight, is part of user and nice.
        let times: Vec<u64> = line.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
        let [user, nice, system, idle, disk, irq, softirq, steal] = times[..] else { return None };
        Some(Self { user: user + nice, system, interrupts: irq + softirq, steal, idle: idle + disk })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_count_once() {
        let machine = Machine::parse("cpu  0\ncpu0 100 5 50 1000 20 1 2 3 40 0\nintr 1\n", |_| true).unwrap();
        assert_eq!(machine, of(Times { user: 105, system: 50, interrupts: 3, steal: 3, idle: 1020 }));
    }

    #[test]
    fn a_cut_line_is_refused() {
        for stat in ["", "cpu", "cpu0 1 2 3 4 5 6 7\n", "cpu0 1 2 3 x 5 6 7 8\n", "cpu 1 2 3 4 5 6 7 8\n"] {
            assert_eq!(Machine::parse(&format!("cpu  1 2 3 4 5 6 7 8\n{stat}"), |_| true), None, "{stat:?}");
        }
    }

    #[test]
    fn shares_add_up_to_one() {
        let earlier = of(Times { user: 100, system: 50, interrupts: 7, steal: 7, idle: 1000 });
        let later = of(Times { user: 116, system: 66, interrupts: 23, steal: 23, idle: 1064 });
        let processor = Processor { ticks: 128, idle: 0.5, interrupts: 0.125, steal: 0.125 };
        assert_eq!(later.each_since(&earlier), [processor]);
        assert_eq!(earlier.each_since(&earlier), [], "no time has passed");
        assert_eq!(later.since(&earlier), Shares { user: 0.125, system: 0.375, idle: 0.5, least_idle: 0.5 });
        assert_eq!(earlier.since(&earlier).idle, 1.0);
    }

    #[test]
    fn one_full_processor_among_idle_ones_is_seen() {
        let [earlier, later] = [EARLIER, LATER].map(|stat| Machine::parse(stat, |_| true).unwrap());
        let shares = later.since(&earlier);
        assert_eq!((shares.idle, shares.least_idle), (0.525, 0.15));
    }

    #[test]
    fn processors_that_are_not_ours_do_not_count() {
        let [earlier, later] = [EARLIER, LATER].map(|stat| Machine::parse(stat, |number| number == 0).unwrap());
        let shares = later.since(&earlier);
        assert_eq!((shares.user, shares.idle, shares.least_idle), (0.1, 0.9, 0.9));
    }

    const EARLIER: &str = "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n";
    const LATER: &str = "cpu  10 0 85 105 0 0 0 0\ncpu0 10 0 0 90 0 0 0 0\ncpu1 0 0 85 15 0 0 0 0\n";

    fn of(times: Times) -> Machine {
        Machine { processors: vec![times] }
    }
}
