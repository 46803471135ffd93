//! The families of each dialect.

use std::time::Duration;

use linerate_control::endpoint;
use linerate_control::uapi::NOT_LISTENING;
use linerate_control::uapi::limits::Suspension;
use linerate_tunnel::status::RunBy;

use super::text::{Format, Kind, Samples, Writer};
use crate::{Peer, Time, Tunnel, View};

/// After this long without a handshake no session is left (REJECT_AFTER_TIME).
const SESSION: Duration = Duration::from_secs(180);

/// Whose names and labels are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Those of MindFlavor's prometheus_wireguard_exporter.
    MindFlavor,
    /// Those of mdlayher's wireguard_exporter.
    Mdlayher,
    /// Our own, for what the others do not have.
    Linerate,
}

/// What is written.
#[derive(Clone, Debug)]
pub struct Content {
    /// In which dialects.
    pub dialects: Vec<Dialect>,
    /// Whether the families of peers are, too.
    pub peers: bool,
    /// The version of this program.
    pub version: &'static str,
}

/// The families of all dialects, as their samples are named.
pub const NAMES: [&str; 33] = [
    "wireguard_sent_bytes_total",
    "wireguard_received_bytes_total",
    "wireguard_latest_handshake_seconds",
    "wireguard_latest_handshake_delay_seconds",
    "wireguard_device_info",
    "wireguard_peer_info",
    "wireguard_peer_allowed_ips_info",
    "wireguard_peer_receive_bytes_total",
    "wireguard_peer_transmit_bytes_total",
    "wireguard_peer_last_handshake_seconds",
    "linerate_build_info",
    "linerate_tunnel_info",
    "linerate_tunnel_up",
    "linerate_tunnel_elsewhere_info",
    "linerate_tunnel_listening",
    "linerate_clients",
    "linerate_drops_total",
    "linerate_handshakes_total",
    "linerate_handshake_messages_sent_total",
    "linerate_wakeups_total",
    "linerate_looks_total",
    "linerate_offload_in_use",
    "linerate_segmentation_refused_total",
    "linerate_daemon_cpu_seconds_total",
    "linerate_peer_info",
    "linerate_peer_last_received_timestamp_seconds",
    "linerate_peer_silent",
    "linerate_client_suspended",
    "linerate_client_quota_bytes",
    "linerate_client_used_bytes_total",
    "linerate_client_expires_timestamp_seconds",
    "linerate_client_rate_down_bits",
    "linerate_client_rate_up_bits",
];

/// The text of a view.
pub fn write(view: &View, content: &Content, format: Format) -> String {
    let mut writer = Writer::new(format);
    for dialect in &content.dialects {
        match dialect {
            Dialect::MindFlavor if content.peers => mindflavor(&mut writer, view),
            Dialect::MindFlavor => {}
            Dialect::Mdlayher => mdlayher(&mut writer, view, content.peers),
            Dialect::Linerate => {
                ours(&mut writer, view, content.version);
                if content.peers {
                    our_peers(&mut writer, view);
                }
            }
        }
    }
    writer.end()
}

/// A sample for each peer of each tunnel that is running.
fn each_peer(view: &View, mut sample: impl FnMut(&Tunnel, &Peer, &str)) {
    for tunnel in view.tunnels.iter().filter(|tunnel| tunnel.is_running()) {
        for peer in &tunnel.peers {
            sample(tunnel, peer, &peer.settings.public_key.to_string());
        }
    }
}

fn mindflavor(writer: &mut Writer, view: &View) {
    let write = |samples: &mut Samples<'_>, value: &dyn Fn(&Peer) -> Option<u64>| {
        each_peer(view, |tunnel, peer, key| {
            let Some(value) = value(peer) else { return };
            let allowed_ips = allowed_ips(peer, ",");
            let allowed_ips = if allowed_ips.is_empty() { "(none)" } else { &allowed_ips };
            let mut labels = vec![("interface", &*tunnel.interface), ("public_key", key), ("allowed_ips", allowed_ips)];
            labels.extend(peer.settings.name.as_deref().map(|name| ("friendly_name", name)));
            samples.add(&labels, value);
        });
    };
    writer.family("wireguard_sent_bytes", Kind::Counter, "Bytes sent to the peer", |samples| {
        write(samples, &|peer| Some(peer.sent));
    });
    writer.family("wireguard_received_bytes", Kind::Counter, "Bytes received from the peer", |samples| {
        write(samples, &|peer| Some(peer.received));
    });
    let help = "Time of the last handshake in seconds since 1970, 0 for never";
    writer.family("wireguard_latest_handshake_seconds", Kind::Gauge, help, |samples| {
        write(samples, &|peer| Some(peer.last_handshake.map_or(0, Time::as_secs)));
    });
    let help = "Seconds since the last handshake, if there was one";
    writer.family("wireguard_latest_handshake_delay_seconds", Kind::Gauge, help, |samples| {
        write(samples, &|peer| peer.last_handshake.map(|then| then.until(view.time).as_secs()));
    });
}

