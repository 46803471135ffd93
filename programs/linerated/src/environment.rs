//! The environment variables; all are read and checked before anything else happens.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use linerate_cli::standard_error::Lossy;
use linerate_control::tunnel_file::SPIN_MAX;
use linerate_engine::Helpers;
use linerate_netio::tun;
use linerate_netio::udp::UdpOffloads;
use tracing::level_filters::LevelFilter;

use linerate_privileges::filter::Filter;

/// The variable that switches offloads off.
pub(crate) const OFFLOADS: &str = "LINERATE_OFFLOADS";

/// The variable that says in which network namespace the interface is.
pub(crate) const NETWORK: &str = "LINERATE_NETWORK_FD";

/// The variable that says what ends the tunnel.
pub(crate) const END: &str = "LINERATE_END_FD";

/// The variable that hands a TUN device over.
pub(crate) const TUN: &str = "WG_TUN_FD";

/// The variable that hands a listening socket over.
pub(crate) const UAPI: &str = "WG_UAPI_FD";

/// The settings in the environment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Environment {
    /// Stay in the foreground.
    pub(super) foreground: bool,
    /// The number of an inherited TUN descriptor.
    pub(super) tun: Option<RawFd>,
    /// Where to write which interface `utun` became.
    pub(super) name_file: Option<PathBuf>,
    /// The number of an inherited listening socket.
    pub(super) uapi: Option<RawFd>,
    /// The number of an inherited descriptor of the network namespace to create the interface in.
    pub(super) network: Option<RawFd>,
    /// The number of an inherited descriptor that is readable once the tunnel is to end.
    pub(super) end: Option<RawFd>,
    /// When more than one worker carries packets.
    pub(super) helpers: Helpers,
    /// The offloads to use.
    pub(super) offloads: Offloads,
    /// For how long at most a worker looks for packets before it sleeps.
    pub(super) spin: Duration,
    /// Where to keep what peers with limits have used.
    pub(super) usage: Option<PathBuf>,
    /// What happens on a system call that the daemon does not need.
    pub(super) filter: Filter,
    /// The log level, if it is set.
    log: Option<LevelFilter>,
}

/// The offloads to use: those that the kernel has, without those that [`OFFLOADS`] disables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offloads {
    /// The device's.
    pub(crate) tun: tun::TunOffloads,
    /// The sockets'.
    pub(crate) udp: UdpOffloads,
}

impl Environment {
    /// Reads this process's environment.
    pub(super) fn read() -> Result<Self, String> {
        Self::parse(|name| std::env::var_os(name))
    }

    fn parse(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let text = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.map(|value| value.to_string_lossy().into_owned())
        };
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let number = |name: &str| match text(name) {
            None => Ok(None),
            Some(value) => match value.parse() {
                Ok(number) if number >= 0 => Ok(Some(number)),
                _ => Err(format!("{name}={value} is not the number of a descriptor")),
            },
        };
        Ok(Self {
            foreground: text("WG_PROCESS_FOREGROUND").as_deref() == Some("1"),
            tun: number(TUN)?,
            name_file: path("WG_TUN_NAME_FILE"),
            uapi: number(UAPI)?,
            network: number(NETWORK)?,
            end: number(END)?,
            helpers: text("LINERATE_HELPERS").map_or(Ok(Helpers::OnDemand), |word| helpers(&word))?,
            offloads: text(OFFLOADS).map_or(Ok(Offloads::ALL), |words| Offloads::without(&words))?,
            spin: text("LINERATE_SPIN").map_or(Ok(Duration::ZERO), |text| spin(&text))?,
            usage: path("LINERATE_USAGE"),
            filter: text("LINERATE_SECCOMP").map_or(Ok(Filter::default()), |word| word.parse())?,
            log: text("LOG_LEVEL").map(|level| log_level(&level)).transpose()?,
        })
    }

    /// The descriptors that are handed over, with the variables that name them.
    pub(super) fn handed_over(&self) -> impl Iterator<Item = (&'static str, RawFd)> {
        let all = [(TUN, self.tun), (UAPI, self.uapi), (NETWORK, self.network), (END, self.end)];
        all.into_iter().filter_map(|(variable, number)| Some((variable, number?)))
    }

    /// Whether the daemon logs in the background: as wireguard-go, only if a level is set.
    pub(super) fn logs_in_background(&self) -> bool {
        self.log.is_some_and(|level| level != LevelFilter::OFF)
    }

    /// Starts logging to standard error, one plain line for each event.
    pub(super) fn start_log(&self) {
        // Whoever reads the log adds the time. A log that cannot be written must neither end the tunnel, as std's
        // panic on a closed standard error would, nor delay it.
        tracing_subscriber::fmt()
            .with_max_level(self.log.unwrap_or(LevelFilter::INFO))
            .with_writer(Mutex::new(Lossy))
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .log_internal_errors(false)
            .init();
    }
}

impl Offloads {
    /// The values in `LINERATE_OFFLOADS`.
    pub(crate) const NAMES: [&str; 5] = ["-vnet_hdr", "-tso", "-uso", "-udp_gro", "-udp_gso"];

    const ALL: Self = Self { tun: tun::TunOffloads::ALL, udp: UdpOffloads::ALL };

    /// All except those in the comma-separated list.
    fn without(words: &str) -> Result<Self, String> {
        let Self { mut tun, mut udp } = Self::ALL;
        for word in words.split(',') {
            let offload = match word {
                "-vnet_hdr" => &mut tun.vnet_hdr,
                "-tso" => &mut tun.tso,
                "-uso" => &mut tun.uso,
                "-udp_gro" => &mut udp.gro,
                "-udp_gso" => &mut udp.gso,
                _ => {
                    return Err(format!(
                        "{OFFLOADS}={words} is not a list of {}, any of them, separated by commas: {word:?} is not among them",
                        Self::NAMES.join(", ")
                    ));
                }
            };
            *offload = false;
        }
        Ok(Self { tun, udp })
    }
}

