//! A ledger round-trips; every step has a description, and the inverse of its inverse is the step.

use linerate_host::plan::{down, messages, reload, undo};
use linerate_host::state::HostState;
use linerate_tunnel::ledger::Ledger;

pub fn check(input: &[u8]) {
    let Ok(ledger) = serde_json::from_slice::<Ledger>(input) else { return };
    let text = serde_json::to_vec_pretty(&ledger).expect("a ledger is JSON");
    let again = serde_json::from_slice::<Ledger>(&text);
    assert_eq!(again.ok().as_ref(), Some(&ledger), "writing and reading round-trip");

    assert!(ledger.steps.iter().all(|step| !messages::describe(step).is_empty()));
    let _ = messages::as_commands(&ledger.steps);
    for step in &ledger.steps {
        let back = step.undo().and_then(|undone| undone.undo());
        assert!(back.is_none_or(|back| back == *step), "{step:?}");
    }
    let mut host = HostState::default();
    for step in &ledger.steps {
        let _ = host.apply(step);
    }
    for step in undo(&ledger.steps, &ledger.hooks) {
        let _ = host.apply(&step);
    }
    let _ = down(&ledger.spec, &ledger.hooks, &host, ledger.compat);
    let _ = reload(&ledger.spec, &ledger.spec, &host, &ledger.steps, ledger.compat);
}