fn mdlayher(writer: &mut Writer, view: &View, peers: bool) {
    writer.family("wireguard_device", Kind::Info, "Metadata about a device.", |samples| {
        for tunnel in view.tunnels.iter().filter(|tunnel| tunnel.is_running()) {
            let key = tunnel.public_key.map(|key| key.to_string()).unwrap_or_default();
            samples.add(&[("device", &tunnel.interface), ("public_key", &key)], 1);
        }
    });
    if !peers {
        return;
    }
    writer.family("wireguard_peer", Kind::Info, "Metadata about a peer.", |samples| {
        each_peer(view, |tunnel, peer, key| {
            let (endpoint, name) = (address(peer), peer.settings.name.as_deref().unwrap_or_default());
            let labels = [("device", &*tunnel.interface), ("public_key", key), ("endpoint", &endpoint), ("name", name)];
            samples.add(&labels, 1);
        });
    });
    writer.family("wireguard_peer_allowed_ips", Kind::Info, "Each of a peer's allowed IPs.", |samples| {
        each_peer(view, |tunnel, peer, key| {
            for (address, length) in &peer.settings.allowed_ips {
                let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                let prefix = format!("{address}/{length}");
                let device = ("device", &*tunnel.interface);
                samples.add(&[device, ("public_key", key), ("allowed_ips", &prefix), ("family", family)], 1);
            }
        });
    });
    let write = |samples: &mut Samples<'_>, value: &dyn Fn(&Peer) -> u64| {
        each_peer(view, |tunnel, peer, key| {
            samples.add(&[("device", &tunnel.interface), ("public_key", key)], value(peer));
        });
    };
    let counter = Kind::Counter;
    writer.family("wireguard_peer_receive_bytes", counter, "Number of bytes received from a given peer.", |samples| {
        write(samples, &|peer| peer.received);
    });
    writer.family(
        "wireguard_peer_transmit_bytes",
        counter,
        "Number of bytes transmitted to a given peer.",
        |samples| {
            write(samples, &|peer| peer.sent);
        },
    );
    let help = "UNIX timestamp for the last handshake with a given peer.";
    writer.family("wireguard_peer_last_handshake_seconds", Kind::Gauge, help, |samples| {
        write(samples, &|peer| peer.last_handshake.map_or(0, Time::as_secs));
    });
}

