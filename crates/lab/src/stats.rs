//! Sums up samples: medians, percentiles, spread.

use serde::Serialize;

/// What a handful of samples says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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

/// What many latency samples say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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
