//! Our plans against what the original wg-quick made of the same host with the same file.
//!
//! `wg-quick/*.json` were recorded by `wg-quick/record.py` with wireguard-tools 1.0.20210914 and wireguard-go. Where
//! a later version differs (1.0.20260223 is the one that is matched) the recorded words are put into its order.

use std::path::Path;

use linerate_host::plan::{Hooks, down, messages, undo, up};
use linerate_host::spec::{Compat, HostSpec};
use linerate_host::state::HostState;
use linerate_host::step::{Implementation, Step};
use serde::Deserialize;

#[derive(Deserialize)]
struct Recorded {
    spec: HostSpec,
    hooks: Hooks,
    before: HostState,
    after: HostState,
    down: HostState,
    echo_up: Vec<String>,
    echo_down: Vec<String>,
}

#[test]
fn up_leaves_the_host_as_wg_quick_does() {
    for (name, case) in recorded() {
        let mut host = case.before.clone();
        for step in plan_up(&case) {
            host.apply(&step).unwrap_or_else(|refused| panic!("{name}: {refused}: {step:?}"));
        }
        assert_eq!(comparable(&host), comparable(&case.after), "{name}");
    }
}

#[test]
fn down_leaves_the_host_as_wg_quick_does() {
    for (name, case) in recorded() {
        let plans =
            [down(&case.spec, &case.hooks, &case.after, Compat::WgQuick).steps, undo(&plan_up(&case), &case.hooks)];
        for steps in plans {
            let mut host = case.after.clone();
            for step in steps {
                host.apply(&step).unwrap_or_else(|refused| panic!("{name}: {refused}: {step:?}"));
            }
            assert_eq!(comparable(&host), comparable(&case.down), "{name}");
        }
    }
}

#[test]
fn the_printed_commands_are_those_of_wg_quick() {
    for (name, case) in recorded() {
        assert_eq!(messages::as_commands(&plan_up(&case)), of_later_version(&case), "{name}");
        let without_ledger = down(&case.spec, &case.hooks, &case.after, Compat::WgQuick).steps;
        assert_eq!(messages::as_commands(&without_ledger), case.echo_down, "{name}");
        assert_eq!(messages::as_commands(&undo(&plan_up(&case), &case.hooks)), case.echo_down, "{name}");
    }
}

fn plan_up(case: &Recorded) -> Vec<Step> {
    let plan = up(&case.spec, &case.hooks, Implementation::Kernel, &case.before, Compat::WgQuick).expect("it comes up");
    assert_eq!(plan.warnings, []);
    plan.steps
}

/// Orders do not count, nor do numbers of links and what runs a tunnel.
fn comparable(state: &HostState) -> serde_json::Value {
    let mut state = state.clone();
    state.links.iter_mut().for_each(|link| (link.index, link.wireguard) = (0, false));
    state.routes.sort_by_key(|route| format!("{route:?}"));
    state.rules.sort_by_key(|rule| format!("{rule:?}"));
    serde_json::to_value(state).expect("a state is JSON")
}

fn recorded() -> Vec<(String, Recorded)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wg-quick");
    let files = folder.read_dir().expect("the folder is there").map(|entry| entry.expect("it is readable").path());
    let mut cases: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|extension| extension == "json"))
        .map(|file| {
            let text = std::fs::read_to_string(&file).expect("the file is readable");
            let name = file.display().to_string();
            let case = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, case)
        })
        .collect();
    assert!(!cases.is_empty());
    cases.sort_by(|(one, _), (other, _)| one.cmp(other));
    cases
}

/// What 1.0.20260223 echoes where 1.0.20210914 echoes this, and without the fall-back to a daemon: `PreUp` after the
/// interface, `addconf`, `ip link add dev`, rules before the route that they lead to, a variable set only if it is not.
fn of_later_version(case: &Recorded) -> Vec<String> {
    let mut echo = case.echo_up.clone();
    let is_set = case.before.sysctls.values().any(|value| value == "1");
    echo.retain(|line| !(is_set && line.starts_with("sysctl ")));
    echo.retain(|line| line != "wireguard-go wg0");
    let link = echo.iter().position(|line| line.starts_with("ip link add ")).expect("there is an interface");
    echo.remove(link);
    echo.insert(0, "ip link add dev wg0 type wireguard".to_owned());
    for line in &mut echo {
        *line = line.replace("wg setconf wg0", "wg addconf wg0");
    }
    let routes: Vec<usize> = (0..echo.len()).filter(|at| echo[*at].contains("/0 dev wg0 table ")).collect();
    for at in routes {
        let rules = echo[at + 1..].iter().take_while(|line| line.contains(" rule add ")).count();
        echo[at..=at + rules].rotate_left(1);
    }
    echo
}
