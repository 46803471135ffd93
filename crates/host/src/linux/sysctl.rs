//! Sysctls, as files in /proc/sys (man 8 sysctl).

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

/// The file of a sysctl. The name must not contain an interface name with a dot.
fn path(name: &str) -> io::Result<PathBuf> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if name.split('.').any(|part| part.is_empty() || !part.bytes().all(plain)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}' is no name of a sysctl variable")));
    }
    Ok(Path::new("/proc/sys").join(name.replace('.', "/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_below_proc_sys() {
        assert_eq!(path("net.ipv4.ip_forward").unwrap(), Path::new("/proc/sys/net/ipv4/ip_forward"));
        for name in ["", ".", "net..ipv4", "../etc/passwd", "net/ipv4", "net.ipv4.", "net.\0"] {
            assert!(path(name).is_err(), "{name:?}");
        }
    }
}