fn ours(writer: &mut Writer, view: &View, version: &str) {
    writer.family("linerate_build", Kind::Info, "The version of linerate that wrote this.", |samples| {
        samples.add(&[("version", version)], 1);
    });
    writer.family("linerate_tunnel", Kind::Info, "What runs a tunnel.", |samples| {
        for tunnel in &view.tunnels {
            let key = tunnel.public_key.map(|key| key.to_string()).unwrap_or_default();
            let implementation = match tunnel.implementation {
                RunBy::Daemon => "daemon",
                RunBy::Kernel => "kernel",
                RunBy::Gone => "gone",
                RunBy::Unknown => "unknown",
            };
            let labels = [("interface", &*tunnel.interface), ("implementation", implementation), ("public_key", &key)];
            samples.add(&labels, 1);
        }
    });
    writer.family("linerate_tunnel_up", Kind::Gauge, "Whether a tunnel runs and could be read.", |samples| {
        each_tunnel(view, |tunnel| samples.add(&[tunnel.label()], u8::from(tunnel.is_running())));
    });
    let help = "Where a tunnel is that is not here under its name: it was renamed, moved, replaced.";
    writer.family("linerate_tunnel_elsewhere", Kind::Info, help, |samples| {
        each_tunnel(view, |tunnel| {
            if let Some(place) = &tunnel.place {
                samples.add(&[tunnel.label(), ("place", place)], 1);
            }
        });
    });
    let help = "Whether a tunnel has its UDP port; 0 if its link is up and another program has it.";
    writer.family("linerate_tunnel_listening", Kind::Gauge, help, |samples| {
        each_tunnel(view, |tunnel| {
            if let Some(not) = tunnel.counter(NOT_LISTENING) {
                samples.add(&[tunnel.label()], u8::from(not == 0));
            }
        });
    });
    let help = "Peers: with a session, whose session has ended, that never had one, and that are not let in.";
    writer.family("linerate_clients", Kind::Gauge, help, |samples| {
        for tunnel in view.tunnels.iter().filter(|tunnel| tunnel.is_running()) {
            for state in ["connected", "idle", "never", "expired", "quota"] {
                let count = tunnel.peers.iter().filter(|peer| client_state(peer, view.time) == state).count();
                samples.add(&[tunnel.label(), ("state", state)], count);
            }
        }
    });
    writer.family("linerate_drops", Kind::Counter, "Dropped packets by reason.", |samples| {
        each_tunnel(view, |tunnel| {
            tunnel
                .drops()
                .for_each(|(reason, counter)| samples.add(&[tunnel.label(), ("reason", reason)], counter.value));
        });
    });
    let handshakes = "Handshakes that are complete: answered, or confirmed by the peer that started them.";
    writer.family("linerate_handshakes", Kind::Counter, handshakes, |samples| {
        each_tunnel(view, |tunnel| {
            let Some(done) = tunnel.counter("handshakes_done") else { return };
            samples.add(&[tunnel.label(), ("result", "completed")], done);
        });
    });
    writer.family("linerate_handshake_messages_sent", Kind::Counter, "Handshake messages sent.", |samples| {
        each_tunnel(view, |tunnel| {
            for (kind, name) in [("initiation", "handshake_initiations_sent"), ("response", "handshake_responses_sent")]
            {
                tunnel
                    .counter(name)
                    .into_iter()
                    .for_each(|sent| samples.add(&[tunnel.label(), ("message", kind)], sent));
            }
        });
    });
    let help = "Wake-ups of threads, by what woke them and whether there was work.";
    writer.family("linerate_wakeups", Kind::Counter, help, |samples| {
        each_tunnel(view, |tunnel| {
            for counter in &tunnel.counters {
                let name = counter.name.strip_prefix("wakeups_").and_then(|name| name.rsplit_once('_'));
                let Some((by, found)) = name else { continue };
                samples.add(&[tunnel.label(), ("by", by), ("found", found)], counter.value);
            }
        });
    });
    let help = "Looks for packets before a worker sleeps, by whether there were any.";
    writer.family("linerate_looks", Kind::Counter, help, |samples| {
        each_tunnel(view, |tunnel| {
            for found in ["work", "empty"] {
                let count = tunnel.counter(&format!("looks_{found}"));
                count.into_iter().for_each(|count| samples.add(&[tunnel.label(), ("found", found)], count));
            }
        });
    });
    writer.family("linerate_offload_in_use", Kind::Gauge, "Whether an offload of the kernel is in use.", |samples| {
        each_tunnel(view, |tunnel| {
            for counter in &tunnel.counters {
                let Some(offload) = counter.name.strip_prefix("offload_") else { continue };
                samples.add(&[tunnel.label(), ("offload", offload)], counter.value);
            }
        });
    });
    let help = "GSO batches that the system refused and that were sent as single datagrams.";
    writer.family("linerate_segmentation_refused", Kind::Counter, help, |samples| {
        each_tunnel(view, |tunnel| {
            let count = tunnel.counter("segmentation_refused");
            count.into_iter().for_each(|count| samples.add(&[tunnel.label()], count));
        });
    });
    writer.family("linerate_daemon_cpu_seconds", Kind::Counter, "Processor time of a daemon.", |samples| {
        each_tunnel(view, |tunnel| {
            let Some(daemon) = tunnel.daemon else { return };
            samples.add(&[tunnel.label()], daemon.cpu_time.as_secs_f64());
        });
    });
}

