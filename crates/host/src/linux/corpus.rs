//! Replays the corpus of the fuzz target `netlink` (docs/fuzzing.md): what it reads is no one's business but this folder's.

use super::{firewall, links, message, routes, rules};

#[path = "../../../../fuzz/src/netlink.rs"]
mod netlink;
#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn netlink_holds() {
    replay::corpus("netlink", netlink::check);
}
