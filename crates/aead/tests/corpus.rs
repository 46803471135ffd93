//! Replays the corpus of the fuzz target (docs/testing.md), so that earlier findings are checked on every run and on
//! every CPU.

#[path = "../../../fuzz/src/batches.rs"]
mod batches;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn batches_holds() {
    replay::corpus("batches", batches::check);
}
