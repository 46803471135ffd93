//! Replays the corpus of the fuzz target `generic_netlink` (docs/testing.md), which tests private functions.

use super::{reply, request};

#[path = "../../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../../fuzz/src/generic_netlink.rs"]
mod generic_netlink;
#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn generic_netlink_holds() {
    replay::corpus("generic_netlink", generic_netlink::check);
}
