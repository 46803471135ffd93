//! Replays the corpora of the fuzz targets (docs/testing.md), so that earlier findings are checked on every run.

#[path = "../../../fuzz/src/allowed_ips.rs"]
mod allowed_ips;
#[path = "../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../fuzz/src/datagrams.rs"]
mod datagrams;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/replay_window.rs"]
mod replay_window;
#[path = "protocol/simulation.rs"]
#[allow(dead_code, reason = "the other tests need more of it")]
mod simulation;

#[test]
fn allowed_ips_holds() {
    replay::corpus("allowed_ips", allowed_ips::check);
}

#[test]
fn datagrams_holds() {
    replay::corpus("datagrams", datagrams::check);
}

#[test]
fn replay_window_holds() {
    replay::corpus("replay_window", replay_window::check);
}
