//! Replays the corpus of the fuzz target `speed_request` (docs/testing.md), so that what fuzzing found once is checked on
//! every run.

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/speed_request.rs"]
mod speed_request;

#[test]
fn speed_request_holds() {
    replay::corpus("speed_request", speed_request::check);
}
