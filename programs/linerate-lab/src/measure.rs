//! The quantities that the lab measures: their names, units and which way is better.

use serde::{Deserialize, Serialize};

/// A quantity. Its JSON key is the variant in snake case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Payload that arrived: TCP's, or that of UDP datagrams.
    Throughput,
    /// TCP segments that the sender's host retransmitted.
    Retransmits,
    /// Share of UDP datagrams, or of latency probes, that did not arrive.
    Loss,
    /// UDP datagrams that arrived.
    PacketRate,
    /// Mean round trip.
    LatencyMean,
    /// Half of the round trips are at most this.
    LatencyMedian,
    /// 99 of 100 round trips are at most this.
    LatencyP99,
    /// The longest round trip.
    LatencyMax,
    /// Processor seconds of both ends' daemons in user space per 10^9 bytes of payload.
    UserPerGb,
    /// Processor seconds of both ends' daemons in the kernel per 10^9 bytes of payload.
    SystemPerGb,
    /// Both: what a tunnel costs.
    CpuPerGb,
    /// Of this, the daemon's at the client.
    ClientCpuPerGb,
    /// Of this, the daemon's at the far end, which is the server or the gateway.
    FarCpuPerGb,
    /// Processor seconds of the whole machine per 10^9 bytes of payload: the load, the kernel's forwarding and the
    /// daemons.
    MachineCpuPerGb,
    /// Share of the whole machine's time in user space.
    MachineUser,
    /// Share of the whole machine's time in the kernel, interrupts included.
    MachineSystem,
    /// Share of the whole machine's time at rest.
    MachineIdle,
    /// System calls of both daemons per 10^9 bytes of payload.
    SyscallsPerGb,
    /// System calls of both daemons per second.
    SyscallRate,
    /// Context switches of both daemons per 10^9 bytes of payload.
    SwitchesPerGb,
    /// Context switches of both daemons per second.
    SwitchRate,
    /// Share of wake-ups that found work, where the daemon counts them.
    WorkPerWakeUp,
    /// The most memory that the larger of the two daemons had resident.
    PeakMemory,
    /// Context switches of both daemons per second at rest.
    IdleSwitchRate,
    /// Energy of the whole package per 10^9 bytes of payload.
    EnergyPerGb,
    /// Time to configure all peers in the daemon.
    SetUpTime,
    /// Memory per peer, resident, of the daemon that has them all.
    MemoryPerPeer,
    /// From starting the daemon to an interface that takes settings.
    StartTime,
    /// From the first packet into the tunnel to its answer, handshake included.
    FirstAnswer,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Larger figures.
    More,
    /// Smaller figures.
    Less,
    /// Neither: it explains others.
    Neither,
}

/// How a quantity is named and shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Description {
    /// Its name in tables: a few words, no unit.
    pub name: &'static str,
    /// The unit in which it is shown.
    pub unit: &'static str,
    /// What a recorded value is multiplied by to be in that unit.
    pub scale: f64,
    /// Significant decimals.
    pub decimals: usize,
    /// Which way is better.
    pub better: Better,
}

impl Measure {
    /// All quantities, in the order of tables.
    pub const ALL: [Self; 29] = [
        Self::Throughput,
        Self::Retransmits,
        Self::Loss,
        Self::PacketRate,
        Self::LatencyMean,
        Self::LatencyMedian,
        Self::LatencyP99,
        Self::LatencyMax,
        Self::CpuPerGb,
        Self::UserPerGb,
        Self::SystemPerGb,
        Self::ClientCpuPerGb,
        Self::FarCpuPerGb,
        Self::MachineCpuPerGb,
        Self::MachineUser,
        Self::MachineSystem,
        Self::MachineIdle,
        Self::SyscallsPerGb,
        Self::SyscallRate,
        Self::SwitchesPerGb,
        Self::SwitchRate,
        Self::WorkPerWakeUp,
        Self::PeakMemory,
        Self::IdleSwitchRate,
        Self::EnergyPerGb,
        Self::SetUpTime,
        Self::MemoryPerPeer,
        Self::StartTime,
        Self::FirstAnswer,
    ];

    /// How it is named and shown. Recorded are SI units: bits and datagrams per second, seconds, bytes, joules,
    /// shares from 0 to 1; latencies are in milliseconds.
    #[must_use]
    pub fn description(self) -> Description {
        use Better::{Less, More, Neither};
        let (name, unit, scale, decimals, better) = match self {
            Self::Throughput => ("throughput", "Gbit/s", 1e-9, 2, More),
            Self::Retransmits => ("retransmits", "segments", 1.0, 0, Less),
            Self::Loss => ("loss", "%", 100.0, 2, Less),
            Self::PacketRate => ("datagrams", "1000/s", 1e-3, 1, More),
            Self::LatencyMean => ("ping mean", "ms", 1.0, 3, Less),
            Self::LatencyMedian => ("ping median", "ms", 1.0, 3, Less),
            Self::LatencyP99 => ("ping p99", "ms", 1.0, 3, Less),
            Self::LatencyMax => ("ping max", "ms", 1.0, 2, Less),
            Self::UserPerGb => ("user CPU", "s/GB", 1.0, 2, Less),
            Self::SystemPerGb => ("system CPU", "s/GB", 1.0, 2, Less),
            Self::CpuPerGb => ("CPU", "s/GB", 1.0, 2, Less),
            Self::ClientCpuPerGb => ("client's CPU", "s/GB", 1.0, 2, Less),
            Self::FarCpuPerGb => ("far end's CPU", "s/GB", 1.0, 2, Less),
            Self::MachineCpuPerGb => ("machine's CPU", "s/GB", 1.0, 2, Less),
            Self::MachineUser => ("machine us", "%", 100.0, 0, Neither),
            Self::MachineSystem => ("machine sy", "%", 100.0, 0, Neither),
            Self::MachineIdle => ("machine id", "%", 100.0, 0, Neither),
            Self::SyscallsPerGb => ("system calls", "1000/GB", 1e-3, 1, Less),
            Self::SyscallRate => ("system calls", "1000/s", 1e-3, 1, Neither),
            Self::SwitchesPerGb => ("switches", "1000/GB", 1e-3, 1, Less),
            Self::SwitchRate => ("switches", "1000/s", 1e-3, 1, Neither),
            Self::WorkPerWakeUp => ("work/wake-up", "%", 100.0, 1, More),
            Self::PeakMemory => ("memory", "MB", 1e-6, 1, Less),
            Self::IdleSwitchRate => ("wake-ups at rest", "1/s", 1.0, 2, Less),
            Self::EnergyPerGb => ("energy", "J/GB", 1.0, 1, Less),
            Self::SetUpTime => ("set-up", "ms", 1e3, 1, Less),
            Self::MemoryPerPeer => ("memory/peer", "B", 1.0, 0, Less),
            Self::StartTime => ("start", "ms", 1e3, 1, Less),
            Self::FirstAnswer => ("first answer", "ms", 1e3, 2, Less),
        };
        Description { name, unit, scale, decimals, better }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quantity_is_listed_once_and_described() {
        let mut all = Measure::ALL.to_vec();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), Measure::ALL.len());
        for measure in all {
            let Description { name, unit, scale, .. } = measure.description();
            assert!(!name.is_empty() && !unit.is_empty() && scale > 0.0, "{measure:?}");
        }
    }

    #[test]
    fn keys_in_json_are_in_snake_case() {
        assert_eq!(serde_json::to_value(Measure::LatencyP99).unwrap(), "latency_p99");
        assert_eq!(serde_json::to_value(Measure::CpuPerGb).unwrap(), "cpu_per_gb");
    }
}
