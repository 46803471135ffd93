//! What makes a tunnel slower than it could be.

use crate::bottleneck::{self, Bottleneck, Place, Thread};
use crate::evidence::{Evidence, Way};
use crate::{Finding, Severity};

/// A processor that spends this share of its time on soft interrupts is the network's.
const MOSTLY: f64 = 0.5;

/// A hypervisor that takes less is no news, nor is it for fewer ticks: one is much of a short examination.
const STOLEN: f64 = 0.05;
const STOLEN_TICKS: f64 = 5.0;

/// As many dropped datagrams since the start are worth a note.
const DROPS: u64 = 100;

pub(crate) fn examine(evidence: &Evidence) -> Vec<Finding> {
    if evidence.tunnel.is_dead {
        return Vec::new();
    }
    let rules: [fn(&Evidence) -> Option<Finding>; 10] = [
        offload_tun,
        offload_udp,
        offload_refused,
        cipher,
        socket_buffer,
        one_core,
        cpu_limit,
        stolen,
        one_thread,
        governor,
    ];
    rules.iter().filter_map(|rule| rule(evidence)).collect()
}

fn offload_tun(evidence: &Evidence) -> Option<Finding> {
    let counters = &evidence.tunnel.counters;
    let name = &evidence.tunnel.name;
    if counters.denies("offload_tun_tso") {
        return Some(Finding::new(
            "offload-tun-missing",
            name,
            "the interface hands over single packets: segmentation and checksum offload are off",
            "offload_tun_tso is 0 (`linerate show --stats`): each packet costs a system call",
            "unset LINERATE_OFFLOADS for the daemon; a TUN device that others made needs IFF_VNET_HDR",
        ));
    }
    counters.denies("offload_tun_uso").then(|| {
        let finding = Finding::new(
            "offload-tun-missing",
            name,
            "datagrams go through the interface one by one (no USO)",
            "offload_tun_uso is 0 (`linerate show --stats`); TCP is not concerned",
            "Linux 6.2 or newer, and no LINERATE_OFFLOADS without it",
        );
        finding.with(Severity::Note)
    })
}

fn offload_udp(evidence: &Evidence) -> Option<Finding> {
    let counters = &evidence.tunnel.counters;
    let missing: Vec<&str> = [("offload_udp_gso", "GSO (sending)"), ("offload_udp_gro", "GRO (receiving)")]
        .into_iter()
        .filter(|(counter, _)| counters.denies(counter))
        .map(|(_, name)| name)
        .collect();
    (!missing.is_empty()).then(|| {
        Finding::new(
            "offload-udp-missing",
            &evidence.tunnel.name,
            format!("the socket works without {}", missing.join(" and ")),
            "each datagram passes the kernel's network stack alone (offload_udp_*, `linerate show --stats`)",
            "Linux 5.12 or newer, and no LINERATE_OFFLOADS without them",
        )
    })
}

fn offload_refused(evidence: &Evidence) -> Option<Finding> {
    let refused = evidence.tunnel.counters.total("segmentation_refused");
    (refused > 0).then(|| {
        Finding::new(
            "offload-refused",
            &evidence.tunnel.name,
            "the kernel refused to segment datagrams on the way to some peer",
            format!("{refused} batches were sent as single datagrams (segmentation_refused)"),
            "`ethtool -k DEVICE` shows whether tx-udp-segmentation and tx-checksumming are on",
        )
    })
}

fn cipher(evidence: &Evidence) -> Option<Finding> {
    let machine = &evidence.machine;
    let (used, best) = (machine.cipher.as_ref()?, machine.best_cipher.as_ref()?);
    let name = &evidence.tunnel.name;
    if used != best {
        return Some(Finding::new(
            "cipher-slow",
            name,
            format!("the cipher runs as {used}, and this CPU can do {best}"),
            "LINERATE_AEAD in the daemon's environment chooses it",
            format!("unset LINERATE_AEAD, then `linerate down {name}` and `linerate up {name}`"),
        ));
    }
    let needs = match used.as_str() {
        "portable" | "library" => "a CPU with AVX2",
        "avx2" => "a CPU with AVX-512",
        "avx512f" => "a CPU with AVX-512 IFMA",
        _ => return None,
    };
    // Only if it matters.
    machine.threads.iter().any(|(_, share)| *share > FULL).then(|| {
        let finding = Finding::new(
            "cipher-slow",
            name,
            format!("the cipher runs as {used}, the best that this CPU can do"),
            "a thread of the daemon is busy all the time",
            format!("{needs} would seal more"),
        );
        finding.with(Severity::Note)
    })
}

fn socket_buffer(evidence: &Evidence) -> Option<Finding> {
    let drops = &evidence.host.socket_drops;
    let (total, growth) = (drops.total("drops"), drops.growth("drops"));
    let finding = || {
        Finding::new(
            "socket-buffer-drops",
            &evidence.tunnel.name,
            "datagrams are dropped because the tunnel's receive buffer is full",
            format!("{total} dropped at its sockets, {growth} of them meanwhile (/proc/net/udp)"),
            if evidence.tunnel.counters.after.is_empty() {
                "`sysctl -w net.core.rmem_max=16777216`, then start the tunnel again"
            } else {
                "its buffers are as large as they may be, so it reads too slowly: see what bounds it above and below; \
                 in a container `sysctl -w net.core.rmem_max=16777216` of the host counts"
            },
        )
    };
    match (total, growth) {
        (_, 1..) => Some(finding()),
        (DROPS.., 0) => Some(finding().with(Severity::Note)),
        _ => None,
    }
}

