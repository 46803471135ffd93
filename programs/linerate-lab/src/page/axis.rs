//! Axes: where a value lies between the two ends, and round numbers to mark on the way.

/// Figures further apart than this are shown on a logarithmic axis.
const WIDE: f64 = 10.0;

/// One axis of a plot.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    /// What it shows, with the unit.
    pub(super) name: String,
    /// Marked values.
    pub(super) ticks: Vec<Tick>,
    low: f64,
    high: f64,
    map: fn(f64) -> f64,
}

/// A marked value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// The value.
    pub(super) at: f64,
    /// How it is written.
    pub(super) label: String,
}

impl Axis {
    /// From zero to a round number not below `most`.
    pub(super) fn linear(name: String, most: f64) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = round_up(most / 4.0);
        let steps = (most / step - 1e-9).ceil();
        // 2.5 has a decimal more than its magnitude says.
        let magnitude = step.log10().floor();
        let halves = if (step / 10_f64.powf(magnitude)).fract() > 0.1 { 1.0 } else { 0.0 };
        let decimals = (halves - magnitude).max(0.0) as usize;
        let tick = |at: f64| Tick { at, label: grouped(&format!("{at:.decimals$}")) };
        let ticks = (0..=steps as u32).map(|i| tick(f64::from(i) * step)).collect();
        Self { name, ticks, low: 0.0, high: steps * step, map: |value| value }
    }

    /// From zero, or logarithmic where figures above zero are so far apart that the small ones would lie on the axis.
    pub(super) fn fitting(name: String, least: f64, most: f64) -> Self {
        if least > 0.0 && most > WIDE * least {
            Self::log(format!("{name} (log)"), least, most)
        } else {
            Self::linear(name, most)
        }
    }

    /// Logarithmic, from a round number not above `least` to one not below `most`; both are above zero.
    pub(super) fn log(name: String, least: f64, most: f64) -> Self {
        let decades = (least.log10().floor() as i32)..=(most.log10().ceil() as i32);
        let marks: Vec<f64> =
            decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(decade))).collect();
        let low = marks.iter().rposition(|mark| *mark <= least * (1.0 + 1e-9)).unwrap_or(0);
        let high = marks.iter().position(|mark| *mark >= most * (1.0 - 1e-9)).unwrap_or(marks.len() - 1);
        // One value alone still needs two ends.
        let high = if high > low { high } else { (low + 1).min(marks.len() - 1) };
        // Over many decades their beginnings are enough.
        let step = if high - low > 6 { 3 } else { 1 };
        let ticked = (low..=high).filter(|i| i % step == 0);
        let ticks = ticked.map(|i| Tick { at: marks[i], label: short(marks[i]) }).collect();
        Self { name, ticks, low: marks[low], high: marks[high], map: f64::log10 }
    }

    /// Logarithmic, with marks at the given values only, which are above zero and grow.
    pub(super) fn at_values(name: String, values: &[f64]) -> Self {
        let (low, high) = (values[0], values[values.len() - 1]);
        let thousands = |at: f64| at >= 10_000.0 && at % 1000.0 == 0.0;
        let label = |at: f64| if thousands(at) { format!("{}k", at / 1000.0) } else { at.to_string() };
        let ticks = values.iter().map(|at| Tick { at: *at, label: label(*at) }).collect();
        Self { name, ticks, low, high, map: f64::log10 }
    }

    /// Shares from 0 to `most` (below 1), stretched towards 1 so that 90, 99 and 99.9 % are equally far apart;
    /// marked in percent.
    pub(super) fn shares(name: String, most: f64) -> Self {
        let marks = [(0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")];
        let ticks = marks.into_iter().filter(|(at, _)| *at <= most);
        let ticks = ticks.map(|(at, label)| Tick { at, label: label.into() }).collect();
        Self { name, ticks, low: 0.0, high: most, map: |share| -(1.0 - share).log10() }
    }

    /// Where `value` lies: 0 at the lower end, 1 at the upper one.
    pub(super) fn position(&self, value: f64) -> f64 {
        let (low, high) = ((self.map)(self.low), (self.map)(self.high));
        if high > low { (((self.map)(value) - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below `step`.
fn round_up(step: f64) -> f64 {
    let magnitude = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0].into_iter().find(|factor| factor * magnitude >= step * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * magnitude
}

/// A round number without needless zeros.
fn short(value: f64) -> String {
    let decimals = (-value.log10().floor()).max(0.0) as usize;
    grouped(&format!("{value:.decimals$}"))
}

/// Thousands apart from ten thousand on.
fn grouped(digits: &str) -> String {
    let (whole, rest) = digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let mut out = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if whole.len() > 4 && i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    rest.map_or(out.clone(), |rest| format!("{out}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(&Axis::linear(String::new(), 21.3)), ["0", "10", "20", "30"]);
        assert_eq!(labels(&Axis::linear(String::new(), 0.9)), ["0.00", "0.25", "0.50", "0.75", "1.00"]);
        assert_eq!(labels(&Axis::linear(String::new(), 900.0)), ["0", "250", "500", "750", "1000"]);
        assert_eq!(labels(&Axis::linear(String::new(), 70_000.0)), ["0", "20,000", "40,000", "60,000", "80,000"]);
        assert_eq!(labels(&Axis::log(String::new(), 0.03, 0.7)), ["0.02", "0.05", "0.1", "0.2", "0.5", "1"]);
        assert_eq!(labels(&Axis::log(String::new(), 0.03, 70.0)), ["0.1", "1", "10", "100"]);
        assert_eq!(labels(&Axis::shares(String::new(), 0.995)), ["50", "90", "99"]);
        assert_eq!(labels(&Axis::at_values(String::new(), &[1.0, 4.0, 105.0, 100_000.0])), ["1", "4", "105", "100k"]);
    }

    proptest! {
        #[test]
        fn an_axis_holds_what_it_was_made_for(least in 1e-9..1e9_f64, factor in 1.0..1e6_f64) {
            let most = least * factor;
            for (axis, low) in [(Axis::linear(String::new(), most), 0.0), (Axis::log(String::new(), least, most), least)] {
                prop_assert!(axis.low <= low * (1.0 + 1e-6) && axis.high >= most * (1.0 - 1e-6), "{axis:?}");
                prop_assert!((2..=10).contains(&axis.ticks.len()), "{axis:?}");
                prop_assert!(axis.position(low) < axis.position(axis.high), "{axis:?}");
            }
        }
    }
}
