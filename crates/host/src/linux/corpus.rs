//! Replays the corpus of the fuzz target `netlink` (docs/testing.md): the functions under test are private to this
//! module.

use super::{links, nftables, routes, rules};

#[path = "../../../../fuzz/src/netlink.rs"]
mod netlink;
#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn netlink_holds() {
    replay::corpus("netlink", netlink::check);
}
