//! Why there are no namespaces, and what to do: each way in which a system forbids them to ordinary users.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

/// The TUN driver.
pub(crate) const TUN: &str = "/dev/net/tun";

/// What was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// To open the TUN driver.
    Tun,
    /// To make a user namespace.
    User,
    /// To say who exists in it.
    Map,
    /// To make a network namespace.
    Network,
    /// To make a mount namespace.
    Mounts,
    /// To mount on this path.
    Mount(PathBuf),
    /// To find this file.
    File(PathBuf),
}

/// What the system did not allow, why, and what to do: a sentence for people.
#[derive(Debug)]
pub struct Refusal {
    attempt: Attempt,
    error: io::Error,
    advice: String,
}

impl Refusal {
    /// Makes one of an error, with what the system says of itself.
    pub(crate) fn of<E: Into<io::Error>>(attempt: Attempt) -> impl FnOnce(E) -> Self {
        move |error| {
            let error = error.into();
            let advice = advice(&attempt, &error, settings());
            Self { attempt, error, advice }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.attempt {
            Attempt::Tun => write!(f, "cannot open {TUN}")?,
            Attempt::User | Attempt::Map => write!(f, "cannot make a user namespace")?,
            Attempt::Network => write!(f, "cannot make a network namespace")?,
            Attempt::Mounts => write!(f, "cannot make a mount namespace")?,
            Attempt::Mount(path) => write!(f, "cannot mount on {}", path.display())?,
            Attempt::File(path) => write!(f, "cannot replace {}", path.display())?,
        }
        let reason = Errno::from_io_error(&self.error).map_or_else(|| self.error.to_string(), in_words);
        write!(f, ": {reason}")?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// As strerror(3), without the number.
fn in_words(errno: Errno) -> String {
    let text = io::Error::from(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// What a system says about namespaces of ordinary users; what it does not know is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// user.max_user_namespaces and its kin for networks and mounts: of this user, in the present user namespace.
    most: [Option<String>; 3],
    /// kernel.unprivileged_userns_clone (Debian's and Arch's kernels).
    debian: Option<String>,
    /// kernel.apparmor_restrict_unprivileged_userns (Ubuntu's).
    apparmor: Option<String>,
    /// The kernel has user namespaces.
    exist: bool,
    /// A filter of system calls is in force.
    filtered: bool,
    /// The user is root without CAP_SETFCAP, and may not be mapped (since Linux 5.12).
    unmappable_root: bool,
}

/// Those of the system as they were at the first call: in a user namespace of its own a process sees no limits.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(Settings::read)
}

const MOST: [&str; 3] = ["user.max_user_namespaces", "user.max_net_namespaces", "user.max_mnt_namespaces"];

impl Settings {
    fn read() -> Self {
        let value = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
            Some(text.trim().to_owned())
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let filter = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
        Self {
            most: MOST.map(value),
            debian: value("kernel.unprivileged_userns_clone"),
            apparmor: value("kernel.apparmor_restrict_unprivileged_userns"),
            exist: fs::symlink_metadata("/proc/self/ns/user").is_ok(),
            filtered: filter == Some("2"),
            unmappable_root: geteuid().is_root()
                && capabilities(None).is_ok_and(|own| !own.effective.contains(CapabilitySet::SETFCAP)),
        }
    }
}

/// What to do about it, as the end of a sentence.
fn advice(attempt: &Attempt, error: &io::Error, settings: &Settings) -> String {
    let Some(errno) = Errno::from_io_error(error) else { return String::new() };
    match (attempt, errno) {
        (Attempt::Tun, Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
            format!("run `sudo modprobe tun`, or start the container with --device {TUN}")
        }
        (Attempt::Tun, Errno::ACCESS | Errno::PERM) => {
            format!("allow it with `sudo chmod 666 {TUN}`, as systemd does: it gives no rights over the host's network")
        }
        (Attempt::File(_), Errno::NOENT) => "make an empty one, over which that of the tunnel can be put".to_owned(),
        (Attempt::Map, Errno::PERM) if settings.unmappable_root => {
            "root needs CAP_SETFCAP for one: start the container with --cap-add SETFCAP, or run this as another user"
                .to_owned()
        }
        (Attempt::User, Errno::NOSPC | Errno::USERS) => most(0, settings),
        (Attempt::Network, Errno::NOSPC) => most(1, settings),
        (Attempt::Mounts, Errno::NOSPC) => most(2, settings),
        (Attempt::User, Errno::INVAL | Errno::NOSYS) if !settings.exist => {
            "this kernel has none (CONFIG_USER_NS)".to_owned()
        }
        (
            Attempt::User | Attempt::Map | Attempt::Network | Attempt::Mounts,
            Errno::PERM | Errno::ACCESS | Errno::NOSYS,
        ) => forbidden(*attempt == Attempt::User, settings),
        (Attempt::Mount(_), Errno::PERM | Errno::ACCESS) => {
            "in a container, AppArmor or a filter of system calls may forbid it: start it with --security-opt \
             apparmor=unconfined --security-opt seccomp=unconfined"
                .to_owned()
        }
        _ => String::new(),
    }
}

fn most(which: usize, settings: &Settings) -> String {
    let name = MOST[which];
    match settings.most[which].as_deref() {
        Some("0") => format!("{name} is 0: this system forbids them. Allow them with `sudo sysctl -w {name}=10000`"),
        Some(count) => format!(
            "{name} is {count}, and so many exist, or 32 within each other. Allow more with `sudo sysctl -w {name}=NUMBER`"
        ),
        None => format!("{name} is reached"),
    }
}

/// Who forbids them, as far as that can be found out: the first that could. AppArmor lets a user namespace be made and then
/// takes all capabilities in it away; filters refuse `unshare` from the first on.
fn forbidden(from_the_first_on: bool, settings: &Settings) -> String {
    match settings {
        Settings { debian: Some(value), .. } if value == "0" => {
            "kernel.unprivileged_userns_clone is 0: this system forbids them to ordinary users. Allow them with \
             `sudo sysctl -w kernel.unprivileged_userns_clone=1`"
        }
        Settings { apparmor: Some(value), filtered, .. } if value != "0" && !(from_the_first_on && *filtered) => {
            "AppArmor forbids them to programs without a profile of their own \
             (kernel.apparmor_restrict_unprivileged_userns). Give linerate one, as docs/no-root.md says"
        }
        Settings { filtered: true, .. } => {
            "a filter of system calls forbids them, as in containers of Docker and Kubernetes. Start the container with \
             --security-opt seccomp=unconfined (Kubernetes: seccompProfile of type Unconfined), or with a profile that \
             allows unshare, setns and mount; a service of systemd, without RestrictNamespaces and SystemCallFilter"
        }
        _ => "the system forbids them to ordinary users: a chroot does, and so may a security module (SELinux)",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of a system that forbids nothing.
    fn open() -> Settings {
        Settings { most: [(); 3].map(|()| Some("96363".to_owned())), exist: true, ..Settings::default() }
    }

    fn said(attempt: Attempt, errno: Errno, settings: &Settings) -> String {
        let error = io::Error::from(errno);
        let advice = advice(&attempt, &error, settings);
        Refusal { attempt, error, advice }.to_string()
    }

    #[track_caller]
    fn assert_says(settings: &Settings, attempt: Attempt, errno: Errno, words: &str) {
        let said = said(attempt, errno, settings);
        assert!(said.contains(words) && !said.contains("os error"), "{said}");
    }

    #[test]
    fn each_way_of_forbidding_them_is_named_with_what_to_do() {
        let none = || Some("0".to_owned());
        let limited = Settings { most: [none(), none(), none()], ..open() };
        assert_says(&limited, Attempt::User, Errno::NOSPC, "sysctl -w user.max_user_namespaces=10000");
        assert_says(&limited, Attempt::Network, Errno::NOSPC, "sysctl -w user.max_net_namespaces=10000");
        assert_says(&limited, Attempt::Mounts, Errno::NOSPC, "sysctl -w user.max_mnt_namespaces=10000");
        assert_says(&open(), Attempt::User, Errno::NOSPC, "user.max_user_namespaces is 96363");
        let debian = Settings { debian: none(), ..open() };
        assert_says(&debian, Attempt::User, Errno::PERM, "kernel.unprivileged_userns_clone=1");
        // Ubuntu lets them be made, and takes all capabilities away.
        let ubuntu = Settings { apparmor: Some("1".to_owned()), ..open() };
        assert_says(&ubuntu, Attempt::Map, Errno::PERM, "AppArmor");
        assert_says(&ubuntu, Attempt::Network, Errno::PERM, "docs/no-root.md");
        let docker = Settings { filtered: true, ..open() };
        let docker_on_ubuntu = Settings { filtered: true, ..ubuntu };
        assert_says(&docker_on_ubuntu, Attempt::User, Errno::PERM, "seccomp=unconfined");
        assert_says(&docker_on_ubuntu, Attempt::Map, Errno::ACCESS, "AppArmor");
        assert_says(&docker, Attempt::User, Errno::PERM, "seccomp=unconfined");
        assert_says(&docker, Attempt::User, Errno::NOSYS, "seccomp=unconfined");
        assert_says(&open(), Attempt::User, Errno::PERM, "SELinux");
        let without_setfcap = Settings { unmappable_root: true, filtered: true, ..open() };
        assert_says(&without_setfcap, Attempt::Map, Errno::PERM, "--cap-add SETFCAP");
        let bare = Settings { exist: false, ..open() };
        assert_says(&bare, Attempt::User, Errno::INVAL, "CONFIG_USER_NS");
    }

    #[test]
    fn what_else_is_missing_is_named_with_what_to_do() {
        assert_says(&open(), Attempt::Tun, Errno::NOENT, "modprobe tun");
        assert_says(&open(), Attempt::Tun, Errno::ACCESS, "chmod 666 /dev/net/tun");
        assert_says(&open(), Attempt::File("/etc/resolv.conf".into()), Errno::NOENT, "make an empty one");
        assert_says(&open(), Attempt::Mount("/run".into()), Errno::ACCESS, "apparmor=unconfined");
    }

    #[test]
    fn an_error_without_advice_is_still_a_sentence() {
        let said = said(Attempt::Mount("/run".into()), Errno::NOENT, &open());
        assert_eq!(said, "cannot mount on /run: no such file or directory");
    }
}