fn spin(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(microseconds @ 0..=SPIN_MAX) => Ok(Duration::from_micros(microseconds.into())),
        _ => Err(format!("LINERATE_SPIN={text} is not a number of microseconds, 0 to {SPIN_MAX}")),
    }
}

fn log_level(level: &str) -> Result<LevelFilter, String> {
    match level {
        "silent" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "info" => Ok(LevelFilter::INFO),
        // The second is wireguard-go's older name for it.
        "debug" | "verbose" => Ok(LevelFilter::DEBUG),
        _ => Err(format!("LOG_LEVEL={level} is not silent, error, info or debug")),
    }
}

fn helpers(word: &str) -> Result<Helpers, String> {
    match word {
        "on-demand" => Ok(Helpers::OnDemand),
        "always" => Ok(Helpers::Always),
        _ => Err(format!("LINERATE_HELPERS={word} is not on-demand or always")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(variables: &[(&str, &str)]) -> Result<Environment, String> {
        Environment::parse(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn an_empty_environment_has_the_defaults() {
        let nothing = Environment {
            foreground: false,
            tun: None,
            name_file: None,
            uapi: None,
            network: None,
            end: None,
            helpers: Helpers::OnDemand,
            offloads: Offloads::ALL,
            spin: Duration::ZERO,
            usage: None,
            filter: Filter::Refuse,
            log: None,
        };
        assert_eq!(parse(&[]), Ok(nothing));
        assert_eq!(parse(&[("LOG_LEVEL", ""), ("WG_TUN_FD", ""), ("LINERATE_OFFLOADS", "")]), parse(&[]));
        assert_eq!(parse(&[("LINERATE_SECCOMP", "")]), parse(&[]));
    }

    #[test]
    fn each_variable_has_its_effect() {
        let all = parse(&[
            ("WG_PROCESS_FOREGROUND", "1"),
            ("WG_TUN_FD", "3"),
            ("WG_TUN_NAME_FILE", "/var/run/wireguard/wg0.name"),
            ("WG_UAPI_FD", "4"),
            ("LINERATE_NETWORK_FD", "5"),
            ("LINERATE_END_FD", "6"),
            ("LINERATE_HELPERS", "always"),
            ("LINERATE_SPIN", "200"),
            ("LINERATE_SECCOMP", "kill"),
            ("LINERATE_USAGE", "/var/lib/linerate"),
            ("LOG_LEVEL", "verbose"),
        ]);
        let expected = Environment {
            foreground: true,
            tun: Some(3),
            name_file: Some("/var/run/wireguard/wg0.name".into()),
            uapi: Some(4),
            network: Some(5),
            end: Some(6),
            helpers: Helpers::Always,
            offloads: Offloads::ALL,
            spin: Duration::from_micros(200),
            usage: Some("/var/lib/linerate".into()),
            filter: Filter::Kill,
            log: Some(LevelFilter::DEBUG),
        };
        assert_eq!(all, Ok(expected));
        assert!(!parse(&[("WG_PROCESS_FOREGROUND", "yes")]).unwrap().foreground, "only 1, as wireguard-go");
    }

    #[test]
    fn offloads_are_switched_off_by_name_alone_or_together() {
        let parsed = |words| parse(&[("LINERATE_OFFLOADS", words)]).unwrap().offloads;
        assert!(Offloads::NAMES.iter().all(|word| parsed(word) != Offloads::ALL));
        let Offloads { tun, udp } = Offloads::ALL;
        assert_eq!(parsed("-vnet_hdr"), Offloads { tun: tun::TunOffloads { vnet_hdr: false, ..tun }, udp });
        assert_eq!(parsed("-udp_gro"), Offloads { tun, udp: UdpOffloads { gro: false, ..udp } });
        let together = Offloads {
            tun: tun::TunOffloads { tso: false, uso: false, ..tun },
            udp: UdpOffloads { gso: false, ..udp },
        };
        assert_eq!(parsed("-udp_gso,-tso,-uso"), together);
    }

    #[test]
    fn an_unknown_offload_is_refused_with_a_list_of_the_known_ones() {
        for words in ["-lro", "udp_gro", "-tso,", "-tso -uso"] {
            let refused = parse(&[("LINERATE_OFFLOADS", words)]).unwrap_err();
            assert!(refused.starts_with(&format!("LINERATE_OFFLOADS={words} is not a list of -vnet_hdr")), "{refused}");
        }
    }

    #[test]
    fn a_log_in_the_background_needs_a_level() {
        assert!(!parse(&[]).unwrap().logs_in_background());
        assert!(!parse(&[("LOG_LEVEL", "silent")]).unwrap().logs_in_background());
        assert!(parse(&[("LOG_LEVEL", "error")]).unwrap().logs_in_background());
    }

    #[test]
    fn an_invalid_value_is_refused_with_its_name() {
        let bad = [
            ("WG_TUN_FD", "x"),
            ("WG_TUN_FD", "-1"),
            ("WG_UAPI_FD", "3 "),
            ("LINERATE_NETWORK_FD", "net"),
            ("LINERATE_END_FD", "-2"),
            ("LINERATE_HELPERS", "4"),
            ("LINERATE_SPIN", "1001"),
            ("LINERATE_SPIN", "50us"),
            ("LINERATE_SECCOMP", "on"),
            ("LOG_LEVEL", "loud"),
        ];
        for (name, value) in bad {
            let refused = parse(&[(name, value)]).unwrap_err();
            assert!(refused.starts_with(&format!("{name}={value} is not")), "{refused}");
        }
    }
}
