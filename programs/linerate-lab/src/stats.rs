//! Sums up samples: medians, percentiles, spread, and ratios with the interval in which they lie.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// What a handful of samples says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The sample in the middle, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

impl Summary {
    /// Sums up `samples`; nothing without a sample. NaN has no place among them.
    #[must_use]
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let samples = sorted(samples);
        let (least, most) = (*samples.first()?, *samples.last()?);
        let middle = samples.len() / 2;
        let median =
            if samples.len() % 2 == 1 { samples[middle] } else { f64::midpoint(samples[middle - 1], samples[middle]) };
        Some(Self { median, least, most })
    }

    /// How far apart the samples are, as a share of their median: (most - least) / median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.most - self.least) / self.median
    }
}

/// An interval that holds the true median with a known probability, whatever the distribution of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its lower end, one of the samples.
    pub low: f64,
    /// Its upper end, one of the samples.
    pub high: f64,
    /// The probability with which such intervals hold the median, 0 to 1.
    pub coverage: f64,
}

/// What intervals aim at. With fewer than six samples even the whole range holds the median less often.
const COVERAGE: f64 = 0.95;

/// The fewest rounds on which a difference is called clear: their range holds the median with 94 %.
const ROUNDS_TO_TELL: usize = 5;

impl Interval {
    /// The narrowest symmetric interval between order statistics that holds the median of what `samples` were
    /// drawn from with at least 95 %; their whole range where they are too few for that. Nothing for fewer than two
    /// samples. NaN has no place among them.
    ///
    /// The interval from the r-th smallest to the r-th largest of n samples misses the median when fewer than r fall
    /// on one side of it: P = 2 * sum(C(n, i) / 2^n, i < r). H. A. David and H. N. Nagaraja, Order Statistics, 3rd
    /// edition, 7.1.
    #[must_use]
    pub fn of_median(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let samples = sorted(samples);
        let n = samples.len();
        if n < 2 {
            return None;
        }
        // Logarithms, because 2^-n is no number of its own from n = 1075 on.
        let (mut rank, mut term) = (1, -(n as f64) * std::f64::consts::LN_2);
        let mut below = term.exp();
        while rank < n / 2 {
            term += ((n - rank + 1) as f64 / rank as f64).ln();
            if 1.0 - 2.0 * (below + term.exp()) < COVERAGE {
                break;
            }
            below += term.exp();
            rank += 1;
        }
        Some(Self { low: samples[rank - 1], high: samples[n - rank], coverage: 1.0 - 2.0 * below })
    }
}

/// One subject against another: the ratio within each round, so that what drifts from round to round cancels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median of the rounds' ratios.
    pub median: f64,
    /// Where the true median lies; none for a single round.
    pub interval: Option<Interval>,
    /// The rounds in which both were measured.
    pub rounds: usize,
}

impl Ratio {
    /// Divides the first of each pair by the second. Pairs that have no ratio (a zero below) are left out; nothing
    /// without a pair.
    #[must_use]
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let ratios: Vec<f64> =
            pairs.into_iter().map(|(own, base)| own / base).filter(|ratio| ratio.is_finite()).collect();
        let Summary { median, .. } = Summary::of(ratios.iter().copied())?;
        Some(Self { median, rounds: ratios.len(), interval: Interval::of_median(ratios) })
    }

    /// Whether there are rounds enough to call a difference clear.
    #[must_use]
    pub fn can_tell(&self) -> bool {
        self.rounds >= ROUNDS_TO_TELL
    }

    /// Whether the first is clearly the larger one or clearly the smaller one: three rounds at least, and 1 is outside
    /// the interval. Nothing when the rounds do not tell.
    #[must_use]
    pub fn clear(&self) -> Option<Ordering> {
        let Interval { low, high, .. } = self.interval.filter(|_| self.can_tell())?;
        if low > 1.0 {
            Some(Ordering::Greater)
        } else if high < 1.0 {
            Some(Ordering::Less)
        } else {
            None
        }
    }
}

/// What many latency samples say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean, in milliseconds.
    pub mean_ms: f64,
    /// Half of the samples are at most this, in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 samples are at most this, in milliseconds.
    pub p99_ms: f64,
    /// The largest, in milliseconds.
    pub max_ms: f64,
}

impl Latency {
    /// Sums up round trips in milliseconds; nothing without a sample.
    #[must_use]
    pub fn of(milliseconds: impl IntoIterator<Item = f64>) -> Option<Self> {
        let samples = sorted(milliseconds);
        let max_ms = *samples.last()?;
        Some(Self {
            mean_ms: samples.iter().sum::<f64>() / samples.len() as f64,
            p50_ms: percentile(&samples, 50),
            p99_ms: percentile(&samples, 99),
            max_ms,
        })
    }
}

fn sorted(samples: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut samples: Vec<f64> = samples.into_iter().collect();
    samples.sort_by(f64::total_cmp);
    samples
}

