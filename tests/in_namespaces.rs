//! For tests that change the host: each runs itself again in network, mount and process namespaces of its own, so that
//! it meets no other one and leaves nothing behind. Included by `#[path]` where it is needed.
//!
//! Without root, a program or /dev/net/tun the test is skipped, with a line on standard error that `./test` counts.

use std::any::type_name;
use std::io::{self, Write};
use std::process::Command;

const INSIDE: &str = "LINERATE_TEST_INSIDE";

/// A minute at most; whatever was started inside ends with the first process there.
const ENTER: &str = "timeout --signal=KILL 60 unshare --net --mount --pid --fork --kill-child --mount-proc --";

/// Hides the tunnels of the machine.
const EMPTY_RUN: &str = "mount -t tmpfs tmpfs /var/run";

/// Runs `body`, a closure written in the test's own function, as the first process of fresh namespaces. PATH begins
/// with /run/bin, which is not there unless the test makes it.
pub fn in_namespaces<F: FnOnce()>(body: F) {
    if std::env::var_os(INSIDE).is_some() {
        // A test may start itself once more in there.
        if std::process::id() == 1 {
            for line in ["ip link set lo up", EMPTY_RUN] {
                assert!(command(line).status().unwrap().success(), "{line}");
            }
        }
        return body();
    }
    // The closure's type is named crate::module::test::{{closure}}.
    let path = type_name::<F>().trim_end_matches("::{{closure}}");
    let (_, name) = path.split_once("::").expect("a crate's name comes first");
    if let Some(reason) = obstacle() {
        return skipped(name, &reason);
    }
    let output = command(ENTER)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .env("PATH", format!("/run/bin:{}", std::env::var("PATH").unwrap_or_default()))
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprint!("{err}");
    assert!(output.status.success() && out.contains("1 passed"), "inside the namespaces: {out}");
}

/// Says that a test could not be made.
pub fn skipped(name: &str, reason: &str) {
    // Not by eprintln, whose output the harness captures for a test that passes.
    writeln!(io::stderr(), "skipped: {name}: {reason}").expect("stderr takes a line");
}

fn obstacle() -> Option<String> {
    // Set by tests/emulated.
    if std::env::var_os("LINERATE_TEST_EMULATOR").is_some() {
        return Some("this machine cannot run an emulated program in namespaces".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    if let Some(reason) = missing(&["ip"]) {
        return Some(reason);
    }
    let enter = format!("{ENTER} test -c /dev/net/tun");
    let entered = command(&enter).output().is_ok_and(|output| output.status.success());
    (!entered).then(|| format!("no namespaces, or no TUN devices: `{enter}` fails"))
}

/// The first of these programs that is not installed, as a reason.
pub fn missing(programs: &[&str]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = |program: &&&str| std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    let program = programs.iter().find(|program| !installed(program))?;
    Some(format!("no {program}"))
}

/// A command of words without spaces.
pub fn command(words: &str) -> Command {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().expect("a command"));
    command.args(words);
    command
}
