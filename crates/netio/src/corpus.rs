//! Replays the corpus of the fuzz target `rtnetlink` (docs/fuzzing.md): what it reads is no one's business but this crate's.

use super::{link, netlink};

#[path = "../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/rtnetlink.rs"]
mod rtnetlink;

#[test]
fn rtnetlink_holds() {
    replay::corpus("rtnetlink", rtnetlink::check);
}