/// The nearest-rank percentile: the smallest sample that at least `percent` of 100 do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted[rank.max(1) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_median_is_the_sample_in_the_middle() {
        assert_eq!(Summary::of([3.0, 1.0, 2.0]), Some(Summary { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 3.0]), Some(Summary { median: 2.5, least: 1.0, most: 4.0 }));
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    fn the_spread_is_relative_to_the_median() {
        assert_eq!(Summary::of([9.0, 10.0, 12.0]).unwrap().spread(), 0.3);
    }

    #[test]
    fn intervals_take_the_ranks_of_the_sign_test() {
        // The ranks of every table of the sign test at 95 %: 6 and 8 samples take 1, 9 and 11 take 2, 20 take 6.
        let interval = |n: u32| Interval::of_median((1..=n).map(f64::from)).unwrap();
        for (n, rank, coverage) in
            [(6, 1, 0.96875), (8, 1, 0.992_187_5), (9, 2, 0.960_937_5), (11, 2, 0.988_281_25), (20, 6, 0.958_610_534)]
        {
            let Interval { low, high, coverage: got } = interval(n);
            assert_eq!((low, high), (f64::from(rank), f64::from(n + 1 - rank)), "n = {n}");
            assert!((got - coverage).abs() < 1e-9, "n = {n}: {got}");
        }
        // The normal approximation: 2000 / 2 - 1.96 * sqrt(2000) / 2 = 956.2.
        assert_eq!(interval(2000).low, 956.0);
    }

    #[test]
    fn few_samples_give_their_range_and_say_how_little_it_covers() {
        assert_eq!(Interval::of_median([1.0]), None);
        for (samples, coverage) in [(2, 0.5), (3, 0.75), (5, 0.9375)] {
            let interval = Interval::of_median((1..=samples).rev().map(f64::from)).unwrap();
            assert_eq!((interval.low, interval.high), (1.0, f64::from(samples)));
            assert!((interval.coverage - coverage).abs() < 1e-12);
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // Both are twice as fast in the second round: the machine drifted, the ratio did not.
        let ratio = Ratio::of([(4.0, 2.0), (8.0, 4.0), (2.0, 1.0)]).unwrap();
        assert_eq!((ratio.median, ratio.rounds), (2.0, 3));
        assert!(ratio.interval.is_some_and(|interval| (interval.low, interval.high) == (2.0, 2.0)));
        assert_eq!(Ratio::of([(1.0, 0.0), (0.0, 0.0)]), None);
    }

    #[test]
    fn a_ratio_is_clear_when_the_rounds_agree() {
        let clear = |ratios: &[f64]| Ratio::of(ratios.iter().map(|ratio| (*ratio, 1.0))).unwrap().clear();
        assert_eq!(clear(&[1.1, 1.2, 1.3, 1.2, 1.1]), Some(Ordering::Greater));
        assert_eq!(clear(&[0.8, 0.7, 0.9, 0.7, 0.8]), Some(Ordering::Less));
        assert_eq!(clear(&[0.9, 1.2, 1.3, 1.2, 1.1]), None);
        assert_eq!(clear(&[3.0, 3.0, 3.0]), None);
        assert_eq!(clear(&[3.0]), None);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let latency = Latency::of((1..=1000).map(f64::from)).unwrap();
        assert_eq!((latency.p50_ms, latency.p99_ms, latency.max_ms), (500.0, 990.0, 1000.0));
        assert_eq!(latency.mean_ms, 500.5);
        let one = Latency::of([7.0]).unwrap();
        assert_eq!((one.p50_ms, one.p99_ms, one.max_ms, one.mean_ms), (7.0, 7.0, 7.0, 7.0));
        assert_eq!(Latency::of([]), None);
    }

    proptest! {
        #[test]
        fn intervals_hold_the_median_of_their_samples(samples in prop::collection::vec(0.0..1e6_f64, 2..200)) {
            let (interval, summary) =
                (Interval::of_median(samples.clone()).unwrap(), Summary::of(samples.clone()).unwrap());
            prop_assert!(interval.low <= summary.median && summary.median <= interval.high);
            prop_assert!(samples.len() < 6 || interval.coverage >= COVERAGE);
        }

        #[test]
        fn order_does_not_matter_and_percentiles_grow(mut samples in prop::collection::vec(0.0..1e6_f64, 1..200)) {
            let latency = Latency::of(samples.clone()).unwrap();
            prop_assert!(latency.p50_ms <= latency.p99_ms && latency.p99_ms <= latency.max_ms);
            let summary = Summary::of(samples.clone()).unwrap();
            prop_assert!(summary.least <= summary.median && summary.median <= summary.most);
            samples.reverse();
            prop_assert_eq!(Latency::of(samples.clone()).unwrap(), latency);
            prop_assert_eq!(Summary::of(samples).unwrap(), summary);
        }
    }
}
