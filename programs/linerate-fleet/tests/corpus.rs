//! Replays the corpora of the fuzz targets (docs/testing.md), so that what fuzzing found once is checked on every run.

#[path = "../../../fuzz/src/gateway_messages.rs"]
mod gateway_messages;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn gateway_messages_holds() {
    replay::corpus("gateway_messages", gateway_messages::check);
}