fn our_peers(writer: &mut Writer, view: &View) {
    writer.family("linerate_peer", Kind::Info, "A peer's name, address and allowed IPs.", |samples| {
        each_peer(view, |tunnel, peer, key| {
            let (endpoint, allowed_ips) = (address(peer), allowed_ips(peer, ","));
            let name = peer.settings.name.as_deref().unwrap_or_default();
            let [is_named, has_address] = [("name", name), ("endpoint", &endpoint)];
            samples
                .add(&[tunnel.label(), ("public_key", key), is_named, has_address, ("allowed_ips", &allowed_ips)], 1);
        });
    });
    let mut gauge = |name, kind, help, value: &dyn Fn(&Peer) -> Option<String>| {
        writer.family(name, kind, help, |samples| {
            each_peer(view, |tunnel, peer, key| {
                let Some(value) = value(peer) else { return };
                let name = peer.settings.name.as_deref().unwrap_or_default();
                samples.add(&[tunnel.label(), ("public_key", key), ("name", name)], value);
            });
        });
    };
    let seconds =
        |time: Option<Time>| time.map_or_else(|| "0".to_owned(), |time| format!("{:.3}", time.0.as_secs_f64()));
    let help =
        "When the last authentic packet came from a peer, in seconds since 1970; 0 for never, as far as is known.";
    gauge("linerate_peer_last_received_timestamp_seconds", Kind::Gauge, help, &|peer| {
        Some(seconds(peer.last_received))
    });
    let help = "Whether a peer does not answer what is sent to it.";
    gauge("linerate_peer_silent", Kind::Gauge, help, &|peer| Some(u8::from(peer.is_silent(view.time)).to_string()));
    let has_limits = |peer: &Peer| peer.settings.expires.is_some() || peer.settings.quota.is_some();
    gauge("linerate_client_suspended", Kind::Gauge, "Whether a client with limits is not let in.", &|peer| {
        has_limits(peer).then(|| u8::from(peer.suspended.is_some()).to_string())
    });
    gauge("linerate_client_quota_bytes", Kind::Gauge, "How many bytes a client may send and receive.", &|peer| {
        peer.settings.quota.map(|quota| quota.to_string())
    });
    gauge("linerate_client_used_bytes", Kind::Counter, "How many bytes of its quota a client has used.", &|peer| {
        peer.settings.quota.map(|_| peer.quota_used.to_string())
    });
    let help = "When a client expires, in seconds since 1970.";
    gauge("linerate_client_expires_timestamp_seconds", Kind::Gauge, help, &|peer| {
        peer.settings.expires.map(|expires| expires.as_secs().to_string())
    });
    let bits = |rate: u64| Some(rate).filter(|rate| *rate > 0).map(|rate| rate.to_string());
    let help = "How many bits per second may be sent to a client.";
    gauge("linerate_client_rate_down_bits", Kind::Gauge, help, &|peer| bits(peer.settings.rate.down));
    let help = "How many bits per second may be received from a client.";
    gauge("linerate_client_rate_up_bits", Kind::Gauge, help, &|peer| bits(peer.settings.rate.up));
}

fn each_tunnel(view: &View, sample: impl FnMut(&Tunnel)) {
    view.tunnels.iter().for_each(sample);
}

impl Tunnel {
    fn label(&self) -> (&str, &str) {
        ("interface", &self.interface)
    }
}

fn client_state(peer: &Peer, now: Time) -> &'static str {
    match (peer.suspended, peer.last_handshake) {
        (Some(Suspension::Expired), _) => "expired",
        (Some(Suspension::Quota), _) => "quota",
        (None, None) => "never",
        (None, Some(then)) if then.until(now) < SESSION => "connected",
        (None, Some(_)) => "idle",
    }
}

fn allowed_ips(peer: &Peer, separator: &str) -> String {
    let prefixes: Vec<_> =
        peer.settings.allowed_ips.iter().map(|(address, length)| format!("{address}/{length}")).collect();
    prefixes.join(separator)
}

