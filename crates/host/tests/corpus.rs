//! Replays the corpora of the fuzz targets (docs/testing.md), so that what fuzzing found once is checked on every run.

#![cfg(target_os = "linux")]

#[path = "../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../fuzz/src/plan.rs"]
mod plan;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/resolv_conf.rs"]
mod resolv_conf;

#[test]
fn plan_holds() {
    replay::corpus("plan", plan::check);
}

#[test]
fn resolv_conf_holds() {
    replay::corpus("resolv_conf", resolv_conf::check);
}
