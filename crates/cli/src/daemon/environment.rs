//! The environment variables, all read and checked before anything is done.

use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;

use linerate_engine::Followers;
use tracing::level_filters::LevelFilter;

use crate::Complaint;

/// What the environment asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Environment {
    /// Stay in the foreground.
    pub(super) foreground: bool,
    /// The number of an inherited TUN descriptor.
    pub(super) tun: Option<RawFd>,
    /// The number of an inherited listening socket.
    pub(super) uapi: Option<RawFd>,
    /// When more than one worker carries packets.
    pub(super) followers: Followers,
    /// How much to log, if that was said.
    log: Option<LevelFilter>,
}

impl Environment {
    /// Reads this process's environment.
    pub(super) fn read() -> Result<Self, Complaint> {
        Self::parse(|name| std::env::var_os(name))
    }

    fn parse(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Complaint> {
        let text = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.map(|value| value.to_string_lossy().into_owned())
        };
        let number = |name: &str| match text(name) {
            None => Ok(None),
            Some(value) => match value.parse() {
                Ok(number) if number >= 0 => Ok(Some(number)),
                _ => Err(format!("{name}={value} is not the number of a descriptor")),
            },
        };
        Ok(Self {
            foreground: text("WG_PROCESS_FOREGROUND").as_deref() == Some("1"),
            tun: number("WG_TUN_FD")?,
            uapi: number("WG_UAPI_FD")?,
            followers: text("LINERATE_FOLLOWERS").map_or(Ok(Followers::WhenUseful), |word| followers(&word))?,
            log: text("LOG_LEVEL").map(|level| log_level(&level)).transpose()?,
        })
    }

    /// Whether the log goes on after the program that started us has gone: as with wireguard-go, only
    /// if a level was asked for.
    pub(super) fn logs_in_background(&self) -> bool {
        self.log.is_some_and(|level| level != LevelFilter::OFF)
    }

    /// Sends everything that is logged, one plain line each, to standard error.
    pub(super) fn start_log(&self) {
        // A supervisor or the terminal knows the time. A log that cannot be written must not end the
        // tunnel, as std's panic on a closed standard error would.
        tracing_subscriber::fmt()
            .with_max_level(self.log.unwrap_or(LevelFilter::INFO))
            .with_writer(io::stderr)
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .log_internal_errors(false)
            .init();
    }
}

fn log_level(level: &str) -> Result<LevelFilter, Complaint> {
    match level {
        "silent" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "info" => Ok(LevelFilter::INFO),
        // The second is wireguard-go's older name for it.
        "debug" | "verbose" => Ok(LevelFilter::DEBUG),
        _ => Err(format!("LOG_LEVEL={level} is not silent, error, info or debug")),
    }
}

fn followers(word: &str) -> Result<Followers, Complaint> {
    match word {
        "useful" => Ok(Followers::WhenUseful),
        "always" => Ok(Followers::Always),
        _ => Err(format!("LINERATE_FOLLOWERS={word} is not useful or always")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(variables: &[(&str, &str)]) -> Result<Environment, Complaint> {
        Environment::parse(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn an_empty_environment_asks_for_nothing() {
        let nothing =
            Environment { foreground: false, tun: None, uapi: None, followers: Followers::WhenUseful, log: None };
        assert_eq!(parse(&[]), Ok(nothing));
        assert_eq!(parse(&[("LOG_LEVEL", ""), ("WG_TUN_FD", "")]), parse(&[]));
    }

    #[test]
    fn each_variable_has_its_effect() {
        let all = parse(&[
            ("WG_PROCESS_FOREGROUND", "1"),
            ("WG_TUN_FD", "3"),
            ("WG_UAPI_FD", "4"),
            ("LINERATE_FOLLOWERS", "always"),
            ("LOG_LEVEL", "verbose"),
        ]);
        let expected = Environment {
            foreground: true,
            tun: Some(3),
            uapi: Some(4),
            followers: Followers::Always,
            log: Some(LevelFilter::DEBUG),
        };
        assert_eq!(all, Ok(expected));
        assert!(!parse(&[("WG_PROCESS_FOREGROUND", "yes")]).unwrap().foreground, "only 1, as wireguard-go");
    }

    #[test]
    fn a_log_in_the_background_has_to_be_asked_for() {
        assert!(!parse(&[]).unwrap().logs_in_background());
        assert!(!parse(&[("LOG_LEVEL", "silent")]).unwrap().logs_in_background());
        assert!(parse(&[("LOG_LEVEL", "error")]).unwrap().logs_in_background());
    }

    #[test]
    fn what_cannot_be_understood_is_refused_by_name() {
        let bad = [
            ("WG_TUN_FD", "x"),
            ("WG_TUN_FD", "-1"),
            ("WG_UAPI_FD", "3 "),
            ("LINERATE_FOLLOWERS", "4"),
            ("LOG_LEVEL", "loud"),
        ];
        for (name, value) in bad {
            let refused = parse(&[(name, value)]).unwrap_err();
            assert!(refused.starts_with(&format!("{name}={value} is not")), "{refused}");
        }
    }
}