fn address(peer: &Peer) -> String {
    peer.endpoint.as_ref().map(endpoint::text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use linerate_control::keys::PublicKey;
    use linerate_control::rate::Rate;

    use super::*;
    use crate::{Counter, Daemon, Settings};

    const ALL: [Dialect; 3] = [Dialect::MindFlavor, Dialect::Mdlayher, Dialect::Linerate];

    fn peer(key: u8, name: Option<&str>) -> Peer {
        let settings = Settings {
            public_key: PublicKey([key; 32]),
            name: name.map(str::to_owned),
            allowed_ips: vec![([10, 0, 0, key].into(), 32), ("fd00::1".parse().unwrap(), 128)],
            persistent_keepalive: 0,
            expires: Some(Time(Duration::from_secs(9000))),
            quota: Some(1000),
            rate: Rate { down: 20_000_000, up: 5_000_000 },
        };
        let endpoint = Some(([192, 0, 2, key], 51820).into());
        Peer { endpoint, received: 1, sent: 2, quota_used: 7, ..Peer::new(settings) }
    }

    fn view() -> View {
        let counter = |name: &str| Counter { name: name.into(), value: 5, per_second: None };
        let counters = [
            "drop_no_peer",
            "handshakes_done",
            "handshake_initiations_sent",
            "handshake_responses_sent",
            "wakeups_control_work",
            "wakeups_control_empty",
            "looks_work",
            "looks_empty",
            "offload_udp_gso",
            "segmentation_refused",
            "not_listening",
        ];
        let mut seen = peer(2, Some("a \"quoted\" \\ name\nof two lines"));
        seen.last_handshake = Some(Time(Duration::from_secs(4000)));
        let tunnel = |interface: &str| Tunnel {
            interface: interface.to_owned(),
            implementation: RunBy::Daemon,
            problem: None,
            place: (interface == "wg1").then(|| "runs, and its interface is called wg9".to_owned()),
            is_awaited: false,
            file: Default::default(),
            public_key: Some(PublicKey([9; 32])),
            listen_port: 51820,
            fwmark: 0,
            daemon: Some(Daemon { pid: 1, started: 1, cpu_time: Duration::from_millis(1500), cpu: None }),
            instance: 1,
            peers: vec![peer(1, None), seen.clone()],
            counters: counters.iter().map(|name| counter(name)).collect(),
        };
        View { time: Time(Duration::from_secs(4100)), tunnels: vec![tunnel("wg0"), tunnel("wg1")] }
    }

    fn text(format: Format, dialects: &[Dialect], peers: bool) -> String {
        write(&view(), &Content { dialects: dialects.to_vec(), peers, version: "0.0.0" }, format)
    }

    /// The names of the samples, in their order.
    fn names(text: &str) -> Vec<&str> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let mut names: Vec<_> = samples.map(|line| line.split(['{', ' ']).next().unwrap()).collect();
        names.dedup();
        names
    }

    #[test]
    fn every_family_is_written_once_and_is_known_by_its_name() {
        for format in [Format::Classic, Format::OpenMetrics] {
            let text = text(format, &ALL, true);
            assert_eq!(names(&text), NAMES, "in their order, each in one piece");
            assert_eq!(text.matches("# TYPE ").count(), NAMES.len());
            assert_eq!(text.matches("# HELP ").count(), NAMES.len());
        }
    }

    #[test]
    fn no_series_occurs_twice() {
        let text = text(Format::Classic, &ALL, true);
        let series = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0);
        let all: Vec<_> = series.collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn the_dialects_are_those_of_the_others() {
        let text = text(Format::Classic, &ALL, true);
        let (one, two) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let escaped = r#"a \"quoted\" \\ name\nof two lines"#;
        for line in [
            format!(
                r#"wireguard_sent_bytes_total{{interface="wg0",public_key="{two}",allowed_ips="10.0.0.2/32,fd00::1/128",friendly_name="{escaped}"}} 2"#
            ),
            format!(
                r#"wireguard_latest_handshake_seconds{{interface="wg1",public_key="{one}",allowed_ips="10.0.0.1/32,fd00::1/128"}} 0"#
            ),
            format!(r#"wireguard_peer_receive_bytes_total{{device="wg0",public_key="{one}"}} 1"#),
            format!(r#"wireguard_peer_info{{device="wg0",public_key="{one}",endpoint="192.0.2.1:51820",name=""}} 1"#),
            format!(
                r#"wireguard_peer_allowed_ips_info{{device="wg0",public_key="{one}",allowed_ips="fd00::1/128",family="IPv6"}} 1"#
            ),
            r#"linerate_drops_total{interface="wg0",reason="no_peer"} 5"#.to_owned(),
            r#"linerate_tunnel_listening{interface="wg0"} 0"#.to_owned(),
            r#"linerate_tunnel_elsewhere_info{interface="wg1",place="runs, and its interface is called wg9"} 1"#
                .to_owned(),
            r#"linerate_clients{interface="wg1",state="connected"} 1"#.to_owned(),
            r#"linerate_clients{interface="wg1",state="never"} 1"#.to_owned(),
            r#"linerate_wakeups_total{interface="wg0",by="control",found="empty"} 5"#.to_owned(),
            r#"linerate_daemon_cpu_seconds_total{interface="wg0"} 1.5"#.to_owned(),
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
    }

    #[test]
    fn addresses_are_on_no_counter_and_peers_can_be_left_out() {
        for line in text(Format::Classic, &ALL, true).lines().filter(|line| line.contains("endpoint=")) {
            assert!(line.split('{').next().unwrap().ends_with("_info"), "{line}");
        }
        let without = text(Format::Classic, &ALL, false);
        assert!(!without.contains(&PublicKey([1; 32]).to_string()));
        assert!(without.contains("linerate_clients{") && without.contains("wireguard_device_info{"));
    }
}
