//! Replays the corpora of the fuzz targets (docs/testing.md), so that earlier findings are checked on every run.

#[path = "../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../fuzz/src/checksum.rs"]
mod checksum;
#[path = "../../../fuzz/src/packet_merge.rs"]
mod packet_merge;
#[path = "../../../fuzz/src/packet_split.rs"]
mod packet_split;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn packet_merge_holds() {
    replay::corpus("packet_merge", packet_merge::check);
}

#[test]
fn packet_split_holds() {
    replay::corpus("packet_split", packet_split::check);
}
