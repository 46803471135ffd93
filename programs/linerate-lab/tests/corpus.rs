//! Replays the corpora of the fuzz targets (docs/testing.md), so that what fuzzing found once is checked on every run.

#[path = "../../../fuzz/src/lab_record.rs"]
mod lab_record;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn lab_record_holds() {
    replay::corpus("lab_record", lab_record::check);
}
