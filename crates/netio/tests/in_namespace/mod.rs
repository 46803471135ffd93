//! Runs each test that touches the kernel in a network namespace of its own.
//!
//! The test process starts itself again inside the namespace, which ends with the test; nothing outside is touched.
//! Without root, `ip`, `unshare` or /dev/net/tun the test is skipped, with a message on stderr.

use std::any::type_name;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

const INSIDE: &str = "LINERATE_NETIO_TEST_INSIDE";

/// Runs `body`, a closure written in the test's own function, in a fresh network namespace
/// and for at most a minute.
pub fn in_namespace<F: FnOnce()>(body: F) {
    if std::env::var_os(INSIDE).is_some() {
        run("ip link set lo up");
        return body();
    }
    // The closure's type is named crate::module::test::{{closure}}.
    let path = type_name::<F>().trim_end_matches("::{{closure}}");
    let (_, name) = path.split_once("::").expect("a crate's name comes first");
    if let Some(reason) = obstacle() {
        // Not eprintln: the harness captures its output for a test that passes.
        writeln!(io::stderr(), "skipped: {name}: {reason}").expect("stderr takes a line");
        return;
    }
    let output = Command::new("timeout")
        .args(["60", "unshare", "--net", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprint!("{err}");
    assert!(output.status.success() && out.contains("1 passed"), "inside the namespace: {out}");
}

fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        Some("not root")
    } else if !Path::new("/dev/net/tun").exists() {
        Some("no /dev/net/tun")
    } else if !succeeds("unshare --net ip link") {
        Some("no network namespaces: `unshare --net ip link` fails")
    } else {
        None
    }
}

/// Runs a command that must succeed; answers what it printed.
pub fn run(command: &str) -> String {
    let output = output(command);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a command succeeds.
pub fn succeeds(command: &str) -> bool {
    output(command).status.success()
}

fn output(command: &str) -> std::process::Output {
    let mut words = command.split_whitespace();
    let program = words.next().expect("a command");
    Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Sets the kernel parameter `key`, a path under /proc/sys.
pub fn sysctl(key: &str, value: &str) {
    std::fs::write(Path::new("/proc/sys").join(key), value).unwrap();
}
