//! Replays the corpus of the fuzz target `ledger` (docs/testing.md), so that what fuzzing found once is checked on
//! every run.

#[path = "../../../fuzz/src/ledger.rs"]
mod ledger;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn ledger_holds() {
    replay::corpus("ledger", ledger::check);
}
