//! The file of measured costs.

use serde::Deserialize;

use crate::{Error, Result};

/// The normal distribution's 90th percentile, in standard deviations.
const P90: f64 = 1.281_551_565_545;

/// What the stages of the data path cost for one full train, and where that was measured.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The processor's name.
    pub processor: String,
    /// How many of them the machine had.
    pub processors: u32,
    /// The kernel's release.
    pub kernel: String,
    /// The day, as in `2026-11-21`.
    pub measured: String,
    /// Inner packets in a full train.
    pub segments: u32,
    /// TCP payload in a full train, in bytes.
    pub payload: u32,
    /// From the TUN device to the wire.
    pub outbound: Outbound,
    /// From the wire to the TUN device.
    pub inbound: Inbound,
    /// What happens around the engine.
    pub around: Around,
    /// What it costs to go from one core to another.
    pub cores: Cores,
}

/// The stages from the TUN device to the wire.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outbound {
    /// `read` of a super-packet.
    pub read: Cost,
    /// Cutting it up, with checksums and headers.
    pub split: Cost,
    /// Sealing all packets.
    pub seal: Cost,
    /// `sendmsg` of the train, to a card that takes it whole.
    pub send: Cost,
}

/// The stages from the wire to the TUN device.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inbound {
    /// `recvmsg` of a train.
    pub receive: Cost,
    /// Classifying and opening all packets.
    pub open: Cost,
    /// Asking the replay window.
    pub replay: Cost,
    /// Checking lengths and source addresses.
    pub admit: Cost,
    /// Finding out what goes together, with checksums.
    pub merge: Cost,
    /// `writev` of the super-packet, with what TCP does before it returns.
    pub write: Cost,
}

/// What happens around the engine.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Around {
    /// The send to a card that takes single datagrams only.
    pub send_cut_up: Cost,
    /// The send between two namespaces, which runs the receiver's side of the kernel, too.
    pub send_veth: Cost,
    /// The write of a super-packet that IP drops: without TCP.
    pub write_alone: Cost,
    /// The thread that sends the TCP stream, in microseconds.
    pub tcp_sender: f64,
    /// The thread that receives it, in microseconds.
    pub tcp_receiver: f64,
}

/// What it costs to go from one core to another.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// A cache line, in nanoseconds.
    pub line_ns: f64,
    /// What a train's copy takes longer where another core wrote it, in microseconds.
    pub train: f64,
}

/// What a stage costs, in microseconds: lognormal, by its median and its 90th percentile.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Half of the trains cost less.
    pub median: f64,
    /// Nine of ten cost less.
    pub p90: f64,
}

impl Costs {
    /// Reads the file's text.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] that names what is wrong with it.
    pub fn parse(text: &str) -> Result<Self> {
        let costs: Self =
            toml::from_str(text).map_err(|error| Error::Refused(format!("this is no file of costs: {error}")))?;
        costs.check()?;
        Ok(costs)
    }

    fn check(&self) -> Result<()> {
        let Self { outbound, inbound, around, .. } = self;
        let stages = [
            ("outbound.read", outbound.read),
            ("outbound.split", outbound.split),
            ("outbound.seal", outbound.seal),
            ("outbound.send", outbound.send),
            ("inbound.receive", inbound.receive),
            ("inbound.open", inbound.open),
            ("inbound.replay", inbound.replay),
            ("inbound.admit", inbound.admit),
            ("inbound.merge", inbound.merge),
            ("inbound.write", inbound.write),
            ("around.send_cut_up", around.send_cut_up),
            ("around.send_veth", around.send_veth),
            ("around.write_alone", around.write_alone),
        ];
        for (name, cost) in stages {
            cost.check(name)?;
        }
        let numbers = [
            ("payload", f64::from(self.payload)),
            ("around.tcp_sender", around.tcp_sender),
            ("around.tcp_receiver", around.tcp_receiver),
            ("cores.line_ns", self.cores.line_ns),
        ];
        match numbers.into_iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            Some((name, value)) => Err(Error::Refused(format!("{name} is {value}; it must be above zero"))),
            // Copying from another core may measure as no dearer than from the own cache.
            None if !self.cores.train.is_finite() || self.cores.train < 0.0 => {
                Err(Error::Refused(format!("cores.train is {}; it must not be below zero", self.cores.train)))
            }
            None => Ok(()),
        }
    }
}

impl Cost {
    /// One that never varies.
    #[must_use]
    pub fn steady(micros: f64) -> Self {
        Self { median: micros, p90: micros }
    }

    /// The mean, in microseconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.median * (self.spread() * self.spread() / 2.0).exp()
    }

    /// The cost of one train, from a number that is distributed normally, with mean 0 and variance 1.
    pub(super) fn draw(&self, normal: f64) -> f64 {
        self.median * (self.spread() * normal).exp()
    }

    /// The standard deviation of the logarithm.
    fn spread(&self) -> f64 {
        (self.p90 / self.median).ln() / P90
    }

    fn check(&self, name: &str) -> Result<()> {
        let Self { median, p90 } = self;
        if median.is_finite() && p90.is_finite() && *median > 0.0 && p90 >= median {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "{name} has the median {median} and the 90th percentile {p90}; the median must be above zero and the \
             percentile not below it"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: &str = include_str!("../../../../docs/perf/many-cores.toml");

    #[test]
    fn a_cost_has_its_median_its_percentile_and_a_mean_above_the_median() {
        let cost = Cost { median: 10.0, p90: 15.0 };
        assert!((cost.draw(0.0) - 10.0).abs() < 1e-9 && (cost.draw(P90) - 15.0).abs() < 1e-9);
        assert!(cost.mean() > 10.0 && cost.mean() < 15.0);
        assert_eq!(Cost::steady(3.0).mean(), 3.0);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_by_name() {
        assert!(Costs::parse(MEASURED).is_ok());
        assert!(Costs::parse("").is_err());
        for (line, instead, named) in [
            ("payload =", "payload = 0", "payload"),
            ("seal =", "seal = { median = 0, p90 = 1.0 }", "outbound.seal"),
            ("open =", "open = { median = 2.0, p90 = 1.0 }", "inbound.open"),
            ("write =", "write = { median = nan, p90 = 1.0 }", "inbound.write"),
            ("line_ns =", "line_ns = inf", "cores.line_ns"),
            ("train =", "train = -1.0", "cores.train"),
        ] {
            let changed: Vec<&str> =
                MEASURED.lines().map(|own| if own.starts_with(line) { instead } else { own }).collect();
            let refused = Costs::parse(&changed.join("\n")).expect_err(instead).to_string();
            assert!(refused.contains(named), "{refused}");
        }
    }
}
