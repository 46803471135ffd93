//! What makes a network worse than a cable: cards without offloads, narrow paths, loss and delay by netem or the relay.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use super::Testbed;
use crate::error::Doing;
use crate::hosts::Host;
use crate::relay::{self, Impairments, Relay};
use crate::subject::LISTEN_PORT;
use crate::{Error, Result};

impl Testbed {
    pub(super) fn impair(&mut self, impairments: &Impairments, seed: u64) -> Result<()> {
        let Some(middle) = &self.middle else { return Ok(()) };
        if let Some(mtu) = impairments.mtu {
            self.narrow(middle, mtu)?;
        }
        // From here on the links' MTU has this effect: hosts fragment what is larger, as routers do.
        let impairments = &Impairments { mtu: None, ..*impairments };
        if has_netem(middle)? {
            self.set_up_netem(middle, impairments)
        } else {
            self.relays = start_relays(self, middle, impairments, seed)?;
            Ok(())
        }
    }

    fn set_up_netem(&self, middle: &Host, impairments: &Impairments) -> Result<()> {
        middle.forward()?;
        self.route(&self.client, self.next_hop(0))?;
        self.route(&self.server, self.next_hop(1))?;
        for host in [&self.client, &self.server] {
            // Otherwise netem would lose and delay whole GSO batches of segments as if they were one packet.
            host.ip("link set eth0 gso_max_segs 1")?;
        }
        for device in ["eth0", "eth1"] {
            middle
                .run(Command::new("tc").args(["qdisc", "replace", "dev", device, "root"]).args(netem(impairments)))?;
        }
        Ok(())
    }

    /// Lets no larger packet onto the cables.
    fn narrow(&self, middle: &Host, mtu: u32) -> Result<()> {
        let ends = [(&self.client, "eth0"), (middle, "eth0"), (middle, "eth1"), (&self.server, "eth0")];
        ends.into_iter().try_for_each(|(host, device)| host.ip(&format!("link set {device} mtu {mtu}")))
    }
}

/// The arguments of `ethtool -K eth0` that make a simple network card of a veth.
const PLAIN: &str = "tx off rx off sg off tso off gso off gro off tx-udp-segmentation off";

/// What must be off then, by the names of `ethtool -k`.
const OFFLOADS: [&str; 7] = [
    "tx-checksumming",
    "rx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
    "tx-udp-segmentation",
    "generic-segmentation-offload",
    "generic-receive-offload",
];

/// Turns the offloads of `eth0` off and looks whether they are.
pub(super) fn make_plain(host: &Host) -> Result<()> {
    host.run(Command::new("ethtool").args(["-K", "eth0"]).args(PLAIN.split(' ')))?;
    let features = host.run(Command::new("ethtool").args(["-k", "eth0"]))?;
    match still_on(&features) {
        None => Ok(()),
        Some(name) => Err(Error::Refused(format!("this kernel does not turn off a veth's {name}"))),
    }
}

/// The first offload that is on by the output of `ethtool -k`.
fn still_on(features: &str) -> Option<&'static str> {
    let is_on = |name: &str| {
        let state = features.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        state.is_some_and(|state| state.starts_with("on"))
    };
    OFFLOADS.into_iter().find(|name| is_on(name))
}

/// Whether this kernel has netem, by trying.
fn has_netem(host: &Host) -> Result<bool> {
    match host.run(Command::new("tc").args("qdisc add dev lo root netem".split(' '))) {
        Ok(_) => Ok(true),
        Err(Error::Command { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The impairments in the words of tc-netem(8).
fn netem(impairments: &Impairments) -> Vec<String> {
    // As many packets under way as the relay takes.
    let mut words = vec!["netem".to_owned(), "limit".into(), "16384".into()];
    // To netem, reordered packets are those that are not delayed: there is no order to lose without a delay.
    let least = if impairments.reorder > 0.0 { Duration::from_millis(1) } else { Duration::ZERO };
    let microseconds = |time: Duration| format!("{}us", time.as_micros());
    words.extend(["delay".into(), microseconds(impairments.delay.max(least)), microseconds(impairments.jitter)]);
    for (name, share) in
        [("loss", impairments.loss), ("duplicate", impairments.duplicate), ("reorder", impairments.reorder)]
    {
        if share > 0.0 {
            words.extend([name.into(), format!("{}%", share * 100.0)]);
        }
    }
    words
}

/// A relay at work on a thread of its own. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Relaying {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Result<relay::Report>>>,
}

/// One relay for each end and family, so that either end may begin.
fn start_relays(testbed: &Testbed, middle: &Host, impairments: &Impairments, seed: u64) -> Result<Vec<Relaying>> {
    let mut relays = Vec::new();
    for end in 0..2 {
        for &family in testbed.families() {
            let listen = SocketAddr::new(testbed.next_hop(end).of(family), LISTEN_PORT);
            let to = SocketAddr::new(testbed.outside(1 - end).of(family), LISTEN_PORT);
            let options = relay::Options { listen, to, impairments: *impairments, seed };
            relays.push(Relaying::start(middle, &options)?);
        }
    }
    Ok(relays)
}

impl Relaying {
    fn start(host: &Host, options: &relay::Options) -> Result<Self> {
        let (stop, stopped) = UnixStream::pair().doing(|| "preparing a relay to be stopped".into())?;
        let relay = host.inside(|| Relay::open(options))?;
        let thread = host.start(move || relay.serve(&stopped));
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Relaying {
    fn drop(&mut self) {
        // It ends when its stop socket is closed.
        self.stop.take();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEATURES: &str = "Features for eth0:\nrx-checksumming: off [fixed]\ntx-checksumming: off\n\
        \ttx-checksum-ip-generic: off\nscatter-gather: off\ntcp-segmentation-offload: off\n\
        generic-segmentation-offload: off\ngeneric-receive-offload: off\n\ttx-udp-segmentation: off [requested on]\n";

    #[test]
    fn an_offload_that_stayed_on_is_named() {
        assert_eq!(still_on(FEATURES), None);
        let stayed = FEATURES.replace("scatter-gather: off", "scatter-gather: on [fixed]");
        assert_eq!(still_on(&stayed), Some("scatter-gather"));
        let stayed = FEATURES.replace("tx-udp-segmentation: off", "tx-udp-segmentation: on");
        assert_eq!(still_on(&stayed), Some("tx-udp-segmentation"));
    }

    #[test]
    fn impairments_become_netems_options() {
        let country = Impairments {
            loss: 0.001,
            reorder: 0.25,
            delay: Duration::from_millis(20),
            jitter: Duration::from_micros(1500),
            ..Impairments::default()
        };
        assert_eq!(netem(&country).join(" "), "netem limit 16384 delay 20000us 1500us loss 0.1% reorder 25%");
        let only_reordering = Impairments { reorder: 0.5, ..Impairments::default() };
        assert_eq!(netem(&only_reordering).join(" "), "netem limit 16384 delay 1000us 0us reorder 50%");
    }
}
