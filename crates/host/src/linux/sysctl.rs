//! Sysctls, as files in /proc/sys (man 8 sysctl).

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

/// The value of a sysctl.
///
/// # Errors
/// It does not exist or cannot be read.
pub(super) fn get(name: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path(name)?)?.trim_end().to_owned())
}

/// Sets a sysctl.
///
/// # Errors
/// It does not exist or cannot be set: in a container /proc/sys may be read-only (EROFS).
pub(super) fn set(name: &str, value: &str) -> io::Result<()> {
    // Never created: the kernel has no sysctl of that name then.
    fs::OpenOptions::new().write(true).open(path(name)?)?.write_all(value.as_bytes())
}

/// The interfaces, but for the loopback and `interface`, on which the reverse path filter of IPv4 is strict: the greater of
/// its own value and that of `all` counts (Documentation/networking/ip-sysctl.rst).
pub(super) fn strict_interfaces(interface: &str) -> Vec<String> {
    let value = |name: &str| get(&format!("net.ipv4.conf.{}.rp_filter", name.replace('.', "/"))).unwrap_or_default();
    let all = value("all");
    let folder = fs::read_dir("/proc/sys/net/ipv4/conf").into_iter().flatten().flatten();
    let mut names: Vec<String> = folder.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !["all", "default", "lo", interface].contains(&name.as_str()));
    names.retain(|name| value(name).max(all.clone()) == "1");
    names.sort();
    names
}

/// Sets a sysctl to the value that it had `before`, if it still has `value`: else it is somebody else's. So is IPv4
/// forwarding of an interface once somebody forwards everywhere, as Docker does.
///
/// # Errors
/// It does not exist or cannot be set.
pub(super) fn set_back(name: &str, value: &str, before: &str) -> io::Result<()> {
    let is_theirs = is_ipv4_forwarding(name) && get("net.ipv4.ip_forward").is_ok_and(|everywhere| everywhere == "1");
    if get(name)? == value && !is_theirs { set(name, before) } else { Ok(()) }
}

fn is_ipv4_forwarding(name: &str) -> bool {
    name.starts_with("net.ipv4.conf.") && name.ends_with(".forwarding")
}

/// The file of a sysctl. In the dotted name, a dot of an interface's name is a slash.
fn path(name: &str) -> io::Result<PathBuf> {
    let mut path = PathBuf::from("/proc/sys");
    for part in name.split('.') {
        let file = part.replace('/', ".");
        // Interfaces may have other names (`dev_valid_name` in net/core/dev.c) than those that are plain.
        let plain = |byte: u8| byte.is_ascii_graphic();
        if [".", "..", ""].contains(&&*file) || !file.bytes().all(plain) {
            let message = format!("`{name}' is no name of a sysctl variable");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        path.push(file);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_name_stays_below_proc_sys() {
        assert_eq!(path("net.ipv4.ip_forward").unwrap(), Path::new("/proc/sys/net/ipv4/ip_forward"));
        let of_vlan = path("net.ipv4.conf.eth0/100.forwarding").unwrap();
        assert_eq!(of_vlan, Path::new("/proc/sys/net/ipv4/conf/eth0.100/forwarding"));
        for name in ["", ".", "net..ipv4", "../etc/passwd", "net.//.etc", "net./.ipv4", "net.ipv4.", "net.\0"] {
            assert!(path(name).is_err(), "{name:?}");
        }
    }
}
