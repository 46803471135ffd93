//! Where things are kept: where users of each system look for them.

/// The files of tunnels.
pub(crate) const CONFIGURATION: &str = system("/etc/wireguard", "/usr/local/etc/wireguard");

/// What a boot is to forget.
pub(crate) const RUN: &str = system("/run/linerate", "/var/run/linerate");

/// What peers have used of their quotas.
pub(crate) const USAGE: &str = system(linerate_control::usage::DIRECTORY, "/var/db/linerate");

/// hier(7) of Linux, or that of FreeBSD.
const fn system(linux: &'static str, freebsd: &'static str) -> &'static str {
    if cfg!(target_os = "linux") { linux } else { freebsd }
}
