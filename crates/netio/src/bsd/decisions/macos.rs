//! Which interface of utun a name asks for, and why there is none. The order of the calls is that of wireguard-go
//! (tun/tun_darwin.go).

use std::io;

use crate::tun::TunError;

/// What its names begin with; alone, it asks for the first that is free.
const PREFIX: &str = "utun";

/// The steps of making an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A socket of the kernel's control protocol.
    Socket,
    /// The number of utun's control.
    Find,
    /// The connection, which is the interface.
    Connect,
    /// Its name.
    Name,
    /// Its index.
    Index,
}

/// The unit of an interface's name: utun0 is the first, and 0 is any that is free (bsd/net/if_utun.c, utun_ctl_setup,
/// utun_ctl_connect).
pub(crate) fn unit(name: &str) -> Result<u32, TunError> {
    let number = name.strip_prefix(PREFIX);
    let unit = match number {
        Some("") => Some(0),
        // Written as the kernel does: the interface has this very name.
        Some(number) => number.parse::<u16>().ok().filter(|at| at.to_string() == number).map(|at| u32::from(at) + 1),
        None => None,
    };
    unit.ok_or_else(|| {
        let text = format!("{name:?} cannot be an interface name: choose `utun`, which is any free one, or `utun7`");
        TunError::Refused(io::ErrorKind::InvalidInput, text)
    })
}

/// Why a step failed on the way to the interface `name`.
pub(crate) fn refuse(name: &str, step: Step, error: io::Error) -> TunError {
    let (kind, text) = match (step, error.raw_os_error()) {
        // The control is for root alone (CTL_FLAG_PRIVILEGED).
        (Step::Connect, Some(libc::EPERM | libc::EACCES)) => {
            (io::ErrorKind::PermissionDenied, format!("cannot create interface {name}: permission denied; run as root"))
        }
        (Step::Connect, Some(libc::EBUSY)) => (
            io::ErrorKind::AlreadyExists,
            format!("interface {name} is in use by another process: choose another one, or `utun` for a free one"),
        ),
        _ => {
            let step = match step {
                Step::Socket => "its socket",
                Step::Find => "CTLIOCGINFO",
                Step::Connect => "connect",
                Step::Name => "UTUN_OPT_IFNAME",
                Step::Index => "finding its index",
            };
            return TunError::Failed(step, error);
        }
    };
    TunError::Refused(kind, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_any_utun_or_one_by_its_number() {
        for (name, expected) in [("utun", 0), ("utun0", 1), ("utun7", 8), ("utun65535", 65536)] {
            assert_eq!(unit(name).unwrap(), expected, "{name}");
        }
        for name in ["", "wg0", "utu", "utun-1", "utun+1", "utun01", "utun 1", "utun1x", "utun65536", "Utun1"] {
            let error = io::Error::from(unit(name).unwrap_err());
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
            assert!(error.to_string().contains("`utun`"), "{error}");
        }
    }

    #[test]
    fn what_failed_says_what_to_do() {
        let refused = |step, errno| refuse("utun7", step, io::Error::from_raw_os_error(errno)).to_string();
        assert!(refused(Step::Connect, libc::EPERM).contains("run as root"));
        assert!(refused(Step::Connect, libc::EBUSY).contains("utun7 is in use by another process"));
        assert!(refused(Step::Connect, libc::ENOMEM).contains("connect"));
        assert!(refused(Step::Socket, libc::EPERM).contains("its socket"));
    }
}