fn one_core(evidence: &Evidence) -> Option<Finding> {
    let machine = &evidence.machine;
    let (busiest, core) =
        machine.cores.iter().enumerate().max_by(|(_, one), (_, other)| one.softirq.total_cmp(&other.softirq))?;
    let idle = machine.cores.iter().map(|core| core.idle).sum::<f64>() / machine.cores.len() as f64;
    if core.softirq < MOSTLY || idle < 0.3 || machine.cores.len() < 2 {
        return None;
    }
    let device = evidence.tunnel.peers.iter().find_map(|peer| match &peer.endpoint_way {
        Some(Way::Device(device)) => evidence.host.link(device),
        _ => None,
    })?;
    let name = &device.name;
    // A mask of more than 32 processors is written in groups.
    let mask = (1_u64 << machine.processors.min(32)) - 1;
    let (cause, remedy) = if device.receive_queues == 1 && !device.spreads {
        let spread = format!("`echo {mask:x} > /sys/class/net/{name}/queues/rx-0/rps_cpus`");
        (
            "has one receive queue and no RPS".to_owned(),
            format!("{spread}; or, if `ethtool -l {name}` shows more queues, `ethtool -L {name} combined N`"),
        )
    } else if let ([core], 2.., false) = (&device.interrupt_cores[..], device.receive_queues, device.spreads) {
        let queues = device.receive_queues;
        (
            format!("has {queues} receive queues, all of whose interrupts go to processor {core}"),
            format!(
                "irqbalance as a service, or `echo N > /proc/irq/I/smp_affinity_list` for each I in \
                 /sys/class/net/{name}/device/msi_irqs"
            ),
        )
    } else {
        return None;
    };
    Some(Finding::new(
        "receive-on-one-core",
        &evidence.tunnel.name,
        format!("one processor does all the work of receiving for {}", device.name),
        format!(
            "processor {busiest} spent {:.0} % of its time on it while {:.0} % of all were idle; {} {cause}",
            core.softirq * 100.0,
            idle * 100.0,
            device.name
        ),
        remedy,
    ))
}

fn cpu_limit(evidence: &Evidence) -> Option<Finding> {
    let limit = evidence.machine.limit.as_ref()?;
    if limit.processors >= evidence.machine.processors as f64 {
        return None;
    }
    let finding = Finding::new(
        "cpu-limited",
        &evidence.tunnel.name,
        format!("the daemon may use {:.2} of {} processors", limit.processors, evidence.machine.processors),
        format!("the control group {} has that limit; it was throttled {} times", limit.group, limit.throttled),
        match limit.group.rsplit('/').next().filter(|unit| unit.ends_with(".service") || unit.ends_with(".slice")) {
            Some(unit) => format!("`systemctl set-property {unit} CPUQuota=` takes the limit away"),
            None => "raise CPUQuota= of its unit, or the limit of its container".to_owned(),
        },
    );
    Some(if limit.throttled > 0 { finding } else { finding.with(Severity::Note) })
}

fn stolen(evidence: &Evidence) -> Option<Finding> {
    let cores = &evidence.machine.cores;
    let stolen = cores.iter().map(|core| core.steal).sum::<f64>() / cores.len().max(1) as f64;
    let ticks = cores.iter().map(|core| core.steal * core.ticks as f64).sum::<f64>();
    (stolen > STOLEN && ticks >= STOLEN_TICKS).then(|| {
        Finding::new(
            "cpu-stolen",
            &evidence.tunnel.name,
            "the hypervisor gives this machine's processors to others",
            format!("{:.0} % of the time was stolen (/proc/stat)", stolen * 100.0),
            "a larger or less crowded virtual machine; nothing on this host can mend it",
        )
        .of_host()
    })
}

/// A thread that uses so much of a processor never waits.
const FULL: f64 = 0.9;

fn one_thread(evidence: &Evidence) -> Option<Finding> {
    let machine = &evidence.machine;
    if !machine.threads.iter().any(|(_, share)| *share > FULL) || machine.cores.is_empty() {
        return None;
    }
    let thread = |(name, share): &(String, f64)| Thread {
        of: bottleneck::HERE,
        name: name.clone(),
        share: *share,
        wait: 0.0,
        waiting: 0.0,
    };
    let idle = |of: fn(f64, f64) -> f64, start: f64| machine.cores.iter().map(|core| core.idle).fold(start, of);
    let seen = bottleneck::Machine {
        place: Place::Here,
        processors: machine.processors,
        idle: idle(|sum, idle| sum + idle, 0.0) / machine.cores.len() as f64,
        least_idle: idle(f64::min, 1.0),
        threads: machine.threads.iter().map(thread).collect(),
        daemons: machine.threads.iter().map(|(_, share)| share).sum(),
        ..bottleneck::Machine::default()
    };
    let found = Bottleneck::find(&bottleneck::Evidence { machines: vec![seen], ..bottleneck::Evidence::default() });
    Some(Finding::new(
        "one-thread-full",
        &evidence.tunnel.name,
        found.says,
        found.because,
        "several flows use several cores; `ethtool -L DEVICE combined N` gives the card more queues",
    ))
}

fn governor(evidence: &Evidence) -> Option<Finding> {
    let (governor, driver) = evidence.machine.governor.as_ref()?;
    // Those of these drivers that are called so raise the frequency all the same.
    let rises = driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate");
    (governor == "powersave" && !rises).then(|| {
        Finding::new(
            "cpu-governor",
            &evidence.tunnel.name,
            "the processors stay at their lowest frequency",
            format!("the governor is powersave, the driver {driver}"),
            "`echo schedutil | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`",
        )
        .of_host()
    })
}
