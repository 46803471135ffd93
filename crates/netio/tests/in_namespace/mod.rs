//! What the tests that touch the kernel have in common: namespaces, and commands in them.

use std::path::Path;

#[path = "../../../../tests/in_namespaces.rs"]
mod in_namespaces;

pub use in_namespaces::in_namespaces as in_namespace;

/// Runs a command that must succeed; answers what it printed.
pub fn run(command: &str) -> String {
    let output = output(command);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that may fail.
pub fn output(command: &str) -> std::process::Output {
    in_namespaces::command(command).output().unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// Sets the kernel parameter `key`, a path under /proc/sys.
pub fn sysctl(key: &str, value: &str) {
    std::fs::write(Path::new("/proc/sys").join(key), value).unwrap();
}
