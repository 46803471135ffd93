//! Replays the corpora of the fuzz targets (docs/testing.md), so that every run checks what fuzzing found.

#[path = "../../../fuzz/src/import.rs"]
mod import;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn import_holds() {
    replay::corpus("import", import::check);
}
