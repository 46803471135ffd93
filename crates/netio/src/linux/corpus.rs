//! Replays the corpus of the fuzz target `rtnetlink` (docs/testing.md): the functions under test are private to this
//! crate.

use super::link;

#[path = "../../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../../fuzz/src/rtnetlink.rs"]
mod rtnetlink;

#[test]
fn rtnetlink_holds() {
    replay::corpus("rtnetlink", rtnetlink::check);
}
